"""Steps of a job in a Delta table: tasks write files of the job, and one entry commits them.

=====================  ==========================================================================
policy of the job      its entry
=====================  ==========================================================================
append                 adds the job's files
replace                removes the files that are live at the commit in the partitions that the
                       job names, or has rows for, or in all; adds the job's files
replace by condition   the same for the partitions that fit the condition at the commit; the whole
                       table counts as read, so any change meanwhile is a conflict
fail-if-exists         adds the files if their partitions are empty; these count as read
a read base            is judged by the entries after the state that was read, not only by those
                       since the job opened
a run's key            has the key as a transaction, so the run commits once
=====================  ==========================================================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.types as pt

from ..committer.commit.first_job import in_case_of, spelled_for
from ..committer.commit.narrowed_run import RunsLastJob, as_planned
from ..committer.commit.newest_run import name_ranks
from ..committer.commit.state.heartbeat import Beats
from ..committer.commit.state.job_state import (
    SMALL,
    Aborted,
    Committed,
    LoggedJob,
    OpenedJob,
    PartitionCommit,
    UnpublishedJob,
)
from ..committer.commit.state.task_results import check_results, destination_exists
from ..committer.errors import (
    CommitConflictError,
    DamagedError,
    InvalidInputError,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
    TableMismatchError,
    ZeroRenameError,
    about,
)
from ..committer.format.file_checks import check_options
from ..committer.format.job_spec import (
    Coordination,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    SchemaMode,
    SuccessMarkers,
)
from ..committer.format.layout import TableRoot, job_began, new_job_id, new_write_id
from ..committer.format.records.pending_file import PendingFile, TaskResult
from ..committer.format.records.store_facts import StoreFacts
from ..committer.format.records.typed_json import Unfit, from_members, to_members
from ..committer.format.row_changes import ChangeReads, RowChanges
from ..committer.format.schema.compatibility import check_same, check_types
from ..committer.format.schema.evolution import evolved, overwritten
from ..committer.format.schema.row_metadata import ROW_METADATA
from ..committer.format.schema.types import SPARK_VERSION, normalise
from ..committer.store.driver import BotoDriver, Driver
from ..committer.store.requests import Step
from ..layouts.delta.columns import (
    arrow_schema,
    delta_schema,
    needed_protocol,
    raised_protocol,
    storable,
)
from ..layouts.delta.data_roots import with_data_root
from ..layouts.delta.delta_layout import PROPERTIES, DeltaLayout
from ..layouts.delta.paths import DeltaRoot
from ..layouts.delta.statistics import statistics_of
from ..layouts.delta.success_marker import ASKED
from ..log.actions import AddFile, LogMetadata, RemoveFile
from ..log.change import RESTORE, RUN, LogBase, LogChange, Overtaking
from ..log.checkpointing import make_checkpoint
from ..log.committing import EntryCommitted
from ..log.entries import LogEntry
from ..log.job_files import JobFiles
from ..log.job_steps import (
    OpenedLogJob,
    abandon_job,
    commit_job,
    leaves_no_entry,
    open_log_job,
    withdraw_job,
)
from ..log.judging import LogOvertakenError
from ..log.opening import LogDepth, OpenedLog, open_log, read_entries
from ..log.ranks import LogSupersededError
from ..log.replay import LogState
from ..log.rerunning import find_past
from ..log.scope import ALL, NONE, Scope
from ..log.searching import RunDone, find_run
from .data_root import (
    check_data_root,
    kept_data_root,
    refuse_folder_of_another,
    refuse_marked_by_another,
)
from .delta_files import (
    added_file,
    log_partition,
    name_told,
    partition_name,
    refuse_nulls,
    rows_of_add,
    scope_of,
)
from .delta_inputs import tell_inputs
from .delta_ranks import LeftOut, ranks_of_job, refuse_at_opening, without_superseded
from .delta_runs import owner_of
from .delta_settling import refuse_moved
from .new_table import check_free, refuse_expiry
from .seen_logs import note_log, seen_log
from .store_check import ATOMIC, facts_of, refuse_second_writer
from .unpublished import check_held_back, delete_files, leave_unpublished, unpublished_of_run

logger = logging.getLogger("zero_rename.tables.delta_steps")
#: The known guarantees of tables' stores, by driver and the table's URL.
_found: WeakKeyDictionary[Driver, dict[str, StoreFacts]] = WeakKeyDictionary()
#: How many commits lie between checkpoints, if the table has no property for it. Delta's engines
#: write one after 10; this package opens tables by checksum files.
CHECKPOINT_INTERVAL = 50


def layout_of(root: TableRoot) -> DeltaLayout:
    """Return the layout of the table at a root."""
    return DeltaLayout(DeltaRoot(root.bucket, f"{root.prefix}/"))


#: Modifies the change of a job's entry; receives the state that the job began on.
Amend = Callable[[LogChange, LogState], LogChange]


def _unchanged(change: LogChange, state: LogState) -> LogChange:
    return change


def amends(spec: JobSpec) -> Amend:
    """Return the function that adapts a job's change to its specification. For a job that changes
    rows it is :func:`rewriting`; for any other it changes nothing."""
    changes = spec.row_changes.values()
    if not changes:
        return _unchanged
    deletes = not any(it.inserted or it.updated for it in changes)
    return rewriting("DELETE" if deletes else "MERGE", True)


def rewriting(operation: str, changes_data: bool) -> Amend:
    """Return the function that turns a replace into a change that rewrites files: it removes
    exactly the files whose rows were read. So a rerun of a run with rows there is refused, instead
    of doubling these rows.

    :param operation: the operation's name in the log: ``MERGE``, ``DELETE``, ``OPTIMIZE``.
    :param changes_data: ``False`` if the rows stay the same.
    """
    return _Rewriting(operation, changes_data)


@dataclass(frozen=True)
class _Rewriting:
    """An :data:`Amend` that turns a replace into a change that rewrites files."""

    operation: str
    changes_data: bool

    def __call__(self, change: LogChange, state: LogState) -> LogChange:
        there = state.live.values() if state.exists else ()
        read = frozenset(it.path for it in there if change.replaced.has(state.partition(it)))
        return replace(
            change,
            removes=read,
            replaced=NONE,
            settles={},  # Its rows include those of other runs.
            reads=change.reads or change.replaced,
            operation=self.operation,
            changes_data=self.changes_data,
        )


def _removes_rows(spec: JobSpec, amend: Amend) -> bool:
    """Return whether a job removes rows; a compaction only removes files."""
    changes_data = not isinstance(amend, _Rewriting) or amend.changes_data
    return spec.mode is Mode.REPLACE and changes_data


@dataclass(frozen=True)
class Seen:
    """Facts of a table that this process has read before; ``None``: it has not read them.

    :param facts: the guarantees of its store.
    :param log: the state of its log.
    """

    facts: StoreFacts | None = None
    log: LogState | None = None


class DeltaSteps:
    """The steps of jobs in one Delta table.

    A job's commit begins on the state that its opening has read. A process that has not opened the
    job itself reads the state again.

    :param amend: modifies the change of a job's entry; receives the state that the job began on.
    """

    def __init__(self, driver: BotoDriver, root: TableRoot, amend: Amend | None = None) -> None:
        self.driver, self.root = driver, root
        self._amend = amend or _unchanged
        self.layout = layout_of(root)
        self._begun: dict[str, OpenedLog] = {}
        #: Jobs whose entry may have been sent and may still arrive.
        self._sent: set[str] = set()

    def job_id(self) -> str:
        return new_job_id()

    def open(self, job: str, spec: JobSpec) -> OpenedJob:
        with about(self.root.url):
            spec = checked(self.root, spec)
            # Before the first request: a bucket's policy may deny one without this encryption.
            self.driver.encrypt(self.root.prefix, spec.files.encrypted)
            self.driver.encrypt_by_default(spec.default_encryption, self.root.prefix)
            found = _found.setdefault(self.driver, {})
            seen = Seen(found.get(self.root.url), seen_log(self.driver, self.root))
            opened, log = self.driver.run(_open(self.root, job, spec, seen, self._amend))
            found[self.root.url] = opened.facts
        note_log(self.driver, self.root, log)
        self._begun[opened.job] = log
        return opened

    def count_files(self) -> int:
        """Return the number of live files of the table now."""
        state = self.driver.run(open_log(self.layout, LogDepth.BLIND)).state
        if state.count is None:
            state = self.driver.run(open_log(self.layout, LogDepth.FILES)).state
        return state.count or 0

    def forget(self, job: str) -> None:
        self.driver.run(abandon_job(self.layout, job))

    def heartbeat(self, opened: OpenedJob, beats: Beats) -> Callable[[], bool] | None:
        # Jobs send no heartbeats here: a job counts as alive for its whole max_duration.
        return None

    def commit(
        self, opened: OpenedJob, results: Sequence[TaskResult], tasks: int
    ) -> Committed | UnpublishedJob:
        log = self._begun.pop(opened.job, None)
        self._sent.add(opened.job)
        end = self._commit if opened.spec.publish else _leave
        try:
            return self.driver.run(end(self.layout, opened, log, self._amend, results, tasks))
        except RefusedError as error:
            if leaves_no_entry(error):
                self._sent.discard(opened.job)
            raise

    @property
    def _commit(self) -> Callable[..., Step[Committed]]:
        return partial(_commit, note=partial(note_log, self.driver, self.root))

    def abort(self, opened: OpenedJob, results: Sequence[TaskResult]) -> Aborted | Committed:
        if opened.repeated is not None:
            return opened.repeated
        if opened.unpublished is not None:
            # This job wrote nothing; the one that its run has left still waits.
            return Aborted(opened.job, self.root.url, 0)
        withdraws = opened.job in self._sent
        return self.driver.run((_withdraw if withdraws else _abort)(self.layout, opened, results))


# Opening


def checked(root: TableRoot, spec: JobSpec) -> JobSpec:
    """Return a job's specification with Delta's types, after all checks that need no request.

    :raises InvalidInputError: the job has a policy that a Delta table cannot keep; the error names
        it.
    :raises UnsupportedTypeError: Delta has no type for a column.
    """
    unkept = {
        "coordination": spec.coordination is not Coordination.STORE,
        "success_markers": spec.success_markers is SuccessMarkers.PARTITION_AND_TABLE,
        "settles": bool(spec.settles),
        "adopt_partitions": bool(spec.adopt_partitions),
        "merges": bool(spec.merges),
    }
    for name in (name for name, is_asked in unkept.items() if is_asked):
        raise InvalidInputError(
            f"{name}={getattr(spec, name)!s} is not kept in a Delta table; nothing was sent.",
            table=root.url,
            remedy=f"Leave {name} out, or write a table of directories.",
        )
    if spec.fast is not None:
        check_data_root(root, spec.fast)
    spec = replace(spec, schema=storable(normalise(spec.schema), nulls=True))
    _check_partitioning(spec.schema, spec.partition_by or ())
    check_options(spec.files)
    if spec.base is not None:
        spec.base.check_table(root.url)
    if not spec.publish:
        check_held_back(root, spec)
    return spec


def _ids(job: str) -> Iterator[str]:
    yield job
    while True:
        yield new_job_id()


def _open(
    root: TableRoot, job: str, spec: JobSpec, seen: Seen, amend: Amend
) -> Step[tuple[OpenedJob, OpenedLog]]:
    """Open a job; return it with the state that it begins on."""
    layout = layout_of(root)
    writes = {"partitions": spec.named_partitions, "appends": spec.mode is Mode.APPEND}
    owner = {**owner_members(spec.owner), "max_duration": spec.max_duration, "writes": writes}
    ids, depth, run = _ids(job), _depth(spec, amend), spec.idempotency_key
    opened = yield from open_log_job(layout, ids, owner, depth, run, seen.log)
    if not spec.publish and not opened.log.state.exists:
        # Without a log a job that waits could not be fenced.
        yield from abandon_job(layout, opened.job)
        yield from _make_table(root, spec, seen)
        opened = yield from open_log_job(layout, ids, owner, depth, run)
    try:
        removes_rows = _removes_rows(spec, amend)
        begun = yield from _opened(root, layout, opened, spec, removes_rows, seen.facts)
        return begun, opened.log
    except ZeroRenameError:
        # Only the open record was written: there are no tasks yet.
        yield from abandon_job(layout, opened.job)
        raise


def _make_table(root: TableRoot, spec: JobSpec, seen: Seen) -> Step[None]:
    """Make a table without rows, for a job that will be published later."""
    spec = replace(
        spec,
        mode=Mode.APPEND,
        replace_partitions=None,
        replace_table=False,
        replace_where=None,
        only_partitions=None,
        schema_mode=SchemaMode.KEEP,
        on_conflict=OnConflict.FAIL,
        idempotency_key=None,
        base=None,
        code_version=None,
        publish=True,
    )
    opened, log = yield from _open(root, new_job_id(), spec, seen, _making)
    layout = layout_of(root)
    # If another job has made the table meanwhile, the caller's next opening sees it.
    if log.state.exists:
        yield from abandon_job(layout, opened.job)
        return
    try:
        yield from _commit(layout, opened, log, _making, (), 0)
    except (RefusedError, DamagedError) as error:
        if leaves_no_entry(error):
            yield from abandon_job(layout, opened.job)
        if not isinstance(error, CommitConflictError):
            raise


def _making(change: LogChange, state: LogState) -> LogChange:
    return replace(change, operation="CREATE TABLE", joins=False)


def _depth(spec: JobSpec, amend: Amend) -> LogDepth:
    """Return how much of the log a job reads at its opening.

    An append needs no files. A replace needs those of its partitions, which it may not know yet. If
    the table has very many files, they are read at the commit.
    """
    again = spec.idempotency_key is not None and spec.on_repeat is OnRepeat.REPLACE_OWN
    compares = spec.on_conflict is OnConflict.NEWEST_RUN
    if again or compares or spec.mode is Mode.FAIL_IF_EXISTS:
        return LogDepth.FILES
    if spec.mode is Mode.APPEND:
        return LogDepth.BLIND
    some = amend is _unchanged and not spec.replace_table and spec.replace_where is None
    return LogDepth.FEW if some else LogDepth.FILES


def _opened(
    root: TableRoot,
    layout: DeltaLayout,
    opened: OpenedLogJob,
    spec: JobSpec,
    removes_rows: bool,
    known: StoreFacts | None,
) -> Step[OpenedJob]:
    state, data_root = opened.log.state, spec.fast
    if state.exists:
        data_root = kept_data_root(root, state, spec.fast)
        layout.check_writable(state, removes_rows)
        if data_root is not None:
            yield from refuse_marked_by_another(root, layout, data_root, state.table_id)
    else:
        yield from check_free(root)
        yield from refuse_expiry(root, spec.files.tags)
        if spec.fast is not None:
            yield from refuse_folder_of_another(root, layout, spec.fast, None)
    spec, schema, partition_by = _columns(root, state, spec)
    schema = _as_in_files(schema, spec.schema)
    spec = spelled_for(spec, schema, partition_by)
    if state.protocol is not None:
        raised_protocol(schema, state.protocol)  # Refuses before rows are written.
    facts = yield from facts_of(root, state, known)
    yield from refuse_second_writer(root, layout, opened.job, facts)
    done = opened.done
    repeated = None
    if done is not None and spec.on_repeat is OnRepeat.SKIP:
        repeated = yield from _repeated(root, layout, state, done, spec.idempotency_key or "")
        yield from abandon_job(layout, opened.job)
    waiting = None
    if not spec.publish and done is None:
        waiting = yield from _waiting_of(root, layout, state, spec, opened.job)
    log = LoggedJob(
        state.version,
        state.table_id,
        state.metadata.schema if state.metadata else "",
        opened.opened_at,
        f"{layout.data_in(data_root)}{opened.job}/",
        partial(statistics_of, without=partition_by),
    )
    job = OpenedJob(
        job=opened.job,
        root=root,
        spec=spec,
        schema=schema,
        partition_by=partition_by,
        facts=facts,
        repeated=repeated,
        unpublished=waiting,
        opened_at=opened.opened_at,
        log=log,
    )
    if job.is_repeat:
        return job
    job = yield from _planned_for(layout, state, job, done)
    refuse_at_opening(job, state)
    return job


def _planned_for(
    layout: DeltaLayout, state: LogState, opened: OpenedJob, done: RunDone | None
) -> Step[OpenedJob]:
    """Return the job restricted to what a plan lets it load again (:mod:`~.commit.narrowed_run`).

    :param done: the last commit of the job's run.
    :raises CommitConflictError: a partition has changed since the plan.
    """
    if opened.spec.owner.cleared is None:
        return opened  # Plans clear tasks of Airflow, and this job is not one of these.
    last = None if done is None else (yield from _last_job(layout, opened, state, done))
    opened = yield from as_planned(opened, last, new_write_id)
    if opened.planned:
        yield from refuse_moved(layout, opened.root, state, opened.planned)
    return (
        opened if opened.narrowed is None or last is None else replace(opened, repeat_of=last.job)
    )


def _last_job(
    layout: DeltaLayout, opened: OpenedJob, state: LogState, done: RunDone
) -> Step[RunsLastJob | None]:
    entry = done.entry
    if entry is None:
        (entry,) = yield from read_entries(layout.folder, [done.version])
    if entry is None or entry.job is None:
        return None  # Its entry was cleaned, so plans do not name its job, either.
    changed = committed(opened.root, state, entry).partitions
    versions = {it.partition: entry.version for it in changed}
    return RunsLastJob(entry.job, owner_of(entry).cleared, versions)


def _waiting_of(
    root: TableRoot, layout: DeltaLayout, state: LogState, spec: JobSpec, job: str
) -> Step[UnpublishedJob | None]:
    """Find the job that an earlier attempt of a run has left unpublished; if there is one, close
    the present job."""
    if spec.idempotency_key is None or spec.on_repeat is not OnRepeat.SKIP:
        return None
    found = yield from unpublished_of_run(root, layout, state, spec.idempotency_key, job)
    if found is None:
        return None
    yield from abandon_job(layout, job)
    return replace(found, repeated=True)


def _columns(
    root: TableRoot, state: LogState, spec: JobSpec
) -> tuple[JobSpec, pa.Schema, tuple[str, ...]]:
    """Return the job with the table's spelling, the columns of its files, and the partition
    columns.

    :raises UnsupportedTypeError: the table would get a column for which Delta has no type.
    :raises TableMismatchError: the job does not fit the table.
    """
    if state.metadata is None:
        return spec, storable(spec.schema), spec.partition_by or ()
    table, by = arrow_schema(state.metadata), state.metadata.partition_columns
    if spec.any_case:
        overwrites = spec.schema_mode is SchemaMode.OVERWRITE
        spec = in_case_of(spec, by if overwrites else table.names)
    if spec.partition_by is not None and tuple(spec.partition_by) != by:
        raise TableMismatchError(
            f"The job partitions by {', '.join(spec.partition_by) or 'nothing'}, the table by "
            f"{', '.join(by) or 'nothing'}. Nothing was written.",
            table=root.url,
            remedy="Leave partition_by out, or write another table.",
        )
    _check_partitioning(spec.schema, by)
    if spec.schema_mode is SchemaMode.KEEP:
        check_same(table, spec.schema, table=root.url)
        return spec, table, by
    change = overwritten if spec.schema_mode is SchemaMode.OVERWRITE else evolved
    schema = storable(change(table, spec.schema, by, url=root.url))
    if spec.schema_mode is SchemaMode.MERGE:
        _refuse_wider(root, table, schema)
    return spec, schema, by


def _as_in_files(schema: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Return the columns of a job's files with the metadata of the files.

    If Spark writes them, its version is there: by that, Spark knows the calendar of their dates.
    Spark's own description of the columns is left out: it lacks the partition columns, which these
    files hold, so that Spark would hide them.

    :param given: the job's columns.
    """
    said = {name: it for name, it in (schema.metadata or {}).items() if name != ROW_METADATA}
    if version := (given.metadata or {}).get(SPARK_VERSION):
        said[SPARK_VERSION] = version
    return schema.with_metadata(said or None)


