"""Data frame of a plan that no public call of Spark can make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of_plan(session: SparkSession, plan: Any) -> DataFrame:
    """Make a frame of a classic session from an analysed plan of the JVM.

    This is not part of Spark's public API, so on platforms with their own Spark it may raise any
    error.
    """
    from pyspark.sql import DataFrame

    java: Any = session
    room = "org.apache.spark.sql.classic" if session.version >= "4" else "org.apache.spark.sql"
    datasets = java_class(java._jvm, f"{room}.Dataset")
    return DataFrame(datasets.ofRows(java._jsparkSession, plan), session)
