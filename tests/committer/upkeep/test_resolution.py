"""Resolutions and undoings on a store in memory: what their plans are made of, and what is beside
them. With rows and on a server: ``maintenance/test_conflicts.py``."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support.memory_store import MemoryStore
from support.protocol import DAY1, ROOT, World, memory_table
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    Mode,
    OnRepeat,
    RefusedError,
    UnfinishedCommitError,
)
from zero_rename.committer.commit.snapshot import take_snapshot
from zero_rename.committer.format.job_spec import NOBODY
from zero_rename.committer.store.requests import Delete, Deleted, DeleteMany, Put, Step
from zero_rename.committer.upkeep.conflicts.resolution import (
    ResolutionPlan,
    plan_resolution,
    plan_undoing,
)
from zero_rename.committer.upkeep.conflicts.touches import Touch, touches_of

HOUR, YEAR = 3600.0, 365 * 86_400.0
OWN: dict[str, Any] = {"idempotency_key": "run", "on_repeat": OnRepeat.REPLACE_OWN}


def resolution(world: World, *keep: str) -> ResolutionPlan:
    return world.driver.run(plan_resolution(world.context, DAY1, keep, HOUR, YEAR))


def undoing(world: World, job: str) -> ResolutionPlan:
    return world.driver.run(plan_undoing(world.context, DAY1, job))


def carry_out(world: World, plan: ResolutionPlan, discard: bool = False) -> str:
    """Commit the job of a plan, which writes its rows as one file; its id."""
    opened = world.open(**vars(plan.spec(NOBODY, discard)))
    return world.commit(opened, world.write(opened, *[DAY1][: len(plan.files)])).job


def resolve(world: World, *keep: str) -> str:
    return carry_out(world, resolution(world, *keep))


def undo(world: World, job: str) -> str:
    return carry_out(world, undoing(world, job))


def test_of_jobs_decided_in_one_second_the_newest_is_that_of_the_last_version(world: World) -> None:
    last, first = sorted((world.open(), world.open()), key=lambda it: it.job)
    for opened in (first, last):
        world.commit(opened, world.write(opened, DAY1))
    plan = resolution(world, "newest")
    assert (plan.resolution.kept, plan.resolution.dropped) == ((last.job,), (first.job,))


def keep_newest(world: World, last: str) -> ResolutionPlan:
    return resolution(world, "newest")


def undo_an_append(world: World, last: str) -> ResolutionPlan:
    return undoing(world, last)


def undo_a_resolution(world: World, last: str) -> ResolutionPlan:
    return undoing(world, last)


Make = Callable[[World, str], ResolutionPlan]


def with_another_at(strike: int, make: Make, mode: Mode) -> tuple[bool, bool, bool]:
    """A plan that is made and carried out, while another job commits as the request of a number is
    sent.

    :returns: whether there was such a request, whether the plan was carried out, and whether the
        other job's rows are there, or were told to go.
    """
    world = World()
    last = [world.load(DAY1).job for _ in range(2)][1]
    if make is undo_a_resolution:
        last = resolve(world, "newest")
    other, requests, came = world.with_context(), itertools.count(), list[str]()

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if next(requests) == strike:
            with contextlib.suppress(RefusedError):  # It may be too late, too.
                came.append(other.load(DAY1, mode=mode).job)
        return apply(request)

    world.driver.fault = fault
    accounted, done = set[str](), False
    with contextlib.suppress(RefusedError):
        plan = make(world, last)
        accounted |= {file.job for file in plan.files} | set(plan.resolution.dropped)
        carry_out(world, plan)
        done = True
    if not done:
        accounted.clear()
    return next(requests) > strike, done, set(came) <= accounted | set(other.jobs_of(DAY1))


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE], ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    "make", [keep_newest, undo_an_append, undo_a_resolution], ids=lambda make: make.__name__
)
def test_a_job_that_commits_beside_it_is_never_taken_away(make: Make, mode: Mode) -> None:
    walks = (with_another_at(strike, make, mode) for strike in itertools.count())
    found = list(itertools.takewhile(lambda walk: walk[0], walks))
    assert len(found) > 15
    assert {done for _, done, _ in found} == {True, False}
    lost = [strike for strike, (_, _, whole) in enumerate(found) if not whole]
    assert not lost, f"taken away at the requests {lost}"


class TestUndoing:
    """Only what is on record, whole."""

    def test_a_replace_of_files_from_before_the_table(self, world: World) -> None:
        world.store.apply(Put(f"{ROOT.partition_prefix(DAY1)}old.parquet", b"ten rows"))
        job = world.load(DAY1, mode=Mode.REPLACE).job
        with pytest.raises(InvalidInputError, match="is not on record") as caught:
            undoing(world, job)
        assert job in str(caught.value)
        assert world.jobs_of(DAY1) == [job]

    def test_a_first_replace_of_nothing(self, world: World) -> None:
        job = world.load(DAY1, mode=Mode.REPLACE).job
        assert undoing(world, job).files == ()
        undo(world, job)
        assert world.jobs_of(DAY1) == []

    def test_an_ordinary_replace(self, world: World) -> None:
        world.load(DAY1)
        with pytest.raises(InvalidInputError, match="1 is gone"):
            undoing(world, world.load(DAY1, mode=Mode.REPLACE).job)

    @pytest.mark.parametrize("spoil", ["gone", "damaged"])
    @pytest.mark.parametrize("which", [0, 1])
    def test_a_decision_of_the_state_before_is_lost(
        self, world: World, which: int, spoil: str
    ) -> None:
        """A list of files with a hole would be rows that go in silence."""
        jobs = [world.load(DAY1).job for _ in range(3)]
        done = resolve(world, *jobs)
        key = ROOT.decision_key(jobs[which])
        world.store.apply(Delete(key) if spoil == "gone" else Put(key, b"{"))
        with pytest.raises(InvalidInputError, match="is not on record"):
            undoing(world, done)

    def test_the_last_decision_is_lost(self, world: World) -> None:
        """The head names a list of files, so that all can be read; who changed it last, nobody
        knows."""
        jobs = [world.load(DAY1).job for _ in range(9)]
        world.store.apply(Delete(ROOT.decision_key(jobs[-1])))
        for job in jobs[-2:]:
            with pytest.raises(InvalidInputError, match="is not the job that changed"):
                undoing(world, job)

    def test_files_that_a_repeated_run_found_are_not_doubled(self, world: World) -> None:
        """A run's later try takes the place of its earlier one, and both name the file that was
        there before them."""
        old = f"{ROOT.partition_prefix(DAY1)}old.parquet"
        world.store.apply(Put(old, b"ten rows"))
        world.load(DAY1, **OWN)
        last = world.load(DAY1, **OWN).job
        other = world.load(DAY1).job
        held = [file.key for file in world.snapshot([DAY1]).files]
        assert sorted(file.key for file in undoing(world, resolve(world, other)).files) == sorted(
            held
        )
        assert held[0] == old
        assert world.jobs_of(DAY1) != [last]


def deletes_nothing(request: Any, apply: Callable[[Any], Any]) -> Any:
    if isinstance(request, DeleteMany):
        return Deleted({key: "SlowDown" for key, _ in request.items})
    return apply(request)


class TestFormerColumns:
    """Files of columns that were overwritten cannot be read by the table's, where one is left."""

    @pytest.fixture
    def jobs(self, world: World) -> tuple[str, str]:
        """Two that wrote, the second with other columns; it could remove nothing."""
        first = world.load(DAY1).job

        columns = pa.schema([("name", pa.string()), ("day", pa.int32())])
        opened = world.open(
            Mode.REPLACE, schema=columns, replace_table=True, schema_mode="overwrite"
        )
        result = world.write(opened, DAY1)
        world.driver.fault = deletes_nothing
        with pytest.raises(UnfinishedCommitError):
            world.commit(opened, result)
        world.driver.fault = None
        return first, opened.job

    def test_an_overwrite_is_not_undone(self, world: World, jobs: tuple[str, str]) -> None:
        with pytest.raises(InvalidInputError, match="other columns"):
            undoing(world, jobs[1])

    def test_nor_are_former_rows_kept(self, world: World, jobs: tuple[str, str]) -> None:
        for kept in (jobs[:1], jobs, ("all",)):
            with pytest.raises(InvalidInputError, match="other columns"):
                resolution(world, *kept)

    def test_the_new_ones_are(self, world: World, jobs: tuple[str, str]) -> None:
        done = resolve(world, "newest")
        assert [file.job for file in undoing(world, done).files] == [jobs[1]]


