"""Undoing and restoring of a Delta table: what comes back, what is told, and what is refused."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from support.faults import beside
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer import SupersededRunError
from zero_rename.committer.errors import (
    InvalidInputError,
    RecordDamagedError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
)
from zero_rename.committer.store.requests import Put, PutFile
from zero_rename.log import checksum
from zero_rename.log.actions import CommitInfo, write_actions
from zero_rename.log.opening import LogDepth, open_log
from zero_rename.tables import DeltaTable, RestoredVersion, RetentionChange, after_commit
from zero_rename.tables.delta_files import layout_of

WEEK = 7 * 24 * 3600.0
DAY1, DAY2 = "day=1", "day=2"
NEWEST: dict[str, Any] = {"on_conflict": "newest_run"}
SCHEMA = pa.schema([("day", pa.string()), ("value", pa.int64())])
UNKNOWN = "zr1-01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Past:
    """A table whose days are loaded a value at a time."""

    def __init__(self) -> None:
        # Jobs tell by their own clock when they removed a file.
        self.store = MemoryStore(ManualClock(time.time()))
        self.table = self.opened()

    def opened(self) -> DeltaTable:
        """The table as another process meets it."""
        table = DeltaTable("s3://bucket/flights")
        table.driver = MemoryDriver(self.store)  # type: ignore[assignment]
        return table

    @property
    def clock(self) -> ManualClock:
        assert isinstance(self.store.clock, ManualClock)
        return self.store.clock

    def load(self, value: int, *days: str, mode: str = "overwrite", **more: Any) -> str:
        rows = pa.table({"day": [*days], "value": [value] * len(days)}, schema=SCHEMA)
        with self.table.job(SCHEMA, mode=mode, partition_by=["day"], **more) as job:
            job.write(rows)
        return str(job.job)

    def set_properties(self, properties: dict[str, str]) -> None:
        """Replace the table's properties as another engine would."""
        layout = layout_of(self.table.root)
        state = self.table.run(open_log(layout, LogDepth.BLIND)).state
        assert state.metadata is not None
        changed = replace(state.metadata, properties=properties)
        body = write_actions([CommitInfo({"txnId": "it"}), changed])
        self.store.apply(PutFile(layout.folder.entry(state.version + 1), body))

    def values(self) -> list[tuple[str, int]]:
        rows = self.opened().scan().to_arrow().to_pylist()
        return sorted((it["day"], it["value"]) for it in rows)


@pytest.fixture
def past() -> Past:
    past = Past()
    past.load(1, "1", "2")
    return past


