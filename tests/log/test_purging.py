"""What purge forgets and deletes, and what a restore brings back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable
from zero_rename.committer.errors import CommitConflictError
from zero_rename.log.job_steps import abandon_job, commit_job
from zero_rename.log.purging import purge_log
from zero_rename.log.restoring import plan_restore

WEEK = 7 * 86_400_000


@pytest.fixture
def table() -> LogTable:
    """A table whose first file was replaced, now within the retention."""
    table = LogTable()
    table.make()
    table.append("1", job="old")
    table.replace("1", job="new")
    return table


def data(table: LogTable) -> set[str]:
    return {key.removeprefix(LAYOUT.data).split("/")[0] for key in table.store.keys(LAYOUT.data)}


def test_removed_file_stays_for_its_retention_and_goes_after(table: LogTable) -> None:
    assert table.run(purge_log(LAYOUT, "early", NOW + WEEK - 1)) == ()
    assert data(table) == {"old", "new"}
    table.run(purge_log(LAYOUT, "late", NOW + WEEK + 1))
    assert data(table) == {"new"}


def test_files_of_an_open_job_stay_and_those_of_an_abandoned_one_go(table: LogTable) -> None:
    job = table.job("1", job="open")
    table.run(purge_log(LAYOUT, "one", NOW + WEEK + 1))
    assert data(table) == {"new", "open"}
    table.run(abandon_job(LAYOUT, job.job))
    table.run(purge_log(LAYOUT, "two", NOW + WEEK + 1))
    assert data(table) == {"new"}


def test_purge_of_a_table_with_an_overwritten_entry_deletes_nothing(table: LogTable) -> None:
    table.put("00000000000000000002.json", b'{"commitInfo": {}}\n')
    assert table.run(purge_log(LAYOUT, "careful", NOW + WEEK + 1)) == ()
    assert data(table) == {"old", "new"}


def test_purge_spares_what_other_writers_leave_outside_of_its_folder(table: LogTable) -> None:
    table.put("../part-0.parquet", b"foreign")
    table.run(purge_log(LAYOUT, "late", NOW + WEEK + 1))
    assert table.store.keys(LOG.prefix + "../part-0")


def test_restore_brings_back_what_is_there_and_names_what_is_lost(table: LogTable) -> None:
    plan = table.run(plan_restore(LAYOUT, "back", 1, NOW, {}))
    assert plan.lost == ()
    table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
    assert table.live() == {"data/old/0.parquet"}


def test_restore_after_a_purge_names_the_file_as_lost(table: LogTable) -> None:
    table.run(purge_log(LAYOUT, "late", NOW + WEEK + 1))
    plan = table.run(plan_restore(LAYOUT, "back", 1, NOW + WEEK + 1, {}))
    assert (plan.lost, plan.change.returned) == (("data/old/0.parquet",), ())


def test_restore_of_a_file_that_another_engine_deleted_names_it_as_lost(table: LogTable) -> None:
    del table.store.objects[LAYOUT.root.key_of("data/old/0.parquet")]
    plan = table.run(plan_restore(LAYOUT, "back", 1, NOW, {}))
    assert plan.lost == ("data/old/0.parquet",)


def test_restore_that_a_purge_has_overtaken_is_a_conflict(table: LogTable) -> None:
    plan = table.run(plan_restore(LAYOUT, "back", 1, NOW, {}))
    table.run(purge_log(LAYOUT, "late", NOW + WEEK + 1))
    with pytest.raises(CommitConflictError):
        table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))


def test_restore_after_which_the_table_changed_is_a_conflict(table: LogTable) -> None:
    plan = table.run(plan_restore(LAYOUT, "back", 1, NOW, {}))
    table.append("2")
    with pytest.raises(CommitConflictError):
        table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))


def test_retention_that_is_not_an_interval_purges_nothing() -> None:
    table = LogTable()
    properties = {"delta.deletedFileRetentionDuration": "soon"}
    table.make(replace(COLUMNS, properties=properties))
    with pytest.raises(Exception, match="not an interval"):
        table.run(purge_log(LAYOUT, "late", NOW))
