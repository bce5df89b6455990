"""Writing: the job is opened, tasks upload, the driver commits or aborts.

Spark opens it when all stages but the last have run: before any, if the write has no shuffle.
What the rows were computed from may have been read long before (:mod:`.reading.table_reads`).

Rows and bytes written are in the tasks' logs and in the commit's, not in Spark's metrics: a
Python data source cannot report any. PySpark 4.3 has no call for it in ``DataSourceArrowWriter``
or its commit message, and the JVM's side of it (``PythonWrite``) supports only its own custom
metrics, the rows and bytes exchanged with the Python workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    OutcomeUnknownError,
    TableNotFoundError,
    TaskResultsError,
)
from ..committer.failures import failures_told
from ..committer.job_spec import Coordination, JobSpec, Mode, OnConflict, Owner
from ..committer.records.pending_file import TaskResult
from ..committer.schema.hive_paths import normalise_partition
from ..committer.state.context import Progress
from ..committer.state.job_state import Aborted, Committed, OpenedJob
from ..committer.table import Table
from ..committer.write_job import log_retries
from . import heartbeat
from .options import WriterOptions, read_writer_options
from .reading.table_reads import TableReads
from .startup.preflight import check_versions
from .types import table_schema
from .worker import application, readable_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("zero_rename.spark.writer")
#: Seconds between two lines of log on a long commit.
_REPORT_EVERY = 5.0
_ANEW = (
    "Of each partition the oldest state counts that this application has read, since nothing tells "
    "which one the rows come from. Load the table anew now, by spark.read…load(…), and write what "
    "comes of that: what was read before this refusal then counts no longer. Or name the state, by "
    "the option base, base=now if the rows do not depend on the table; or choose "
    "onConflict=last_wins."
)


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's commit message."""

    result: TaskResult


def open_writer(schema: StructType, overwrite: bool, given: Mapping[str, str]) -> TableWriter:
    """Check everything there is to check and open the job. Runs once per write.

    :raises RefusedError: nothing was written.
    """
    check_versions()
    options = read_writer_options(given)
    table = Table(_path(options.path))
    owner = options.owner(application())
    with failures_told(table.root, options.once, owner):
        return _opened(table, schema, overwrite, options, owner, given)


def _opened(
    table: Table,
    schema: StructType,
    overwrite: bool,
    options: WriterOptions,
    owner: Owner,
    given: Mapping[str, str],
) -> TableWriter:
    stored = table_schema(schema, options.partition_by or ())
    names = {option.name for option in fields(WriterOptions)}
    policy = {f.name: getattr(options, f.name) for f in fields(JobSpec) if f.name in names}
    for name in ("replace_partitions", "only_partitions"):
        policy[name] = _named(table, options, stored, policy[name])
    spec = JobSpec(
        schema=stored,
        mode=options.mode(overwrite),
        owner=owner,
        files=options.files(),
        **policy,
    )
    opened = table.open_job(spec)
    by_reads = _goes_by_reads(spec)
    if by_reads:
        base = TableReads.here(table.root.url).noted().base_of(opened)
        opened = replace(opened, spec=replace(opened.spec, base=base))
    _refuse_second_use(table, opened, once_given="once" in {k.lower() for k in given})
    if opened.repeated is not None:
        logger.warning(
            "%s: job %s has done this already (once key %r); nothing is written",
            table.root.url,
            opened.repeated.job,
            options.once,
        )
    else:
        heartbeat.announce(opened.job, table.root.url)
        logger.info("%s: job %s opened, mode %s", table.root.url, opened.job, spec.mode)
    return TableWriter(opened, by_reads)


def _goes_by_reads(spec: JobSpec) -> bool:
    """Whether a write goes by what this application has read: one that replaces what may be what
    it was made of. An append leaves that where it is."""
    return (
        spec.base is None
        and spec.mode is Mode.REPLACE
        and spec.on_conflict is OnConflict.FAIL
        and spec.coordination is Coordination.STORE
    )


def _path(path: str | None) -> str:
    if path is not None:
        return path
    raise InvalidInputError(
        "The write reached zero_rename without a table root; nothing was written.",
        remedy='Write with df.write.format("zero_rename").mode("append").save("s3://bucket/table")'
        ". Spark hands Python data sources no options by insertInto, INSERT INTO, CREATE TABLE … "
        "AS SELECT or saveAsTable without a path.",
    )


def _named(
    table: Table, options: WriterOptions, stored: pa.Schema, paths: tuple[str, ...]
) -> tuple[str, ...]:
    """Partitions in their canonical spelling."""
    if not paths:
        return ()
    columns = options.partition_by
    if columns is None:
        columns = _columns_of(table)
    for column in columns:
        if column not in stored.names:
            raise InvalidInputError(
                f"The partition column {column!r} is not among the columns "
                f"{', '.join(stored.names)}; nothing was written.",
                remedy="Add the column to the data or correct its name.",
            )
    return tuple(dict.fromkeys(normalise_partition(path, stored, columns) for path in paths))


def _columns_of(table: Table) -> tuple[str, ...]:
    """The partition columns of a table, or of the directories that are there before it."""
    try:
        return table.partition_by
    except TableNotFoundError:
        return ()


