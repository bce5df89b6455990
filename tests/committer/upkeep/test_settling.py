"""Settling conflicts: which run stands, what of it is on record, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World, memory_table
from zero_rename.committer import (
    InvalidInputError,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    RunRank,
    RunRanks,
    SupersededRunError,
    Table,
)
from zero_rename.committer.commit.open import open_job
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.run_conflict import (
    ConflictCause,
    ConflictingRun,
    RunConflict,
    SettledBy,
)
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.format.run_rank import RankKind
from zero_rename.committer.upkeep.conflicts.conflict_settling import plan_settlement
from zero_rename.committer.upkeep.conflicts.settlement_policy import SettlementPolicy

FIRST, SECOND, THIRD = (RunRank(float(day)) for day in (1, 2, 3))
REPLACE: dict[str, Any] = {"mode": Mode.REPLACE}
NEWEST: dict[str, Any] = {**REPLACE, "on_conflict": OnConflict.NEWEST_RUN}
WHO = Owner("maintenance", "r", "settle")


def run_of(dag: str, run: str) -> dict[str, Any]:
    return {"owner": Owner(dag, run, "load"), "idempotency_key": f"{dag}/{run}/load"}


DAILY_1, DAILY_2, DAILY_3 = (run_of("daily", f"day {number}") for number in (1, 2, 3))
CORRECTIONS = run_of("corrections", "by hand")


def table_of(world: World) -> Table:
    table = memory_table(world.store)
    table._context = replace(table._context, job_id=world.context.job_id)
    return table


@pytest.fixture
def world() -> World:
    world = World(MemoryStore(ManualClock()))
    world.date_jobs()
    world.load(DAY2, run_rank=FIRST)
    return world


@pytest.fixture
def table(world: World) -> Table:
    return table_of(world)


def load(world: World, *partitions: str, **options: Any) -> str:
    world.advance(1)
    return world.load(*partitions, **options).job


def late_backfill(world: World) -> tuple[str, str]:
    """A newer run, and a late one over it; returns their jobs."""
    newer = load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
    older = load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
    world.advance(1)
    return newer, older


def settled(table: Table, policy: object = "newest_run", **options: Any) -> RunConflict:
    (conflict,) = table.resolve(policy, apply=True, owner=WHO, **options)
    return conflict


class TestSettled:
    def test_run_whose_rows_are_visible_stands_and_is_told_by_whom(
        self, world: World, table: Table
    ) -> None:
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        newer = load(world, DAY1, run_rank=SECOND, **REPLACE, **CORRECTIONS)
        world.advance(1)
        assert not table.conflicts().conflicts[0].is_settled
        done = settled(table)
        assert world.jobs_of(DAY1) == [newer]
        said = done.settlement
        assert said is not None
        assert (said.how, said.by, said.policy, said.error) == (
            *(SettledBy.KEPT, WHO, "newest_run", ""),
        )
        assert (said.stands, said.losers, said.rank) == (
            CORRECTIONS["idempotency_key"],
            (DAILY_1["idempotency_key"],),
            SECOND,
        )
        assert said.job is not None
        assert table.result(said.job) is not None
        assert table.conflicts().conflicts == ()
        (shown,) = table.overview().conflicts
        assert shown.settlement == said

    def test_partition_that_is_written_again_since_is_settled_after_the_next_look(
        self, world: World, table: Table
    ) -> None:
        """An append of the same run takes nothing away, and moves the version that a settlement is
        bound to."""
        _, older = late_backfill(world)
        table.conflicts()
        again = load(world, DAY1, run_rank=FIRST, **DAILY_1, on_repeat=OnRepeat.APPEND)
        table.conflicts()
        assert settled(table, {"keep": [DAILY_1["idempotency_key"]]}).is_settled
        assert world.jobs_of(DAY1) == [older, again]

    def test_newer_run_of_a_task_in_conflict_is_part_of_it(
        self, world: World, table: Table
    ) -> None:
        """Else its rows would be in the way of each settlement, and in no conflict themselves."""
        load(world, DAY1, run_rank=FIRST, **REPLACE, **CORRECTIONS)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        table.conflicts()
        third = load(world, DAY1, run_rank=THIRD, **REPLACE, **DAILY_3)
        (conflict,) = table.conflicts().conflicts
        assert [it.task for it in conflict.runs] == [
            ("corrections", "load"),
            ("daily", "load"),
            ("daily", "load"),
        ]
        assert settled(table, {"prefer": ["daily"]}).is_settled
        assert world.jobs_of(DAY1) == [third]

    def test_dry_run_changes_nothing(self, world: World, table: Table) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        (conflict,) = table.resolve({"keep": [older]})
        assert conflict.settlement is not None
        assert (conflict.settlement.how, conflict.settlement.job) == (SettledBy.KEPT, None)
        assert not table.conflicts().conflicts[0].is_settled

    def test_second_resolve_finds_nothing_to_do(self, world: World, table: Table) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        settled(table, {"keep": [older]})
        version = world.snapshot([DAY1]).versions
        assert table.resolve("newest_run", apply=True) == []
        with pytest.raises(InvalidInputError, match="day=1 is settled"):
            table.resolve("newest_run", [DAY1], apply=True)
        assert world.snapshot([DAY1]).versions == version


def head_of(world: World) -> PartitionHead:
    slot = Slot.partition(ROOT, DAY1)
    return world.driver.run(read_head(world.context, slot)).head


class TestKeep:
    """The rows of the run that is to stand are there."""

    def kept(self, world: World, table: Table) -> str:
        """Settle a late backfill for itself; returns its job."""
        _, older = late_backfill(world)
        table.conflicts()
        done = settled(table, {"keep": [older]})
        assert done.settlement is not None
        assert (done.settlement.how, done.settlement.error) == (SettledBy.KEPT, "")
        return older

    @pytest.mark.parametrize("policy", [NEWEST, REPLACE, {"mode": Mode.APPEND}])
    def test_losers_give_way_while_the_settlement_stands(
        self, world: World, table: Table, policy: dict[str, Any]
    ) -> None:
        older = self.kept(world, table)
        again = {**DAILY_2, **policy, "on_repeat": OnRepeat.REPLACE_OWN}
        with pytest.raises(SupersededRunError, match=r"settled against .* day=1"):
            world.load(DAY1, run_rank=SECOND, **again)
        assert world.jobs_of(DAY1) == [older]
        assert table.verify() == []

    def test_later_run_replaces_the_rows_and_ends_the_settlement(
        self, world: World, table: Table
    ) -> None:
        self.kept(world, table)
        third = load(world, DAY1, run_rank=THIRD, **NEWEST, **DAILY_3)
        assert world.jobs_of(DAY1) == [third]
        assert table.settled([DAY1])[DAY1].runs is None

    def test_partition_has_the_highest_rank_of_the_conflict(
        self, world: World, table: Table
    ) -> None:
        self.kept(world, table)
        assert set(table.newer_runs([DAY1], RunRanks.of(FIRST), replaces=True)) == {DAY1}
        assert set(table.newer_runs([DAY1], RunRanks.of(FIRST), replaces=False)) == {DAY1}
        assert not table.newer_runs([DAY1], RunRanks.of(SECOND), replaces=True)

    def test_runs_whose_ranks_nobody_knows_leave_the_partition_at_its_own(
        self, world: World, table: Table
    ) -> None:
        """The job that settles is later than each of them, and no run."""
        late_backfill(world)
        (conflict,) = table.conflicts().conflicts
        bare = replace(conflict, runs=tuple(replace(it, rank=None) for it in conflict.runs))
        (winner,) = bare.visible
        plan = world.driver.run(plan_settlement(world.context, bare, winner))
        before = head_of(world).ranks
        opened = world.driver.run(open_job(world.context, plan.spec(bare, winner, WHO)))
        world.commit(opened)
        after = head_of(world).ranks
        assert after.has_lost(DAILY_2["idempotency_key"])
        assert replace(after, settled=None) == before

    def test_next_look_is_silent(self, world: World, table: Table) -> None:
        self.kept(world, table)
        world.advance(1)
        assert table.conflicts().conflicts == ()

    def test_marker_tells_of_the_job_whose_rows_are_there(self, world: World, table: Table) -> None:
        older = self.kept(world, table)
        found = world.store.objects[ROOT.marker_key(DAY1)]
        marker = SuccessMarker.parse_or_none(found.body)
        assert marker is not None
        assert marker.job == older

    def test_resolver_that_died_before_its_record_is_not_needed_again(
        self, world: World, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        with monkeypatch.context() as patched:
            patched.setattr("zero_rename.committer.tended_table.settle", _die)
            with pytest.raises(KeyboardInterrupt):
                settled(table, {"keep": [older]})
        world.advance(1)
        (conflict,) = table.conflicts().conflicts
        assert conflict.settlement is not None
        assert (conflict.settlement.how, conflict.is_settled) == (SettledBy.KEPT, True)
        assert conflict.settlement.stands == DAILY_1["idempotency_key"]

    @pytest.mark.parametrize("other", [{"mode": Mode.APPEND}, REPLACE])
    def test_run_that_comes_after_the_plan_refuses_it(
        self, world: World, table: Table, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of an append, too, which moves no rows: the plan has not seen whose it adds."""
        _, older = late_backfill(world)
        table.conflicts()
        planned = plan_settlement

        def then_another(*given: Any) -> Any:
            plan = yield from planned(*given)
            load(world, DAY1, run_rank=THIRD, on_conflict="last_wins", **other, **DAILY_3)
            return plan

        monkeypatch.setattr("zero_rename.committer.tended_table.plan_settlement", then_another)
        done = settled(table, {"keep": [older]})
        assert not done.is_settled
        assert table.settled([DAY1])[DAY1].runs is None

    def test_rebuilt_head_still_says_who_stands(self, world: World, table: Table) -> None:
        self.kept(world, table)
        before = table.settled([DAY1])[DAY1]
        del world.store.objects[ROOT.head_key(DAY1)]
        table.rebuild_heads(apply=True)
        assert table.settled([DAY1])[DAY1] == before

    def test_history_says_that_nothing_but_the_conflict_was_settled(
        self, world: World, table: Table
    ) -> None:
        self.kept(world, table)
        rows = [it for it in table.history().to_pylist() if it["partition"] == DAY1]
        assert [it["change"] for it in rows] == ["settle", "replace", "replace"]


