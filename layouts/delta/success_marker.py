"""Marker ``_SUCCESS`` at the root of a Delta table, for jobs that request one.

It is Hadoop's SuccessData with one more member, ``delta``, which has the entry's version and key.
The process that finishes the job writes it after the entry, so a job that is not committed writes
none.

========================================  ========================================================
the table's ``_SUCCESS``                  then finishing a job
========================================  ========================================================
is missing                                writes it, if it is still missing
names this job's entry, or a later one    keeps it: a job may be finished much later
names an earlier one, or no entry         replaces it, if it is still the same object
========================================  ========================================================

Engines and VACUUM ignore names that begin with an underscore.
"""

from __future__ import annotations

import json
from typing import Any

from ...committer.errors import OutcomeUnknownError
from ...committer.format.records.success_marker import COMMITTER, success_data
from ...committer.store.requests import Done, Found, Get, Put, Step
from ...log.actions import AddFile
from ...log.entries import LogEntry, LogFolder
from .paths import DeltaRoot

#: The member of an entry's ``commitInfo`` that requests a marker.
ASKED = "successMarker"
_MEMBER = "delta"
_TRIES = 10


def write_marker(root: DeltaRoot, folder: LogFolder, entry: LogEntry) -> Step[None]:
    """Write the marker of an entry that requests one, unless that of a later entry is there.

    :raises OutcomeUnknownError: the store did not confirm the marker.
    """
    if entry.ours.get(ASKED) is not True:
        return
    key = f"{root.prefix}_SUCCESS"
    for _ in range(_TRIES):
        there = yield from Get(key)
        found = there if isinstance(there, Found) else None
        if found is not None and _version(found.body) >= entry.version:
            return
        etag = None if found is None else found.etag
        body = _body(root, folder, entry)
        answer = yield from Put(key, body, if_none_match=etag is None, if_match=etag)
        if isinstance(answer, Done):
            return
    raise OutcomeUnknownError("The store did not take the _SUCCESS of a job.", key=key)


def _version(body: bytes) -> int:
    """Return the version of the entry that a marker names; -1: it names no entry."""
    try:
        found = json.loads(body)[_MEMBER]["version"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return -1
    return found if type(found) is int else -1


def _body(root: DeltaRoot, folder: LogFolder, entry: LogEntry) -> bytes:
    owner = entry.ours.get("owner")
    host = owner.get("host") if isinstance(owner, dict) else None
    added = [it for it in entry.of(AddFile) if it.tags.get("job") == entry.job]
    head = {
        "hostname": host or "",
        "committer": COMMITTER,
        "description": f"{entry.operation} into s3://{root.bucket}/{root.prefix}".rstrip("/"),
        "jobId": entry.job,
        "jobIdSource": COMMITTER,
        "diagnostics": {},
    }
    more: dict[str, Any] = {
        "metrics": {
            "committer_commits_completed": len(added),
            "committer_bytes_committed": sum(it.size for it in added),
        },
        _MEMBER: {"version": entry.version, "entry": folder.entry(entry.version)},
    }
    at = entry.stamped_at or 0.0
    # Files in a fast root lie elsewhere, so the marker does not name them.
    named = [root.key_of(it.path) for it in added if "://" not in it.path]
    return success_data(head, at, named, **more)