class TestRowsWrittenAgain:
    """A resolution's rows are those of jobs before it: nobody's come twice, and nobody's go with
    them."""

    def test_what_it_holds_is_not_brought_back_beside_it(self, world: World) -> None:
        first, second = (world.load(DAY1).job for _ in range(2))
        done = resolve(world, "all")
        plan = resolution(world, "all")
        assert [file.job for file in plan.files] == [done]
        assert set(plan.resolution.kept) == {first, second, done}

    def test_nor_a_resolution_that_was_undone(self, world: World) -> None:
        for _ in range(2):
            world.load(DAY1)
        done = undo(world, resolve(world, "newest"))
        assert [file.job for file in resolution(world, "all").files] == [done]

    def test_what_is_within_it_cannot_be_dropped_alone(self, world: World) -> None:
        first, second = (world.load(DAY1).job for _ in range(2))
        done = resolve(world, "all")
        with pytest.raises(InvalidInputError, match="written again") as caught:
            resolution(world, second, done)
        assert first in str(caught.value)
        assert f"--undo {done}" in str(caught.value.remedy)

    def test_rows_of_others_do_not_go_with_it(self, world: World) -> None:
        other = world.load(DAY1).job
        world.advance(2 * HOUR)
        first, second = (world.load(DAY1).job for _ in range(2))
        done = resolve(world, second)
        with pytest.raises(InvalidInputError, match=r"written again") as caught:
            resolution(world, first)
        assert {done, other} <= set(str(caught.value).replace(",", " ").split())

    def test_nor_rows_of_files_that_nobody_of_the_table_wrote(self, world: World) -> None:
        world.store.apply(Put(f"{ROOT.partition_prefix(DAY1)}old.parquet", b"ten rows"))
        first, second = (world.load(DAY1).job for _ in range(2))
        resolve(world, second)
        with pytest.raises(InvalidInputError, match="written again"):
            resolution(world, first)

    def test_a_run_outside_of_the_conflict_cannot_take_back_its_own(self, world: World) -> None:
        """Its rows are among those that the resolution wrote again, and would be there twice."""
        world.load(DAY1, **OWN)
        world.advance(2 * HOUR)
        second = [world.load(DAY1).job for _ in range(2)][1]
        done = resolve(world, second)
        with pytest.raises(CommitConflictError, match="so they cannot be taken out"):
            world.load(DAY1, **OWN)
        assert world.jobs_of(DAY1) == [done]

    def test_nor_a_run_whose_former_try_was_kept(self, world: World) -> None:
        """Its last try's rows are gone, and those of the one before were written again."""
        first = world.load(DAY1, **OWN).job
        opened, result = world.written(DAY1, mode=Mode.REPLACE, **OWN)
        world.driver.fault = deletes_nothing
        with pytest.raises(UnfinishedCommitError):
            world.commit(opened, result)
        world.driver.fault = None
        done = resolve(world, first)
        with pytest.raises(CommitConflictError, match="so they cannot be taken out"):
            world.load(DAY1, **OWN)
        assert world.jobs_of(DAY1) == [done]
        last = world.load(DAY1, mode=Mode.REPLACE, **OWN).job
        assert world.jobs_of(DAY1) == [last]


