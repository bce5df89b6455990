"""Distribution of a frame's rows over the tasks that write them, for few files a partition.

A task writes files of its own into each partition that it has rows of: tasks times partitions.
Spark's ``REBALANCE`` brings the rows of a partition together before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..planned_frame import frame_of_plan
from ..reading.load import quoted
from ..session_settings import is_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("zero_rename.spark.saving.distribution")
#: Nodes of a plan that leave the order of the rows below them as it is.
_KEEP_ORDER = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "View", "GlobalLimit", "LocalLimit"),
        *("MapInPandas", "MapInArrow", "PythonMapInArrow", "CollectMetrics"),
    )
)
_DIRECTION = re.compile(r" (ASC|DESC) NULLS ")


def distributed(
    frame: DataFrame, columns: Sequence[str], size: int | None, table: str
) -> DataFrame:
    """A frame's rows, those of a partition together: in one task, or in several where they are
    more than ``size``. A frame that is sorted stays as it is, which the log says.

    :param columns: the partition columns; none: tasks are only made fewer and even.
    :param size: bytes as Spark shuffles them; ``None``, and on Spark Connect, what the session has
        (``spark.sql.adaptive.advisoryPartitionSizeInBytes``).
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
    if not is_on(session, "spark.sql.adaptive.enabled", default=True):
        # Spark has no rebalance then, as in the batches of a stream.
        return frame.repartition(*names) if names else frame
    hint = f"REBALANCE({', '.join(names)})" if names else "REBALANCE"
    together = session.sql(f"SELECT /*+ {hint} */ * FROM {{frame}}", frame=frame)
    return together if size is None else _sized(together, size)


def has_own_order(plan: str) -> bool:
    """Whether rows come sorted, or by ranges, and not merely because Spark happens to do so.

    :param plan: an analysed plan as Spark writes it, its root first.
    """
    for line in plan.splitlines():
        node = line.lstrip(" +-")
        name = node.partition(" ")[0]
        if name == "Sort" or (name == "RepartitionByExpression" and _DIRECTION.search(node)):
            return True
        if name not in _KEEP_ORDER:
            break
    return False


def _analyzed(frame: Any) -> str:
    """The analysed plan's text."""
    if hasattr(frame, "_jdf"):
        return frame._jdf.queryExecution().analyzed().toString()
    _, _, said = frame._explain_string(extended=True).partition("== Analyzed Logical Plan ==\n")
    return said.partition("\n")[2]  # The columns come first.


def _sized(frame: Any, size: int) -> DataFrame:
    """A rebalanced frame whose tasks get about so many bytes. Only the plan can say that, not the
    hint; the session's setting would change the user's own shuffles too."""
    if not hasattr(frame, "_jdf"):
        return frame
    session: Any = frame.sparkSession
    jvm = session._jvm
    try:
        # py4j makes a java.lang.Integer of a small number, where Spark expects a Long.
        long = jvm.java.util.stream.LongStream.of(size).boxed()
        longs = long.collect(jvm.java.util.stream.Collectors.toList())
        plan = frame._jdf.queryExecution().analyzed()
        sized = plan.copy(
            plan.partitionExpressions(),
            plan.child(),
            plan.optNumPartitions(),
            jvm.PythonUtils.toSeq(longs).headOption(),
        )
        return frame_of_plan(session, sized)
    except Exception as error:
        # None of Spark's public API: platforms with a Spark of their own may have another.
        logger.info("files are sized by the session's own setting: %s", error)
        return frame
