"""Kept entries: copies of committed entries, used after another writer has overwritten one.

A writer without conditional writes (Delta on Spark by default) may PUT over an entry. Then the
change that a job has committed is in no state any more, but a record beside the log still has it:

==========================  ================================================================
record                      if
==========================  ================================================================
this package's ``N.crc``    the entry has few actions, and the state after it was known
``entries/J.json``          otherwise; and if another writer's ``N.crc`` was there first
==========================  ================================================================

Both name the ETag that the entry had. An entry that is listed with another ETag was overwritten,
unless its job is still the same: a copied bucket has other ETags.
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

#: How many records are read at once.
_AT_ONCE = 64


@dataclass(frozen=True)
class OverwrittenEntry:
    """A committed entry that another writer's entry has overwritten.

    :param job: the job that committed it; ``""``: that is not on record.
    :param was: the entry as it was committed; ``None``: that is not on record.
    :param now: the entry that is there now.
    """

    version: int
    job: str
    was: LogEntry | None
    now: LogEntry


@dataclass(frozen=True)
class _KeptRecord:
    """The copy of an entry in a record; ``entry`` is ``None`` if its actions are not kept."""

    version: int
    etag: str
    job: str
    entry: LogEntry | None


def kept_body(entry: LogEntry) -> bytes:
    """Return the record of an entry whose checksum file does not keep it."""
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
    """Find committed entries that were overwritten, the oldest first.

    It reads the checksum files of the listed entries, and all records of kept entries.

    :param since: read only checksum files whose entries, as they are now, were written at or after
        this time, by the store's clock.
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
    """Return the records, by version, of entries that a listing shows with another ETag."""
    return {
        it.version: it
        for it in kept
        if it is not None
        and it.version in listed.entries
        and listed.entries[it.version].etag != it.etag
    }


def _of_checksum(found: Found) -> _KeptRecord | None:
    """Read the copy of an entry from a checksum file; ``None``: another engine wrote the file, or
    it is damaged."""
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
    """Read the entry from the actions of a record; ``None``: they are not kept, or damaged."""
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
