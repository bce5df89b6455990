"""Tables as users meet them: what they may name, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    JobSpec,
    OpenedJob,
    ReadBase,
    TaskResult,
    ZeroRenameError,
)
from zero_rename.committer.store.requests import Step

DATA = pa.table({"value": [1, 2, 3], "month": [1, 2, 12]})


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    table = Table(f"s3://{s3_bucket.name}/sales")
    with table.job(DATA.schema, partition_by=["month"]) as job:
        job.write(DATA)
    return table


class TestBase:
    """A job whose rows come from the table says which state it has read."""

    def test_what_another_job_committed_since_is_not_written_over(self, table: Table) -> None:
        state = table.snapshot()
        with table.job() as other:
            other.write(pa.table({"value": [20], "month": [2]}))
        rows = pa.table({"value": [200], "month": [2]})
        for base in (state, ReadBase.decode(state.base.encode())):
            with (
                pytest.raises(CommitConflictError, match="since this job read the table: month=2"),
                table.job(mode="overwrite", base=base) as job,
            ):
                job.write(rows)
        assert sorted(table.to_arrow()["value"].to_pylist()) == [1, 2, 3, 20]
        with table.job(mode="overwrite", base=table.snapshot()) as job:
            job.write(rows)
        assert sorted(table.to_arrow()["value"].to_pylist()) == [1, 3, 200]


class TestPartitionsToRead:
    def test_a_text_is_no_list(self, table: Table) -> None:
        """As one, ``month=12`` would hold ``month=1``."""
        with pytest.raises(InvalidInputError, match="not a list") as caught:
            table.to_arrow(partitions="month=12")
        assert "partitions=['month=12']" in str(caught.value)

    def test_a_column_that_the_table_does_not_have_is_refused(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="mnth"):
            table.to_arrow(partitions=["mnth=1"])

    @pytest.mark.parametrize("name", ["month=1", "month=01", "/month=1/"])
    def test_they_are_named_as_their_values_are(self, table: Table, name: str) -> None:
        assert table.to_arrow(partitions=[name])["value"].to_pylist() == [1]

    def test_one_without_rows_is_empty(self, table: Table) -> None:
        assert table.to_arrow(partitions=["month=7"]).num_rows == 0


class TestTaskResults:
    """The rows of a job that tasks have written, by their results."""

    def test_results_of_an_iterator_are_committed(self, table: Table) -> None:
        """As a list they would be; used up before the commit, they lost all rows."""
        opened = table.open_job(JobSpec(DATA.schema))
        done = table.commit(opened, (task(table, opened, number) for number in range(2)))
        assert done.rows == 6
        assert table.to_arrow().num_rows == 9


def task(table: Table, opened: OpenedJob, number: int) -> TaskResult:
    """Write the rows of a task."""
    writer = table.task_writer(opened, number, 0)
    writer.write(DATA)
    return writer.close()


class TestErrors:
    """Steps do not say which table they are about; who runs them does."""

    @pytest.mark.parametrize(
        "asked",
        [
            lambda table: table.keep_rows("month=1", keep=["newest"]),
            lambda table: table.keep_rows("month=1", undo="zr1-00000000000000000000000000"),
            lambda table: table.job(pa.schema([("other", pa.int64())])).__enter__(),
        ],
    )
    def test_they_name_it(self, table: Table, asked: Callable[[Table], object]) -> None:
        with pytest.raises(ZeroRenameError) as caught:
            asked(table)
        assert caught.value.table == table.root.url

    @pytest.mark.parametrize("job", ["", "zr1-", "heads", "../zr1-01ARZ3NDEKTSV4RRFFQ69G5FAV"])
    def test_text_that_is_not_the_id_of_a_job_is_refused_by_name(
        self, table: Table, job: str
    ) -> None:
        """Before anything is read or done."""
        before = table.snapshot()
        for act in (
            lambda: table.keep_rows("month=1", undo=job, apply=True),
            lambda: table.repair(job=job),
            lambda: table.manifest(job),
        ):
            with pytest.raises(InvalidInputError, match=f"'{job}' is no job's id"):
                act()
        assert table.snapshot() == before

    def test_an_error_about_another_table_keeps_its_name(self, table: Table) -> None:
        with pytest.raises(InvalidInputError) as caught:
            table.run(_about_another())
        assert caught.value.table == "s3://bucket/other"


def _about_another() -> Step[None]:
    yield from ()
    raise InvalidInputError("No.", table="s3://bucket/other")
