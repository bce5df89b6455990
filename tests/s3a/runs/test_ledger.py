"""What the ledger keeps of tries and writes, on a store in memory."""

from __future__ import annotations

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer import RecordDamagedError
from zero_rename.committer.job_spec import Owner
from zero_rename.committer.layout import TableRoot
from zero_rename.s3a.runs import ledger

ROOT = TableRoot.parse("s3://bkt/wh/flights")
ONCE = "flights/scheduled__2013-02-02/load"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryDriver:
    return MemoryDriver(MemoryStore(clock))


def a_try(
    run: str, once: str = ONCE, state: str = ledger.SUBMITTED, number: int = 1
) -> ledger.TryRecord:
    owner = Owner(dag_id="flights", run_id="r", task_id="load", try_number=number)
    return ledger.TryRecord(run, once, owner, "magic", "append", ("day=1",), state)


def a_write(run: str, number: int, state: str = ledger.WRITING) -> ledger.WriteRecord:
    uuid = ledger.write_uuid(run, number)
    return ledger.WriteRecord(
        uuid, run, number, "magic", "s3://bkt/wh/flights/day=1", "append", "day=1", state=state
    )


def test_each_write_has_a_uuid_that_tells_its_run() -> None:
    run = ledger.run_uuid()
    uuids = [ledger.write_uuid(run, number) for number in range(1, 4)]
    assert len({run, *uuids}) == 4
    assert {ledger.run_of(uuid) for uuid in uuids} == {run}
    assert {len(uuid) for uuid in uuids} == {36}
    assert ledger.run_uuid() != run
    with pytest.raises(ValueError, match="65536"):
        ledger.write_uuid(run, 65536)


def test_the_records_lie_beside_the_table() -> None:
    """An object below the destination would make it exist for mode fail."""
    keys = (ledger.open_key(ROOT, ONCE, "u"), ledger.closed_key(ROOT, ONCE, "u"))
    for key in (*keys, ledger.write_key(ROOT, "u", 1)):
        assert key.startswith("wh/_zero_rename/s3a-")
    top = TableRoot.parse("s3://bkt/flights")
    assert ledger.write_key(top, "u", 1) == "_zero_rename/s3a-writes/flights/u/1.json"


def test_a_runs_tries_are_found_oldest_first(store: MemoryDriver, clock: ManualClock) -> None:
    first, second = ledger.run_uuid(), ledger.run_uuid()
    began = store.run(ledger.open_try(ROOT, a_try(first)))
    clock.advance(60)
    store.run(ledger.open_try(ROOT, a_try(second)))
    store.run(ledger.open_try(ROOT, a_try(ledger.run_uuid(), once="other")))
    clock.advance(5)
    found = store.run(ledger.tries_of(ROOT, ONCE))
    assert [known.record.uuid for known in found] == [first, second]
    assert [known.silent_for for known in found] == [65, 5]
    assert began.opened_at == found[0].since == clock.now - 65
    assert found[1].record == a_try(second)


def test_a_later_state_keeps_the_time_of_the_first(store: MemoryDriver, clock: ManualClock) -> None:
    run = ledger.run_uuid()
    record = store.run(ledger.put_write(ROOT, a_write(run, 1)))
    clock.advance(30)
    store.run(ledger.put_write(ROOT, record))
    (known,) = store.run(ledger.writes_of(ROOT, run))
    assert (known.silent_for, clock.now - known.since) == (0, 30)
    assert known.record == record


class TestSuperseded:
    """Which of a run's tries may write."""

    def put(
        self, store: MemoryDriver, number: int, run: str = "", state: str = ledger.SUBMITTED
    ) -> str:
        run = run or ledger.run_uuid()
        store.run(ledger.open_try(ROOT, a_try(run, state=state, number=number)))
        return run

    def test_the_last_may(self, store: MemoryDriver, clock: ManualClock) -> None:
        first = self.put(store, 1)
        assert store.run(ledger.superseded(ROOT, ONCE, first)) == ""
        clock.advance(5)
        second = self.put(store, 2)
        assert "(try 2)" in store.run(ledger.superseded(ROOT, ONCE, first))
        assert store.run(ledger.superseded(ROOT, ONCE, second)) == ""

    @pytest.mark.parametrize("uuids", [("1", "2"), ("2", "1")])
    def test_of_one_second_the_numbers_tell(
        self, store: MemoryDriver, uuids: tuple[str, str]
    ) -> None:
        first, second = (self.put(store, n, uuid) for n, uuid in enumerate(uuids, 1))
        assert "(try 2)" in store.run(ledger.superseded(ROOT, ONCE, first))
        assert store.run(ledger.superseded(ROOT, ONCE, second)) == ""

    def test_one_that_left_nothing_does_not_count(
        self, store: MemoryDriver, clock: ManualClock
    ) -> None:
        """A retry that found the first one still writing."""
        first = self.put(store, 1)
        clock.advance(5)
        self.put(store, 2, state=ledger.UNDONE)
        assert store.run(ledger.superseded(ROOT, ONCE, first)) == ""

    def test_one_that_a_retry_found_dead_may_not(self, store: MemoryDriver) -> None:
        run = self.put(store, 1, state=ledger.UNDONE)
        assert "found this try to be dead" in store.run(ledger.superseded(ROOT, ONCE, run))

    def test_tries_without_a_record_are_not_judged(self, store: MemoryDriver) -> None:
        self.put(store, 2)
        assert store.run(ledger.superseded(ROOT, ONCE, ledger.run_uuid())) == ""


def test_the_last_heartbeat_is_of_writes_that_go_on(
    store: MemoryDriver, clock: ManualClock
) -> None:
    run = ledger.run_uuid()
    assert store.run(ledger.last_heartbeat(ROOT, run)) is None
    store.run(ledger.put_write(ROOT, a_write(run, 1, ledger.WRITTEN)))
    assert store.run(ledger.last_heartbeat(ROOT, run)) is None
    store.run(ledger.put_write(ROOT, a_write(run, 2)))
    clock.advance(7)
    assert store.run(ledger.last_heartbeat(ROOT, run)) == 7


def test_a_damaged_record_is_named() -> None:
    with pytest.raises(RecordDamagedError) as damaged:
        ledger.WriteRecord.decode(b'{"format":1,"kind":"s3a write","uuid":7}', "k")
    assert (damaged.value.key, damaged.value.field) == ("k", "uuid")
