"""What a purge of 10,000 uploads asks of the store, exactly, and how many round trips it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.day_rows import load
from support.memory_store import ManualClock, MemoryStore
from support.s3a_jobs import ROOT, MagicJob, a_try
from support.virtual_time import CONNECTIONS, TickingDriver
from zero_rename.committer import Table
from zero_rename.committer.store.requests import CreateUpload
from zero_rename.committer.upkeep.purging.purge import PurgeAction
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgeOrder, purge_destination
from zero_rename.s3a.runs.ledger import open_try

DAY = 86400.0
UPLOADS = 10_000
#: Requests that a plain loop sends, too; and the ticks that its aborts take at the least.
ABORTS = {"AbortUpload": UPLOADS}
AT_LEAST = UPLOADS // CONNECTIONS


def foreign(table: Table) -> None:
    driver: Any = table.driver
    for number in range(UPLOADS):
        key = f"{ROOT.prefix}/day={number % 10}/part-{number:05}.parquet"
        driver.store.apply(CreateUpload(key))


def in_table(table: Table) -> None:
    load(table, 1)
    foreign(table)


def beside_ledger(table: Table) -> None:
    table.run(open_try(ROOT, a_try()))
    foreign(table)


def of_magic(table: Table) -> None:
    """A thousand tasks have committed ten files each, and the driver has died."""
    job = MagicJob(table.driver.perform, ROOT).begin()
    for number in range(UPLOADS // 10):
        job.task(number, [f"day={day}" for day in range(10)])


@pytest.mark.parametrize(
    ("begin", "besides", "ticks"),
    [
        (foreign, {"Head": 12, "ListUploads": 32, "ListObjects": 84}, 386),
        (
            in_table,
            {"Head": 12, "ListUploads": 21, "ListObjects": 49, "Get": 3, "ListParts": 100},
            354,
        ),
        (beside_ledger, {"Head": 12, "ListUploads": 32, "ListObjects": 84, "Get": 22}, 408),
        # Each task's pending file is read.
        (
            of_magic,
            {
                **{"Head": 1, "ListUploads": 14, "ListObjects": 21, "Get": 1002},
                **{"Put": 1, "DeleteMany": 2, "Delete": 1},
            },
            376,
        ),
    ],
    ids=["directory", "table", "ledger", "magic job"],
)
def test_purge_of_ten_thousand_uploads_adds_little_to_their_aborts(
    begin: Callable[[Table], None], besides: dict[str, int], ticks: int
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table(ROOT.url)
    driver = TickingDriver(store)
    table.driver = driver  # pyrefly: ignore[bad-assignment]
    begin(table)
    clock.advance(2 * DAY)
    place = table.run(destination_at(ROOT))
    driver.requests.clear()
    before = driver.now
    done = purge_destination(
        table, place, PurgeOrder(apply=True, foreign_age=DAY, s3a_patience=DAY)
    )
    assert done.counts == {PurgeAction.ABORTED: UPLOADS}
    assert store.upload_keys() == []
    assert driver.counts() == ABORTS | besides
    assert driver.now - before == ticks < 1.31 * AT_LEAST