class TestUndo:
    def test_job_is_undone_and_that_undone_too(self, past: Past) -> None:
        job = past.load(2, "1", "3")
        planned = past.table.undo(job)
        assert planned == RestoredVersion(0, 1, (DAY1, "day=3"), 1, 2)
        assert past.values() == [("1", 2), ("2", 1), ("3", 2)]
        done = past.table.undo(job, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]
        past.opened().undo(str(done.job), apply=True)
        assert past.values() == [("1", 2), ("2", 1), ("3", 2)]

    def test_undoing_is_an_entry_that_writes_no_byte(self, past: Past) -> None:
        job = past.load(2, "1")
        files = past.store.keys("flights/data/")
        done = past.table.undo(job, apply=True)
        assert past.store.keys("flights/data/") == files
        (last,) = past.table.history(1)
        assert (last.operation, last.job, last.added, last.removed) == ("RESTORE", done.job, 1, 1)
        assert last.owner == {"application": "python"}
        assert past.table.open_jobs() == []

    def test_second_undoing_says_which_job_has_done_it_and_changes_nothing(
        self, past: Past
    ) -> None:
        job = past.load(2, "1")
        done = past.table.undo(job, apply=True)
        again = past.opened().undo(job, apply=True)
        assert again == RestoredVersion(0, 2, job=done.job)
        assert past.table.history(1)[0].version == 2
        assert past.table.open_jobs() == []

    def test_refusal_names_a_version_before_the_jobs_where_there_is_one(self, past: Past) -> None:
        first, second = past.table.history()[-1].job, past.load(2, "1")
        past.load(3, "1")
        assert first is not None
        for job, is_one in ((first, False), (second, True)):
            with pytest.raises(InvalidInputError, match="Undo those first") as caught:
                past.table.undo(job)
            assert ("version before" in str(caught.value)) is is_one

    def test_merge_and_delete_are_undone(self, past: Past) -> None:
        merged = past.table.merge(
            pa.table({"day": ["1", "4"], "value": [5, 4]}, schema=SCHEMA), ["day"]
        )
        deleted = past.table.delete([("day", "==", "2")])
        assert merged.committed is not None
        assert deleted.committed is not None
        past.table.undo(deleted.committed.job, apply=True)
        assert past.values() == [("1", 5), ("2", 1), ("4", 4)]
        past.table.undo(merged.committed.job, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]

    def test_jobs_that_built_on_it_are_named_and_undone_first(self, past: Past) -> None:
        jobs = [past.load(value, "1") for value in (2, 3, 4)]
        with pytest.raises(InvalidInputError, match="Others have changed") as caught:
            past.table.undo(jobs[0], apply=True)
        said = str(caught.value)
        assert said.index(jobs[2]) < said.index(jobs[1])
        assert past.values() == [("1", 4), ("2", 1)]
        assert past.table.open_jobs() == []
        for job in reversed(jobs):
            past.table.undo(job, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]

    @pytest.mark.parametrize("after", [WEEK + 3600, WEEK - 1800])
    def test_rows_that_are_not_kept_are_refused(self, past: Past, after: float) -> None:
        """A VACUUM may be deleting them, by another clock, in the last hour too."""
        job = past.load(2, "1")
        past.clock.advance(after)
        planned = past.table.undo(job)
        assert len(planned.lost) == 1
        with pytest.raises(InvalidInputError, match="1 file of version 0 cannot be brought back"):
            past.table.undo(job, apply=True)
        assert past.values() == [("1", 2), ("2", 1)]
        assert past.table.open_jobs() == []

    @pytest.mark.parametrize("ahead", [10 * 24 * 3600.0, -10 * 24 * 3600.0])
    def test_rows_are_kept_for_the_retention_though_the_hosts_clock_is_wrong(
        self, past: Past, ahead: float
    ) -> None:
        past.clock.advance(ahead)
        job = past.load(2, "1")
        with past.table.job(SCHEMA, mode="overwrite", publish=False) as held:
            held.write(pa.table({"day": ["2"], "value": [2]}, schema=SCHEMA))
        past.table.publish(str(held.job))
        assert past.table.purge(apply=True) == []
        past.table.undo(str(held.job), apply=True)
        past.table.undo(job, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]

    @pytest.mark.parametrize("publish", [True, False])
    def test_rows_are_kept_past_a_checkpoint_of_the_log_though_the_hosts_clock_is_ahead(
        self, past: Past, publish: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        removed, now = past.load(2, "1"), time.time()
        monkeypatch.setattr(after_commit, "CHECKPOINT_INTERVAL", 1)
        monkeypatch.setattr(time, "time", lambda: now + 2 * WEEK)
        with past.table.job(SCHEMA, mode="append", publish=publish) as job:
            job.write(pa.table({"day": ["2"], "value": [2]}, schema=SCHEMA))
        if not publish:
            past.table.publish(str(job.job))
        assert past.table.purge(apply=True) == []
        past.table.undo(removed, apply=True)
        assert past.values() == [("1", 1), ("2", 1), ("2", 2)]

    def test_rows_are_kept_for_the_tables_own_retention(self, past: Past) -> None:
        job = past.load(2, "1")
        assert past.table.set_retention(3 * WEEK) == RetentionChange(WEEK, 3 * WEEK)
        assert past.table.retention == WEEK
        past.table.set_retention(3 * WEEK, apply=True)
        past.clock.advance(2 * WEEK)
        past.table.purge(apply=True)
        past.table.undo(job, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]

    @pytest.mark.parametrize("seconds", [float("nan"), 0, 3599, 1e12])
    def test_retention_that_cannot_be_meant_is_refused(self, past: Past, seconds: float) -> None:
        with pytest.raises(InvalidInputError, match="an hour to 100 years"):
            past.table.set_retention(seconds)
        assert past.table.retention == WEEK
        with pytest.raises(TableNotFoundError):
            Past().table.set_retention(WEEK)

    def test_change_of_properties_that_is_refused_leaves_no_open_job(self, past: Past) -> None:
        past.set_properties({"zero_rename.formerDataRoots": "5"})
        with pytest.raises(RecordDamagedError, match="formerDataRoots"):
            past.table.set_data_root("s3://fast/scratch", apply=True)
        assert past.table.open_jobs() == []

    def test_job_that_the_log_does_not_know_is_refused(self, past: Past) -> None:
        with pytest.raises(InvalidInputError, match="has no entry in the log"):
            past.table.undo(UNKNOWN)
        with pytest.raises(InvalidInputError, match="is no job's id"):
            past.table.undo("1")
        with pytest.raises(TableNotFoundError):
            Past().table.undo(UNKNOWN)

    def test_first_job_leaves_a_table_without_rows(self) -> None:
        past = Past()
        job = past.load(1, "1")
        done = past.table.undo(job, apply=True)
        assert (done.version, past.values()) == (-1, [])
        assert past.table.schema == SCHEMA

    def test_columns_that_a_job_has_added_stay(self, past: Past) -> None:
        wider = pa.table({"day": ["1"], "value": [2], "tail": ["N1"]})
        with past.table.job(wider.schema, mode="overwrite", schema_mode="merge") as job:
            job.write(wider)
        past.table.undo(str(job.job), apply=True)
        assert past.table.schema.names == ["day", "value", "tail"]
        assert past.values() == [("1", 1), ("2", 1)]

    def test_properties_that_others_have_changed_since_stay_though_columns_come_back(
        self, past: Past
    ) -> None:
        other = pa.table({"day": ["1"], "tail": ["N1"]})
        overwrites = {"mode": "overwrite", "replace_table": True, "schema_mode": "overwrite"}
        with past.table.job(other.schema, **overwrites) as job:
            job.write(other)
        past.table.set_retention(4 * WEEK, apply=True)
        past.table.undo(str(job.job), apply=True)
        assert (past.table.schema, past.values()) == (SCHEMA, [("1", 1), ("2", 1)])
        assert past.opened().set_retention(WEEK).before == 4 * WEEK


class TestRuns:
    def test_undone_run_loads_again_once(self, past: Past) -> None:
        job = past.load(2, "1", mode="append", idempotency_key="run")
        past.table.undo(job, apply=True)
        again = past.load(3, "1", mode="append", idempotency_key="run", on_repeat="replace_own")
        assert past.values() == [("1", 1), ("1", 3), ("2", 1)]
        past.table.undo(again, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]

    def test_run_whose_files_came_back_replaces_them(self, past: Past) -> None:
        job = past.load(2, "1", mode="append", idempotency_key="run")
        undoing = past.table.undo(job, apply=True)
        past.table.undo(str(undoing.job), apply=True)
        past.load(3, "1", mode="append", idempotency_key="run", on_repeat="replace_own")
        assert past.values() == [("1", 1), ("1", 3), ("2", 1)]

    def test_compacted_rows_of_a_run_that_has_loaded_again_do_not_come_back_beside_it(
        self, past: Past
    ) -> None:
        past.load(2, "1", mode="append", idempotency_key="run")
        assert past.table.compact(apply=True)[0].job
        replacing = past.load(3, "1")
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        past.load(4, "2", mode="append", **own)
        with pytest.raises(InvalidInputError, match="it would be there twice"):
            past.table.undo(replacing)

    def test_rows_of_a_run_that_has_loaded_again_elsewhere_do_not_come_back_beside_it(
        self, past: Past
    ) -> None:
        past.load(2, "1", mode="append", idempotency_key="run")
        replacing = past.load(3, "1")
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        past.load(4, "2", mode="append", **own)
        again = past.load(5, "2", mode="append", **own)
        with pytest.raises(InvalidInputError, match=rf"in version 4 of job {again}"):
            past.table.undo(replacing, apply=True)
        assert past.table.open_jobs() == []
        past.table.undo(again, apply=True)
        with pytest.raises(InvalidInputError, match="in version 3 of job"):
            past.table.undo(replacing)
        assert past.values() == [("1", 3), ("2", 1), ("2", 4)]

    def test_ranks_of_rows_that_came_back_stand(self, past: Past) -> None:
        past.load(5, "3", run_rank=5, **NEWEST)
        job = past.load(7, "3", run_rank=7, **NEWEST)
        past.table.undo(job, apply=True)
        with pytest.raises(SupersededRunError):
            past.load(4, "3", run_rank=4, **NEWEST)
        past.load(6, "3", run_rank=6, **NEWEST)
        assert past.values() == [("1", 1), ("2", 1), ("3", 6)]

    @pytest.mark.parametrize("transactions", [1, 1000])
    def test_rank_of_an_undone_run_that_left_a_partition_empty_is_gone(
        self, past: Past, transactions: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checksum, "TRANSACTIONS", transactions)
        past.load(5, "3", run_rank=5, **NEWEST)
        job = past.load(9, run_rank=9, replace_partitions=["day=3"], **NEWEST)
        done = past.table.undo(job, apply=True)
        past.load(6, "3", mode="append", run_rank=6, **NEWEST)
        past.load(7, "3", run_rank=7, **NEWEST)
        assert past.values() == [("1", 1), ("2", 1), ("3", 7)]
        past.table.restore(done.present, ["day=3"], apply=True)
        with pytest.raises(SupersededRunError):
            past.load(8, "3", run_rank=8, **NEWEST)

    def test_rank_of_a_run_that_left_a_partition_empty_stands_once_rows_since_are_undone(
        self, past: Past
    ) -> None:
        past.load(9, run_rank=9, replace_partitions=["day=3"], **NEWEST)
        job = past.load(10, "3", mode="append", run_rank=10, **NEWEST)
        past.table.undo(job, apply=True)
        with pytest.raises(SupersededRunError):
            past.load(5, "3", mode="append", run_rank=5, **NEWEST)
        assert past.values() == [("1", 1), ("2", 1)]

    @pytest.mark.parametrize("policy", ["fail", "last_wins"])
    def test_rank_of_a_run_that_left_a_partition_empty_stands_after_thousands_of_others(
        self, past: Past, policy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checksum, "TRANSACTIONS", 1)
        past.load(9, run_rank=9, replace_partitions=["day=3"], **NEWEST)
        past.load(2, "2", mode="append", idempotency_key="other")
        past.load(3, "3", mode="append", run_rank=3, on_conflict=policy)
        with pytest.raises(SupersededRunError):
            past.load(5, "3", run_rank=5, **NEWEST)
        assert ("3", 3) in past.values()


class TestRestore:
    def test_table_as_of_a_version_and_of_a_time(self, past: Past) -> None:
        past.clock.advance(60)
        past.load(2, "1", "3")
        then = datetime.fromtimestamp(past.clock() - 30, UTC)
        for as_of in (0, "0", then, then.isoformat()):
            assert past.table.restore(as_of) == RestoredVersion(0, 1, (DAY1, "day=3"), 1, 2)
        done = past.table.restore(then, apply=True)
        assert past.values() == [("1", 1), ("2", 1)]
        past.table.undo(str(done.job), apply=True)
        assert past.values() == [("1", 2), ("2", 1), ("3", 2)]

    def test_some_partitions_alone(self, past: Past) -> None:
        past.load(2, "1", "2")
        done = past.table.restore(0, [DAY2], apply=True)
        assert done.partitions == (DAY2,)
        assert past.values() == [("1", 2), ("2", 1)]

    def test_second_restore_of_a_run_leaves_what_was_loaded_since(self, past: Past) -> None:
        past.load(2, "1")
        done = past.table.restore(0, apply=True, idempotency_key="run")
        past.load(3, "1")
        again = past.opened().restore(0, apply=True, idempotency_key="run")
        assert (again.job, again.partitions) == (done.job, ())
        assert past.values() == [("1", 3), ("2", 1)]
        other = past.opened().restore(0, apply=True, idempotency_key="other")
        assert other.partitions == (DAY1,)
        assert past.values() == [("1", 1), ("2", 1)]

    def test_second_restore_of_a_run_is_known_though_an_engine_has_dropped_its_transaction(
        self, past: Past
    ) -> None:
        past.load(2, "1")
        past.set_properties({"delta.setTransactionRetentionDuration": "interval 1 day"})
        done = past.table.restore(0, [DAY1], apply=True, idempotency_key="run")
        past.load(3, "1")
        for key in past.store.keys("flights/_delta_log/"):
            body = past.store.objects[key].body
            if key.endswith(".crc"):
                del past.store.objects[key]
            elif b"zero_rename.run/" in body:
                lines = [it for it in body.splitlines() if b"zero_rename.run/" not in it]
                past.store.apply(PutFile(key, b"\n".join(lines)))
        again = past.opened().restore(0, [DAY1], apply=True, idempotency_key="run")
        assert (again.job, again.partitions) == (done.job, ())
        assert past.values() == [("1", 3), ("2", 1)]

    def test_restore_beside_another_one_of_its_run_reports_that_one(self, past: Past) -> None:
        past.load(2, "1")
        jobs: list[RestoredVersion] = []

        def restored() -> None:
            jobs.append(past.opened().restore(0, apply=True, idempotency_key="run"))

        table, entry = past.opened(), "_delta_log/00000000000000000002.json"
        driver = MemoryDriver(past.store, beside(Put, restored, entry, times=1))
        table.driver = driver  # type: ignore[assignment]
        mine = table.restore(0, apply=True, idempotency_key="run")
        assert [it.job for it in jobs] == [mine.job]
        assert past.opened().state().log_version == 2

    def test_no_partition_is_changed_where_none_is_named(self, past: Past) -> None:
        past.load(2, "1", "2")
        done = past.table.restore(0, [], apply=True)
        assert (done.partitions, done.job) == ((), None)
        assert past.values() == [("1", 2), ("2", 2)]

    def test_what_is_there_already_needs_no_entry(self, past: Past) -> None:
        done = past.table.restore(0, apply=True)
        assert done == RestoredVersion(0, 0)
        assert past.table.history(1)[0].version == 0
        assert past.table.open_jobs() == []

    def test_version_with_a_property_that_forbids_writing_is_refused_as_a_whole(
        self, past: Past
    ) -> None:
        past.set_properties({"delta.constraints.positive": "value > 0"})
        past.set_properties({})
        past.load(2, "1")
        with pytest.raises(InvalidInputError, match="checkConstraints"):
            past.table.restore(1, apply=True)
        assert past.table.open_jobs() == []
        past.table.restore(1, [DAY1], apply=True)
        past.load(3, "2")
        assert past.values() == [("1", 1), ("2", 3)]
        past.set_properties({"delta.enableRowTracking": "true"})
        with pytest.raises(TableMismatchError, match="rowTracking"):
            past.table.restore(1)

    def test_moment_before_the_table_is_refused(self, past: Past) -> None:
        with pytest.raises(TableNotFoundError):
            past.table.restore("2000-01-01T00:00:00Z")
        with pytest.raises(InvalidInputError, match="versions 0 to 0"):
            past.table.restore(1)
        with pytest.raises(InvalidInputError, match="is no partition of this table"):
            past.table.restore(0, ["month=1"])
        with pytest.raises(TableNotFoundError):
            Past().table.restore(0, apply=True)

    def test_version_whose_log_was_cleaned_is_refused_and_leaves_no_open_job(
        self, past: Past
    ) -> None:
        past.load(2, "1")
        past.table.checkpoint_log()
        for name in ("json", "crc"):
            del past.store.objects[f"flights/_delta_log/{0:020d}.{name}"]
        with pytest.raises(SnapshotGoneError):
            past.table.restore(0, apply=True)
        assert past.table.open_jobs() == []

    def test_files_that_are_gone_are_refused_or_left_out(self, past: Past) -> None:
        past.load(2, "1")
        past.clock.advance(WEEK + 3600)
        with pytest.raises(InvalidInputError, match="cannot be brought back"):
            past.table.restore(0, apply=True)
        past.table.restore(0, apply=True, allow_lost=True)
        assert past.values() == [("2", 1)]


def test_merge_that_was_taken_back_is_made_again_as_its_refusal_says() -> None:
    """Its run stays on record."""
    table = Past().table
    rows = pa.table({"day": [None, "1"], "value": [1, 2]}, schema=SCHEMA)
    first = table.merge(rows, on=["day"], idempotency_key="run")
    assert first.committed is not None
    table.undo(first.committed.job, apply=True)
    with pytest.raises(InvalidInputError, match=r"Give on_repeat='append'.* by zero-rename undo"):
        table.merge(rows, on=["day"], idempotency_key="run", on_repeat="replace_own")
    table.merge(rows, on=["day"], idempotency_key="run", on_repeat="append")
    assert sorted(table.scan().to_arrow()["value"].to_pylist()) == [1, 2]


class TestOfARun:
    """A restore that a task makes."""

    def test_retry_of_a_restore_that_had_nothing_to_change_keeps_what_came_since(
        self, past: Past
    ) -> None:
        first = past.table.restore(0, apply=True, idempotency_key="r")
        assert (first.partitions, first.job) == ((), None)
        past.load(2, "1")
        again = past.opened().restore(0, apply=True, idempotency_key="r")
        assert (again.partitions, again.job is None) == ((), False)
        assert past.values() == [("1", 2), ("2", 1)]
        assert past.opened().restore(0, apply=True, idempotency_key="later").partitions == (DAY1,)
        assert past.values() == [("1", 1), ("2", 1)]

    def test_restore_without_a_change_goes_beside_a_load(self, past: Past) -> None:
        met = beside(Put, lambda: past.load(2, "1"), "/_delta_log/", times=1)
        table = past.opened()
        table.driver = MemoryDriver(past.store, met)  # type: ignore[assignment]
        assert table.restore(0, apply=True, idempotency_key="r").job is None
        assert past.values() == [("1", 2), ("2", 1)]
        assert past.table.verify() == []

    def test_restore_without_a_change_and_a_run_makes_no_entry(self, past: Past) -> None:
        past.table.restore(0, apply=True)
        assert len(list(past.table.history())) == 1
        assert not past.table.open_jobs()


def test_table_has_moved_by_files_and_columns_alone(past: Past) -> None:
    whole, first = past.table.state(), past.table.state([DAY1])
    assert not past.opened().has_moved(whole)
    past.set_properties({"owner": "a"})
    assert not past.opened().has_moved(whole)
    past.load(2, "2")
    table = past.opened()
    assert (table.has_moved(whole), table.has_moved(first)) == (True, False)
    past.load(2, "1")
    assert past.opened().has_moved(first)
