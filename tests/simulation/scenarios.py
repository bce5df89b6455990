"""Who takes part in a simulation, and the store they begin on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from simulation.explore import Explorer
from simulation.histories import base_note
from simulation.invariants import LOST, ROOT
from simulation.judge import PROMISED, run_to_end
from simulation.merged import inserting, key_row, merged, merging, rows_of
from simulation.narrowed import RUN, cleared
from simulation.program import Ids, Program
from simulation.rewritten import rewriting
from simulation.sim_store import EMPTY, Store, apply
from simulation.world import Participant

from support.memory_store import Behaviour, flatten
from support.no_columns import no_columns
from zero_rename.committer import Context, JobSpec, Mode, OnConflict, Owner, SuccessMarkers, Waiting
from zero_rename.committer.commit.commit import abort_job, commit_job
from zero_rename.committer.commit.index.write_index import write_index
from zero_rename.committer.commit.narrowed_run import end_narrowing, leave_narrowing, read_narrowing
from zero_rename.committer.commit.open import open_job
from zero_rename.committer.commit.snapshot import Snapshot, state_without_table, take_snapshot
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.commit.state.decide import read_decision, refuse_late
from zero_rename.committer.commit.state.heads import list_heads_and_index, read_head
from zero_rename.committer.commit.state.heartbeat import send_heartbeat
from zero_rename.committer.commit.state.job_state import OpenedJob
from zero_rename.committer.errors import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    RefusedError,
    StoreUnreachableError,
    StreamError,
    TableNotFoundError,
    TaskLateError,
    TaskResultsError,
)
from zero_rename.committer.format.job_spec import Coordination, OnRepeat, SchemaMode
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.format.records.pending_file import PendingFile, TaskResult
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.committer.format.settling import Settling
from zero_rename.committer.row_rewrite import check_rewritable, rewrite_policies
from zero_rename.committer.store.requests import (
    AbortUpload,
    Absent,
    All,
    CreateUpload,
    Delete,
    Done,
    Get,
    ListUploads,
    ObjectSettings,
    Put,
    Refused,
    Step,
    UploadPart,
)
from zero_rename.committer.upkeep.adopt import adopt
from zero_rename.committer.upkeep.compaction import compaction_spec, find_compactible
from zero_rename.committer.upkeep.conflicts.resolution import (
    ResolutionPlan,
    plan_resolution,
    plan_undoing,
)
from zero_rename.committer.upkeep.gc.collect import gc
from zero_rename.committer.upkeep.purging.purge import purge
from zero_rename.committer.upkeep.purging.upload_selection import Selection, UploadsPath
from zero_rename.committer.upkeep.purging.upload_sweep import UploadSweep
from zero_rename.committer.upkeep.rebuilt_heads import rebuild_heads
from zero_rename.committer.upkeep.recovery import recover
from zero_rename.committer.upkeep.repair import repair

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])
ONE, TWO = "day=1", "day=2"
#: Markers cost requests, and states.
UNMARKED: dict[str, Any] = {"success_markers": SuccessMarkers.NONE}
_WAITING = Waiting(silence=1.0, cap=2.0, poll=1.0)


def job_id(name: str) -> str:
    """A job id with ``name`` in it, in the letters that ids have."""
    return f"zr1-{name.upper().translate(str.maketrans('ILOU', '1100')):0>26}"


def process_of(name: str) -> str:
    """The process that a participant runs in: each has one, and its name."""
    return name


def context_of(ids: Ids, name: str = "", limits: Limits | None = None) -> Context:
    return Context(
        ROOT,
        write_id=ids,
        job_id=lambda: job_id(name),
        process=lambda: process_of(name),
        waiting=_WAITING,
        limits=limits or Limits(),
        read_columns=no_columns,
    )


#: An earlier job: its mode, its partitions, and perhaps its policy.
Before = tuple[Any, ...]
#: What a writer's task results become before its driver has them.
Spoil = Callable[[TaskResult], list[TaskResult]]


def _as_they_are(result: TaskResult) -> list[TaskResult]:
    return [result]


def twice_reported(result: TaskResult) -> list[TaskResult]:
    """The same files, as if another task had written them too."""
    return [result, replace(result, task=1)]


def _write(
    opened: OpenedJob, partitions: Sequence[str], held: Mapping[str, Collection[str]] | None = None
) -> Step[TaskResult]:
    files = []
    wanted = [it for it in partitions if opened.narrowed is None or it in opened.narrowed]
    for number, partition in enumerate(wanted):
        base = opened.base.get(partition)
        rows = (held or {}).get(partition, ())
        settles = opened.settles.get(partition)
        note = base_note(opened.spec, base, opened.schema.names, rows, settles)
        settings = ObjectSettings({"zero-rename-job": opened.job})
        key = ROOT.data_key(partition, 0, opened.job, number)
        created = yield from CreateUpload(key, settings)
        part = yield from UploadPart(key, created.upload_id, 1, key.encode())
        if isinstance(part, Refused):
            raise StreamError("The upload was aborted.", key=key)
        files.append(
            PendingFile(key, partition, created.upload_id, (part.etag,), len(key), 1, note)
        )
    left_out = len(partitions) - len(wanted)
    return TaskResult(opened.job, 0, 0, tuple(files), left_out=left_out)


def _job(
    context: Context,
    spec: JobSpec,
    partitions: Sequence[str],
    spoil: Spoil = _as_they_are,
    held: Mapping[str, Collection[str]] | None = None,
) -> Step[Any]:
    opened = yield from open_job(context, spec)
    if opened.repeated is not None:
        return opened.repeated
    try:
        result = yield from _write(opened, partitions, held=held)
    except StreamError as error:
        yield from abort_job(context, opened, [])
        raise TaskResultsError(error.message) from error
    except StoreUnreachableError:
        yield from abort_job(context, opened, [])
        raise
    return (yield from commit_job(context, opened, spoil(result)))


def writer(
    name: str,
    mode: Mode,
    *partitions: str,
    limits: Limits | None = None,
    spoil: Spoil = _as_they_are,
    **policy: Any,
) -> Participant:
    """A job with one file in each of ``partitions``, from open to close."""
    spec = JobSpec(policy.pop("schema", SCHEMA), mode, ("day",), **policy)
    program = Program(
        name, lambda ids: _job(context_of(ids, name, limits), spec, partitions, spoil)
    )
    return Participant(
        program, job=job_id(name), whole=spec.replace_table, keeps=spec.keep_replaced
    )


#: Makes the plan of a resolution or an undoing.
Plan = Callable[[Context], Step[ResolutionPlan]]


def resolver(partition: str, *keep: str, name: str = "resolver") -> Participant:
    """A resolution of the conflict over a partition, whenever the runs touched it."""
    return _rewriter(name, lambda context: plan_resolution(context, partition, keep, 1e9, 1e9))


def undoer(partition: str, job: str, name: str = "undoer") -> Participant:
    """Who takes back what a job did to a partition."""
    return _rewriter(name, lambda context: plan_undoing(context, partition, job), back=True)


def _rewriter(name: str, make: Plan, back: bool = False) -> Participant:
    def run(ids: Ids) -> Step[Any]:
        context = context_of(ids, name)
        plan = yield from make(context)
        owner = rewriting((file.key for file in plan.files), plan.resolution.dropped, back)
        partitions = [plan.resolution.partition] if plan.files else []
        return (yield from _job(context, plan.spec(owner, discard=False), partitions))

    return Participant(Program(name, run), job=job_id(name), keeps=True)


def compactor(partition: str, name: str = "compactor") -> Participant:
    """A compaction of a partition that has several files."""

    def run(ids: Ids) -> Step[Any]:
        context = context_of(ids, name)
        plans, _ = yield from find_compactible(context, [partition], 1 << 20)
        if not plans:
            raise InvalidInputError("It has a file already.")
        owner = rewriting((file.key for file in plans[0].files), ())
        spec, _ = yield from compaction_spec(context, plans[0], owner)
        spec = replace(spec, **UNMARKED)
        held = {partition: rows_of(plans[0].files)}
        return (yield from _job(context, spec, [partition], held=held))

    return Participant(Program(name, run), job=job_id(name))


@dataclass(frozen=True)
class MergePlan:
    """What a merge has read, and what it finds to do.

    :param held: the rows of each partition; ``changed``: the partitions that are to have others.
    """

    state: Snapshot
    held: Mapping[str, frozenset[str]]
    changed: tuple[str, ...]


def plan_merge(
    context: Context, partitions: Sequence[str], row: str, earlier: MergePlan | None = None
) -> Step[MergePlan]:
    """By the table's state now: nothing of an earlier attempt outlives it."""
    yield from check_rewritable(context)
    state = yield from take_snapshot(context, partitions)
    found = state.by_partition()
    held = {name: rows_of(found.get(name, ())) for name in partitions}
    return MergePlan(state, held, tuple(name for name in partitions if row not in held[name]))


