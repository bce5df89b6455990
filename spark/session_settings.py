"""The active session, and settings that are on or off, read in upper or lower case as Spark
does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_session() -> SparkSession | None:
    """Return the session that is active in this thread; ``None``: there is none.

    A classic PySpark returns the one that made a frame last, in any thread: after a batch of a
    stream the copy of a session that the stream made when it began.
    """
    from pyspark.sql import SparkSession

    found: Any = SparkSession.getActiveSession()
    if found is None or not hasattr(found, "_jsparkSession"):
        return found
    here = found._jsparkSession.getActiveSession().get()
    return found if here.equals(found._jsparkSession) else SparkSession(found._sc, here)


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
