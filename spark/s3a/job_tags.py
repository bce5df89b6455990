"""Spark's operations of one write, to be cancelled from another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Operations:
    """What is started in its ``with`` block, by the thread that entered it.

    A classic session's own tags are known to the thread that added them only, so its context's
    are used; a session of Spark Connect has no context, and its tags are the server's.

    :param name: of the operations, with no comma.
    """

    def __init__(self, session: SparkSession, name: str) -> None:
        self._tag = f"zero-rename-{name}"
        is_classic = hasattr(session, "_jsparkSession")
        owner = session.sparkContext if is_classic else session
        words = ("addJobTag", "removeJobTag", "cancelJobsWithTag")
        connect = ("addTag", "removeTag", "interruptTag")
        self._add, self._remove, self._cancel = (
            getattr(owner, word) for word in (words if is_classic else connect)
        )

    def __enter__(self) -> None:
        self._add(self._tag)

    def __exit__(self, *_: object) -> None:
        self._remove(self._tag)

    def cancel(self) -> None:
        """Cancel those that run, from any thread. What they are doing on the driver, such as the
        commit of a job, goes on."""
        self._cancel(self._tag)