def merger(name: str, *partitions: str, value: str = "", attempts: int = 1) -> Participant:
    """A merge of a row with the same key into each partition, where it does not have that value.

    :param attempts: how often it may be computed; if it may be again, nobody is told of its job.
    """
    step = partial(_merge, name, partitions, key_row(value or name), attempts)
    return Participant(Program(name, step), job=job_id(name) if attempts == 1 else None)


def _merge(name: str, partitions: Sequence[str], row: str, attempts: int, ids: Ids) -> Step[Any]:
    plan = None
    for number in range(attempts):
        context = context_of(ids, name if attempts == 1 else f"{name}{number}")
        plan = yield from plan_merge(context, partitions, row, plan)
        if not plan.changed:
            return None
        changes = dict.fromkeys(plan.changed, RowChanges(updated=1))
        spec = JobSpec(SCHEMA, partition_by=("day",), owner=merging(row, partitions))
        policies, _ = yield from rewrite_policies(context, plan.state, changes, spec.files)
        spec = replace(spec, **UNMARKED, **policies)
        held = {partition: merged(plan.held[partition], row) for partition in plan.changed}
        try:
            return (yield from _job(context, spec, plan.changed, held=held))
        except CommitConflictError:
            if attempts == 1:
                raise
        except JobFencedError:
            if attempts == 1:
                raise
            return None  # Its user is told, and no attempt is left.
    return None


