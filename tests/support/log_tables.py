"""Delta tables on a store in memory, for tests of the log's steps: files of a few bytes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.committer.store import requests as s
from zero_rename.layouts.delta.delta_layout import PROPERTIES, DeltaLayout
from zero_rename.layouts.delta.paths import DeltaRoot
from zero_rename.log.actions import AddFile, LogMetadata, LogProtocol
from zero_rename.log.change import LogBase, LogChange
from zero_rename.log.committing import EntryCommitted
from zero_rename.log.job_steps import commit_job, open_log_job
from zero_rename.log.opening import LogDepth, OpenedLog, open_log
from zero_rename.log.replay import LogState
from zero_rename.log.scope import Scope
from zero_rename.log.searching import RunDone

#: Milliseconds, of the store's manual clock.
NOW = 1_700_000_000_000
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "value", "type": "long", "nullable": True, "metadata": {}},
            {"name": "day", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
COLUMNS = LogMetadata("table-1", SCHEMA, ("day",), dict(PROPERTIES))
LAYOUT = DeltaLayout(DeltaRoot("bucket", "flights/"))
LOG = LAYOUT.folder


def ids(job: str) -> Iterator[str]:
    """Ids of a job: the first, and those that it takes where its record is not answered."""
    return itertools.chain([job], (f"{job}-{number}" for number in itertools.count(2)))


def day(*days: str | None) -> Scope:
    return Scope(frozenset((it,) for it in days))


def file_of(job: str, number: int = 0, partition: str | None = "1") -> AddFile:
    return AddFile(f"data/{job}/{number}.parquet", {"day": partition}, 7, NOW)


def first(job: str = "create", metadata: LogMetadata = COLUMNS, **more: Any) -> LogChange:
    """The change that makes the table."""
    return LogChange(
        job, LogBase(-1), metadata=metadata, protocol=LogProtocol(), operation="CREATE", **more
    )


def base_of(state: LogState) -> LogBase:
    return LogBase(state.version, state.table_id)


class LogTable:
    """A table's log, and who works on it."""

    def __init__(self, store: MemoryStore | None = None, driver: Any = None) -> None:
        self.store = store or MemoryStore()
        self.driver = driver or MemoryDriver(self.store)
        self._numbers = itertools.count(1)

    def run(self, work: Any) -> Any:
        return self.driver.run(work)

    def make(self, metadata: LogMetadata = COLUMNS) -> LogState:
        opened = self.run(open_log(LAYOUT))
        return self.run(commit_job(LAYOUT, opened, first(metadata=metadata), NOW)).state

    def open(self, depth: LogDepth = LogDepth.FILES, version: int | None = None) -> OpenedLog:
        return self.run(open_log(LAYOUT, depth, version))

    def job(self, *partitions: str | None, job: str = "", **more: Any) -> LogChange:
        """A job that was opened and has written a file in each partition."""
        name = job or f"job{next(self._numbers)}"
        opened = self.run(open_log_job(LAYOUT, ids(name), {}, run=more.get("run")))
        files = tuple(file_of(name, at, it) for at, it in enumerate(partitions))
        for add in files:
            self.run(s.PutFile(LAYOUT.root.key_of(add.path), b"parquet"))
        return LogChange(name, base_of(opened.log.state), COLUMNS, files, **more)

    def commit(self, change: LogChange) -> EntryCommitted | RunDone:
        return self.run(commit_job(LAYOUT, self.open(change.depth), change, NOW))

    def append(self, *partitions: str | None, **more: Any) -> EntryCommitted:
        committed = self.commit(self.job(*(partitions or ("1",)), **more))
        assert isinstance(committed, EntryCommitted)
        return committed

    def replace(self, *partitions: str, **more: Any) -> EntryCommitted:
        return self.append(*partitions, replaced=day(*partitions), **more)

    def put(self, name: str, body: bytes) -> None:
        """Write an object of the log as another writer would."""
        self.run(s.PutFile(LOG.prefix + name, body))

    def live(self) -> set[str]:
        return set(self.open().state.live)

    def versions(self) -> list[int]:
        names = (key.removeprefix(LOG.prefix) for key in self.store.keys(LOG.prefix))
        return [int(name[:20]) for name in names if name.endswith(".json")]
