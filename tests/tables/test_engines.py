"""Delta tables of this package beside delta-rs, Polars and DuckDB: each reads what others wrote.

The table lies in a store in memory. The engines get its objects as files of a folder, and what
delta-rs writes there is taken back.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.delta_values import CONDITIONS, PARTITIONS, VALUES, days
from support.engine_process import EngineProcess
from support.lake_readers import lake_readers
from support.shared_table import SharedTable
from zero_rename.committer.errors import CommitConflictError, InvalidInputError, TableMismatchError
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import PutFile
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
ENGINES = ("delta-rs", "polars", "duckdb")
#: Of one table; ``make delta-spark`` and ``make proof PARTS=engines`` have 5,000.
COMMITS = 5000 if os.environ.get("DELTA_SPARK") else 60


@pytest.fixture(scope="module")
def engines() -> Iterator[EngineProcess]:
    with lake_readers() as process:
        yield process


@pytest.fixture
def shared(s3_bucket: Bucket, tmp_path: Path, engines: EngineProcess) -> SharedTable:
    return SharedTable(DeltaTable(f"s3://{s3_bucket.name}/flights"), tmp_path / "flights", engines)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_a_table_of_a_data_root_after_its_checkpoint(
    shared: SharedTable, engine: str
) -> None:
    root = f"s3://{shared.table.root.bucket}/scratch"
    shared.write(days(("1", 5), ("2", 6)), partition_by=["day"], data_root=root)
    shared.write(days(("1", 7)))
    shared.table.checkpoint(apply=True)
    shared.table.delete([("delay", "==", 6)])
    shared.table.checkpoint(apply=True)
    columns = ["day", "delay"]
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert len(shared.ours(columns)) == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_what_jobs_have_committed(shared: SharedTable, engine: str) -> None:
    odd = days(("1", 5), ("2", 6), (None, 7), ("", 10), ("ü/ %2F=", 8))
    shared.write(odd, partition_by=["day"])
    shared.write(days(("1", 9)), mode="overwrite")
    shared.table.merge(days(("2", 60)), ["day"])
    shared.table.delete([("delay", "==", 8)])
    shared.table.checkpoint_log()
    shared.write(days(("3", 1)))
    shared.table.restore(1, apply=True)
    columns = ["day", "delay"]
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert len(shared.ours(columns)) == 5
    shared.table.restore(3, apply=True)
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert len(shared.ours(columns)) == 4


@pytest.mark.timeout(3600)
def test_each_engine_reads_a_table_of_many_commits(shared: SharedTable) -> None:
    """A row a commit, by jobs of a run each; every tenth replaces a partition of its own."""
    expected: dict[int, tuple[str, int]] = {}
    for number in range(COMMITS):
        replaces = number % 10 == 9
        row = ("replaced" if replaces else f"{number % 7}", number)
        mode = "overwrite" if replaces else "append"
        more = {} if number else {"partition_by": ["day"]}
        shared.write(days(row), mode=mode, idempotency_key=f"{number}", **more)
        expected[-1 if replaces else number] = row
    newest = shared.table.newest_entry()
    assert newest is not None
    assert newest.version == COMMITS - 1
    rows = sorted((repr(day), repr(delay)) for day, delay in expected.values())
    assert shared.ours(["day", "delay"]) == rows
    for engine in ENGINES:
        assert shared.seen_by(engine, ["day", "delay"]) == rows, engine


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_partitions_that_were_sorted(shared: SharedTable, engine: str) -> None:
    shared.write(days(("1", 5), ("2", 6), ("1", 3)), partition_by=["day"])
    shared.write(days(("1", 4), ("2", 1)))
    shared.table.compact(apply=True, sort_by=["delay"])
    shared.table.checkpoint_log()
    columns = ["day", "delay"]
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert len(shared.ours(columns)) == 5
    assert shared.seen_by(engine, columns, "delay < 4") == [("'1'", "3"), ("'2'", "1")]


def test_partition_that_delta_rs_has_compacted_since_is_sorted_again(shared: SharedTable) -> None:
    shared.write(days(("1", 5), ("1", 3)), partition_by=["day"])
    shared.table.compact(apply=True, sort_by=["delay"])
    shared.write(days(("1", 4)))
    shared.theirs("compact")
    assert len(shared.table.state().files) == 1
    (done,) = shared.table.compact(apply=True, sort_by=["delay"])
    assert (done.files, done.files_after) == (1, 1)
    assert shared.table.scan(columns=["delay"]).to_arrow()["delay"].to_pylist() == [3, 4, 5]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_values_of_each_type(shared: SharedTable, engine: str) -> None:
    shared.write(pa.table({"id": [0, 1, 2, 3], **VALUES}))
    for name in VALUES:
        assert shared.seen_by(engine, ["id", name]) == shared.ours(["id", name]), name


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_skips_no_file_that_fits(shared: SharedTable, engine: str) -> None:
    table = pa.table({"id": [0, 1, 2, 3], **VALUES})
    for row in range(4):
        shared.write(table.slice(row, 1))
    for condition, fitting in CONDITIONS.items():
        if engine == "polars" and condition.startswith(("money", "date", '"float" =')):
            continue  # It compares no decimal, date or NaN with a literal of SQL.
        found = shared.seen_by(engine, ["id"], condition)
        assert found == [(str(row),) for row in fitting], condition


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("column", PARTITIONS)
def test_an_engine_reads_partitions_of_each_type(
    shared: SharedTable, engine: str, column: str
) -> None:
    shared.write(pa.table({"id": [0, 1], column: PARTITIONS[column]}), partition_by=[column])
    assert shared.seen_by(engine, ["id", column]) == shared.ours(["id", column])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_columns_that_came_later(shared: SharedTable, engine: str) -> None:
    shared.write(days(("1", 5)), partition_by=["day"])
    more = days(("1", 6)).append_column("gate", pa.array(["A"]))
    shared.write(more, schema_mode="merge")
    columns = ["day", "delay", "gate"]
    assert shared.seen_by(engine, columns) == shared.ours(columns)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "change", [{}, {"mode": "overwrite", "replace_table": True, "schema_mode": "overwrite"}]
)
def test_an_engine_reads_local_times_that_came_later(
    shared: SharedTable, engine: str, change: dict[str, Any]
) -> None:
    shared.write(pa.table({"id": [1]}))
    more = pa.table({"id": [2], "local": VALUES["local"][:1]})
    shared.write(more, **{"schema_mode": "merge", **change})
    assert shared.seen_by(engine, more.column_names) == shared.ours(more.column_names)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_a_directory_that_was_adopted(shared: SharedTable, engine: str) -> None:
    """Values are escaped in the names of its directories, as Spark and pyarrow do."""
    names = ["day=1", "day=a%2Fb c", "day=50%25", "day=__HIVE_DEFAULT_PARTITION__"]
    names += [] if engine == "polars" else ["day=ü#"]  # It opens no file whose path is not ASCII.
    for at, name in enumerate(names):
        sink = io.BytesIO()
        pq.write_table(pa.table({"delay": [at, at + 10]}), sink)
        shared.table.run(PutFile(f"flights/{name}/part {at}.parquet", sink.getvalue()))
    shared.table.adopt(apply=True)
    columns = ["day", "delay"]
    assert len(shared.ours(columns)) == 2 * len(names)
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert shared.seen_by(engine, ["delay"], "delay >= 10") == sorted(
        (str(at + 10),) for at in range(len(names))
    )
    if engine == "polars":
        return  # It takes the values of all files from their paths, or of none.
    shared.write(pa.table({"day": ["ü#"], "delay": [7]}), mode="overwrite")
    assert shared.seen_by(engine, columns) == shared.ours(columns)


def test_changes_of_delta_rs_are_read_and_committed_upon(shared: SharedTable) -> None:
    shared.write(days(("1", 5), ("2", 6)), partition_by=["day"])
    shared.theirs("append", {"day": ["1"], "delay": [7]})
    assert len(shared.ours(["delay"])) == 3
    shared.theirs("update", where="delay = 5")
    shared.theirs("delete", where="delay = 6")
    shared.theirs("merge", {"day": ["3"], "delay": [8]}, "s.day = t.day")
    shared.theirs("checkpoint")
    shared.write(days(("3", 9)), mode="overwrite")
    shared.theirs("compact")
    assert shared.ours(["day", "delay"]) == [("'1'", "100"), ("'1'", "7"), ("'3'", "9")]
    shared.theirs("overwrite", {"day": ["1"], "delay": [1]}, "day = '1'")
    assert shared.ours(["day", "delay"]) == [("'1'", "1"), ("'3'", "9")]
    shared.write(days(("1", 2)))
    assert shared.ours(["day", "delay"]) == [("'1'", "1"), ("'1'", "2"), ("'3'", "9")]
    shared.theirs("restore", where="0")
    assert shared.ours(["day", "delay"]) == [("'1'", "5"), ("'2'", "6")]
    assert shared.seen_by("delta-rs", ["day", "delay"]) == shared.ours(["day", "delay"])


def test_rows_that_duckdb_inserts_are_read_and_committed_upon(shared: SharedTable) -> None:
    shared.write(days(("1", 5), ("2", 6)), partition_by=["day"])
    shared.by_duckdb("('1', 7)")
    shared.by_duckdb("('2', 8)")  # DuckDB 1.5 fails at rows of two partitions at once.
    assert shared.ours(["delay"]) == [("5",), ("6",), ("7",), ("8",)]
    with pytest.raises(CommitConflictError):
        _while(shared, "insert", mode="overwrite")
    shared.write(days(("1", 11)), mode="overwrite")
    shared.table.compact(apply=True)
    assert shared.table.checkpoint_log() is not None
    assert shared.ours(["day", "delay"]) == [("'1'", "11"), ("'2'", "6"), ("'2'", "8")]
    assert shared.table.verify() == []
    for engine in ENGINES:
        assert shared.seen_by(engine, ["day", "delay"]) == shared.ours(["day", "delay"]), engine


def test_a_replace_beside_an_append_of_delta_rs_is_refused(shared: SharedTable) -> None:
    shared.write(days(("1", 5)), partition_by=["day"])
    with pytest.raises(CommitConflictError):
        _while(shared, "append", mode="overwrite")
    assert shared.ours(["delay"]) == [("5",), ("7",)]


def test_an_append_passes_a_compaction_of_delta_rs(shared: SharedTable) -> None:
    for value in (5, 6):
        shared.write(days(("1", value)), partition_by=["day"] if value == 5 else None)
    _while(shared, "compact")
    assert shared.ours(["delay"]) == [("5",), ("6",), ("9",)]


def _while(shared: SharedTable, verb: str, **options: Any) -> None:
    """A job beside which delta-rs changes the table, or DuckDB inserts a row."""
    with shared.table.job(**options) as job:
        job.write(days(("1", 9)))
        if verb == "insert":
            shared.by_duckdb("('1', 10)")
            return
        shared.theirs(verb, {"day": ["1"], "delay": [7]} if verb == "append" else None)


def test_a_run_that_delta_rs_has_compacted_takes_the_place_of_its_rows(shared: SharedTable) -> None:
    shared.write(days(("1", 5)), partition_by=["day"], idempotency_key="run")
    shared.write(days(("1", 6)))
    shared.theirs("compact")
    shared.write(days(("1", 7)), idempotency_key="run", on_repeat="replace_own")
    assert shared.ours(["delay"]) == [("6",), ("7",)]
    for engine in ENGINES:
        assert shared.seen_by(engine, ["delay"]) == [("6",), ("7",)]


def test_a_vacuum_of_delta_rs_takes_no_live_file_and_restores_say_what_is_lost(
    shared: SharedTable,
) -> None:
    shared.write(days(("1", 5), ("2", 6)), partition_by=["day"])
    shared.write(days(("1", 7)), mode="overwrite")
    before = len(shared.table.driver.run(list_objects(f"{shared._prefix}data/")).keys)
    shared.theirs("vacuum")
    after = len(shared.table.driver.run(list_objects(f"{shared._prefix}data/")).keys)
    assert (before, after) == (3, 2)
    assert shared.ours(["day", "delay"]) == [("'1'", "7"), ("'2'", "6")]
    with pytest.raises(InvalidInputError, match="1 file of version 0 cannot be brought back"):
        shared.table.restore(0, apply=True)
    shared.write(days(("1", 8)))
    assert shared.seen_by("delta-rs", ["delay"]) == [("6",), ("7",), ("8",)]


def test_a_table_with_deletion_vectors_is_refused_by_name(shared: SharedTable) -> None:
    shared.write(days(("1", 5)))
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    entry = json.dumps({"protocol": features}).encode()
    shared.table.driver.run(PutFile(f"{shared._prefix}_delta_log/{1:020}.json", entry))
    with pytest.raises(TableMismatchError, match="deletionVectors"):
        shared.table.scan().to_arrow()
