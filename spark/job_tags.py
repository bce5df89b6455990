"""Spark's operations of one write, to be cancelled from another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        """Whether no task of theirs works on once they are done, or are cancelled and not running
        any more. Spark Connect does not tell. An attempt whose thread Spark interrupts, as where
        another one of its task overtook it, is called ended while its Python worker still works."""
        if self._context is None:
            return False
        interrupts = (
            self._context.getConf().get("spark.speculation", "false"),
            self._context.getLocalProperty("spark.job.interruptOnCancel") or "false",
        )
        return "true" not in interrupts

    def cancel(self) -> None:
        """Cancel those that run, from any thread. What they are doing on the driver, such as the
        commit of a job, goes on."""
        self._cancel(self._tag)

    def running(self) -> bool:
        """Whether tasks of theirs still run; ``False`` too where Spark Connect does not say."""
        if self._context is None:
            return False
        tracker = self._context._jsc.sc().statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(self._tag)]
        stages = {stage for job in jobs if job.isDefined() for stage in job.get().stageIds()}
        found = [tracker.getStageInfo(stage) for stage in stages]
        return any(stage.get().numActiveTasks() > 0 for stage in found if stage.isDefined())
