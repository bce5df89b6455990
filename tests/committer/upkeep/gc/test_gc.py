"""What gc makes of a table's records. That no answer changes, whenever it comes, is shown by the
simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.faults import on
from support.protocol import DAY1, DAY2, ROOT, World, die_before_applying
from zero_rename.committer import InvalidInputError
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.format.job_spec import Mode, OnRepeat, Owner
from zero_rename.committer.format.layout import JOB_ID
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.format.records.run_conflict import ConflictCause
from zero_rename.committer.store.requests import Delete, DeleteMany, Get, Put, Unknown
from zero_rename.committer.upkeep.conflicts.conflict_search import find_conflicts
from zero_rename.committer.upkeep.conflicts.resolution import plan_undoing
from zero_rename.committer.upkeep.gc.collect import GcReport, gc

DAY = 24 * 3600.0


def collect(world: World, apply: bool = True, **options: Any) -> GcReport:
    return world.driver.run(gc(world.context, apply=apply, **options))


def decision(world: World, job: str) -> Any:
    decided: Any = world.driver.run(read_decision(world.context, job))
    return decided.decision


def control_bytes(world: World) -> int:
    return sum(len(world.store.objects[key].body) for key in world.store.keys(ROOT.control_prefix))


class TestCondensing:
    def test_an_old_job_keeps_its_verdict_and_sums_only(self, world: World) -> None:
        report = world.load(DAY1, DAY2, rows=7)
        world.advance(8 * DAY)
        before = world.snapshot()
        assert (collect(world).condensed, world.snapshot().files) == (1, before.files)
        said = decision(world, report.job)
        assert (said.is_commit, said.condensed, said.files) == (True, True, ())
        assert [(c.partition, c.base_version, c.sums.rows) for c in said.partitions] == [
            (DAY1, 0, 7),
            (DAY2, 0, 7),
        ]

    @pytest.mark.parametrize("key", [None, "a"])
    def test_owner_of_a_run_stays_on_record(self, world: World, key: str | None) -> None:
        """Which attempt has loaded decides what the run's next attempt does."""
        owner = Owner("flights", "scheduled__2013-02-02", "load", -1, 1, series="2013-02-02 2")
        job = world.load(DAY1, owner=owner, idempotency_key=key).job
        world.advance(8 * DAY)
        assert collect(world).condensed == 1
        assert decision(world, job).owner == (Owner() if key is None else owner)

    @pytest.mark.parametrize("at", ["decision", "part"])
    def test_who_reads_one_in_parts_meanwhile_reads_what_stands(
        self, world: World, at: str
    ) -> None:
        """Its parts are gone by the time they are asked for; nothing is damaged."""
        world.context = replace(world.context, limits=Limits(files_per_object=1))
        job = world.load(DAY1, DAY2, rows=7).job
        world.advance(8 * DAY)
        other = World(world.store)
        condensed: list[int] = []

        def condense(request: Any, apply: Callable[[Any], Any]) -> Any:
            is_part = isinstance(request, Get) and request.key.startswith(
                f"{ROOT.decisions_prefix}{job}."
            )
            whole = is_part and request.key == ROOT.decision_key(job)
            if not condensed and is_part and (at == "decision" or not whole):
                answer = apply(request) if whole else None
                condensed.append(collect(other).condensed)
                return answer if answer is not None else apply(request)
            return apply(request)

        world.driver.fault = condense
        said = decision(world, job)
        assert condensed == [1]
        assert (said.is_commit, said.condensed, said.parts) == (True, True, ())
        assert sum(change.sums.rows for change in said.partitions) == 14

    def test_nothing_is_changed_without_apply(self, world: World) -> None:
        world.load(DAY1)
        world.advance(8 * DAY)
        before = dict(world.store.objects)
        planned = collect(world, apply=False)
        assert (planned.folded, planned.condensed) == (1, 1)
        assert planned.saved > 0
        assert world.store.objects == before
        done = collect(world)
        assert (done.folded, done.condensed, done.saved) == (1, 1, planned.saved)

    def test_what_is_young_stays_whole(self, world: World) -> None:
        old = world.load(DAY1)
        world.advance(5 * DAY)
        young = world.load(DAY1)
        world.advance(3 * DAY)
        assert collect(world).condensed == 1
        assert decision(world, old.job).condensed
        assert not decision(world, young.job).condensed
        assert world.jobs_of(DAY1) == [old.job, young.job]

    def test_a_job_that_is_open_stays_whole(self, world: World) -> None:
        report = world.load(DAY1)
        world.store.apply(Put(ROOT.open_key(report.job), b"{"))
        world.advance(8 * DAY)
        assert (collect(world).condensed, collect(world).left) == (0, 1)
        world.store.apply(Delete(ROOT.open_key(report.job)))
        assert (collect(world).condensed, collect(world).left) == (1, 0)

    def test_a_partition_whose_head_cannot_be_read_harms_its_own_jobs_only(
        self, world: World
    ) -> None:
        one, two = world.load(DAY1), world.load(DAY2)
        world.advance(8 * DAY)
        world.store.apply(Put(ROOT.head_key(DAY1), b"{"))
        report = collect(world)
        assert (report.condensed, list(report.damaged)) == (1, [DAY1])
        assert decision(world, two.job).condensed
        assert not decision(world, one.job).condensed

    def test_run_whose_head_cannot_be_read_keeps_its_own_decision_whole_only(
        self, world: World
    ) -> None:
        one, two = world.load(DAY1, idempotency_key="run"), world.load(DAY2)
        world.advance(8 * DAY)
        world.store.apply(Put(ROOT.run_key("run"), b"{"))
        assert collect(world).condensed == 1
        assert decision(world, two.job).condensed
        assert not decision(world, one.job).condensed

    def test_decision_that_gc_of_low_age_kept_whole_is_condensed_later(self, world: World) -> None:
        jobs = []
        for partition in (DAY1, DAY2):
            opened, result = world.written(partition)
            die_before_applying(world, opened, result)
            jobs.append(opened.job)
            world.advance(8 * DAY if partition == DAY1 else 60)
        assert collect(world, older_than=0).left == 2
        assert collect(world).left == 1
        world.recover(patience=0)
        world.advance(8 * DAY)
        collect(world)
        assert [decision(world, job).condensed for job in jobs] == [True, True]

    def test_parts_go_after_their_decision_is_condensed(self, world: World) -> None:
        world = world.with_context(limits=Limits(files_per_object=1))
        report = world.load(DAY1, DAY2)
        parts = world.store.keys(f"{ROOT.decisions_prefix}{report.job}.")
        assert len(parts) == 3
        world.advance(8 * DAY)
        collect(world)
        assert world.store.keys(ROOT.decisions_prefix) == [ROOT.decision_key(report.job)]
        assert len(world.snapshot().files) == 2

    def test_parts_that_could_not_be_removed_go_next_time(self, world: World) -> None:
        world = world.with_context(limits=Limits(files_per_object=1))
        report = world.load(DAY1, DAY2)
        world.advance(8 * DAY)
        world.driver.fault = on(DeleteMany, Unknown("500"))
        assert len(collect(world).failed) == 2
        world.driver.fault = None
        world.advance(8 * DAY)
        assert collect(world).removed >= 2
        assert world.store.keys(ROOT.decisions_prefix) == [ROOT.decision_key(report.job)]

    def test_condensed_decisions_are_not_read_every_time(self, world: World) -> None:
        for _ in range(20):
            world.load(DAY1)
        world.advance(8 * DAY)
        assert collect(world).condensed == 20
        world.advance(DAY)
        world.driver.requests.clear()
        collect(world)
        read = [r for r in world.driver.requests if isinstance(r, Get) and "/jobs/" in r.key]
        assert read == []


