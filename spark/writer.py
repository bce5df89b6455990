"""Writer of the data source: it opens the job, tasks upload, and the driver commits or aborts.

Spark opens it when all stages but the last have run; if the write has no shuffle, before any stage.
So the rows may be computed from data that was read long before (:mod:`.reading.table_reads`).

The numbers of rows and bytes written are in the logs of the tasks and the commit, not in Spark's
metrics: a Python data source cannot report any. PySpark 4.3 has no call for it in
``DataSourceArrowWriter`` or its commit message, and the JVM's part (``PythonWrite``) supports only
its own custom metrics, the rows and bytes exchanged with the Python workers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..committer.commit.commit import fenced
from ..committer.commit.failures import failures_told, tell_failure
from ..committer.commit.state.job_state import Aborted, Committed, JobState, OpenedJob
from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    OutcomeUnknownError,
    TaskResultsError,
    ZeroRenameError,
    counted,
)
from ..committer.format.handoff import Handoff
from ..committer.format.job_spec import Distribute, Mode, TableLayout
from ..committer.format.layout import TableRoot
from ..committer.format.records.pending_file import TaskResult
from ..committer.table import Table
from ..committer.write_job import log_retries
from ..s3a.hadoop.settings import NATIVE
from . import heartbeat
from .options import names_key, read_writer_options
from .reading.table_reads import TableReads
from .saving.commit_log import CommitProgress, log_commit, log_skipped
from .saving.planned_job import PlannedJob, advise, planned_job
from .saving.task_rows import write_rows
from .startup.preflight import check_data_source_versions
from .submitters import argument, instruction
from .worker import application, readable_errors
from .write_target import chosen_committer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("zero_rename.spark.writer")


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's commit message."""

    result: TaskResult


def open_writer(schema: StructType, overwrite: bool, given: Mapping[str, str]) -> TableWriter:
    """Make all checks, and open the job. Runs once for each write.

    :raises RefusedError: nothing was written.
    """
    check_data_source_versions()
    options = read_writer_options(given)
    if options.path is None:
        raise InvalidInputError(
            "The write reached zero_rename without a table root; nothing was written.",
            remedy='Write with df.write.format("zero_rename").mode("append").save("s3://bucket/'
            'table"). Spark hands Python data sources no options by insertInto, INSERT INTO, '
            "CREATE TABLE … AS SELECT or saveAsTable without a path.",
        )
    root, handoff = TableRoot.parse(options.path), Handoff.decode(os.environ)
    chosen_committer(root, NATIVE, handoff)
    if handoff.about(root).layout is TableLayout.DELTA:
        raise InvalidInputError(
            "df.write writes tables of directories, and layout=delta is asked for "
            f"({instruction(handoff, 'layout')}); nothing was written.",
            table=root.url,
            remedy="Write by zero_rename.spark.save(), or leave out "
            f"{argument(handoff, 'layout')}.",
        )
    if options.distribute is Distribute.PARTITION:
        raise InvalidInputError(
            "distribute=partition reached a write by df.write (as option or from submitter), "
            "which Spark lets no Python data source do; nothing was written.",
            table=options.path,
            remedy="Write by zero_rename.spark.save(), or leave it out and hand over "
            "frame.repartition(the partition columns).",
        )
    table, name = Table(options.path), application()
    named = (*(options.replace_partitions or ()), *(options.only_partitions or ()))
    encryption = options.files().encrypted_if_right or options.default_encryption
    with failures_told(table.root, options.idempotency_key, options.owner(name), named, encryption):
        planned = planned_job(table, schema, overwrite, options, names_key(given), name)
        return _opened(table, planned, options.freeze_workers)


