"""A run that loads again: what it takes the place of, and what refuses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.log_tables import LAYOUT, NOW, LogTable, day, file_of
from zero_rename.committer.errors import CommitConflictError
from zero_rename.committer.store.requests import PutFile
from zero_rename.log.actions import AddFile, CommitInfo, RemoveFile, write_actions
from zero_rename.log.change import LogChange, Overtaking
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.job_steps import commit_job, finish_job
from zero_rename.log.opening import LogDepth
from zero_rename.log.rerunning import RunPast, find_past
from zero_rename.log.restoring import plan_restore
from zero_rename.log.searching import RunDone


@pytest.fixture
def table() -> LogTable:
    table = LogTable()
    table.make()
    return table


def past(table: LogTable) -> RunPast | None:
    return table.run(find_past(LAYOUT, table.open(), "daily", "asks"))


def again(table: LogTable, *partitions: str, **more: Any) -> LogChange:
    """The change of a run that loads again."""
    change = table.job(*(partitions or ("1",)), run="daily", **more)
    found = past(table)
    return change if found is None else found.replaced_by(change)


def rewrite(table: LogTable, *paths: str, operation: str = "OPTIMIZE", **parameters: str) -> str:
    """Write the rows of files again as another engine does; return the new file's path."""
    state = table.open().state
    made = replace(file_of("spark", state.version), changes_data=False)
    actions = [
        CommitInfo({"operation": operation, "operationParameters": parameters}),
        *(RemoveFile(it, NOW, False, {"day": "1"}, 7) for it in paths),
        made,
    ]
    table.put(f"{state.version + 1:020d}.json", write_actions(actions))
    return made.path


def restore(table: LogTable, version: int) -> None:
    plan = table.run(plan_restore(LAYOUT, f"restore{version}", version, NOW, {}))
    table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))


def path_of(done: EntryCommitted) -> str:
    (add,) = done.entry.of(AddFile)
    return add.path


def test_first_try_has_no_past(table: LogTable) -> None:
    table.append("1", run="other")
    assert past(table) is None


def test_each_try_takes_the_place_of_the_one_before(table: LogTable) -> None:
    other = path_of(table.append("1"))
    for _ in range(3):
        change = again(table, "1", "2")
        table.commit(change)
        assert table.live() == {other, *(add.path for add in change.adds)}


def test_two_tries_at_once_leave_one(table: LogTable) -> None:
    table.append("1", run="daily")
    one, two = again(table), again(table)
    table.commit(one)
    done = table.commit(two)
    assert isinstance(done, RunDone)
    assert table.live() == {one.adds[0].path}


def test_replace_takes_the_rows_with_it(table: LogTable) -> None:
    table.append("1", run="daily")
    replaced = path_of(table.replace("1"))
    change = again(table)
    table.commit(change)
    assert table.live() == {replaced, change.adds[0].path}


def test_replace_since_is_a_conflict_though_the_run_left_no_file_there(table: LogTable) -> None:
    table.append("2", run="daily")
    change = again(table, "1")
    table.replace("1")
    with pytest.raises(CommitConflictError, match="replaced a partition that this job adds to"):
        table.commit(change)


class TestRewrittenRows:
    def refused(self, table: LogTable) -> str:
        with pytest.raises(CommitConflictError, match="has loaded before") as caught:
            past(table)
        return str(caught.value)

    def test_are_refused_where_another_engine_wrote_them(self, table: LogTable) -> None:
        rewrite(table, path_of(table.append("1", run="daily")))
        assert "version 2 of another engine wrote the rows of data/job1/0" in self.refused(table)

    def test_are_refused_where_a_compaction_of_this_package_wrote_them(
        self, table: LogTable
    ) -> None:
        path = path_of(table.append("1", run="daily"))
        compaction = table.job("1", removes=frozenset({path}), reads=day("1"), changes_data=False)
        table.commit(compaction)
        assert f"of job {compaction.job} wrote" in self.refused(table)

    def test_are_refused_where_a_predicate_removed_some(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        rewrite(table, path, operation="WRITE", mode="Overwrite", predicate="value > 3")
        assert "another engine" in self.refused(table)

    def test_are_gone_with_another_engine_s_overwrite(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        rewrite(table, path, operation="WRITE", mode="Overwrite")
        assert past(table) == RunPast(1, frozenset())

    def test_are_gone_with_a_later_replace(self, table: LogTable) -> None:
        rewrite(table, path_of(table.append("1", run="daily")))
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        assert past(table) == RunPast(1, frozenset())

    def test_are_refused_where_a_restore_may_have_brought_them_back(self, table: LogTable) -> None:
        rewrite(table, path_of(table.append("1", run="daily")))
        for path in table.live():
            table.run(PutFile(LAYOUT.key_of(path), b"parquet"))
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        restore(table, 2)
        assert "may have brought them back" in self.refused(table)

    def test_meet_a_rerun_that_is_under_way(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        change = again(table)
        rewrite(table, path)
        with pytest.raises(CommitConflictError, match=f"removed {path}"):
            table.commit(change)


def test_rows_that_a_restore_took_are_loaded_again(table: LogTable) -> None:
    before = path_of(table.append("1"))
    table.append("1", run="daily")
    restore(table, 1)
    change = again(table)
    table.commit(change)
    assert table.live() == {before, change.adds[0].path}


def test_restore_since_the_look_is_a_conflict(table: LogTable) -> None:
    table.append("1", run="daily")
    table.replace("1")
    change = again(table)
    restore(table, 1)
    with pytest.raises(CommitConflictError, match="restored a version"):
        table.commit(change)


def test_report_of_a_job_that_is_finished_late_tells_the_last_entry(table: LogTable) -> None:
    dead = table.job("1", run="daily")
    late = table.run(commit_change(LAYOUT, table.open(LogDepth.BLIND), dead, NOW))
    table.commit(again(table))
    table.run(finish_job(LAYOUT, dead.job, late))
    assert b'"version": 2' in table.store.objects[f"{LAYOUT.control}runs/daily.json"].body