def inserter(name: str, partition: str) -> Participant:
    """An insertion of a key into a partition, unless any has it."""

    def run(ids: Ids) -> Step[Any]:
        context = context_of(ids, name)
        whole = yield from take_snapshot(context)
        if key_row("it") in rows_of(whole.files):
            return None
        spec = yield from _insertion(context, whole, partition)
        held = {partition: frozenset({key_row("it")})}
        return (yield from _job(context, spec, [partition], held=held))

    return Participant(Program(name, run), job=job_id(name))


def _insertion(context: Context, whole: Snapshot, partition: str) -> Step[JobSpec]:
    """The job that inserts a key into a partition, by a state of all in which none has it."""
    state = whole.chosen([partition])
    spec = JobSpec(SCHEMA, partition_by=("day",), owner=inserting())
    changes = {partition: RowChanges(inserted=1)}
    policies, _ = yield from rewrite_policies(context, state, changes, spec.files)
    return replace(spec, **UNMARKED, **policies)


def again(
    name: str, *partitions: str, named: Sequence[str] = (), after: str = "", **policy: Any
) -> Participant:
    """A try of the run's task, after a clear of it: the plan's, or one by hand.

    :param named: what the plan names; none: it is by hand.
    :param after: it begins when this try has begun, or one has gone by the plan's word.
    """

    def run(ids: Ids) -> Step[Any]:
        context = context_of(ids, name)
        if after and isinstance((yield from Get(ROOT.open_key(job_id(after)))), Absent):
            left = yield from read_narrowing(ROOT, RUN)
            if left is not None and left.said.taken is None:
                return None
        spec = _cleared_spec("plan" if named else "hand", named, **policy)
        return (yield from _job(context, spec, partitions))

    return Participant(Program(name, run), job=job_id(name))


