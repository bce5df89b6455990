"""A store that stops keeping its conditions while a table is in use: nothing that is decided is
decided again, and what is refused says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.memory_store import MemoryDriver, MemoryStore
from support.protocol import DAY1, DAY2, SCHEMA, World, memory_table
from zero_rename import Table
from zero_rename.committer.commit.interrupted import JobInterrupted
from zero_rename.committer.commit.state.decide import decide_abort
from zero_rename.committer.commit.state.job_state import JobState
from zero_rename.committer.errors import OtherJobError, StoreUnfitError, UnfinishedCommitError
from zero_rename.committer.store.requests import CompleteUpload
from zero_rename.committer.write_job import WriteJob

OLD = pa.table({"value": [1], "day": pa.array([1], pa.int32())})
NEW = pa.table({"value": [2], "day": pa.array([2], pa.int32())})


@pytest.fixture
def table() -> Table:
    table = memory_table(MemoryStore())
    load(table, OLD)
    return table


def load(table: Table, rows: pa.Table, **policy: Any) -> WriteJob:
    job = table.job(SCHEMA, partition_by=("day",), **policy)
    with job:
        job.write(rows)
    return job


def versioned(table: Table, on: bool = True) -> None:
    """Switch the bucket's versioning on, as somebody may at any time."""
    store = store_of(table)
    store.behaviour = replace(store.behaviour, versioned=on)


def store_of(table: Table) -> MemoryStore:
    driver: Any = table.driver
    assert isinstance(driver, MemoryDriver)
    return driver.store


def values(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("value").to_pylist())


def test_a_committed_job_is_not_aborted(table: Table) -> None:
    """Its head is new, so that nothing is refused before the decision."""
    versioned(table)
    job = table.job(SCHEMA, partition_by=("day",))
    with pytest.raises(UnfinishedCommitError) as caught, job:
        job.write(NEW)
    assert table.job_state(str(job.job)) is JobState.COMMITTED
    assert "has changed" in caught.value.message
    assert "conditions of PUT are not kept" in caught.value.message
    assert not hasattr(caught.value, "__notes__")
    versioned(table, on=False)
    table.recover()
    assert values(table) == [1, 2]
    assert table.is_closed(str(job.job))


def test_a_refused_claim_says_what_has_changed(table: Table) -> None:
    versioned(table)
    job = table.job(SCHEMA, partition_by=("day",))
    with pytest.raises(StoreUnfitError, match="conditions of PUT are not kept") as caught, job:
        job.write(OLD)
    assert "nothing of this job is visible" in caught.value.message
    assert "doctor" in str(caught.value.remedy)
    assert table.job_state(str(job.job)) is JobState.ABORTED
    versioned(table, on=False)
    assert values(table) == [1]


def test_one_that_is_interrupted_after_its_decision_is_committed(table: Table) -> None:
    versioned(table)
    job = table.job(SCHEMA, partition_by=("day",))
    driver: Any = table.driver

    def press(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, CompleteUpload) and "/day=" in request.key:
            driver.fault = None
            raise KeyboardInterrupt
        return apply(request)

    def write() -> None:
        with job:
            job.write(NEW)
            driver.fault = press

    with pytest.raises(JobInterrupted) as caught:
        write()
    assert caught.value.state is JobState.COMMITTED
    versioned(table, on=False)
    table.recover()
    assert values(table) == [1, 2]


@pytest.mark.parametrize("how", ["abort", "recover", "purge", "a later try", "an abort decision"])
def test_nobody_aborts_what_is_decided(how: str) -> None:
    """Whoever meets the job has looked before it was decided, and decides after that."""
    world = World()
    world.load(DAY1)
    world.store.behaviour = replace(world.store.behaviour, versioned=True)
    opened, result = world.written(DAY2, idempotency_key="run")
    with pytest.raises(UnfinishedCommitError):
        world.commit(opened, result)
    other = World(world.store)
    if how == "abort":
        with pytest.raises(UnfinishedCommitError):
            other.abort(opened, result)
    elif how == "recover":
        other.recover(patience=0.0)
    elif how == "purge":
        assert other.purge(patience=0.0, jobs=[opened.job]).failed == 1
    elif how == "a later try":
        with pytest.raises(OtherJobError):
            other.open(idempotency_key="run")
    else:
        decided = other.driver.run(decide_abort(other.context, opened.job))
        assert decided.decision.is_commit
    world.store.behaviour = replace(world.store.behaviour, versioned=False)
    world.recover(patience=0.0)
    assert world.jobs_of(DAY2) == [opened.job]
    world.assert_clean()
