"""Jobs and upkeep of a Delta table whose store or process fails at each request in turn.

What is told has to be true: a job that is refused has no row in the table, a committed one has all
of them; after a retry under the same key, a recovery and a purge, each row is there once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Any

import pytest

from support.delta_tables import on, rows, write
from support.faults import Crash
from support.faults_in_turn import FAULTS, at
from support.memory_store import ManualClock, MemoryStore
from zero_rename.committer.errors import (
    OutcomeUnknownError,
    RefusedError,
    StreamError,
    UnfinishedCommitError,
    UnfinishedUpkeepError,
)
from zero_rename.committer.store import requests as s
from zero_rename.tables import DeltaTable, RepairOutcome

Act = Callable[[DeltaTable], Any]


@cache
def _prepared(prepare: Callable[[], MemoryStore]) -> MemoryStore:
    return prepare()


def store_of(prepare: Callable[[], MemoryStore]) -> MemoryStore:
    """A store as a function makes it, of which nothing is shared, with a clock of its own."""
    store = _prepared(prepare).copy()
    store.clock = copy(store.clock)
    return store


def filled() -> MemoryStore:
    store = MemoryStore()
    for value in (1, 2):
        write(on(store), rows(value))
    write(on(store), rows(3, day="2"))
    return store


def lying_fast() -> MemoryStore:
    """A table whose files lie in a data root."""
    store = MemoryStore()
    write(on(store), rows(1), data_root="s3://fast/scratch")
    for value, day in ((2, "1"), (3, "2")):
        write(on(store), rows(value, day=day))
    return store


def replaced() -> MemoryStore:
    """A table whose first day a job has replaced."""
    store = filled()
    write(on(store), rows(10), mode="overwrite")
    return store


def undo(table: DeltaTable, version: int) -> Any:
    """Undo the job of a version."""
    (job,) = [it.job for it in table.history() if it.version == version]
    return table.undo(str(job), apply=True)


def values(store: MemoryStore) -> list[int]:
    table = on(store)
    return sorted(table.scan().to_arrow()["value"].to_pylist()) if table.exists() else []


def overwritten() -> MemoryStore:
    """A table in which another writer has written over the last entry, of the value 10."""
    store = filled()
    write(on(store), rows(10), idempotency_key="run")
    log = "flights/_delta_log/00000000000000000003.json"
    on(store).run(s.PutFile(log, b'{"commitInfo":{"txnId":"other"}}\n'))
    return store


def repair(table: DeltaTable) -> None:
    (found,) = table.repair(apply=True)
    if found.outcome is RepairOutcome.UNKNOWN:
        raise OutcomeUnknownError(found.reason)
    assert not found.outcome.is_lost


def once(**options: Any) -> Act:
    return lambda table: write(table, rows(10), idempotency_key="run", **options)


def leave(table: DeltaTable) -> Any:
    """Write a job that waits."""
    with table.job(rows(10).schema, idempotency_key="run", publish=False) as job:
        job.write(rows(10))
    return job.unpublished


def waiting() -> MemoryStore:
    store = filled()
    leave(on(store))
    return store


def publish(table: DeltaTable) -> Any:
    """Publish the job that waits, or the run's that was published before."""
    jobs = [it.job for it in table.unpublished()]
    return table.publish(jobs[0] if jobs else table.job_of_key("run") or "")


def leave_and_publish(table: DeltaTable) -> Any:
    done = leave(table)
    return None if done is None else table.publish(done.job)


