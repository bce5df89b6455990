"""Entries of a log, and the names of the objects in its folder.

A log is a folder of numbered objects. ``N.json`` is an *entry*: the whole decision of one job.
``N.crc`` is the state after it in few bytes, ``N.checkpoint.parquet`` the whole state after it.
``_last_checkpoint`` is a hint at the newest checkpoint, and may be outdated. An entry is written
once, with If-None-Match, and never changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from ..committer.errors import RecordDamagedError
from ..committer.store.requests import Found, ListedObject
from .actions import Action, AddFile, AppTransaction, CommitInfo, RemoveFile, read_actions

A = TypeVar("A")
#: The greatest size in bytes of an entry that is read. An entry of this package with 100,000 files
#: has a quarter of it.
ENTRY_BYTES = 256 * 1024 * 1024
#: This package's member of a ``commitInfo``.
OURS = "zeroRename"
#: Seconds by which times of objects may be wrong: stores round them, and their nodes differ.
SLACK = 5.0
#: The Unix milliseconds at which the year 10000 begins.
_STAMPS_END = 253_402_300_800_000
_NAME = re.compile(
    r"(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.(\d{10})\.(\d{10})\.parquet)"
)
_OTHER_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.[0-9a-f-]{36}\.(json|parquet)")


@dataclass(frozen=True)
class LogFolder:
    """The keys of a log.

    :param prefix: ends with a slash.
    """

    prefix: str

    def entry(self, version: int) -> str:
        return f"{self.prefix}{version:020d}.json"

    def checksum(self, version: int) -> str:
        return f"{self.prefix}{version:020d}.crc"

    def checkpoint(self, version: int) -> str:
        return f"{self.prefix}{version:020d}.checkpoint.parquet"

    def is_checkpoint(self, key: str, version: int) -> bool:
        """Return whether an object is the checkpoint of a version, or a part of it."""
        return key.startswith(f"{self.prefix}{version:020d}.checkpoint.")

    @property
    def hint(self) -> str:
        return f"{self.prefix}_last_checkpoint"

    def before(self, version: int) -> str:
        """Return a key that sorts right before all objects of a version."""
        return f"{self.prefix}{version:020d}"


@dataclass(frozen=True)
class LogEntry:
    """An entry as it was read."""

    version: int
    etag: str
    written_at: float
    actions: tuple[Action, ...]

    def of(self, kind: type[A]) -> tuple[A, ...]:
        return tuple(action for action in self.actions if isinstance(action, kind))

    @cached_property
    def info(self) -> CommitInfo:
        return next(iter(self.of(CommitInfo)), CommitInfo())

    @property
    def txn_id(self) -> str | None:
        return self.info.txn_id

    @property
    def stamped_at(self) -> float | None:
        """When the entry was written, by its writer's clock, in Unix seconds; ``None``: its
        ``commitInfo`` has no valid time."""
        stamp = self.info.members.get("timestamp")
        # Any program may have written it. A time beyond the year 9999 cannot be represented.
        if isinstance(stamp, bool) or not isinstance(stamp, int | float):
            return None
        return stamp / 1000 if 0 <= stamp < _STAMPS_END else None

    @property
    def ours(self) -> dict[str, Any]:
        """This package's part of the ``commitInfo``; empty if another writer made the entry."""
        found = self.info.members.get(OURS)
        return found if isinstance(found, dict) else {}

    @property
    def job(self) -> str | None:
        found = self.ours.get("job")
        return found if isinstance(found, str) else None

    @property
    def operation(self) -> str:
        return str(self.info.members.get("operation", "")).upper()

    @property
    def changes(self) -> tuple[AddFile | RemoveFile, ...]:
        """Adds and removes that change rows; so none of a compaction."""
        both = (*self.of(AddFile), *self.of(RemoveFile))
        return tuple(action for action in both if action.changes_data)

    def transaction(self, app: str) -> AppTransaction | None:
        return next((it for it in self.of(AppTransaction) if it.app == app), None)


