"""What the ledger keeps of tries and their writes, on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryDriver
from zero_rename.committer import RecordDamagedError
from zero_rename.committer.errors import StoreRefusedError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import Head, Put
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    FENCED,
    SUBMITTED,
    UNDONE,
    WRITING,
    WRITTEN,
    StoredTry,
    TryRecord,
    WriteRecord,
    run_of,
    run_uuid,
    write_uuid,
)

ROOT = TableRoot.parse("s3://bkt/wh/flights")
ONCE = "flights/scheduled__2013-02-02/load"


def a_try(
    run: str, idempotency_key: str = ONCE, state: str = SUBMITTED, number: int = 1
) -> TryRecord:
    owner = Owner(dag_id="flights", run_id="r", task_id="load", try_number=number)
    return TryRecord(run, idempotency_key, owner, "magic", "append", ("day=1",), state)


def a_write(run: str, number: int, state: str = WRITING) -> WriteRecord:
    uuid = write_uuid(run, number)
    destination = "s3://bkt/wh/flights/day=1"
    return WriteRecord(uuid, number, "magic", destination, "append", "day=1", state=state)


def test_each_write_has_a_uuid_that_tells_its_run() -> None:
    run = run_uuid()
    uuids = [write_uuid(run, number) for number in range(1, 4)]
    assert len({run, *uuids}) == 4
    assert {run_of(uuid) for uuid in uuids} == {run}
    assert {len(uuid) for uuid in uuids} == {36}
    assert run_uuid() != run
    with pytest.raises(ValueError, match="65536"):
        write_uuid(run, 65536)


def test_the_records_lie_beside_the_table() -> None:
    """An object below the destination would make it exist for mode fail."""
    keys = (ledger.open_key(ROOT, ONCE, "u"), ledger.closed_key(ROOT, ONCE, "u"))
    for key in (*keys, ledger.report_prefix(ROOT, "u", 1)):
        assert key.startswith("wh/_zero_rename/s3a-")
    top = TableRoot.parse("s3://bkt/flights")
    assert ledger.report_prefix(top, "u", 1) == "_zero_rename/s3a-reports/flights/u/1"


def test_a_runs_tries_are_found_oldest_first(store: MemoryDriver, clock: ManualClock) -> None:
    first, second = run_uuid(), run_uuid()
    began = store.run(ledger.open_try(ROOT, a_try(first)))
    clock.advance(60)
    opened = store.run(ledger.open_try(ROOT, a_try(second)))
    store.run(ledger.open_try(ROOT, a_try(run_uuid(), idempotency_key="other")))
    clock.advance(5)
    found = store.run(ledger.tries_of(ROOT, ONCE))
    assert [known.record.uuid for known in found] == [first, second]
    assert [known.silent_for for known in found] == [65, 5]
    assert began.opened_at == found[0].record.opened_at == clock.now - 65
    assert found[1].record == opened


class TestHeartbeats:
    """Of operator and application, who share a record."""

    @pytest.fixture
    def record(self, store: MemoryDriver, clock: ManualClock) -> TryRecord:
        opened = store.run(ledger.open_try(ROOT, a_try(run_uuid())))
        clock.advance(30)
        return opened

    def known(self, store: MemoryDriver, record: TryRecord) -> StoredTry:
        found = store.run(ledger.find(ROOT, ONCE, record.uuid))
        assert found is not None
        return found

    def test_a_later_state_keeps_the_time_of_the_first(
        self, store: MemoryDriver, clock: ManualClock, record: TryRecord
    ) -> None:
        store.run(ledger.send_heartbeat(ROOT, record))
        known = self.known(store, record)
        assert (known.silent_for, clock.now - known.record.opened_at) == (0, 30)
        assert known.record == replace(record, beat_at=clock.now)

    def test_one_suffices(self, store: MemoryDriver, clock: ManualClock, record: TryRecord) -> None:
        store.run(ledger.send_heartbeat(ROOT, record))
        clock.advance(29)
        store.requests.clear()
        store.run(ledger.send_heartbeat(ROOT, record))
        assert not [request for request in store.requests if isinstance(request, Put)]
        clock.advance(1)
        store.run(ledger.send_heartbeat(ROOT, record))
        assert self.known(store, record).silent_for == 0

    def test_neither_takes_away_what_the_other_entered(
        self, store: MemoryDriver, record: TryRecord
    ) -> None:
        """Each changes the record between the other's look and write."""
        write, other = a_write(record.uuid, 1), MemoryDriver(store.store)
        ledger_change = ledger.change(ROOT, record, lambda found, _: found.with_write(write))

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, Put) and store.fault is not None:
                store.fault = None
                other.run(ledger_change)
            return apply(request)

        store.fault = fault
        store.run(ledger.send_heartbeat(ROOT, record))
        found = self.known(store, record)
        assert (found.record.writes, found.silent_for) == ((write,), 0)

    def test_who_settles_a_try_knows_that_it_was_silent(
        self, store: MemoryDriver, clock: ManualClock, record: TryRecord
    ) -> None:
        seen = self.known(store, record)
        store.run(ledger.change(ROOT, record, lambda f, now: replace(f, beat_at=now)))
        assert store.run(ledger.settle_try(ROOT, seen, state=UNDONE)) is None
        assert not store.run(ledger.swap(seen, replace(seen.record, state=FENCED)))
        assert self.known(store, record).record.state == SUBMITTED

    @pytest.mark.parametrize(
        ("state", "write", "silent_for", "expected"),
        [
            (SUBMITTED, None, 89, True),
            (SUBMITTED, WRITTEN, 89, True),
            (SUBMITTED, WRITING, 90, False),
            (FAILED, None, 0, False),
            (FAILED, WRITTEN, 0, False),
            (FAILED, FAILED, 0, False),
            # In cluster mode the application outlives its submission.
            (FAILED, WRITING, 89, True),
            (FENCED, WRITING, 89, True),
            (UNDONE, WRITING, 89, True),
        ],
    )
    def test_who_may_be_writing(
        self, state: str, write: str | None, silent_for: float, expected: bool
    ) -> None:
        run = run_uuid()
        record = a_try(run, state=state)
        record = record if write is None else record.with_write(a_write(run, 1, write))
        assert StoredTry(record, "k", "e", silent_for).may_be_writing is expected


