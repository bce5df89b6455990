"""Delta table on S3: each job commits one log entry, without a jar or a catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from ..committer.attempt import attempt_writer
from ..committer.changeable_table import ChangeableTable
from ..committer.commit.newest_run import SupersededBy
from ..committer.commit.settled import SettledPartition
from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.context import Progress
from ..committer.commit.state.heartbeat import OF_TASKS
from ..committer.commit.state.job_state import Aborted, Committed, OpenedJob, UnpublishedJob
from ..committer.commit.state.old_records import KEPT_FOR
from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
    ZeroRenameError,
    about,
)
from ..committer.format.as_of import AsOf, Past
from ..committer.format.given_numbers import check_age, check_span
from ..committer.format.given_rows import schema_of
from ..committer.format.job_spec import (
    MAX_DURATION,
    Content,
    FileOptions,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    Owner,
    SchemaMode,
    SuccessMarkers,
    choice,
    column_names,
    job_ids,
    partition_names,
)
from ..committer.format.layout import TableRoot, new_job_id, require_job_id
from ..committer.format.parquet.foreign_columns import FooterReader
from ..committer.format.parquet.reader import read_batches
from ..committer.format.parquet.row_filter import Filter
from ..committer.format.parquet.row_order import check_order, in_order
from ..committer.format.parquet.task_writer import TaskWriter
from ..committer.format.read_base import ReadBase
from ..committer.format.records.inputs import Inputs
from ..committer.format.records.run_conflict import (
    ConflictingRun,
    RunConflict,
    SettledBy,
    Settlement,
)
from ..committer.format.row_changes import RowChanges
from ..committer.format.run_rank import RunRanks
from ..committer.overview.job_record import JobRecord
from ..committer.overview.rival_jobs import RivalJob
from ..committer.readable_table import ReadableTable
from ..committer.scan.current_table import given_partitions, stored_in
from ..committer.scan.reads import note_read, stated_inputs
from ..committer.scan.table_scan import BegunRead, TableAccess, TableScan, scan_plan
from ..committer.store.driver import BotoDriver, connect
from ..committer.store.fast_root import FastRoot, is_fast
from ..committer.store.requests import Step, Work
from ..committer.table_copy import Copied
from ..committer.upkeep.adopt import AdoptAction, AdoptReport
from ..committer.upkeep.checkpoint import (
    CheckpointAction,
    Checkpointed,
    CheckpointOrder,
    DataRootChange,
    NotDurable,
    not_durable,
    plan_checkpoint,
    refuse_temporary,
)
from ..committer.upkeep.compaction import (
    TARGET_BYTES,
    CompactAction,
    CompactedPartition,
    CompactionPlan,
    compactible,
    content_kept,
)
from ..committer.upkeep.conflicts.conflict_record import open_conflicts, settle
from ..committer.upkeep.conflicts.conflict_search import ConflictReport
from ..committer.upkeep.conflicts.settlement_policy import SettlementPolicy
from ..committer.upkeep.problem import Problem
from ..committer.upkeep.purging.purge import PurgeEntry
from ..committer.upkeep.recovery import OpenJob, Recovered
from ..committer.upkeep.unfinished import telling_of_jobs, unless_begun
from ..committer.upkeep.verify import Finding
from ..committer.write_job import WriteJob, this_process
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.data_roots import data_root_of, roots_of
from ..log.actions import AddFile, RemoveFile
from ..log.change import FENCE
from ..log.checkpointing import make_checkpoint
from ..log.entries import LogEntry
from ..log.job_steps import abandon_job, close_refused, commit_or_abandon, open_log_job
from ..log.opening import LogDepth, OpenedLog, list_log, open_log, read_entries
from ..log.repairing import RepairedEntry, repair_log
from ..log.scope import ALL
from ..log.searching import RunDone, find_run
from .after_commit import checkpoint_interval
from .data_root import change_data_root, check_data_root, kept_data_root, reached_as_now
from .delta_adopt import adopt_directory, plan_adoption
from .delta_checkpoint import DeltaCheckpointer
from .delta_conflicts import find_log_conflicts
from .delta_copy import copy_table
from .delta_doctor import examine
from .delta_entry import amends, owner_members, rewriting
from .delta_files import layout_of, scope_of, snapshot_of
from .delta_inputs import inputs_of_rows, inputs_told
from .delta_properties import RetentionChange, change_retention
from .delta_ranks import find_superseded
from .delta_records import job_records
from .delta_report import committed
from .delta_restoring import (
    RestoredVersion,
    carry_out,
    find_restored,
    preview,
    restore_planner,
    undo_planner,
)
from .delta_runs import owner_in_report, owner_of
from .delta_settling import (
    LogSettlementPlan,
    check_log_rerun,
    plan_log_settlement,
    read_log_settled,
)
from .delta_steps import DeltaSteps
from .delta_upkeep import (
    open_jobs,
    plan_recovery,
    purge_records,
    purge_table,
    purgeable,
    recover_jobs,
    refuse_unknown,
    rival_jobs,
    store_now,
)
from .delta_verify import keys_there, verify_table
from .last_changes import ChangesSince, LastChanges, Since, changes_since, last_changes
from .opened_table import OpenedTable
from .publishing import abort, publish, rows_of_job
from .run_reports import write_reports
from .seen_logs import note_log, seen_log
from .store_check import ATOMIC
from .unpublished import all_unpublished, unpublished_of_run, waiting_jobs

T = TypeVar("T")
#: How many entries are read at once in a search.
_AT_ONCE = 64


@dataclass(frozen=True)
class NewestEntry:
    """The newest entry of a log, as a listing shows it."""

    version: int
    etag: str


@dataclass(frozen=True)
class LogVersion:
    """One entry of a table's log.

    :param at: when it was written, by its writer's clock; ``None``: the entry has no valid time.
    :param job: the job of this package that wrote it; ``None``: another engine did.
    :param operation: the operation that its writer names, such as ``WRITE``, ``MERGE`` or
        ``RESTORE``.
    :param owner: the job's owner; empty if it is not recorded.
    :param added: how many files it added; ``removed``: how many it removed.
    """

    version: int
    at: datetime | None
    job: str | None
    operation: str
    owner: dict[str, Any]
    added: int
    removed: int


class DeltaTable(ChangeableTable):
    """A Delta table on S3.

    Every engine that supports Delta Lake can read and write its log. Jobs of this package write
    each file once, need no listing of files, and commit by one conditional PUT of an entry. The
    store lets only one of several writers have this entry.

    :param url: ``s3://bucket/prefix``.
    :param client: a boto3 S3 client whose credentials and endpoint are used; ``None`` for boto3's
        standard chain, including ``AWS_ENDPOINT_URL``.
    :param driver: the driver of another table in the bucket, whose clients are used.
    :raises InvalidInputError: the URL is not the root of a table.

    Creating the object sends no request.
    """

    #: Jobs need no marker: a sensor waits for the log.
    usual_markers = SuccessMarkers.NONE

    def __init__(self, url: str, client: Any = None, driver: BotoDriver | None = None) -> None:
        self.root = TableRoot.parse(url)
        self.driver: BotoDriver = driver or connect(self.root.bucket, client)
        self._layout = layout_of(self.root)
        self._footers = FooterReader()
        #: Entries that polls have read, by version.
        self._read: dict[int, LogEntry] = {}
        #: Entries by job. They never change.
        self._entries: dict[str, LogEntry] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root.url!r})"

    # What the table is

    def exists(self) -> bool:
        """Return whether there is a Delta table at this root."""
        return self._open(LogDepth.BLIND).state.exists

    @property
    def schema(self) -> pa.Schema:
        """All present columns, including the partition columns.

        :raises TableNotFoundError: there is no table.
        """
        return self.shape()[0]

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns, outermost first; empty for an unpartitioned table."""
        return self.shape()[1]

    def shape(self, as_of: AsOf | None = None) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns and the partition columns.

        :param as_of: a former state; ``None``: the present one.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        :raises SnapshotGoneError: the version's entries were cleaned.
        """
        if as_of is not None:
            return self._opened(as_of).shape()
        metadata = self._found(self._open(LogDepth.BLIND)).state.metadata
        assert metadata is not None
        return arrow_schema(metadata), metadata.partition_columns

    def _open(self, depth: LogDepth, version: int | None = None) -> OpenedLog:
        if version is not None:
            return self.run(open_log(self._layout, depth, version))
        before = seen_log(self.driver, self.root)
        opened = self.run(open_log(self._layout, depth, before=before))
        note_log(self.driver, self.root, opened)
        return opened

    def _found(self, opened: OpenedLog) -> OpenedLog:
        if not opened.state.exists:
            raise TableNotFoundError(
                "There is no Delta table here.",
                table=self.root.url,
                remedy="Check the root. A table of directories is opened by zero_rename.Table(…).",
            )
        return opened

    def run(self, step: Work[T]) -> T:
        """Carry out a step of the protocol on the table's store."""
        with about(self.root.url):
            return self.driver.run(step)

    # Reading

    def snapshot(
        self, partitions: Collection[str] | None = None, as_of: AsOf | None = None
    ) -> Snapshot:
        """Return one state of some partitions (``day=2013-01-01``), or of all. It is recorded as an
        input of later jobs of this process.

        :param as_of: a former state, by its version or by a time of the store's clock; ``None``:
            the newest.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        :raises SnapshotGoneError: the version's entries were cleaned.
        """
        return note_read(self.state(partitions, as_of))

    def state(
        self, partitions: Collection[str] | None = None, as_of: AsOf | None = None
    ) -> Snapshot:
        """Return a state like :meth:`snapshot`, but do not record it as an input. For
        maintenance."""
        return self._opened(as_of).snapshot(partitions)

    def _opened(self, as_of: AsOf | None = None) -> OpenedTable:
        """Read the log once, for the columns and files of one version.

        :param as_of: the moment whose state is read; ``None``: now.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        :raises SnapshotGoneError: the version's entries were cleaned.
        """
        version = None if as_of is None else self.version_at(as_of)
        opened = self._found(self._open(LogDepth.BLIND, version))
        if version is not None:
            assert opened.state.metadata is not None
            metadata = self.run(reached_as_now(self._layout, opened.state.metadata))
            opened = replace(opened, state=replace(opened.state, metadata=metadata))
        return OpenedTable(self.root, self._layout, opened, self.run)

    def version_at(self, past: AsOf) -> int:
        """Return the version at a moment. An entry counts from the time at which the store wrote
        it.

        :raises TableNotFoundError: there was no table at that time.
        """
        if past.time is None:
            assert past.version is not None
            return past.version
        listed = self.run(list_log(self._layout.folder))
        there = [v for v, it in listed.entries.items() if it.last_modified <= past.time]
        if not there:
            raise TableNotFoundError(
                f"There was no Delta table here at {past}, or its log of then was cleaned.",
                table=self.root.url,
            )
        return max(there)

    def stored_names(self, partitions: Collection[str]) -> Collection[str]:
        return stored_in(self.root, self.shape, partitions)

    def scan(
        self,
        partitions: Collection[str] | None = None,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        as_of: Past | None = None,
        job: str | None = None,
    ) -> TableScan:
        """Return a lazy scan of one state, for batches, Arrow, pandas, Polars or DuckDB. Sends no
        request yet.

        :param partitions: only these, by name; ``None`` for all.
        :param filter: selects rows: an expression of ``pyarrow.compute``, or comparisons such as
            ``[("delay", ">", 15)]``; ``None`` for all.
        :param columns: the names of the columns, in the order wanted; ``None`` for all.
        :param limit: the greatest number of rows.
        :param as_of: a former state: a version, or a time with its zone.
        :param job: instead of a state, only the rows of this job, before or after it is published.
        :raises InvalidInputError: both ``as_of`` and ``job`` are given; or a list is given as a
            string; or the limit is invalid.
        """
        if as_of is not None and job is not None:
            raise InvalidInputError(
                "as_of names a state of the table, and job the rows of one job; nothing was read.",
                table=self.root.url,
                remedy="Give one of the two.",
            )
        past = None if as_of is None else AsOf.parse(as_of)
        reads = TableAccess(self.root, self.driver, partial(self._begun_read, past))
        if job is not None:
            reads = TableAccess(self.root, self.driver, partial(self._begun_read_of_job, job))
        return TableScan(reads, scan_plan(self.root, partitions, filter, columns, limit))

    def _begun_read(self, past: AsOf | None) -> BegunRead:
        """Choose the version that a scan reads."""
        opened = self._opened(past)
        return BegunRead(opened.shape, lambda names: note_read(opened.snapshot(names)))

    def _begun_read_of_job(self, job: str) -> BegunRead:
        """Choose the rows of one job that a scan reads."""
        opened = self._rows_of_job(job)
        return BegunRead(
            opened.shape, lambda names: note_read(replace(opened.snapshot(names), of_job=True))
        )

    def newest_entry(self, since: int = 0) -> NewestEntry | None:
        """Return the newest entry of the log, by one listing; ``None``: there is no table.

        :param since: list from this version on; it must be known to exist.
        """
        listed = self.run(list_log(self._layout.folder, since))
        if not listed.entries:
            return None
        return NewestEntry(listed.end, listed.entries[listed.end].etag)

    def has_moved(self, state: Snapshot) -> bool:
        """Return whether the table has changed since a state was read.

        It has if its partitions have other files, or it has other columns. Other entries, such as
        those of other partitions or of properties, do not count. If the state's partitions were
        chosen by what all of them hold, each entry counts.
        """
        if state.read is not None:
            return super().has_moved(state)
        try:
            now = self.state(state.asked)
        except TableNotFoundError:
            return False
        has_files = {it.key for it in now.files} == {it.key for it in state.files}
        return not (has_files and now.has_columns(state.schema, state.partition_by))

    def last_changes(
        self, partitions: Collection[str] | None, since: Since, newest: bool = False
    ) -> tuple[Snapshot, LastChanges]:
        """Return the present state of partitions, and the last change of each one's rows.

        :param partitions: by name; ``None``: all that hold files.
        :param since: the changes that count.
        :param newest: find only the newest of these changes.
        :raises TableNotFoundError: there is no table.
        """
        partitions = None if partitions is None else {*partitions}
        opened = self._found(self._open(LogDepth.FILES))
        state = snapshot_of(self.root, self._layout, opened.state, partitions)
        names = state.by_partition() if partitions is None else partitions
        step = last_changes(self.root, self._layout, opened.state, names, since, self._read, newest)
        return state, self.run(step)

    def changes_since(self, since: Since, most: int) -> ChangesSince:
        """Find the entries that changed rows, by any writer; compactions do not count.

        Sends one listing if no entry has come since the given version. If the table was deleted and
        made again since, and its log is shorter now, all entries are read.

        :param since: the changes that count.
        :param most: the greatest number of entries to read.
        :raises TableNotFoundError: there is no table.
        """
        if since.version is not None:
            newest = self.newest_entry(max(since.version, 0))
            if newest is not None and newest.version <= since.version:
                return ChangesSince((), since.version)
        state = self._found(self._open(LogDepth.BLIND)).state
        if since.version is not None and state.version < since.version:
            # A log always keeps its newest entry, so the table was deleted and made again.
            since = replace(since, version=None)
        return self.run(changes_since(self.root, self._layout, state, since, most))

    def history(self, limit: int | None = None) -> list[LogVersion]:
        """Return the entries of the log, the newest first.

        :param limit: at most so many; ``None``: all that were not cleaned.
        :raises InvalidInputError: the limit is invalid.
        """
        if limit is not None and (
            not isinstance(limit, int) or isinstance(limit, bool) or limit < 0
        ):
            raise InvalidInputError(
                f"Invalid limit={limit!r}: it must be a number of entries, from 0 on. Nothing was "
                "read.",
                table=self.root.url,
                remedy="Leave limit out to read all.",
            )
        listed = self.run(list_log(self._layout.folder))
        versions = sorted(listed.entries, reverse=True)[:limit]
        entries = self.run(read_entries(self._layout.folder, versions))
        return [_version(entry) for entry in entries if entry is not None]

    # Writing

    def job(
        self,
        schema: Any = None,
        *,
        mode: Mode | str = Mode.APPEND,
        partition_by: Sequence[str] | None = None,
        replace_partitions: Sequence[str] | None = None,
        replace_table: bool = False,
        only_partitions: Sequence[str] | None = None,
        on_conflict: OnConflict | str = OnConflict.FAIL,
        on_superseded: OnSuperseded | str = OnSuperseded.FAIL,
        run_rank: RunRanks | datetime | date | float | str | None = None,
        base: Snapshot | ReadBase | None = None,
        idempotency_key: str | None = None,
        on_repeat: OnRepeat | str = OnRepeat.SKIP,
        schema_mode: SchemaMode | str = SchemaMode.KEEP,
        success_markers: SuccessMarkers | str = SuccessMarkers.NONE,
        max_duration: float = MAX_DURATION,
        owner: Owner | None = None,
        files: FileOptions | None = None,
        inputs: Sequence[Snapshot | TableScan | str] | None = None,
        code_version: str | None = None,
        wait_for_other_runs: timedelta | float | None = None,
        publish: bool = True,
        data_root: str | None = None,
    ) -> WriteJob:
        """Return a job for plain Python: ``with table.job(mode="append") as job: job.write(data)``.

        The arguments are those of :meth:`.committer.table.Table.job`. ``max_duration`` is how long
        the job may take; recovery leaves it alone for so long.

        :param success_markers: ``table``: write a ``_SUCCESS`` to the table's root after the
            commit. A Delta table has no markers in its partitions.
        :param publish: ``False``: the rows stay invisible until :meth:`publish` is called with the
            job's id; ``job.unpublished`` describes the job that waits. If there is no table, one
            without rows is made.
        :param data_root: for a new table: where its jobs write their files first, as
            ``s3://bucket/prefix``, with ``?endpoint=URL`` for another store, and likewise
            ``profile`` for a profile of ``~/.aws/config``. Until a checkpoint has copied the files
            into the table, Spark is the only other engine that can read it. Later jobs use the
            data root that the table has.
        :return: a context manager. No request is sent before its block is entered.
        :raises TableNotFoundError: no schema is given, and there is no table.
        :raises InvalidInputError: a Delta table cannot keep an argument.
        :raises TableMismatchError: the table has another data root.
        """
        words: dict[str, Any] = {"mode": mode, "on_conflict": on_conflict, "on_repeat": on_repeat}
        words |= {"schema_mode": schema_mode, "run_rank": run_rank}
        words |= {"on_superseded": on_superseded, "success_markers": success_markers}
        # JobSpec turns them into members of their enumerations.
        spec = JobSpec(
            self.schema if schema is None else schema_of(schema),
            partition_by=column_names("partition_by", partition_by),
            replace_partitions=partition_names("replace_partitions", replace_partitions),
            replace_table=replace_table,
            only_partitions=partition_names("only_partitions", only_partitions),
            base=base.base if isinstance(base, Snapshot) else base,
            idempotency_key=idempotency_key,
            publish=publish,
            data_root=data_root,
            max_duration=max_duration,
            owner=owner or this_process(),
            files=files or FileOptions(),
            code_version=code_version,
            **words,
        )
        stated = None if inputs is None else partial(stated_inputs, self.driver, inputs)
        before = self._waiting(spec, wait_for_other_runs)
        return WriteJob(DeltaSteps(self.driver, self.root), spec, inputs=stated, before=before)

    # Jobs that are published later

    def publish(self, job: str) -> Committed:
        """Make the rows of a job that waits visible, by one entry of the log.

        The entries since the job opened are judged now. If the job is published already, the report
        says *repeated*.

        :param job: the job's id.
        :raises CommitConflictError: the job conflicts with an entry since it opened; or its run has
            loaded again; or it has waited for longer than the table's retention. It still waits.
        :raises JobFencedError: the job was aborted.
        :raises CommitStateUnknownError: the job may be published: call this again.
        :raises InvalidInputError: there is no such job.
        """
        return self.run(publish(self.root, self._layout, job))

    def abort(self, job: str) -> Aborted:
        """Abort a job that waits to be published, and delete its files.

        :param job: the job's id.
        :raises CommitConflictError: the job is published.
        :raises InvalidInputError: there is no such job.
        """
        return self.run(abort(self.root, self._layout, job))

    def unpublished(self) -> list[UnpublishedJob]:
        """Return the jobs that wait to be published, the oldest first.

        :raises TableNotFoundError: there is no table.
        """
        state = self._found(self._open(LogDepth.BLIND)).state
        jobs = self.run(waiting_jobs(self._layout))
        return self.run(all_unpublished(self.root, self._layout, state, jobs))

    def unpublished_of_key(self, idempotency_key: str) -> UnpublishedJob | None:
        """Return the job of a run that waits and may still be published, or ``None``."""
        state = self._open(LogDepth.BLIND).state
        if not state.exists:
            return None
        return self.run(unpublished_of_run(self.root, self._layout, state, idempotency_key))

    def rows_of_job(self, job: str, partitions: Collection[str] | None = None) -> Snapshot:
        """Return a snapshot of only the files that a job adds, whether it is published or not.

        :param partitions: by name; ``None``: all.
        :raises JobFencedError: the job was aborted.
        :raises InvalidInputError: there is no such job.
        """
        return replace(self._rows_of_job(job).snapshot(partitions), of_job=True)

    def _rows_of_job(self, job: str) -> OpenedTable:
        state = self.run(rows_of_job(self.root, self._layout, job))
        return OpenedTable(self.root, self._layout, OpenedLog(state, 0.0), self.run)

    def tasks_job(
        self,
        spec: JobSpec,
        progress: Callable[[Progress], None],
        wait_for_other_runs: timedelta | float | None = None,
    ) -> WriteJob:
        """Return a job whose rows are written by tasks in other processes: they receive its
        ``opened``, and it receives their results. ``progress`` is never called, since all files
        become visible at once."""
        steps = DeltaSteps(self.driver, self.root, amends(spec))
        return WriteJob(steps, spec, OF_TASKS, before=self._waiting(spec, wait_for_other_runs))

    def task_writer(self, opened: OpenedJob, task: int, attempt: int) -> TaskWriter:
        """Return the writer of one task attempt of an open job.

        :param task: the task's number, from 0 on; one result of each task is committed.
        :param attempt: distinguishes attempts of one task, which may run at the same time.
        """
        return attempt_writer(self.driver, opened, task, attempt)

    # Rows that are changed

    @property
    def hidden_remedy(self) -> str:
        return (
            "Add these columns to the table by the engine that wrote the files, or by "
            "save(…, schema_mode='merge', layout='delta')."
        )

    def state_to_change(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Return a snapshot whose rows will be changed."""
        return self.state(partitions)

    def rewrite_policies(
        self, state: Snapshot, changes: Mapping[str, RowChanges], files: FileOptions
    ) -> tuple[dict[str, Any], list[Inputs]]:
        """Return the fields of a job that replaces partitions whose rows change, and the inputs of
        the rows that are there."""
        base = state.base
        if state.log_version is None:
            base = replace(base, log_version=-1)  # There was no table.
        policies: dict[str, Any] = {
            "mode": Mode.REPLACE,
            "replace_partitions": tuple(sorted(changes)) if state.partition_by else None,
            "replace_table": not state.partition_by,
            "base": base,
            "serializable": state.read is not None,
            "row_changes": dict(changes),
        }
        if content_kept(state.of(changes).files) is Content.ROWS:
            policies["files"] = replace(files, content=Content.ROWS)
        inputs = self.run(inputs_of_rows(self._layout.folder, state, changes))
        return policies, [inputs] if state.of(changes).files else []

    def rewriting_job(self, spec: JobSpec, inputs: Inputs) -> WriteJob:
        """Return a job that rewrites rows of a state, with changes in some of them."""
        return WriteJob(
            DeltaSteps(self.driver, self.root, amends(spec)), spec, inputs=lambda: inputs
        )

    def version_of_key(self, idempotency_key: str) -> int | None:
        """Return the version of the last commit under a run's key; ``None``: there is none.

        The version is known even if the entry was cleaned since; the job's id is not."""
        done = self._run_done(idempotency_key)
        return None if done is None else done.version

    def has_done(self, idempotency_key: str) -> bool:
        """Return whether a run has committed, also if its entry was cleaned since."""
        return self._run_done(idempotency_key) is not None

    def owner_of_key(self, idempotency_key: str) -> Owner | None:
        """Return the owner of the job that last committed under a run's key, from the run's report:
        it is there also if the entry was cleaned.

        ``None``: there is none, or an earlier version of this package wrote the report.
        """
        done = self._run_done(idempotency_key)
        if done is None:
            return None
        return self.run(owner_in_report(self._layout, idempotency_key, done.version))

    def _run_done(self, idempotency_key: str) -> RunDone | None:
        opened = self._open(LogDepth.BLIND)
        return self.run(find_run(self._layout, opened.state, idempotency_key, ""))

    def job_of_key(self, idempotency_key: str) -> str | None:
        """Return the job that last committed under a run's key; ``None``: there is none, or its
        entry was cleaned."""
        done = self._run_done(idempotency_key)
        if done is None:
            return None
        entry = done.entry or self.run(read_entries(self._layout.folder, [done.version]))[0]
        if entry is None or entry.job is None:
            return None
        self._entries[entry.job] = entry
        return entry.job

    # Jobs

    def _entry_of(self, job: str) -> LogEntry | None:
        """Return the entry of a job; ``None``: it has none, or the entry was cleaned."""
        if job not in self._entries:
            listed = self.run(list_log(self._layout.folder))
            versions = sorted(listed.entries, reverse=True)
            for start in range(0, len(versions), _AT_ONCE):
                some = versions[start : start + _AT_ONCE]
                entries = self.run(read_entries(self._layout.folder, some))
                self._entries |= {it.job: it for it in entries if it is not None and it.job}
                if job in self._entries:
                    break
        return self._entries.get(job)

    def owner_of(self, job: str) -> Owner | None:
        """Return the owner of a job, from its entry; ``None``: the log has no entry of it."""
        entry = self._entry_of(job)
        if entry is None or not isinstance(entry.ours.get("owner"), dict):
            return None
        return owner_of(entry)

    def result(self, job: str) -> Committed | None:
        """Return the report of a committed job; ``None`` for any other job."""
        entry = self._entry_of(job)
        if entry is None:
            return None
        return committed(self.root, self._found(self._open(LogDepth.BLIND)).state, entry)

    def is_fenced(self, job: str) -> bool:
        """Return whether a job was fenced, so that it can never commit."""
        state = self._open(LogDepth.BLIND).state
        if FENCE + job not in state.transactions and not state.all_transactions:
            # A checksum file names only the newest transactions.
            state = self._open(LogDepth.WHOLE).state
        return FENCE + job in state.transactions

    def is_closed(self, job: str) -> bool:
        """Return whether a job has no open record, so that nothing of it is left to do."""
        return all(it.job != job for it in self.open_jobs())

    def send_heartbeat(self, job: str, interval: float = 30.0) -> bool:
        """Return ``False`` and send no heartbeat: in a Delta table a job counts as alive for its
        whole ``max_duration``."""
        return False

    def inputs_of(self, job: str) -> Inputs:
        """Return the recorded inputs of a job's rows, and the version of the program that computed
        them. They are unknown if the job is not committed, or if its entry was cleaned."""
        return inputs_told(self._entry_of(job))

    def job_records(self, jobs: Iterable[str], state: Snapshot) -> dict[str, JobRecord]:
        """Return the records of jobs with files in a state, and of the jobs whose rows they
        rewrote: one request for each. Jobs whose entries were cleaned are left out.

        :param jobs: the jobs with files in the state.
        :param state: a state of this table.
        """
        return self.run(job_records(self._layout.folder, state, jobs))

    def keys_there(self) -> set[str]:
        """Return the keys of all objects below the table and in its data roots: one listing for
        each."""
        return self.run(keys_there(self._layout))

    def newer_runs(
        self,
        partitions: Iterable[str],
        run_rank: RunRanks,
        replaces: bool,
        *,
        run: str | None = None,
        on_conflict: OnConflict | str = OnConflict.NEWEST_RUN,
    ) -> dict[str, SupersededBy]:
        """Find the partitions in which a run would give way now: to newer runs, or to winners of
        settled conflicts.

        :param run_rank: how new the run is.
        :param replaces: the run replaces the partitions; otherwise it appends to them.
        :param run: the run's key, if it has one.
        :param on_conflict: the run's policy.
        :raises InvalidInputError: the ranks are of two kinds; or a string instead of a list.
        """
        policy = choice("on_conflict", OnConflict, on_conflict)
        given = given_partitions(self.root, partitions)
        if policy is OnConflict.LAST_WINS:
            return {}
        state = self._open(LogDepth.FILES).state
        names = self.stored_names(given) if state.exists else ()
        return find_superseded(state, names, run_rank, replaces, run, policy=policy)

    def rival_jobs(
        self, partitions: Iterable[str], appends: bool, *, run: str | None = None
    ) -> list[RivalJob]:
        """Find the open jobs of other runs that write the same partitions, by their open records. A
        job that is open for longer than its ``max_duration`` counts as dead, and is left out.

        :param partitions: in any spelling; none: any.
        :param appends: whether the run appends: two appends are not rivals.
        :param run: the run's idempotency key; its own jobs are not rivals.
        :raises InvalidInputError: a string instead of a list.
        """
        names = given_partitions(self.root, partitions)
        return self.run(rival_jobs(self._layout, names, appends, run))

    def compact(
        self,
        partitions: Collection[str] | None = None,
        target_bytes: int = TARGET_BYTES,
        apply: bool = False,
        sort_by: Sequence[str] = (),
    ) -> list[CompactedPartition]:
        """Rewrite the files of partitions with too many files as fewer files: one job for each
        partition.

        A partition is compacted if it has at least twice as many files as its bytes need, or is not
        sorted as asked. If another job changes it meanwhile, it stays as it is. The rows stay the
        same, so this is no conflict for jobs that have read them.

        :param partitions: only these; ``None`` for all.
        :param target_bytes: the approximate size of a file.
        :param apply: ``False`` only reports what would be done.
        :param sort_by: columns to sort each partition's rows by, so that reads open few files.
        :raises TableNotFoundError: there is no table.
        :raises InvalidInputError: rows cannot be sorted by one of the columns.
        """
        opened = self._opened()
        state = opened.snapshot(partitions)
        check_order(sort_by, state.schema, state.partition_by)
        plans = compactible(state, target_bytes, tuple(sort_by))
        if not apply:
            try:
                self._layout.check_writable(opened.opened.state, removes_rows=False)
            except TableMismatchError as error:
                return [plan.left(error) for plan in plans]
            return [plan.report for plan in plans]
        done: list[CompactedPartition] = []
        with telling_of_jobs(done):
            for plan in plans:
                done.append(self._compact(plan))
        return done

    def _compact(self, plan: CompactionPlan) -> CompactedPartition:
        state = plan.snapshot
        files = FileOptions(bytes_per_file=plan.target_bytes)
        policies, inputs = self.rewrite_policies(state, {plan.partition: RowChanges()}, files)
        given: dict[str, Any] = {"files": files, **policies}
        spec = JobSpec(
            state.schema,
            owner=this_process(),
            success_markers=SuccessMarkers.NONE,
            sorted_by=plan.sort_by,
            **given,
        )
        made_of = Inputs.all_of(inputs)
        steps = DeltaSteps(self.driver, self.root, rewriting("OPTIMIZE", False))
        batches = (
            rows
            for it in plan.files
            for rows in read_batches(
                self.driver, state.schema, state.partition_by, it, rewrites=True
            )
        )
        try:
            with self.held_against(state), WriteJob(steps, spec, inputs=lambda: made_of) as job:
                for rows in in_order(batches, state.schema, plan.sort_by):
                    job.write(rows)
        except (CommitConflictError, SnapshotGoneError):
            return replace(plan.report, action=CompactAction.CHANGED_MEANWHILE)
        except TableMismatchError as error:
            return plan.left(error)
        assert job.committed is not None
        after = job.committed.files
        return replace(plan.report, action=CompactAction.COMPACTED, files_after=after, job=job.job)

    # Files in a data root

    @property
    def data_root(self) -> FastRoot | None:
        """The root in which jobs write files first; ``None``: the table itself, or no table."""
        return data_root_of(self._open(LogDepth.BLIND).state)

    @property
    def has_data_roots(self) -> bool:
        """True if files may lie in a data root, the present one or a former one."""
        return bool(roots_of(self._open(LogDepth.BLIND).state))

    @property
    def data_root_prefixes(self) -> tuple[str, ...]:
        """The prefixes of keys in the recorded data roots, except where files of another table may
        lie."""
        folders = self.run(self._layout.own_folders(self._open(LogDepth.BLIND).state))
        return tuple(filter(is_fast, folders))

    def refuse_other_data_root(self, data_root: FastRoot | str) -> None:
        """Refuse a data root for a job if the table has another one, or if a new table cannot have
        it.

        :raises TableMismatchError: the table has another data root.
        :raises InvalidInputError: the data root is invalid, or lies in the table.
        """
        root, state = FastRoot.parse(data_root), self._open(LogDepth.BLIND).state
        if state.exists:
            kept_data_root(self.root, state, root)
        else:
            check_data_root(self.root, root)

    def set_data_root(self, data_root: str | None, apply: bool = False) -> DataRootChange:
        """Change where jobs write files first. Present files stay where they are until they are
        replaced or copied.

        :param data_root: as for :meth:`job`; ``None``: the table itself.
        :param apply: ``False`` only reports what would change.
        :raises TableNotFoundError: there is no table.
        :raises InvalidInputError: the data root is invalid, or lies in the table.
        :raises CommitConflictError: another job changed columns or properties meanwhile.
        """
        root = None if data_root is None else FastRoot.parse(data_root)
        return self.run(change_data_root(self.root, self._layout, root, apply))

    def not_durable(self) -> list[NotDurable]:
        """Return the files that lie only in a data root, by partition, and since when.

        :raises TableNotFoundError: there is no table.
        """
        return not_durable(self.state().files)

    def checkpoint(
        self,
        partitions: Collection[str] | None = None,
        order: CheckpointOrder | str = CheckpointOrder.CREATION,
        apply: bool = False,
    ) -> list[Checkpointed]:
        """Copy the files that lie only in a data root into the table.

        One job copies the partitions that were written together; files and rows stay the same. When
        all files are copied, every engine can read the table. Other jobs may run meanwhile: if one
        removes a copied file, it removes the copy. Files that another job writes meanwhile are left
        to the next checkpoint.

        If both places are at one store and use the same credentials, the store copies. Otherwise
        the bytes go through this process, four files at a time. The files in the data root stay
        there until a purge after the table's retention.

        :param partitions: only these; ``None`` for all.
        :param order: which partitions come first: those that were written first, or last.
        :param apply: ``False`` only reports what would be done.
        :raises FastRootGoneError: a data root cannot be reached. The files in others are copied.
        :raises TableNotFoundError: there is no table.
        :raises TableMismatchError: the table cannot be written here.
        :raises InvalidInputError: the data root is temporary, so its files need not become durable;
            or the order is invalid.
        """
        chosen = choice("order", CheckpointOrder, order)
        refuse_temporary(self.root, self.data_root)
        opened = self._opened()
        plans = plan_checkpoint(opened.snapshot(partitions), chosen)
        if not apply:
            if plans:
                with about(self.root.url):
                    self._layout.check_writable(opened.opened.state, removes_rows=False)
            return [it for plan in plans for it in plan.told(CheckpointAction.WOULD_COPY)]
        copier = DeltaCheckpointer(self.driver, self.root, self._layout, this_process())
        with about(self.root.url):
            return copier.copy_all(plans)

    # Past and maintenance

    def _tend(self, step: Step[T]) -> T:
        """Carry out a step of maintenance.

        :raises UnfinishedUpkeepError: the store failed after the step may have changed something.
        """
        return self.run(unless_begun(step))

    @property
    def retention(self) -> float:
        """The seconds for which removed files stay.

        :raises TableNotFoundError: there is no table.
        """
        state = self._found(self._open(LogDepth.BLIND)).state
        with about(self.root.url):
            return self._layout.retention(state)

    def set_retention(self, seconds: float, apply: bool = False) -> RetentionChange:
        """Change for how long removed files stay, also those that are kept now. Engines that vacuum
        the table respect it, too. After a reduction, the next purge deletes files that are older.

        :param seconds: the new retention.
        :param apply: ``False`` only reports what would change.
        :raises InvalidInputError: it is less than an hour, or more than 100 years. Nothing was
            changed.
        :raises CommitConflictError: another job changed columns or properties meanwhile.
        :raises TableNotFoundError: there is no table.
        """
        return self.run(change_retention(self.root, self._layout, seconds, apply))

    def undo(self, job: str, apply: bool = False) -> RestoredVersion:
        """Bring back what partitions held before a job changed them, in all of them or none.

        This takes one entry and writes no data. Partitions where other jobs have removed the job's
        rows stay as they are.

        :param job: the id of the job to undo. An undoing is a job, too, and can be undone.
        :param apply: ``False`` only reports what would be done.
        :raises InvalidInputError: the job is not committed in this table; or later jobs, which the
            error names, have changed its partitions; or files cannot be brought back. Nothing was
            changed.
        :raises CommitConflictError: another job committed meanwhile. Nothing was changed.
        :raises TableNotFoundError: there is no table.
        """
        require_job_id(job)
        self._found(self._open(LogDepth.BLIND))
        entry = self._entry_of(job)
        if entry is None:
            raise InvalidInputError(
                f"{job} has no entry in the log, so there is nothing to undo. Nothing was changed.",
                table=self.root.url,
                job=job,
                remedy=f"zero-rename history {self.root.url} lists the jobs that have one.",
            )
        owner = _restorer()
        plan = undo_planner(self.root, self._layout, job, entry.version, owner)
        if not apply:
            return self.run(preview(self._layout, plan))
        return self.run(carry_out(self.root, self._layout, plan, owner, allow_lost=False))

    def restore(
        self,
        as_of: Past,
        partitions: Collection[str] | None = None,
        apply: bool = False,
        allow_lost: bool = False,
        idempotency_key: str | None = None,
    ) -> RestoredVersion:
        """Restore the table, including its columns, or some of its partitions, as they were at a
        moment. This takes one entry and writes no data.

        :param as_of: a version, or a time with its zone.
        :param partitions: only these, by name; ``None``: all.
        :param apply: ``False`` only reports what would be done.
        :param allow_lost: go on if files of that version cannot be brought back; ``False``: refuse.
        :param idempotency_key: names the run. If a job of this run has committed before, nothing is
            changed, even if the table has changed since, and that job is reported.
        :raises InvalidInputError: files cannot be brought back, or those of the partitions do not
            fit the present columns. Nothing was changed.
        :raises SnapshotGoneError: the version's entries were cleaned. Nothing was changed.
        :raises CommitConflictError: another job committed meanwhile. Nothing was changed.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        """
        shape = self.shape()
        version, within = self.version_at(AsOf.parse(as_of)), ALL
        if partitions is not None:
            within = scope_of(stored_in(self.root, lambda: shape, partitions), *shape)
        owner = _restorer()
        plan = restore_planner(self.root, self._layout, version, within, owner)
        if not apply:
            return self.run(preview(self._layout, plan))
        run = idempotency_key
        done = None if run is None else self.run(find_restored(self._layout, run, version))
        if done is not None:
            return done
        return self.run(carry_out(self.root, self._layout, plan, owner, allow_lost, run))

    def now(self) -> float:
        """Return the time of the store's clock, in Unix seconds: one request."""
        return self.run(store_now(self._layout)) / 1000

    def checkpoint_log(self) -> int | None:
        """Write a checkpoint, which openings read instead of all entries; return its version.

        ``None``: it is not certain to be there. The answers of readers do not depend on it."""
        now = self.run(store_now(self._layout))
        return self.run(make_checkpoint(self._layout, now))

    def recover(self, patience: float | None = None) -> list[Recovered]:
        """Recover jobs whose process is taken for dead: finish the committed ones, fence and close
        the others. Jobs that wait to be published are left alone for the table's retention, counted
        from their opening.

        :param patience: seconds after its opening from which on a job counts as dead; ``None``: its
            own ``max_duration``. 0 means that no job is running.
        :raises InvalidInputError: ``patience`` is negative or no number. Nothing was changed.
        """
        check_age("patience", patience)
        return self._tend(recover_jobs(self._layout, patience))

    def plan_recovery(self, patience: float | None = None) -> list[Recovered]:
        """Return what :meth:`recover` would do. Changes nothing."""
        check_age("patience", patience)
        return self.run(plan_recovery(self._layout, patience))

    def settle(self, jobs: Collection[str]) -> list[Recovered]:
        """Recover open jobs whose processes have ended, as the caller knows. If such a process is
        alive after all, its job is fenced. Jobs that wait to be published are left alone."""
        return self._tend(recover_jobs(self._layout, 0.0, job_ids("jobs", jobs)))

    def give_up(self, jobs: Collection[str]) -> list[Recovered]:
        """Recover open jobs that the caller names as dead, also those that wait to be published.

        :raises InvalidInputError: one of the jobs is not open. Nothing was changed.
        """
        jobs = job_ids("jobs", jobs)
        self.run(refuse_unknown(self._layout, jobs))
        return self._tend(recover_jobs(self._layout, 0.0, jobs, spares_waiting=False))

    def plan_give_up(self, jobs: Collection[str]) -> list[Recovered]:
        """Return what :meth:`give_up` would do. Changes nothing.

        :raises InvalidInputError: one of the jobs is not open.
        """
        jobs = job_ids("jobs", jobs)
        self.run(refuse_unknown(self._layout, jobs))
        return self.run(plan_recovery(self._layout, 0.0, jobs, spares_waiting=False))

    def open_jobs(self, decided: bool = False) -> list[OpenJob]:
        """Return the jobs with an open record, the oldest first.

        :param decided: search the log, too, for which of them are committed or fenced; ``False``:
            ``decided`` of each is ``None``.
        """
        return self.run(open_jobs(self._layout, decided))

    # Conflicts of runs

    def conflicts(self, seconds: float | None = None, remember: bool = True) -> ConflictReport:
        """Find the conflicts of runs over partitions, by the entries since the last search. The
        report also has earlier conflicts that are not settled.

        :param seconds: search so far back by the store's clock, instead of to the last search; such
            a search is not recorded.
        :param remember: record the result, so that the next search goes on from it; ``False``
            writes nothing.
        :raises InvalidInputError: ``seconds`` is negative or no number.
        :raises RecordDamagedError: the record of conflicts cannot be read.
        :raises TableNotFoundError: there is no table.
        """
        check_age("seconds", seconds)
        return self.run(find_log_conflicts(self.root, self._layout, seconds, remember))

    def settled(self, seen: Mapping[str, int]) -> dict[str, SettledPartition]:
        """Read the settlements of conflicts over partitions.

        :param seen: by partition, the version at which its conflict was found. It is returned as
            the partition's version if nothing has changed it since.
        """
        return self.run(read_log_settled(self.root, self._layout, seen))

    def check_rerun(self, conflict: RunConflict, winner: ConflictingRun) -> None:
        """Check that the winning run may load a partition in conflict again.

        :raises InvalidInputError: this would remove rows of runs that are not in the conflict.
        :raises OtherJobError: an open job writes the partition, or may write it.
        """
        self.run(check_log_rerun(self.root, self._layout, conflict, winner))

    def resolve(
        self,
        policy: object,
        partitions: Collection[str] | None = None,
        apply: bool = False,
        owner: Owner | None = None,
    ) -> list[RunConflict]:
        """Settle the recorded conflicts, each partition by an entry of its own.

        The entry brings back the rows of the winning run. If readers see these rows already, it
        only names that run. The runs that lost give way until another run replaces the partition.

        :param policy: ``"newest_run"``; ``{"prefer": [...]}``, DAGs, tasks, applications or assets
            in order; or ``{"keep": [...]}``, jobs.
        :param partitions: only these; ``None``: all.
        :param apply: ``False`` only reports what would be done.
        :param owner: the owner that the settlement records; ``None``: this process.
        :returns: the conflicts, each with its settlement, or why it is not settled.
        :raises InvalidInputError: the policy is invalid; or a partition has no conflict on record.
        """
        chosen = SettlementPolicy.parse(policy)
        names = None if partitions is None else self.stored_names(partitions)
        found = self.run(open_conflicts(self.root.conflicts_key, names))
        return [self._resolve(it, chosen, apply, owner or this_process()) for it in found]

    def _resolve(
        self, conflict: RunConflict, policy: SettlementPolicy, apply: bool, owner: Owner
    ) -> RunConflict:
        said = Settlement("", (), None, owner, str(policy), SettledBy.RESTORE)
        try:
            winner = policy.winner(conflict)
            rank = conflict.highest_rank(winner)
            said = replace(said, stands=winner.key, rank=rank)
            if apply:
                how, losers, job = self._settle_conflict(conflict, winner, owner)
            else:
                plan = self._planned_settlement(conflict, winner, new_job_id(), owner)
                how, losers, job = plan.how, plan.losers, plan.job
            said = replace(said, losers=losers, how=how, job=job)
        except ZeroRenameError as error:
            said = replace(said, stands="", rank=None, error=str(error))
        if not apply:
            return conflict.settled(said)
        return self.run(settle(self.root.conflicts_key, conflict, said))

    def _planned_settlement(
        self, conflict: RunConflict, winner: ConflictingRun, job: str, owner: Owner
    ) -> LogSettlementPlan:
        now, root, layout = self.run(store_now(self._layout)), self.root, self._layout
        told = owner_members(owner)
        return self.run(plan_log_settlement(root, layout, conflict, winner, job, now, told))

    def _settle_conflict(
        self, conflict: RunConflict, winner: ConflictingRun, owner: Owner
    ) -> tuple[SettledBy, tuple[str, ...], str | None]:
        """Commit the entry that settles a conflict, unless such an entry is in the log already."""
        writes = {"partitions": [conflict.partition], "appends": False}
        told = {**owner_members(owner), "max_duration": MAX_DURATION, "writes": writes}
        opened = self.run(open_log_job(self._layout, iter(new_job_id, ""), told, LogDepth.BLIND))
        try:
            plan = self._planned_settlement(conflict, winner, opened.job, owner)
            now = self.run(store_now(self._layout))
        except ZeroRenameError:
            # Only the open record was written.
            self.driver.run(close_refused(self._layout, opened.job))
            raise
        if plan.change is None:
            self.driver.run(abandon_job(self._layout, opened.job))
            return plan.how, plan.losers, plan.job
        self.run(commit_or_abandon(self._layout, plan.opened, plan.change, now))
        return plan.how, plan.losers, opened.job

    def verify(self) -> list[Finding]:
        """Find live files that are missing or have another size, and entries that a writer without
        conditional writes has overwritten.

        :raises TableNotFoundError: there is no table.
        """
        return self.run(verify_table(self._layout))

    def adopt(
        self, apply: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> AdoptReport:
        """Make a directory of Parquet files a Delta table, by one entry. The files stay where they
        are. All footers are read. Running jobs of Hadoop's committers are not noticed: see
        :meth:`.committer.table.Table.adopt`.

        :param apply: ``False`` only reports what would be done.
        :param progress: called with the number of footers that are read, and of all.
        :raises TableNotFoundError: there are no files.
        :raises TableMismatchError: there is a table already, or the files do not form one, or there
            are other objects; the error names the reason. Nothing was changed.
        :raises CommitConflictError: another job has made the table meanwhile.
        """
        if apply:
            adopting = adopt_directory(self.root, self._layout, this_process(), progress)
            return self.run(adopting)
        plan = self.run(plan_adoption(self.root, self._layout, progress))
        return plan.report(AdoptAction.WOULD_ADOPT)

    def copy_of(
        self,
        old: ReadableTable | str,
        progress: Callable[[Progress], None] = lambda _: None,
        files: FileOptions | None = None,
    ) -> Copied:
        """Make this table a copy of a table of directories, by one job, all of it or nothing. The
        rows are rewritten. History and runs' keys are not copied.

        :param old: the table to copy; a URL is opened with this table's client.
        :param progress: called after each file.
        :param files: how files are written.
        :raises InvalidInputError: this table holds rows, or was emptied since a former copy; or
            ``old`` is not a table of directories. Nothing was copied.
        :raises TableNotFoundError: there is no table to copy.
        :raises UnsupportedTypeError: Delta has no type for a column.
        """
        if not isinstance(old, (ReadableTable, str)):
            raise InvalidInputError(
                f"Invalid old={old!r}: it must be a Table or a URL. Nothing was copied.",
                remedy="Give Table('s3://bucket/prefix'), or its URL. Load a Delta table's rows "
                "into a job of this one: for rows in old.scan().to_batches(): job.write(rows).",
            )
        if isinstance(old, str):
            source = ReadableTable(old)
            source.driver = BotoDriver(source.root.bucket, self.driver.clients)
            old = source
        steps = DeltaSteps(self.driver, self.root)
        return copy_table(old, steps, files or FileOptions(), progress)

    def repair(self, apply: bool = False, accept_loss: bool = False) -> list[RepairedEntry]:
        """Commit again the changes of jobs whose entries a writer without conditional writes has
        overwritten. Each job is committed again only once, and only if nothing since has removed
        rows or replaced partitions there.

        :param apply: ``False`` only reports what would be done.
        :param accept_loss: accept the loss of changes that cannot be committed again; they are not
            reported any more.
        :return: the overwritten entries, the oldest first.
        :raises TableNotFoundError: there is no table.
        """
        self._found(self._open(LogDepth.BLIND))
        now = self.run(store_now(self._layout))
        return self._tend(repair_log(self._layout, now, apply, accept_loss, new_job_id()))

    def repair_reports(self, apply: bool = False) -> int:
        """Write the reports of runs again that another program has deleted, from what the log has
        of these runs. Without its report a run may load its rows a second time, once 1,000 other
        runs have loaded.

        :param apply: ``False`` only counts them.
        :return: how many reports are gone, or were.
        :raises TableNotFoundError: there is no table.
        """
        self._found(self._open(LogDepth.BLIND))
        return self._tend(write_reports(self._layout, apply))

    def doctor(self, max_duration: float | None = None) -> list[Problem]:
        """Find present and future problems: of rights, the store, lifecycle rules, jobs and
        overwritten entries. Writes small objects, and removes them.

        :param max_duration: seconds that the longest job may take; ``None``: the default.
        :raises InvalidInputError: ``max_duration`` is negative, infinite or no number.
        """
        check_span("max_duration", max_duration)
        return self.run(examine(self.root, self._layout, max_duration))

    def was_made_here(self) -> bool:
        """Return whether a job of this package has made the table. The maintenance of other tables
        is left to the engine that made them.

        :raises TableNotFoundError: there is no table.
        """
        return bool(self._found(self._open(LogDepth.BLIND)).state.property_of(ATOMIC))

    def is_checkpoint_due(self) -> bool:
        """Return whether more commits came since the last checkpoint than the table's interval."""
        state = self._open(LogDepth.BLIND).state
        return state.exists and state.version - state.checkpoint > checkpoint_interval(state)

    def purge(self, apply: bool = False) -> list[str]:
        """Delete files that no state within the retention names and that no open job can need.

        :param apply: ``False`` only reports which.
        :return: the keys of these files.
        """
        return self._tend((purge_table if apply else purgeable)(self._layout))

    def purge_records(self, older_than: float = KEPT_FOR, apply: bool = False) -> list[PurgeEntry]:
        """Remove old records: failures of runs, leavings of probes, and kept entries. One that
        another writer has overwritten stays until it is repaired, or its loss is accepted.

        :param older_than: their least age in seconds, by the store's clock.
        :param apply: ``False`` only reports which.
        :raises InvalidInputError: ``older_than`` is negative or no number.
        """
        check_age("older_than", older_than)
        return self._tend(purge_records(self.root, self._layout, older_than, apply))


def _restorer() -> dict[str, Any]:
    """Return the owner of a restore's job, as its entry records it."""
    return {"application": this_process().application}


def _version(entry: LogEntry) -> LogVersion:
    stamp = entry.stamped_at
    at = None if stamp is None else datetime.fromtimestamp(stamp, UTC)
    owner = entry.ours.get("owner")
    return LogVersion(
        entry.version,
        at,
        entry.job,
        entry.operation,
        owner if isinstance(owner, dict) else {},
        len(entry.of(AddFile)),
        len(entry.of(RemoveFile)),
    )
