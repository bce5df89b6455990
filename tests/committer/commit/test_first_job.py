"""The making of a table by its first job's commit: beside other first jobs, readers, adoption and
committers that only list, at every request; and what faults leave of it."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import faults
from support.faults import Crash, on
from support.memory_store import MemoryDriver, flatten
from support.protocol import DAY1, DAY2, DAY3, ROOT, SCHEMA, World, write_task
from zero_rename.committer import (
    AdoptReport,
    CommitConflictError,
    DamagedError,
    JobFencedError,
    JobSpec,
    Mode,
    RefusedError,
    Snapshot,
    StoreUnreachableError,
    TableMismatchError,
    TableNotFoundError,
    ZeroRenameError,
)
from zero_rename.committer.commit.commit import commit_job
from zero_rename.committer.commit.open import open_job
from zero_rename.committer.commit.state.found_table import find_table
from zero_rename.committer.format.job_spec import NOBODY, Coordination
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.head import PartitionHead
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.scan.current_table import current_snapshot
from zero_rename.committer.store.requests import Put, Step, Unknown
from zero_rename.committer.upkeep.adopt import adopt
from zero_rename.committer.upkeep.recovery import recover
from zero_rename.committer.upkeep.verify import verify

OTHER = pa.schema([("value", pa.string()), ("month", pa.int32())])
MONTH1 = "month=1"


def parquet() -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({"value": [1]}), target)
    return target.getvalue()


PARQUET = parquet()


def older(*partitions: str) -> World:
    """A directory with a file in each of these partitions."""
    world = World()
    for partition in partitions:
        foreign(world, partition)
    return world


def foreign(world: World, partition: str, name: str = "part-0.parquet") -> str:
    key = f"{ROOT.partition_prefix(partition)}{name}"
    world.store.apply(Put(key, PARQUET))
    return key


def job(world: World, *partitions: str, other: bool = False, **policy: Any) -> Step[str]:
    """A whole first job, of another layout and other columns where so asked."""
    spec = JobSpec(
        OTHER if other else SCHEMA, partition_by=("month",) if other else ("day",), **policy
    )
    opened = yield from open_job(world.context, spec)
    result = yield from write_task(opened, partitions)
    yield from commit_job(world.context, opened, [result])
    return opened.job


def seen(world: World) -> list[tuple[str, str]]:
    """The files that a reader sees: partition, and job or none."""
    driver = MemoryDriver(world.store)
    files = driver.run(current_snapshot(world.context, None)).files
    return [(file.partition, file.job) for file in files]


def is_made(world: World) -> bool:
    """Whether there is a table that counts."""
    found = world.driver.run(find_table(world.context))
    return found is not None and found.counts


def record(world: World) -> TableRecord:
    found = world.driver.run(find_table(world.context))
    assert found is not None
    assert found.counts
    return found.record


def interrupted(
    make: Callable[[], World], step: Callable[[World], Step[Any]], meanwhile: Callable[[World], Any]
) -> Iterator[tuple[World, Any, list[Any]]]:
    """A step with something else before each of its requests in turn, and beside none: the world
    then, what came of the step, or the error, and of what was done meanwhile."""
    world = make()
    world.driver.requests.clear()
    world.driver.run(step(world))
    for at in range(len(world.driver.requests) + 1):
        yield _interrupted(make(), step, at, meanwhile)


def _interrupted(
    world: World, step: Callable[[World], Step[Any]], at: int, meanwhile: Callable[[World], Any]
) -> tuple[World, Any, list[Any]]:
    told: list[Any] = []
    world.driver.fault = faults.at(at + 1, lambda: told.append(meanwhile(world)))
    try:
        mine = world.driver.run(step(world))
    except (RefusedError, Crash) as error:
        mine = error
    world.driver.fault = None
    return world, mine, told


def dies(world: World) -> None:
    raise Crash


def elsewhere(world: World, step: Step[Any]) -> Any:
    """Run a step in another process."""
    try:
        return MemoryDriver(world.store).run(step)
    except RefusedError as error:
        return error


class TestTwoFirstJobs:
    @pytest.mark.parametrize("before", [(), (DAY1, DAY2)])
    def test_of_one_layout_both_count(self, before: tuple[str, ...]) -> None:
        for world, mine, told in interrupted(
            lambda: older(*before), lambda w: job(w, DAY1), lambda w: elsewhere(w, job(w, DAY2))
        ):
            self.check(world, [mine, *told], [(name, "") for name in before])

    def test_of_two_layouts_one_counts(self) -> None:
        outcomes = set()
        for world, mine, told in interrupted(
            World, lambda w: job(w, DAY1), lambda w: elsewhere(w, job(w, MONTH1, other=True))
        ):
            self.check(world, [mine, *told], [])
            outcomes.add(tuple(isinstance(answer, str) for answer in (mine, *told)))
        assert {(True, False), (False, True)} <= outcomes
        assert (True, True) not in outcomes

    @staticmethod
    def check(world: World, told: list[Any], before: list[tuple[str, str]]) -> None:
        committed = {answer for answer in told if isinstance(answer, str)}
        refused = [answer for answer in told if not isinstance(answer, str)]
        assert all(
            isinstance(answer, TableMismatchError | JobFencedError | CommitConflictError)
            for answer in refused
        ), refused
        assert committed
        found = seen(world)
        assert {name for _, name in found} - {""} == committed
        assert [entry for entry in found if not entry[1]] == before
        assert sorted({name for name, _ in found}) == sorted(
            {name for name, _ in before}
            | ({DAY1} if isinstance(told[0], str) else set())
            | ({n for n, j in found if j in committed - {told[0]}} if len(told) > 1 else set())
        )
        world.assert_clean()


def test_a_first_job_that_dies_anywhere_leaves_no_layout_or_all_of_itself() -> None:
    """Recovered, the next first job makes its own table, unless the dead one had decided."""
    fates = set()
    for world, _, _ in interrupted(World, lambda w: job(w, DAY1), dies):
        with suppress(TableNotFoundError):
            elsewhere(world, recover(world.context, patience=0))
        made = is_made(world)
        answer = elsewhere(world, job(world, MONTH1, other=True))
        if made:
            assert isinstance(answer, TableMismatchError)
            assert [name for name, _ in seen(world)] == [DAY1]
        else:
            assert seen(world) == [(MONTH1, answer)]
        world.purge()  # What a probe left, too.
        world.assert_clean()
        fates.add(made)
    assert fates == {True, False}


def test_readers_see_what_was_there_or_all_of_the_first_job() -> None:
    before = [(DAY1, ""), (DAY2, "")]
    states = set()
    for world, mine, found in interrupted(
        lambda: older(DAY1, DAY2), lambda w: job(w, DAY2, DAY3), seen
    ):
        after = [(DAY1, ""), (DAY2, ""), (DAY2, mine), (DAY3, mine)]
        assert seen(world) == after
        for state in found:
            assert state in (before, after)
            states.add(state == after)
    assert states == {True, False}


class Process:
    """A step that goes on one request at a time, beside others."""

    def __init__(self, world: World, step: Step[Any]) -> None:
        self._driver = MemoryDriver(world.store)
        self._step = flatten(step)
        self._answer: Any = None
        self.result: Any = None
        self.done = False

    def go_on(self) -> None:
        try:
            request = self._step.send(self._answer)
        except StopIteration as stop:
            self.result, self.done = stop.value, True
        except ZeroRenameError as error:
            self.result, self.done = error, True
        else:
            self._answer = self._driver.perform(request)


@pytest.mark.parametrize("seed", range(60))
def test_random_walks_of_first_jobs_and_a_reader(seed: int) -> None:
    """Every second time with two layouts; one of the writers dies in every third."""
    rng = random.Random(seed)
    before = [(name, "") for name in (DAY1, DAY2)] if seed % 4 > 1 else []
    world = older(*(name for name, _ in before))
    other = bool(seed % 2) and not before
    second = (MONTH1, "month=2") if other else (DAY2, DAY3)
    writers = [
        Process(world, job(world, DAY1, DAY2)),
        Process(world, job(world, *second, other=other)),
    ]
    reader = Process(world, current_snapshot(world.context, None))
    dies_at = rng.randrange(80) if seed % 3 == 0 else None
    alive = [*writers, reader]
    for count in range(100_000):
        if count == dies_at and writers[0] in alive:
            alive.remove(writers[0])
        alive = [process for process in alive if not process.done]
        if not alive:
            break
        rng.choice(alive).go_on()
    elsewhere(world, recover(world.context, patience=0))
    told = [writer.result for writer in writers if isinstance(writer.result, str)]
    found = seen(world)
    assert [entry for entry in found if not entry[1]] == before
    jobs = sorted(name for _, name in found if name)
    assert all(jobs.count(name) == 2 for name in jobs)
    assert set(told) <= set(jobs)
    assert len({name.partition("=")[0] for name, _ in found}) <= 1
    if isinstance(reader.result, Snapshot):
        read = [(file.partition, file.job) for file in reader.result.files]
        assert [entry for entry in read if not entry[1]] == before
        own = [name for _, name in read if name]
        assert all(own.count(name) == 2 and name in jobs for name in own)
    else:
        assert isinstance(reader.result, TableNotFoundError), reader.result


class TestRecord:
    @pytest.mark.parametrize("applied", [True, False])
    def test_an_answer_that_is_lost(self, applied: bool) -> None:
        world = World()
        lost = Unknown("no answer")
        world.driver.fault = on(Put, lost, ROOT.table_key, applied=applied, times=1)
        assert world.driver.run(job(world, DAY1)) == world.jobs_of(DAY1)[0]

    def test_a_store_that_never_answers_decides_nothing(self) -> None:
        world = World()
        world.driver.fault = on(Put, Unknown("no answer"), ROOT.table_key)
        with pytest.raises(StoreUnreachableError, match="Nothing is decided"):
            world.driver.run(job(world, DAY1))
        world.driver.fault = None
        assert not is_made(world)
        world.assert_clean()

    def test_the_next_job_spares_readers_the_look_at_the_first(self) -> None:
        world = World()

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, Put) and request.key == ROOT.table_key and request.if_match:
                return Unknown("no answer")
            return apply(request)

        world.driver.fault = fault
        first = world.load(DAY1)
        world.driver.fault = None
        assert record(world).first == first.job
        world.load(DAY1)
        assert record(world).first is None

    def test_a_silent_first_job_in_the_middle_is_fenced(self) -> None:

        def another(world: World) -> Any:
            if world.store.keys(ROOT.table_key):
                return elsewhere(world, job(world, MONTH1, other=True))
            return None

        for world, mine, told in interrupted(World, lambda w: job(w, DAY1), another):
            if isinstance(mine, JobFencedError):
                assert seen(world) == [(MONTH1, told[0])]
                return
        pytest.fail("nobody met the record of an undecided first job")

    def test_no_note_where_the_first_job_writes_all_that_is_there(self) -> None:
        world = older(DAY1)
        world.load(DAY1)
        assert not record(world).unadopted
        assert len(seen(world)) == 2

    def test_files_that_come_while_it_writes_are_noted(self) -> None:
        world = World()
        opened = world.open()
        foreign(world, DAY2)
        world.commit(opened, world.write(opened, DAY1))
        assert seen(world) == [(DAY1, opened.job), (DAY2, "")]

    def test_files_of_another_layout_that_come_while_it_writes_are_refused(self) -> None:
        world = World()
        opened = world.open()
        foreign(world, MONTH1)
        with pytest.raises(TableMismatchError, match="month=1"):
            world.commit(opened, world.write(opened, DAY1))
        assert not is_made(world)
        assert world.listed(DAY1) == []
        world.assert_clean()


class TestOlderFiles:
    def test_a_head_that_never_moved_hides_nothing(self) -> None:
        """A job that claimed and was refused leaves a head of version 0."""
        world = older(DAY1, DAY2)
        world.load(DAY2)
        opened = world.open(Mode.FAIL_IF_EXISTS)
        with pytest.raises(CommitConflictError):
            world.commit(opened, world.write(opened, DAY1))
        assert world.store.keys(ROOT.head_key(DAY1))
        assert (DAY1, "") in seen(world)
        world.load(DAY1)
        assert len(world.jobs_of(DAY1)) == 2

    def test_files_of_this_table_s_own_jobs_count_by_heads_alone(self) -> None:
        """Whatever brought one into a partition whose head has not moved."""
        world = older(DAY1, DAY2, DAY3)
        report = world.load(DAY3)
        aborted = world.open()
        world.abort(aborted)
        for name in (report.job, aborted.job):
            foreign(world, DAY1, f"part-00000-{name}-0000.parquet")
        foreign(world, DAY2, "part-00000-zr1-00000000000000000000000000-0000.parquet")
        assert len(world.snapshot([DAY1]).files) == 1
        with pytest.raises(DamagedError, match="no record is here"):
            world.snapshot([DAY2])
        with pytest.raises(DamagedError, match="no record is here"):
            world.load(DAY1, DAY2)
        world.load(DAY1)
        assert len(world.snapshot([DAY1]).files) == 2

    def test_what_has_read_them_is_held_against_them(self) -> None:
        world = older(DAY1, DAY2, DAY3)
        world.load(DAY3)
        base = world.snapshot().base
        assert base.version(DAY1) == 0
        world.load(DAY1)
        opened = world.open(Mode.REPLACE, base=base)
        with pytest.raises(CommitConflictError):
            world.commit(opened, world.write(opened, DAY1))


class TestAdoptionBesideOthers:
    @staticmethod
    def world() -> World:
        world = older(DAY1, DAY2, DAY3)
        world.load(DAY3)
        return world

    @staticmethod
    def adopting(world: World) -> Step[AdoptReport]:
        return adopt(world.context, NOBODY, apply=True)

    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
    def test_a_writer_at_any_moment(self, mode: Mode) -> None:
        for world, _, told in interrupted(
            self.world, self.adopting, lambda w: elsewhere(w, job(w, DAY1, mode=mode))
        ):
            elsewhere(world, self.adopting(world))
            files = [name for partition, name in seen(world) if partition == DAY1]
            written = [answer for answer in told if isinstance(answer, str)]
            kept = [] if written and mode is Mode.REPLACE else [""]
            assert files == kept + written, told
            assert [partition for partition, _ in seen(world)].count(DAY2) == 1

    def test_a_reader_at_any_moment(self) -> None:
        before = [name for name, _ in seen(self.world())]
        for world, _, found in interrupted(self.world, self.adopting, seen):
            assert all([name for name, _ in state] == before for state in found)
            assert [name for name, _ in seen(world)] == before

    def test_another_committer_s_file_at_any_moment_is_seen_or_named(self) -> None:

        def loads(world: World) -> list[str]:
            return [foreign(world, DAY1, "late.parquet"), foreign(world, "day=4")]

        for world, _, told in interrupted(self.world, self.adopting, loads):
            named = {finding.key for finding in elsewhere(world, verify(world.context))}
            visible = {file.key for file in world.snapshot().files}
            assert {key for keys in told for key in keys} <= named | visible

    def test_one_that_dies_anywhere_is_finished_by_the_next(self) -> None:
        before = [name for name, _ in seen(self.world())]
        for world, _, _ in interrupted(self.world, self.adopting, dies):
            assert [name for name, _ in seen(world)] == before
            elsewhere(world, recover(world.context, patience=0))
            elsewhere(world, self.adopting(world))
            assert [name for name, _ in seen(world)] == before
            assert set(world.snapshot().versions) == {DAY1, DAY2, DAY3}
            assert not record(world).unadopted
            world.assert_clean()


class TestLeftByAnOldVersion:
    """Versions before wrote ``table.json`` when a first job opened, and left it where it failed."""

    @staticmethod
    def world() -> World:
        world = World()
        left = TableRecord("old", ("month",), OTHER, Coordination.STORE, StoreFacts())
        world.store.apply(Put(ROOT.table_key, left.encode()))
        failed = Decision.abort("zr1-" + "0" * 26, "w")
        world.store.apply(Put(ROOT.decision_key(failed.job), failed.encode()))
        return world

    @staticmethod
    def corrected(world: World) -> Step[str]:
        return job(world, DAY1)

    @staticmethod
    def fitting(world: World) -> Step[str]:
        return job(world, MONTH1, other=True)

    def test_a_corrected_job_makes_the_table_anew(self) -> None:
        world = self.world()
        made = world.driver.run(self.corrected(world))
        assert seen(world) == [(DAY1, made)]
        found = record(world)
        assert (found.partition_by, found.first, found.instead) == (("day",), None, None)
        world.assert_clean()

    def test_also_where_that_job_had_claimed(self) -> None:
        world = self.world()
        head = PartitionHead(MONTH1, "w")
        world.store.apply(Put(ROOT.head_key(MONTH1), head.encode()))
        made = world.driver.run(self.corrected(world))
        assert seen(world) == [(DAY1, made)]

    def test_a_table_with_a_committed_job_does_not_give_way(self) -> None:
        world = self.world()
        kept = world.driver.run(self.fitting(world))
        with pytest.raises(TableMismatchError):
            world.driver.run(self.corrected(world))
        assert seen(world) == [(MONTH1, kept)]

    def test_nor_one_with_an_open_job(self) -> None:
        world = self.world()
        spec = JobSpec(OTHER, partition_by=("month",))
        opened = world.driver.run(open_job(world.context, spec))
        with pytest.raises(TableMismatchError):
            world.driver.run(self.corrected(world))
        world.commit(opened, world.write(opened, MONTH1))
        assert seen(world) == [(MONTH1, opened.job)]

    @pytest.mark.parametrize("whole", [True, False], ids=["at once", "committed afterwards"])
    def test_beside_a_job_that_fits_it(self, whole: bool) -> None:
        """Which opens at any request: one of the two is refused, and the other one's rows stay."""
        spec = JobSpec(OTHER, partition_by=("month",))

        def fits(world: World) -> Any:
            step = self.fitting(world) if whole else open_job(world.context, spec)
            return elsewhere(world, step)

        for world, mine, told in interrupted(self.world, self.corrected, fits):
            other = told[0] if told else fits(world)
            if not whole and not isinstance(other, RefusedError):
                result = world.write(other, MONTH1)
                other = elsewhere(world, commit_job(world.context, other, [result]))
                other = other if isinstance(other, RefusedError) else other.job
            committed = [
                (partition, done)
                for partition, done in ((DAY1, mine), (MONTH1, other))
                if not isinstance(done, RefusedError)
            ]
            assert len(committed) <= 1
            if committed:
                assert seen(world) == committed

    def test_one_that_dies_anywhere_leaves_a_table_that_counts(self) -> None:
        for world, _, _ in interrupted(self.world, self.corrected, dies):
            elsewhere(world, recover(world.context, patience=0))
            jobs = [name for _, name in seen(world)] if is_made(world) else []
            for step in (self.fitting(world), self.corrected(world)):
                done = elsewhere(world, step)
                jobs += [] if isinstance(done, RefusedError) else [done]
            assert {name for _, name in seen(world)} == set(jobs)
