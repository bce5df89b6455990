"""A run that a plan lets settle a conflict: its rank is not compared, and the others give way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.protocol import DAY1, World, memory_table
from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    Committed,
    InvalidInputError,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    RunRanks,
    SupersededRunError,
)
from zero_rename.committer.commit.narrowed_run import leave_narrowing, read_narrowing
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.format.records.run_conflict import RunConflict
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.committer.store.requests import Put
from zero_rename.tables import DeltaTable

URL = "s3://bucket/flights"
PLANNER = Owner(dag_id="resolve", run_id="r", task_id="resolve")
NEWEST: dict[str, Any] = {"on_conflict": "newest_run"}
SKIP: dict[str, Any] = {**NEWEST, "on_superseded": "skip"}
LAST: dict[str, Any] = {"on_conflict": "last_wins"}


class Lake:
    """Runs of several DAGs, each ranked by a number, that load days of one table."""

    def __init__(self, layout: str) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.is_delta = layout == "delta"

    @property
    def table(self) -> Table | DeltaTable:
        if not self.is_delta:
            return memory_table(self.store)
        found = DeltaTable(URL)
        found.driver = MemoryDriver(self.store)  # type: ignore[assignment]
        return found

    def load(
        self,
        run: str,
        rank: float,
        *days: int,
        clear: int = 0,
        number: int | None = None,
        value: int | None = None,
        beside: Callable[[], Any] | None = None,
        **policy: Any,
    ) -> Committed:
        """A try of a run's task, which loads a row of its rank to each day.

        :param clear: how often the task was cleared before.
        :param beside: what happens while its job is open.
        """
        given = int(rank) if value is None else value
        rows = pa.table({"value": [given] * len(days), "day": list(days)})
        tried = clear + 1 if number is None else number
        owner = Owner(run, "r", "load", try_number=tried, series=f"2026-01-01 {tried} {10 * clear}")
        told: dict[str, Any] = {
            "mode": "overwrite",
            "on_repeat": "replace_own",
            "run_rank": rank,
            **policy,
        }
        with self.table.job(
            rows.schema, partition_by=["day"], idempotency_key=run, owner=owner, **told
        ) as job:
            job.write(rows)
            if beside is not None:
                beside()
        assert job.committed is not None
        return job.committed

    def plan(
        self, run: str, rank: float, settles: Mapping[int, tuple[str, ...]], **words: Any
    ) -> None:
        """Let a run settle conflicts over days.

        :param rank: the highest of the conflict.
        :param settles: by day, the runs that give way.
        """
        names = {f"day={day}": losers for day, losers in settles.items()}
        table = self.table
        said = Narrowing(
            new_write_id(),
            run,
            table.job_of_key(run),
            {name: _version(table, name) for name in names},
            words.pop("seconds", 3600),
            PLANNER,
            settles={
                name: Settling(SettledRuns(run, losers), RunRank.of(rank))
                for name, losers in names.items()
            },
            **words,
        )
        left = self.table.run(read_narrowing(self.table.root, run))
        assert self.table.run(leave_narrowing(self.table.root, said, left))

    def settled(self, day: int) -> SettledRuns | None:
        """The runs whose conflict over a day is settled."""
        return self.table.settled({f"day={day}": 0})[f"day={day}"].runs

    @property
    def days(self) -> dict[int, int]:
        return {row["day"]: row["value"] for row in self.table.scan().to_arrow().to_pylist()}


def _version(table: Table | DeltaTable, partition: str) -> int:
    """The version at which a plan sees a partition: a Delta table's is the log's."""
    if isinstance(table, DeltaTable):
        return table.state().log_version or 0
    return table.snapshot().versions.get(partition, 0)


@pytest.fixture(params=["directory", "delta"])
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """An older run has given way to a newer one on the first of two days."""
    found = Lake(request.param)
    found.load("older", 1, 1, 2)
    found.load("newer", 5, 1)
    yield found
    assert found.table.verify() == []


@pytest.mark.parametrize("policy", [NEWEST, SKIP, LAST, {}])
def test_run_that_settles_replaces_a_newer_run_in_its_partition_alone(
    lake: Lake, policy: dict[str, Any]
) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    again = lake.load("older", 1, 1, 2, clear=1, value=11, **policy)
    assert lake.days == {1: 11, 2: 1}
    assert [it.partition for it in again.partitions] == ["day=1"]
    assert lake.settled(1) == SettledRuns("older", ("newer",))
    assert lake.settled(2) is None


@pytest.mark.parametrize("policy", [{}, NEWEST, SKIP, {"mode": "append"}])
def test_loser_that_is_cleared_is_refused_while_the_settlement_stands(
    lake: Lake, policy: dict[str, Any]
) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1, value=11)
    with pytest.raises(SupersededRunError, match=r"settled against .* day=1 \(for older\)") as said:
        lake.load("newer", 5, 1, clear=1, **policy)
    assert said.value.skips is (policy is SKIP)
    assert lake.days == {1: 11, 2: 1}


def test_loser_that_skips_loads_its_other_partitions(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1, value=11)
    again = lake.load("newer", 5, 1, 2, clear=1, **SKIP)
    assert lake.days == {1: 11, 2: 5}
    assert list(again.superseded) == ["day=1"]


def test_loser_that_says_last_wins_loads_and_ends_the_settlement(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    lake.load("newer", 5, 1, clear=1, **LAST)
    assert lake.days[1] == 5
    assert lake.settled(1) is None


def test_settled_partition_has_the_highest_rank_of_the_conflict(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    with pytest.raises(SupersededRunError, match="Newer runs have loaded day=1"):
        lake.load("between", 4, 1, **NEWEST)
    lake.load("latest", 6, 1, **NEWEST)
    assert lake.days[1] == 6
    # Then no loser is left.
    lake.load("newer", 5, 1, clear=1)


def test_winner_that_is_cleared_keeps_the_settlement_and_its_rank(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    lake.load("older", 1, 1, 2, clear=2, value=12, **NEWEST)
    assert lake.days == {1: 12, 2: 12}
    for run in ("newer", "between"):
        with pytest.raises(SupersededRunError):
            lake.load(run, 4, 1, clear=1, **NEWEST)


@pytest.mark.parametrize("policy", [{}, NEWEST, LAST])
def test_partition_that_has_moved_since_the_plan_refuses_the_run_that_settles(
    lake: Lake, policy: dict[str, Any]
) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("third", 3, 1)
    with pytest.raises(CommitConflictError):
        lake.load("older", 1, 1, 2, clear=1, value=11, **policy)
    assert lake.days == {1: 3, 2: 1}
    assert lake.settled(1) is None


@pytest.mark.parametrize("policy", [{}, NEWEST, LAST])
def test_partition_that_moves_while_the_run_is_open_refuses_it(
    lake: Lake, policy: dict[str, Any]
) -> None:
    def third() -> None:
        lake.load("third", 3, 1)

    lake.plan("older", 5, {1: ("newer",)})
    with pytest.raises(CommitConflictError):
        lake.load("older", 1, 1, 2, clear=1, value=11, beside=third, **policy)
    assert lake.days == {1: 3, 2: 1}
    assert lake.settled(1) is None


def test_rows_in_other_partitions_that_were_compacted_stay(lake: Lake) -> None:
    lake.load("adds", 6, 2, mode="append")
    assert lake.table.compact(apply=True)
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1, value=11)
    rows = lake.table.scan().to_arrow().to_pylist()
    assert sorted((row["day"], row["value"]) for row in rows) == [(1, 11), (2, 1), (2, 6)]


def test_retry_after_its_own_commit_settles_once_more(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1, value=11)
    lake.load("older", 1, 1, 2, clear=1, number=3, value=12)
    assert lake.days == {1: 12, 2: 1}
    settlement = lake.settled(1)
    assert settlement == SettledRuns("older", ("newer",))


def test_settlement_is_settled_again_for_a_loser(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    lake.plan("newer", 5, {1: ("older",)})
    lake.load("newer", 5, 1, clear=1)
    assert lake.days[1] == 5
    with pytest.raises(SupersededRunError, match="for newer"):
        lake.load("older", 1, 1, 2, clear=2)


class TestRunThatHasCommittedNothing:
    """It gave way as the conflict came up."""

    def test_cleared_task_settles_and_loads_all_of_its_run(self, lake: Lake) -> None:
        lake.plan("failed", 5, {1: ("newer", "older")}, whole=True)
        done = lake.load("failed", 2, 1, 3, clear=1, **NEWEST)
        assert lake.days == {1: 2, 2: 1, 3: 2}
        assert done.narrows is None
        assert lake.settled(1) == SettledRuns("failed", ("newer", "older"))
        assert lake.settled(3) is None

    def test_partition_that_has_moved_refuses_it(self, lake: Lake) -> None:
        lake.plan("failed", 5, {1: ("newer",)}, whole=True)
        lake.load("third", 3, 1)
        with pytest.raises(CommitConflictError):
            lake.load("failed", 9, 1, clear=1, **NEWEST)

    def test_partition_that_has_come_since_the_plan_refuses_it(self, lake: Lake) -> None:
        lake.plan("failed", 5, {7: ("newer",)}, whole=True)
        lake.load("third", 3, 7)
        with pytest.raises(CommitConflictError):
            lake.load("failed", 9, 7, clear=1, **NEWEST)

    def test_retry_after_its_own_commit_settles_once_more(self, lake: Lake) -> None:
        lake.plan("failed", 5, {1: ("newer",)}, whole=True)
        lake.load("failed", 2, 1, 3, clear=1)
        lake.load("failed", 2, 1, 3, clear=1, number=3, value=22)
        assert lake.days == {1: 22, 2: 1, 3: 22}
        settlement = lake.settled(1)
        assert settlement == SettledRuns("failed", ("newer",))

    def test_plan_is_void_once_the_run_has_committed_by_another_clear(self, lake: Lake) -> None:
        lake.plan("failed", 5, {1: ("newer",)}, whole=True)
        lake.load("failed", 7, 3, number=1)  # A first try asks for no plan.
        with pytest.raises(SupersededRunError):
            lake.load("failed", 2, 1, clear=1, **NEWEST)

    def test_plan_is_refused_after_its_time(self, lake: Lake) -> None:
        lake.plan("failed", 5, {1: ("newer",)}, whole=True, seconds=60)
        lake.clock.advance(61)
        with pytest.raises(InvalidInputError, match="settle a conflict over day=1, and its time"):
            lake.load("failed", 9, 1, clear=1)
        assert lake.days[1] == 5

    def test_run_that_appends_is_refused_since_the_losers_rows_would_stay(self, lake: Lake) -> None:
        lake.plan("failed", 5, {1: ("newer",)}, whole=True)
        with pytest.raises(InvalidInputError, match="the runs that lost it would stay beside"):
            lake.load("failed", 2, 1, clear=1, mode="append")
        assert lake.days[1] == 5
        assert lake.settled(1) is None


def test_compaction_keeps_the_settlement(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    lake.load("adds", 6, 1, mode="append")
    assert lake.table.compact(apply=True)
    with pytest.raises(SupersededRunError):
        lake.load("newer", 5, 1, clear=1)


def test_merge_into_a_partition_without_rows_keeps_the_settlement(lake: Lake) -> None:
    """A merge replaces no run, whether or not rows are there."""
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    lake.table.delete([("day", "==", 1)])
    lake.table.merge(pa.table({"value": [7], "day": [1]}), ["value"])
    assert lake.days == {1: 7, 2: 1}
    assert lake.settled(1) == SettledRuns("older", ("newer",))
    with pytest.raises(SupersededRunError):
        lake.load("newer", 5, 1, clear=1)


def test_loser_that_has_added_rows_all_the_same_takes_them_out_once_it_has_none_there(
    lake: Lake,
) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    lake.load("newer", 5, 1, clear=1, mode="append", **LAST)
    lake.load("newer", 5, 3, clear=2)
    assert lake.days == {1: 1, 2: 1, 3: 5}
    assert lake.table.scan().count() == 3
    assert lake.settled(1) == SettledRuns("older", ("newer",))


def test_table_says_before_a_job_begins_in_which_partitions_a_loser_gives_way(lake: Lake) -> None:
    lake.plan("older", 5, {1: ("newer",)})
    lake.load("older", 1, 1, 2, clear=1)
    ranks = RunRanks.of(5)
    for policy, found in (("fail", ["day=1"]), ("newest_run", ["day=1"]), ("last_wins", [])):
        asked = lake.table.newer_runs(
            ["day=1", "day=2"], ranks, True, run="newer", on_conflict=policy
        )
        assert [*asked] == found


def test_job_that_settles_by_its_base_is_refused_where_that_has_moved() -> None:
    """As a restoration does."""
    world, replaces = World(), {"mode": Mode.REPLACE}
    world.load(DAY1, run_rank=1, idempotency_key="older", **replaces)
    world.load(DAY1, run_rank=5, idempotency_key="newer", **replaces)
    base = world.snapshot().base
    settles = {DAY1: Settling(SettledRuns("older", ("newer",)), RunRank.of(5))}
    words = {**replaces, "settles": settles, "on_conflict": OnConflict.LAST_WINS}
    done = world.load(DAY1, base=base, **words)
    for moved in (base, None):
        with pytest.raises(CommitConflictError):
            world.load(DAY1, base=moved, **words)
    assert world.jobs_of(DAY1) == [done.job]
    again = {**replaces, "on_repeat": OnRepeat.REPLACE_OWN}
    with pytest.raises(SupersededRunError):
        world.load(DAY1, run_rank=5, idempotency_key="newer", **again)
    newest = {**again, "on_conflict": OnConflict.NEWEST_RUN}
    assert world.load(DAY1, run_rank=1, idempotency_key="older", **newest)


def test_winner_without_rows_takes_those_of_the_losers_away(lake: Lake) -> None:
    """In a partition that its rows name no more."""
    lake.plan("older", 5, {1: ("newer",)})
    done = lake.load("older", 1, 2, clear=1, value=11)
    assert [it.partition for it in done.partitions] == ["day=1"]
    assert lake.days == {2: 1}
    assert lake.settled(1) == SettledRuns("older", ("newer",))


class TestDeltaTable:
    """What the log of a Delta table alone can tell wrong."""

    @pytest.fixture
    def lake(self) -> Lake:
        found = Lake("delta")
        found.load("older", 1, 1, 2)
        found.load("newer", 5, 1)
        found.load("older", 1, 1, 2, clear=1, value=10)
        return found

    def resolved(self, lake: Lake, dag: str) -> RunConflict:
        table = lake.table
        assert isinstance(table, DeltaTable)
        assert [it.partition for it in table.conflicts().unresolved] == ["day=1"]
        (done,) = table.resolve({"prefer": [dag]}, apply=True)
        return done

    def test_settlement_while_the_job_waits_to_be_published_refuses_it(self, lake: Lake) -> None:
        lake.plan("newer", 5, {1: ("older",)})
        rows = pa.table({"value": [55], "day": [1]})
        owner = Owner("newer", "r", "load", try_number=2, series="2026-01-01 2 10")
        table = lake.table
        assert isinstance(table, DeltaTable)
        with table.job(
            rows.schema,
            mode="overwrite",
            on_repeat="replace_own",
            idempotency_key="newer",
            owner=owner,
            run_rank=5,
            publish=False,
        ) as job:
            job.write(rows)
        assert job.unpublished is not None
        assert self.resolved(lake, "older").is_settled
        with pytest.raises(CommitConflictError, match="settled the conflict, too"):
            table.publish(job.unpublished.job)
        assert lake.days[1] == 10
        assert lake.settled(1) == SettledRuns("older", ("newer",))

    def test_rows_that_were_compacted_with_those_of_the_winner_go(self) -> None:
        lake = Lake("delta")
        lake.load("newer", 5, 1)
        lake.load("older", 1, 1, mode="append")
        assert lake.table.compact(apply=True)
        lake.plan("older", 5, {1: ("newer",)})
        lake.load("older", 1, 1, 2, clear=1, value=11)
        assert lake.days == {1: 11}
        assert lake.table.scan().count() == 1

    @pytest.mark.parametrize("operation", ["DELETE", "WRITE"])
    def test_removals_that_do_not_say_their_partition_refuse_it(
        self, lake: Lake, operation: str
    ) -> None:
        lake.plan("newer", 5, {1: ("older",)})
        table = lake.table
        assert isinstance(table, DeltaTable)
        state = table.state()
        version = (state.log_version or 0) + 1
        info = {"operation": operation, "operationParameters": {"mode": "Overwrite"}}
        gone = [it.key.removeprefix("flights/") for it in state.files if it.partition == "day=1"]
        lines: list[Any] = [{"commitInfo": {"timestamp": 0, **info}}]
        lines += [{"remove": {"path": it, "dataChange": True}} for it in gone]
        body = "\n".join(map(json.dumps, lines)).encode()
        lake.store.apply(Put(f"flights/_delta_log/{version:020}.json", body))
        assert table.settled({"day=1": version - 1})["day=1"].version == version
        with pytest.raises(CommitConflictError, match="has changed day=1 since a plan"):
            lake.load("newer", 5, 1, clear=1)

    def test_plan_holds_where_the_entry_of_the_run_was_cleaned(self) -> None:
        lake = Lake("delta")
        lake.load("older", 1, 1, 2, on_repeat="append")
        lake.load("newer", 5, 1)
        table = lake.table
        assert isinstance(table, DeltaTable)
        table.checkpoint()
        for end in ("json", "crc"):
            del lake.store.objects[f"flights/_delta_log/{0:020}.{end}"]
        lake.plan("older", 5, {1: ("newer",)}, whole=True)
        lake.load("older", 1, 1, clear=1, value=11, on_repeat="append")
        assert lake.settled(1) == SettledRuns("older", ("newer",))

    def test_settlement_of_another_is_told_by_its_own_job(self, lake: Lake) -> None:
        lake.plan("newer", 5, {1: ("older",)})
        done = lake.load("newer", 5, 1, clear=1)
        lake.load("adds", 6, 1, mode="append")
        assert lake.table.settled({"day=1": 0})["day=1"].job == done.job

    def test_settlement_that_comes_too_late_leaves_the_conflict_settled(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle = DeltaTable._settle_conflict

        def after_another(table: DeltaTable, *words: Any) -> Any:
            monkeypatch.setattr(DeltaTable, "_settle_conflict", settle)
            assert self.resolved(lake, "older").is_settled
            return settle(table, *words)

        monkeypatch.setattr(DeltaTable, "_settle_conflict", after_another)
        late = self.resolved(lake, "newer")
        assert late.settlement is not None
        assert "has changed since" in late.settlement.error
        table = lake.table
        assert isinstance(table, DeltaTable)
        assert table.conflicts().unresolved == ()
