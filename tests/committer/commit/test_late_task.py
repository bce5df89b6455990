"""A task that ends when its job is over leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.faults import on
from support.protocol import World
from zero_rename.committer import (
    Committed,
    JobSpec,
    OpenedJob,
    StoreRefusedError,
    Table,
    TaskLateError,
    TaskWriter,
)
from zero_rename.committer.commit.state.decide import refuse_late
from zero_rename.committer.store.requests import Head

pytestmark = pytest.mark.memory_s3

ROWS = pa.table({"n": [1, 2], "p": ["x", "y"]})


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    return Table(f"s3://{s3_bucket.name}/lake/table")


@pytest.fixture
def opened(table: Table) -> OpenedJob:
    return table.open_job(JobSpec(ROWS.schema, partition_by=("p",)))


def attempt_of(table: Table, opened: OpenedJob, attempt: int) -> TaskWriter:
    """One that has its rows, and has not closed."""
    writer = table.task_writer(opened, 0, attempt)
    writer.write(ROWS)
    return writer


def test_an_aborted_job(table: Table, opened: OpenedJob, s3_bucket: Any) -> None:
    writer = attempt_of(table, opened, 0)
    table.abort(opened)
    with pytest.raises(TaskLateError, match="zero-rename jobs") as caught:
        writer.close()
    assert (caught.value.table, caught.value.job) == (table.root.url, opened.job)
    assert s3_bucket.uploads() == []


def test_another_attempt_of_a_committed_job(
    table: Table, opened: OpenedJob, s3_bucket: Any
) -> None:
    late = attempt_of(table, opened, 1)
    table.commit(opened, [attempt_of(table, opened, 0).close()])
    with pytest.raises(TaskLateError):
        late.close()
    assert s3_bucket.uploads() == []
    assert table.to_arrow().num_rows == 2


def test_a_job_that_goes_on(table: Table, opened: OpenedJob) -> None:
    assert isinstance(table.commit(opened, [attempt_of(table, opened, 0).close()]), Committed)


def test_one_without_rows_asks_nothing(table: Table, opened: OpenedJob, s3_bucket: Any) -> None:
    s3_bucket.counter.reset()
    assert table.task_writer(opened, 0, 0).close().files == ()
    assert s3_bucket.counter.total() == 0


def test_a_look_that_the_store_refuses_fails_no_task(caplog: pytest.LogCaptureFixture) -> None:
    """Whether the task may have written is the commit's to tell."""
    world = World()
    opened = world.open()
    world.driver.fault = on(Head, StoreRefusedError("Access Denied"))
    world.driver.run(refuse_late(opened.root, opened.job, 0))
    assert f"Whether job {opened.job} still goes on was not seen" in caplog.text
