"""Walks: a plan carried out, its errors told to the oracle, and the end that it comes to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from simulation.decoded import decoded_once, log_read_once
from walk import delta_end, directory_end
from walk.delta_verbs import OF_ONE_JOB as OF_ONE_DELTA_JOB
from walk.delta_verbs import VERBS as DELTA_VERBS
from walk.delta_world import DeltaWorld
from walk.directory_verbs import OF_ONE_JOB, VERBS
from walk.directory_world import DirectoryWorld
from walk.hadoop_walking import walk_hadoop_seed
from walk.plan import DELTA, DIRECTORIES, HADOOP, Operation, Plan, make_plan
from walk.verbs import Verb
from walk.walks import WalkFailure, Walks
from walk.world import Crash, Process, World, in_memory

from zero_rename.committer.commit.interrupted import JobInterrupted
from zero_rename.committer.commit.state.job_state import JobState
from zero_rename.committer.errors import (
    DamagedError,
    RefusedError,
    SnapshotGoneError,
    UnfinishedCommitError,
    VerificationError,
    ZeroRenameError,
)
from zero_rename.committer.format.layout import JOB_ID

#: Errors that an operation may meet though nothing went wrong beside it; whether a state may be
#: gone is asked before.
_USUAL = (RefusedError, SnapshotGoneError)


@dataclass(frozen=True)
class _Layout:
    """What a walk of a layout is made of.

    :param of_one_job: verbs whose errors tell the fate of one job.
    :param look: reads the whole table, with nothing in the way.
    :param end: has recovery and purge settle everything, and compares what is left.
    """

    world: Callable[[Plan, Callable[[World, Operation], None]], World]
    verbs: Mapping[str, Verb]
    of_one_job: Collection[str]
    look: Callable[[World], None]
    end: Callable[[World], None]


_LAYOUTS = {
    DIRECTORIES: _Layout(DirectoryWorld, VERBS, OF_ONE_JOB, directory_end.look, directory_end.end),
    DELTA: _Layout(DeltaWorld, DELTA_VERBS, OF_ONE_DELTA_JOB, delta_end.look, delta_end.end),
}


def walk(plan: Plan) -> Walks:
    """Carry out a plan.

    :raises WalkFailure: at the first thing that is not as it should be.
    """
    walker = _Walker(plan)
    with in_memory(), decoded_once(), log_read_once():
        return walker.to_the_end()


class _Walker:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layout = _LAYOUTS[plan.layout]
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.step = ""

    def to_the_end(self) -> Walks:
        world = self.layout.world(self.plan, self.carry_out)
        try:
            with world.in_order():
                for operation in self.plan.operations:
                    self.step = str(operation)
                    self.carry_out(world, operation)
                    if operation.look:
                        self.step = f"a look after {operation}"
                        self.layout.look(world)
                self.step = "the end"
                self.layout.end(world)
        except Exception as error:
            cause = world.violation or error
            raise WalkFailure(self.plan, self.step, cause, world.trace) from error
        commits = len(world.oracle.commits)
        return Walks(1, commits, world.arrived, len(world.left), self.outcomes)

    def carry_out(self, world: World, operation: Operation) -> None:
        """One operation, by its process."""
        world.clock.advance(operation.wait)
        process = world.process(operation.process)
        quiet = operation.is_undisturbed and not world.late and not _is_busy(world)
        world.quiet = quiet
        before = len(world.oracle.commits)
        outcome, failure = "nothing said", None
        with process.carrying_out(operation):
            try:
                told = self.layout.verbs[operation.verb](world, process, operation)
                outcome = told or "done"
                if told is not None:
                    world.oracle.tell(process.jobs[-1], told)
            except (Crash, KeyboardInterrupt, ZeroRenameError) as error:
                failure = error
                outcome = self._failed(world, process, operation, error, quiet, before)
            finally:
                world.trace.append(f"  {operation.number} {operation.verb}: {outcome}")
        self.outcomes[operation.verb, outcome.split(":")[0]] += 1
        world.ended(failure)
        if world.violation is not None:
            raise world.violation

    def _failed(
        self,
        world: World,
        process: Process,
        operation: Operation,
        error: BaseException,
        quiet: bool,
        before: int,
    ) -> str:
        """What an operation's error says of its job, held against the oracle."""
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, DamagedError | VerificationError):
            raise error
        if (
            isinstance(error, SnapshotGoneError)
            and len(world.oracle.commits) == before
            and not world.may_be_gone(error)
        ):
            raise error
        if quiet and not isinstance(error, _USUAL) and not world.may_be_unknown(error):
            raise error
        word = _word(error)
        if word and operation.verb in self.layout.of_one_job and process.jobs:
            world.oracle.tell(process.jobs[-1], word)
        return said


