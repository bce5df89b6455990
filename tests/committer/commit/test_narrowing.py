"""A run that a plan lets make only some of its partitions again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from support.faults import Crash
from support.memory_store import ManualClock, MemoryStore
from support.old_records import gc_of_all
from support.protocol import memory_table
from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    Committed,
    InvalidInputError,
    Owner,
    SupersededRunError,
)
from zero_rename.committer.commit.narrowed_run import leave_narrowing, read_narrowing
from zero_rename.committer.format.job_spec import OnConflict
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing

RUN = "backfill/january/load"
PLANNER = Owner(dag_id="recompute", run_id="r", task_id="again")


class Backfill:
    """A run that loads three days, in a table that others write too."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)

    @property
    def table(self) -> Table:
        return memory_table(self.store)

    def load(
        self, days: Mapping[int, int], clear: int = 0, number: int = 1, **policy: Any
    ) -> Committed:
        """A try of the run.

        :param days: each with the value of its one row.
        :param clear: how often the task was cleared before.
        """
        rows = pa.table({"value": list(days.values()), "day": list(days)})
        owner = Owner(
            dag_id="backfill",
            run_id="january",
            task_id="load",
            try_number=number,
            series=f"2026-01-01 {number} {10 * clear}",
        )
        told = {
            "idempotency_key": RUN,
            "on_repeat": "replace_own",
            "mode": "overwrite",
            "owner": owner,
        }
        given: dict[str, Any] = {**told, **policy}
        with self.table.job(rows.schema, partition_by=["day"], **given) as job:
            job.write(rows)
        assert job.committed is not None
        return job.committed

    def mend(self, day: int, value: int, mode: str = "overwrite") -> Committed:
        """What somebody else loads."""
        return self.load(
            {day: value}, idempotency_key=None, owner=Owner(), on_repeat="skip", mode=mode
        )

    def narrow(
        self, *days: int, seconds: int = 3600, job: str | None = None, whole: bool = False
    ) -> bool:
        """What a plan leaves."""
        names = [f"day={day}" for day in days]
        versions = self.table.snapshot().versions
        last = job or self.table.job_of_key(RUN)
        assert last is not None
        partitions = {name: versions[name] for name in names}
        said = Narrowing(new_write_id(), RUN, last, partitions, seconds, PLANNER, whole)
        left = self.table.run(read_narrowing(self.table.root, RUN))
        return self.table.run(leave_narrowing(self.table.root, said, left))

    @property
    def days(self) -> list[tuple[int, int]]:
        rows = self.table.to_arrow().to_pylist()
        return sorted((row["day"], row["value"]) for row in rows)


@pytest.fixture
def run() -> Iterator[Backfill]:
    found = Backfill()
    found.load({1: 10, 2: 20, 3: 30})
    yield found
    assert found.table.verify() == []


def test_only_what_is_named_is_made_again(run: Backfill) -> None:
    mended = run.mend(3, 33)
    first = run.table.job_of_key(RUN)
    run.narrow(1)
    again = run.load({1: 11, 2: 21, 3: 31}, clear=1)
    assert run.days == [(1, 11), (2, 20), (3, 33)]
    assert (again.narrows, again.left_out, again.rows) == (first, 2, 1)
    assert [it.partition for it in again.partitions] == ["day=1"]
    assert run.table.partition_job("day=3") == mended.job
    assert run.table.result(again.job) == again


@pytest.mark.parametrize("on_superseded", ["fail", "skip"])
def test_newer_runs_of_other_partitions_do_not_keep_it_from_its_own(
    run: Backfill, on_superseded: str
) -> None:
    newest: dict[str, Any] = {"on_conflict": "newest_run", "run_rank": 5}
    newest["on_superseded"] = on_superseded
    days: dict[str, Any] = {"replace_partitions": ("day=1", "day=2", "day=3")}
    for day in (1, 2, 3):
        run.load({day: day}, run_rank=5, idempotency_key=None, on_conflict="last_wins")
    run.load({1: 10, 2: 20, 3: 30}, clear=1, on_conflict="last_wins", run_rank=5)
    run.load({3: 33}, idempotency_key=None, run_rank=9, on_conflict="last_wins")
    run.narrow(1)
    run.load({1: 11, 2: 21, 3: 31}, clear=2, **newest, **days)
    assert run.days == [(1, 11), (2, 20), (3, 33)]
    run.narrow(3)
    with pytest.raises(SupersededRunError):
        run.load({1: 12, 2: 22, 3: 32}, clear=3, **newest, **days)