def _opened(table: Table, planned: PlannedJob, freeze: bool) -> TableWriter:
    opened = table.open_job(planned.spec)
    base = planned.base(opened, TableReads.here(table.root.url))
    if base is not None:
        opened = replace(opened, spec=replace(opened.spec, base=base))
    try:
        planned.refuse_second_use(opened)
    except BaseException:
        if opened.repeated is None:
            table.abort(opened)
        raise
    if opened.repeated is not None:
        log_skipped(opened, planned.spec.idempotency_key)
    else:
        heartbeat.announce(opened.job, table.root.url, opened.spec.files.encrypted)
        logger.info("%s: job %s opened, mode %s", table.root.url, opened.job, planned.spec.mode)
    return TableWriter(opened, freeze, by_reads=base is not None)


class TableWriter(DataSourceArrowWriter):
    """Writer of one open job, which Spark pickles for every task, and for commit and abort.

    :param freeze: freeze its tasks' workers (:func:`.worker.ease_reuse`).
    :param by_reads: its read base comes from this application's reads.
    """

    def __init__(self, opened: OpenedJob, freeze: bool = True, by_reads: bool = False) -> None:
        self.opened = opened
        self._freeze = freeze
        self._by_reads = by_reads

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Upload one task's rows, which stay invisible. Runs in a worker, once for each attempt."""
        with readable_errors(), self._failures_told():
            return TaskMessage(write_rows(self.opened, self._freeze, iterator))

    def _failures_told(self) -> AbstractContextManager[None]:
        spec = self.opened.spec
        named = spec.allowed_partitions or ()
        encryption = spec.files.encrypted_if_right
        return failures_told(self.opened.root, spec.idempotency_key, spec.owner, named, encryption)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the job visible. Runs on the driver's host when all tasks have succeeded."""
        with readable_errors(), self._failures_told():
            results = _results(messages)
            if len(results) < len(messages):
                raise TaskResultsError(
                    f"Only {len(results)} of {counted(len(messages), 'task')} reported; nothing "
                    "was decided.",
                    table=self.opened.root.url,
                    job=self.opened.job,
                    remedy="Run the job again.",
                )
            table = Table(self.opened.root.url)
            progress = CommitProgress(table.root.url)
            try:
                # At the commit: a frame that is planned late reads its state only then.
                inputs = TableReads.here(table.root.url).log().inputs
                opened = replace(self.opened, inputs=inputs)
                done = table.commit(opened, results, len(messages), progress)
            except CommitConflictError as error:
                base = self.opened.spec.base
                if self._by_reads and base is not None:
                    advise(error, self.opened.root, base)
                raise
            heartbeat.withdraw(self.opened.job)
            self._note_end(done)
            log_commit(done)
            log_retries(logger, done)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the job.

        Messages of unfinished tasks are ``None``. Those tasks may still be writing; after the abort
        decision, all that they upload is known to be orphaned.

        :raises OutcomeUnknownError: the job *is* committed, although Spark reports a failure.
        """
        with readable_errors():
            table = Table(self.opened.root.url)
            if None in messages:
                self._tell_if_fenced(table)
            outcome = table.abort(self.opened, _results(messages))
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
            log_commit(outcome)
            raise OutcomeUnknownError(
                "Spark calls this write failed, but its job is committed: its rows are visible.",
                table=outcome.table,
                job=outcome.job,
                remedy="Do not run it again without an idempotency key: that would double its "
                "rows.",
            )

    def _tell_if_fenced(self, table: Table) -> None:
        """Record as the failure that another process has aborted the job, if this is so.

        Its tasks then came too late.
        """
        spec = self.opened.spec
        try:
            if table.job_state(self.opened.job) is JobState.ABORTED:
                named, key = spec.allowed_partitions or (), spec.idempotency_key
                encryption, said = spec.files.encrypted_if_right, fenced(self.opened)
                tell_failure(said, table.root, key, spec.owner, named, encryption)
        except ZeroRenameError as error:
            logger.warning("whether another process has aborted the job is not known: %s", error)

    def _note_end(self, done: Committed | None) -> None:
        if not self.opened.repeated:
            replaced = self.opened.spec.mode is Mode.REPLACE
            TableReads.here(self.opened.root.url).wrote(done, replaced)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message.result for message in messages if isinstance(message, TaskMessage)]
