"""Settlements of conflicts over a Delta table's partitions: whose rows come back, who gives way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from support.delta_runs import DAY1, LAST_WINS, NEWEST, World
from support.faults import Crash
from support.faults_in_turn import FAULTS, at
from zero_rename.committer import Owner, RunRanks, SupersededRunError
from zero_rename.committer.errors import InvalidInputError, ZeroRenameError
from zero_rename.committer.format.records.run_conflict import RunConflict, SettledBy
from zero_rename.committer.format.settling import SettledRuns
from zero_rename.committer.store.requests import PutFile
from zero_rename.layouts.delta.delta_layout import RETENTION
from zero_rename.log import checksum
from zero_rename.log.actions import CommitInfo, write_actions
from zero_rename.log.opening import LogDepth, open_log
from zero_rename.tables import DeltaTable
from zero_rename.tables.delta_files import layout_of

WHO = Owner("maintenance", "r", "settle")
NEWER, OLDER = "daily/2/load", "daily/1/load"


@pytest.fixture
def world() -> World:
    world = World()
    world.load(0, "9")
    world.look()
    return world


@pytest.fixture
def contested(world: World) -> World:
    """A day that a late backfill has loaded: 3 rows of the newer run, then 2 of the older one."""
    world.late_backfill()
    world.look()
    return world


def resolve(world: World, policy: object = "newest_run", apply: bool = True) -> RunConflict:
    (done,) = world.opened().resolve(policy, apply=apply, owner=WHO)
    return done


def error(world: World, policy: object = "newest_run", apply: bool = True) -> str:
    done = resolve(world, policy, apply)
    assert done.settlement is not None
    assert not done.is_settled
    return done.settlement.error


def rows(world: World, day: str = "1") -> int:
    return world.opened().scan([f"day={day}"]).to_arrow().num_rows


class TestRestore:
    def test_rows_of_the_newest_run_come_back_by_one_entry(self, contested: World) -> None:
        before = contested.opened().state().log_version
        done = resolve(contested)
        said = done.settlement
        assert said is not None
        assert (said.stands, said.losers, said.how) == (NEWER, (OLDER,), SettledBy.RESTORE)
        assert (str(said.rank), said.by, said.error) == ("2", WHO, "")
        assert rows(contested) == 3
        table = contested.opened()
        assert table.state().log_version == (before or 0) + 1
        (last, *_) = table.history(1)
        assert (last.operation, last.job, last.owner["dag_id"]) == (
            "RESTORE",
            said.job,
            "maintenance",
        )
        assert table.open_jobs() == []
        assert contested.look().unresolved == ()

    def test_property_that_cannot_be_read_settles_nothing_and_leaves_no_open_job(
        self, contested: World
    ) -> None:
        layout = layout_of(contested.table.root)
        state = contested.table.run(open_log(layout, LogDepth.BLIND)).state
        assert state.metadata is not None
        invalid = replace(state.metadata, properties={RETENTION: "soon"})
        for version, metadata in enumerate((invalid, state.metadata), state.version + 1):
            body = write_actions([CommitInfo({"txnId": f"{version}"}), metadata])
            contested.store.apply(PutFile(layout.folder.entry(version), body))
            if metadata is invalid:
                assert "is not an interval" in error(contested)
                assert contested.opened().open_jobs() == []
        assert resolve(contested).is_settled

    def test_next_look_does_not_name_it_and_one_back_tells_who_decided(
        self, contested: World
    ) -> None:
        resolve(contested)
        assert contested.look().conflicts == ()
        (found,) = contested.look(3600.0).conflicts
        assert found.settlement is not None
        assert (found.settlement.policy, found.settlement.by) == ("newest_run", WHO)
        assert [it.key for it in found.visible] == [NEWER]

    def test_rows_that_are_there_stand_and_no_file_changes(self, contested: World) -> None:
        files = contested.opened().state().files
        done = resolve(contested, {"keep": [OLDER]})
        assert done.settlement is not None
        assert (done.settlement.how, done.settlement.losers) == (SettledBy.KEPT, (NEWER,))
        assert contested.opened().state().files == files
        assert contested.look().conflicts == ()

    def test_report_changes_nothing(self, contested: World) -> None:
        before = dict(contested.store.objects)
        done = resolve(contested, apply=False)
        assert done.is_settled
        assert contested.store.objects == before
        assert rows(contested) == 2

    def test_rows_that_a_compaction_wrote_again_come_back(self, world: World) -> None:
        world.load(2, "1", rows=2)
        world.load(2, "1", mode="append", rows=1, idempotency_key="more", dag="daily")
        world.table.compact([DAY1], apply=True)
        world.load(1, "1", dag="late")
        world.look()
        assert resolve(world, {"keep": [NEWER]}).is_settled
        assert rows(world) == 3

    def test_run_that_left_no_rows_may_stand(self, world: World) -> None:
        newer = world.load(2, "1", rows=0, replace_partitions=[DAY1], dag="other")
        world.load(3, "1")
        world.load(2, "1", dag="late")
        world.look()
        assert newer
        assert resolve(world, {"keep": ["daily/3/load"]}).is_settled
        assert rows(world) == 1

    def test_unpartitioned_table(self) -> None:
        world = World()
        world.load(0, "1", partition_by=[])
        world.load(2, "1", rows=3, partition_by=[], dag="daily")
        world.load(1, "1", partition_by=[])
        world.look()
        assert resolve(world).is_settled
        assert world.opened().scan().to_arrow().num_rows == 3

    def test_run_whose_rows_another_engine_wrote_again_has_not_lost(self, world: World) -> None:
        """The engine's removals do not say their partitions."""
        world.load(2, "1", rows=3)
        version = world.by_engine("1", operation="DELETE")
        world.load(1, "1", rows=2)
        world.look()
        said = resolve(world, {"keep": [f"version {version}"]}).settlement
        assert said is not None
        assert (said.error, said.losers) == ("", (OLDER,))

    def test_other_engine_may_lose_and_may_stand(self, world: World) -> None:
        world.load(2, "1", rows=3)
        version = world.by_engine("1")
        world.look()
        assert resolve(world, {"keep": [NEWER]}).is_settled
        assert rows(world) == 3
        world.by_engine("1")
        world.look()
        done = resolve(world, {"keep": [f"version {version + 2}"]})
        assert done.settlement is not None
        assert (done.settlement.how, done.settlement.error) == (SettledBy.KEPT, "")


