"""Entries of a log that are gone: they are told, and no purge deletes their files."""

from __future__ import annotations

import time

import pytest

from support.delta_tables import on, rows, write
from support.memory_store import ManualClock, MemoryStore
from support.protocol import memory_table
from zero_rename.committer import DamagedError, TableNotFoundError
from zero_rename.committer.store.requests import Put
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgeOrder
from zero_rename.maintenance.upkeep import look_after
from zero_rename.tables import RepairOutcome

LOG = "flights/_delta_log/"
LAST = f"{LOG}{2:020d}.json"


def filled() -> MemoryStore:
    """A table of three commits."""
    store = MemoryStore()
    for value in (1, 2, 3):
        write(on(store), rows(value), idempotency_key=f"run {value}")
    return store


def lose(store: MemoryStore, part: str = "") -> None:
    """Delete the objects of the log whose names contain a text."""
    for key in store.keys(LOG):
        if part in key:
            del store.objects[key]


def values(store: MemoryStore) -> list[int]:
    return sorted(on(store).scan().to_arrow()["value"].to_pylist())


def test_last_entry_that_is_gone_is_told_by_verify_and_the_doctor() -> None:
    store = filled()
    lose(store, LAST)
    (found,) = on(store).verify()
    assert (found.kind, found.key) == ("damaged", LAST)
    assert ("entry gone", LAST) in {(it.what, it.subject) for it in on(store).doctor()}


def test_no_purge_deletes_files_of_an_entry_that_is_gone() -> None:
    store = filled()
    last = store.objects[LAST]
    lose(store, LAST)
    for apply in (False, True):
        with pytest.raises(DamagedError, match="Version 2 of the table is gone"):
            on(store).purge(apply)
    store.objects[LAST] = last
    assert on(store).purge() == []
    assert values(store) == [1, 2, 3]


@pytest.mark.parametrize("part", [".json", ""], ids=["entries", "all"])
def test_no_purge_deletes_files_of_a_table_whose_log_is_gone(part: str) -> None:
    store = filled()
    files = store.keys("flights/data/")
    lose(store, part)
    with pytest.raises(DamagedError, match="is gone"):
        on(store).purge(apply=True)
    assert store.keys("flights/data/") == files


@pytest.mark.parametrize(
    ("part", "key", "detail"),
    [
        (".json", f"{LOG}{0:020d}.crc", "the checksum files of 3 versions are there"),
        ("", "flights/_zero_rename/runs/", "a record of a committed job is there"),
    ],
    ids=["entries", "all"],
)
def test_log_without_any_entry_is_told_by_verify_and_the_doctor(
    part: str, key: str, detail: str
) -> None:
    """The one said that there is no table, the other that the next job takes the number."""
    store = filled()
    lose(store, part)
    (found,) = on(store).verify()
    assert (found.kind, found.key[: len(key)]) == ("damaged", key)
    assert detail in found.detail
    assert f"Restore what lay below {LOG}" in found.detail
    (problem,) = on(store).doctor()
    assert (problem.what, problem.subject, detail in problem.detail) == (
        "log gone",
        found.key,
        True,
    )
    assert "the next job makes a new table" in problem.remedy


def test_verify_says_what_a_log_folder_without_entries_has() -> None:
    store = MemoryStore()
    with pytest.raises(TableNotFoundError, match=r"no job has committed\. .* recover names open"):
        on(store).verify()
    hint = '{"version":10,"size":12}'
    on(store).run(Put(f"{LOG}_last_checkpoint", hint.encode()))
    with pytest.raises(TableNotFoundError, match=r"has '_last_checkpoint', and no entry .*restore"):
        on(store).verify()


def test_maintenance_of_a_table_whose_log_has_no_entry_needs_a_person() -> None:
    store = filled()
    lose(store, ".json")
    table = memory_table(store)
    done = look_after(table, table.run(destination_at(table.root)), PurgeOrder(apply=True))
    assert any("damaged" in why and "no entry" in why for why in done.person)


def test_maintenance_of_a_table_whose_last_entry_is_gone_needs_a_person() -> None:
    store = filled()
    files = store.keys("flights/data/")
    lose(store, LAST)
    table = memory_table(store)
    done = look_after(table, table.run(destination_at(table.root)), PurgeOrder(apply=True))
    assert [LAST in why for why in done.person] == [True, True]
    assert store.keys("flights/data/") == files


def test_entry_that_is_gone_for_good_is_committed_again_after_the_next_one() -> None:
    store = filled()
    lose(store, LAST)
    write(on(store), rows(4))
    (found,) = on(store).repair(apply=True)
    assert found.outcome is RepairOutcome.COMMITTED
    assert values(store) == [1, 2, 3, 4]
    assert on(store).purge() == []


def test_files_of_a_table_that_a_job_made_anew_without_its_log_stay_for_a_week() -> None:
    clock = ManualClock(time.time())
    store = MemoryStore(clock)
    for value in (1, 2):
        write(on(store), rows(value))
    files = store.keys("flights/data/")
    log = {key: store.objects[key] for key in store.keys(LOG)}
    lose(store)
    clock.advance(60.0)
    write(on(store), rows(3))
    assert on(store).purge(apply=True) == []
    again = store.copy()
    lose(again)
    again.objects.update(log)
    assert values(again) == [1, 2]
    clock.advance(8 * 24 * 3600.0)
    assert on(store).purge(apply=True) == files
    assert values(store) == [3]
