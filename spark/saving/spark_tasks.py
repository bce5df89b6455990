"""Tasks of ``save()``: Spark runs them, they end with the job, and each of them must report."""

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
from ...committer.format.schema.types import has_part
from ..java_classes import java_class
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
_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"
#: Settings while a frame is saved. With this number of bytes Spark does not measure batches
#: (``BatchedPythonArrowInput.underBatchSizeLimit``). Otherwise it would add up the buffers of all
#: columns after each row, which is two thirds of the JVM's work for a save of narrow rows. With
#: 2,000 rows instead of Spark's 10,000, a batch stays below 64 MiB, its other limit, for rows of up
#: to 32 KiB.
_UNMEASURED, _ROWS_OF_NUMBERS = str(2**31 - 1), 2000
#: The rows of a batch, if they may be long: it stays below 64 MiB for rows of up to 128 KiB, and
#: takes a tenth more CPU. Batches with more texts than this have fewer rows.
_ROWS_OF_TEXTS, _MOST_TEXTS = 500, 25_000
#: Seconds that cancelled tasks have to end, before their uploads are removed.
_PATIENCE = 10.0


@dataclass(frozen=True)
class PlannedFrame:
    """The part of a write that Spark can plan before its job is open.

    :param rows: the frame's rows, with columns ``c0``, ``c1``, ….
    :param mark: the task that comes after all others.
    """

    rows: DataFrame
    mark: DataFrame


def plan_frame(frame: DataFrame) -> Future[PlannedFrame]:
    """Begin to plan a frame's write while its job opens.

    Spark needs about as long for the analysis as two requests take.
    """

    def planned() -> PlannedFrame:
        # The tasks take columns by position: the table may spell their names in another case.
        rows = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
        # A row without a table has a partitioning that equals no other one. Otherwise Spark 4.1
        # and later would run the parts of a union as one task
        # (spark.sql.unionOutputPartitioning).
        mark = frame.sparkSession.sql("SELECT 1 AS mark").mapInArrow(end_mark(), RESULTS)
        return PlannedFrame(rows, mark)

    return _beside(frame.sparkSession, planned)


def run_tasks(
    planned: Future[PlannedFrame], opened: OpenedJob, options: WriterOptions
) -> list[TaskResult]:
    """Let Spark's tasks write a frame's rows, each into pending uploads of an open job.

    Spark may run a task several times, even at once. Only the attempt that counts for Spark reports
    here. If this call is interrupted, the tasks are cancelled.

    :param planned: the frame, by :func:`plan_frame`.
    :param options: say whether the rows are distributed first, and whether workers are frozen.
    :returns: a result for each task.
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
            with operations, _quick_batches(frame.rows, opened.spec.schema):
                rows = _beside(session, written.union(frame.mark).collect).result()
        except BaseException:
            _end(operations)
            raise
    return _results(opened, [(row["task"], row["result"]) for row in rows])


def _beside(session: SparkSession, work: Callable[[], T]) -> Future[T]:
    """Do work with a classic session in another thread; on Spark Connect, in this one.

    Ctrl-C and SIGTERM would break this thread's connection to the JVM if it did the work, and it
    needs the connection to cancel the tasks.
    """
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
        except Exception as error:  # Raised by result(), as from another thread.
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
def _quick_batches(frame: DataFrame, schema: pa.Schema) -> Iterator[None]:
    """Let Spark limit batches only by their rows, in the block.

    Nothing changes if the session has its own limit, if rows may be long (columns of bytes), if
    functions in Python compute the frame, since they see these batches, too, and before Spark 4.1,
    which does not measure batches. If several saves of one session run at once, the first to end
    removes the settings, and the others are slower from then on.
    """
    session, quick = frame.sparkSession, {_ROWS: str(_rows_at_once(schema)), _BYTES: _UNMEASURED}
    mine = session.version >= "4.1" and not any(_has_bytes(field.type) for field in schema)
    mine = mine and not _calls_python(frame)
    if not mine or any(session.conf.get(key, None) is not None for key in quick):
        yield
        return
    for key, value in quick.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in quick.items():
            if session.conf.get(key, None) == value:
                session.conf.unset(key)


def _rows_at_once(schema: pa.Schema) -> int:
    """Return the rows of a batch that is not measured."""
    texts = sum(_long_values(field.type) for field in schema)
    return max(1, min(_ROWS_OF_TEXTS, _MOST_TEXTS // texts)) if texts else _ROWS_OF_NUMBERS


def _long_values(kind: pa.DataType) -> int:
    """Count the values of a column's row that may be of any length."""
    if pt.is_struct(kind):
        return sum(_long_values(kind.field(number).type) for number in range(kind.num_fields))
    return int(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_nested(kind))


def _calls_python(frame: Any) -> bool:
    """Tell whether functions in Python compute rows of a frame. On Spark Connect this is not known:
    ``False``."""
    if not hasattr(frame, "_jdf"):
        return False
    try:
        patterns = java_class(frame.sparkSession._jvm, _PATTERNS)
        return frame._jdf.queryExecution().analyzed().containsPattern(patterns.PYTHON_UDF())
    except Exception as error:
        # None of Spark's public API: platforms with a Spark of their own may have another.
        logger.info("whether a frame calls Python is not known: %s", error)
        return True


def _has_bytes(kind: pa.DataType) -> bool:
    """Return whether values of a type may hold byte strings, as a variant does."""
    return has_part(kind, lambda it: pt.is_binary(it) or pt.is_large_binary(it))


@contextmanager
def _described(session: SparkSession, text: str) -> Iterator[None]:
    """Set the description of Spark jobs in the block for Spark's UI. Spark Connect has none."""
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
    """Cancel the tasks that still run, and wait until they have ended.

    Files that they upload later would have to be purged.
    """
    try:
        operations.cancel()
        until = time.monotonic() + _PATIENCE
        while operations.running() and time.monotonic() < until:
            time.sleep(0.1)
    except Exception as error:
        # By the JVM, or because the connection to it is lost: the job is aborted in any case.
        logger.warning("whether Spark's tasks have ended is not known: %s", error)