def _is_busy(world: World) -> bool:
    return any(process.during is not None for process in world.processes.values())


def _word(error: BaseException) -> str:
    """Whether an error says that its job is committed, or refused; ``""``: neither."""
    if isinstance(error, JobInterrupted):
        return {JobState.COMMITTED: "committed", JobState.ABORTED: "refused"}.get(error.state, "")
    if isinstance(error, KeyboardInterrupt):
        notes = " ".join(getattr(error, "__notes__", ()))
        return (
            "committed" if "is committed:" in notes else "refused" if "is aborted:" in notes else ""
        )
    if isinstance(error, UnfinishedCommitError):
        return "committed"
    return "refused" if isinstance(error, RefusedError) else ""


def failure_of(plan: Plan) -> WalkFailure | None:
    try:
        walk(plan)
    except WalkFailure as failure:
        return failure
    return None


def minimised(plan: Plan, failure: WalkFailure, tries: int = 400) -> WalkFailure:
    """A shorter plan that fails in the same way, by leaving out what it does not need."""
    kind = _kind(failure)
    changed = True
    while changed:
        changed = False
        for shorter in _shorter(failure.plan):
            tries -= 1
            if tries < 0:
                return failure
            found = failure_of(shorter)
            if found is not None and _kind(found) == kind:
                failure, changed = found, True
                break
    return failure


def _kind(failure: WalkFailure) -> str:
    """What a failure says, without names and numbers."""
    text = str(failure.cause).split(";")[0]
    letters = "".join(it for it in JOB_ID.sub("", text) if not it.isdigit())
    return f"{type(failure.cause).__name__} {letters[:25]}"


def _shorter(plan: Plan) -> list[Plan]:
    made: list[Plan] = []
    operations = plan.operations

    def put(changed: tuple[Operation, ...]) -> None:
        made.append(replace(plan, operations=changed))

    count = len(operations)
    for size in (count // 2, count // 4, 1):
        if size:
            for at in range(0, count, size):
                put(operations[:at] + operations[at + size :])
    for at, it in enumerate(operations):
        for simple in _simpler(it):
            if simple != it:
                put((*operations[:at], simple, *operations[at + 1 :]))
    if plan.older:
        made.append(replace(plan, older=()))
    return made


def _simpler(it: Operation) -> Iterator[Operation]:
    yield replace(it, troubles=())
    yield replace(it, beside=())
    for number in range(len(it.troubles)):
        yield replace(it, troubles=it.troubles[:number] + it.troubles[number + 1 :])
    for number, beside in enumerate(it.beside):
        alone = replace(beside, operation=replace(beside.operation, troubles=()))
        yield replace(it, beside=it.beside[:number] + it.beside[number + 1 :])
        yield replace(it, beside=(*it.beside[:number], alone, *it.beside[number + 1 :]))
    yield replace(it, look=False)
    yield replace(it, wait=0.0)
    yield replace(it, days=it.days[:1])


def walk_seeds(
    seeds: Iterable[int],
    until: float | None = None,
    verbs: Collection[str] = (),
    layout: str = DIRECTORIES,
) -> Walks:
    """Walk the plans of seeds, one after the other.

    :param verbs: that they are about; none: each seed's own. Not for runs of Hadoop's committers.
    :param until: a time of the monotonic clock after which no second one is begun.
    :raises WalkFailure: at the first that fails; its plan says no more than it must.
    """
    walks = Walks()
    for seed in seeds:
        if until is not None and walks.walks and time.monotonic() > until:
            break
        walks.add(walk_hadoop_seed(seed) if layout == HADOOP else _walk_seed(seed, verbs, layout))
    return walks


def _walk_seed(seed: int, verbs: Collection[str], layout: str) -> Walks:
    plan = make_plan(seed, verbs, layout)
    try:
        return walk(plan)
    except WalkFailure as failure:
        raise minimised(plan, failure) from failure
