"""Many jobs at once on one log: how fast they commit, how fair it is, and what a job that others
beat sends."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from support.faults import beside
from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable, base_of, file_of, ids
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.virtual_time import ManyProcesses
from zero_rename.committer.errors import StoreUnreachableError
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.requests import Step
from zero_rename.log.change import LogChange
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.entries import ENTRY_BYTES
from zero_rename.log.job_steps import commit_job, open_log_job

JOBS_EACH = 5


def append(job: str, day: str) -> Step[Any]:
    """Open a job, write its file, commit it and finish it."""
    opened = yield from open_log_job(LAYOUT, ids(job), {})
    add = file_of(job, 0, day)
    yield from s.PutFile(LAYOUT.root.key_of(add.path), b"rows")
    change = LogChange(job, base_of(opened.log.state), COLUMNS, (add,))
    return (yield from commit_job(LAYOUT, opened.log, change, NOW))


def writer(number: int, jobs: int, done: list[EntryCommitted]) -> Generator[Any, Any, None]:
    for at in range(jobs):
        done.append((yield append(f"{number}-{at}", str(number))))


def all_at_once(writers: int, seed: int) -> tuple[ManyProcesses, list[EntryCommitted]]:
    """So many writers, each with a few jobs, at 30 ms an answer."""
    store, done = MemoryStore(), []
    LogTable(store).make()
    processes = ManyProcesses(store, 0.03, seed)
    processes.run(*(writer(it, JOBS_EACH, done) for it in range(writers)))
    return processes, done


@pytest.mark.parametrize("seed", [1, 2])
def test_32_writers_commit_20_times_a_second_and_nobody_loses_50_numbers(seed: int) -> None:
    processes, done = all_at_once(32, seed)
    assert sorted(it.entry.version for it in done) == list(range(1, 32 * JOBS_EACH + 1))
    assert len(done) / processes.now > 20
    assert max(it.met for it in done) < 50
    assert processes.requests / len(done) < 65


def test_one_writer_alone_takes_8_requests_a_job() -> None:
    processes, done = all_at_once(1, seed=1)
    assert processes.requests == 8 * len(done)


@pytest.mark.parametrize(
    ("beaten", "requests"),
    [
        ([], ["put 1"]),
        ([1], ["put 1", "get 1", "put 2"]),
        # The second time it reads the next number beside the one that it has lost.
        ([1, 1], ["put 1", "get 1", "put 2", "get 2", "get 3", "put 3"]),
        ([1, 2], ["put 1", "get 1", "put 2", "get 2", "get 3", "put 4"]),
        # As many as came were read: it asks for twice as many and one more.
        ([1, 2, 3], ["put 1", "get 1", "put 2", "get 2", "get 3", "put 4", "get 4", "get 5",
                     "get 6", "get 7", "put 7"]),
        # Fewer came: as many, and one more.
        ([1, 2, 1, 1], ["put 1", "get 1", "put 2", "get 2", "get 3", "put 4", "get 4", "get 5",
                        "get 6", "get 7", "put 5", "get 5", "get 6", "put 6"]),
    ],
)  # fmt: skip
def test_beaten_job_reads_the_entries_since_and_few_numbers_that_are_free(
    beaten: list[int], requests: list[str]
) -> None:
    """``beaten``: how many entries of others come right before each of its first PUTs."""
    table = LogTable()
    table.make()
    change, left = table.job("1", job="mine"), iter(beaten)

    def others() -> None:
        for _ in range(next(left, 0)):
            table.append("1")

    driver = MemoryDriver(table.store, beside(s.Put, others, LOG.prefix))
    done = driver.run(commit_change(LAYOUT, table.open(change.depth), change, NOW))
    assert isinstance(done, EntryCommitted)
    assert done.met == len(beaten)
    assert [_told(it) for it in driver.requests] == requests


def _told(request: Any) -> str:
    number = int(request.key.removeprefix(LOG.prefix).removesuffix(".json"))
    return f"{type(request).__name__.lower()} {number}"


def waits(answer_takes: float, numbers_lost: int) -> Iterator[float]:
    """The pauses of a job that loses so many numbers, each answer so many seconds late."""
    table = LogTable()
    table.make()
    change, clock, found = table.job("1", job="mine"), ManualClock(), []
    left = iter(range(numbers_lost))

    class Pausing(MemoryDriver):
        def perform(self, request: Any) -> Any:
            if isinstance(request, s.Wait):
                assert request.spread == 1.0
                found.append(request.seconds)
            return super().perform(request)

    def others() -> None:
        clock.advance(answer_takes)
        if next(left, None) is not None:
            table.append("1")

    driver = Pausing(table.store, beside(s.Put, others, LOG.prefix), clock)
    driver.run(commit_change(LAYOUT, table.open(change.depth), change, NOW))
    return iter(found)


def test_job_waits_longer_after_each_of_its_first_lost_numbers_and_then_no_more() -> None:
    assert list(waits(0.03, 9)) == pytest.approx([0.03, 0.06, 0.09, 0.12, 0.15])


def test_no_pause_of_a_beaten_job_exceeds_a_second() -> None:
    assert list(waits(0.6, 9)) == pytest.approx([0.6, 1.0, 1.0, 1.0, 1.0])


def test_entry_whose_answer_is_lost_counts_where_the_number_after_it_is_damaged() -> None:
    table = LogTable()
    table.make()
    change, puts = table.job("1", job="mine"), []

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if not isinstance(request, s.Put):
            return apply(request)
        puts.append(request.key)
        if len(puts) <= 2:  # From then on it reads ahead.
            table.append("1")
            return apply(request)
        apply(request)
        table.put("00000000000000000004.json", b"{")
        return s.Unknown("no answer")

    driver = MemoryDriver(table.store, fault)
    done = driver.run(commit_change(LAYOUT, table.open(change.depth), change, NOW))
    assert isinstance(done, EntryCommitted)
    assert (done.entry.version, done.entry.job) == (3, "mine")


def test_job_that_cannot_read_ahead_goes_on_from_the_number_that_it_has_lost() -> None:
    table = LogTable()
    table.make()
    change, left = table.job("1", job="mine"), iter(range(2))

    def others() -> None:
        if next(left, None) is not None:
            table.append("1")

    apart = beside(s.Put, others, LOG.prefix)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if request == s.Get(LOG.entry(3), most=ENTRY_BYTES):  # Which is free.
            raise StoreUnreachableError("no answer")
        return apart(request, apply)

    driver = MemoryDriver(table.store, fault)
    done = driver.run(commit_change(LAYOUT, table.open(change.depth), change, NOW))
    assert isinstance(done, EntryCommitted)
    assert (done.entry.version, done.met) == (3, 2)
