"""Delta tables in a bucket that was copied or restored: all of its objects have new times."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from support.delta_tables import on, rows, write
from support.memory_store import ManualClock, MemoryStore
from zero_rename.committer import Outcome
from zero_rename.committer.format.records.decision import Verdict
from zero_rename.committer.store.requests import Delete, Put

DAY = 24 * 3600.0


class Killed(BaseException):
    """The process died."""


def dies_after_its_entry(request: Any, apply: Any) -> Any:
    if isinstance(request, Delete) and "/open/" in request.key:
        raise Killed
    return apply(request)


def dies_before_its_entry(request: Any, apply: Any) -> Any:
    if isinstance(request, Put) and "_delta_log" in request.key:
        raise Killed
    return apply(request)


def restored(store: MemoryStore, clock: ManualClock) -> MemoryStore:
    """A copy of a bucket, made a day later: the log first, the records of jobs at last."""
    clock.advance(DAY)
    copy = store.copy()
    for key in sorted(copy.objects, key=lambda it: ("_delta_log" not in it, it)):
        copy.objects[key] = replace(copy.objects[key], last_modified=clock())
        clock.advance(60.0)
    return copy


def filled(clock: ManualClock, fault: Any) -> MemoryStore:
    """A restored table of three jobs, the second of which died."""
    store = MemoryStore(clock)
    write(on(store), rows(1))
    with pytest.raises(Killed):
        write(on(store, fault), rows(2), idempotency_key="a run")
    write(on(store), rows(3))
    return restored(store, clock)


def values(store: MemoryStore) -> list[int]:
    return sorted(on(store).scan().to_arrow()["value"].to_pylist())


def test_job_whose_rows_are_visible_is_not_called_fenced() -> None:
    """A person who is told that nothing was loaded loads the rows again."""
    store = filled(ManualClock(time.time()), dies_after_its_entry)
    (planned,) = on(store).plan_recovery(0.0)
    assert planned.outcome is Outcome.WOULD_FINISH
    assert planned.detail == "it is version 1, and not finished"
    (job,) = on(store).open_jobs(decided=True)
    assert job.decided is Verdict.COMMIT
    (done,) = on(store).recover(0.0)
    assert (done.outcome, done.detail) == (Outcome.COMMITTED, "It is version 1.")
    assert values(store) == [1, 2, 3]
    assert store.keys("flights/_zero_rename/open/") == []
    assert any("a%20run" in key for key in store.keys("flights/_zero_rename/runs/"))


def test_job_without_an_entry_is_fenced() -> None:
    store = filled(ManualClock(time.time()), dies_before_its_entry)
    (done,) = on(store).recover(0.0)
    assert (done.outcome, done.detail) == (
        *(Outcome.ABORTED, "It is fenced: it cannot commit any more."),
    )
    assert values(store) == [1, 3]


def test_job_is_unknown_if_entries_since_it_began_were_cleaned() -> None:
    store = filled(ManualClock(time.time()), dies_after_its_entry)
    on(store).checkpoint()
    for version in (0, 1):
        del store.objects[f"flights/_delta_log/{version:020d}.json"]
    (planned,) = on(store).plan_recovery(0.0)
    assert planned.outcome is Outcome.FAILED
    assert "nobody can tell whether it is committed" in planned.detail
