"""Kept entries: what a committed entry of ours was, found again after somebody wrote over it.

A writer without conditional writes (Delta on Spark as it is) may PUT over an entry. What a job has
committed is then in no state, but it is told beside the log:

==========================  ================================================================
in                          where
==========================  ================================================================
``N.crc`` of ours           the entry has few actions, and the state after it was known
``entries/J.json``          else; and where another writer's ``N.crc`` was there before ours
==========================  ================================================================

Both say the ETag that the entry had. An entry whose listed ETag is another one was written over,
unless it still is the job's: a copied bucket has other ETags.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..committer.errors import RecordDamagedError
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Found, Get, Step
from .actions import read_action
from .checksum import KEPT, kept_actions
from .entries import ENTRY_BYTES, OURS, ListedLog, LogEntry
from .job_files import JobFiles
from .log_layout import LogLayout
from .opening import list_log, read_entries

#: Records that are read at once.
_AT_ONCE = 64


@dataclass(frozen=True)
class OverwrittenEntry:
    """A committed entry whose number another writer's has now.

    :param was: the entry as it was committed; ``None``: that is not kept.
    :param job: the job that had committed it; ``""``: that is not kept.
    :param now: the entry that is there.
    """

    version: int
    job: str
    was: LogEntry | None
    now: LogEntry


@dataclass(frozen=True)
class _KeptRecord:
    """What a record says of an entry."""

    version: int
    etag: str
    job: str
    entry: LogEntry | None


def kept_body(entry: LogEntry) -> bytes:
    """Write the record of an entry that its checksum file does not keep."""
    members = {
        "version": entry.version,
        "etag": entry.etag,
        "job": entry.job,
        KEPT: kept_actions(entry),
    }
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()


def find_overwritten(
    layout: LogLayout, since: float | None = None
) -> Step[tuple[OverwrittenEntry, ...]]:
    """Find committed entries that were written over, the oldest first. Each record that tells of
    one is read.

    :param since: of entries that are there since this time only, by the store's clock.
    """
    listed = yield from list_log(layout.folder)
    young = {
        version: layout.folder.checksum(version)
        for version in sorted(listed.checksums.keys() & listed.entries.keys())
        if since is None or listed.entries[version].last_modified >= since
    }
    records = yield from list_objects(JobFiles(layout.control).kept)
    lost: dict[int, _KeptRecord] = {}
    for start in range(0, len(young), _AT_ONCE):
        keys = list(young.values())[start : start + _AT_ONCE]
        found = yield from All(tuple(Get(key, most=ENTRY_BYTES) for key in keys))
        lost |= _not_listed(listed, (_of_checksum(it) for it in found if isinstance(it, Found)))
    for start in range(0, len(records.keys), _AT_ONCE):
        keys = list(records.keys)[start : start + _AT_ONCE]
        found = yield from All(tuple(Get(key, most=ENTRY_BYTES) for key in keys))
        lost |= _not_listed(listed, (_of_record(it) for it in found if isinstance(it, Found)))
    versions = sorted(lost)
    entries = yield from read_entries(layout.folder, versions)
    return tuple(
        OverwrittenEntry(version, kept.job, kept.entry, now)
        for version, now in zip(versions, entries, strict=True)
        if now is not None and now.txn_id != (kept := lost[version]).job
    )


def _not_listed(listed: ListedLog, kept: Iterable[_KeptRecord | None]) -> dict[int, _KeptRecord]:
    """The records of entries in whose place a listing shows another."""
    return {
        it.version: it
        for it in kept
        if it is not None
        and it.version in listed.entries
        and listed.entries[it.version].etag != it.etag
    }


def _of_checksum(found: Found) -> _KeptRecord | None:
    """Read of a checksum file what its entry was; ``None``: it is another engine's, or damaged."""
    version = int(found.key.rpartition("/")[2].partition(".")[0])
    try:
        members = json.loads(found.body)
        ours = members.get(OURS)
        if not ours:
            return None
        etag, job = str(ours["etags"][str(version)]), str(members["txnId"])
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return None
    return _KeptRecord(version, etag, job, _entry(ours.get(KEPT), version, etag, found))


def _of_record(found: Found) -> _KeptRecord | None:
    try:
        members = json.loads(found.body)
        version, etag = int(members["version"]), str(members["etag"])
        entry = _entry(members[KEPT], version, etag, found)
        return _KeptRecord(version, etag, str(members["job"]), entry)
    except (ValueError, RecursionError, TypeError, KeyError):
        return None


def _entry(rows: Any, version: int, etag: str, found: Found) -> LogEntry | None:
    """Read the actions of a record; ``None``: they are not kept, or damaged."""
    try:
        actions = tuple(
            action
            for row in rows
            for kind, members in row.items()
            if (action := read_action(kind, members, found.key)) is not None
        )
    except (TypeError, AttributeError, RecordDamagedError):
        return None
    return LogEntry(version, etag, found.last_modified, actions)
