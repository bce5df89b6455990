"""Spark's operations of one write, which another thread can cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Operations:
    """Spark operations that the thread of a ``with`` block starts in it.

    They get a tag. In a classic session, a session's tag is known only to the thread that added it,
    so the context's tags are used. A session of Spark Connect has no context, and its tags are the
    server's.

    :param name: a name for the operations, without a comma.
    """

    def __init__(self, session: SparkSession, name: str) -> None:
        self._tag = f"zero-rename-{name}"
        is_classic = hasattr(session, "_jsparkSession")
        self._context: Any = session.sparkContext if is_classic else None
        owner = self._context or session
        words = ("addJobTag", "removeJobTag", "cancelJobsWithTag")
        connect = ("addTag", "removeTag", "interruptTag")
        self._add, self._remove, self._cancel = (
            getattr(owner, word) for word in (words if is_classic else connect)
        )

    def __enter__(self) -> None:
        self._add(self._tag)

    def __exit__(self, *_: object) -> None:
        self._remove(self._tag)

    @property
    def end_for_sure(self) -> bool:
        """True if surely no task still works once the operations are done, or cancelled and ended.

        With Spark Connect this is not known. And if Spark interrupts an attempt's thread, for
        example because another attempt of the task was faster, it reports the attempt as ended
        while its Python worker still works.
        """
        if self._context is None:
            return False
        interrupts = (
            self._context.getConf().get("spark.speculation", "false"),
            self._context.getLocalProperty("spark.job.interruptOnCancel") or "false",
        )
        # As Spark reads them: SparkConf().set(…, True) of Python is "True".
        return not any(text.strip().lower() == "true" for text in interrupts)

    def cancel(self) -> None:
        """Cancel the running operations, from any thread.

        Work on the driver, such as the commit of a job, continues.
        """
        self._cancel(self._tag)

    def running(self) -> bool:
        """Return whether tasks of the operations still run; ``False`` also on Spark Connect."""
        if self._context is None:
            return False
        tracker = self._context._jsc.sc().statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(self._tag)]
        stages = {stage for job in jobs if job.isDefined() for stage in job.get().stageIds()}
        found = [tracker.getStageInfo(stage) for stage in stages]
        return any(stage.get().numActiveTasks() > 0 for stage in found if stage.isDefined())