#: By name: the store before, the verb, the values before and after it.
VERBS: dict[str, tuple[Callable[[], MemoryStore], Act, list[int], list[int]]] = {
    "first job": (MemoryStore, once(), [], [10]),
    "append": (filled, once(), [1, 2, 3], [1, 2, 3, 10]),
    "replace": (filled, once(mode="overwrite"), [1, 2, 3], [3, 10]),
    "delete": (
        filled,
        lambda it: it.delete([("value", "==", 2)], idempotency_key="run"),
        [1, 2, 3],
        [1, 3],
    ),
    "merge": (
        filled,
        lambda it: it.merge(rows(2, 10), ["value"], idempotency_key="run"),
        [1, 2, 3],
        [1, 2, 3, 10],
    ),
    "publish": (waiting, publish, [1, 2, 3], [1, 2, 3, 10]),
    "leave and publish": (filled, leave_and_publish, [1, 2, 3], [1, 2, 3, 10]),
    "compact": (filled, lambda it: it.compact(apply=True), [1, 2, 3], [1, 2, 3]),
    "restore": (filled, lambda it: it.restore(0, apply=True), [1, 2, 3], [1]),
    "restore of a partition": (
        filled,
        lambda it: it.restore(0, ["day=1"], apply=True),
        [1, 2, 3],
        [1, 3],
    ),
    "undo": (filled, lambda it: undo(it, 1), [1, 2, 3], [1, 3]),
    "undo of a replace": (replaced, lambda it: undo(it, 3), [3, 10], [1, 2, 3]),
    "undo in a data root": (lying_fast, lambda it: undo(it, 1), [1, 2, 3], [1, 3]),
    "repair": (overwritten, repair, [1, 2, 3], [1, 2, 3, 10]),
    "checkpoint of the log": (filled, lambda it: it.checkpoint_log(), [1, 2, 3], [1, 2, 3]),
    "checkpoint": (lying_fast, lambda it: it.checkpoint(apply=True), [1, 2, 3], [1, 2, 3]),
    "delete in a data root": (
        lying_fast,
        lambda it: it.delete([("value", "==", 2)], idempotency_key="run"),
        [1, 2, 3],
        [1, 3],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_what_is_told_is_true_and_a_retry_brings_each_row_once(verb: str, fault: str) -> None:
    prepare, act, before, after = VERBS[verb]
    number = 0
    while True:
        store = store_of(prepare)
        table = on(store, at(number, FAULTS[fault]))
        told = _told(table, act)
        if told is None and len(table.driver.requests) <= number:  # type: ignore[attr-defined]
            break  # The fault came after the last request.
        found = values(store)
        where = f"{fault} at request {number}: {told!r}"
        allowed = {RefusedError: [before], None: [after], UnfinishedCommitError: [after]}
        kind = next((it for it in allowed if it is not None and isinstance(told, it)), None)
        if told is None or kind is not None:
            assert found in allowed[kind], where
        else:
            assert found in (before, after), where
        _settle(store, act, after, where)
        number += 1
    assert number > 3


def _told(table: DeltaTable, act: Act) -> BaseException | None:
    try:
        act(table)
    except (RefusedError, UnfinishedCommitError, OutcomeUnknownError, UnfinishedUpkeepError) as e:
        return e
    except (StreamError, KeyboardInterrupt, Crash) as e:
        return e
    return None


def _settle(store: MemoryStore, act: Act, after: list[int], where: str) -> None:
    """Run the verb again, recover and purge, each as another process."""
    act(on(store))
    assert values(store) == after, where
    on(store).recover(patience=0)
    assert not on(store).open_jobs(), where
    clock = store.clock
    assert isinstance(clock, ManualClock)
    clock.advance(30 * 24 * 3600.0)
    on(store).purge(apply=True)
    assert values(store) == after, where
    live = {file.key for file in on(store).state().files}
    assert live <= set(store.objects), where


def abort(table: DeltaTable) -> Any:
    return [table.abort(it.job) for it in table.unpublished()]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", [leave, abort])
def test_job_that_waits_is_whole_or_gone_whatever_fails(verb: Act, fault: str) -> None:
    number = 0
    while True:
        store = store_of(filled if verb is leave else waiting)
        table = on(store, at(number, FAULTS[fault]))
        told = _told(table, verb)
        if told is None and len(table.driver.requests) <= number:  # type: ignore[attr-defined]
            break
        where = f"{fault} at request {number}: {told!r}"
        assert values(store) == [1, 2, 3], where
        verb(on(store))  # Whatever it was told, it may be asked again.
        left = on(store).unpublished()
        assert len(left) == (verb is leave), where
        on(store).recover(patience=0)
        on(store).purge(apply=True)
        for job in left:
            on(store).publish(job.job)
        assert values(store) == [1, 2, 3, *([10] * len(left))], where
        assert not on(store).open_jobs(), where
        number += 1
    assert number > 3


def test_a_sleeper_that_recovery_has_fenced_commits_nothing() -> None:
    store = filled()
    job = on(store).job(rows(10).schema)
    with suppress(RefusedError), job:
        job.write(rows(10))
        on(store).recover(patience=0)
    assert job.committed is None
    assert values(store) == [1, 2, 3]