@pytest.mark.parametrize("named", [False, True])
def test_a_full_clear_after_it_takes_back_all_that_the_run_holds(
    run: Backfill, named: bool
) -> None:
    days = ("day=1", "day=2", "day=3")
    policy: dict[str, Any] = {"replace_partitions": days} if named else {}
    for clear, day in ((1, 1), (2, 3), (3, 1)):
        run.narrow(day)
        values = {1: 10 + clear, 2: 20 + clear, 3: 30 + clear}
        assert run.load(values, clear=clear, **policy).left_out == 2
    assert run.days == [(1, 13), (2, 20), (3, 32)]
    # Two of the days have no rows any more: neither those of the first job nor any others stay.
    whole = run.load({1: 100}, clear=4, **policy)
    assert run.days == [(1, 100)]
    assert (whole.narrows, whole.left_out) == (None, 0)
    run.load({2: 5}, clear=5, **policy)
    assert run.days == [(2, 5)]


def test_the_decisions_of_a_narrowed_run_outlive_gc(run: Backfill) -> None:
    run.narrow(1)
    again = run.load({1: 11, 2: 21}, clear=1)
    run.mend(1, 12)
    run.mend(1, 13)
    report = gc_of_all(run.table)
    assert report.condensed
    left = run.table.result(again.job)
    assert left is not None
    assert (left.narrows, left.left_out) == (again.narrows, 1)
    run.load({1: 14}, clear=2)
    assert run.days == [(1, 14)]


@pytest.mark.parametrize("tidies", ["gc", "purge"])
def test_maintenance_of_any_age_leaves_the_word_to_a_clear_that_is_to_come(
    run: Backfill, tidies: str
) -> None:
    run.mend(3, 33)
    run.narrow(1)
    run.clock.advance(10)
    if tidies == "gc":
        run.table.gc(older_than=0, apply=True)
    else:
        run.table.purge(records_older_than=0, apply=True)
    run.load({1: 11, 2: 21, 3: 31}, clear=1)
    assert run.days == [(1, 11), (2, 20), (3, 33)]


@pytest.mark.parametrize("whole", [False, True])
def test_a_plan_made_after_gc_and_compaction(run: Backfill, whole: bool) -> None:
    run.narrow(1)
    run.load({1: 11, 2: 21}, clear=1)
    gc_of_all(run.table)
    assert len(run.table.compact(sort_by=["value"], apply=True)) == 3
    gc_of_all(run.table)
    run.narrow(*((1, 2, 3) if whole else (1, 2)), whole=whole)
    run.load({1: 12, 2: 22, 3: 30}, clear=2)
    assert run.days == [(1, 12), (2, 22), (3, 30)]


def test_a_named_day_without_rows_is_emptied(run: Backfill) -> None:
    run.narrow(1, 2)
    run.load({2: 22, 3: 33}, clear=1)
    assert run.days == [(2, 22), (3, 30)]


def test_a_replace_of_the_whole_table_leaves_what_is_not_named(run: Backfill) -> None:
    run.mend(7, 70)
    run.narrow(2)
    again = run.load({1: 11, 2: 21}, clear=1, replace_table=True)
    assert run.days == [(1, 10), (2, 21), (3, 30), (7, 70)]
    assert again.left_out == 1


