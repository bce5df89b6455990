"""Jobs on a table of very many files: those of other partitions are not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.log_tables import LAYOUT, LOG, NOW, LogTable, base_of, day, file_of
from support.memory_store import MemoryDriver
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.committer.store import requests as s
from zero_rename.log import checksum, opening
from zero_rename.log.actions import FORGOTTEN, AddFile, CommitInfo, RemoveFile, write_actions
from zero_rename.log.change import LogChange, Overtaking
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.job_steps import finish_job
from zero_rename.log.opening import LogDepth, OpenedLog, open_log, read_files
from zero_rename.log.ranks import LogRanks, LogSupersededError


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> LogTable:
    """A table of three days, a file each in its checkpoint and one in an entry since; a file is
    too many."""
    monkeypatch.setattr(checksum, "FILES", 0)
    monkeypatch.setattr(opening, "MANY", 0)
    table = LogTable()
    table.make()
    table.append("0", "1", "2")
    table.run(make_checkpoint(LAYOUT, NOW))
    table.append("0", "1", "2")
    return table


def commit(table: LogTable, change: LogChange) -> EntryCommitted:
    done = table.run(commit_change(LAYOUT, table.open(LogDepth.FEW), change, NOW))
    assert isinstance(done, EntryCommitted)
    table.run(finish_job(LAYOUT, change.job, done))
    return done


def counted(table: LogTable, version: int) -> int:
    """The number of files that a version's checksum file tells."""
    return json.loads(table.store.objects[LOG.checksum(version)].body)["numFiles"]


def test_replace_removes_the_files_of_its_partitions_and_reads_no_others(many: LogTable) -> None:
    done = commit(many, many.job("1", replaced=day("1")))
    assert done.state is not None
    assert not done.state.all_files
    checkpointed = {it.values["day"] for it in done.state.live.values() if it.tags.get("v") == "1"}
    assert checkpointed == set(), "the file of day 1 is removed, and those of others were not read"
    live = many.open().state
    assert sorted(str(it.values["day"]) for it in live.live.values()) == ["0", "0", "1", "2", "2"]
    assert counted(many, live.version) == len(live.live)


def test_replace_of_a_day_without_files_removes_none(many: LogTable) -> None:
    commit(many, many.job("7", replaced=day("7")))
    assert len(many.live()) == 7


class Overtaken(MemoryDriver):
    """Lets others write entries right before it sends its first."""

    def __init__(self, table: LogTable, others: Callable[[], object]) -> None:
        super().__init__(table.store)
        self._others = [others]

    def perform(self, request: Any) -> Any:
        is_entry = isinstance(request, s.Put) and request.key.endswith(".json")
        if is_entry and request.key.startswith(LOG.prefix) and self._others:
            self._others.pop()()
        return super().perform(request)


def commit_late(table: LogTable, change: LogChange, others: Callable[[], object]) -> int:
    """Commit a change right after an entry of others; return its version."""
    driver = Overtaken(table, others)
    opened = driver.run(open_log(LAYOUT, LogDepth.FEW))
    done = driver.run(commit_change(LAYOUT, opened, change, NOW))
    driver.run(finish_job(LAYOUT, change.job, done))
    assert done.entry is not None
    return done.entry.version


def test_files_that_another_job_removed_are_counted_though_they_were_not_read(
    many: LogTable,
) -> None:
    version = commit_late(many, many.job("1", replaced=day("1")), lambda: many.replace("2"))
    assert counted(many, version) == len(many.live()) == 4


@pytest.mark.parametrize("removed_at", [NOW, FORGOTTEN])
def test_removal_by_another_engine_leaves_no_checksum_file(many: LogTable, removed_at: int) -> None:
    """It may name a file that was not live; the next job that reads all files counts them. An
    engine need not say when it has removed a file, which reads as if it were forgotten."""
    gone = next(it for it in many.open().state.live.values() if it.values["day"] == "2")
    removal = RemoveFile(gone.path, removed_at, True, gone.values, gone.size)
    body = write_actions([CommitInfo({"operation": "DELETE"}), removal])
    change = many.job("1", replaced=day("1"))
    version = commit_late(many, change, lambda: many.put("00000000000000000003.json", body))
    assert version == 4
    assert LOG.checksum(version) not in many.store.objects
    after = many.replace("0").entry.version
    assert counted(many, after) == len(many.live()) == 3


