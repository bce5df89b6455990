"""Delta table on S3: each job commits one log entry, without a jar or a catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from ..committer.attempt import attempt_writer
from ..committer.changeable_table import ChangeableTable
from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.context import Progress
from ..committer.commit.state.heartbeat import OF_TASKS
from ..committer.commit.state.job_state import Aborted, Committed, OpenedJob
from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    SnapshotGoneError,
    TableMismatchError,
)
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
    column_names,
    partition_names,
)
from ..committer.format.parquet.reader import read_batches
from ..committer.format.parquet.row_order import check_order, in_order
from ..committer.format.parquet.task_writer import TaskWriter
from ..committer.format.read_base import ReadBase
from ..committer.format.records.inputs import Inputs
from ..committer.format.row_changes import RowChanges
from ..committer.format.run_rank import RunRanks
from ..committer.readable_table import ReadableTable
from ..committer.scan.reads import stated_inputs
from ..committer.scan.table_scan import TableScan
from ..committer.store.driver import BotoDriver
from ..committer.table_copy import Copied
from ..committer.upkeep.compaction import (
    TARGET_BYTES,
    CompactAction,
    CompactedPartition,
    CompactionPlan,
    compactible,
    content_kept,
)
from ..committer.upkeep.unfinished import telling_of_jobs
from ..committer.write_job import WriteJob, this_process
from .delta_copy import copy_table
from .delta_entry import amends, rewriting
from .delta_inputs import inputs_of_rows
from .delta_steps import DeltaSteps
from .publishing import abort, publish
from .tended_delta import TendedDelta


class DeltaTable(TendedDelta, ChangeableTable):
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
