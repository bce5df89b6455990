"""Looks for conflicts at a destination, whoever writes there: what they ask of the store."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.protocol import ROOT
from support.s3a_jobs import a_try
from support.virtual_time import TickingWorld
from zero_rename.committer import Mode, Readers, Table
from zero_rename.maintenance.conflicts import find_below, find_here
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, run_uuid

DAY = 24 * 3600.0
DAYS = [f"day={number}" for number in range(365)]


def opened(store: MemoryStore, clock: ManualClock, url: str = ROOT.url) -> Table:
    table = Table(url)
    table.driver = MemoryDriver(store, None, clock)  # pyright: ignore
    return table


def count(table: Table, clock: ManualClock, days: int) -> dict[str, int]:
    """The requests of a look so many days after the last one."""
    clock.advance(days * DAY)
    driver: Any = table.driver
    driver.requests.clear()
    for found in find_below(table, lambda url: pytest.fail(f"It looks at {url}, too.")):
        assert found.conflicts == ()
    return driver.counts()


@pytest.mark.parametrize("readers", [Readers.LISTING, Readers.HEADS])
def test_look_at_365_partitions_of_a_table_where_nothing_happened_takes_ten_requests(
    readers: Readers,
) -> None:
    """Of them one sees whether Hadoop's committers have runs on record there."""
    clock = ManualClock()
    world = TickingWorld(MemoryStore(clock))
    world.date_jobs()
    world.load(*DAYS, readers=readers, mode=Mode.REPLACE)
    clock.advance(DAY)
    table = opened(world.store, clock)
    find_here(table)
    assert count(table, clock, 1) == {"Get": 2, "ListObjects": 7, "Put": 1}
    assert count(table, clock, 7) == {"Get": 2, "ListObjects": 4, "Put": 1}


def test_look_at_365_partitions_of_magic_where_nothing_happened_takes_five_requests() -> None:
    clock = ManualClock()
    table = opened(MemoryStore(clock), clock)
    for number, name in enumerate(DAYS):
        run = f"daily/{number}/load"
        record = a_try(run_uuid(), idempotency_key=run, mode="replace", partitions=(name,))
        table.run(ledger.open_try(ROOT, record))
        report = {"decided_at": clock.now, "partitions": [{"partition": name, "files": 1}]}
        table.run(ledger.close_try(ROOT, record, state=COMMITTED, report=report))
        clock.advance(60.0)
    find_here(table)
    assert count(table, clock, 1) == {"Get": 2, "ListObjects": 2, "Put": 1}
