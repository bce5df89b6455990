"""The way of a try's record from its opening to its end, on a store in memory."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.s3a_jobs import JOB, OTHER, ROOT, a_try
from zero_rename.committer.job_spec import Owner
from zero_rename.committer.s3.requests import Delete, Put
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.open_tries import forget_try, note_recovered, open_tries, renew_try

TRY = a_try(owner=Owner("flights", "r", "load", -1, 1), mode="append")
OPEN, CLOSED = (key(ROOT, TRY.once, JOB) for key in (ledger.open_key, ledger.closed_key))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryDriver:
    return MemoryDriver(MemoryStore(clock))


def states(store: MemoryDriver) -> list[str]:
    return [known.record.state for known in store.run(ledger.tries_of(ROOT, TRY.once))]


def test_an_open_one_is_read_as_it_was_written(store: MemoryDriver, clock: ManualClock) -> None:
    store.run(ledger.open_try(ROOT, TRY))
    opened = clock.now
    clock.advance(40)
    assert store.run(renew_try(ROOT, TRY, interval=70.0))
    clock.advance(5)
    (known,) = store.run(open_tries(ROOT))
    assert (known.silent_for, known.is_renewed) == (5, True)
    read = known.record
    assert read is not None
    assert (read.opened_at, read.interval, read.patience) == (opened, 70.0, 700.0)
    assert (read.owner, read.committer, read.mode) == (TRY.owner, "magic", "append")
    clock.advance(696)
    assert not store.run(open_tries(ROOT))[0].is_renewed


def test_without_an_interval_ten_minutes_are_allowed() -> None:
    assert (TRY.patience, a_try(interval=30.0).patience) == (600.0, 600.0)


def test_nothing_brings_back_one_that_was_closed(store: MemoryDriver) -> None:
    record = store.run(ledger.open_try(ROOT, TRY))
    store.run(ledger.close_try(ROOT, a_try(state=ledger.UNDONE, opened_at=record.opened_at)))
    assert not store.run(renew_try(ROOT, TRY, interval=30.0))
    store.run(note_recovered(ROOT, TRY, JOB))
    store.run(forget_try(ROOT, TRY))
    assert store.store.keys() == [CLOSED]
    assert store.run(open_tries(ROOT)) == ()
    assert states(store) == [ledger.UNDONE]


def test_what_recovery_notes(store: MemoryDriver) -> None:
    store.run(ledger.open_try(ROOT, TRY))
    for job in (JOB, OTHER, JOB):
        store.run(note_recovered(ROOT, TRY, job))
    store.run(renew_try(ROOT, TRY, state=ledger.FAILED))
    (known,) = store.run(open_tries(ROOT))
    assert known.record is not None
    assert (known.record.recovered, known.record.state) == ((JOB, OTHER), ledger.FAILED)
    store.run(forget_try(ROOT, TRY))
    (closed,) = store.run(ledger.tries_of(ROOT, TRY.once))
    assert closed.record.recovered == (JOB, OTHER)


def test_one_that_cannot_be_read_is_told(store: MemoryDriver) -> None:
    store.store.apply(Put(OPEN, b"{"))
    (known,) = store.run(open_tries(ROOT))
    assert (known.record, known.is_renewed) == (None, True)
    assert OPEN in known.damage


def test_a_closed_one_counts_where_its_open_record_was_left(store: MemoryDriver) -> None:
    """Whoever closed it died between the two requests."""
    store.run(ledger.close_try(ROOT, a_try(state=ledger.COMMITTED)))
    store.run(ledger.open_try(ROOT, TRY))
    assert states(store) == [ledger.COMMITTED]
    assert store.run(open_tries(ROOT)) == ()
    found = store.run(ledger.find_try(ROOT, JOB))
    assert found is not None
    assert found.record.state == ledger.COMMITTED


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("read", ["of its run", "by its UUID"])
def test_a_try_never_vanishes_while_it_is_closed(store: MemoryDriver, read: str, at: int) -> None:
    """Closed before any request of a reader."""
    store.run(ledger.open_try(ROOT, TRY))
    closer, seen = MemoryDriver(store.store), 0

    def fault(request: Any, apply: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == at:
            closer.run(ledger.close_try(ROOT, a_try(state=ledger.COMMITTED)))
        return apply(request)

    store.fault = fault
    if read == "of its run":
        assert len(states(store)) == 1
    else:
        assert store.run(ledger.find_try(ROOT, JOB)) is not None


def test_the_closed_record_is_written_first_and_listed_last(store: MemoryDriver) -> None:
    """A store may scan its keys while others change them: one that has passed the open record's
    place after its deletion comes to the closed one's later still."""
    store.run(ledger.open_try(ROOT, TRY))
    store.requests.clear()
    store.run(ledger.close_try(ROOT, TRY))
    assert [type(request) for request in store.requests] == [Put, Delete]
    assert OPEN < CLOSED
