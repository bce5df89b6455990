"""Rows of one task, written from Arrow batches into pending uploads; and the task's report.

``save()`` sends functions to Spark's Python workers with their own code: PySpark pickles a function
that is defined inside another one by value. So a worker needs nothing of this package to begin with
it, and an error can say what the worker lacks. A function pickled by reference would end in
``ModuleNotFoundError`` while it is unpickled. The functions carry no secret: each worker finds its
credentials by itself.
"""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...committer.commit.state.job_state import OpenedJob
from ...committer.format.parquet.batches import concatenated
from ...committer.format.records.pending_file import TaskResult
from ...committer.format.schema.whole_numbers import whole_numbers
from ...committer.table import Table
from ..types import in_job_types
from ..worker import ease_reuse, readable_errors

logger = logging.getLogger("zero_rename.spark.saving.task_rows")
#: Columns of the rows that the functions return: the number of a task, and its report. In the row
#: of the end mark the report is ``None``, and the number is the count of the tasks.
RESULTS = "task int, result binary"
#: Bytes of rows that are checked and cast at once. Spark's batches may have a few hundred rows, and
#: checks cost time for each batch and column, not for each row.
_ENOUGH = 256 * 1024
#: Beginning of the error of a worker that cannot work for this driver.
UNFIT = "zero_rename: this worker cannot write:"

ShippedTask = Callable[[Iterator[Any]], Iterator[Any]]


def shipped_task(opened: OpenedJob, freeze: bool) -> ShippedTask:
    """Make the function of each task: it writes the task's rows, and reports in one row.

    :param freeze: freeze each worker once (:func:`.worker.ease_reuse`).
    """
    version = sys.modules[__name__.partition(".")[0]].__version__
    # Tasks need not know the state of every partition.
    needed = replace(opened, base={}, read={}, others=frozenset(), new_table=None)
    needed = replace(needed, spec=replace(needed.spec, base=None))
    payload, unfit = pickle.dumps(needed), UNFIT

    def write_partition(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        here = f"{sys.executable}, Python {'.'.join(map(str, sys.version_info[:3]))}"
        found = {}
        for package in ("pyarrow", "boto3", "zero_rename"):
            try:
                found[package] = __import__(package)
            except ImportError as error:
                raise RuntimeError(f"{unfit} {here} has no {package} ({error})") from error
        if found["zero_rename"].__version__ != version:
            raise RuntimeError(
                f"{unfit} {here} has zero_rename {found['zero_rename'].__version__} at "
                f"{found['zero_rename'].__file__}, and the driver has {version}"
            )
        from zero_rename.spark.saving.task_rows import report

        yield from report(payload, freeze, batches)

    return write_partition


def end_mark() -> ShippedTask:
    """Make the function of one more task after all others, whose number is the others' count."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None
        # An array made from a list would import pandas, in a worker that may already be frozen.
        number = context.partitionId().to_bytes(4, sys.byteorder)
        task = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(number)])
        yield pa.record_batch([task, pa.nulls(1, pa.binary())], names=["task", "result"])

    return count


def report(
    payload: bytes, freeze: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows, then yield one batch with one row: the task and its pickled result.

    :param payload: the pickled open job.
    """
    with readable_errors():
        result = write_rows(pickle.loads(payload), freeze, batches)
    packed = pickle.dumps(result)
    ends = whole_numbers([0, len(packed)], pa.int32()).buffers()[1]
    found = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(packed)])
    yield pa.record_batch(
        [whole_numbers([result.task], pa.int32()), found], names=["task", "result"]
    )


def write_rows(opened: OpenedJob, freeze: bool, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Upload one task's rows, which stay invisible. Runs in a worker, once for each attempt.

    :param freeze: freeze the worker afterwards (:func:`.worker.ease_reuse`).
    :param batches: rows with the job's columns, by position: their names may differ by case, and
        Spark takes dots and backticks in names for syntax.
    """
    result = _uploaded(opened, batches)
    if freeze:
        ease_reuse()
    return result


def _uploaded(opened: OpenedJob, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Upload one task's rows, and return its result.

    Rows and bytes are in the task's log and in the result, since Spark's metrics cannot have them.
    """
    task, attempt = task_number()
    if opened.is_repeat:
        return TaskResult(opened.job, task, attempt, ())
    started = time.monotonic()
    table = Table(opened.root.url)
    before = table.retries
    writer = table.task_writer(opened, task, attempt)
    try:
        for batch in _gathered(batches):
            writer.write(in_job_types(batch, opened.spec.schema))
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


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the first batch at once, since its rows begin the upload, and later ones copied into
    batches of :data:`_ENOUGH` bytes or more."""
    waiting: list[pa.RecordBatch] = []
    missing = 0
    for batch in batches:
        waiting.append(batch)
        missing -= batch.get_total_buffer_size()
        if missing <= 0:
            yield waiting[0] if len(waiting) == 1 else concatenated(waiting)
            waiting, missing = [], _ENOUGH
    if waiting:
        yield concatenated(waiting)


def task_number() -> tuple[int, int]:
    """Return the numbers of the task and of its attempt.

    The attempt's number is the one that is unique in the application: a retried stage counts its
    own attempts from 0 again.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0, 0
    return context.partitionId(), context.taskAttemptId()
