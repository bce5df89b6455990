"""Rows of one task: from Arrow batches into uploads that nobody sees yet; and what it reports."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from ...committer.commit.state.job_state import OpenedJob
from ...committer.format.records.pending_file import TaskResult
from ...committer.table import Table
from ..worker import freeze_worker, readable_errors

logger = logging.getLogger("zero_rename.spark.saving.task_rows")


def report(
    payload: bytes, columns: Sequence[str], freeze: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows, then yield one batch with one row: the task and its pickled result.

    :param payload: the pickled open job.
    :param columns: the rows' columns, by position.
    :param freeze: freeze the worker after it (:func:`..worker.freeze_worker`).
    """
    with readable_errors():
        named = (
            pa.RecordBatch.from_arrays(batch.columns, names=list(columns)) for batch in batches
        )
        result = write_rows(pickle.loads(payload), named)
        if freeze:
            freeze_worker()
    number = pa.array([result.task], pa.int32())
    yield pa.record_batch(
        [number, pa.array([pickle.dumps(result)], pa.binary())], names=["task", "result"]
    )


def write_rows(opened: OpenedJob, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Upload one task's rows; they stay invisible. Runs in a worker, once per attempt.

    Rows and bytes are in the task's log and in the result. Spark's metrics have no place for them.
    """
    task, attempt = task_number()
    if opened.repeated is not None:
        return TaskResult(opened.job, task, attempt, ())
    started = time.monotonic()
    table = Table(opened.root.url)
    before = table.retries
    writer = table.task_writer(opened, task, attempt)
    try:
        for batch in batches:
            writer.write(batch)
        result = replace(writer.close(), retries=table.retries - before)
    except BaseException:
        writer.abort()
        raise
    logger.info(
        "%s: task %d wrote %d rows, %d bytes in %d files, %.1f s, job %s",
        opened.root.url,
        task,
        result.rows,
        result.bytes,
        len(result.files),
        time.monotonic() - started,
        opened.job,
    )
    return result


def task_number() -> tuple[int, int]:
    """Number of the task, and of its attempt. Spark counts attempts anew in a retried stage, so
    it is the application-wide attempt id that is unique."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0, 0
    return context.partitionId(), context.taskAttemptId()
