"""Reports of runs that another program has deleted, as Trino's ``vacuum`` does: they are named, and
written again."""

from __future__ import annotations

import pytest

from support.delta_tables import on, rows, write
from support.memory_store import ManualClock, MemoryStore
from zero_rename.maintenance.delta import write_lost_reports

REPORTS = "flights/_zero_rename/runs/"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A table that six runs have loaded, eight days later, without records that are a week old."""
    monkeypatch.setattr("zero_rename.log.checksum.TRANSACTIONS", 3)
    store = MemoryStore(ManualClock(1_900_000_000.0))
    for run in range(6):
        write(on(store), rows(run), idempotency_key=f"run {run}")
    store.clock.advance(8 * 86_400)  # type: ignore[attr-defined]
    for key in store.keys("flights/_zero_rename/"):
        del store.objects[key]
    return store


def values(store: MemoryStore) -> list[int]:
    return sorted(on(store).scan().to_arrow()["value"].to_pylist())


def gone(store: MemoryStore) -> list[str]:
    return [it.detail for it in on(store).doctor() if it.what == "reports of runs gone"]


def test_run_whose_report_is_written_again_loads_nothing_a_second_time(store: MemoryStore) -> None:
    (told,) = gone(store)
    assert told.startswith("6 runs that loaded the table have no report")
    assert on(store).repair_reports() == 6
    assert store.keys(REPORTS) == []
    assert on(store).repair_reports(apply=True) == 6
    assert (gone(store), on(store).repair_reports(apply=True)) == ([], 0)
    assert write(on(store), rows(0), idempotency_key="run 0").repeated
    assert values(store) == [0, 1, 2, 3, 4, 5]


def test_maintenance_writes_reports_again(store: MemoryStore) -> None:
    assert write_lost_reports(on(store), apply=False) == {"reports-would-be-written": 6}
    assert write_lost_reports(on(store), apply=True) == {"reports-written": 6}
    assert write_lost_reports(on(store), apply=True) == {}
    assert write(on(store), rows(0), idempotency_key="run 0").repeated


def test_run_that_loads_again_meanwhile_keeps_its_own_report(store: MemoryStore) -> None:
    done = write(on(store), rows(9), idempotency_key="run 5", on_repeat="append")
    before = {key: store.objects[key].body for key in store.keys(REPORTS)}
    assert on(store).repair_reports(apply=True) == 5
    assert before.items() <= {key: store.objects[key].body for key in store.keys(REPORTS)}.items()
    assert write(on(store), rows(9), idempotency_key="run 5").job == done.job


def test_run_that_has_just_committed_may_lack_its_report(store: MemoryStore) -> None:
    on(store).repair_reports(apply=True)
    write(on(store), rows(6), idempotency_key="run 6")
    for key in store.keys(REPORTS):
        del store.objects[key]
    assert on(store).repair_reports() == 6
