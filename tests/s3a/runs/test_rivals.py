"""Rivals of a try: which tries of other runs count as having written the same partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.s3a_jobs import ROOT
from zero_rename.committer.format.job_spec import Owner
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.rivals import living_rivals, loads_of_others, written_rivals
from zero_rename.s3a.runs.try_record import (
    FAILED,
    WRITING,
    WRITTEN,
    TryRecord,
    WriteRecord,
    run_uuid,
    write_uuid,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryDriver:
    return MemoryDriver(MemoryStore(clock), None, clock)


def opened(store: MemoryDriver, run: str, *states: str) -> TryRecord:
    """A try of a run that replaces the day, on record with writes in these states."""
    uuid = run_uuid()
    writes = tuple(
        WriteRecord(write_uuid(uuid, n), n, "magic", f"{ROOT.url}/day=1", "replace", state=state)
        for n, state in enumerate(states, 1)
    )
    record = TryRecord(uuid, run, Owner("daily", run, "load"), "magic", "replace", ("day=1",))
    record = store.run(ledger.open_try(ROOT, record))
    if writes:
        changed = ledger.change(ROOT, record, lambda found, _: replace(found, writes=writes))
        record = store.run(changed)
        assert record is not None
    return record


def rolled_back(store: MemoryDriver, record: TryRecord) -> None:
    """As recovery leaves a try: fenced, and closed in that state."""
    assert store.run(ledger.fence(ROOT, record)) is not None
    store.run(ledger.forget_try(ROOT, record))


def met_by(store: MemoryDriver, mine: TryRecord) -> list[str]:
    return [it.uuid for it in store.run(written_rivals(ROOT, mine))]


def test_try_that_has_begun_to_write_counts(store: MemoryDriver, clock: ManualClock) -> None:
    mine = opened(store, "mine")
    clock.advance(10)
    rival = opened(store, "other", WRITING)
    assert met_by(store, mine) == [rival.uuid]


def test_try_that_recovery_rolled_back_while_it_wrote_does_not_count(
    store: MemoryDriver, clock: ManualClock
) -> None:
    mine = opened(store, "mine")
    clock.advance(10)
    rolled_back(store, opened(store, "other", WRITING))
    assert met_by(store, mine) == []
    assert store.run(loads_of_others(ROOT, mine)).doubtful == ()


def test_try_that_recovery_closed_with_a_finished_write_counts(
    store: MemoryDriver, clock: ManualClock
) -> None:
    mine = opened(store, "mine")
    clock.advance(10)
    rival = opened(store, "other", WRITTEN, WRITING)
    rolled_back(store, rival)
    assert met_by(store, mine) == [rival.uuid]


def test_try_whose_application_writes_after_its_task_has_failed_is_at_work_until_it_is_silent(
    store: MemoryDriver, clock: ManualClock
) -> None:
    rival = opened(store, "other", WRITING)
    store.run(ledger.note_failed(ROOT, rival))
    clock.advance(60)
    mine = opened(store, "mine")
    assert [it.uuid for it in store.run(living_rivals(ROOT, mine)).known] == [rival.uuid]
    clock.advance(40)
    assert store.run(living_rivals(ROOT, mine)).known == ()


def test_try_that_failed_before_it_wrote_does_not_count(
    store: MemoryDriver, clock: ManualClock
) -> None:
    mine = opened(store, "mine")
    clock.advance(10)
    opened(store, "other", FAILED)
    assert met_by(store, mine) == []


def test_try_that_names_a_partition_is_in_doubt_for_one_that_loads_the_whole_table(
    store: MemoryDriver,
) -> None:
    writing = opened(store, "daily", WRITING)
    whole = TryRecord(run_uuid(), "whole", Owner("full", "r", "load"), "magic", "replace")
    found = store.run(loads_of_others(ROOT, whole))
    assert [it.uuid for it in found.doubtful] == [writing.uuid]