class Cleaned(MemoryDriver):
    """Lets another engine write a checkpoint and clean the log right before one is read."""

    def __init__(self, table: LogTable) -> None:
        super().__init__(table.store)
        self._table, self._cleans = table, True

    def perform(self, request: Any) -> Any:
        if isinstance(request, s.Get) and request.key.endswith(".parquet") and self._cleans:
            self._cleans = False
            for _ in range(2):
                self._table.append("2")
            newest = self._table.run(make_checkpoint(LAYOUT, NOW))
            for key in self._table.store.keys(LOG.prefix):
                name = key.removeprefix(LOG.prefix)
                if name[:20].isdecimal() and int(name[:20]) < newest - 2:
                    del self._table.store.objects[key]
        return super().perform(request)


def test_replace_during_which_others_clean_the_log_goes_by_its_newest_state(many: LogTable) -> None:
    change = many.job("1", replaced=day("1"))
    driver = Cleaned(many)
    opened = driver.run(open_log(LAYOUT, LogDepth.FEW))
    done = driver.run(commit_change(LAYOUT, opened, change, NOW))
    assert isinstance(done, EntryCommitted)
    assert done.entry.version == 5
    assert [it.path for it in many.open().state.files_of(day("1").partitions)] == [
        it.path for it in change.adds
    ]


def test_last_one_removes_what_came_meanwhile_and_counts_right(many: LogTable) -> None:
    more = {"replaced": day("1"), "overtaking": Overtaking.LAST_WINS}
    version = commit_late(many, many.job("1", **more), lambda: many.replace("1"))
    state = many.open().state
    assert len(state.files_of(day("1").partitions)) == 1
    assert counted(many, version) == len(state.live) == 5


def test_add_that_changes_no_rows_is_not_counted_unless_all_files_were_read(many: LogTable) -> None:
    """Another engine writes the statistics of a live file anew."""
    there = next(iter(many.open().state.live.values()))
    renewed = AddFile(
        there.path, there.values, there.size, there.modified, False, '{"numRecords":1}'
    )
    body = write_actions([CommitInfo({"operation": "COMPUTE STATS"}), renewed])
    many.put("00000000000000000003.json", body)
    for depth in (LogDepth.BLIND, LogDepth.FEW):
        assert many.open(depth).state.count is None
    assert many.open(LogDepth.FILES).state.count == 6


def test_older_run_gives_way_by_the_files_of_its_partitions(many: LogTable) -> None:
    def ranked(rank: float) -> LogChange:
        ranks = LogRanks(other=RunRank(rank))
        more = {"overtaking": Overtaking.NEWEST_RUN, "ranks": ranks}
        return many.job("1", replaced=day("1"), **more)

    commit(many, ranked(2))
    with pytest.raises(LogSupersededError):
        commit(many, ranked(1))
    commit(many, ranked(3))


def test_entry_that_was_overwritten_between_two_reads_makes_all_be_read_anew(
    many: LogTable,
) -> None:
    opened = many.open(LogDepth.FEW)
    body = write_actions([CommitInfo({"txnId": "other"}), file_of("other", 0, "1")])
    many.put("00000000000000000002.json", body)
    found = many.run(read_files(LAYOUT, opened, day("1").has))
    assert found.state.all_files
    assert found.overwritten == (2,)


@pytest.mark.parametrize(
    ("depth", "most", "requests"), [("FEW", 100, 5), ("FEW", 0, 3), ("FILES", 0, 5)]
)
def test_files_are_read_as_a_log_opens_where_they_are_few(
    many: LogTable, monkeypatch: pytest.MonkeyPatch, depth: str, most: int, requests: int
) -> None:
    monkeypatch.setattr(opening, "MANY", most)
    driver = MemoryDriver(many.store)
    opened: OpenedLog = driver.run(open_log(LAYOUT, LogDepth[depth]))
    assert (opened.state.files is None) == (depth == "FEW" and most == 0)
    assert len(driver.requests) == requests
    assert base_of(opened.state).version == 2