class TestSuperseded:
    """Which of a run's tries may write."""

    def put(self, store: MemoryDriver, number: int, run: str = "", state: str = SUBMITTED) -> str:
        run = run or run_uuid()
        store.run(ledger.open_try(ROOT, a_try(run, state=state, number=number)))
        return run

    def test_the_last_may(self, store: MemoryDriver, clock: ManualClock) -> None:
        first = self.put(store, 1)
        assert store.run(ledger.superseded(ROOT, ONCE, first)) == ""
        clock.advance(5)
        second = self.put(store, 2)
        assert "(attempt 2)" in store.run(ledger.superseded(ROOT, ONCE, first))
        assert store.run(ledger.superseded(ROOT, ONCE, second)) == ""

    @pytest.mark.parametrize("uuids", [("1", "2"), ("2", "1")])
    def test_of_one_second_the_numbers_tell(
        self, store: MemoryDriver, uuids: tuple[str, str]
    ) -> None:
        first, second = (self.put(store, n, uuid) for n, uuid in enumerate(uuids, 1))
        assert "(attempt 2)" in store.run(ledger.superseded(ROOT, ONCE, first))
        assert store.run(ledger.superseded(ROOT, ONCE, second)) == ""

    def test_one_that_left_nothing_does_not_count(
        self, store: MemoryDriver, clock: ManualClock
    ) -> None:
        """A retry that found the first one still writing."""
        first = self.put(store, 1)
        clock.advance(5)
        self.put(store, 2, state=UNDONE)
        assert store.run(ledger.superseded(ROOT, ONCE, first)) == ""

    def test_one_that_a_retry_found_dead_may_not(self, store: MemoryDriver) -> None:
        run = self.put(store, 1, state=UNDONE)
        assert "found this attempt to be dead" in store.run(ledger.superseded(ROOT, ONCE, run))

    def test_one_that_is_being_settled_may_not(self, store: MemoryDriver) -> None:
        run = self.put(store, 1, state=FENCED)
        assert "found this attempt to be dead" in store.run(ledger.superseded(ROOT, ONCE, run))

    def test_one_that_was_reported_may_not(self, store: MemoryDriver) -> None:
        """Its next write would be in no report."""
        run = self.put(store, 1, state=COMMITTED)
        assert "reported as all of it" in store.run(ledger.superseded(ROOT, ONCE, run))

    def test_tries_without_a_record_are_not_judged(self, store: MemoryDriver) -> None:
        self.put(store, 2)
        assert store.run(ledger.superseded(ROOT, ONCE, run_uuid())) == ""


def test_attempt_opened_when_others_read_it_has_opened(
    store: MemoryDriver, clock: ManualClock
) -> None:
    """The store answered a second later. Of two runs each took the other for the earlier one, and
    both gave way."""

    def late(request: Any, apply: Any) -> Any:
        answer = apply(request)
        return replace(answer, date=answer.date + 1) if isinstance(request, Put) else answer

    store.fault = late
    opened = store.run(ledger.open_try(ROOT, a_try(run_uuid())))
    store.fault = None
    known = store.run(ledger.find(ROOT, opened.idempotency_key, opened.uuid))
    assert known is not None
    assert opened == known.record


def test_record_whose_time_cannot_be_read_has_that_of_the_answer(store: MemoryDriver) -> None:
    def fault(request: Any, apply: Any) -> Any:
        if isinstance(request, Head):
            raise StoreRefusedError("AccessDenied", lacks_right=True)
        return apply(request)

    store.fault = fault
    assert store.run(ledger.open_try(ROOT, a_try(run_uuid()))).opened_at > 0


def test_a_record_of_many_writes_to_many_partitions_is_read(store: MemoryDriver) -> None:
    """As many partitions as a submission can name, each time: more than other records may have."""
    run, days = run_uuid(), tuple(f"day={number:040}" for number in range(2_800))
    writes = tuple(replace(a_write(run, n), among=days) for n in range(1, 71))
    store.run(ledger.open_try(ROOT, replace(a_try(run), writes=writes)))
    found = store.run(ledger.find(ROOT, ONCE, run))
    assert found is not None
    assert found.record.writes == writes


def test_a_damaged_record_is_named() -> None:
    with pytest.raises(RecordDamagedError) as damaged:
        TryRecord.decode(b'{"format":1,"kind":"s3a try","uuid":7}', "k")
    assert (damaged.value.key, damaged.value.field) == ("k", "uuid")