def _die(*given: Any) -> None:
    raise KeyboardInterrupt


class TestNoRows:
    """A run has emptied the partition."""

    EMPTY: ClassVar[dict[str, Any]] = {**REPLACE, "replace_partitions": (DAY1,)}

    def emptied_last(self, world: World) -> tuple[str, str]:
        newer = load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        empties = load(world, run_rank=FIRST, **self.EMPTY, **CORRECTIONS)
        world.advance(1)
        return newer, empties

    def test_rows_that_it_removed_cannot_be_brought_back(self, world: World, table: Table) -> None:
        self.emptied_last(world)
        (conflict,) = table.conflicts().conflicts
        assert conflict.visible == ()
        done = settled(table)
        assert done.settlement is not None
        assert "cannot be brought back" in done.settlement.error
        assert world.jobs_of(DAY1) == []

    def test_run_that_emptied_it_may_stand(self, world: World, table: Table) -> None:
        _, empties = self.emptied_last(world)
        table.conflicts()
        done = settled(table, {"keep": [empties]})
        assert done.settlement is not None
        assert (done.settlement.how, done.settlement.error) == (SettledBy.KEPT, "")
        assert world.jobs_of(DAY1) == []
        assert table.conflicts().conflicts == ()
        again = {**DAILY_2, **REPLACE, "on_repeat": OnRepeat.REPLACE_OWN}
        with pytest.raises(SupersededRunError, match=r"settled against .* day=1"):
            world.load(DAY1, run_rank=SECOND, **again)
        assert table.verify() == []


