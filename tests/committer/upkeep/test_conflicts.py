"""Conflicts of runs over a partition: which are found, what is told of them, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, DAY3, ROOT, World
from support.virtual_time import TickingWorld
from zero_rename.committer import (
    CommitConflictError,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    Owner,
    RunRank,
    SupersededRunError,
)
from zero_rename.committer.errors import RecordDamagedError, StoreRefusedError, ZeroRenameError
from zero_rename.committer.format.records.failure import Failure
from zero_rename.committer.format.records.run_conflict import ConflictCause, RunConflict, SettledBy
from zero_rename.committer.format.run_rank import RankKind
from zero_rename.committer.store.requests import Get, Put
from zero_rename.committer.upkeep.conflicts.conflict_search import ConflictReport, find_conflicts

DAY = 24 * 3600.0
FIRST, SECOND, THIRD = (RunRank(float(day)) for day in (1, 2, 3))
REPLACE: dict[str, Any] = {"mode": Mode.REPLACE}
LAST_WINS: dict[str, Any] = {**REPLACE, "on_conflict": OnConflict.LAST_WINS}
NEWEST: dict[str, Any] = {**REPLACE, "on_conflict": OnConflict.NEWEST_RUN}


def run_of(dag: str, run: str, attempt: int = 1) -> dict[str, Any]:
    owner = Owner(dag, run, "load", try_number=attempt)
    return {"owner": owner, "idempotency_key": f"{dag}/{run}/load"}


DAILY_1, DAILY_2, DAILY_3 = (run_of("daily", f"day {number}") for number in (1, 2, 3))
CORRECTIONS = run_of("corrections", "by hand")


@pytest.fixture
def world() -> World:
    world = World(MemoryStore(ManualClock()))
    world.date_jobs()
    world.load(DAY2, run_rank=FIRST)
    look(world)
    return world


def look(world: World, seconds: float | None = None) -> ConflictReport:
    return world.driver.run(find_conflicts(world.context, seconds))


def load(world: World, *partitions: str, **options: Any) -> str:
    """Load by a job of its own second; returns its id."""
    world.advance(1)
    return world.load(*partitions, **options).job


def late_backfill(world: World) -> None:
    """Load the day by a newer run, and then by an older one."""
    load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
    load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)


def only(report: ConflictReport) -> RunConflict:
    (conflict,) = report.conflicts
    return conflict


def gave_way(world: World, error: ZeroRenameError, run: dict[str, Any]) -> None:
    """Put a failure on record, as the job of a task does."""
    key, owner = run["idempotency_key"], run["owner"]
    failure = Failure.of(error, ROOT, key, owner, "w")
    world.store.apply(Put(ROOT.failure_key(key), failure.encode()))


def jobs_told(conflict: RunConflict) -> list[tuple[str, bool]]:
    return [(it.job, it.is_visible) for it in conflict.runs]


class TestConflicts:
    def test_late_backfill_over_newer_run_is_conflict(self, world: World) -> None:
        newer = load(world, DAY1, run_rank=SECOND, rows=3, **REPLACE, **DAILY_2)
        older = load(world, DAY1, run_rank=FIRST, rows=2, **REPLACE, **DAILY_1)
        conflict = only(look(world))
        assert (conflict.partition, conflict.cause) == (DAY1, ConflictCause.OLDER_CAME_LATER)
        assert jobs_told(conflict) == [(older, True), (newer, False)]
        assert [(it.rank, it.rows, it.attempt) for it in conflict.runs] == [
            (FIRST, 2, 1),
            (SECOND, 3, 1),
        ]
        assert conflict.highest_rank(conflict.runs[0]) == SECOND
        assert not conflict.is_settled

    def test_runs_of_two_tasks_over_one_partition_are_conflict(self, world: World) -> None:
        daily = load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        other = load(world, DAY1, run_rank=SECOND, **REPLACE, **CORRECTIONS)
        conflict = only(look(world))
        assert conflict.cause is ConflictCause.TASKS_DIFFER
        assert jobs_told(conflict) == [(daily, False), (other, True)]
        assert [it.task for it in conflict.runs] == [("daily", "load"), ("corrections", "load")]

    def test_overlapping_runs_under_last_wins_are_conflict(self, world: World) -> None:
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        slow, result = world.written(DAY1, run_rank=THIRD, **LAST_WINS, **DAILY_3)
        quick = load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        world.commit(slow, result)
        conflict = only(look(world))
        assert conflict.cause is ConflictCause.OVERLAPPED
        assert jobs_told(conflict) == [(quick, False), (slow.job, True)]

    def test_run_that_gave_way_is_conflict(self, world: World) -> None:
        slow, result = world.written(DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        quick = load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        with pytest.raises(CommitConflictError) as caught:
            world.commit(slow, result)
        gave_way(world, caught.value, DAILY_2)
        conflict = only(look(world))
        assert conflict.cause is ConflictCause.OVERLAPPED
        assert jobs_told(conflict) == [(quick, True), (slow.job, False)]
        lost = conflict.runs[1]
        assert (lost.gave_way, lost.rank, lost.owner.run_id) == (True, SECOND, "day 2")
        assert "Partitions changed" in lost.message

    def test_run_that_gave_way_and_then_loaded_is_no_conflict(self, world: World) -> None:
        slow, result = world.written(DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        with pytest.raises(CommitConflictError) as caught:
            world.commit(slow, result)
        gave_way(world, caught.value, DAILY_2)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        assert look(world).conflicts == ()

    def test_rows_that_compaction_wrote_again_keep_their_run(self, world: World) -> None:
        newer = load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        again = {"base": world.snapshot([DAY1]).base, "merges": {DAY1: (newer,)}}
        load(world, DAY1, replace_partitions=(DAY1,), **again, **REPLACE)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        conflict = only(look(world))
        assert conflict.cause is ConflictCause.OLDER_CAME_LATER
        assert [it.owner.run_id for it in conflict.runs] == ["day 1", "day 2"]

    def test_every_appended_run_whose_rows_went_is_named(self, world: World) -> None:
        hours = [
            load(world, DAY1, run_rank=RunRank(5.0 + hour), **run_of("hourly", f"hour {hour}"))
            for hour in range(3)
        ]
        late = load(world, DAY1, run_rank=FIRST, **REPLACE, **run_of("hourly", "day"))
        conflict = only(look(world))
        assert jobs_told(conflict) == [(late, True), *((job, False) for job in hours)]
        assert [it.rank and it.rank.value for it in conflict.runs] == [1.0, 5.0, 6.0, 7.0]

    def test_rank_of_append_older_than_others_is_its_own(self, world: World) -> None:
        load(world, DAY1, run_rank=THIRD, **DAILY_3)
        load(world, DAY1, run_rank=FIRST, **DAILY_1)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        assert [it.rank for it in only(look(world)).runs] == [SECOND, THIRD]

    def test_ranks_of_two_kinds_are_conflict_nobody_can_order(self, world: World) -> None:
        number = RunRank(7.0, kind=RankKind.NUMBER)
        load(world, DAY1, run_rank=number, **REPLACE, **DAILY_1)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        assert only(look(world)).cause is ConflictCause.RANKS_DIFFER

    def test_mapped_tasks_of_one_run_over_one_partition_are_conflict(self, world: World) -> None:
        for index in (0, 1):
            owner = Owner("daily", "day 1", "load", map_index=index)
            load(
                world, DAY1, run_rank=FIRST, owner=owner, idempotency_key=f"map {index}", **REPLACE
            )
        assert only(look(world)).cause is ConflictCause.TASKS_DIFFER


class TestNoConflicts:
    def test_newer_run_of_one_task_is_none(self, world: World) -> None:
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        assert look(world).conflicts == ()

    def test_newer_run_of_an_asset_by_another_of_dagsters_jobs_is_none(self, world: World) -> None:
        """Of one that writes itself, and of one whose application has a name of its own."""
        for job, rank, application in (
            ("daily", FIRST, "dagster"),
            ("__ASSET_JOB", SECOND, "host-jvm-1"),
            ("daily", THIRD, "dagster"),
        ):
            owner = Owner(job, f"run {rank.value}", "flights", application=application)
            key = f"dagster/run {rank.value}/flights/keys-{'0' * 16}"
            load(world, DAY1, run_rank=rank, owner=owner, idempotency_key=key, **REPLACE)
        assert look(world).conflicts == ()

    def test_hourly_appends_are_none(self, world: World) -> None:
        for hour in range(3):
            load(world, DAY1, run_rank=RunRank(float(hour)), **run_of("hourly", f"hour {hour}"))
        assert look(world).conflicts == ()

    def test_attempts_of_one_run_are_none(self, world: World) -> None:
        load(world, DAY1, run_rank=FIRST, **REPLACE, **run_of("daily", "day 1"))
        load(
            world,
            DAY1,
            run_rank=FIRST,
            on_repeat=OnRepeat.REPLACE_OWN,
            **REPLACE,
            **run_of("daily", "day 1", attempt=2),
        )
        assert look(world).conflicts == ()

    def test_other_task_that_newest_run_let_pass_is_none(self, world: World) -> None:
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        load(world, DAY1, run_rank=SECOND, **NEWEST, **CORRECTIONS)
        assert look(world).conflicts == ()

    def test_newer_run_that_overtook_under_newest_run_is_none(self, world: World) -> None:
        slow, result = world.written(DAY1, run_rank=THIRD, **NEWEST, **DAILY_3)
        load(world, DAY1, run_rank=SECOND, **NEWEST, **CORRECTIONS)
        world.commit(slow, result)
        assert look(world).conflicts == ()

    def test_partition_emptied_before_is_none(self, world: World) -> None:
        load(world, run_rank=SECOND, replace_partitions=(DAY1,), **REPLACE, **CORRECTIONS)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        assert look(world).conflicts == ()


class TestDecidedByPolicy:
    def test_run_refused_by_newest_run_is_told_once_as_settled(self, world: World) -> None:
        newer = load(world, DAY1, run_rank=SECOND, **NEWEST, **DAILY_2)
        with pytest.raises(SupersededRunError) as caught:
            world.load(DAY1, run_rank=FIRST, **NEWEST, **DAILY_1)
        gave_way(world, caught.value, DAILY_1)
        conflict = only(look(world))
        assert jobs_told(conflict)[1] == (newer, True)
        assert (conflict.runs[0].gave_way, conflict.runs[0].rank) == (True, FIRST)
        assert conflict.settlement is not None
        assert conflict.settlement.how is SettledBy.POLICY
        assert conflict.settlement.stands == DAILY_2["idempotency_key"]
        world.advance(120)
        assert look(world).conflicts == ()

    def test_partition_left_out_by_newest_run_is_told_as_settled(self, world: World) -> None:
        load(world, DAY1, run_rank=SECOND, **NEWEST, **DAILY_2)
        skip = {**NEWEST, "on_superseded": OnSuperseded.SKIP}
        load(world, DAY1, "day=3", run_rank=FIRST, **skip, **DAILY_1)
        conflict = only(look(world))
        assert conflict.is_settled
        assert conflict.runs[0].owner.run_id == "day 1"


class TestSettledLater:
    def test_newest_run_made_again_by_hand_settles(self, world: World) -> None:
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        assert not only(look(world)).is_settled
        again = load(
            world, DAY1, run_rank=SECOND, on_repeat=OnRepeat.REPLACE_OWN, **REPLACE, **DAILY_2
        )
        conflict = only(look(world))
        assert conflict.settlement is not None
        assert (conflict.settlement.how, conflict.settlement.job) == (SettledBy.LATER_RUN, again)
        assert look(world).conflicts == ()

    def test_run_between_the_two_does_not_settle_and_joins_them(self, world: World) -> None:
        load(world, DAY1, run_rank=THIRD, **REPLACE, **DAILY_3)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        conflict = only(look(world))
        assert not conflict.is_settled
        assert [(it.owner.run_id, it.is_visible) for it in conflict.runs] == [
            ("day 1", False),
            ("day 2", True),
            ("day 3", False),
        ]

    def test_later_newest_run_settles_failure_of_same_look(self, world: World) -> None:
        slow, result = world.written(DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        with pytest.raises(CommitConflictError) as caught:
            world.commit(slow, result)
        gave_way(world, caught.value, DAILY_2)
        load(world, DAY1, run_rank=THIRD, **REPLACE, **DAILY_3)
        assert look(world).conflicts == ()


class TestLooks:
    def test_unsettled_conflict_is_told_by_each_look(self, world: World) -> None:
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        first = only(look(world))
        world.advance(DAY)
        assert only(look(world)) == first

    def test_job_open_at_one_look_is_judged_by_the_next(self, world: World) -> None:
        slow, result = world.written(DAY1, run_rank=FIRST, **LAST_WINS, **DAILY_1)
        world.advance(2 * DAY)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        assert look(world).conflicts == ()
        world.advance(DAY)
        assert look(world).conflicts == ()
        world.commit(slow, result)
        assert only(look(world)).cause is ConflictCause.OVERLAPPED

    def test_window_finds_again_what_looks_have_told(self, world: World) -> None:
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        told = only(look(world))
        world.advance(2 * DAY)
        assert jobs_told(only(look(world, seconds=3 * DAY))) == jobs_told(told)
        assert look(world, seconds=DAY).conflicts == ()

    def test_damaged_decision_is_named_by_each_look_until_it_can_be_read(
        self, world: World
    ) -> None:
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        late = load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        key = ROOT.decision_key(late)
        whole = world.store.apply(Get(key)).body
        world.store.apply(Put(key, b"{"))
        for _ in range(2):
            report = look(world)
            assert report.conflicts == ()
            assert any(key in it for it in report.unread)
            world.advance(DAY)
        world.store.apply(Put(key, whole))
        assert only(look(world)).cause is ConflictCause.OLDER_CAME_LATER

    def damage(self, world: World, key: str) -> Put:
        """Damage a record; returns what mends it."""
        whole = world.store.apply(Get(key)).body
        world.store.apply(Put(key, b"{"))
        return Put(key, whole)

    def named_by_each_look(self, world: World, key: str) -> None:
        for _ in range(2):
            world.advance(DAY)
            assert any(key in it for it in look(world).unread)

    def test_damaged_failure_is_named_by_each_look_until_it_can_be_read(self, world: World) -> None:
        slow, result = world.written(DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        with pytest.raises(CommitConflictError) as caught:
            world.commit(slow, result)
        gave_way(world, caught.value, DAILY_2)
        key = ROOT.failure_key(DAILY_2["idempotency_key"])
        mended = self.damage(world, key)
        self.named_by_each_look(world, key)
        world.store.apply(mended)
        assert only(look(world)).cause is ConflictCause.OVERLAPPED
        assert look(world).unread == ()

    def test_damaged_decision_of_removed_rows_is_named_by_each_look_until_it_can_be_read(
        self, world: World
    ) -> None:
        newer = load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        look(world)
        world.advance(DAY)
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        key = ROOT.decision_key(newer)
        mended = self.damage(world, key)
        self.named_by_each_look(world, key)
        world.store.apply(mended)
        assert only(look(world)).cause is ConflictCause.OLDER_CAME_LATER
        assert look(world).unread == ()

    def test_damaged_head_leaves_conflicts_over_other_partitions_in_the_report(
        self, world: World
    ) -> None:
        load(world, DAY1, DAY3, run_rank=SECOND, **REPLACE, **DAILY_2)
        load(world, DAY1, DAY3, run_rank=FIRST, **REPLACE, **DAILY_1)
        key = ROOT.head_key(DAY3)
        mended = self.damage(world, key)
        for _ in range(2):
            report = look(world)
            assert [it.partition for it in report.conflicts] == [DAY1, DAY3]
            assert [run.is_visible for run in report.conflicts[0].runs] == [True, False]
            assert any(key in it for it in report.unread)
            world.advance(DAY)
        world.store.apply(mended)
        report = look(world)
        assert [len(it.runs) for it in report.conflicts] == [2, 2]
        assert [run.is_visible for run in report.conflicts[1].runs] == [True, False]
        assert report.unread == ()

    def test_look_that_may_not_write_says_so_and_has_read_all(self, world: World) -> None:
        late_backfill(world)

        def read_only(request: Any, apply: Any) -> Any:
            if isinstance(request, Put):
                raise StoreRefusedError("Access Denied.", lacks_right=True)
            return apply(request)

        world.driver.fault = read_only
        report = look(world)
        assert (len(report.unresolved), report.unread) == (1, ())
        (note,) = report.notes
        assert "may not write: Access Denied." in note

    def test_damaged_record_of_looks_is_refused(self, world: World) -> None:
        world.store.apply(Put(ROOT.conflicts_key, b"{"))
        with pytest.raises(RecordDamagedError, match=r"conflicts\.json"):
            look(world)


def test_look_over_365_partitions_where_nothing_happened_takes_nine_at_most() -> None:
    """Of the table's record, the last look, open jobs, decisions by four prefixes at most,
    failures, and the look's own record."""
    clock = ManualClock()
    world = TickingWorld(MemoryStore(clock))
    world.date_jobs()
    names = [f"day={number}" for number in range(365)]
    world.load(*names, run_rank=FIRST, **REPLACE, **DAILY_1)
    clock.advance(DAY)
    world.load(*names, run_rank=SECOND, **REPLACE, **DAILY_2)
    look(world)
    for days, listings in ((1, 6), (7, 3)):
        clock.advance(days * DAY)
        world.driver.requests.clear()
        begun = world.driver.now
        assert look(world).conflicts == ()
        assert world.driver.counts() == {"Get": 2, "ListObjects": listings, "Put": 1}
        assert world.driver.now - begun == 5
