"""Requests and round trips of a job on the log, exact, in virtual time: a tick is one answer."""

from __future__ import annotations

import pytest

from support.log_tables import COLUMNS, LAYOUT, NOW, LogTable, base_of, day, file_of, ids
from support.memory_store import MemoryStore
from support.virtual_time import TickingDriver
from zero_rename.committer.store import requests as s
from zero_rename.log.change import LogChange
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.committing import commit_change
from zero_rename.log.job_steps import finish_job, open_log_job
from zero_rename.log.opening import LogDepth
from zero_rename.log.scope import NONE


def measured(
    files: int, partitions: int, replaced: bool, before: int = 1
) -> tuple[int, int, int, int]:
    """Requests and ticks until the job is committed, and until it is finished."""
    store = MemoryStore()
    table = LogTable(store)
    table.make()
    days = [str(it) for it in range(partitions)]
    for number in range(before):
        table.append(*days, job=f"before{number}")
    table.run(make_checkpoint(LAYOUT, NOW))
    table.append("0", job="last")

    driver = TickingDriver(store, connections=64)
    depth = LogDepth.FILES if replaced else LogDepth.BLIND
    opened = driver.run(open_log_job(LAYOUT, ids("job"), {}, depth))
    adds = tuple(file_of("job", it, days[it % partitions]) for it in range(files))
    driver.run(s.All(tuple(s.PutFile(LAYOUT.root.key_of(add.path), b"rows") for add in adds)))
    scope = day(*days) if replaced else NONE
    change = LogChange("job", base_of(opened.log.state), COLUMNS, adds, replaced=scope)
    done = driver.run(commit_change(LAYOUT, opened.log, change, NOW))
    committed = len(driver.requests), driver.now
    driver.run(finish_job(LAYOUT, "job", done))
    return (*committed, len(driver.requests), driver.now)


@pytest.mark.parametrize(
    ("files", "partitions", "replaced", "expected"),
    [
        # open, hint, list, crc; files; entry: then crc, close
        (1, 1, False, (6, 5, 8, 7)),
        (64, 1, False, (69, 5, 71, 7)),
        (31, 31, True, (36, 5, 38, 7)),
    ],
)
def test_job_takes_so_many_requests_and_round_trips(
    files: int, partitions: int, replaced: bool, expected: tuple[int, ...]
) -> None:
    assert measured(files, partitions, replaced) == expected


def test_append_to_365_partitions_takes_372_requests() -> None:
    requests = measured(365, 365, False)
    assert (requests[0], requests[2]) == (370, 372)


def test_replace_of_365_partitions_reads_the_checkpoint_too() -> None:
    """Two states of 365 files are more than a checksum file names."""
    requests = measured(365, 365, True, before=2)
    assert (requests[0], requests[2]) == (372, 374)


def test_opening_takes_four_requests_and_three_round_trips_with_a_run_or_without() -> None:
    table = LogTable()
    table.make()
    for number in range(30):
        table.append("1", run=f"run{number}")
    for run in (None, "run7", "new"):
        driver = TickingDriver(table.store)
        driver.run(open_log_job(LAYOUT, ids(f"job-{run}"), {}, run=run))
        assert (len(driver.requests), driver.now) == (4, 3)