def _refuse_second_use(table: Table, opened: OpenedJob, once_given: bool) -> None:
    """Refuse a second write of one application under the run's own ``once`` key.

    The operator's key reaches every write of a script. Two writes into one table would share
    it, and the second would be skipped, or would replace the first.
    """
    earlier = opened.repeated.job if opened.repeated is not None else opened.repeat_of
    own = opened.spec.owner.application
    if earlier is None or own is None or once_given:
        return
    owner = table.owner_of(earlier)
    if owner is None or owner.application != own:
        return
    if opened.repeated is None:
        table.abort(opened)
    raise InvalidInputError(
        "This application has committed a write into this table already under the run's once "
        f"key, {opened.spec.once!r}, which comes from the environment; this second one was not "
        "begun.",
        table=table.root.url,
        job=earlier,
        remedy='If it is another write, give both keys of their own: .option("once", "…"). If it '
        "repeats the first, there is nothing left to do.",
    )


class TableWriter(DataSourceArrowWriter):
    """One open job. Pickled from the planner to every task, and to commit and abort.

    :param by_reads: whether its base is what this application has read.
    """

    def __init__(self, opened: OpenedJob, by_reads: bool = False) -> None:
        self.opened = opened
        self._by_reads = by_reads

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Upload one task's rows; they stay invisible. Runs in a worker, once per attempt."""
        with readable_errors(), self._failures_told():
            return TaskMessage(self._write(iterator))

    def _failures_told(self) -> AbstractContextManager[None]:
        spec = self.opened.spec
        return failures_told(self.opened.root, spec.once, spec.owner)

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        task, attempt = _task()
        if self.opened.repeated is not None:
            return TaskResult(self.opened.job, task, attempt, ())
        started = time.monotonic()
        table = Table(self.opened.root.url)
        before = table.retries
        writer = table.task_writer(self.opened, task, attempt)
        try:
            for batch in iterator:
                writer.write(batch)
            result = replace(writer.close(), retries=table.retries - before)
        except BaseException:
            writer.abort()
            raise
        logger.info(
            "%s: task %d wrote %d rows, %d bytes in %d files, %.1f s, job %s",
            self.opened.root.url,
            task,
            result.rows,
            result.bytes,
            len(result.files),
            time.monotonic() - started,
            self.opened.job,
        )
        return result

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the job visible. Runs on the driver's host when all tasks have succeeded."""
        with readable_errors(), self._failures_told():
            results = _results(messages)
            if len(results) < len(messages):
                raise TaskResultsError(
                    f"Only {len(results)} of {len(messages)} tasks reported; nothing was decided.",
                    table=self.opened.root.url,
                    job=self.opened.job,
                    remedy="Run the job again.",
                )
            table = Table(self.opened.root.url)
            try:
                done = table.commit(self.opened, results, len(messages), _Report(table.root.url))
            except CommitConflictError as error:
                if self._by_reads:
                    error.remedy = _ANEW
                raise
            heartbeat.withdraw(self.opened.job)
            self._note_end(done)
            _log_commit(done)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Undo the job. Messages of unfinished tasks are ``None``, and those tasks may still be
        writing; the abort decision makes whatever they leave rubbish that is known as such.

        :raises OutcomeUnknownError: the job *is* committed, whatever Spark says.
        """
        with readable_errors():
            outcome = Table(self.opened.root.url).abort(self.opened, _results(messages))
            heartbeat.withdraw(self.opened.job)
            self._note_end(outcome if isinstance(outcome, Committed) else None)
            if isinstance(outcome, Aborted):
                logger.warning(
                    "%s: job %s aborted, %d uploads removed; nothing of it is visible",
                    outcome.table,
                    outcome.job,
                    outcome.uploads,
                )
                return
            _log_commit(outcome)
            raise OutcomeUnknownError(
                "Spark calls this write failed, but its job is committed: its rows are visible.",
                table=outcome.table,
                job=outcome.job,
                remedy="Do not run it again without a once key: that would double its rows.",
            )

    def _note_end(self, done: Committed | None) -> None:
        if not self.opened.repeated:
            replaced = self.opened.spec.mode is Mode.REPLACE
            TableReads.here(self.opened.root.url).wrote(done, replaced)


def _task() -> tuple[int, int]:
    """Number of the task, and of its attempt. Spark counts attempts anew in a retried stage, so
    it is the application-wide attempt id that is unique."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0, 0
    return context.partitionId(), context.taskAttemptId()


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message.result for message in messages if isinstance(message, TaskMessage)]


class _Report:
    """Logs how far a commit is, every few seconds."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._next = time.monotonic() + _REPORT_EVERY

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _REPORT_EVERY
            logger.info(
                "%s: committing job %s, %d of %d files visible",
                self._table,
                progress.job,
                progress.done,
                progress.total,
            )


def _log_commit(done: Committed) -> None:
    if done.repeated:
        logger.info("%s: job %s had committed this run's rows before", done.table, done.job)
        return
    logger.info(
        "%s: job %s committed, %d rows, %d bytes, %d files in %d partitions, %d files replaced",
        done.table,
        done.job,
        done.rows,
        done.bytes,
        done.files,
        len(done.partitions),
        sum(partition.removed for partition in done.partitions),
    )
    log_retries(logger, done)