def test_a_job_of_many_partitions_is_read_once_for_all_of_their_heads(world: World) -> None:
    report = world.load(*(f"day={n}" for n in range(40)))
    world.advance(8 * DAY)
    world.driver.requests.clear()
    assert collect(world).folded == 40
    key = ROOT.decision_key(report.job)
    # Once to fold, once to condense.
    assert sum(isinstance(r, Get) and r.key == key for r in world.driver.requests) == 2


class TestPromises:
    """What was promised before holds after it."""

    def test_a_run_is_told_for_ever_what_it_did(self, world: World) -> None:
        first = world.load(DAY1, DAY2, rows=3, idempotency_key="run")
        for _ in range(3):
            world.advance(365 * DAY)
            collect(world)
            again = world.open(idempotency_key="run")
            assert again.repeated is not None
            assert (again.repeated.job, again.repeated.rows) == (first.job, 6)
            assert again.repeated.partitions == first.partitions

    def test_a_run_replaces_its_own_rows_afterwards(self, world: World) -> None:
        world.load(DAY1, DAY2, idempotency_key="run")
        other = world.load(DAY1)
        world.advance(8 * DAY)
        collect(world)
        again = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert world.jobs_of(DAY1) == [other.job, again.job]
        assert world.jobs_of(DAY2) == []
        assert world.listed(DAY2) == []

    def test_a_process_that_wakes_up_late_cannot_commit_twice(self, world: World) -> None:
        opened, result = world.written(DAY1)
        report = world.commit(opened, result)
        world.advance(400 * DAY)
        collect(world)
        assert world.with_context(process=lambda: "late").commit(opened, result) == report
        assert world.jobs_of(DAY1) == [opened.job]
        world.assert_clean()

    def test_a_fenced_job_cannot_commit_afterwards(self, world: World) -> None:
        world.load(DAY1)
        opened, result = world.written(DAY1)
        world.recover(patience=0.0)
        world.advance(400 * DAY)
        collect(world)
        with pytest.raises(Exception, match="declared this job dead"):
            world.commit(opened, result)

    def test_a_replace_may_be_undone_for_as_long(self, world: World) -> None:
        """By who kept what was replaced: decisions of years ago may say what that was."""
        one, two = world.load(DAY1), world.load(DAY1)
        world.advance(30 * DAY)
        last = world.load(DAY1, mode=Mode.REPLACE, keep_replaced=True)
        world.advance(DAY)
        assert collect(world).left == 2
        plan = world.driver.run(plan_undoing(world.context, DAY1, last.job))
        assert [file.job for file in plan.files] == [one.job, two.job]
        world.advance(8 * DAY)
        assert collect(world).condensed == 3
        with pytest.raises(InvalidInputError, match="not on record any more"):
            world.driver.run(plan_undoing(world.context, DAY1, last.job))

    def test_an_append_may_be_undone_at_any_time(self, world: World) -> None:
        one, two = world.load(DAY1), world.load(DAY1)
        world.advance(30 * DAY)
        collect(world)
        plan = world.driver.run(plan_undoing(world.context, DAY1, two.job))
        assert [file.job for file in plan.files] == [one.job]

    def test_a_partition_that_is_loaded_again_each_day_keeps_few_decisions_whole(
        self, world: World
    ) -> None:
        for _ in range(30):
            world.load(DAY1, mode=Mode.REPLACE)
            world.advance(DAY)
        collect(world)
        keys = world.store.keys(ROOT.decisions_prefix)
        jobs = [found.group() for key in keys if (found := JOB_ID.search(key))]
        assert sum(not decision(world, job).condensed for job in jobs) <= 9

    def test_conflict_is_found_after_gc_of_a_run_that_is_long_over(self, world: World) -> None:
        world.date_jobs()
        newer = world.load(DAY1, mode=Mode.REPLACE, run_rank=2, idempotency_key="b").job
        world.advance(30 * DAY)
        older = world.load(DAY1, mode=Mode.REPLACE, run_rank=1, idempotency_key="a").job
        world.advance(DAY)
        collect(world)
        (conflict,) = world.driver.run(find_conflicts(world.context)).conflicts
        assert [it.job for it in conflict.runs] == [older, newer]

    @pytest.mark.parametrize(
        ("later", "rank", "cause"),
        [
            ("daily", 1, ConflictCause.OLDER_CAME_LATER),
            ("corrections", 3, ConflictCause.TASKS_DIFFER),
            ("daily", 3, None),
        ],
    )
    def test_conflict_with_a_run_whose_decision_gc_has_condensed_is_found(
        self, world: World, later: str, rank: int, cause: ConflictCause | None
    ) -> None:
        """Maintenance condenses what is a week old each day, and a backfill comes a year later."""
        world.date_jobs()
        options: dict[str, Any] = {"mode": Mode.REPLACE, "run_rank": 2, "idempotency_key": "b"}
        before = world.load(DAY1, owner=Owner("daily", "day 2", "load"), **options).job
        for _ in range(10):
            world.advance(DAY)
            world.driver.run(find_conflicts(world.context))
            collect(world)
        assert decision(world, before).condensed
        options |= {"run_rank": rank, "idempotency_key": "a"}
        after = world.load(DAY1, owner=Owner(later, "day 1", "load"), **options).job
        found = world.driver.run(find_conflicts(world.context)).conflicts
        assert [it.cause for it in found] == ([] if cause is None else [cause])
        assert all({it.job for it in conflict.runs} == {before, after} for conflict in found)

    def test_runs_that_gc_has_condensed_before_a_search_are_noted(self, world: World) -> None:
        """Their conflicts cannot be known any more: no list says whose rows they removed."""
        world.date_jobs()
        for key in ("a", "b", "c"):
            world.load(DAY1, mode=Mode.REPLACE, run_rank=2, idempotency_key=key)
        world.driver.run(find_conflicts(world.context))
        for key in ("d", "e", "f"):
            world.load(DAY1, mode=Mode.REPLACE, run_rank=1, idempotency_key=key)
        for _ in range(2):
            world.advance(8 * DAY)
            collect(world)
        (note,) = world.driver.run(find_conflicts(world.context)).notes
        assert note.startswith("The records of 3 runs were condensed")
        assert world.driver.run(find_conflicts(world.context)).notes == ()


