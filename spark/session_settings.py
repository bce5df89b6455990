"""Settings of a session that are on or off, read in upper or lower case as Spark does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_on(session: SparkSession, name: str, default: bool = False) -> bool:
    """Return whether a setting is on.

    :param default: Spark's value if it is not set.
    """
    return _is_true(session.conf.get(name, None), default)


def is_ansi(session: SparkSession) -> bool:
    """Return whether a session is in ANSI mode.

    Its default depends on Spark's version, and on the environment that Spark was started in.
    """
    return _is_true(session.conf.get("spark.sql.ansi.enabled"), False)


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"