def test_job_that_came_after_the_state_is_left_out(world: World) -> None:
    """What each wrote, and what of it was visible, is of one state."""
    jobs = [world.load(DAY1).job for _ in range(2)]
    other, came = world.with_context(), list[str]()
    read = list[Any]()

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        answer = apply(request)
        if getattr(request, "prefix", "") == ROOT.heads_prefix:
            read.append(request)
            if len(read) == 2:  # The look at the heads is over.
                came.append(other.load(DAY1, mode=Mode.REPLACE).job)
        return answer

    world.driver.fault = fault

    def look() -> Step[list[Touch]]:
        state = yield from take_snapshot(world.context, [DAY1])
        return (yield from touches_of(world.context, DAY1, state, HOUR, YEAR))

    touches = world.driver.run(look())
    assert came
    assert [(it.job, it.visible) for it in touches] == [(job, 1) for job in jobs]


@pytest.mark.parametrize(
    "given",
    [
        {"keep": ["newest"], "undo": "zr1-00000000000000000000000000"},
        {"keep": ["newest"], "window": float("nan")},
        {"keep": ["newest"], "since": -1.0},
    ],
)
def test_contradictory_or_invalid_arguments_are_refused_before_anything_is_read(
    given: dict[str, Any],
) -> None:
    table = memory_table(MemoryStore())
    with pytest.raises(InvalidInputError, match=r"Both keep=|Invalid (window|since)="):
        table.keep_rows(DAY1, **given)
    assert not table.driver.requests  # type: ignore[attr-defined]