class TestSize:
    def test_records_come_to_half_a_kilobyte_a_file(self, world: World) -> None:
        """A small form of docs/performance.md: appends of one file, three to a partition."""
        owner = Owner("flights_daily", "scheduled__2026-01-01T00:00:00+00:00", "load", -1, 1)
        for number in range(120):
            world.advance(60)
            world.load(f"day=2026-01-{number % 40:02}", owner=owner)
        before = control_bytes(world)
        world.advance(8 * DAY)
        collect(world)
        world.advance(DAY)
        collect(world)
        world.write_index()
        assert control_bytes(world) <= 120 * 525 < before
        assert len(world.snapshot().files) == 120

    def test_a_partition_of_many_appends_lists_each_file_a_few_times_over(
        self, world: World
    ) -> None:
        """As many lists as twice two to that number comes to files, not all files in each."""
        world = world.with_context(limits=Limits(decisions_per_head=2))
        listed = 0
        for _ in range(120):
            world.advance(60)
            report = world.load(DAY1)
            head: Any = world.driver.run(read_head(world.context, Slot.partition(ROOT, DAY1))).head
            assert len(head.manifests) <= 7
            assert all(
                later.files * 2 < earlier.files
                for earlier, later in zip(head.manifests, head.manifests[1:], strict=False)
            )
            if not head.decisions:
                listed += head.manifests[-1].files
        assert listed <= 8 * 120
        assert len(world.snapshot().files) == 120
        assert report.job == world.jobs_of(DAY1)[-1]
