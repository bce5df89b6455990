"""Save of a data frame by ``mapInArrow``: the driver opens and commits the job.

The driver is the user's own process: on Spark Connect the client, elsewhere the one beside
Spark's JVM. The tasks' Python workers write the rows and report their pending files; the driver
makes these visible.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ...committer.commit.commit import fenced
from ...committer.commit.state.job_state import Committed, UnpublishedJob
from ...committer.errors import (
    CommitConflictError,
    InvalidInputError,
    TaskLateError,
    TaskResultsError,
    counted,
)
from ...committer.format.handoff import Handoff
from ...committer.format.job_spec import Mode, SuccessMarkers, TableLayout
from ...committer.format.records.inputs import Inputs
from ...committer.scan.reads import noted
from ...committer.table import Table
from ...committer.write_job import WriteJob
from ...tables import DeltaTable
from ..options import WriterOptions, is_given, names_key, writer_options
from ..reading.table_reads import TableReads
from ..startup.preflight import check_versions
from ..worker import application_of
from ..write_target import WriteTarget
from .commit_log import CommitProgress, log_commit, log_skipped, log_unpublished
from .planned_job import PlannedJob, advise, in_any_case, planned_job
from .spark_tasks import PlannedFrame, plan_frame, run_tasks
from .task_errors import error_of_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("zero_rename.spark.saving.arrow_save")
#: Spark's setting for its own writers; 0 is no limit.
_ROWS_PER_FILE = "spark.sql.files.maxRecordsPerFile"


def save_by_arrow(
    frame: DataFrame, target: WriteTarget, handoff: Handoff
) -> Committed | UnpublishedJob:
    """Write a frame as one job.

    :param target: the table and the policies of the call.
    :param handoff: the submitter's values, which complete its options.
    :raises RefusedError: nothing of the job is visible.
    :raises OutcomeUnknownError: the job may be committed.
    :raises UnfinishedCommitError: the job is committed, and recovery finishes it.
    """
    options = writer_options(target.options, handoff, target.named_options)
    check_versions()
    url = target.root.url
    if frame.isStreaming:
        raise InvalidInputError(
            "A streaming frame has no end to commit; nothing was written.",
            table=url,
            remedy="Write it by writeStream.foreachBatch, each batch with an idempotency key of "
            "its own.",
        )
    session = frame.sparkSession
    options = limited_by(session, options)
    name, own_key = application_of(session), names_key(target.options)
    table: Table | DeltaTable = Table(url)
    if target.layout is TableLayout.DELTA:
        table, options = DeltaTable(url), delta_options(options, target.options, handoff)
    any_case, replaces = in_any_case(session), target.mode is Mode.REPLACE
    planned = planned_job(table, frame.schema, replaces, options, own_key, name, any_case)
    waits = target.wait_for_other_runs
    return carry_out(frame, planned, options, TableReads.of(name, url), waits=waits)


def limited_by(session: SparkSession, options: WriterOptions) -> WriterOptions:
    """Add the session's limit of rows a file to the options of a write that have no limit."""
    if options.rows_per_file is not None:
        return options
    limit = int(session.conf.get(_ROWS_PER_FILE, None) or 0)
    return replace(options, rows_per_file=limit if limit > 0 else None)


def delta_options(
    options: WriterOptions, given: Mapping[str, str], handoff: Handoff
) -> WriterOptions:
    """Return the options of a write into a Delta table, which has no markers unless asked for."""
    asked = is_given(given, "success_markers") or handoff.success_markers is not None
    return options if asked else replace(options, success_markers=SuccessMarkers.NONE)


def carry_out(
    frame: DataFrame,
    planned: PlannedJob,
    options: WriterOptions,
    reads: TableReads,
    expected: int | None = None,
    inputs: Inputs | None = None,
    waits: timedelta | float | None = None,
) -> Committed | UnpublishedJob:
    """Open a job, let Spark's tasks write a frame's rows, and commit.

    :param expected: the number of the frame's rows, if that is known.
    :param inputs: the states that the rows are computed from; ``None``: all that were read.
    :param waits: how long to wait for other runs before the job opens; ``None``: not at all.
    :raises TaskResultsError: the tasks have written another number of rows than expected.
    """
    progress = CommitProgress(planned.table.root.url)
    job = planned.table.tasks_job(planned.spec, progress, waits)
    base, planned_frame = None, plan_frame(frame)
    try:
        with job:
            opened = job.opened
            base = planned.base(opened, reads)
            if base is not None:
                job.check_against(base)
            planned.refuse_second_use(opened)
            if not job.repeats:
                _write(planned_frame, job, options, expected)
                # After the tasks: a frame that is planned late reads its state only then.
                job.made_of(all_read(reads) if inputs is None else inputs)
            else:
                log_skipped(opened, planned.spec.idempotency_key)
    except CommitConflictError as error:
        if base is not None:
            advise(error, planned.table.root, base)
        raise
    finally:
        if not job.repeats:
            held = None if job.unpublished is None else job.unpublished.job
            reads.wrote(job.committed, planned.spec.mode is Mode.REPLACE, held)
    if job.unpublished is not None:
        log_unpublished(job.unpublished)
        return job.unpublished
    done = job.committed
    assert done is not None
    log_commit(done)
    return done


def all_read(reads: TableReads) -> Inputs:
    """Return all states of tables that this process and its application have read."""
    return noted().beside(reads.log()).inputs


def _write(
    frame: Future[PlannedFrame], job: WriteJob, options: WriterOptions, expected: int | None
) -> None:
    opened = job.opened
    logger.info("%s: job %s opened, mode %s", opened.root.url, opened.job, opened.spec.mode)
    try:
        results = run_tasks(frame, opened, options)
    except Exception as error:
        ours = error_of_task(error, opened.root.url, opened.job)
        if isinstance(ours, TaskLateError):
            ours = fenced(opened)  # This process has not decided.
        if ours is not None:
            raise ours from error
        raise
    rows = sum(result.rows for result in results)
    if expected not in (None, rows):
        raise TaskResultsError(
            f"The tasks wrote {counted(rows, 'row')}, and {expected:,} were counted before: Spark "
            "computed them twice, and not the same ones. Nothing of this job is visible.",
            table=opened.root.url,
            job=opened.job,
            remedy="Run it again; where that does not help, write the frame to files first, and "
            "leave out of conditions what differs from call to call, such as rand().",
        )
    job.take(results, len(results))