def _cleared_spec(clear: str, named: Sequence[str], **policy: Any) -> JobSpec:
    words: dict[str, Any] = {
        "idempotency_key": RUN,
        "on_repeat": OnRepeat.REPLACE_OWN,
        **UNMARKED,
        **policy,
    }
    return JobSpec(SCHEMA, Mode.REPLACE, ("day",), owner=cleared(clear, named), **words)


def planner(
    name: str, *named: str, makes: Sequence[str], ended: Collection[str] = ()
) -> Participant:
    """Who lets the run make only some partitions again, and clears its task.

    :param makes: what the run makes by itself; ``ended``: other planners who have ended.
    """

    def run(ids: Ids) -> Step[Any]:
        context = context_of(ids, name)
        if not (yield from _leave_word(context, name, named, ended)):
            return None
        try:
            done = yield from _job(context, _cleared_spec(name, named), makes)
        except RefusedError:
            yield from _take_back(context, name)
            raise
        yield from _take_back(context, name)
        return done

    return Participant(Program(name, run), job=job_id(name))


def _leave_word(
    context: Context,
    planner: str,
    named: Sequence[str],
    ended: Collection[str] = (),
    whole: bool = False,
    settles: Mapping[str, Settling] | None = None,
) -> Step[bool]:
    """As an operator does that plans: no word in the place of one that somebody still waits for."""
    state = yield from take_snapshot(context)
    left = yield from read_narrowing(ROOT, RUN)
    theirs = left is not None and left.said.planner.task_id not in (planner, *ended)
    if left is not None and theirs and not left.said.over:
        return False
    last = (yield from read_head(context, Slot.run(ROOT, RUN))).head.last_job
    assert last is not None
    versions = {name: state.versions[name] for name in named}
    who = Owner(task_id=planner)
    said = Narrowing(context.write_id(), RUN, last, versions, 1000, who, whole)
    said = replace(said, settles=settles or {})
    return (yield from leave_narrowing(ROOT, said, left))


def ender(planner: str, name: str = "ender") -> Participant:
    """A planner whose process ends its word late."""
    return Participant(Program(name, lambda ids: _take_back(context_of(ids), planner)))


def _take_back(context: Context, planner: str) -> Step[None]:
    left = yield from read_narrowing(ROOT, RUN)
    if left is not None and left.said.planner.task_id == planner and not left.said.over:
        yield from end_narrowing(ROOT, left, context.write_id())


def outlived(name: str, partition: str, *, commits: bool) -> Participant:
    """A job that ends while an attempt of its task still writes, and a look for uploads when both
    are over.

    :param commits: whether the job has another attempt's result, and commits; else it is aborted.
    """

    def run(ids: Ids) -> Step[Any]:
        context = context_of(ids, name)
        spec = JobSpec(SCHEMA, Mode.APPEND, ("day",), **UNMARKED)
        opened = yield from open_job(context, spec)
        if commits:
            result = yield from _write(opened, (partition,))
            end = commit_job(context, opened, [result])
        else:
            end = abort_job(context, opened, [])
        outcome, _ = yield from All((end, _late_attempt(opened, partition)))
        page = yield from ListUploads(f"{ROOT.prefix}/")
        if page.uploads:
            raise AssertionError(f"uploads are left: {page.uploads}")
        return outcome

    return Participant(Program(name, run), job=job_id(name))


def _late_attempt(opened: OpenedJob, partition: str) -> Step[None]:
    try:
        result = yield from _write(opened, (partition,))
    except StreamError:
        return  # The sweep has aborted it.
    try:
        yield from refuse_late(opened.root, opened.job, result.task)
    except TaskLateError:
        for file in result.files:
            yield from AbortUpload(file.key, file.upload_id)


