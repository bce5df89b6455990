"""A run without a scheduler closes what its killed attempts have left open in a Delta table."""

from __future__ import annotations

from typing import Any

import pytest

from support.delta_tables import on, rows, write
from support.memory_store import ManualClock, MemoryStore
from zero_rename.committer import Owner
from zero_rename.committer.errors import StoreUnreachableError
from zero_rename.committer.store.requests import ListObjects

RUN = "monthly 2013-01"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """A table, and an open job of a run whose process was killed."""
    store = MemoryStore(clock)
    write(on(store), rows(1))
    left_open(store, clock)
    return store


def left_open(store: MemoryStore, clock: ManualClock, **options: Any) -> None:
    given: dict[str, Any] = {"idempotency_key": RUN, **options}
    job = on(store).job(rows(2).schema, partition_by=["day"], **given)
    job.__enter__()
    job.write(rows(2))
    clock.advance(60.0)


def open_jobs(store: MemoryStore) -> list[str | None]:
    return [it.idempotency_key for it in on(store).open_jobs()]


def values(store: MemoryStore) -> list[int]:
    return sorted(on(store).scan().to_arrow()["value"].to_pylist())


def test_rerun_closes_what_its_killed_predecessor_left_open(store: MemoryStore) -> None:
    """Other runs waited for it until its time was over."""
    write(on(store), rows(2), idempotency_key=RUN)
    assert open_jobs(store) == []
    assert values(store) == [1, 2]


def test_jobs_of_other_runs_and_later_attempts_stay_open(
    store: MemoryStore, clock: ManualClock
) -> None:
    left_open(store, clock, idempotency_key="another run")
    with on(store).job(rows(2).schema, partition_by=["day"], idempotency_key=RUN) as job:
        job.write(rows(2))
        clock.advance(60.0)
        left_open(store, clock)
    assert open_jobs(store) == ["another run", RUN]


def test_job_that_waits_to_be_published_stays(store: MemoryStore, clock: ManualClock) -> None:
    with on(store).job(
        rows(3).schema, partition_by=["day"], idempotency_key=RUN, publish=False
    ) as job:
        job.write(rows(3))
    clock.advance(60.0)
    write(on(store), rows(2), idempotency_key=RUN)
    (waits,) = on(store).unpublished()
    assert waits.job == job.unpublished.job  # pyrefly: ignore[missing-attribute]


@pytest.mark.parametrize(
    "options",
    [
        {"idempotency_key": None},
        {"idempotency_key": RUN, "owner": Owner(dag_id="d", run_id="r", task_id="t")},
    ],
)
def test_job_without_a_key_and_task_of_a_scheduler_send_no_further_request(
    store: MemoryStore, options: dict[str, Any]
) -> None:
    asked: list[str] = []

    def noted(request: Any, apply: Any) -> Any:
        asked.extend([request.prefix] if isinstance(request, ListObjects) else [])
        return apply(request)

    write(on(store, noted), rows(2), **options)
    assert not any("/open/" in prefix for prefix in asked)


def test_commit_stands_where_earlier_attempts_cannot_be_listed(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    def unlisted(request: Any, apply: Any) -> Any:
        if isinstance(request, ListObjects) and "/open/" in request.prefix:
            raise StoreUnreachableError("The store does not answer.")
        return apply(request)

    assert write(on(store, unlisted), rows(2), idempotency_key=RUN) is not None
    assert open_jobs(store) == [RUN]
    assert "stays for recovery" in caplog.text