class TestRefusals:
    """Nothing is changed, and why is on record with the conflict."""

    def refused(self, world: World, table: Table, policy: object = "newest_run") -> str:
        version = world.snapshot([DAY1]).versions
        conflict = settled(table, policy)
        assert conflict.settlement is not None
        assert not conflict.is_settled
        assert world.snapshot([DAY1]).versions == version
        (again,) = table.conflicts().unresolved
        assert again.settlement == conflict.settlement
        return conflict.settlement.error

    def test_open_job_on_the_partition(self, world: World, table: Table) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        opened = world.open(mode=Mode.REPLACE, replace_partitions=(DAY1,))
        assert f"{opened.job} is at work" in self.refused(world, table, {"keep": [older]})
        world.abort(opened)
        assert settled(table, {"keep": [older]}).is_settled

    def test_open_job_on_another_partition_is_no_hindrance(
        self, world: World, table: Table
    ) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        world.open(mode=Mode.REPLACE, replace_partitions=(DAY2,))
        assert settled(table, {"keep": [older]}).is_settled

    def test_partition_that_changed_since_the_look(self, world: World, table: Table) -> None:
        late_backfill(world)
        table.conflicts()
        load(world, DAY1, run_rank=THIRD, **run_of("hourly", "x"))
        assert "has changed since" in self.refused(world, table)

    def test_run_whose_rows_were_removed_has_to_load_them_again(
        self, world: World, table: Table
    ) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        said = self.refused(world, table)
        assert "cannot be brought back" in said
        assert "Let the run that is to stand load the partition again" in said
        assert settled(table, {"keep": [older]}).is_settled
        assert world.jobs_of(DAY1) == [older]

    def test_ranks_of_two_kinds(self, world: World, table: Table) -> None:
        number = RunRank(7.0, kind=RankKind.NUMBER)
        load(world, DAY1, run_rank=number, **REPLACE, **DAILY_1)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        world.advance(1)
        table.conflicts()
        assert "do not say which is newer" in self.refused(world, table)
        assert "do not say which is newer" in self.refused(world, table, {"prefer": ["daily"]})
        assert settled(table, {"keep": [DAILY_2["idempotency_key"]]}).is_settled

    def test_policy_that_names_no_run_of_it(self, world: World, table: Table) -> None:
        late_backfill(world)
        table.conflicts()
        assert "names none of its runs" in self.refused(world, table, {"prefer": ["other"]})
        assert "0 of its runs are named" in self.refused(world, table, {"keep": ["zr1-x"]})

    def test_partition_without_runs_on_record(self, world: World, table: Table) -> None:
        late_backfill(world)
        with pytest.raises(InvalidInputError, match="No runs that conflict over day=1"):
            table.resolve("newest_run", [DAY1], apply=True)
        table.conflicts()
        with pytest.raises(InvalidInputError, match="No runs that conflict over day=2"):
            table.resolve("newest_run", [DAY1, DAY2], apply=True)


