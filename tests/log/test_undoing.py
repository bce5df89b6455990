"""What undoing a job brings back, which later entries hold it up, and in which order those go."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, SCHEMA, LogTable, base_of, day, file_of
from zero_rename.committer.errors import CommitConflictError, InvalidInputError
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.log.actions import AddFile, CommitInfo, RemoveFile, write_actions
from zero_rename.log.change import CHECKPOINT, RESTORE, LogChange
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.copies import copy_of
from zero_rename.log.job_steps import commit_job
from zero_rename.log.opening import LogDepth, read_entries
from zero_rename.log.purging import purge_log
from zero_rename.log.ranks import LogRanks
from zero_rename.log.restoring import plan_restore
from zero_rename.log.undoing import LogUndo, plan_undo

WEEK = 7 * 86_400_000
_numbers = itertools.count(1)


class Past:
    """A table whose jobs are undone by name."""

    def __init__(self) -> None:
        self.table = LogTable()
        self.table.make()
        self.versions: dict[str, int] = {}

    def append(self, job: str, *days: str, **more: Any) -> None:
        self.versions[job] = self.table.append(*days, job=job, **more).entry.version

    def replace(self, job: str, *days: str) -> None:
        self.append(job, *days, replaced=day(*days))

    def plan(self, undone: str, job: str = "undoing", now: int = NOW) -> LogUndo:
        version = self.versions[undone]
        return self.table.run(plan_undo(LAYOUT, job, undone, version, now, {}))

    def undo(self, undone: str) -> str:
        """Undo a job by one that is called after it."""
        job = f"undo-{undone}-{next(_numbers)}"
        plan = self.plan(undone, job).restore
        assert plan.lost == ()
        done = self.table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
        assert done.entry.operation == RESTORE
        self.versions[job] = done.entry.version
        return job

    def restore(self, version: int, *days: str) -> str:
        job = f"restore-{next(_numbers)}"
        within = day(*days)
        plan = self.table.run(plan_restore(LAYOUT, job, version, NOW, {}, within))
        done = self.table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
        self.versions[job] = done.entry.version
        return job

    def overwrite_columns(self, job: str, *days: str) -> None:
        """Replace days by files of other columns."""
        change = self.table.job(*days[:1], job=job, replaced=day(*days), metadata=OTHER)
        done = self.table.commit(replace(change, columns=OTHER))
        assert done.entry is not None
        self.versions[job] = done.entry.version

    def compact(self, *partitions: str) -> None:
        files = [
            it for it in self.table.open().state.live.values() if it.values["day"] in partitions
        ]
        job = self.table.job(*partitions)
        whole = {"removes": frozenset(it.path for it in files), "changes_data": False}
        self.table.commit(replace(job, operation="OPTIMIZE", reads=day(*partitions), **whole))

    def copy(self, path: str) -> str:
        """Put a copy in place of a file, as a checkpoint does."""
        state = self.table.open().state
        job = f"copy{next(_numbers)}"
        copied = copy_of(state.live[path], f"data/{job}/0.parquet")
        self.table.store.objects[LAYOUT.root.key_of(copied.path)] = self.table.store.objects[
            LAYOUT.root.key_of(path)
        ]
        change = LogChange(job, base_of(state), COLUMNS, (copied,), removes=frozenset([path]))
        self.table.commit(replace(change, operation=CHECKPOINT, changes_data=False))
        return copied.path

    def foreign(self, add: AddFile, *removes: str) -> None:
        """Commit an entry of another engine."""
        state = self.table.open().state
        actions = [
            CommitInfo({"operation": "WRITE", "txnId": "foreign"}),
            *(RemoveFile(it, NOW) for it in removes),
            add,
        ]
        self.table.put(
            LOG.entry(state.version + 1).removeprefix(LOG.prefix), write_actions(actions)
        )

    def live(self) -> list[str]:
        return sorted(it.split("/")[1] for it in self.table.live())


@pytest.fixture
def past() -> Past:
    """A partition with a file of each of two jobs; another one with a file of the first."""
    past = Past()
    past.append("a", "1", "2")
    past.append("b", "1")
    return past


class TestWhatComesBack:
    def test_file_that_a_job_added_goes_and_others_stay(self, past: Past) -> None:
        past.undo("b")
        assert past.live() == ["a", "a"]

    def test_files_that_a_job_replaced_come_back_as_they_were(self, past: Past) -> None:
        before = past.table.open().state.live
        past.replace("c", "1", "3")
        past.undo("c")
        assert past.table.open().state.live == before

    def test_other_partitions_may_have_changed_since(self, past: Past) -> None:
        past.replace("c", "2")
        past.undo("b")
        assert past.live() == ["a", "c"]

    def test_first_job_leaves_partitions_without_a_file(self) -> None:
        past = Past()
        past.append("a", "1", "2")
        past.undo("a")
        assert past.live() == []

    def test_files_that_a_compaction_wrote_again_go_with_it(self, past: Past) -> None:
        past.compact("1")
        past.compact("1")
        past.undo("b")
        assert past.live() == ["a", "a"]

    def test_copy_of_a_file_stays_in_place_of_its_source(self, past: Past) -> None:
        copy = past.copy("data/a/0.parquet")
        past.undo("b")
        assert past.table.live() == {copy, "data/a/1.parquet"}

    def test_restored_copies_are_what_their_sources_were(self, past: Past) -> None:
        before = past.table.open().state.version
        past.append("c", "1")
        of_a, of_b = past.copy("data/a/0.parquet"), past.copy("data/b/0.parquet")
        past.restore(before, "1")
        assert past.table.live() == {of_a, of_b, "data/a/1.parquet"}
        past.undo("b")
        assert past.table.live() == {of_a, "data/a/1.parquet"}

    def test_plan_changes_nothing_and_names_what_it_changes(self, past: Past) -> None:
        before = dict(past.table.store.objects)
        plan = past.plan("b")
        assert past.table.store.objects == before
        assert plan.restore.change.reads == day("1")
        assert plan.restore.change.removes == {"data/b/0.parquet"}

    def test_files_that_purge_has_deleted_are_lost(self, past: Past) -> None:
        past.replace("c", "1")
        past.table.run(purge_log(LAYOUT, "late", NOW + WEEK + 1))
        plan = past.plan("c", now=NOW + WEEK + 1)
        assert plan.restore.lost == ("data/a/0.parquet", "data/b/0.parquet")

    def test_job_that_changed_no_row_is_refused(self, past: Past) -> None:
        past.compact("1")
        (version,) = past.table.versions()[-1:]
        (entry,) = past.table.run(read_entries(LOG, [version]))
        past.versions[entry.job] = version
        with pytest.raises(InvalidInputError, match="changed no row"):
            past.plan(entry.job)


class TestOrder:
    def test_later_jobs_of_the_same_partition_are_named_newest_first(self, past: Past) -> None:
        past.append("c", "1")
        with pytest.raises(InvalidInputError, match=r"version 3 of job c, version 2 of job b\."):
            past.plan("a")

    def test_jobs_that_are_undone_in_that_order_let_it_be_undone(self, past: Past) -> None:
        past.replace("c", "1", "2")
        for job in ("c", "b", "a"):
            past.undo(job)
        assert past.live() == []

    def test_undoing_is_undone(self, past: Past) -> None:
        before = past.table.live()
        first = past.undo("b")
        second = past.undo(first)
        assert past.table.live() == before
        past.undo(second)
        assert past.live() == ["a", "a"]

    def test_job_whose_undoing_was_undone_is_undone_by_its_own_name(self, past: Past) -> None:
        past.undo(past.undo("b"))
        with pytest.raises(InvalidInputError, match=r"after a: version 2 of job b\."):
            past.plan("a")
        past.undo("b")
        past.undo("a")
        assert past.live() == []

    def test_job_whose_later_ones_are_undone_is_undone(self, past: Past) -> None:
        past.append("c", "1")
        past.undo("c")
        past.compact("1")
        past.undo("b")
        assert past.live() == ["a", "a"]

    def test_job_that_is_undone_already_is_left_and_says_by_whom(self, past: Past) -> None:
        by = past.undo("b")
        past.append("c", "1")
        plan = past.plan("b")
        assert (plan.undone, plan.restore.is_needed) == (by, False)

    def test_partition_that_was_restored_meanwhile_stays(self, past: Past) -> None:
        past.replace("c", "1", "2")
        past.restore(2, "2")
        past.undo("c")
        assert past.live() == ["a", "a", "b"]

    def test_job_that_another_has_built_on_elsewhere_is_named_with_that(self, past: Past) -> None:
        past.append("c", "2", "3")
        past.append("d", "3")
        past.undo("b")
        with pytest.raises(InvalidInputError, match="version 4 of job d, version 3 of job c"):
            past.plan("a")
        for job in ("d", "c", "a"):
            past.undo(job)
        assert past.live() == []

    def test_job_that_is_seen_only_once_another_is_undone_is_named_too(self) -> None:
        past = Past()
        past.append("m", "p", "q")
        past.append("y", "p")
        past.undo("y")
        past.append("x", "q")
        back = past.restore(2, "p", "q")  # As y had left it; q is as m left it.
        with pytest.raises(InvalidInputError, match="after m: version 2 of job y"):
            past.plan("m")
        past.undo("y")
        past.undo("m")
        assert past.live() == []
        assert back not in past.live()

    def test_entry_of_another_engine_is_named_by_its_version(self, past: Past) -> None:
        past.foreign(file_of("foreign"))
        with pytest.raises(InvalidInputError, match="version 3 of another engine") as caught:
            past.plan("b")
        assert "restore the partitions" in str(caught.value)

    def test_tombstones_without_a_partition_are_known_by_their_file(self, past: Past) -> None:
        past.foreign(file_of("foreign"), "data/b/0.parquet")
        with pytest.raises(InvalidInputError, match="another engine"):
            past.plan("b")

    def test_entries_that_were_cleaned_are_refused(self, past: Past) -> None:
        past.append("c", "2")
        past.append("d", "2")
        del past.table.store.objects[LOG.entry(3)]
        with pytest.raises(Exception, match=r"cleaned|missing"):
            past.plan("b")

    def test_entry_is_refused_where_those_before_it_were_cleaned(self, past: Past) -> None:
        past.table.run(make_checkpoint(LAYOUT, NOW))
        for version in range(past.versions["b"]):
            del past.table.store.objects[LOG.entry(version)]
        with pytest.raises(InvalidInputError, match="held before b nobody can tell"):
            past.plan("b")

    def test_entry_that_was_written_over_is_refused(self, past: Past) -> None:
        past.append("c", "2")
        past.table.run(make_checkpoint(LAYOUT, NOW))
        past.table.put("00000000000000000003.json", b'{"commitInfo":{"txnId":"other"}}\n')
        with pytest.raises(InvalidInputError, match="written over"):
            past.plan("b")


class TestBesideOthers:
    def commit(self, past: Past, plan: LogUndo) -> None:
        past.table.run(commit_job(LAYOUT, plan.restore.opened, plan.restore.change, NOW))

    def test_change_of_the_partition_meanwhile_is_a_conflict(self, past: Past) -> None:
        plan = past.plan("b")
        past.append("c", "1")
        with pytest.raises(CommitConflictError):
            self.commit(past, plan)

    def test_change_of_another_partition_meanwhile_is_none(self, past: Past) -> None:
        plan = past.plan("b")
        past.append("c", "2")
        self.commit(past, plan)
        assert past.live() == ["a", "a", "c"]

    def test_second_undoing_meanwhile_is_a_conflict(self, past: Past) -> None:
        plan = past.plan("b")
        past.undo("b")
        with pytest.raises(CommitConflictError):
            self.commit(past, plan)

    def test_purge_of_what_is_to_come_back_meanwhile_is_a_conflict(self, past: Past) -> None:
        past.replace("c", "1")
        plan = past.plan("c")
        past.table.run(purge_log(LAYOUT, "late", NOW + WEEK + 1))
        with pytest.raises(CommitConflictError):
            self.commit(past, plan)

    def test_columns_that_change_meanwhile_are_a_conflict(self, past: Past) -> None:
        past.replace("c", "1")
        plan = past.plan("c")
        past.overwrite_columns("columns", "2")
        with pytest.raises(CommitConflictError, match="columns"):
            self.commit(past, plan)


#: Columns that files of before do not fit.
OTHER = replace(COLUMNS, schema=SCHEMA.replace('"value"', '"worth"'))


class TestColumns:
    def test_columns_that_were_overwritten_come_back_with_the_whole_table(self, past: Past) -> None:
        past.overwrite_columns("c", "1", "2")
        undoing = past.undo("c")
        assert past.live() == ["a", "a", "b"]
        assert past.table.open(LogDepth.BLIND).state.metadata == COLUMNS
        past.undo(undoing)
        assert past.table.open(LogDepth.BLIND).state.metadata == OTHER

    def test_columns_that_other_files_need_are_refused(self, past: Past) -> None:
        past.overwrite_columns("c", "1", "2")
        past.overwrite_columns("d", "3")
        with pytest.raises(InvalidInputError, match="other columns than the table"):
            past.plan("c")

    def test_files_of_others_that_come_meanwhile_are_a_conflict(self, past: Past) -> None:
        past.overwrite_columns("c", "1", "2")
        plan = past.plan("c").restore
        past.overwrite_columns("d", "3")
        with pytest.raises(CommitConflictError):
            past.table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))

    def test_restore_of_a_partition_with_other_columns_is_refused(self, past: Past) -> None:
        past.overwrite_columns("c", "1", "2")
        with pytest.raises(InvalidInputError, match="other columns"):
            past.restore(2, "1")


class TestPartitions:
    def test_some_partitions_are_restored_and_others_stay(self, past: Past) -> None:
        past.replace("c", "1", "2")
        past.restore(1, "1")
        assert past.live() == ["a", "c"]

    def test_change_of_another_partition_is_no_conflict(self, past: Past) -> None:
        plan = past.table.run(plan_restore(LAYOUT, "back", 1, NOW, {}, day("1")))
        past.append("c", "2")
        past.table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
        assert past.live() == ["a", "a", "c"]

    def test_restore_of_a_partition_without_a_file_is_a_conflict_where_its_ranks_change(
        self, past: Past
    ) -> None:
        ranked = LogRanks(other=RunRank(2))
        past.table.commit(past.table.job(replaced=day("3"), ranks=ranked))
        past.replace("c", "1")
        plan = past.table.run(plan_restore(LAYOUT, "back", 3, NOW, {}))
        past.restore(2, "3")
        with pytest.raises(CommitConflictError, match="the ranks of a partition"):
            past.table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
