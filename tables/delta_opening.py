"""Opening of a job of a Delta table: it is checked beside the table, and its run is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from ..committer.commit.first_job import in_case_of, spelled_for
from ..committer.commit.narrowed_run import RunsLastJob, as_planned
from ..committer.commit.state.job_state import LoggedJob, OpenedJob, UnpublishedJob
from ..committer.errors import (
    CommitConflictError,
    DamagedError,
    InvalidInputError,
    RefusedError,
    TableMismatchError,
    ZeroRenameError,
)
from ..committer.format.file_checks import check_options
from ..committer.format.job_spec import (
    Coordination,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    SchemaMode,
    SuccessMarkers,
)
from ..committer.format.layout import TableRoot, new_job_id, new_write_id
from ..committer.format.records.store_facts import StoreFacts
from ..committer.format.schema.compatibility import check_partitioning, check_same
from ..committer.format.schema.evolution import evolved, lacking, overwritten
from ..committer.format.schema.row_metadata import ROW_METADATA
from ..committer.format.schema.types import SPARK_VERSION, normalise
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema, raised_protocol, storable
from ..layouts.delta.delta_layout import DeltaLayout
from ..layouts.delta.statistics import statistics_of
from ..log.change import LogChange
from ..log.job_steps import OpenedLogJob, abandon_job, close_refused, leaves_no_entry, open_log_job
from ..log.opening import OpenedLog, read_entries
from ..log.replay import LogState
from ..log.searching import RunDone
from .data_root import (
    check_data_root,
    kept_data_root,
    refuse_folder_of_another,
    refuse_marked_by_another,
)
from .delta_commit import end_delta_job
from .delta_entry import Amend, depth_of, owner_members, removes_rows
from .delta_files import layout_of
from .delta_ranks import refuse_at_opening
from .delta_report import committed, repeated_commit
from .delta_runs import owner_of
from .delta_settling import refuse_moved
from .new_table import check_free, refuse_expiry
from .store_check import facts_of, refuse_second_writer
from .unpublished import check_held_back, unpublished_of_run


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
    check_partitioning(spec.schema, spec.partition_by or ())
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


@dataclass(frozen=True)
class Seen:
    """Facts of a table that this process has read before; ``None``: it has not read them.

    :param facts: the guarantees of its store.
    :param log: the state of its log.
    """

    facts: StoreFacts | None = None
    log: LogState | None = None


def open_delta_job(
    root: TableRoot, job: str, spec: JobSpec, seen: Seen, amend: Amend
) -> Step[tuple[OpenedJob, OpenedLog]]:
    """Open a job; return it with the state that it begins on."""
    layout = layout_of(root)
    writes = {"partitions": spec.named_partitions, "appends": spec.mode is Mode.APPEND}
    owner = {**owner_members(spec.owner), "max_duration": spec.max_duration, "writes": writes}
    ids, depth, run = _ids(job), depth_of(spec, amend), spec.idempotency_key
    opened = yield from open_log_job(layout, ids, owner, depth, run, seen.log)
    if not spec.publish and not opened.log.state.exists:
        # Without a log a job that waits could not be fenced.
        yield from abandon_job(layout, opened.job)
        yield from _make_table(root, spec, seen)
        opened = yield from open_log_job(layout, ids, owner, depth, run)
    try:
        removes = removes_rows(spec, amend)
        begun = yield from _opened(root, layout, opened, spec, removes, seen.facts)
        return begun, opened.log
    except ZeroRenameError:
        # Only the open record was written: there are no tasks yet.
        yield from close_refused(layout, opened.job)
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
    opened, log = yield from open_delta_job(root, new_job_id(), spec, seen, _making)
    layout = layout_of(root)
    # If another job has made the table meanwhile, the caller's next opening sees it.
    if log.state.exists:
        yield from abandon_job(layout, opened.job)
        return
    try:
        yield from end_delta_job(layout, opened, log, _making, (), 0)
    except (RefusedError, DamagedError) as error:
        if leaves_no_entry(error):
            yield from close_refused(layout, opened.job)
        if not isinstance(error, CommitConflictError):
            raise


def _making(change: LogChange, state: LogState) -> LogChange:
    return replace(change, operation="CREATE TABLE", joins=False)


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
        repeated = yield from repeated_commit(root, layout, state, done, spec.idempotency_key or "")
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
        made = lacking(storable(spec.schema), spec.lacked)
        return spec, made, spec.partition_by or ()
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
    check_partitioning(spec.schema, by)
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
