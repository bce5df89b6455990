"""A recovery that dies at any request, or meets another one there: a repeat finishes the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, at
from support.memory_store import ManualClock, MemoryDriver, MemoryStore, flatten
from support.s3a_jobs import JOB, ROOT, MagicJob, World, a_try
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    Delete,
    Deleted,
    DeleteMany,
    ListObjects,
    Put,
    Unknown,
)
from zero_rename.s3a.hadoop.job_traces import DIRECTION_NAME
from zero_rename.s3a.recovery.liveness import Action, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs
from zero_rename.s3a.runs.ledger import open_tries, open_try

DEAD = RecoveryOptions(apply=True, dead={JOB})
BACK = replace(DEAD, direction=Action.BACK)
SETTLED = {JobOutcome.ROLLED_FORWARD, JobOutcome.ROLLED_BACK}


def halfway() -> World:
    """Two of six files are written; attempts that lost and one that still ran left uploads."""
    world = World()
    job = world.job()
    for task in range(3):
        job.task(task)
    job.upload(job.name(0))
    job.running(7)
    job.complete(job.files[0], job.files[3])
    world.driver.run(open_try(ROOT, a_try(JOB, Owner("d", "r", "t", -1, 1))))
    world.clock.advance(10)
    return world


def small() -> World:
    """One of two files is written, another attempt still ran."""
    world = World()
    job = world.job()
    job.task(0, ["day=1"])
    job.task(1, ["day=1"])
    job.running(2)
    job.complete(job.files[0])
    world.clock.advance(10)
    return world


def lossy() -> World:
    """One of its uploads is lost: it can only be rolled back."""
    world = halfway()
    upload_id, upload = next(iter(world.store.uploads.items()))
    world.store.apply(AbortUpload(upload.key, upload_id))
    return world


def files_of(world: World, tasks: int = 3, days: int = 2) -> list[str]:
    job = MagicJob(world.store.apply)
    names = [job.name(task, f"day={day + 1}") for task in range(tasks) for day in range(days)]
    return sorted(f"{ROOT.prefix}/{name}" for name in names)


def run(
    store: MemoryStore, options: RecoveryOptions, fault: Any = None
) -> tuple[RecoveredJob, ...]:
    driver = MemoryDriver(store, fault, store.clock)
    return driver.run(recover_jobs(ROOT, options))


def requests_of(world: World, options: RecoveryOptions) -> int:
    driver = MemoryDriver(world.store.copy(), None, ManualClock(world.clock.now))
    driver.run(recover_jobs(ROOT, options))
    return len(driver.requests)


def assert_settled(world: World, forward: bool, files: list[str] | None = None) -> None:
    files = files_of(world) if files is None else files
    assert world.visible() == (files if forward else [])
    world.assert_clean()
    key = f"{ROOT.prefix}/_SUCCESS"
    if forward:
        assert SuccessMarker.parse(world.store.objects[key].body, key).job == JOB
    else:
        assert key not in world.store.objects


CASES = [
    pytest.param(halfway, DEAD, True, id="forward"),
    pytest.param(lossy, DEAD, False, id="back"),
    pytest.param(halfway, BACK, False, id="back-on-demand"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("made", "options", "forward"), CASES)
def test_it_dies_at_any_request(
    made: Callable[[], World], options: RecoveryOptions, forward: bool, after: bool
) -> None:
    # S3A conformance 50
    total = requests_of(made(), options)
    assert total > 20
    for last in range(total):
        world = made()
        with pytest.raises(Crash):
            run(world.store, options, at(last + 1, Crash, applied=after))
        seen = world.visible()
        run(world.store, options)
        assert_settled(world, forward)
        run(world.store, options)
        assert_settled(world, forward)
        assert set(seen) <= set(files_of(world))
        if forward:
            (known,) = world.driver.run(open_tries(ROOT)).known
            assert known.record is not None
            assert known.record.recovered == (JOB,), f"a retry would double at {last}"


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(("made", "options", "forward"), CASES)
def test_the_answer_to_any_change_is_lost(
    made: Callable[[], World], options: RecoveryOptions, forward: bool, applied: bool
) -> None:
    # S3A conformance 65
    changes = (Put, Delete, DeleteMany, CompleteUpload, AbortUpload)
    total = requests_of(made(), options)
    for lost in range(total):
        world = made()
        count = -1

        def fault(request: Any, apply: Any, lost: int = lost) -> Any:
            nonlocal count
            count += 1
            if count != lost or not isinstance(request, changes):
                return apply(request)
            if applied:
                apply(request)
            return Unknown("timeout")

        first = run(world.store, options, fault)
        if all(job.outcome in SETTLED for job in first):
            assert_settled(world, forward)
        run(world.store, options)
        assert_settled(world, forward)


@pytest.mark.parametrize(
    ("made", "first", "second"),
    [
        pytest.param(halfway, DEAD, DEAD, id="both-forward"),
        pytest.param(lossy, DEAD, DEAD, id="both-back"),
        pytest.param(halfway, DEAD, BACK, id="forward-meets-back"),
        pytest.param(halfway, BACK, DEAD, id="back-meets-forward"),
    ],
)
def test_two_at_once(
    made: Callable[[], World], first: RecoveryOptions, second: RecoveryOptions
) -> None:
    """The second runs as a whole between any two requests of the first: they agree."""
    # S3A conformance 100
    total = requests_of(made(), first)
    directions = set()
    for number in range(1, total + 1):
        world = made()
        others: list[RecoveredJob] = []

        def other(world: World = world, others: list[RecoveredJob] = others) -> None:
            others.extend(run(world.store, second))

        mine = run(world.store, first, at(number, other))
        run(world.store, first)
        visible = world.visible()
        assert visible in ([], files_of(world)), f"half a job is visible before request {number}"
        assert_settled(world, bool(visible))
        told = {job.outcome for job in (*mine, *others)} & SETTLED
        assert told <= {JobOutcome.ROLLED_FORWARD if visible else JobOutcome.ROLLED_BACK}
        directions.add(bool(visible))
    assert directions


class Recoverer:
    """A recovery that goes on request by request, when it is told to."""

    def __init__(self, world: World, options: RecoveryOptions) -> None:
        self._world = world
        self._step = flatten(recover_jobs(ROOT, options))
        self._driver = MemoryDriver(world.store, None, world.clock)
        self._answer: Any = None
        self.result: tuple[RecoveredJob, ...] | None = None

    def go_on(self, requests: int = 100_000) -> None:
        until = len(self._driver.requests) + requests
        while self.result is None and len(self._driver.requests) < until:
            try:
                request = self._step.send(self._answer)
            except StopIteration as stop:
                self.result = stop.value
            else:
                self._answer = self._driver.perform(request)


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(DEAD, BACK, id="forward-back"),
        pytest.param(BACK, DEAD, id="back-forward"),
        pytest.param(DEAD, DEAD, id="forward-forward"),
    ],
)
def test_two_in_turns(first: RecoveryOptions, second: RecoveryOptions, resumed: bool) -> None:
    """The first stops at any request, the second at any later one, then the first goes on to its
    end, and then the second does, or dies there: every pair of points."""
    totals = requests_of(small(), first), requests_of(small(), second)
    files = files_of(small(), 2, 1)
    for stop in range(totals[0]):
        for then in range(1, totals[1]):
            world = small()
            one, two = Recoverer(world, first), Recoverer(world, second)
            one.go_on(stop)
            two.go_on(then)
            one.go_on()
            if resumed:
                two.go_on()
            told = {job.outcome for r in (one, two) for job in r.result or ()} & SETTLED
            run(world.store, DEAD)
            run(world.store, replace(DEAD, direction=Action.FORWARD))
            visible = world.visible()
            assert visible in ([], files), (stop, then)
            assert_settled(world, bool(visible), files)
            expected = JobOutcome.ROLLED_FORWARD if visible else JobOutcome.ROLLED_BACK
            assert told <= {expected}, (stop, then)


@pytest.mark.parametrize("whose", ["its own", "another's", "an earlier one's"])
def test_it_withdraws_a_direction_only_if_it_wrote_it(whose: str) -> None:
    """Where the job goes on after all. Another recovery may be acting on the one it wrote, and an
    earlier one may have completed files by it."""
    world = small()
    job = MagicJob(world.store.apply)
    written = f"{job.tree}{DIRECTION_NAME}"

    def decide_and_die() -> None:
        def dying(request: Any, apply: Any) -> Any:
            answer = apply(request)
            if isinstance(request, Put) and request.key == written:
                raise Crash
            return answer

        with pytest.raises(Crash):
            run(world.store, DEAD, dying)

    if whose == "an earlier one's":
        decide_and_die()
    steps = ["decide", "go on"]

    def fault(request: Any, apply: Any) -> Any:
        if isinstance(request, Put) and request.key == written and "decide" in steps:
            steps.remove("decide")
            if whose == "another's":
                decide_and_die()
        listed = isinstance(request, ListObjects) and request.prefix == job.tree
        if listed and written in world.store.objects and "go on" in steps:
            steps.remove("go on")
            world.clock.advance(1)
            job.task(5, ["day=1"])
        return apply(request)

    (found,) = run(world.store, DEAD, fault)
    assert steps == (["decide"] if whose == "an earlier one's" else [])
    assert found.outcome is JobOutcome.LEFT
    assert "changed while it was looked at" in found.reason
    assert (written in world.store.objects) is (whose != "its own")
    assert world.visible() == files_of(world, 1, 1)


def test_it_dies_while_its_tree_is_being_deleted() -> None:
    """DeleteObjects is not atomic: whatever of the tree is left, a repeat goes the same way."""
    for kept in range(8):
        for order in (1, -1):
            world = halfway()

            def fault(request: Any, apply: Any, kept: int = kept, order: int = order) -> Any:
                answer = apply(request) if not isinstance(request, DeleteMany) else None
                if isinstance(request, DeleteMany):
                    apply(DeleteMany(request.items[::order][kept:]))
                    raise Crash
                return answer

            with pytest.raises(Crash):
                run(world.store, DEAD, fault)
            world.put_marker("another")
            body = world.store.objects[f"{ROOT.prefix}/_SUCCESS"].body
            (again,) = run(world.store, BACK)
            assert again.outcome is JobOutcome.ROLLED_FORWARD
            assert world.visible() == files_of(world)
            assert world.store.objects[f"{ROOT.prefix}/_SUCCESS"].body == body
            world.assert_clean()


def test_deleting_a_partly_known_answer() -> None:
    """A DeleteMany of which some keys fail leaves what a repeat needs."""
    world = halfway()

    def fault(request: Any, apply: Any) -> Any:
        if isinstance(request, DeleteMany):
            apply(DeleteMany(request.items[1:]))
            return Deleted({key: "InternalError" for key, _ in request.items[:1]})
        return apply(request)

    (first,) = run(world.store, DEAD, fault)
    assert first.outcome is JobOutcome.FAILED
    assert "cannot be deleted: InternalError" in first.reason
    (again,) = run(world.store, DEAD)
    assert again.outcome is JobOutcome.ROLLED_FORWARD
    assert_settled(world, True)