class TestWhose:
    """The plan's clear of the task goes by it, in all tries, and nobody else does."""

    def test_tries_after_it_too(self, run: Backfill) -> None:
        run.narrow(1)
        run.load({1: 11, 2: 21}, clear=1, number=2)
        # Its try committed and failed after that; others of its run were cleared meanwhile.
        run.load({1: 12, 2: 22}, clear=1, number=3)
        run.load({1: 13, 2: 23}, clear=1, number=4)
        assert run.days == [(1, 13), (2, 20), (3, 30)]

    def test_a_try_after_one_that_did_not_commit(self, run: Backfill) -> None:
        run.narrow(1)
        with pytest.raises(InvalidInputError):
            run.load({1: 11, 2: 21}, clear=1, number=2, only_partitions=("day=1",))
        run.load({1: 12, 2: 22}, clear=1, number=3)
        assert run.days == [(1, 12), (2, 20), (3, 30)]

    def test_not_somebody_s_own_clear_later(self, run: Backfill) -> None:
        run.narrow(1)
        run.load({1: 11, 2: 21}, clear=1)
        run.load({1: 12, 2: 22, 3: 32}, clear=2)
        assert run.days == [(1, 12), (2, 22), (3, 32)]

    def test_nor_one_where_the_plan_s_own_never_committed(self, run: Backfill) -> None:
        run.narrow(1)
        with pytest.raises(InvalidInputError):
            run.load({1: 11, 2: 21}, clear=1, only_partitions=("day=1",))
        run.load({1: 12, 2: 22, 3: 32}, clear=2)
        assert run.days == [(1, 12), (2, 22), (3, 32)]

    def test_nor_a_program_that_is_no_task(self, run: Backfill) -> None:
        run.narrow(1)
        run.load({1: 11, 2: 21, 3: 31}, owner=Owner(application="by hand"))
        assert run.days == [(1, 11), (2, 21), (3, 31)]

    def test_nor_where_the_run_was_loaded_since(self, run: Backfill) -> None:
        planned = run.table.job_of_key(RUN)
        run.load({1: 11, 2: 21, 3: 31}, clear=1)
        run.narrow(1, job=planned)
        run.load({1: 12, 2: 22, 3: 32}, clear=2)
        assert run.days == [(1, 12), (2, 22), (3, 32)]

    def test_a_plan_whose_time_is_over_is_no_word_on_either(self, run: Backfill) -> None:
        run.narrow(1, seconds=100)
        run.clock.advance(101)
        with pytest.raises(InvalidInputError, match="its time, 100 s, is over"):
            run.load({1: 11, 2: 21, 3: 31}, clear=1)
        assert run.days == [(1, 10), (2, 20), (3, 30)]
        run.load({1: 11, 2: 21, 3: 31}, clear=2)
        assert run.days == [(1, 11), (2, 21), (3, 31)]


@pytest.mark.parametrize("on_conflict", OnConflict)
def test_what_others_load_after_the_plan_is_a_conflict(
    run: Backfill, on_conflict: OnConflict
) -> None:
    run.narrow(1)
    run.mend(1, 99)
    with pytest.raises(CommitConflictError):
        run.load({1: 11, 2: 21}, clear=1, on_conflict=on_conflict)
    assert run.days == [(1, 99), (2, 20), (3, 30)]


class TestWhole:
    """A plan that lets a run make all again binds it to what the plan has seen there, too."""

    @pytest.mark.parametrize("on_conflict", OnConflict)
    @pytest.mark.parametrize("mode", ["overwrite", "append"])
    def test_what_others_load_after_the_plan_is_a_conflict(
        self, run: Backfill, mode: str, on_conflict: OnConflict
    ) -> None:
        run.narrow(1, 2, 3, whole=True)
        run.mend(2, 99, mode)
        there = run.days
        with pytest.raises(CommitConflictError):
            run.load({1: 11, 2: 21, 3: 31}, clear=1, on_conflict=on_conflict)
        assert run.days == there
        # Somebody's own clear has what he asks for.
        run.load({1: 12, 2: 22, 3: 32}, clear=2)
        assert run.days == [(1, 12), (2, 22), (3, 32)]

    def test_it_makes_whatever_its_rows_have(self, run: Backfill) -> None:
        run.narrow(1, 2, 3, whole=True)
        again = run.load({1: 11, 4: 41}, clear=1)
        assert run.days == [(1, 11), (4, 41)]
        assert (again.narrows, again.left_out) == (None, 0)

    def test_it_empties_nothing_that_the_plan_has_not_seen(self, run: Backfill) -> None:
        policy: dict[str, Any] = {"replace_table": True}
        run.mend(7, 70)
        run.narrow(1, 2, 3, whole=True)
        run.mend(8, 80)
        run.load({1: 11, 4: 41}, clear=1, **policy)
        assert run.days == [(1, 11), (4, 41), (7, 70), (8, 80)]
        # Somebody's own clear empties all.
        run.load({1: 12}, clear=2, **policy)
        assert run.days == [(1, 12)]

    def test_so_do_its_tries(self, run: Backfill) -> None:
        run.narrow(1, 2, 3, whole=True)
        run.load({1: 11, 4: 41}, clear=1, number=2)
        run.load({1: 12, 2: 22}, clear=1, number=3)
        assert run.days == [(1, 12), (2, 22)]
        run.mend(2, 99)
        with pytest.raises(CommitConflictError):
            run.load({1: 13, 2: 23}, clear=1, number=4)
        assert run.days == [(1, 12), (2, 99)]

    def test_one_that_begins_late_is_not_refused(self, run: Backfill) -> None:
        run.narrow(1, 2, 3, seconds=100, whole=True)
        run.clock.advance(101)
        run.load({1: 11, 2: 21, 3: 31}, clear=1)
        assert run.days == [(1, 11), (2, 21), (3, 31)]


