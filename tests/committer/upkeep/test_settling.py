"""Settling conflicts by a restore: which run stands, what is brought back, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World, memory_table
from zero_rename.committer import (
    InvalidInputError,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    Readers,
    RunRank,
    SupersededRunError,
    Table,
)
from zero_rename.committer.format.records.run_conflict import (
    ConflictCause,
    ConflictingRun,
    RunConflict,
    SettledBy,
)
from zero_rename.committer.format.run_rank import RankKind
from zero_rename.committer.upkeep.settlement_policy import SettlementPolicy

FIRST, SECOND, THIRD = (RunRank(float(day)) for day in (1, 2, 3))
REPLACE: dict[str, Any] = {"mode": Mode.REPLACE}
NEWEST: dict[str, Any] = {**REPLACE, "on_conflict": OnConflict.NEWEST_RUN}
WHO = Owner("maintenance", "r", "settle")


def run_of(dag: str, run: str) -> dict[str, Any]:
    return {"owner": Owner(dag, run, "load"), "idempotency_key": f"{dag}/{run}/load"}


DAILY_1, DAILY_2, DAILY_3 = (run_of("daily", f"day {number}") for number in (1, 2, 3))
CORRECTIONS = run_of("corrections", "by hand")


def made(readers: Readers) -> World:
    world = World(MemoryStore(ManualClock()))
    world.date_jobs()
    world.load(DAY2, readers=readers, run_rank=FIRST)
    return world


def table_of(world: World) -> Table:
    table = memory_table(world.store)
    table._context = replace(table._context, job_id=world.context.job_id)
    return table


@pytest.fixture
def world() -> World:
    return made(Readers.HEADS)


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


class TestRestore:
    def test_newest_run_is_brought_back_and_told_by_whom(self, world: World, table: Table) -> None:
        newer, older = late_backfill(world)
        assert not table.conflicts().conflicts[0].is_settled
        assert world.jobs_of(DAY1) == [older]
        done = settled(table)
        assert world.jobs_of(DAY1) == [newer]
        said = done.settlement
        assert said is not None
        assert (said.how, said.by, said.policy, said.error) == (
            *(SettledBy.RESTORE, WHO, "newest_run", ""),
        )
        assert (said.stands, said.losers, said.rank) == (
            DAILY_2["idempotency_key"],
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
        """A compaction takes nothing away, and moves the version that a settlement is bound to."""
        newer, _ = late_backfill(world)
        table.conflicts()
        load(world, DAY1, run_rank=FIRST, **DAILY_1, on_repeat=OnRepeat.APPEND)
        table.conflicts()
        assert settled(table).is_settled
        assert world.jobs_of(DAY1) == [newer]

    def test_newer_run_of_a_task_in_conflict_is_part_of_it(
        self, world: World, table: Table
    ) -> None:
        """Else its rows would be in the way of each settlement, and in no conflict themselves."""
        first = load(world, DAY1, run_rank=FIRST, **REPLACE, **CORRECTIONS)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        table.conflicts()
        load(world, DAY1, run_rank=THIRD, **REPLACE, **DAILY_3)
        (conflict,) = table.conflicts().conflicts
        assert [it.task for it in conflict.runs] == [
            ("corrections", "load"),
            ("daily", "load"),
            ("daily", "load"),
        ]
        assert settled(table, {"prefer": ["corrections"]}).is_settled
        assert world.jobs_of(DAY1) == [first]

    def test_dry_run_changes_nothing(self, world: World, table: Table) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        (conflict,) = table.resolve("newest_run")
        assert conflict.settlement is not None
        assert (conflict.settlement.how, conflict.settlement.job) == (SettledBy.RESTORE, None)
        assert world.jobs_of(DAY1) == [older]
        assert not table.conflicts().conflicts[0].is_settled

    def test_second_resolve_finds_nothing_to_do(self, world: World, table: Table) -> None:
        late_backfill(world)
        table.conflicts()
        settled(table)
        version = world.snapshot([DAY1]).versions
        assert table.resolve("newest_run", apply=True) == []
        with pytest.raises(InvalidInputError, match="day=1 is settled"):
            table.resolve("newest_run", [DAY1], apply=True)
        assert world.snapshot([DAY1]).versions == version

    def test_resolver_that_died_before_its_record_is_not_needed_again(
        self, world: World, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        newer, _ = late_backfill(world)
        table.conflicts()
        with monkeypatch.context() as patched:
            patched.setattr("zero_rename.committer.tended_table.settle", _die)
            with pytest.raises(KeyboardInterrupt):
                settled(table)
        world.advance(1)
        (conflict,) = table.conflicts().conflicts
        assert conflict.settlement is not None
        assert (conflict.settlement.how, conflict.is_settled) == (SettledBy.RESTORE, True)
        assert world.jobs_of(DAY1) == [newer]

    def test_losers_give_way_while_the_settlement_stands(self, world: World, table: Table) -> None:
        load(world, DAY1, run_rank=FIRST, **REPLACE, **CORRECTIONS)
        load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        world.advance(1)
        table.conflicts()
        settled(table, {"prefer": ["corrections"]})
        with pytest.raises(SupersededRunError):
            world.load(DAY1, run_rank=SECOND, on_repeat=OnRepeat.REPLACE_OWN, **NEWEST, **DAILY_2)
        third = load(world, DAY1, run_rank=THIRD, **NEWEST, **DAILY_3)
        assert world.jobs_of(DAY1) == [third]

    def test_run_whose_rows_are_there_is_kept(self, world: World, table: Table) -> None:
        _, older = late_backfill(world)
        table.conflicts()
        done = settled(table, {"keep": [older]})
        assert done.settlement is not None
        assert done.settlement.how is SettledBy.KEPT
        assert world.jobs_of(DAY1) == [older]
        assert table.conflicts().conflicts == ()
        with pytest.raises(SupersededRunError):
            world.load(DAY1, run_rank=SECOND, on_repeat=OnRepeat.REPLACE_OWN, **NEWEST, **DAILY_2)

    def test_appends_that_went_with_it_come_back(self, world: World, table: Table) -> None:
        first = load(world, DAY1, run_rank=SECOND, **REPLACE, **DAILY_2)
        second = load(world, DAY1, run_rank=THIRD, **run_of("hourly", "hour 1"))
        load(world, DAY1, run_rank=FIRST, **REPLACE, **DAILY_1)
        world.advance(1)
        table.conflicts()
        done = settled(table, {"prefer": ["daily"]})
        assert world.jobs_of(DAY1) == [first, second]
        assert done.settlement is not None
        assert done.settlement.losers == (DAILY_1["idempotency_key"],)


def _die(*given: Any) -> None:
    raise KeyboardInterrupt


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
        late_backfill(world)
        table.conflicts()
        opened = world.open(mode=Mode.REPLACE, replace_partitions=(DAY1,))
        assert f"{opened.job} is at work" in self.refused(world, table)
        world.abort(opened)
        assert settled(table).is_settled

    def test_open_job_on_another_partition_is_no_hindrance(
        self, world: World, table: Table
    ) -> None:
        late_backfill(world)
        table.conflicts()
        world.open(mode=Mode.REPLACE, replace_partitions=(DAY2,))
        assert settled(table).is_settled

    def test_partition_that_changed_since_the_look(self, world: World, table: Table) -> None:
        late_backfill(world)
        table.conflicts()
        load(world, DAY1, run_rank=THIRD, **run_of("hourly", "x"))
        assert "has changed since" in self.refused(world, table)

    def test_rows_of_a_run_that_came_since_would_go(self, world: World, table: Table) -> None:
        late_backfill(world)
        load(world, DAY1, run_rank=THIRD, **run_of("hourly", "x"))
        table.conflicts()
        assert "hourly/x/load wrote rows" in self.refused(world, table)

    def test_partition_whose_readers_list(self) -> None:
        world = made(Readers.LISTING)
        table = table_of(world)
        _, older = late_backfill(world)
        table.conflicts()
        assert "readers list files" in self.refused(world, table)
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
