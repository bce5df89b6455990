"""Log of a commit: its progress and its result."""

from __future__ import annotations

import logging
import time

from ...committer.commit.state.context import Progress
from ...committer.commit.state.job_state import Committed, OpenedJob, UnpublishedJob
from ...committer.errors import first_few

logger = logging.getLogger("zero_rename.spark.saving.commit_log")
#: Seconds between two lines of log on a long commit.
_EVERY = 5.0


class CommitProgress:
    """Logger of a commit's progress, every few seconds."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._next = time.monotonic() + _EVERY

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            logger.info(
                "%s: committing job %s, %d of %d files visible",
                self._table,
                progress.job,
                progress.done,
                progress.total,
            )


def log_skipped(opened: OpenedJob, idempotency_key: str | None) -> None:
    """Log that nothing is written, since an earlier job has done it."""
    done = opened.repeated or opened.unpublished
    assert done is not None
    logger.warning(
        "%s: job %s has done this already (idempotency key %r); nothing is computed or written",
        done.table,
        done.job,
        idempotency_key,
    )


def log_unpublished(job: UnpublishedJob) -> None:
    """Log the rows and files of a job that waits to be published."""
    logger.info(
        "%s: job %s waits to be published, %d rows, %d bytes, %d files in %d partitions",
        job.table,
        job.job,
        job.rows,
        job.bytes,
        job.files,
        len(job.partitions),
    )


def log_commit(done: Committed) -> None:
    """Log the rows and files of a commit, and what needs attention."""
    if done.repeated:
        logger.info("%s: job %s had committed this run's rows before", done.table, done.job)
        return
    logger.info(
        "%s: job %s committed, %d rows, %d bytes, %d files in %d partitions, %d files replaced",
        done.table,
        done.job,
        done.rows,
        done.bytes,
        done.files,
        len(done.partitions),
        sum(partition.removed for partition in done.partitions),
    )
    if done.superseded:
        logger.warning(
            "%s: job %s left out %d rows of partitions that newer runs have loaded: %s",
            done.table,
            done.job,
            done.left_out,
            first_few([f"{name} (by {by})" for name, by in done.superseded.items()]),
        )
    elif done.narrows is not None:
        logger.warning(
            "%s: job %s wrote only some partitions of its run again: %d rows of others were left "
            "out. These stay as they are; the run's job before was %s",
            done.table,
            done.job,
            done.left_out,
            done.narrows,
        )
    if small := done.many_small:
        logger.warning(
            "%s: job %s left up to %d files below 1 MiB in a partition, and more than ten in %d "
            "partitions (%s); every reader opens each. Let fewer tasks write a partition, by "
            "save(distribute='partition'); what is there: zero-rename compact %s",
            done.table,
            done.job,
            max(it.small for it in done.partitions),
            len(small),
            first_few(small),
            done.table,
        )
