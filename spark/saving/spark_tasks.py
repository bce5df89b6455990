"""Tasks of ``save()``: run by Spark, ended with the job, and all of them heard of."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from ...committer.commit.state.job_state import OpenedJob
from ...committer.errors import TaskResultsError
from ...committer.format.job_spec import Distribute
from ...committer.format.records.pending_file import TaskResult
from ..job_tags import Operations
from ..options import WriterOptions
from .distribution import distributed
from .task_rows import RESULTS, end_mark, shipped_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
logger = logging.getLogger("zero_rename.spark.saving.spark_tasks")
_DESCRIPTION = "spark.job.description"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
#: While a frame is saved. Spark measures no batch at this number of bytes
#: (``BatchedPythonArrowInput.underBatchSizeLimit``): it would add up the buffers of all columns
#: after every single row, two thirds of the JVM's work for a save of narrow rows. Fewer rows than
#: Spark's 10,000 hold a batch below 64 MiB, its other limit, up to 32 KiB a row.
_QUICK = {_ROWS: "2000", _BYTES: str(2**31 - 1)}
#: Seconds that tasks which were cancelled have to end, before what they uploaded is removed.
_PATIENCE = 10.0


@dataclass(frozen=True)
class PlannedFrame:
    """What Spark can plan of a write before its job is known.

    :param rows: the frame's; their columns are called ``c0``, ``c1``, ….
    :param mark: the task that comes after all others.
    """

    rows: DataFrame
    mark: DataFrame


def plan_frame(frame: DataFrame) -> Future[PlannedFrame]:
    """Begin to plan a frame's write while its job opens: Spark analyses for as long as two requests
    take."""

    def planned() -> PlannedFrame:
        # As the job names them: as the table does, whatever their case in the frame.
        rows = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
        # A row of no table has a partitioning of its own, which no other is the same as: Spark 4.1
        # and later would otherwise run the parts of a union as one task
        # (spark.sql.unionOutputPartitioning).
        mark = frame.sparkSession.sql("SELECT 1 AS mark").mapInArrow(end_mark(), RESULTS)
        return PlannedFrame(rows, mark)

    return _beside(frame.sparkSession, planned)


def run_tasks(
    planned: Future[PlannedFrame], opened: OpenedJob, options: WriterOptions
) -> list[TaskResult]:
    """Let Spark's tasks write a frame's rows, each into pending uploads of an open job.

    Spark may run a task several times, at once too: of each, the attempt that Spark takes for the
    one that counts reports here, and no other. They are cancelled where this is interrupted.

    :param planned: the frame, by :func:`plan_frame`.
    :param options: whether the rows are distributed first, and the workers frozen.
    :returns: a result for each task there was.
    :raises TaskResultsError: not every task has reported.
    """
    frame = planned.result()
    named, session = frame.rows, frame.rows.sparkSession
    if options.distribute is Distribute.PARTITION:
        places = map(opened.spec.schema.names.index, opened.partition_by)
        columns = [named.columns[place] for place in places]
        named = distributed(named, columns, options.bytes_per_file, opened.root.url)
    operations = Operations(session, opened.job)
    opened = replace(opened, awaited=operations.end_for_sure)
    written = named.mapInArrow(shipped_task(opened, options.freeze_workers), RESULTS)
    # The tasks of a union are those of its parts, one after the other.
    with _described(session, f"zero_rename: {opened.root.url}, job {opened.job}"):
        try:
            with operations, _quick_batches(session, opened.spec.schema):
                rows = _beside(session, written.union(frame.mark).collect).result()
        except BaseException:
            _end(operations)
            raise
    return _results(opened, [(row["task"], row["result"]) for row in rows])


def _beside(session: SparkSession, work: Callable[[], T]) -> Future[T]:
    """Work with a classic session in another thread: Ctrl-C and SIGTERM would break this one's
    connection to the JVM, by which it is to cancel the tasks. On Spark Connect, work here."""
    done: Future[T] = Future()

    def do() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    if hasattr(session, "_jsparkSession"):
        from pyspark import InheritableThread

        InheritableThread(target=do, daemon=True).start()
    else:
        try:
            done.set_result(work())
        except Exception as error:  # As of another thread: for who asks for the result.
            done.set_exception(error)
    return done


def _results(opened: OpenedJob, rows: Sequence[tuple[int, Any]]) -> list[TaskResult]:
    results = [pickle.loads(bytes(packed)) for _, packed in rows if packed is not None]
    marks = [number for number, packed in rows if packed is None]
    tasks = sorted(result.task for result in results)
    if len(marks) != 1 or tasks != list(range(marks[0])):
        raise TaskResultsError(
            f"Not every task has reported: {len(tasks)} results came, of tasks "
            f"{tasks[:20]}, and Spark counted {marks}; nothing was decided.",
            table=opened.root.url,
            job=opened.job,
            remedy="Run the job again.",
        )
    return results


@contextmanager
def _quick_batches(session: SparkSession, schema: pa.Schema) -> Iterator[None]:
    """Let Spark make batches by their rows alone for a while.

    Where the session sets a limit of its own, where rows may be long (columns of bytes), and
    before Spark 4.1, which measures none, all stays as it is. Several saves of one session may run
    at once: the first to end takes the settings back, and the others are slower from there on.
    """
    mine = session.version >= "4.1" and not any(_has_bytes(field.type) for field in schema)
    if not mine or any(session.conf.get(key, None) is not None for key in _QUICK):
        yield
        return
    for key, value in _QUICK.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in _QUICK.items():
            if session.conf.get(key, None) == value:
                session.conf.unset(key)


def _has_bytes(kind: pa.DataType) -> bool:
    """Whether values may be byte strings, of a variant, too."""
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return True
    if pt.is_map(kind):
        return _has_bytes(kind.key_type) or _has_bytes(kind.item_type)
    return any(_has_bytes(kind.field(number).type) for number in range(kind.num_fields))


@contextmanager
def _described(session: SparkSession, text: str) -> Iterator[None]:
    """Let Spark's UI show what its jobs in the block are about. Spark Connect has no such text."""
    context: Any = session.sparkContext if hasattr(session, "_jsparkSession") else None
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _end(operations: Operations) -> None:
    """Cancel the tasks that still run, and wait until they have ended: what they upload later
    would have to be purged."""
    try:
        operations.cancel()
        until = time.monotonic() + _PATIENCE
        while operations.running() and time.monotonic() < until:
            time.sleep(0.1)
    except Exception as error:
        # Of the JVM or the connection to it, which may be gone: the job is aborted in any case.
        logger.warning("whether Spark's tasks have ended is not known: %s", error)
