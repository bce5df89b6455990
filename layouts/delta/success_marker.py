"""The ``_SUCCESS`` at a Delta table's root, of jobs that ask for one.

It is Hadoop's SuccessData with one more member, ``delta``, which has the entry's version and key.
It is written after the entry: a job that is not committed writes none. The process that finishes
the job writes it.

========================================  ========================================================
the table's ``_SUCCESS``                  what finishing a job does
========================================  ========================================================
is not there                              writes it, if it is still not there
names this job's entry, or a later one    leaves it: a job may be finished long after
names an earlier one, or no entry         replaces it, if it is still the same object
========================================  ========================================================

Engines and VACUUM pass over names that begin with an underscore.
"""

from __future__ import annotations

import json

from ...committer.errors import OutcomeUnknownError
from ...committer.format.records.success_marker import COMMITTER, success_data
from ...committer.store.requests import Done, Found, Get, Put, Step
from ...log.actions import AddFile
from ...log.entries import LogEntry, LogFolder
from .paths import DeltaRoot

#: The member of an entry's information that asks for a marker.
ASKED = "successMarker"
_MEMBER = "delta"
_TRIES = 10


def write_marker(root: DeltaRoot, folder: LogFolder, entry: LogEntry) -> Step[None]:
    """Write the marker of an entry that asks for one, unless a later entry's is there.

    :raises OutcomeUnknownError: the store has not taken it.
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
    """The version of the entry that a marker names; -1: none."""
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
    more = {
        "metrics": {
            "committer_commits_completed": len(added),
            "committer_bytes_committed": sum(it.size for it in added),
        },
        _MEMBER: {"version": entry.version, "entry": folder.entry(entry.version)},
    }
    at = entry.info.members.get("timestamp", 0) / 1000
    # Of a fast root's files, which are at another store, none is named.
    named = [root.key_of(it.path) for it in added if "://" not in it.path]
    return success_data(head, at, named, **more)
