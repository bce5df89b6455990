"""Delta tables of this package beside delta-rs, Polars and DuckDB: each reads what others wrote.

The table lies in a store in memory. The engines get its objects as files of a folder, and what
delta-rs writes there is taken back.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.older_python import older_python
from tools.environments import LAKE_READERS
from zero_rename.committer.errors import CommitConflictError, TableMismatchError
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete, Found, Get, PutFile
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "lake_engines.py"
ENGINES = ("delta-rs", "polars", "duckdb")


class Engines:
    """A process of the environment that has them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **given: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(given) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["answer"]


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    python = older_python(LAKE_READERS)
    program = [str(python), str(PROGRAM)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Engines(process)
        process.terminate()


class Shared:
    """A table, and its folder."""

    def __init__(self, table: DeltaTable, folder: Path, engines: Engines) -> None:
        self.table, self._folder, self._engines = table, folder, engines
        self._prefix = f"{table.root.prefix}/"
        self._known: dict[str, bytes] = {}

    def write(self, data: pa.Table, **options: Any) -> Any:
        with self.table.job(data.schema, **options) as job:
            job.write(data)
        return job.committed

    def hand_out(self) -> str:
        """Bring the folder to what the store has; a path."""
        driver = self.table.driver
        there = driver.run(list_objects(self._prefix)).keys
        for path in self._folder.rglob("*"):
            key = self._prefix + path.relative_to(self._folder).as_posix()
            if path.is_file() and key not in there:
                path.unlink()
                self._known.pop(key, None)
        for key in there:
            found = driver.run(Get(key))
            assert isinstance(found, Found)
            path = self._folder / key.removeprefix(self._prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found.body)
            self._known[key] = found.body
        return str(self._folder)

    def take_back(self) -> None:
        for path in self._folder.rglob("*"):
            key = self._prefix + path.relative_to(self._folder).as_posix()
            if path.is_file() and self._known.get(key) != path.read_bytes():
                self.table.driver.run(PutFile(key, path.read_bytes()))
        for key in self._known:
            if not (self._folder / key.removeprefix(self._prefix)).exists():
                self.table.driver.run(Delete(key))

    def theirs(self, verb: str, rows: Any = None, where: str | None = None) -> None:
        folder = self.hand_out()
        self._engines.ask(do="change", folder=folder, verb=verb, rows=rows, where=where)
        self.take_back()

    def seen_by(self, engine: str, columns: list[str], where: str | None = None) -> list[Any]:
        folder = self.hand_out()
        found = self._engines.ask(
            do="read", engine=engine, folder=folder, columns=columns, where=where
        )
        return sorted(tuple(row) for row in found)

    def ours(self, columns: list[str]) -> list[Any]:
        found = self.table.scan(columns=columns).to_arrow().to_pylist()
        return sorted(tuple(map(repr, row.values())) for row in found)


@pytest.fixture
def shared(s3_bucket: Bucket, tmp_path: Path, engines: Engines) -> Shared:
    return Shared(DeltaTable(f"s3://{s3_bucket.name}/flights"), tmp_path / "flights", engines)


def days(*pairs: tuple[str | None, int]) -> pa.Table:
    names, delays = zip(*pairs, strict=True)
    return pa.table({"day": pa.array(names, pa.string()), "delay": pa.array(delays, pa.int64())})


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_what_jobs_have_committed(shared: Shared, engine: str) -> None:
    odd = days(("1", 5), ("2", 6), (None, 7), ("", 10), ("ü/ %2F=", 8))
    shared.write(odd, partition_by=["day"])
    shared.write(days(("1", 9)), mode="overwrite")
    shared.table.merge(days(("2", 60)), ["day"])
    shared.table.delete([("delay", "==", 8)])
    shared.table.checkpoint()
    shared.write(days(("3", 1)))
    shared.table.restore(1)
    columns = ["day", "delay"]
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert len(shared.ours(columns)) == 5
    shared.table.restore(3)
    assert shared.seen_by(engine, columns) == shared.ours(columns)
    assert len(shared.ours(columns)) == 4


#: Values of each type that have been read wrong somewhere.
VALUES = {
    "text": pa.array(["a" * 40, "", None, "ü"]),
    "whole": pa.array([2**62, -(2**62), None, 0], pa.int64()),
    "byte": pa.array([-128, 127, None, 0], pa.int8()),
    "float": pa.array([float("nan"), float("inf"), None, -0.0], pa.float64()),
    "money": pa.array(
        [Decimal("12345678901234567.89"), Decimal("-0.01"), None, Decimal("0.00")],
        pa.decimal128(19, 2),
    ),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1582, 10, 4)]),
    "at": pa.array(
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
            dt.datetime(2262, 1, 1),
            None,
            dt.datetime(1500, 1, 1),
        ],
        pa.timestamp("us", "UTC"),
    ),
    "local": pa.array([dt.datetime(2020, 2, 29, 1, 2, 3, 4), None, None, None], pa.timestamp("us")),
    "flag": pa.array([True, False, None, True]),
    "raw": pa.array([b"\x00\xff", b"", None, b"a"], pa.binary()),
    "short": pa.array([-(2**15), 2**15 - 1, None, 0], pa.int16()),
    "real": pa.array([1.5, float("-inf"), None, -0.0], pa.float32()),
    "many": pa.array([[1, None], [], None, [3]], pa.list_(pa.int64())),
    "parts": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, None, {"a": 2, "b": ""}]),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_values_of_each_type(shared: Shared, engine: str) -> None:
    shared.write(pa.table({"id": [0, 1, 2, 3], **VALUES}))
    for name in VALUES:
        assert shared.seen_by(engine, ["id", name]) == shared.ours(["id", name]), name


