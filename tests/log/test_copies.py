"""Restores of files that checkpoints have copied: one comes back that is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.log_tables import LAYOUT, NOW, LogTable, base_of, file_of, ids
from zero_rename.committer.store.requests import PutFile
from zero_rename.log.actions import CommitInfo, RemoveFile, write_actions
from zero_rename.log.change import CHECKPOINT, COPY_OF, LogChange
from zero_rename.log.copies import copy_of
from zero_rename.log.job_steps import commit_job, open_log_job
from zero_rename.log.opening import LogDepth
from zero_rename.log.restoring import LogRestore, plan_restore
from zero_rename.log.undoing import plan_undo

SOURCE, COPY = "data/load/0.parquet", "data/copy/0.parquet"


@pytest.fixture
def table() -> LogTable:
    """A table with a file (version 1) that was copied (version 2), and replaced (version 3)."""
    table = LogTable()
    table.make()
    table.append("1", job="load")
    base = table.run(open_log_job(LAYOUT, ids("copy"), {})).log.state
    copy = copy_of(table.open().state.live[SOURCE], COPY)
    table.run(PutFile(LAYOUT.root.key_of(COPY), b"parquet"))
    change = LogChange("copy", base_of(base), adds=(copy,), removes=frozenset({SOURCE}))
    table.commit(replace(change, operation=CHECKPOINT, changes_data=False))
    table.replace("1")
    return table


def restore(table: LogTable, version: int) -> LogRestore:
    plan = table.run(plan_restore(LAYOUT, f"restore{version}", version, NOW, {}))
    table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
    return plan


def vacuum(table: LogTable, path: str) -> None:
    """Delete a removed file as another engine's VACUUM does, which leaves its tombstone."""
    del table.store.objects[LAYOUT.root.key_of(path)]


def restore_by_another_engine(table: LogTable, version: int) -> None:
    """Restore a version as an engine does that knows no copies."""
    then, now = table.open(LogDepth.FILES, version).state.live, table.open().state
    actions = [
        CommitInfo({"operation": "RESTORE"}),
        *(RemoveFile(it, NOW, True, {"day": "1"}, 7) for it in now.live.keys() - then.keys()),
        *(it for it in then.values() if it.path not in now.live),
    ]
    table.put(f"{now.version + 1:020d}.json", write_actions(actions))


@pytest.mark.parametrize("version", [1, 2])
def test_copy_comes_back_for_a_version_of_either(table: LogTable, version: int) -> None:
    assert restore(table, version).lost == ()
    assert table.live() == {COPY}


@pytest.mark.parametrize("version", [1, 2])
def test_source_comes_back_where_vacuum_took_the_copy(table: LogTable, version: int) -> None:
    vacuum(table, COPY)
    assert restore(table, version).lost == ()
    found = table.open().state.live
    assert found.keys() == {SOURCE}
    assert COPY_OF not in found[SOURCE].tags


def test_path_of_the_version_is_lost_where_vacuum_took_all(table: LogTable) -> None:
    vacuum(table, COPY)
    vacuum(table, SOURCE)
    assert restore(table, 1).lost == (SOURCE,)
    assert table.live() == set()


def test_live_source_stays_where_a_version_of_its_copy_is_restored(table: LogTable) -> None:
    restore_by_another_engine(table, 1)
    vacuum(table, COPY)
    plan = table.run(plan_restore(LAYOUT, "restore", 2, NOW, {}))
    assert not plan.is_needed
    assert plan.lost == ()


def test_source_that_was_removed_after_its_copy_comes_back(table: LogTable) -> None:
    restore_by_another_engine(table, 1)
    live = table.open().state.live[SOURCE]
    gone = RemoveFile(SOURCE, NOW + 1, True, live.values, live.size)
    table.put(f"{5:020d}.json", write_actions([CommitInfo({"operation": "DELETE"}), gone]))
    assert restore(table, 2).lost == ()
    assert table.live() == {SOURCE}


def test_files_whose_tag_of_a_source_is_null_are_no_copies() -> None:
    table = LogTable()
    table.make()
    adds = [replace(file_of("spark", at), tags={COPY_OF: None}) for at in range(2)]  # type: ignore[dict-item]
    table.put(f"{1:020d}.json", write_actions([CommitInfo({"operation": "WRITE"}), *adds]))
    table.append("1", job="editor", removes=frozenset({adds[0].path}))
    table.run(PutFile(LAYOUT.root.key_of(adds[0].path), b"parquet"))
    undo = table.run(plan_undo(LAYOUT, "undo", "editor", 2, NOW, {}))
    assert [it.path for it in undo.restore.change.returned] == [adds[0].path]
    restore(table, 1)
    assert table.live() == {it.path for it in adds}