def evolver(name: str, *partitions: str, **policy: Any) -> Participant:
    """An append that brings a column, named as the job."""
    schema = SCHEMA.append(pa.field(name, pa.int64()))
    policy = {**UNMARKED, "schema_mode": "merge", **policy}
    return writer(name, Mode.APPEND, *partitions, schema=schema, **policy)


def overwriter(name: str, *partitions: str, **policy: Any) -> Participant:
    """A replace of the whole table that leaves it a column named as the job, and no other."""
    schema = pa.schema([pa.field(name, pa.int64()), SCHEMA.field("day")])
    policy = {**UNMARKED, "replace_table": True, "schema_mode": "overwrite", **policy}
    return writer(name, Mode.REPLACE, *partitions, schema=schema, **policy)


def in_turn(partition: str, *modes: Mode | None, name: str = "turns") -> Participant:
    """One process with a job after another, into one partition; the last one wins.

    :param modes: of each job; ``None``: it empties the partition.
    """

    def jobs(ids: Ids) -> Step[None]:
        policy: dict[str, Any] = {"on_conflict": OnConflict.LAST_WINS, **UNMARKED}
        for number, mode in enumerate(modes):
            context = context_of(ids, f"{name}{number}")
            if mode is None:
                empties: dict[str, Any] = {"replace_partitions": (partition,), **policy}
                yield from _job(context, JobSpec(SCHEMA, Mode.REPLACE, ("day",), **empties), ())
            else:
                yield from _job(context, JobSpec(SCHEMA, mode, ("day",), **policy), (partition,))

    return Participant(Program(name, jobs))


def stranger(*keys: str, name: str = "stranger") -> Participant:
    """Somebody who knows nothing of the protocol and writes objects."""

    def write(ids: Ids) -> Step[None]:
        for key in keys:
            yield from Put(key, f"{name} {key}".encode())

    return Participant(Program(name, write))


def witness(*keys: str, name: str = "witness") -> Participant:
    """Another committer, which writes files and then notes, beside the table, those after which
    the table still said that its readers list: they must never be out of sight."""

    def write(ids: Ids) -> Step[None]:
        for key in keys:
            answer = yield from Put(key, f"{name} {key}".encode())
            found: Any = yield from Get(ROOT.table_key)
            listed = TableRecord.decode(found.body, found.key).unadopted
            if listed and isinstance(answer, Done):
                yield from Put(f"{PROMISED}{key}", b"")

    return Participant(Program(name, write))


def adopter(name: str = "adopter") -> Participant:
    """An adoption, which ends with readers that go by heads alone."""
    owner = Owner("simulation", name)

    def run(ids: Ids) -> Step[Any]:
        # A job for each round, so an id for each.
        context = replace(context_of(ids), job_id=lambda: job_id(f"adopt{ids().split('.')[-1]}"))
        try:
            yield from adopt(context, owner, apply=True)
        except JobFencedError:
            return  # A writer that met its claim took it for dead.

    return Participant(Program(name, run))


def cleaner(name: str = "cleaner") -> Participant:
    """A tool that aborts the first upload it finds, as a lifecycle rule does."""

    def clean(ids: Ids) -> Step[None]:
        page = yield from ListUploads(f"{ROOT.prefix}/")
        for upload in page.uploads[:1]:
            yield from AbortUpload(upload.key, upload.upload_id)

    return Participant(Program(name, clean))


def heart(of: str, beats: int = 2, name: str = "heart") -> Participant:
    """Signs of life of a job, beside it."""

    def beat(ids: Ids) -> Step[None]:
        for _ in range(beats):
            yield from send_heartbeat(context_of(ids), job_id(of), 1.0)

    return Participant(Program(name, beat))


def repairer(name: str = "repairer") -> Participant:
    """A repair that accepts losses."""
    return Participant(
        Program(name, lambda ids: repair(context_of(ids), accept_loss=True, patience=0.0))
    )