class TestRefusals:
    def test_partition_that_has_changed_since_the_look(self, contested: World) -> None:
        contested.load(5, "1", mode="append", dag="more")
        assert "has changed since the conflict was looked at" in error(contested)
        assert rows(contested) == 3
        contested.look()
        assert "more/5/load wrote rows" in error(contested)

    def test_change_of_the_partition_beside_the_settlement(self, contested: World) -> None:
        """After the plan was made: the entry itself is bound to what the look saw."""
        (conflict,) = contested.look().conflicts
        plan = contested.table._planned_settlement(conflict, conflict.runs[1], "zr1-x", WHO)
        contested.load(5, "1", mode="append", dag="more")
        assert plan.change is not None
        assert contested.table.run(_refusal_of(contested.table, plan))
        assert rows(contested) == 3

    def test_files_beyond_the_retention(self, contested: World) -> None:
        contested.pass_retention()
        assert "are not kept any more" in error(contested)
        assert rows(contested) == 2

    def test_files_that_a_purge_has_deleted(self, contested: World) -> None:
        contested.pass_retention()
        contested.table.purge(apply=True)
        assert "are not kept any more" in error(contested)

    def test_job_at_work_on_the_partition(self, contested: World) -> None:
        job = contested.table.job(
            contested.table.schema, mode="overwrite", replace_partitions=[DAY1]
        )
        with suppress(ZeroRenameError), job:
            assert "is at work" in error(contested)
            raise InvalidInputError("given up")
        assert resolve(contested).is_settled

    def test_run_that_gave_way(self, world: World) -> None:
        with pytest.raises(ZeroRenameError) as caught:
            world.load(2, "1", beside=lambda: world.load(1, "1"))
        world.gave_way(caught.value, "daily", 2)
        world.look()
        assert "it gave way, and wrote nothing" in error(world)

    def test_partition_without_a_conflict_on_record(self, contested: World) -> None:
        with pytest.raises(InvalidInputError, match="No runs that conflict over day=9"):
            contested.table.resolve("newest_run", ["day=9"])

    def test_entries_that_were_cleaned(self, contested: World) -> None:
        contested.table.checkpoint_log()
        for version in range(3):
            del contested.store.objects[f"flights/_delta_log/{version:020}.json"]
        assert "was cleaned from the log" in error(contested)


def _refusal_of(table: DeltaTable, plan: Any) -> Any:
    from zero_rename.committer.errors import CommitConflictError
    from zero_rename.log.committing import commit_change

    try:
        yield from commit_change(table._layout, plan.opened, plan.change, 0)
    except CommitConflictError as error:
        return error
    return None


