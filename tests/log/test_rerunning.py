"""A run that loads again: what it takes the place of, and what refuses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.log_tables import LAYOUT, NOW, LogTable, base_of, day, file_of, ids
from zero_rename.committer.errors import CommitConflictError
from zero_rename.committer.store.requests import PutFile
from zero_rename.log import checksum
from zero_rename.log.actions import AddFile, CommitInfo, RemoveFile, write_actions
from zero_rename.log.change import CHECKPOINT, LogChange, Overtaking
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.copies import copy_of
from zero_rename.log.job_steps import commit_job, finish_job, open_log_job
from zero_rename.log.opening import LogDepth
from zero_rename.log.purging import purge_log
from zero_rename.log.rerunning import RunPast, find_past
from zero_rename.log.restoring import plan_restore
from zero_rename.log.scope import ALL
from zero_rename.log.searching import RunDone


@pytest.fixture
def table() -> LogTable:
    table = LogTable()
    table.make()
    return table


def past(table: LogTable) -> RunPast | None:
    return table.run(find_past(LAYOUT, table.open(), "daily", "asks", NOW))


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

    def test_are_refused_where_a_restore_brings_their_compaction_back_a_second_time(
        self, table: LogTable
    ) -> None:
        own = path_of(table.append("1", run="daily"))
        compacted = rewrite(table, own)
        table.run(PutFile(LAYOUT.root.key_of(compacted), b"parquet"))
        restore(table, 1)
        assert table.live() == {own}
        restore(table, 2)
        assert table.live() == {compacted}
        assert "version 4 of job restore2 may have brought them back" in self.refused(table)

    def test_are_left_where_a_replace_came_after_they_were_brought_back(
        self, table: LogTable
    ) -> None:
        rewrite(table, path_of(table.append("1", run="daily")))
        restore(table, 1)
        replaced = path_of(table.replace("1"))
        change = again(table)
        table.commit(change)
        assert table.live() == {replaced, change.adds[0].path}

    def test_are_refused_where_another_engine_changed_some(self, table: LogTable) -> None:
        rewrite(table, path_of(table.append("1", run="daily")), operation="UPDATE")
        words = "version 2 of another engine (UPDATE) wrote the rows of data/job1/0"
        assert words in self.refused(table)

    def test_are_refused_where_a_merge_of_this_package_wrote_them(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        merge = table.job("1", removes=frozenset({path}), reads=day("1"), operation="MERGE")
        table.commit(merge)
        found = self.refused(table)
        assert f"of job {merge.job} (MERGE) wrote" in found
        assert "restore a version" in found

    def test_are_refused_where_a_merge_may_have_moved_them_before_a_replace(
        self, table: LogTable
    ) -> None:
        path = path_of(table.append("1", run="daily"))
        merge = table.job("1", "2", removes=frozenset({path}), reads=day("1", "2"))
        counts = {"rowChanges": {"day=2": {"updated": 1}}}
        table.commit(replace(merge, operation="MERGE", told=counts))
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        assert f"of job {merge.job} (MERGE) wrote" in self.refused(table)
        table.commit(table.job("1", replaced=ALL, overtaking=Overtaking.LAST_WINS))
        assert past(table) == RunPast(1, frozenset())

    def test_are_gone_with_a_replace_after_a_merge_that_has_updated_none(
        self, table: LogTable
    ) -> None:
        path = path_of(table.append("1", run="daily"))
        merge = table.job("1", "2", removes=frozenset({path}), reads=day("1", "2"))
        counts = {"rowChanges": {"day=2": {"updated": 0}}}
        table.commit(replace(merge, operation="MERGE", told=counts))
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        assert past(table) == RunPast(1, frozenset())

    def test_are_refused_where_a_predicate_removed_some(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        rewrite(table, path, operation="WRITE", mode="Overwrite", predicate="value > 3")
        assert "another engine" in self.refused(table)

    def test_are_gone_with_another_engine_s_overwrite(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        rewrite(table, path, operation="WRITE", mode="Overwrite")
        assert past(table) == RunPast(1, frozenset())

    def test_are_gone_with_another_engine_s_overwrite_of_their_partition(
        self, table: LogTable
    ) -> None:
        path = path_of(table.append("1", run="daily"))
        parameters = {"mode": "Overwrite", "isDynamicPartitionOverwrite": True}
        info = CommitInfo({"operation": "WRITE", "operationParameters": parameters})
        actions = [info, RemoveFile(path, NOW, True, {"day": "1"}, 7), file_of("spark")]
        table.put(f"{2:020d}.json", write_actions(actions))
        assert past(table) == RunPast(1, frozenset())

    def test_are_gone_with_a_later_replace(self, table: LogTable) -> None:
        rewrite(table, path_of(table.append("1", run="daily")))
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        assert past(table) == RunPast(1, frozenset())

    def test_are_refused_where_a_restore_may_have_brought_them_back(self, table: LogTable) -> None:
        rewrite(table, path_of(table.append("1", run="daily")))
        for path in table.live():
            table.run(PutFile(LAYOUT.root.key_of(path), b"parquet"))
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        restore(table, 2)
        assert "may have brought them back" in self.refused(table)

    def test_meet_a_rerun_that_is_under_way(self, table: LogTable) -> None:
        path = path_of(table.append("1", run="daily"))
        change = again(table)
        rewrite(table, path)
        with pytest.raises(CommitConflictError, match=f"removed {path}"):
            table.commit(change)


class TestRowsOfOthers:
    """A run that has changed rows: its files hold those of others, too."""

    @pytest.fixture
    def merged(self, table: LogTable) -> str:
        other = path_of(table.append("1"))
        merge = table.job(
            "1", run="daily", removes=frozenset({other}), reads=day("1"), operation="MERGE"
        )
        table.commit(merge)
        return merge.adds[0].path

    def test_are_not_taken_out(self, table: LogTable, merged: str) -> None:
        with pytest.raises(CommitConflictError, match="version 2, wrote rows of others again"):
            past(table)
        assert table.live() == {merged}

    def test_are_not_taken_out_of_a_compaction(self, table: LogTable, merged: str) -> None:
        rewrite(table, merged)
        with pytest.raises(CommitConflictError, match="wrote rows of others again"):
            past(table)

    def test_go_where_the_run_replaces_the_partition(self, table: LogTable, merged: str) -> None:
        opened = table.open()
        found = table.run(find_past(LAYOUT, opened, "daily", "asks", NOW, replaced=day("1")))
        assert found == RunPast(2, frozenset({merged}))
        found = table.run(
            find_past(LAYOUT, opened, "daily", "asks", NOW, within=day("1"), replaced=day("1"))
        )
        assert found == RunPast(2, frozenset())  # The replace removes them.

    def test_are_nobody_s_once_the_change_was_taken_back(
        self, table: LogTable, merged: str
    ) -> None:
        restore(table, 1)
        assert past(table) == RunPast(2, frozenset())

    def test_are_not_in_a_partition_that_was_empty(self, table: LogTable, merged: str) -> None:
        merge = table.job("2", run="weekly", reads=day("2"), operation="MERGE")
        table.commit(merge)
        found = table.run(find_past(LAYOUT, table.open(), "weekly", "asks", NOW))
        assert found == RunPast(3, frozenset({merge.adds[0].path}))


class TestCompactedRows:
    """Rows of a run that a compaction has written again, with those of another job."""

    def compact(self, table: LogTable, *paths: str) -> str:
        """Compact files as a job of this package does; return the new file's path."""
        job = table.job(
            "1", removes=frozenset(paths), reads=day("1"), changes_data=False, operation="OPTIMIZE"
        )
        table.commit(job)
        return job.adds[0].path

    @pytest.fixture
    def files(self, table: LogTable) -> tuple[str, str]:
        paths = []
        for more in ({}, {"run": "daily"}):
            job = table.job("1", **more)
            add = replace(job.adds[0], statistics='{"numRecords":3}')
            table.commit(replace(job, adds=(add,)))
            paths.append(add.path)
        return paths[0], paths[1]

    @pytest.mark.parametrize("by", ["this package", "another engine"])
    def test_are_taken_back_and_the_other_job_s_file_is_as_it_was(
        self, table: LogTable, files: tuple[str, str], by: str
    ) -> None:
        other, _ = files
        before = table.open().state.live[other]
        (self.compact if by == "this package" else rewrite)(table, *files)
        change = again(table)
        done = table.commit(change)
        assert isinstance(done, EntryCommitted)
        assert table.live() == {other, change.adds[0].path}
        assert table.open().state.live[other] == replace(before, changes_data=False)

    def test_are_taken_back_through_several_compactions(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        once = self.compact(table, *files)
        later = path_of(table.append("1"))
        rewrite(table, once, later)
        change = again(table)
        table.commit(change)
        assert table.live() == {files[0], later, change.adds[0].path}

    def test_are_taken_back_again_and_again(self, table: LogTable, files: tuple[str, str]) -> None:
        own = files[1]
        for _ in range(3):
            self.compact(table, files[0], own)
            change = again(table)
            table.commit(change)
            own = change.adds[0].path
            assert table.live() == {files[0], own}
        assert past(table) == RunPast(8, frozenset({own}))

    def test_of_another_run_are_its_own_again(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        other = table.job("1", run="other")
        table.commit(other)
        self.compact(table, *files, other.adds[0].path)
        table.commit(again(table))
        found = table.run(find_past(LAYOUT, table.open(), "other", "asks", NOW))
        assert found == RunPast(3, frozenset({other.adds[0].path}))

    def test_stay_compacted_in_other_partitions(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        job = table.job("2", "2")
        table.commit(job)
        state = table.open().state
        made = replace(file_of("spark", 9, "2"), changes_data=False)
        both = [replace(file_of("spark", 8, "1"), changes_data=False), made]
        gone = [RemoveFile(it.path, NOW, False, it.values, 7) for it in state.live.values()]
        body = write_actions([CommitInfo({"operation": "OPTIMIZE"}), *gone, *both])
        table.put(f"{state.version + 1:020d}.json", body)
        change = again(table)
        table.commit(change)
        assert table.live() == {files[0], made.path, change.adds[0].path}

    def test_are_refused_where_the_other_job_s_file_is_gone(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        self.compact(table, *files)
        del table.store.objects[LAYOUT.root.key_of(files[0])]
        with pytest.raises(CommitConflictError, match="compaction of version 3"):
            past(table)

    @pytest.mark.parametrize(("hours", "works"), [(166, True), (168, False)])
    def test_are_refused_once_purge_may_take_what_was_compacted(
        self, table: LogTable, files: tuple[str, str], hours: int, works: bool
    ) -> None:
        self.compact(table, *files)
        late = NOW + hours * 3_600_000
        if works:
            found = table.run(find_past(LAYOUT, table.open(), "daily", "asks", late))
            assert {it.path for it in found.compacted.returned} == {files[0]}
        else:
            with pytest.raises(CommitConflictError, match="has written them again"):
                table.run(find_past(LAYOUT, table.open(), "daily", "asks", late))

    def test_are_a_conflict_where_purge_forgets_what_was_compacted(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        self.compact(table, *files)
        change = again(table)
        table.run(purge_log(LAYOUT, "purge", NOW + 8 * 86_400_000))
        with pytest.raises(CommitConflictError, match=r"removed|no longer"):
            table.commit(change)

    def test_are_refused_where_a_predicate_changed_the_compacted_file(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        rewrite(table, self.compact(table, *files), operation="DELETE")
        with pytest.raises(CommitConflictError, match=r"version 4 of another engine \(DELETE\)"):
            past(table)

    def test_are_gone_with_a_replace_of_the_compacted_file(
        self, table: LogTable, files: tuple[str, str]
    ) -> None:
        self.compact(table, *files)
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        assert past(table) == RunPast(2, frozenset())


def test_entry_of_the_run_that_was_written_over_is_refused_and_its_writer_s_files_stay(
    table: LogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksum, "TRANSACTIONS", 1)
    table.append("1", run="daily")
    table.append("2", run="other")
    body = write_actions([CommitInfo({"txnId": "stock"}), file_of("stock")])
    table.put("00000000000000000001.json", body)
    table.append("2", run="another")
    opened = replace(table.open(), state=replace(table.open().state, all_transactions=False))
    with pytest.raises(CommitConflictError, match="written over its entry 1"):
        table.run(find_past(LAYOUT, opened, "daily", "asks", NOW))


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
    (report,) = table.store.keys(f"{LAYOUT.control}runs/")
    assert b'"version": 2' in table.store.objects[report].body


class TestCopies:
    """Checkpoints have copied a file of the run."""

    def copy(self, table: LogTable, path: str, job: str) -> str:
        """Put a copy in place of a file; return its path."""
        state = table.run(open_log_job(LAYOUT, ids(job), {})).log.state
        state = table.open(LogDepth.FILES, state.version).state
        copy = copy_of(state.live[path], f"data/{job}/0.parquet")
        table.run(PutFile(LAYOUT.root.key_of(copy.path), b"parquet"))
        change = LogChange(job, base_of(state), adds=(copy,), removes=frozenset({path}))
        table.commit(replace(change, operation=CHECKPOINT, changes_data=False))
        return copy.path

    def restore_by_another_engine(self, table: LogTable, version: int) -> None:
        """Restore a version as an engine does that knows no copies."""
        then, now = table.open(LogDepth.FILES, version).state.live, table.open().state
        actions = [
            CommitInfo({"operation": "RESTORE"}),
            *(RemoveFile(it, NOW, True, {"day": "1"}, 7) for it in now.live.keys() - then.keys()),
            *(it for it in then.values() if it.path not in now.live),
        ]
        table.put(f"{now.version + 1:020d}.json", write_actions(actions))

    @pytest.fixture
    def first_copy(self, table: LogTable) -> str:
        """Of two copies of the run's file the first, which another engine has brought back."""
        source = path_of(table.append("1", run="daily"))
        first = self.copy(table, source, "copy1")
        self.restore_by_another_engine(table, 1)
        self.copy(table, source, "copy2")
        table.replace("1")
        self.restore_by_another_engine(table, 2)
        assert table.live() == {first}
        return first

    def test_former_copy_that_came_back_goes(self, table: LogTable, first_copy: str) -> None:
        change = again(table)
        table.commit(change)
        assert table.live() == {add.path for add in change.adds}
        assert first_copy in change.removes

    def test_former_copy_that_was_written_again_is_refused(
        self, table: LogTable, first_copy: str
    ) -> None:
        rewrite(table, first_copy, operation="UPDATE", predicate="x")
        with pytest.raises(CommitConflictError, match="may still be there"):
            past(table)

    def test_rows_that_were_written_again_before_the_copy_and_came_back_are_refused(
        self, table: LogTable
    ) -> None:
        source = path_of(table.append("1", run="daily"))
        merged = path_of(table.append("1", removes=frozenset({source}), operation="MERGE"))
        restore(table, 1)
        self.copy(table, source, "copy1")
        restore(table, 2)
        assert table.live() == {merged}
        with pytest.raises(CommitConflictError, match="may have brought them back"):
            past(table)