def test_of_two_plans_at_once_one_is_left(run: Backfill) -> None:
    root, partitions = run.table.root, {"day=1": 1}
    last = run.table.job_of_key(RUN)
    assert last is not None
    said = [Narrowing(new_write_id(), RUN, last, partitions, 60, PLANNER) for _ in range(3)]
    assert run.table.run(leave_narrowing(root, said[0], None))
    assert not run.table.run(leave_narrowing(root, said[1], None))
    left = run.table.run(read_narrowing(root, RUN))
    assert run.table.run(leave_narrowing(root, said[1], left))
    assert not run.table.run(leave_narrowing(root, said[2], left))


@pytest.mark.parametrize("whole", [False, True])
def test_job_that_is_about_other_partitions_by_now_is_refused(run: Backfill, whole: bool) -> None:
    """As by a mapped task whose list has changed: it took out what the run had loaded."""
    run.narrow(1, 3, whole=whole)
    with pytest.raises(InvalidInputError, match="make day=3 again, and its job may write day=1, d"):
        run.load({1: 11, 4: 41}, clear=1, replace_partitions=("day=1", "day=4"))
    assert run.days == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize(
    "policy",
    [
        {"mode": "append"},
        {"on_repeat": "append"},
        {"replace_table": True, "schema_mode": "overwrite"},
    ],
)
def test_a_job_that_would_change_the_others_too_is_refused(
    run: Backfill, policy: dict[str, Any]
) -> None:
    run.narrow(1)
    with pytest.raises(InvalidInputError, match="it would change the others too"):
        run.load({1: 11, 2: 21}, clear=1, **policy)
    assert run.days == [(1, 10), (2, 20), (3, 30)]


def test_a_crash_at_any_request_leaves_it_narrowed() -> None:
    for survived in range(100):
        run = Backfill()
        run.load({1: 10, 2: 20})
        run.mend(2, 22)
        run.narrow(1)
        left = iter(range(survived))

        def die(request: Any, carry_out: Any, left: Iterator[int] = left) -> Any:
            if next(left, None) is None:
                raise Crash
            return carry_out(request)

        table = run.table
        table.driver.fault = die  # pyrefly: ignore[missing-attribute]
        rows = pa.table({"value": [11, 21], "day": [1, 2]})
        owner = Owner(task_id="load", try_number=2, series="2026-01-01 1 10")
        try:
            with table.job(
                rows.schema,
                mode="overwrite",
                idempotency_key=RUN,
                on_repeat="replace_own",
                owner=owner,
            ) as job:
                job.write(rows)
            crashed = False
        except Crash:
            crashed = True
        assert run.days in ([(1, 10), (2, 22)], [(1, 11), (2, 22)])
        run.load({1: 12, 2: 23}, clear=1, number=3)
        assert run.days == [(1, 12), (2, 22)]
        if not crashed:
            return
    raise AssertionError("it never ended")
