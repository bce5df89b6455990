"""Conflicts of runs over a Delta table's partitions: which are found, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.delta_runs import DAY1, LAST_WINS, NEWEST, SCHEMA, World, run_of
from support.memory_store import MemoryDriver
from zero_rename import Table
from zero_rename.committer import CommitConflictError, SupersededRunError, TableNotFoundError
from zero_rename.committer.errors import RecordDamagedError, StoreRefusedError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.records.run_conflict import ConflictCause, RunConflict, SettledBy
from zero_rename.committer.store import requests as s
from zero_rename.tables import DeltaTable


@pytest.fixture
def world() -> World:
    world = World()
    world.load(0, "9")
    world.look()
    return world


def told(conflict: RunConflict) -> list[tuple[str, bool]]:
    return [(it.job, it.is_visible) for it in conflict.runs]


class TestConflicts:
    def test_late_backfill_over_newer_run_is_conflict(self, world: World) -> None:
        newer, older = world.late_backfill()
        conflict = world.only()
        assert (conflict.partition, conflict.cause) == (DAY1, ConflictCause.OLDER_CAME_LATER)
        assert told(conflict) == [(older, True), (newer, False)]
        assert [(str(it.rank), it.rows, it.attempt) for it in conflict.runs] == [
            ("1", 2, 1),
            ("2", 3, 1),
        ]
        assert [(it.key, it.owner.run_id) for it in conflict.runs] == [
            ("daily/1/load", "day 1"),
            ("daily/2/load", "day 2"),
        ]
        assert (conflict.version, conflict.is_settled) == (2, False)

    def test_runs_of_two_tasks_over_one_partition_are_conflict(self, world: World) -> None:
        daily = world.load(1, "1")
        other = world.load(2, "1", dag="corrections")
        conflict = world.only()
        assert conflict.cause is ConflictCause.TASKS_DIFFER
        assert told(conflict) == [(daily, False), (other, True)]

    def test_overlapping_runs_under_last_wins_are_conflict(self, world: World) -> None:
        quick: list[str] = []
        slow = world.load(3, "1", beside=lambda: quick.append(world.load(2, "1")), **LAST_WINS)
        conflict = world.only()
        assert conflict.cause is ConflictCause.OVERLAPPED
        assert told(conflict) == [(quick[0], False), (slow, True)]

    def test_run_that_gave_way_is_conflict_and_names_its_rank(self, world: World) -> None:
        with pytest.raises(CommitConflictError) as caught:
            world.load(2, "1", beside=lambda: world.load(1, "1"))
        world.gave_way(caught.value, "daily", 2)
        conflict = world.only()
        assert conflict.cause is ConflictCause.OVERLAPPED
        lost = conflict.runs[1]
        assert (lost.gave_way, str(lost.rank), lost.owner.run_id) == (True, "2", "day 2")
        assert [it.is_visible for it in conflict.runs] == [True, False]

    def test_run_that_gave_way_and_then_loaded_is_no_conflict(self, world: World) -> None:
        with pytest.raises(CommitConflictError) as caught:
            world.load(2, "1", beside=lambda: world.load(1, "1"))
        world.gave_way(caught.value, "daily", 2)
        world.load(2, "1")
        assert world.look().conflicts == ()

    def test_rows_that_compaction_and_delete_wrote_again_keep_their_runs(
        self, world: World
    ) -> None:
        world.load(2, "1", rows=2)
        more = world.load(3, "1", mode="append")
        world.table.compact([DAY1], apply=True)
        world.table.delete([("n", "==", 7)])
        late = world.load(1, "1")
        conflict = world.only()
        assert {it.job for it in conflict.runs} >= {late, more}
        assert [it.key for it in conflict.runs] == ["daily/1/load", "daily/2/load", "daily/3/load"]

    def test_other_engine_that_overwrites_a_partition_is_conflict(self, world: World) -> None:
        ours = world.load(1, "1")
        version = world.by_engine("1")
        conflict = world.only()
        assert conflict.cause is ConflictCause.TASKS_DIFFER
        assert told(conflict) == [(f"version {version}", True), (ours, False)]
        assert str(conflict.runs[0]) == "Apache-Spark"
        assert conflict.runs[0].rows == 4

    def test_run_that_overwrites_rows_of_another_engine_is_conflict(self, world: World) -> None:
        version = world.by_engine("1")
        ours = world.load(1, "1")
        assert told(world.only()) == [(f"version {version}", False), (ours, True)]

    def test_unpartitioned_table_is_one_partition(self) -> None:
        world = World()
        for rank in (2, 1):
            world.load(rank, "1", replace_table=True)
        found = world.look().conflicts
        assert {it.partition for it in found} == {DAY1}
        table = DeltaTable("s3://bucket/plain")
        table.driver = MemoryDriver(world.store)  # type: ignore[assignment]
        for rank in (2, 1):
            run = run_of("daily", rank)
            with table.job(SCHEMA, mode="overwrite", run_rank=rank, **run) as job:
                job.write(pa.table({"day": ["1"], "n": [rank]}, schema=SCHEMA))
        (conflict,) = table.conflicts().conflicts
        assert conflict.partition == UNPARTITIONED


class TestNone:
    def test_attempts_of_one_run_newer_runs_of_one_task_and_appends(self, world: World) -> None:
        world.load(1, "1", on_repeat="replace_own")
        world.load(1, "1", on_repeat="replace_own")
        world.load(2, "1")
        world.load(1, "1", mode="append", dag="other")
        assert world.look().conflicts == ()

    def test_newest_run_that_replaces_an_older_one_of_another_task(self, world: World) -> None:
        world.load(1, "1")
        world.load(2, "1", dag="corrections", **NEWEST)
        assert world.look().conflicts == ()

    def test_restore_and_compaction(self, world: World) -> None:
        world.load(1, "1")
        world.load(2, "1")
        world.table.restore(1, apply=True)
        world.table.compact(apply=True)
        assert world.look().conflicts == ()

    def test_run_that_left_rows_of_a_newer_one_is_settled_by_the_policy(self, world: World) -> None:
        newer = world.load(2, "1")
        late = world.load(1, "1", "2", on_superseded="skip", **NEWEST)
        conflict = world.only()
        assert conflict.settlement is not None
        assert (conflict.settlement.how, conflict.settlement.job) == (SettledBy.POLICY, newer)
        assert {it.job for it in conflict.runs} == {newer, late}
        world.advance(3600)
        world.load(3, "2")  # Takes the place of the late run, whose entry is read again.
        assert world.look(seconds=60).conflicts == ()

    def test_superseded_run_that_failed_is_settled_by_the_policy(self, world: World) -> None:
        world.load(2, "1")
        with pytest.raises(SupersededRunError) as caught:
            world.load(1, "1", **NEWEST)
        world.gave_way(caught.value, "daily", 1)
        conflict = world.only()
        assert conflict.settlement is not None
        assert conflict.settlement.how is SettledBy.POLICY


class TestLooks:
    def test_unsettled_conflict_is_told_again_until_a_newer_run_loads(self, world: World) -> None:
        world.late_backfill()
        first = world.only()
        assert world.only() == first
        world.load(3, "1")
        done = world.only()
        assert done.settlement is not None
        assert done.settlement.how is SettledBy.LATER_RUN
        assert world.look().conflicts == ()

    def test_conflict_that_began_after_another_one_was_settled_is_on_record(
        self, world: World
    ) -> None:
        world.late_backfill()
        world.load(3, "1")
        world.load(1, "1", on_repeat="replace_own")
        (conflict,) = world.look().unresolved
        assert [it.key for it in conflict.visible] == ["daily/1/load"]
        (done,) = world.opened().resolve("newest_run")
        assert done.settlement is not None
        assert done.settlement.stands == "daily/3/load"

    def test_version_that_a_settlement_is_bound_to_follows_the_partition_alone(
        self, world: World
    ) -> None:
        world.late_backfill()
        assert world.only().version == 2
        world.load(5, "2")
        world.table.compact(apply=True)
        assert world.only().version == 2
        world.load(1, "1", mode="append", dag="more")
        assert world.only().version == 4

    def test_look_where_nothing_happened_takes_four_requests(self, world: World) -> None:
        world.late_backfill()
        world.look()
        table = world.opened()
        table.conflicts()
        assert table.driver.counts() == {  # type: ignore[attr-defined]
            "Get": 1,
            "ListObjects": 2,
            "Put": 1,
        }

    def test_look_back_finds_what_is_settled_and_remembers_nothing(self, world: World) -> None:
        world.late_backfill()
        world.load(3, "1")
        before = dict(world.store.objects)
        found = world.look(3600.0)
        assert [it.is_settled for it in found.conflicts] == [True]
        assert world.look(remember=False).conflicts
        assert world.store.objects.keys() == before.keys()
        assert world.look(1.0).conflicts == ()

    def test_look_that_may_not_write_says_so_and_tells_all(self, world: World) -> None:
        world.late_backfill()

        def denies(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, s.Put):
                raise StoreRefusedError("denied", lacks_right=True)
            return apply(request)

        found = world.opened(denies).conflicts()
        assert len(found.unresolved) == 1
        assert "may not write" in found.notes[0]

    def test_cleaned_entries_are_named(self, world: World) -> None:
        world.load(2, "1")
        world.table.checkpoint_log()
        world.load(1, "1")
        for version in range(2):
            del world.store.objects[f"flights/_delta_log/{version:020}.json"]
        (path,) = (it for it in world.store.objects if it.endswith("conflicts.json"))
        del world.store.objects[path]
        found = world.look()
        assert found.conflicts == ()
        assert "were cleaned" in found.notes[0]

    def test_damaged_entry_is_unread_and_read_by_a_later_look(self, world: World) -> None:
        world.late_backfill()
        key = f"flights/_delta_log/{2:020}.json"
        body = world.store.objects[key].body
        world.store.apply(s.Put(key, b"{"))
        found = world.look()
        assert found.conflicts == ()
        assert "cannot be read" in found.unread[0]
        world.store.apply(s.Put(key, body))
        assert len(world.look().unresolved) == 1

    def test_damaged_record_of_the_looks_is_refused(self, world: World) -> None:
        world.store.apply(s.Put(world.table.root.conflicts_key, b"{"))
        with pytest.raises(RecordDamagedError):
            world.look()

    def test_table_that_was_made_anew_is_read_from_its_beginning(self, world: World) -> None:
        world.late_backfill()
        world.look()
        record = world.store.objects[world.table.root.conflicts_key].body
        world.store.objects.clear()
        for _ in range(4):
            world.load(5, "2", on_repeat="replace_own")
        world.store.apply(s.Put(world.table.root.conflicts_key, record))
        found = world.look()
        assert found.conflicts == ()
        assert "Another table is here" in found.notes[0]


@pytest.mark.memory_s3
class TestNoTable:
    def test_look_where_no_delta_table_is_leaves_nothing_on_record(self, s3_bucket: Bucket) -> None:
        root = f"s3://{s3_bucket.name}/flights"
        with pytest.raises(TableNotFoundError, match="no Delta table here"):
            DeltaTable(root).conflicts()
        assert s3_bucket.keys() == []

    def test_look_of_the_other_layout_leaves_the_conflicts_of_a_table_of_directories(
        self, s3_bucket: Bucket
    ) -> None:
        table, rows = Table(f"s3://{s3_bucket.name}/flights"), pa.table({"delay": [1]})
        for run in ("one", "two"):
            replaces: dict[str, Any] = {"mode": "overwrite", "on_conflict": "last_wins"}
            owner = Owner(dag_id=run, run_id=run, task_id="load")
            with table.job(rows.schema, idempotency_key=run, owner=owner, **replaces) as job:
                job.write(rows)
        with pytest.raises(TableNotFoundError, match="no Delta table here"):
            DeltaTable(table.root.url).conflicts()
        assert len(table.conflicts().conflicts) == 1

    def test_a_version_of_no_table_says_that_there_is_none(self, s3_bucket: Bucket) -> None:
        table = DeltaTable(f"s3://{s3_bucket.name}/flights")
        with pytest.raises(TableNotFoundError, match="no Delta table here"):
            table.scan(as_of=0).count()
