"""Distribution of a frame's rows over the tasks that write them, for few files in each partition.

Each task writes its own files into each partition that it has rows of, so the number of files is
that of tasks times partitions. Spark's ``REBALANCE`` brings the rows of a partition together first.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..column_names import quoted
from ..java_classes import java_class
from ..planned_frame import frame_of_plan
from ..session_settings import is_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("zero_rename.spark.saving.distribution")
#: Nodes of a plan that leave the order of the rows below them as it is.
_KEEP_ORDER = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "View", "GlobalLimit", "LocalLimit", "Offset"),
        *("MapInPandas", "MapInArrow", "PythonMapInArrow", "CollectMetrics", "WithCTE"),
        *("Generate", "Sample", "ResolvedHint"),
    )
)
_DIRECTION = re.compile(r" (ASC|DESC) NULLS ")


def distributed(
    frame: DataFrame, columns: Sequence[str], size: int | None, table: str
) -> DataFrame:
    """Bring the rows of each partition together: into one task, or several if they are too many.

    A frame that is sorted stays as it is, with a warning.

    :param columns: the partition columns; empty: the rows are only spread evenly over fewer tasks.
    :param size: approximate limit of bytes for a task, as Spark shuffles them. ``None``: the
        session's value (``spark.sql.adaptive.advisoryPartitionSizeInBytes``), which always counts
        on Spark Connect.
    :param table: for the log.
    """
    if has_own_order(_analyzed(frame)):
        logger.warning(
            "%s: the rows are not distributed by partition, since the frame has an order of its "
            "own (sort, sortWithinPartitions, repartitionByRange), which that would lose",
            table,
        )
        return frame
    names = [quoted(name) for name in columns]
    session = frame.sparkSession
    adapts = is_on(session, "spark.sql.adaptive.enabled", default=True)
    if not (adapts and _takes_frames(session)):
        # Without adaptive execution, as in the batches of a stream of older Sparks, there is none.
        return frame.repartition(*names) if names else frame
    hint = f"REBALANCE({', '.join(names)})" if names else "REBALANCE"
    hint = hint.replace("{", "{{").replace("}", "}}")  # The text is a format.
    together = session.sql(f"SELECT /*+ {hint} */ * FROM {{frame}}", frame=frame)
    return together if size is None else _sized(together, size)


def _takes_frames(session: SparkSession) -> bool:
    """Return whether a text of SQL may name frames; not on Spark Connect before Spark 4."""
    taken = inspect.signature(session.sql).parameters.values()
    return any(it.kind is inspect.Parameter.VAR_KEYWORD for it in taken)


def has_own_order(plan: str) -> bool:
    """Return whether the user has sorted a frame, or partitioned it by ranges.

    An order that Spark makes by chance does not count.

    :param plan: an analysed plan as Spark writes it, its root first.
    """
    for line in plan.splitlines():
        node = line.lstrip(" :+-")
        if ":" in line[: len(line) - len(node)]:
            continue  # A query that the node above uses: of WITH, or in a condition.
        name = node.partition(" ")[0]
        if name == "Sort" or (name == "RepartitionByExpression" and _DIRECTION.search(node)):
            return True
        if name not in _KEEP_ORDER:
            break
    return False


def _analyzed(frame: Any) -> str:
    """Return the text of a frame's analysed plan."""
    if hasattr(frame, "_jdf"):
        return frame._jdf.queryExecution().analyzed().toString()
    _, _, said = frame._explain_string(extended=True).partition("== Analyzed Logical Plan ==\n")
    return said.partition("\n")[2]  # The columns come first.


def _sized(frame: Any, size: int) -> DataFrame:
    """Set the size in bytes for the tasks of a rebalanced frame.

    Only the plan can have the size, not the hint. The session's setting would also change the
    user's own shuffles.
    """
    if not hasattr(frame, "_jdf"):
        return frame
    session: Any = frame.sparkSession
    jvm = session._jvm
    try:
        # py4j converts a small number to a java.lang.Integer, but Spark expects a Long.
        long = java_class(jvm, "java.util.stream.LongStream").of(size).boxed()
        longs = long.collect(java_class(jvm, "java.util.stream.Collectors").toList())
        plan = frame._jdf.queryExecution().analyzed()
        sized = plan.copy(
            plan.partitionExpressions(),
            plan.child(),
            plan.optNumPartitions(),
            java_class(jvm, "org.apache.spark.api.python.PythonUtils").toSeq(longs).headOption(),
        )
        return frame_of_plan(session, sized)
    except Exception as error:
        # This is not Spark's public API: platforms with their own Spark may have another.
        logger.info("files are sized by the session's own setting: %s", error)
        return frame
