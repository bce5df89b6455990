"""Attempts of a change of rows: which errors it computes the change again after. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from zero_rename.committer import (
    UNPARTITIONED,
    CommitStateUnknownError,
    DataLostError,
    InvalidInputError,
    OnRepeat,
    StoreUnreachableError,
    Table,
    TableMismatchError,
    TaskResultsError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.committer.row_rewrite import TableChange
from zero_rename.spark.changing.changed_rows import ChangedRows
from zero_rename.spark.changing.row_writer import RowWriter, table_to_change
from zero_rename.spark.options import WriterOptions
from zero_rename.spark.write_target import resolve
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3


class Rows:
    """Rows of a change, computed from a state."""

    def __init__(self, state: Snapshot) -> None:
        self.state = state

    def release(self) -> None: ...


class Writer(RowWriter):
    """Writer of a change that adds a row, and then ends as a function says."""

    def __init__(self, table: Table, end: Callable[[], None]) -> None:
        self.table = table
        self._options = WriterOptions()
        self._end = end

    def _carried_out(self, rows: ChangedRows) -> TableChange:
        add_row(self.table)
        self._end()
        raise AssertionError

    def attempt(self) -> None:
        def compute() -> Any:
            return Rows(self.table.state_to_change())

        self.change(compute, attempts=3)


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    table = Table(f"s3://{s3_bucket.name}/orders")
    add_row(table)
    return table


def add_row(table: Table | DeltaTable) -> None:
    with table.job(pa.schema([("n", pa.int64())])) as job:
        job.write(pa.table({"n": [1]}))


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("kind", [UnfinishedCommitError, CommitStateUnknownError, DataLostError])
def test_change_that_is_committed_or_may_be_is_not_made_again(
    table: Table, kind: type[ZeroRenameError]
) -> None:
    """The table has moved since its state was read, by the change itself."""
    with pytest.raises(kind, match="the store failed"):
        Writer(table, failing(kind("the store failed"))).attempt()
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize("error", [TaskResultsError("rows are missing"), OSError("no such file")])
def test_change_that_failed_is_made_again_if_another_job_has_changed_the_table(
    table: Table, error: Exception
) -> None:
    with pytest.raises(type(error)):
        Writer(table, failing(error)).attempt()
    assert table.to_arrow().num_rows == 4


def test_error_of_a_change_is_raised_if_the_table_cannot_be_read_after_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> Any:
        raise StoreUnreachableError("the store does not answer")

    def fail() -> None:
        monkeypatch.setattr(Table, "state", unreachable)
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        Writer(table, fail).attempt()


class Frame:
    """A frame of a Spark that has gone."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(name)


def test_change_that_is_made_is_reported_if_spark_has_gone_meanwhile(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame: Any = Frame()
    writer = Writer(table, failing(OSError()))
    made = TableChange.of(table.state_to_change(), {}, ())
    monkeypatch.setattr(writer, "_carried_out", lambda rows: made)
    assert writer.change(lambda: ChangedRows(table.state_to_change(), frame), 1) == made
    writer = Writer(table, failing(UnfinishedCommitError("the store failed")))
    with pytest.raises(UnfinishedCommitError):
        writer.change(lambda: ChangedRows(table.state_to_change(), frame), 1)


def test_change_without_an_attempt_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="attempts is 0"):
        Writer(table, failing(OSError())).change(lambda: pytest.fail("computed"), 0)


def test_change_that_would_be_made_twice_is_refused_though_the_runs_job_is_not_named(
    s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a Delta table, whose entries other engines clean."""
    table = DeltaTable(f"s3://{s3_bucket.name}/delta")
    with table.job(pa.schema([("n", pa.int64())]), idempotency_key="run") as job:
        job.write(pa.table({"n": [1]}))
    monkeypatch.setattr(DeltaTable, "job_of_key", lambda *_: None)
    writer = RowWriter.__new__(RowWriter)
    writer.table = table
    writer._options = WriterOptions(idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
    counts = SimpleNamespace(rows={UNPARTITIONED: RowChanges(inserted=1)}, changed={UNPARTITIONED})
    found: Any = SimpleNamespace(
        state=table.state(), counts=counts, why_not_repeatable=lambda: "it adds to a sum"
    )
    with pytest.raises(InvalidInputError, match="once more: it adds to a sum"):
        writer._carried_out(found)


def test_change_with_another_layout_than_the_tables_is_refused_before_it_is_computed(
    table: Table, s3_bucket: Any
) -> None:
    delta = DeltaTable(f"s3://{s3_bucket.name}/delta")
    with delta.job(pa.schema([("n", pa.int64())])) as job:
        job.write(pa.table({"n": [1]}))

    def to_change(url: str, layout: str | None) -> Table | DeltaTable:
        target = resolve(url, Handoff(), mode="merge", layout=layout)
        return table_to_change(target, Handoff(), layout)

    for named in (None, "directory"):
        assert isinstance(to_change(table.root.url, named), Table)
    for named in (None, "delta"):
        assert isinstance(to_change(delta.root.url, named), DeltaTable)
    with pytest.raises(TableMismatchError, match="A table of directories lies here, and layout='d"):
        to_change(table.root.url, "delta")
    with pytest.raises(TableMismatchError, match="is a Delta table, and layout='directory' is ask"):
        to_change(delta.root.url, "directory")
    new = f"s3://{s3_bucket.name}/new"
    assert isinstance(to_change(new, "delta"), DeltaTable)
    assert isinstance(to_change(new, "directory"), Table)
