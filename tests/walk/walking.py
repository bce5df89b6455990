"""Walks: a plan carried out, its errors told to the oracle, and the end that it comes to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from walk import readers
from walk.oracle import Violation, Write, ids
from walk.plan import Operation, Plan, make_plan
from walk.verbs import OF_ONE_JOB, VERBS
from walk.world import ROOT, Crash, Process, World, in_memory

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
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.upkeep.recovery import Outcome, Recovered
from zero_rename.committer.upkeep.verify import Finding

#: Errors that an operation may meet though nothing went wrong beside it.
_USUAL = (RefusedError,)


@dataclass
class Walks:
    """What walks came to.

    :param outcomes: of their operations, by verb and outcome: *committed*, *refused*, *done*, or an
        error's name.
    :param left: removed files that a second Complete brought back for good.
    """

    walks: int = 0
    commits: int = 0
    requests: int = 0
    left: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, other: Walks) -> None:
        self.walks += other.walks
        self.commits += other.commits
        self.requests += other.requests
        self.left += other.left
        self.outcomes += other.outcomes

    @property
    def table(self) -> list[str]:
        """Verbs and what became of them, as lines of Markdown."""
        ended = ("committed", "done", "refused")
        head = ["| verb | committed | done | reported as done before | errors |"]
        lines = [*head, "|---|---:|---:|---:|---:|"]
        for verb in sorted({verb for verb, _ in self.outcomes}):
            counts = [self.outcomes[verb, word] for word in ended]
            every = sum(n for (it, _), n in self.outcomes.items() if it == verb)
            cells = " | ".join(f"{n:,}" for n in (*counts, every - sum(counts)))
            lines.append(f"| {verb} | {cells} |")
        came = "Removed files that a second Complete brought back for good (*Not guaranteed*)"
        return [*lines, "", f"{came}: {self.left:,}."]


class WalkFailure(AssertionError):
    """A walk whose table is not what the oracle says, or that ended in a foreign error."""

    def __init__(self, plan: Plan, step: str, cause: BaseException, trace: list[str]) -> None:
        self.plan, self.step, self.cause, self.trace = plan, step, cause, trace
        told = f"{type(cause).__name__}: {cause}"
        lines = [told, f"in {step}", str(plan), "what happened:", *trace]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[WalkFailure], tuple[object, ...]]:
        cause = Violation(f"{type(self.cause).__name__}: {self.cause}")
        return WalkFailure, (self.plan, self.step, cause, self.trace)


def walk(plan: Plan) -> Walks:
    """Carry out a plan.

    :raises WalkFailure: at the first thing that is not as it should be.
    """
    walker = _Walker(plan)
    with in_memory():
        return walker.to_the_end()


class _Walker:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.step = ""

    def to_the_end(self) -> Walks:
        world = World(self.plan, self.carry_out)
        try:
            for operation in self.plan.operations:
                self.step = str(operation)
                self.carry_out(world, operation)
                if operation.look:
                    self.step = f"a look after {operation}"
                    _look(world)
            self.step = "the end"
            _end(world)
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
                told = VERBS[operation.verb](world, process, operation)
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
        if isinstance(error, SnapshotGoneError) and len(world.oracle.commits) == before:
            raise error
        if quiet and not isinstance(error, _USUAL):
            raise error
        word = _word(error)
        if word and operation.verb in OF_ONE_JOB and process.jobs:
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


def _look(world: World) -> None:
    """Somebody reads the whole table, with nothing in the way."""
    process = world.process(9)
    table = process.fresh()
    if not world.oracle.commits:
        return
    start = len(world.oracle.commits)
    snapshot = table.snapshot()
    seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a look", start, snapshot.schema, seen, None)
    _check_markers(world)


def _end(world: World) -> None:
    """Whoever was at work has gone; recovery and purge settle it, and everything is compared."""
    world.open_jobs.clear()
    world.deliver(every=True)
    process = world.process(8)
    table = process.fresh()
    if not world.oracle.commits and not world.objects(ROOT.control_prefix):
        return
    _settled(table.recover(0.0))
    if not world.was_late:
        _no_claims(world)
    _settled(table.purge(apply=True, patience=0.0).recovered)
    _nothing_left(world, process)
    if not world.oracle.commits:
        return
    _compare(world, process)
    table.gc(0.0, apply=True)
    table.write_index()
    _compare(world, process)
    _still_writable(world)
    _compare(world, process)


def _settled(jobs: Iterable[Recovered]) -> None:
    failed = [it for it in jobs if it.outcome in (Outcome.FAILED, Outcome.LEFT)]
    if failed:
        raise Violation(f"recovery did not settle {failed}")


def _no_claims(world: World) -> None:
    keys = [*world.objects(ROOT.heads_prefix), *world.objects(ROOT.runs_prefix)]
    left = [key for key in keys if b'"claim":"' in world.store.objects[key].body]
    if left:
        raise Violation(f"claims are left on {left}")


def _nothing_left(world: World, process: Process) -> None:
    table = process.fresh()
    left = [*world.objects(ROOT.open_prefix)]
    left += [f"upload of {key}" for key in world.store.upload_keys(f"{ROOT.prefix}/")]
    if left:
        raise Violation(f"recovery and purge have left {left}")
    _no_claims(world)
    for job, word in world.oracle.told.items():
        state = table.job_state(job)
        if (state is JobState.COMMITTED) != (word == "committed"):
            raise Violation(f"{job} was told {word} and is {state}")
    for job in world.oracle.commits:
        if table.job_state(job) is not JobState.COMMITTED:
            raise Violation(f"{job} was committed, and is {table.job_state(job)}")


def _compare(world: World, process: Process) -> None:
    """Every reader sees what the oracle says."""
    table, oracle = process.fresh(), world.oracle
    snapshot, now = table.snapshot(), len(oracle.commits)
    seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a reader by heads", now, snapshot.schema, seen, None)
    rows = readers.of_arrow(world, table.scan().to_arrow())
    readers.require_state(world, "a scan", now, snapshot.schema, rows, None)
    readers.require_count(world, now, table.scan().count(), None)
    kinds = {it.name: str(it.type) for it in table.schema if it.name not in ("id", "day")}
    if kinds != oracle.columns:
        raise Violation(f"the table's columns are {kinds}, and were to be {oracle.columns}")
    _compare_listings(world)
    _check_markers(world)
    _last_has_marker(world)
    _compare_findings(world, table.verify())


def _compare_findings(world: World, findings: Iterable[Finding]) -> None:
    """``verify`` names every file that came back for good, and nothing but those and what a
    resolution has kept."""
    left = world.left & world.store.objects.keys()
    unnamed = {it.key for it in findings if it.kind == "unnamed"}
    if left - unnamed:
        raise Violation(f"verify does not name {left - unnamed}, which came back")
    kept = world.oracle.kept
    expected = {it.key for it in findings if it.kind == "unnamed" and it.partition in kept} | left
    found = [it for it in findings if it.kind != "unnamed" or it.key not in expected]
    if found:
        raise Violation(f"verify finds {found}")


def _check_markers(world: World) -> None:
    """A ``_SUCCESS`` stands for what a listing of its partition shows, whenever it is there."""
    oracle = world.oracle
    for name in {name for named in oracle.named for name in named} - set(oracle.kept):
        found = world.store.objects.get(ROOT.marker_key(name))
        job = None if found is None else SuccessMarker.parse(found.body, name).job
        if job == oracle.touches(name)[-1]:
            listed = readers.ids_in(world, readers.data_keys(world, name))
            if listed != ids(oracle.state, name):
                raise Violation(f"{name} has the marker of {job}, and a listing shows {listed}")


def _last_has_marker(world: World) -> None:
    """Where the last job of a partition was to leave a marker, that one is there. That of a table
    without partitions may be a job's that changed nothing."""
    oracle = world.oracle
    if not world.plan.partitioned:
        return
    for name in {name for named in oracle.named for name in named}:
        last = oracle.touches(name)[-1]
        effect = oracle.effects[last]
        found = world.store.objects.get(ROOT.marker_key(name))
        marker = None if found is None else SuccessMarker.parse(found.body, name).job
        if isinstance(effect, Write) and effect.marks and marker != last:
            raise Violation(f"{name} was changed last by {last}, and has the marker of {marker}")


