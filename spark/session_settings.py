"""Settings of a session that are on or off, as Spark reads them: in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_on(session: SparkSession, name: str, default: bool = False) -> bool:
    """Return whether a setting is on.

    :param default: what Spark takes where nobody has set it.
    """
    return _is_true(session.conf.get(name, None), default)


def is_ansi(session: SparkSession) -> bool:
    """Return whether a session is in ANSI mode, whose default is another one by version, and by the
    environment that Spark was started in."""
    return _is_true(session.conf.get("spark.sql.ansi.enabled"), False)


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"