def _check_partitioning(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Check that columns can partition a table. A column that has only nulls counts as a string,
    since the table may have a type for it.

    :raises InvalidInputError: a column cannot partition a table.
    """
    typed = (it.with_type(pa.string()) if pt.is_null(it.type) else it for it in schema)
    check_types(pa.schema(typed), partition_by)


def _refuse_wider(root: TableRoot, table: pa.Schema, schema: pa.Schema) -> None:
    wider = [it.name for it in table if schema.field(it.name).type != it.type]
    if wider:
        raise TableMismatchError(
            f"The type of {', '.join(wider)} would become wider, which needs Delta's feature "
            "typeWidening, not supported here. Nothing was written.",
            table=root.url,
            remedy="Cast the columns to the table's types, or replace the whole table with "
            "schema_mode=overwrite.",
        )


# Committing


def _commit(
    layout: DeltaLayout,
    opened: OpenedJob,
    log: OpenedLog | None,
    amend: Amend,
    results: Sequence[TaskResult],
    tasks: int,
    note: Callable[[OpenedLog], None] = lambda _: None,
) -> Step[Committed]:
    """Commit a job.

    :param log: the state that it began on; ``None``: it is read again.
    :param note: receives the log with the state after the commit.
    """
    if opened.repeated is not None:
        return opened.repeated
    now = int((time.time() + _behind(opened)) * 1000)
    log, change = yield from _planned(layout, opened, log, amend, results, tasks, now)
    spec, files = opened.spec, [file for result in results for file in result.files]
    done, left = yield from _commit_what_counts(layout, opened, log, change, now)
    if isinstance(done, EntryCommitted):
        # The job is committed. No reader sees these files, and purge deletes them.
        with suppress(StoreRefusedError, StoreUnreachableError):
            yield from delete_files(left.keys)
        tell_overwritten(opened.root, done)
        if done.state is not None:
            note(replace(log, state=done.state, overwritten=done.overwritten))
        yield from checkpoint_where_due(layout, opened.root, log.state, done.entry)
        # A job that joins another one's table has metadata in its change, but not in its entry.
        metadata = [*filter(None, [change.metadata]), *done.entry.of(LogMetadata)]
        state = replace(log.state, metadata=metadata[-1]) if metadata else log.state
        return replace(committed(opened.root, state, done.entry), rewritten=not change.changes_data)
    yield from delete_files(file.key for file in files)
    if spec.on_repeat is OnRepeat.SKIP:
        run = spec.idempotency_key or ""
        return (yield from _repeated(opened.root, layout, log.state, done, run))
    raise CommitConflictError(
        "Another attempt of this run has committed meanwhile. This one was not committed.",
        table=opened.root.url,
        job=opened.job,
        key=JobFiles(layout.control).run(spec.idempotency_key or ""),
        remedy="Nothing is to be done if that attempt's rows are right; else clear the run.",
    )


def _leave(
    layout: DeltaLayout,
    opened: OpenedJob,
    log: OpenedLog | None,
    amend: Amend,
    results: Sequence[TaskResult],
    tasks: int,
) -> Step[Committed | UnpublishedJob]:
    """Hand a job over to be published later, unless its run has loaded before."""
    if opened.repeated is not None:
        return opened.repeated
    if opened.unpublished is not None:
        return opened.unpublished
    now = int((time.time() + _behind(opened)) * 1000)
    log, change = yield from _planned(layout, opened, log, amend, results, tasks, now)
    return (
        yield from leave_unpublished(opened.root, layout, log.state, change, opened.opened_at, now)
    )


def _planned(
    layout: DeltaLayout,
    opened: OpenedJob,
    log: OpenedLog | None,
    amend: Amend,
    results: Sequence[TaskResult],
    tasks: int,
    now: int,
) -> Step[tuple[OpenedLog, LogChange]]:
    """Return the state that a job began on, and the change of its entry."""
    check_results(opened, results, tasks)
    files = [file for result in results for file in result.files]
    spec = opened.spec
    if log is None:
        log = yield from open_log(layout, _depth(spec, amend))
    change = amend(_change(layout, opened, log.state, files, now), log.state)
    if spec.idempotency_key is not None and spec.on_repeat is not OnRepeat.SKIP:
        change = yield from _again(layout, opened, log, change, now)
    if spec.mode is Mode.FAIL_IF_EXISTS:
        _refuse_existing(opened, log.state, change)
    if opened.narrowed is not None:
        rows = sum(result.left_out for result in results)
        told = {**change.told, "narrows": opened.repeat_of, "leftOut": rows}
        change = replace(change, told=told)
    return log, change


def _commit_what_counts(
    layout: DeltaLayout, opened: OpenedJob, log: OpenedLog, change: LogChange, now: int
) -> Step[tuple[EntryCommitted | RunDone, LeftOut]]:
    """Commit a change. If the job's policy allows it, leave out partitions that newer runs have
    loaded."""
    left = LeftOut(rows=change.told.get("leftOut", 0))
    while True:
        try:
            return (yield from commit_job(layout, log, change, now)), left
        except LogOvertakenError as error:
            raise _named_conflict(opened, error) from error
        except LogSupersededError as error:
            change, left = without_superseded(layout, opened, log.state, change, left, error)


def _named_conflict(opened: OpenedJob, error: LogOvertakenError) -> CommitConflictError:
    """Build the error of a job that conflicts with another one. It names the partitions that both
    concern, since the search for conflicts needs them."""
    made = CommitConflictError(error.message, job=error.job, remedy=error.remedy)
    made.overtaken = True
    schema, by = opened.schema, opened.partition_by
    made.gave_way = {name_told(it, schema, by): error.met or "" for it in error.places}
    name_ranks(opened, made)
    return made


def checkpoint_where_due(
    layout: DeltaLayout, root: TableRoot, state: LogState, entry: LogEntry
) -> Step[None]:
    """Write a checkpoint if enough commits have come since the last one, so that openings and other
    engines read few entries. The job is committed already: a failure is only logged.

    :param entry: the job's entry. The store's time of it says which tombstones are old: by a host's
        clock that is ahead, the checkpoint would leave out younger ones, whose files a purge then
        deletes.
    """
    if not entry.version or entry.version % checkpoint_interval(state):
        return
    try:
        yield from make_checkpoint(layout, int(entry.written_at * 1000))
    except ZeroRenameError as error:
        logger.warning("%s: no checkpoint was written: %s", root.url, error)


def checkpoint_interval(state: LogState) -> int:
    """Return after how many commits a table gets its next checkpoint."""
    asked = state.property_of("delta.checkpointInterval")
    return int(asked) if asked.isdecimal() and int(asked) else CHECKPOINT_INTERVAL


def tell_overwritten(root: TableRoot, done: EntryCommitted) -> None:
    """Log a warning about entries that a writer without conditional writes has overwritten."""
    if done.overwritten:
        logger.warning(
            "%s: the entries of versions %s of its log are not those that were committed: a writer "
            "without conditional writes has written over them, and what they added or removed is "
            "lost from the table. Their files are still there. Let that writer use a log store "
            "that writes conditionally, then commit them again: zero-rename repair %s --apply",
            root.url,
            ", ".join(map(str, done.overwritten)),
            root.url,
        )


def _change(
    layout: DeltaLayout, opened: OpenedJob, state: LogState, files: Sequence[PendingFile], now: int
) -> LogChange:
    """Return the change of a job's entry."""
    spec, log = opened.spec, opened.log
    assert log is not None
    schema, by = opened.schema, opened.partition_by
    refuse_nulls(files, schema, by)
    written_names = {file.partition for file in files} | {*(spec.replace_partitions or ())}
    written = scope_of({file.partition for file in files}, schema, by)
    replaced, reads = NONE, NONE
    if spec.mode is Mode.REPLACE:
        replaced, reads = _replaced(opened, state, written)
    elif spec.mode is Mode.FAIL_IF_EXISTS:
        reads = written
    if spec.serializable and spec.base is not None:
        reads = ALL
    elif spec.on_conflict is OnConflict.NEWEST_RUN:
        # The partitions that the rows were computed from must not change, as under other policies.
        reads = reads or _read_of_base(opened, replaced)
    if opened.narrowed is not None:
        replaced = replaced.within(_within(opened).partitions)
    planned = scope_of(opened.planned, schema, by)
    settles = {log_partition(name, schema, by): it for name, it in opened.settles.items()}
    if settles and spec.mode is Mode.REPLACE:
        # Also where the winner writes no rows now: there the rows of the other runs are removed.
        replaced = Scope(replaced.partitions | settles.keys(), replaced.all)
    metadata, columns = _metadata(opened, state, now)
    adds = tuple(added_file(layout, it, schema, by, spec.sorted_by, now) for it in files)
    return LogChange(
        opened.job,
        LogBase(_base_version(spec, log, files), log.table_id),
        columns,
        adds,
        replaced=replaced,
        reads=Scope(reads.partitions | planned.partitions, reads.all),
        overtaking=Overtaking(spec.on_conflict.value),
        ranks=ranks_of_job(opened, written_names),
        run=spec.idempotency_key,
        metadata=metadata,
        protocol=needed_protocol(schema)
        if state.protocol is None
        else raised_protocol(schema, state.protocol),
        # A fail-if-exists job must not join a table that another job has made.
        joins=spec.mode is not Mode.FAIL_IF_EXISTS,
        settles={place: it for place, it in settles.items() if replaced.has(place)},
        owner=owner_members(spec.owner),
        told=_told(opened),
        own=frozenset(spec.base.own if spec.base is not None else ()),
        began=job_began(opened.job) + _behind(opened),
    )


def _behind(opened: OpenedJob) -> float:
    """Return by how many seconds the clock of a job's driver is behind the store's, as seen at the
    job's opening; 0: it is not behind.

    The store's clock says how old tombstones are. If they were dated by a clock that is behind, a
    purge would delete removed files before the retention is over.
    """
    return max(0.0, opened.opened_at - job_began(opened.job))


def _within(opened: OpenedJob) -> Scope:
    """Return the partitions that a job may change: all, or those that a plan lets it load again."""
    if opened.narrowed is None:
        return ALL
    return scope_of(opened.narrowed, opened.schema, opened.partition_by)


def _read_of_base(opened: OpenedJob, replaced: Scope) -> Scope:
    """Return the partitions that a job replaces and whose rows it has read."""
    spec = opened.spec
    if spec.base is None:
        return NONE
    names = [name for name in spec.base.versions if spec.base.read_at(name) is not None]
    read = scope_of(names, opened.schema, opened.partition_by)
    return Scope(frozenset(place for place in read.partitions if replaced.has(place)))


def _base_version(spec: JobSpec, log: LoggedJob, files: Iterable[PendingFile]) -> int:
    """Return the version that the rows were computed from; entries after it are judged.

    If several states of the written partitions were read, the oldest counts. If none was read, it
    is the version at which the job opened.
    """
    base = spec.base
    if base is None or base.log_version is None:
        return log.version
    whole = spec.replace_table or spec.replace_where is not None or spec.serializable
    names = {file.partition for file in files} | {*(spec.replace_partitions or ())}
    if whole:
        names |= base.versions.keys()
    read = [base.read_at(name) for name in names]
    if whole and base.whole:
        read.append(base.log_version)
    return min((it for it in read if it is not None), default=log.version)


def _told(opened: OpenedJob) -> dict[str, Any]:
    """Return further members of the job's entry: its inputs, its changes of rows, its condition and
    its wish for a marker."""
    spec, told = opened.spec, tell_inputs(opened)
    if spec.row_changes:
        told["rowChanges"] = {name: to_members(it) for name, it in spec.row_changes.items()}
    if spec.change_reads is not None:
        told["changeReads"] = to_members(spec.change_reads)
    if spec.replace_where is not None:
        told["replacedWhere"] = True
    if spec.success_markers is SuccessMarkers.TABLE:
        told[ASKED] = True
    return told


def owner_members(owner: Owner) -> dict[str, Any]:
    """Return the owner of a job, as the log's entry records it."""
    return {name: value for name, value in asdict(owner).items() if value is not None}


def _replaced(opened: OpenedJob, state: LogState, written: Scope) -> tuple[Scope, Scope]:
    """Return the partitions that a replace empties, and those that it has read to find them."""
    spec, schema, by = opened.spec, opened.schema, opened.partition_by
    only = opened.empties_only
    if spec.replace_table:
        if only is not None:
            return Scope(scope_of(only, schema, by).partitions | written.partitions), NONE
        return ALL, NONE
    if spec.replace_partitions is not None:
        return scope_of(spec.replace_partitions, schema, by), NONE
    if spec.replace_where is not None:
        there = {state.partition(add) for add in state.live.values()}
        names = {partition_name(it, schema, by): it for it in there if it is not None}
        if only is not None:
            names = {name: it for name, it in names.items() if name in only}
        fitting = frozenset(it for name, it in names.items() if name in spec.replace_where)
        return Scope(fitting | written.partitions), ALL
    return written, NONE


def _refuse_existing(opened: OpenedJob, state: LogState, change: LogChange) -> None:
    """Refuse to add to partitions that hold files, except files that the run replaces.

    :raises DestinationExistsError: a partition holds other files.
    """
    if not state.exists:
        return
    written = change.touched(state)
    stays = [it for it in state.files_of(written.partitions) if it.path not in change.removes]
    stays += [it for it in change.returned if written.has(state.partition(it))]
    for add in stays:
        name = partition_name(state.partition(add) or (), opened.schema, opened.partition_by)
        raise destination_exists(name, [add.path])


def _metadata(
    opened: OpenedJob, state: LogState, now: int
) -> tuple[LogMetadata | None, LogMetadata]:
    """Return the table's new columns, if the job makes or changes them, and those of its files."""
    log = opened.log
    assert log is not None
    keeps = opened.spec.schema_mode is not SchemaMode.OVERWRITE
    text = delta_schema(opened.schema, log.columns if keeps else "")
    if state.metadata is None:
        properties = {**PROPERTIES, ATOMIC: str(opened.facts.atomic).lower()}
        properties = with_data_root(properties, opened.spec.fast)
        made = LogMetadata(str(uuid4()), text, opened.partition_by, properties, created_at=now)
        return made, made
    # With the columns that its files were written with, so that changes by others are noticed.
    written = replace(state.metadata, schema=text, partition_columns=opened.partition_by)
    changes = opened.spec.schema_mode is not SchemaMode.KEEP and text != log.columns
    return (written if changes else None), written


def _again(
    layout: DeltaLayout, opened: OpenedJob, log: OpenedLog, change: LogChange, now: int
) -> Step[LogChange]:
    """Return the change of a run that may have committed before: it replaces the run's former rows,
    or names the run's former entry."""
    assert change.run is not None
    if opened.spec.on_repeat is OnRepeat.REPLACE_OWN:
        asks = (change.run, change.job, now, _within(opened), change.replaced)
        past = yield from find_past(layout, log, *asks)
        return change if past is None else past.replaced_by(change)
    # The rows that the run has written before stay, also those that others have rewritten.
    done = yield from find_run(layout, log.state, change.run, change.job)
    return change if done is None else replace(change, former=done.version)


def committed(root: TableRoot, state: LogState, entry: LogEntry) -> Committed:
    """Return the report of a committed entry.

    :param state: a state with the table's columns. If it has files, they give the partitions of
        tombstones that do not name theirs. Other such tombstones are left out.
    """
    assert state.metadata is not None
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    added: dict[str, list[AddFile]] = {}
    removed: dict[str, int] = {}
    for file in (*entry.of(AddFile), *entry.of(RemoveFile)):
        place = state.partition(file) if by else ()
        if place is None:
            continue  # A tombstone of another engine, or of a purge.
        name = name_told(place, schema, by)
        if isinstance(file, AddFile):
            if file.tags.get("job") != entry.job and entry.operation != RESTORE:
                continue  # A file of another job that comes back from a compaction.
            added.setdefault(name, []).append(file)
        else:
            removed[name] = removed.get(name, 0) + 1
    replaced = entry.ours.get("replaced")
    named = () if not isinstance(replaced, list) else (tuple(it) for it in replaced)
    names = {*added, *removed, *(name_told(it, schema, by) for it in named)}
    row_changes, reads = _changes_told(entry)
    partitions = tuple(
        PartitionCommit(
            name,
            entry.version,
            len(files := added.get(name, [])),
            sum(max(0, rows_of_add(it)) for it in files),
            sum(it.size for it in files),
            removed.get(name, 0),
            sum(it.size < SMALL for it in files),
            row_changes.get(name),
        )
        for name in sorted(names)
    )
    at = entry.stamped_at or 0.0
    superseded, left_out = entry.ours.get("superseded"), entry.ours.get("leftOut")
    narrows = entry.ours.get("narrows")
    return Committed(
        entry.job or "",
        root.url,
        partitions,
        at,
        change_reads=reads,
        narrows=narrows if isinstance(narrows, str) else None,
        superseded=superseded if isinstance(superseded, dict) else {},
        left_out=left_out if isinstance(left_out, int) else 0,
    )


def _changes_told(entry: LogEntry) -> tuple[dict[str, RowChanges], ChangeReads | None]:
    """Return the counts of rows that a job changed, by partition, and of those that it read, from
    its entry. They are only reported, so invalid ones are left out."""
    told, read = entry.ours.get("rowChanges"), entry.ours.get("changeReads")
    try:
        return (
            {name: from_members(RowChanges, it) for name, it in (told or {}).items()},
            from_members(ChangeReads, read) if read else None,
        )
    except (Unfit, AttributeError):
        return {}, None


def _repeated(
    root: TableRoot, layout: DeltaLayout, state: LogState, done: RunDone, run: str
) -> Step[Committed]:
    """Return the report of what an earlier attempt of the run has committed.

    :param run: the run's key.
    :raises CommitConflictError: another writer has overwritten that attempt's entry, so its rows
        are lost.
    """
    entry = done.entry
    if entry is None:
        (entry,) = yield from read_entries(layout.folder, [done.version])
    overwritten = entry is not None and entry.transaction(RUN + run) is None
    # A checkpoint from before may have the entry's rows and transaction.
    if overwritten and RUN + run not in state.transactions:
        raise CommitConflictError(
            f"This run has loaded before, and another writer has written over its entry, version "
            f"{done.version}: its rows are lost from the table. This job wrote nothing.",
            table=root.url,
            remedy=f"Commit that entry again: zero-rename repair {root.url} --apply. If that is "
            "not possible, load once more with on_repeat='append'.",
        )
    if entry is None or overwritten:
        # The entry was cleaned, or overwritten, but it is certain that the run has committed.
        return Committed("", root.url, (), 0.0, repeated=True)
    if not state.exists:
        # The other attempt has made the table.
        state = (yield from open_log(layout, LogDepth.BLIND)).state
    return replace(committed(root, state, entry), repeated=True)


# Aborting


def _abort(layout: DeltaLayout, opened: OpenedJob, results: Sequence[TaskResult]) -> Step[Aborted]:
    """Abort a job of this process that was not handed over: no other process can commit it."""
    yield from delete_files(file.key for result in results for file in result.files)
    yield from abandon_job(layout, opened.job)
    return Aborted(opened.job, opened.root.url, 0)


def _withdraw(
    layout: DeltaLayout, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[Aborted | Committed]:
    """Abort a job whose entry may have been sent, after fencing it; or find that it is committed.

    :raises OtherJobError: the job would have made the table, and without a table it cannot be
        fenced. It is not known whether its entry will come, and its files stay.
    """
    now = int(time.time() * 1000)
    verdict = yield from withdraw_job(layout, opened.job, opened.opened_at, new_job_id(), now)
    if verdict.entry is None:
        yield from delete_files(file.key for result in results for file in result.files)
        return Aborted(opened.job, opened.root.url, 0)
    log = yield from open_log(layout, LogDepth.BLIND)
    return committed(opened.root, log.state, verdict.entry)