def loser(partition: str, *moved: str, name: str = "loser") -> Participant:
    """A foreign tool that deletes a partition's head.

    :param moved: the jobs that had moved it at the beginning.
    """

    def lose(ids: Ids) -> Step[None]:
        yield from Put(LOST + partition, " ".join(moved).encode())
        yield from Delete(ROOT.head_key(partition))

    return Participant(Program(name, lose))


def rebuilder(name: str = "rebuilder") -> Participant:
    """A repair that builds lost heads again."""
    return Participant(Program(name, lambda ids: rebuild_heads(context_of(ids, name), apply=True)))


def reader(
    *partitions: str, name: str = "reader", writes: bool = True, limits: Limits | None = None
) -> Participant:
    """A reader of several partitions as one state; ``writes``: whether it may apply what is
    decided."""
    program = Program(name, lambda ids: take_snapshot(context_of(ids, limits=limits), partitions))
    return Participant(program, reads=partitions, writes=writes)


def early_reader(*partitions: str) -> Participant:
    """A reader who may come before there is a table."""

    def read(ids: Ids) -> Step[Snapshot | None]:
        try:
            return (yield from take_snapshot(context_of(ids), partitions))
        except TableNotFoundError:
            return None

    return Participant(Program("reader", read), reads=partitions)


def indexer(*partitions: str, limits: Limits) -> Participant:
    """Who writes the table's index, and then reads several partitions as one state."""

    def index_and_read(ids: Ids) -> Step[Snapshot]:
        context = context_of(ids, limits=limits)
        yield from _write_index(context)
        return (yield from take_snapshot(context, partitions))

    return Participant(Program("indexer", index_and_read), reads=partitions)


def _write_index(context: Context) -> Step[bool]:
    listing = yield from list_heads_and_index(context)
    return (yield from write_index(context, listing))


def recoverer(
    patience: float = 0.0, name: str = "recoverer", limits: Limits | None = None
) -> Participant:
    """Recovery that takes every undecided job for dead: fencing is safe at any time."""
    program = Program(name, lambda ids: recover(context_of(ids, limits=limits), patience))
    return Participant(program)


def purger(foreign_older_than: float | None = None, name: str = "purger") -> Participant:
    """A purge that leaves undecided jobs alone."""
    options = {"patience": 1e9, "foreign_older_than": foreign_older_than, "apply": True}
    program = Program(name, lambda ids: purge(context_of(ids), **options))
    return Participant(program)


def sweeper(name: str = "sweeper") -> Participant:
    """Who aborts the uploads below the table that nobody will complete, of whatever age, fencing
    the jobs that are dead."""
    path = UploadsPath(ROOT.bucket, f"{ROOT.prefix}/")

    def sweep(ids: Ids) -> Step[Any]:
        context = context_of(ids)
        uploads = UploadSweep(
            path, Selection(), lambda _: None, apply=True, context=lambda _: context
        )
        return (yield from uploads.run())

    return Participant(Program(name, sweep))


def collector(name: str = "collector", limits: Limits | None = None) -> Participant:
    """Who makes records small, those of this very moment too: nothing depends on their age."""
    program = Program(name, lambda ids: gc(context_of(ids, limits=limits), -1.0, apply=True))
    return Participant(program)


def foreign_key(partition: str, name: str = "foreign") -> str:
    """Where a file of nobody's lies."""
    return f"{ROOT.partition_prefix(partition)}{name}.parquet"


def table(
    behaviour: Behaviour, *before: Before, foreign: Sequence[str] = (), unadopted: bool = False
) -> Store:
    """A table as earlier jobs left it.

    :param foreign: partitions with a file that was there before them.
    :param unadopted: whether readers list besides the heads.
    """
    record = TableRecord(
        "w", ("day",), SCHEMA, Coordination.STORE, behaviour.facts, unadopted=unadopted
    )
    store, _ = apply(EMPTY, Put(ROOT.table_key, record.encode()), behaviour)
    for partition in foreign:
        store, _ = apply(store, Put(foreign_key(partition), b"foreign"), behaviour)
    for number, (mode, partitions, *policy) in enumerate(before):
        name = f"before{number}"
        options = dict(policy[0]) if policy else {}
        context = context_of(Ids(name), name, options.pop("limits", None))
        spec = JobSpec(SCHEMA, mode, ("day",), **options)
        store = run_to_end(store, _job(context, spec, partitions), behaviour)
    return store


