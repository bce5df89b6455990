"""A difference between table and CSV is found, and makes the demonstration fail; so in the second
table, whose days can be read as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import demo.__main__
import demo.workspace
from demo.compare import committed, differences, scanned, strays
from demo.dataset import Flights, RowDigest, partition_of, partition_on, typed
from demo.history import History
from demo.report import RunReport
from demo.store import Store
from zero_rename import Table
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

DAYS = (date(2013, 2, 1), date(2013, 2, 2))
FIRST, SECOND = map(partition_on, DAYS)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    return Flights.unpack(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def rows(flights: Flights) -> pa.Table:
    """The rows of two days, as Arrow."""
    wanted = [typed(row) for row in flights.lines() if partition_of(row) in (FIRST, SECOND)]
    return pa.Table.from_pylist(wanted)


@pytest.fixture(scope="module")
def expected(flights: Flights) -> dict[str, RowDigest]:
    contents = flights.contents([2])
    return {FIRST: contents[FIRST], SECOND: contents[SECOND]}


@pytest.fixture
def store(s3_bucket: Any) -> Store:
    return Store(s3_bucket.name, s3_bucket.client, "", {}, embedded=False)


@pytest.fixture
def table(s3_bucket: Any, rows: pa.Table) -> Table:
    """A table that holds what the CSV says."""
    made = Table(f"s3://{s3_bucket.name}/flights")
    by = ["year", "month", "day"]
    with made.job(rows.schema, mode="replace", partition_by=by) as job:
        job.write(rows)
    return made


def tamper(table: Table | DeltaTable, rows: pa.Table) -> None:
    """Commit one partition anew, with another value in one row."""
    wrong = rows.filter(pc.field("day") == 2).to_pylist()
    wrong[7]["distance"] += 1
    with table.job(mode="replace") as job:
        job.write(pa.Table.from_pylist(wrong, rows.schema))


def test_a_missing_and_an_unexpected_partition_are_differences(
    table: Table, store: Store, expected: dict[str, RowDigest]
) -> None:
    assert differences(expected, committed(table)) == strays(table, store) == []
    other = {FIRST: expected[FIRST], "year=2013/month=2/day=9": expected[SECOND]}
    found = {d.partition: d.what for d in differences(other, committed(table))}
    assert found == {
        SECOND: "682 rows committed, 0 in the CSV",
        "year=2013/month=2/day=9": "0 rows committed, 682 in the CSV",
    }


def test_files_and_uploads_beside_the_tables_are_found(
    table: Table, store: Store, s3_bucket: Any
) -> None:
    s3_bucket.put(f"flights/{FIRST}/stray.parquet", b"x")
    key = f"flights/{FIRST}/part-00000.parquet"
    s3_bucket.client.create_multipart_upload(Bucket=s3_bucket.name, Key=key)
    gone = table.files(SECOND)[0].key
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=gone)
    assert {(d.partition, d.what) for d in strays(table, store)} == {
        (f"flights/{FIRST}/stray.parquet", "listed, but not the table's"),
        (gone, "the table's, but not there"),
        (key, "an upload left behind"),
    }


@pytest.mark.parametrize(("tampered", "code"), [(False, 0), (True, 1)])
def test_the_exit_code_tells_of_differences(
    tampered: bool,
    code: int,
    table: Table,
    expected: dict[str, RowDigest],
    store: Store,
    rows: pa.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if tampered:
        tamper(table, rows)

    @contextmanager
    def given(*_: object) -> Iterator[Store]:
        yield store

    here = partial(demo.workspace.workspace, tmp_path / ".demo")
    monkeypatch.setattr(demo.__main__, "workspace", here)
    monkeypatch.setattr(demo.__main__, "store", given)
    monkeypatch.setattr(demo.__main__, "tell", lambda *_: differences(expected, committed(table)))
    assert demo.__main__.main() == code
    said = capsys.readouterr().out
    assert ("1 differences" in said) == tampered
    assert (SECOND in said) == tampered


class TestHistory:
    """The Delta table: tampered with, each look of it must tell."""

    @pytest.fixture
    def history(self, table: Table, s3_bucket: Any, expected: dict[str, RowDigest]) -> History:
        second = DeltaTable(f"s3://{s3_bucket.name}/second")
        return History.begun(table, second, RunReport(), expected)

    def test_a_corrected_day_is_read_as_before_undone_and_redone(
        self, history: History, flights: Flights, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert history.tell(flights, DAYS[1], tmp_path / "corrected.csv") == []
        corrected = Flights(tmp_path / "corrected.csv").contents([2])[SECOND]
        assert committed(history.table) == {**history.expected, SECOND: corrected}
        scans = [history.table.scan([SECOND], as_of=version) for version in range(4)]
        versions = [scanned(scan)[SECOND] for scan in scans]
        assert versions == [history.expected[SECOND], corrected] * 2
        said = capsys.readouterr().out
        for when, content in (("corrected", corrected), ("undone", history.expected[SECOND])):
            assert any({when, content.short} <= set(line.split()) for line in said.splitlines())

    def test_a_day_that_is_not_the_csvs_is_a_difference_where_it_is_read(
        self, history: History, flights: Flights, rows: pa.Table, tmp_path: Path
    ) -> None:
        tamper(history.table, rows)
        told = history.tell(flights, DAYS[1], tmp_path / "corrected.csv")
        moments = {difference.partition.split(", ")[1] for difference in told}
        assert moments == {"loaded (version 1)", "read as of version 1", "undone"}
