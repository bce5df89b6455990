"""Tables that another engine has partitioned by other columns, as Spark's CREATE OR REPLACE does.

Entries of before name partitions by values of the former columns, and the transactions of these
entries stay in the table's state."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from support.delta_tables import on
from support.memory_store import MemoryStore
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.committer.store.requests import PutFile
from zero_rename.log.replay import LogState
from zero_rename.log.settling import settled_transactions
from zero_rename.tables import Since

LOG = "flights/_delta_log/"


def rows(*values: int) -> pa.Table:
    days = [str(value) for value in values]
    return pa.table({"day": days, "hour": days, "value": pa.array(values, pa.int64())})


def write(store: MemoryStore, data: pa.Table, **options: Any) -> Any:
    with on(store).job(data.schema, **options) as job:
        job.write(data)
    return job.committed


def partition_by(store: MemoryStore, *columns: str) -> int:
    """Replace the table by an empty one with other partition columns; return the version."""
    state = on(store).state()
    lines = store.objects[f"{LOG}{0:020d}.json"].body.splitlines()
    made = next(it["metaData"] for it in map(json.loads, lines) if "metaData" in it)
    operation = "CREATE OR REPLACE TABLE AS SELECT"
    info = {"txnId": "it", "operation": operation, "operationParameters": {"mode": "Overwrite"}}
    actions: list[dict[str, Any]] = [
        {"commitInfo": info},
        {"metaData": {**made, "partitionColumns": columns}},
    ]
    for file in state.files:
        path, day = file.key.removeprefix("flights/"), file.partition.removeprefix("day=")
        members = {"path": path, "deletionTimestamp": 5, "dataChange": True}
        actions.append({"remove": {**members, "partitionValues": {"day": day}, "size": file.size}})
    return put_entry(store, *actions)


def put_entry(store: MemoryStore, *actions: dict[str, Any]) -> int:
    """Write the next entry; return its version."""
    version = len([key for key in store.keys(LOG) if key.endswith(".json")])
    body = "".join(f"{json.dumps(it)}\n" for it in actions)
    store.apply(PutFile(f"{LOG}{version:020d}.json", body.encode()))
    return version


@pytest.fixture
def store() -> MemoryStore:
    """A table by day, whose first day a ranked run has emptied."""
    store = MemoryStore()
    ranked = {"mode": "overwrite", "on_conflict": "newest_run"}
    write(store, rows(1), partition_by=["day"], run_rank=5.0, **ranked)
    write(store, rows(2), mode="overwrite")
    write(store, rows()[:0], replace_partitions=["day=1"], run_rank=6.0, **ranked)
    return store


@pytest.mark.parametrize("columns", [(), ("day", "hour")])
def test_ranks_of_former_partitions_keep_no_run_from_replacing_the_table(
    store: MemoryStore, columns: tuple[str, ...]
) -> None:
    partition_by(store, *columns)
    write(
        store, rows(7), mode="overwrite", replace_table=True, on_conflict="newest_run", run_rank=1.0
    )
    assert on(store).scan().to_arrow()["value"].to_pylist() == [7]


@pytest.mark.parametrize("columns", [(), ("day", "hour")])
def test_entries_of_before_can_be_read_and_searched_for_conflicts(
    store: MemoryStore, columns: tuple[str, ...]
) -> None:
    partition_by(store, *columns)
    done = write(store, rows(7), mode="append")
    (name,) = (it.partition for it in done.partitions)
    found = on(store).changes_since(Since(), 10).found
    assert [it.version for it in found] == [0, 1, 2, 3, 4]
    assert found[-1].partitions == {name}
    _, last = on(store).last_changes([name], Since())
    assert last.of[name].done.job == done.job
    for entry in on(store).history():
        if entry.job is not None:
            assert on(store).result(entry.job) is not None
    assert on(store).conflicts(seconds=3600).unread == ()
    assert on(store).conflicts().unread == ()


@pytest.mark.parametrize("columns", [(), ("day", "hour")])
def test_settlement_over_a_former_partition_keeps_no_run_from_replacing_the_table(
    store: MemoryStore, columns: tuple[str, ...]
) -> None:
    settling = Settling(SettledRuns("winner", ("loser",)))
    (settled,) = settled_transactions(LogState(version=2), {("1",): settling}, (), 0)
    transaction = {"txn": {"appId": settled.app, "version": settled.version}}
    put_entry(store, {"commitInfo": {"txnId": "settled"}}, transaction)
    partition_by(store, *columns)
    options = {"mode": "overwrite", "replace_table": True}
    write(store, rows(7), idempotency_key="loser", **options)
    assert on(store).scan().to_arrow()["value"].to_pylist() == [7]