def read_entry(found: Found, version: int) -> LogEntry:
    """Read an entry.

    :raises RecordDamagedError: the object is not an entry, or is too big.
    """
    if found.size > ENTRY_BYTES or len(found.body) > ENTRY_BYTES:
        raise RecordDamagedError(
            f"The log entry has {found.size:,} bytes, more than {ENTRY_BYTES:,}. Nothing was read.",
            key=found.key,
            remedy="Find out who wrote it; no job of this package writes such an entry.",
        )
    actions = read_actions(found.body, found.key)
    return LogEntry(version, found.etag, found.last_modified, actions)


@dataclass(frozen=True)
class ListedLog:
    """A listing of a log's folder.

    :param checkpoints: the complete checkpoints, by version: their parts, in order.
    :param foreign: versions with a checkpoint in a format that this package does not read (v2).
    :param sent_at: this process's clock before the listing was sent.
    """

    entries: dict[int, ListedObject]
    checksums: dict[int, ListedObject]
    checkpoints: dict[int, tuple[ListedObject, ...]]
    foreign: frozenset[int]
    sent_at: float

    @property
    def end(self) -> int:
        """The newest version; -1 if there is no table."""
        return max(self.entries, default=-1)

    def newest_checkpoint(self, at_most: int | None = None) -> int | None:
        wanted = (v for v in self.checkpoints if at_most is None or v <= at_most)
        return max(wanted, default=None)

    def is_stale(self, version: int) -> bool:
        """Return whether an entry was written at a number that others had cleaned before.

        A checkpoint at this version or a later one, but older than the entry, proves it: the
        checkpoint was made without the entry.
        """
        entry = self.entries[version]
        return any(at < entry.last_modified for at in self._checkpoint_times(version))

    def may_be_stale(self, version: int) -> bool:
        """Return whether an entry may be stale, even without a proof.

        A checkpoint of the same second may be older, since stores round times to seconds. And if
        entries after this one are missing, the checkpoint that would prove it may be missing, too,
        since a log is cleaned from its oldest entry on. Or that checkpoint was written again since.
        """
        entry = self.entries[version]
        if any(at <= entry.last_modified for at in self._checkpoint_times(version)):
            return True
        if self.is_out_of_turn(version):
            return True
        newest = max((self.end, *self.checkpoints, *self.foreign))
        return sum(it > version for it in self.entries) < newest - version

    def is_out_of_turn(self, version: int) -> bool:
        """Return whether an entry is younger than a later one.

        This happens only if it was written at a cleaned number, was overwritten, or was copied with
        its bucket."""
        latest = self.entries[version].last_modified - SLACK
        return any(at > version and it.last_modified < latest for at, it in self.entries.items())

    def _checkpoint_times(self, version: int) -> list[float]:
        return [p[0].last_modified for at, p in self.checkpoints.items() if at >= version]


def sort_listing(folder: LogFolder, objects: tuple[ListedObject, ...], sent_at: float) -> ListedLog:
    """Sort the objects of a log's folder by their kind; objects of other names are ignored."""
    entries: dict[int, ListedObject] = {}
    checksums: dict[int, ListedObject] = {}
    parts: dict[tuple[int, int], dict[int, ListedObject]] = {}
    foreign = set()
    for item in objects:
        name = item.key.removeprefix(folder.prefix)
        if match := _NAME.fullmatch(name):
            version = int(match[1])
            if match[2] == "json":
                entries[version] = item
            elif match[2] == "crc":
                checksums[version] = item
            else:
                number, count = int(match[3] or 1), int(match[4] or 1)
                parts.setdefault((version, count), {})[number] = item
        elif match := _OTHER_CHECKPOINT.fullmatch(name):
            foreign.add(int(match[1]))
    whole = {
        version: tuple(found[number] for number in range(1, count + 1))
        for (version, count), found in sorted(parts.items(), reverse=True)
        if set(found) == set(range(1, count + 1))
    }
    return ListedLog(entries, checksums, whole, frozenset(foreign), sent_at)