def explorer(
    *participants: Participant,
    behaviour: Behaviour | None = None,
    before: Sequence[Before] | None = ((Mode.APPEND, (ONE, TWO)),),
    foreign: Sequence[str] = (),
    unadopted: bool = False,
    indexed: bool = False,
    **bounds: Any,
) -> Explorer:
    """Explores ``participants`` on a table with some history.

    :param before: earlier jobs; ``None``: there is no table.
    :param foreign: partitions with a file that was there before them.
    :param unadopted: whether readers list besides the heads.
    :param indexed: whether the table has an index.
    :param bounds: as :class:`Explorer` takes them.
    """
    behaviour = behaviour or Behaviour()
    start = EMPTY
    if before is not None:
        start = table(behaviour, *before, foreign=foreign, unadopted=unadopted)
    if indexed:
        start = run_to_end(start, _write_index(context_of(Ids("indexed"))), behaviour)
    return Explorer(participants, start, behaviour, context_of, **bounds)


def narrowed(
    *participants: Participant,
    named: Sequence[str] = (ONE,),
    before: Sequence[Before] = (),
    begun: Sequence[str] = (),
    whole: bool = False,
    settles: Mapping[str, Settling] | None = None,
    **bounds: Any,
) -> Explorer:
    """On a table of which a run has made two partitions, and a plan has let it make some again.

    :param named: by the plan; ``before``: what others have done between.
    :param begun: what the plan's clear has made, in a try that has ended; none: it is to come.
    :param whole: the plan lets it make all, as what is named was then.
    :param settles: the conflicts that it settles by that.
    """
    behaviour = Behaviour()
    own = (Mode.REPLACE, (ONE, TWO), {"idempotency_key": RUN, **UNMARKED})
    start = table(behaviour, own, *before)
    ids = Ids("plan")
    if named:
        word = _leave_word(context_of(ids), "plan", named, (), whole, settles)
        start = run_to_end(start, word, behaviour)
    if begun:
        job = _job(context_of(ids, "begun"), _cleared_spec("plan", named), begun)
        start = run_to_end(start, job, behaviour)
    return Explorer(participants, start, behaviour, context_of, **bounds)


def merged_before(value: str, *participants: Participant, **bounds: Any) -> Explorer:
    """On a table of which a merge has put a row into the first partition."""
    behaviour = Behaviour()
    start = table(behaviour, (Mode.APPEND, (ONE, TWO)))
    merge = _merge("merged", (ONE,), key_row(value), 1, Ids("merged"))
    return Explorer(
        participants, run_to_end(start, merge, behaviour), behaviour, context_of, **bounds
    )


def decided(
    mode: Mode,
    partition: str,
    *participants: Participant,
    behaviour: Behaviour | None = None,
    before: Before = (Mode.APPEND, (ONE, TWO)),
    **bounds: Any,
) -> Explorer:
    """A job that is decided and not applied, its process dead, and who finds it."""
    behaviour = behaviour or Behaviour()
    spec = JobSpec(SCHEMA, mode, ("day",), **UNMARKED)
    dies = _job(context_of(Ids("dead"), "dead"), spec, (partition,))
    start = table(behaviour, before)
    start = run_to_end(start, dies, behaviour, last=ROOT.decision_key(job_id("dead")))
    return Explorer(participants, start, behaviour, context_of, **bounds)


