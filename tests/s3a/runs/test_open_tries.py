"""The way of a try's record from its opening to its end, on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from support import faults
from support.memory_store import ManualClock, MemoryDriver
from support.s3a_jobs import JOB, OTHER, ROOT, a_try
from zero_rename.committer import RecordDamagedError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.store.requests import Delete, Put
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.ledger import forget_try, note_recovered, open_tries, send_heartbeat
from zero_rename.s3a.runs.try_record import COMMITTED, FAILED, UNDONE

TRY = a_try(owner=Owner("flights", "r", "load", -1, 1), mode="append")
OPEN, CLOSED = (key(ROOT, TRY.idempotency_key, JOB) for key in (ledger.open_key, ledger.closed_key))


def states(store: MemoryDriver) -> list[str]:
    return [known.record.state for known in store.run(ledger.tries_of(ROOT, TRY.idempotency_key))]


def test_an_open_one_is_read_as_it_was_written(store: MemoryDriver, clock: ManualClock) -> None:
    store.run(ledger.open_try(ROOT, TRY))
    opened = clock.now
    clock.advance(40)
    store.run(send_heartbeat(ROOT, TRY))
    clock.advance(5)
    (known,) = store.run(open_tries(ROOT)).known
    read = known.record
    assert (known.silent_for, read.opened_at) == (5, opened)
    assert (read.owner, read.committer, read.mode) == (TRY.owner, "magic", "append")


def test_nothing_brings_back_one_that_was_closed(store: MemoryDriver, clock: ManualClock) -> None:
    record = store.run(ledger.open_try(ROOT, TRY))
    store.run(ledger.close_try(ROOT, record, state=UNDONE))
    clock.advance(60)
    store.run(send_heartbeat(ROOT, TRY))
    store.run(note_recovered(ROOT, TRY, JOB))
    store.run(forget_try(ROOT, TRY))
    assert store.store.keys() == [CLOSED]
    assert store.run(open_tries(ROOT)).known == ()
    (known,) = store.run(ledger.tries_of(ROOT, TRY.idempotency_key))
    assert known.record == replace(record, state=UNDONE)


def test_what_recovery_notes(store: MemoryDriver) -> None:
    store.run(ledger.open_try(ROOT, TRY))
    for job in (JOB, OTHER, JOB):
        store.run(note_recovered(ROOT, TRY, job))
    store.run(ledger.change(ROOT, TRY, lambda found, _: replace(found, state=FAILED)))
    (known,) = store.run(open_tries(ROOT)).known
    assert (known.record.recovered, known.record.state) == ((JOB, OTHER), FAILED)
    store.run(forget_try(ROOT, TRY))
    (closed,) = store.run(ledger.tries_of(ROOT, TRY.idempotency_key))
    assert closed.record.recovered == (JOB, OTHER)


def test_one_that_nobody_submitted_is_forgotten_wholly(store: MemoryDriver) -> None:
    alone = a_try(idempotency_key=JOB)
    store.run(ledger.open_try(ROOT, alone))
    store.store.apply(Put(f"{ledger.report_prefix(ROOT, JOB, 1)}/summary-j.json", b"{}"))
    store.run(forget_try(ROOT, alone))
    assert store.store.keys() == []


def test_one_that_cannot_be_read_is_told(store: MemoryDriver) -> None:
    store.store.apply(Put(OPEN, b"{"))
    found = store.run(open_tries(ROOT))
    assert (found.known, OPEN in found.damage) == ((), True)
    with pytest.raises(RecordDamagedError):
        store.run(ledger.tries_of(ROOT, TRY.idempotency_key))


def test_a_closed_one_counts_where_its_open_record_was_left(store: MemoryDriver) -> None:
    """Whoever closed it died between the two requests."""
    store.run(ledger.close_try(ROOT, TRY, state=COMMITTED))
    store.run(ledger.open_try(ROOT, TRY))
    assert states(store) == [COMMITTED]
    assert store.run(open_tries(ROOT)).known == ()
    found = store.run(ledger.find_try(ROOT, JOB))
    assert found is not None
    assert found.record.state == COMMITTED


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("read", ["of its run", "by its UUID"])
def test_a_try_never_vanishes_while_it_is_closed(store: MemoryDriver, read: str, at: int) -> None:
    """Closed before any request of a reader."""
    store.run(ledger.open_try(ROOT, TRY))
    closer = MemoryDriver(store.store)
    closed = partial(closer.run, ledger.close_try(ROOT, TRY, state=COMMITTED))
    store.fault = faults.at(at, closed)
    if read == "of its run":
        assert len(states(store)) == 1
    else:
        assert store.run(ledger.find_try(ROOT, JOB)) is not None


def test_the_closed_record_is_written_first_and_listed_last(store: MemoryDriver) -> None:
    """A store may scan its keys while others change them: one that has passed the open record's
    place after its deletion comes to the closed one's later still."""
    store.run(ledger.open_try(ROOT, TRY))
    store.requests.clear()
    store.run(ledger.close_try(ROOT, TRY, state=COMMITTED))
    changes = [request for request in store.requests if isinstance(request, Put | Delete)]
    assert [(type(one), one.key) for one in changes[-2:]] == [(Put, CLOSED), (Delete, OPEN)]
    assert OPEN < CLOSED