def _compare_listings(world: World) -> None:
    oracle = world.oracle
    names = set(oracle.state) | {world.partition(day) for day in (1, 2, 3)}
    for name in sorted(names):
        listed = readers.ids_in(world, readers.data_keys(world, name))
        wanted = ids(oracle.state, name)
        if listed != wanted and (name not in oracle.kept or wanted - listed):
            raise Violation(f"a listing of {name} shows {listed}, the table has {wanted}")


def _still_writable(world: World) -> None:
    """A plain append to every partition goes through."""
    walker = _Walker(world.plan)
    last = Operation(99_990, "append", process=7, days=(1, 2, 3))
    walker.carry_out(world, last)
    if walker.outcomes["append", "committed"] != 1:
        raise Violation(f"nobody can append any more: {world.trace[-1]}")


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
    seeds: Iterable[int], until: float | None = None, verbs: Collection[str] = ()
) -> Walks:
    """Walk the plans of seeds, one after the other.

    :param verbs: that they are about; none: each seed's own.
    :param until: a time of the monotonic clock after which no second one is begun.
    :raises WalkFailure: at the first that fails; its plan says no more than it must.
    """
    walks = Walks()
    for seed in seeds:
        if until is not None and walks.walks and time.monotonic() > until:
            break
        plan = make_plan(seed, verbs)
        try:
            walks.add(walk(plan))
        except WalkFailure as failure:
            raise minimised(plan, failure) from failure
    return walks
