"""A task that ends when its job is over: it removes its uploads itself."""

from __future__ import annotations

import logging

from ...errors import RefusedError, TaskLateError
from ...store.requests import Absent, Head, Step
from ..layout import TableRoot

_log = logging.getLogger("zero_rename.committer.format.parquet.late_task")


def refuse_late(root: TableRoot, job: str, task: int) -> Step[None]:
    """Refuse a task attempt whose job was decided while it wrote; asked when all is uploaded.

    Spark aborts a job while other tasks of it still run. The decision comes before the sweep of
    the job's uploads: an attempt that finds none has uploads that the sweep lists, one that finds
    it has what the sweep may have missed. That holds of a commit too, which an attempt that has
    not reported has no part in.

    :raises TaskLateError: there is a decision; the attempt's uploads are to be aborted.
    """
    try:
        found = yield from Head(root.decision_key(job))
    except RefusedError as error:
        # The commit's to tell. What a late attempt leaves is invisible, and purge finds it.
        _log.warning("Whether job %s still goes on was not seen: %s", job, error)
        return
    if not isinstance(found, Absent):
        raise TaskLateError(
            f"Task {task} ended after its job was decided without it: the job had failed of "
            "another error, or was done with another attempt of this task, or another process "
            "declared it dead. Nothing of this attempt is in the table.",
            table=root.url,
            job=job,
            remedy=f"See what became of the job: zero-rename jobs {root.url}. Where it is aborted, "
            "and Spark shows no other error of it, run it again; send heartbeats or a longer "
            "maximum duration.",
        )
