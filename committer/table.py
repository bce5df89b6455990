"""Table on S3 as users call it: its jobs, its state, and its maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from .attempt import attempt_writer
from .changeable_table import ChangeableTable
from .commit.checked_open import open_checked
from .commit.commit import abort_job, commit_job
from .commit.index.write_index import write_index_now
from .commit.interrupted import alone
from .commit.snapshot import Snapshot
from .commit.state.context import Progress
from .commit.state.heartbeat import OF_TASKS, send_heartbeat
from .commit.state.job_state import Aborted, Committed, OpenedJob
from .errors import InvalidInputError
from .format.given_numbers import check_age, check_span, finite_seconds
from .format.given_rows import schema_of
from .format.job_spec import (
    MAX_DURATION,
    Coordination,
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
from .format.parquet.task_writer import TaskWriter
from .format.read_base import ReadBase
from .format.records.pending_file import TaskResult
from .format.records.store_facts import StoreFacts
from .format.run_rank import RunRanks
from .job_steps import HeadSteps
from .rewritable_table import RewritableTable
from .scan.reads import note_end, noted, stated_inputs
from .scan.table_scan import TableScan
from .tended_table import TendedTable
from .upkeep.adopt import AdoptReport, adopt_current
from .upkeep.doctor.examination import examine, problems
from .upkeep.doctor.store_problems import renew_facts
from .upkeep.problem import Problem
from .upkeep.rebuilt_heads import RebuiltHead, rebuild_heads
from .upkeep.repair import Repaired, repair
from .upkeep.verify import Finding, verify_current
from .write_job import WriteJob, this_process


class Table(RewritableTable, TendedTable, ChangeableTable):
    """A partitioned table on S3, written by jobs that commit without renames.

    :param url: ``s3://bucket/prefix``.
    :param client: a boto3 S3 client whose credentials and endpoint are used; ``None`` for boto3's
        standard chain, ``AWS_ENDPOINT_URL`` included.
    :raises InvalidInputError: not a table root.

    Making one sends no request.
    """

    def open_job(self, spec: JobSpec) -> OpenedJob:
        """Begin a job: write its open record, check schema and layout, read its base.

        :param spec: what is to be written, and by which policies.
        :return: what tasks, :meth:`commit` and :meth:`abort` need; may be pickled.
        :raises StoreRefusedError: a right is missing that the job would need later.
        :raises RefusedError: only an open record was written, which is removed again.
        """
        return open_checked(self.driver, self._context, spec)

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
        success_markers: SuccessMarkers | str = SuccessMarkers.PARTITION_AND_TABLE,
        idempotency_key: str | None = None,
        on_repeat: OnRepeat | str = OnRepeat.SKIP,
        schema_mode: SchemaMode | str = SchemaMode.KEEP,
        coordination: Coordination | str = Coordination.STORE,
        max_duration: float = MAX_DURATION,
        owner: Owner | None = None,
        files: FileOptions | None = None,
        code_version: str | None = None,
        inputs: Sequence[Snapshot | TableScan | str] | None = None,
        wait_for_other_runs: timedelta | float | None = None,
    ) -> WriteJob:
        """Make a job in plain Python: ``with table.job(mode="append") as job: job.write(data)``.

        :param schema: the rows' columns, as a schema of pyarrow or Polars, or a frame that has
            them; ``None`` takes the table's.
        :param partition_by: partition columns; ``None`` takes the table's.
        :param run_rank: how new the rows are under ``on_conflict=newest_run``: a number, a date or
            a time (UTC if it has no zone); ``None``: as new as the job.
        :param base: the state that the rows were computed from: under ``on_conflict=fail``, no
            partition that has changed since is overwritten. ``None``: the state when the block is
            entered.
        :param owner: who runs the job; ``None`` names this process.
        :param code_version: the version of the program that computes the rows, in the program's own
            form: lineage can then find the rows that another version made.
        :param inputs: what the rows are computed from: states or scans of tables, and the URLs of
            foreign files, a request each; ``()``: not recorded. ``None``: all reads of tables by
            this process until then.
        :param wait_for_other_runs: how long entering the block waits, in seconds or as a timedelta,
            while a job of another run is at work on the partitions that are named, or on any if
            none are; two appends do not wait for each other. After that ``on_conflict`` decides.
            The job then opens on what those jobs have committed.

        The rest is as in :class:`.job_spec.JobSpec`.

        :return: a context manager. Nothing is sent before its block is entered.
        :raises TableNotFoundError: no schema given and no table here.
        :raises InvalidInputError: an argument is not one of a parameter's choices.
        """
        words: dict[str, Any] = {"mode": mode, "on_conflict": on_conflict, "on_repeat": on_repeat}
        words |= {"success_markers": success_markers, "coordination": coordination}
        words |= {"schema_mode": schema_mode, "run_rank": run_rank, "on_superseded": on_superseded}
        # JobSpec converts them to its enumerations.
        spec = JobSpec(
            self.schema if schema is None else schema_of(schema),
            partition_by=column_names("partition_by", partition_by),
            replace_partitions=partition_names("replace_partitions", replace_partitions),
            replace_table=replace_table,
            only_partitions=partition_names("only_partitions", only_partitions),
            base=base.base if isinstance(base, Snapshot) else base,
            idempotency_key=idempotency_key,
            max_duration=max_duration,
            owner=owner or this_process(),
            files=files or FileOptions(),
            code_version=code_version,
            **words,
        )
        stated = None if inputs is None else partial(stated_inputs, self.driver, inputs)
        before = self._waiting(spec, wait_for_other_runs)
        return WriteJob(HeadSteps(self.driver, self._context), spec, inputs=stated, before=before)

    def tasks_job(
        self,
        spec: JobSpec,
        progress: Callable[[Progress], None],
        wait_for_other_runs: timedelta | float | None = None,
    ) -> WriteJob:
        """Make a job whose rows are written by tasks in other processes.

        The tasks get the job's ``opened``, and the job takes their results.

        :param progress: called as files become visible.
        """
        steps = HeadSteps(self.driver, replace(self._context, report=progress))
        return WriteJob(steps, spec, OF_TASKS, before=self._waiting(spec, wait_for_other_runs))

    def task_writer(self, opened: OpenedJob, task: int, attempt: int) -> TaskWriter:
        """Make the writer of one task attempt of an open job.

        If the job is decided before the writer closes, closing removes its uploads and raises
        :class:`TaskLateError`.

        :param task: its number, from 0 on; one result of each task is committed.
        :param attempt: distinguishes attempts of one task, which may run at the same time.
        """
        return attempt_writer(self.driver, opened, task, attempt)

    def commit(
        self,
        opened: OpenedJob,
        results: Iterable[TaskResult],
        expected_tasks: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Committed:
        """Commit an open job: claim the partitions, decide, make its files visible.

        :param results: one of each task, of any of its attempts.
        :param expected_tasks: how many there have to be; ``None``: as many as are given.
        :param progress: called in this thread as files become visible.
        :raises InvalidInputError: the job is another table's; nothing was changed.
        :raises RefusedError: the job is aborted; nothing of it is visible.
        :raises CommitStateUnknownError: it may be committed: :meth:`recover` finds out and finishes
            it.
        :raises UnfinishedCommitError: it is committed; :meth:`recover` finishes it.
        """
        self._refuse_others(opened)
        results = tuple(results)  # An iterator would be used up by the sum of the retries.
        context = self._context if progress is None else replace(self._context, report=progress)
        before = self.retries - sum(result.retries for result in results)
        if opened.inputs is None:
            opened = replace(opened, inputs=noted().inputs)
        self._encrypt_as(opened)
        try:
            with alone(opened):
                done = self.run(commit_job(context, opened, results, expected_tasks))
        finally:
            note_end()
        return replace(done, retries=self.retries - before)

    def abort(self, opened: OpenedJob, results: Iterable[TaskResult] = ()) -> Aborted | Committed:
        """Abort an open job, or find that it is committed.

        The uploads of its tasks so far, as ``results`` name them, are aborted.

        :raises InvalidInputError: the job is another table's; nothing was changed.
        """
        self._refuse_others(opened)
        self._encrypt_as(opened)
        try:
            with alone(opened):
                return self.run(abort_job(self._context, opened, tuple(results)))
        finally:
            note_end()

    def _refuse_others(self, opened: OpenedJob) -> None:
        """Refuse a job of another table: heads here would name files that lie there.

        :raises InvalidInputError: it is one.
        """
        if opened.root == self.root and opened.log is None:
            return
        kind = "" if opened.log is None else "the Delta table "
        raise InvalidInputError(
            f"The job was opened on {kind}{opened.root.url}, not on this table; this call changed "
            "nothing.",
            table=self.root.url,
            job=opened.job,
            remedy="Call the same method of the table that opened the job.",
        )

    def _encrypt_as(self, opened: OpenedJob) -> None:
        """Use the encryption of a job that another process may have opened."""
        self.driver.encrypt(self.root.prefix, opened.spec.files.encrypted)

    def send_heartbeat(self, job: str, interval: float = 30.0) -> bool:
        """Send a heartbeat for a job, by its id; return ``False`` if it is no longer open.

        The next one is due ``interval`` seconds later.

        :raises InvalidInputError: ``interval`` is not a finite number.
        """
        seconds = finite_seconds("interval", interval)
        return self.run(send_heartbeat(self._context, job, seconds))

    def repair(
        self, accept_loss: bool = False, job: str | None = None, patience: float | None = None
    ) -> list[Repaired]:
        """Check open committed jobs for files whose uploads are lost.

        :param accept_loss: apply those jobs without the lost files; ``False`` only reports.
        :param job: this job only.
        :param patience: seconds that the owner of a job that lost files must have been silent;
            ``None`` takes each job's own, 0 says that its process has ended.
        :raises InvalidInputError: the table has no heads, ``job`` is not an open committed job, or
            ``patience`` is negative or no number.
        :raises DamagedError: the decision of ``job`` cannot be read.
        :raises UnfinishedCommitError: a decision changed meanwhile; run it again.
        """
        check_age("patience", patience)
        return self.tend(repair(self._context, accept_loss, job, patience))

    def rebuild_heads(self, apply: bool = False) -> list[RebuiltHead]:
        """Rebuild missing heads.

        A head is not rebuilt if the decisions do not have its whole state.

        :param apply: do it; ``False`` only says what would be done.
        :raises TableNotFoundError: no table here.
        """
        return self.tend(rebuild_heads(self._context, apply))

    def doctor(self, max_duration: float | None = None) -> list[Problem]:
        """Find present and future problems of this table, its bucket and store, each with a remedy.

        If there is no table yet: problems of the store, and of the rights there.

        :param max_duration: seconds the longest job may run; ``None`` takes the default of jobs, or
            an open job's own if that is longer.
        :raises InvalidInputError: ``max_duration`` is negative, infinite or no number.
        :raises StoreUnreachableError: the store does not answer.
        """
        check_span("max_duration", max_duration)
        return self.run(examine(self._context, max_duration))

    def problems(self) -> list[Problem]:
        """Find the problems of :meth:`doctor` that show without a probe or a request per head.

        Changes nothing at all.

        :raises StoreRefusedError: a right to read is missing.
        """
        return self.run(problems(self._context))

    def renew_facts(self) -> StoreFacts:
        """Probe the store, and record for all later jobs which guarantees it no longer keeps.

        :raises OutcomeUnknownError: the store did not say whether the record was written.
        """
        return self.tend(renew_facts(self._context))

    def verify(
        self, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> list[Finding]:
        """Find differences between the files that heads name and those in the store.

        Of a table that another committer wrote: differences between its ``_SUCCESS`` markers and
        the store. Each marker names at most 100 files of the last job.

        The footers of files of other programs are read, too: a column that the table does not show
        is a difference.

        :param progress: called with the number of footers that are read, and of all.
        :returns: empty if there are none.
        :raises InvalidInputError: a table of coordination *none*, which has no record of its files.
        """
        context = replace(self._context, read_columns=self._footers.reporting(progress).read)
        return self.run(verify_current(context))

    def adopt(
        self, apply: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> AdoptReport:
        """Make heads for partitions that have files and no head: readers then need no listing.

        For a directory without a table, make the table from its files, too. The footers of all
        files are read. Columns that the table does not have, and wider types, become the table's; a
        partition with a file that does not fit is left. Unlike the command, this method does not
        look for jobs of Hadoop's committers that are at work here: no head names the files that
        they complete later. ``table.run(refuse_left_jobs(table.root))`` of
        ``zero_rename.s3a.recovery.recover`` refuses if there is such a job.

        :param apply: do it; ``False`` only says what would be done.
        :param progress: called with the number of footers that are read, and of all.
        :raises TableNotFoundError: no table and no files.
        :raises TableMismatchError: no table, and the files are not one; or the folder belongs to
            another table format.
        :raises InvalidInputError: a table of coordination *none*, which has no heads.
        """
        context = replace(self._context, read_columns=self._footers.reporting(progress).read)
        return self.tend(adopt_current(context, this_process(), apply))

    def write_index(self) -> bool:
        """Write the index, by which readers open a table of many partitions in a few requests.

        :return: whether it is there now; ``False``: another process wrote it meanwhile, or the
            store refused.
        """
        return self.tend(write_index_now(self._context))