def firsts(
    *partitions: str,
    schemas: Sequence[pa.Schema] = (SCHEMA, SCHEMA),
    beside: Sequence[Participant] = (),
    **bounds: Any,
) -> Explorer:
    """Jobs that opened, and wrote a file in a partition each, while there was no table.

    :param schemas: the columns of each; a job brings those that the other one has not.
    """
    behaviour, store = Behaviour(), EMPTY
    participants = []
    mode = SchemaMode.KEEP if schemas[0] is schemas[1] else SchemaMode.MERGE
    for name, partition, schema in zip("ab", partitions, schemas, strict=False):
        spec = JobSpec(schema, Mode.APPEND, ("day",), schema_mode=mode, **UNMARKED)
        context = context_of(Ids(f"begin {name}"), name)
        store, commit = _begun(store, context, spec, (partition,))
        participants.append(commit(name))
    return Explorer([*participants, *beside], store, behaviour, context_of, **bounds)


def first_insertions(*, into_one_loads: bool = False, **bounds: Any) -> Explorer:
    """Two jobs that opened, and wrote the key's row to a partition each, while there was no table.

    :param into_one_loads: one of them appends the row, whoever has it.
    """
    store = EMPTY
    participants = []
    for name, partition in (("a", ONE), ("b", TWO)):
        context = context_of(Ids(f"begin {name}"), name)
        loads = into_one_loads and name == "b"
        spec = JobSpec(SCHEMA, Mode.APPEND, ("day",), **UNMARKED)
        if not loads:
            found = state_without_table(ROOT, SCHEMA, ("day",))
            spec = _returned(_insertion(context, found, partition))
        held = {partition: frozenset({key_row("it")})}
        after = job_id("b") if into_one_loads and not loads else None
        store, commit = _begun(store, context, spec, (partition,), held, after)
        participants.append(commit(name))
    return Explorer(participants, store, Behaviour(), context_of, **bounds)


def _returned(step: Step[Any]) -> Any:
    """What a step returns that sends nothing."""
    try:
        next(flatten(step))
    except StopIteration as end:
        return end.value
    raise AssertionError("it sends a request")


def _begun(
    store: Store,
    context: Context,
    spec: JobSpec,
    partitions: Sequence[str],
    held: Mapping[str, Collection[str]] | None = None,
    after: str | None = None,
) -> tuple[Store, Callable[..., Participant]]:
    """The store once a job has opened and written, and what makes who commits it, by name.

    :param held: the rows of its files.
    :param after: a job that brings the key, too: whether it had committed when this one began to
        commit is noted in the owner.
    """
    begun: list[Any] = []

    def begin() -> Step[None]:
        begun.append((yield from open_job(context, spec)))
        begun.append((yield from _write(begun[0], partitions, held=held)))

    def committing(ids: Ids, name: str) -> Step[Any]:
        job, result = begun
        context = context_of(ids, name)
        if after is not None and (yield from read_decision(context, after)) is not None:
            job = replace(job, spec=replace(job.spec, owner=inserting(late=True)))
        return (yield from commit_job(context, job, [result]))

    def commit(name: str, **options: Any) -> Participant:
        program = Program(name, lambda ids: committing(ids, name))
        return Participant(program, job=begun[0].job, **options)

    return run_to_end(store, begin(), Behaviour()), commit


def twice(
    mode: Mode,
    *partitions: str,
    idempotency_key: str | None = "run",
    beside: Sequence[Participant] = (),
    **bounds: Any,
) -> Explorer:
    """One job whose commit is called in two processes at once.

    :param idempotency_key: its run; ``None``: of none.
    :param beside: who else takes part.
    """
    behaviour = Behaviour()
    spec = JobSpec(SCHEMA, mode, ("day",), idempotency_key=idempotency_key)
    there = table(behaviour, (Mode.APPEND, (ONE, TWO)))
    start, commit = _begun(there, context_of(Ids("begin"), "a"), spec, partitions)
    commits = [commit(name, alone=False) for name in ("first", "second")]
    return Explorer([*commits, *beside], start, behaviour, context_of, **bounds)