def conflict_of(*runs: ConflictingRun) -> RunConflict:
    return RunConflict("day=1", runs, ConflictCause.TASKS_DIFFER, 1.0)


class TestPolicies:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("newest_run", "newest_run"),
            ({"prefer": ["a", "b.load"]}, "prefer=a,b.load"),
            ("prefer=a, b", "prefer=a,b"),
            ({"keep": "zr1-x"}, "keep=zr1-x"),
        ],
    )
    def test_policy_is_read_and_said(self, given: object, said: str) -> None:
        assert str(SettlementPolicy.parse(given)) == said

    @pytest.mark.parametrize(
        "given",
        [
            *("oldest", "prefer", "newest_run=a", 7, None, {}, {"prefer": []}),
            {"prefer": ["a"], "keep": ["b"]},
        ],
    )
    def test_what_is_no_policy_is_refused(self, given: object) -> None:
        with pytest.raises(InvalidInputError, match="Invalid policy"):
            SettlementPolicy.parse(given)

    def test_preferred_task_comes_before_preferred_dag(self) -> None:
        a, b = (
            ConflictingRun(task, task, 1.0, Owner(task, "r", "load"), FIRST) for task in ("a", "b")
        )
        policy = SettlementPolicy.parse({"prefer": ["b.load", "a"]})
        assert policy.winner(conflict_of(a, b)) == b

    def test_two_runs_of_the_highest_rank_are_refused(self) -> None:
        runs = [ConflictingRun(it, it, 1.0, Owner(it, "r", "load"), FIRST) for it in ("a", "b")]
        with pytest.raises(InvalidInputError, match="2 runs have the highest rank"):
            SettlementPolicy.parse("newest_run").winner(conflict_of(*runs))

    def test_runs_without_ranks_are_refused(self) -> None:
        run = ConflictingRun("a", "a", 1.0)
        with pytest.raises(InvalidInputError, match="no run has a rank"):
            SettlementPolicy.parse("newest_run").winner(conflict_of(run))


def test_root_has_its_record(world: World, table: Table) -> None:
    table.conflicts()
    assert ROOT.conflicts_key in world.store.objects
