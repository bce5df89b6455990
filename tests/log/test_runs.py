"""Runs do their work once, whoever died between a run's entry and its report."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from support.log_tables import LAYOUT, NOW, LogTable, ids
from support.memory_store import flatten
from zero_rename.log import checksum
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.job_steps import open_log_job, recover_job
from zero_rename.log.opening import LogDepth
from zero_rename.log.searching import find_run


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> LogTable:
    """Its checksum files name the newest transaction only, as of a table of many runs."""
    monkeypatch.setattr(checksum, "TRANSACTIONS", 1)
    table = LogTable()
    table.make()
    return table


def die_after_the_entry(table: LogTable) -> str:
    """Commit a run whose driver does no more, and other runs after it; return its job."""
    dead = table.job("1", run="daily")
    committed = table.run(commit_change(LAYOUT, table.open(), dead, NOW))
    assert isinstance(committed, EntryCommitted)
    for number in range(3):
        table.append("2", run=f"other {number}")
    assert not table.open().state.all_transactions
    return dead.job


def test_run_whose_driver_died_before_its_report_is_done_long_after(table: LogTable) -> None:
    dead = die_after_the_entry(table)
    opened = table.run(open_log_job(LAYOUT, ids("again"), {}, run="daily"))
    assert opened.done is not None
    assert opened.done.entry is not None
    assert opened.done.entry.job == dead
    assert table.run(open_log_job(LAYOUT, ids("new"), {}, run="new")).done is None


def test_run_whose_transaction_another_engine_has_dropped_is_done(table: LogTable) -> None:
    table.append("1", run="daily")
    state = replace(table.open(LogDepth.WHOLE).state, transactions={})
    assert state.all_transactions
    assert state.metadata is not None
    dropping = {**state.metadata.properties, "delta.setTransactionRetentionDuration": "1 day"}
    dropped = replace(state, metadata=replace(state.metadata, properties=dropping))
    assert table.run(find_run(LAYOUT, dropped, "daily", "job")) is not None
    assert table.run(find_run(LAYOUT, dropped, "hourly", "job")) is None


def test_report_of_a_run_with_a_long_key_has_a_name_that_stores_take(table: LogTable) -> None:
    long = "ежедневная загрузка/" * 60
    for run in (f"{long}1", f"{long}2"):
        table.append("1", run=run)
        for number in range(3):
            table.append("2", run=f"{run}, {number}")
        opened = table.run(open_log_job(LAYOUT, ids(f"again {run[-1]}"), {}, run=run))
        assert opened.done is not None
        assert opened.done.entry is None or opened.done.entry.transaction("zero_rename.run/" + run)
    # MinIO takes 255 bytes of each part of a key, S3 1,024 of a whole one.
    assert max(len(part) for key in table.store.keys("") for part in key.split("/")) <= 255


def interrupted(work: Any, number: int, act: Callable[[], Any]) -> Any:
    """Carry out a step, and something else right before one of its requests."""
    step, answer = flatten(work), None
    for at in itertools.count():
        try:
            request = step.send(answer)
        except StopIteration as stop:
            return stop.value
        if at == number:
            act()
        answer = yield request


@pytest.mark.parametrize("asked", range(8))
def test_run_that_is_finished_while_somebody_asks_for_it_is_done(
    table: LogTable, asked: int
) -> None:
    dead = die_after_the_entry(table)
    work = find_run(LAYOUT, table.open().state, "daily", "again")
    finish = partial(table.run, recover_job(LAYOUT, dead, "recoverer", NOW))
    assert table.run(interrupted(work, asked, finish)) is not None