#: Conditions that a maximum which ignores NaN, a float in a decimal's place, or a cut text gets
#: wrong; and the rows that fit.
CONDITIONS = {
    "money > 12345678901234567": [0],
    "text > 'aaaa'": [0, 3],
    "whole >= 4611686018427387904": [0],
    "date = '1582-10-04'": [3],
    "text is null": [2],
    '"float" > 1': [0, 1],
    "\"float\" = 'NaN'": [0],
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_skips_no_file_that_fits(shared: Shared, engine: str) -> None:
    table = pa.table({"id": [0, 1, 2, 3], **VALUES})
    for row in range(4):
        shared.write(table.slice(row, 1))
    for condition, fitting in CONDITIONS.items():
        if engine == "polars" and condition.startswith(("money", "date", '"float" =')):
            continue  # It compares no decimal, date or NaN with a literal of SQL.
        found = shared.seen_by(engine, ["id"], condition)
        assert found == [(str(row),) for row in fitting], condition


PARTITIONS = {
    "p_date": pa.array([dt.date(2013, 1, 1), None]),
    "p_whole": pa.array([-5, None], pa.int32()),
    "p_money": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "p_flag": pa.array([True, None]),
    "p_at": pa.array([dt.datetime(2013, 1, 1, 5), None], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("column", PARTITIONS)
def test_an_engine_reads_partitions_of_each_type(shared: Shared, engine: str, column: str) -> None:
    shared.write(pa.table({"id": [0, 1], column: PARTITIONS[column]}), partition_by=[column])
    assert shared.seen_by(engine, ["id", column]) == shared.ours(["id", column])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_columns_that_came_later(shared: Shared, engine: str) -> None:
    shared.write(days(("1", 5)), partition_by=["day"])
    more = days(("1", 6)).append_column("gate", pa.array(["A"]))
    shared.write(more, schema_mode="merge")
    columns = ["day", "delay", "gate"]
    assert shared.seen_by(engine, columns) == shared.ours(columns)


def test_changes_of_delta_rs_are_read_and_committed_upon(shared: Shared) -> None:
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


def test_a_replace_beside_an_append_of_delta_rs_is_refused(shared: Shared) -> None:
    shared.write(days(("1", 5)), partition_by=["day"])
    with pytest.raises(CommitConflictError):
        _while(shared, "append", mode="overwrite")
    assert shared.ours(["delay"]) == [("5",), ("7",)]


def test_an_append_passes_a_compaction_of_delta_rs(shared: Shared) -> None:
    for value in (5, 6):
        shared.write(days(("1", value)), partition_by=["day"] if value == 5 else None)
    _while(shared, "compact")
    assert shared.ours(["delay"]) == [("5",), ("6",), ("9",)]


def _while(shared: Shared, verb: str, **options: Any) -> None:
    """A job beside which delta-rs changes the table."""
    with shared.table.job(**options) as job:
        job.write(days(("1", 9)))
        shared.theirs(verb, {"day": ["1"], "delay": [7]} if verb == "append" else None)


def test_a_run_that_delta_rs_has_compacted_takes_the_place_of_its_rows(shared: Shared) -> None:
    shared.write(days(("1", 5)), partition_by=["day"], idempotency_key="run")
    shared.write(days(("1", 6)))
    shared.theirs("compact")
    shared.write(days(("1", 7)), idempotency_key="run", on_repeat="replace_own")
    assert shared.ours(["delay"]) == [("6",), ("7",)]
    for engine in ENGINES:
        assert shared.seen_by(engine, ["delay"]) == [("6",), ("7",)]


def test_a_vacuum_of_delta_rs_takes_no_live_file_and_restores_say_what_is_lost(
    shared: Shared,
) -> None:
    shared.write(days(("1", 5), ("2", 6)), partition_by=["day"])
    shared.write(days(("1", 7)), mode="overwrite")
    before = len(shared.table.driver.run(list_objects(f"{shared._prefix}data/")).keys)
    shared.theirs("vacuum")
    after = len(shared.table.driver.run(list_objects(f"{shared._prefix}data/")).keys)
    assert (before, after) == (3, 2)
    assert shared.ours(["day", "delay"]) == [("'1'", "7"), ("'2'", "6")]
    with pytest.raises(CommitConflictError, match="1 file of version 0 cannot be brought back"):
        shared.table.restore(0)
    shared.write(days(("1", 8)))
    assert shared.seen_by("delta-rs", ["delay"]) == [("6",), ("7",), ("8",)]


def test_a_table_with_deletion_vectors_is_refused_by_name(shared: Shared) -> None:
    shared.write(days(("1", 5)))
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    entry = json.dumps({"protocol": features}).encode()
    shared.table.driver.run(PutFile(f"{shared._prefix}_delta_log/{1:020}.json", entry))
    with pytest.raises(TableMismatchError, match="deletionVectors"):
        shared.table.scan().to_arrow()
