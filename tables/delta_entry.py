"""Entry of a job of a Delta table, by the policy of the job.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

from ..committer.commit.state.job_state import LoggedJob, OpenedJob
from ..committer.commit.state.task_results import check_results, destination_exists
from ..committer.format.job_spec import (
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    SchemaMode,
    SuccessMarkers,
)
from ..committer.format.layout import job_began
from ..committer.format.records.pending_file import PendingFile, TaskResult
from ..committer.format.records.typed_json import to_members
from ..committer.store.requests import Step
from ..layouts.delta.columns import delta_schema, needed_protocol, raised_protocol
from ..layouts.delta.data_roots import with_data_root
from ..layouts.delta.delta_layout import PROPERTIES, DeltaLayout
from ..layouts.delta.success_marker import ASKED
from ..log.actions import LogMetadata
from ..log.change import LogBase, LogChange, Overtaking
from ..log.opening import LogDepth, OpenedLog, open_log
from ..log.replay import LogState
from ..log.rerunning import find_past
from ..log.scope import ALL, NONE, Scope
from ..log.searching import find_run
from .delta_files import added_file, log_partition, partition_name, refuse_nulls, scope_of
from .delta_inputs import tell_inputs
from .delta_ranks import ranks_of_job
from .store_check import ATOMIC

#: Modifies the change of a job's entry; receives the state that the job began on.
Amend = Callable[[LogChange, LogState], LogChange]


def unchanged(change: LogChange, state: LogState) -> LogChange:
    return change


def amends(spec: JobSpec) -> Amend:
    """Return the function that adapts a job's change to its specification. For a job that changes
    rows it is :func:`rewriting`; for any other it changes nothing."""
    changes = spec.row_changes.values()
    if not changes:
        return unchanged
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


def removes_rows(spec: JobSpec, amend: Amend) -> bool:
    """Return whether a job removes rows; a compaction only removes files."""
    changes_data = not isinstance(amend, _Rewriting) or amend.changes_data
    return spec.mode is Mode.REPLACE and changes_data


def depth_of(spec: JobSpec, amend: Amend) -> LogDepth:
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
    some = amend is unchanged and not spec.replace_table and spec.replace_where is None
    return LogDepth.FEW if some else LogDepth.FILES


def planned_change(
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
        log = yield from open_log(layout, depth_of(spec, amend))
    change = amend(change_of_job(layout, opened, log.state, files, now), log.state)
    if spec.idempotency_key is not None and spec.on_repeat is not OnRepeat.SKIP:
        change = yield from _again(layout, opened, log, change, now)
    if spec.mode is Mode.FAIL_IF_EXISTS:
        _refuse_existing(opened, log.state, change)
    if opened.narrowed is not None:
        rows = sum(result.left_out for result in results)
        told = {**change.told, "narrows": opened.repeat_of, "leftOut": rows}
        change = replace(change, told=told)
    return log, change


def change_of_job(
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
        began=job_began(opened.job) + seconds_behind(opened),
    )


def seconds_behind(opened: OpenedJob) -> float:
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
