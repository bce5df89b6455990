"""Delta table on a store in memory that runs of DAGs load, whose clock a test moves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer import Owner
from zero_rename.committer.format.records.failure import Failure
from zero_rename.committer.format.records.run_conflict import RunConflict
from zero_rename.committer.store import requests as s
from zero_rename.committer.upkeep.conflicts.conflict_search import ConflictReport
from zero_rename.tables import DeltaTable

URL = "s3://bucket/flights"
SCHEMA = pa.schema([("day", pa.string()), ("n", pa.int64())])
DAY1, DAY2 = "day=1", "day=2"
LAST_WINS: dict[str, Any] = {"on_conflict": "last_wins"}
NEWEST: dict[str, Any] = {"on_conflict": "newest_run"}


class World:
    """A Delta table on a store in memory, whose clock the test moves."""

    def __init__(self) -> None:
        self.store = MemoryStore(ManualClock())
        self.table = self.opened()

    def opened(self, fault: Any = None) -> DeltaTable:
        """The table as another process meets it."""
        table = DeltaTable(URL)
        table.driver = MemoryDriver(self.store, fault)  # type: ignore[assignment]
        return table

    def pass_retention(self) -> None:
        """Let the time pass for which removed files are kept: jobs date them by the real clock."""
        self.advance(time.time() - self.store.clock() + 8 * 24 * 3600.0)

    def advance(self, seconds: float) -> None:
        clock = self.store.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)

    def load(
        self,
        rank: object,
        *days: str,
        dag: str = "daily",
        rows: int = 1,
        beside: Callable[[], Any] | None = None,
        **options: Any,
    ) -> str:
        """Replace days by a run of a DAG.

        :param beside: what happens while the job is open.
        """
        self.advance(1)
        given: dict[str, Any] = {
            "mode": "overwrite",
            "partition_by": ["day"],
            "run_rank": rank,
            **run_of(dag, rank),
            **options,
        }
        with self.table.job(SCHEMA, **given) as job:
            data = {"day": [day for day in days for _ in range(rows)], "n": [0] * rows * len(days)}
            job.write(pa.table(data, schema=SCHEMA))
            if beside is not None:
                beside()
        assert job.job is not None
        return job.job

    def look(self, seconds: float | None = None, **options: Any) -> ConflictReport:
        self.advance(1)
        return self.opened().conflicts(seconds, **options)

    def only(self) -> RunConflict:
        (found,) = self.look().conflicts
        return found

    def gave_way(self, error: Any, dag: str, rank: object) -> None:
        """Put a failure on record, as the job of a task does."""
        run = run_of(dag, rank)
        key, root = run["idempotency_key"], self.table.root
        failure = Failure.of(error, root, key, run["owner"], "w")
        self.store.apply(s.Put(root.failure_key(key), failure.encode()))

    def late_backfill(self) -> tuple[str, str]:
        """Load the first day by a newer run, and then by an older one."""
        return self.load(2, "1", rows=3), self.load(1, "1", rows=2)

    def by_engine(
        self,
        day: str | None,
        engine: str = "Apache-Spark/4.1 Delta-Lake/4.3",
        operation: str = "WRITE",
    ) -> int:
        """Overwrite a day, or all, as another engine does, or delete rows of it, so that it writes
        the others again; returns the version."""
        state = self.opened().state()
        version = (state.log_version or 0) + 1
        gone = [it for it in state.files if day is None or it.partition == f"day={day}"]
        parameters = {"mode": "Overwrite"} if operation == "WRITE" else {}
        if day is not None:
            parameters["predicate"] = json.dumps([f"day = '{day}'"])
        info = {"timestamp": 0, "operation": operation, "operationParameters": parameters}
        info |= {"engineInfo": engine, "txnId": f"engine-{version}", "readVersion": version - 1}
        path = f"part-{version}.parquet"
        values = {"day": day or "1"}
        added = {"path": path, "partitionValues": values, "size": 1, "modificationTime": 0}
        lines: list[dict[str, Any]] = [{"commitInfo": info}]
        for it in gone:
            removed = {
                "path": it.key.removeprefix("flights/"),
                "deletionTimestamp": int(time.time() * 1000),
            }
            lines.append({"remove": {**removed, "dataChange": True}})
        lines.append({"add": {**added, "dataChange": True, "stats": '{"numRecords":4}'}})
        body = "\n".join(map(json.dumps, lines)).encode()
        self.advance(1)
        self.store.apply(s.Put(f"flights/{path}", b"x"))
        self.store.apply(s.Put(f"flights/_delta_log/{version:020}.json", body))
        return version


def run_of(dag: str, rank: object) -> dict[str, Any]:
    return {
        "owner": Owner(dag, f"day {rank}", "load", try_number=1),
        "idempotency_key": f"{dag}/{rank}/load",
    }