class TestLosers:
    @pytest.fixture
    def settled(self, contested: World) -> World:
        assert resolve(contested, {"keep": [OLDER]}).is_settled
        return contested

    @pytest.mark.parametrize("policy", [{}, NEWEST, {"mode": "append"}])
    def test_run_that_lost_gives_way_when_it_loads_again(
        self, settled: World, policy: dict[str, Any]
    ) -> None:
        with pytest.raises(SupersededRunError, match="was settled against this run") as caught:
            settled.load(2, "1", on_repeat="replace_own", **policy)
        assert list(caught.value.gave_way) == [DAY1]
        assert rows(settled) == 2
        assert settled.opened().open_jobs() == []

    def test_run_that_lost_under_last_wins_loads(self, settled: World) -> None:
        settled.load(2, "1", rows=3, on_repeat="replace_own", **LAST_WINS)
        assert rows(settled) == 3

    def test_run_that_lost_loads_what_is_not_settled_where_it_says_so(self, settled: World) -> None:
        settled.load(2, "1", "2", on_repeat="replace_own", on_superseded="skip", **NEWEST)
        assert (rows(settled), rows(settled, "2")) == (2, 1)

    def test_run_that_stands_loads_again_and_keeps_the_rank(self, settled: World) -> None:
        settled.load(1, "1", rows=4, on_repeat="replace_own", **NEWEST)
        assert rows(settled) == 4
        with pytest.raises(SupersededRunError):
            settled.load(1.5, "1", **NEWEST)
        with pytest.raises(SupersededRunError):
            settled.load(2, "1", on_repeat="replace_own")

    def test_another_run_that_replaces_the_partition_ends_it(self, settled: World) -> None:
        settled.load(3, "1")
        settled.load(2, "1", on_repeat="replace_own", rows=5)
        assert rows(settled) == 5

    def test_whole_restore_ends_it(self, settled: World) -> None:
        settled.table.restore(1, apply=True)
        settled.load(2, "1", rows=5, on_repeat="replace_own")
        assert rows(settled) == 5

    def test_settlement_outlives_the_newest_transactions_of_checksum_files(
        self, settled: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checksum, "TRANSACTIONS", 1)
        for rank in range(10, 14):
            settled.load(rank, "2")
        with pytest.raises(SupersededRunError):
            settled.load(2, "1", mode="append", on_repeat="replace_own")

    def test_run_that_lost_is_refused_before_it_is_submitted(self, settled: World) -> None:
        table, ranks = settled.opened(), RunRanks.of(2)
        for policy in ("fail", "newest_run"):
            found = table.newer_runs([DAY1], ranks, True, run=NEWER, on_conflict=policy)
            assert found[DAY1].settled_for == OLDER
        assert not table.newer_runs([DAY1], ranks, True, run=NEWER, on_conflict="last_wins")

    def test_settled_runs_are_read_with_the_version_of_the_partition(self, settled: World) -> None:
        (found,) = settled.opened().settled({DAY1: 2}).values()
        assert found.runs == SettledRuns(OLDER, (NEWER,))
        assert found.version == 3
        settled.load(3, "2")
        assert settled.opened().settled({DAY1: 3})[DAY1].version == 3


class TestFaults:
    @pytest.mark.parametrize("policy", ["newest_run", {"keep": [OLDER]}])
    @pytest.mark.parametrize("fault", FAULTS)
    def test_settlement_that_fails_at_any_request_is_made_by_the_next_one(
        self, contested: World, fault: str, policy: object
    ) -> None:
        start, number = contested.store, 0
        after = 3 if policy == "newest_run" else 2
        while True:
            world = World()
            world.store = start.copy()
            world.table = world.opened()
            table = world.opened(at(number, FAULTS[fault]))
            told: Any = None
            try:
                (told,) = table.resolve(policy, apply=True, owner=WHO)
            except (ZeroRenameError, KeyboardInterrupt, Crash) as error:
                told = error
            done = isinstance(told, RunConflict) and told.is_settled
            if done and len(table.driver.requests) <= number:  # type: ignore[attr-defined]
                break
            where = f"{fault} at request {number}: {told!r}"
            assert rows(world) in ((after,) if done else (2, after)), where
            world.opened().recover(patience=0)
            if world.look().unresolved:
                assert resolve(world, policy).is_settled, where
            assert rows(world) == after, where
            assert world.look().unresolved == (), where
            assert world.opened().open_jobs() == [], where
            loser = 1 if policy == "newest_run" else 2
            with pytest.raises(SupersededRunError):
                world.load(loser, "1", on_repeat="replace_own")
            number += 1
        assert number > 5
