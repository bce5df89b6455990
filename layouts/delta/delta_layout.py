"""Layout of a Delta table: places of its log and files, and refusals of unsupported tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...committer.errors import RecordDamagedError
from ...committer.store.fast_root import FastRoot
from ...committer.store.requests import Step
from ...log.actions import LogMetadata
from ...log.entries import LogEntry, LogFolder
from ...log.replay import LogState
from . import features
from .data_roots import keeping_roots, roots_of
from .paths import DeltaRoot
from .root_marks import marked, write_mark
from .success_marker import write_marker

_UNITS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
}
_PART = re.compile(rf"\b(\d+(?:\.\d+)?)\s+({'|'.join(_UNITS)})s?\b")
#: The property with the time for which removed files stay.
RETENTION = "delta.deletedFileRetentionDuration"
#: Properties of new tables: no engine cleans the log, so its numbers are never used again.
PROPERTIES: Mapping[str, str] = {"delta.enableExpiredLogCleanup": "false"}


@dataclass(frozen=True)
class DeltaLayout:
    """The layout of one Delta table; it implements :class:`.LogLayout`."""

    root: DeltaRoot

    @property
    def folder(self) -> LogFolder:
        return LogFolder(f"{self.root.prefix}_delta_log/")

    @property
    def control(self) -> str:
        return f"{self.root.prefix}_zero_rename/"

    @property
    def data(self) -> str:
        # Paths are ASCII, without partition values: Polars fails at others. So files contain the
        # partition columns: Polars reads these from files or directories, not from the log.
        return f"{self.root.prefix}data/"

    def data_in(self, data_root: FastRoot | None) -> str:
        """Return the prefix below which jobs write in a data root; ``None``: the table's own."""
        return self.data if data_root is None else self.root.place(data_root).keys

    def restored(self, then: LogMetadata, now: LogMetadata) -> LogMetadata:
        return replace(then, properties=keeping_roots(then.properties, now.properties))

    def data_folders(self, state: LogState) -> tuple[str, ...]:
        return (self.data, *map(self.data_in, roots_of(state)))

    def own_folders(self, state: LogState) -> Step[tuple[str, ...]]:
        own, *others = self.data_folders(state)
        return (own, *(yield from marked(others, state.table_id)))

    def cleaned_by_others(self, state: LogState) -> bool:
        return state.property_of("delta.enableExpiredLogCleanup", "true").lower() != "false"

    def drops_transactions(self, state: LogState) -> bool:
        return state.property_of("delta.setTransactionRetentionDuration") != ""

    def check_readable(self, state: LogState) -> None:
        features.check_readable(state)

    def check_writable(self, state: LogState, removes_rows: bool) -> None:
        features.check_writable(state, removes_rows)

    def columns_fit(self, written: LogMetadata, now: LogMetadata) -> bool:
        if written.partition_columns != now.partition_columns:
            return False
        before, after = _columns(written), _columns(now)
        kept = all(after.get(name, {}).get("type") == it["type"] for name, it in before.items())
        # Columns that the files lack are null in them, and columns that may be null there can be.
        nullable = all(
            it.get("nullable", True) or not before.get(name, {"nullable": True})["nullable"]
            for name, it in after.items()
        )
        return kept and nullable

    def key_of(self, path: str, state: LogState) -> str:
        # Most paths are relative, and need no roots.
        return self.root.key_of(path, roots_of(state) if "://" in path else ())

    def path_of(self, key: str) -> str:
        return self.root.path_of(key)

    def retention(self, state: LogState) -> float:
        return interval_seconds(state.property_of(RETENTION, "interval 1 week"), RETENTION)

    def finish(self, entry: LogEntry) -> Step[None]:
        # A file of a Delta table is visible with its entry.
        yield from write_mark(self.root, entry)
        yield from write_marker(self.root, self.folder, entry)


def _columns(metadata: LogMetadata) -> dict[str, Any]:
    return {it["name"]: {"nullable": True, **it} for it in features.schema_of(metadata)["fields"]}


def interval_seconds(text: str, name: str) -> float:
    """Return the seconds of an interval in Delta's form, such as ``interval 2 days 12 hours``.

    :param name: the property that has the interval, for the error.
    :raises RecordDamagedError: the interval is invalid. It is not guessed, as that might be too
        short.
    """
    words = text.lower().removeprefix("interval").strip()
    found, rest = _PART.findall(words), _PART.sub("", words)
    if not found or rest.strip():
        raise RecordDamagedError(
            f"The property {name}={text!r} is not an interval. Nothing was changed.",
            field=name,
            remedy="Set it by the engine that made the table, such as to 'interval 7 days'.",
        )
    return sum(float(number) * _UNITS[unit] for number, unit in found)
