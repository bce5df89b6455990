"""Who takes part in a simulation, and the store they begin on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from simulation.explore import Explorer, run_to_end
from simulation.invariants import ROOT
from simulation.program import Ids, Program
from simulation.sim_store import EMPTY, Behaviour, Store, apply
from simulation.world import Participant

from zero_rename.committer import Context, JobSpec, Mode, Waiting
from zero_rename.committer.errors import StreamError, TaskResultsError
from zero_rename.committer.job_spec import Coordination
from zero_rename.committer.maintenance.purge import purge
from zero_rename.committer.maintenance.recovery import recover
from zero_rename.committer.protocol.commit import abort_job, commit_job
from zero_rename.committer.protocol.open import open_job
from zero_rename.committer.protocol.snapshot import take_snapshot
from zero_rename.committer.records.pending_file import PendingFile, TaskResult
from zero_rename.committer.records.table_record import TableRecord
from zero_rename.committer.s3.requests import (
    CreateUpload,
    ObjectSettings,
    Put,
    Refused,
    Step,
    UploadPart,
)
from zero_rename.committer.state.context import Limits
from zero_rename.committer.state.job_state import OpenedJob
from zero_rename.committer.state.probe import StoreFacts

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])
ONE, TWO = "day=1", "day=2"
_WAITING = Waiting(silence=1.0, cap=2.0, poll=1.0)


def job_id(name: str) -> str:
    """A job id with ``name`` in it, in the letters that ids have."""
    return f"zr1-{name.upper().translate(str.maketrans('ILOU', '1100')):0>26}"


def context_of(ids: Ids, name: str = "", limits: Limits | None = None) -> Context:
    return Context(
        ROOT,
        write_id=ids,
        job_id=lambda: job_id(name),
        waiting=_WAITING,
        limits=limits or Limits(),
    )


def _write(opened: OpenedJob, partitions: Sequence[str]) -> Step[TaskResult]:
    files = []
    for number, partition in enumerate(partitions):
        key = ROOT.data_key(partition, 0, opened.job, number)
        metadata = {"zero-rename-job": opened.job}
        created = yield CreateUpload(key, ObjectSettings(metadata))
        part = yield UploadPart(key, created.upload_id, 1, key.encode())
        if isinstance(part, Refused):
            raise StreamError("The upload was aborted.", key=key)
        files.append(PendingFile(key, partition, created.upload_id, (part.etag,), len(key), 1, ""))
    return TaskResult(opened.job, 0, 0, tuple(files))


def _job(context: Context, spec: JobSpec, partitions: Sequence[str]) -> Step[Any]:
    opened = yield from open_job(context, spec)
    if opened.repeated is not None:
        return opened.repeated
    try:
        result = yield from _write(opened, partitions)
    except StreamError as error:
        yield from abort_job(context, opened, [])
        raise TaskResultsError(error.message) from error
    return (yield from commit_job(context, opened, [result]))


def writer(
    name: str, mode: Mode, *partitions: str, limits: Limits | None = None, **policy: Any
) -> Participant:
    """A job with one file in each of ``partitions``, from open to close."""
    spec = JobSpec(SCHEMA, mode, ("day",), **policy)
    program = Program(name, lambda ids: _job(context_of(ids, name, limits), spec, partitions))
    return Participant(program, job=job_id(name))


def reader(*partitions: str, name: str = "reader", writes: bool = True) -> Participant:
    """A reader of several partitions as one state; ``writes``: whether it may apply what is
    decided."""
    program = Program(name, lambda ids: take_snapshot(context_of(ids), partitions))
    return Participant(program, reads=partitions, writes=writes)


def recoverer(
    patience: float = 0.0, name: str = "recoverer", limits: Limits | None = None
) -> Participant:
    """Recovery that takes every undecided job for dead: fencing is safe at any time."""
    program = Program(name, lambda ids: recover(context_of(ids, limits=limits), patience))
    return Participant(program)


def purger(foreign_older_than: float | None = None, name: str = "purger") -> Participant:
    """A purge that leaves undecided jobs alone."""
    options = {"patience": 1e9, "foreign_older_than": foreign_older_than}
    program = Program(name, lambda ids: purge(context_of(ids), **options))
    return Participant(program)


def table(behaviour: Behaviour, *before: tuple[Mode, Sequence[str]]) -> Store:
    """A table as earlier jobs left it."""
    facts = StoreFacts(
        server="simulation",
        complete_resurrects=behaviour.resurrects,
        conditional_delete=behaviour.delete_conditions,
        uploads_by_prefix=behaviour.lists_by_prefix,
    )
    record = TableRecord("w", ("day",), SCHEMA, Coordination.STORE, facts)
    store, _ = apply(EMPTY, Put(ROOT.table_key, record.encode()), behaviour)
    for number, (mode, partitions) in enumerate(before):
        name = f"before{number}"
        ids = Ids()
        ids.prefix = name
        spec = JobSpec(SCHEMA, mode, ("day",))
        store = run_to_end(store, _job(context_of(ids, name), spec, partitions), behaviour)
    return store


def explorer(
    *participants: Participant,
    behaviour: Behaviour | None = None,
    before: Sequence[tuple[Mode, Sequence[str]]] = ((Mode.APPEND, (ONE, TWO)),),
    **bounds: Any,
) -> Explorer:
    """Explores ``participants`` on a table with some history.

    :param bounds: as :class:`Explorer` takes them.
    """
    behaviour = behaviour or Behaviour()
    start = table(behaviour, *before)
    return Explorer(participants, start, behaviour, context_of, **bounds)


def twice(mode: Mode, *partitions: str, **bounds: Any) -> Explorer:
    """One job whose commit is called in two processes at once."""
    behaviour = Behaviour()
    opened: list[Any] = []

    def begin(ids: Ids) -> Step[None]:
        context = context_of(ids, "a")
        opened.append((yield from open_job(context, JobSpec(SCHEMA, mode, ("day",), once="run"))))
        opened.append((yield from _write(opened[0], partitions)))

    ids = Ids()
    ids.prefix = "begin"
    start = run_to_end(table(behaviour, (Mode.APPEND, (ONE, TWO))), begin(ids), behaviour)
    job, result = opened
    commits = [
        Participant(
            Program(name, lambda ids: commit_job(context_of(ids), job, [result])), job=job.job
        )
        for name in ("first", "second")
    ]
    return Explorer(commits, start, behaviour, context_of, **bounds)


__all__ = ["ONE", "TWO", "explorer", "job_id", "purger", "reader", "recoverer", "twice", "writer"]
