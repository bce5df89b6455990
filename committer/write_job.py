"""Job from plain Python as a context manager: the protocol that Spark's driver runs."""

from __future__ import annotations

import logging
import os
import socket
from types import TracebackType

import pyarrow as pa

from .errors import InvalidInputError, OutcomeUnknownError, ZeroRenameError
from .job_spec import JobSpec, Owner
from .parquet.task_writer import TaskWriter
from .protocol.commit import abort_job, commit_job
from .protocol.open import open_job
from .s3.driver import BotoDriver
from .s3.requests import ObjectSettings
from .s3.upload_stream import DelayedOutputStream
from .sigterm import JobTerminated, Termination
from .state.context import Context
from .state.job_state import Committed, OpenedJob

logger = logging.getLogger("zero_rename.committer.write_job")


class WriteJob:
    """One write into a table, as a context manager.

    Entering the block opens the job, leaving it commits, an exception in it aborts.
    ``committed`` then tells what was done.

    SIGTERM, where the block runs in the main thread, raises :class:`.sigterm.JobTerminated`
    in it: the job is aborted within :data:`.sigterm.GRACE` seconds, or found to be committed,
    and the handler that was there before has its turn. What cannot be cleaned up in that time is
    left to recovery.
    """

    def __init__(self, driver: BotoDriver, context: Context, spec: JobSpec) -> None:
        self._driver = driver
        self._context = context
        self._spec = spec
        self._opened: OpenedJob | None = None
        self._writer: TaskWriter | None = None
        self._termination = Termination()
        self.committed: Committed | None = None

    @property
    def job(self) -> str | None:
        """The job's id; ``None`` before it opens."""
        return self._opened.job if self._opened else None

    def __enter__(self) -> WriteJob:
        # Opening is not interrupted: a job whose id nobody knows yet could not be aborted.
        self._termination.install()
        try:
            self._opened = self._driver.run(open_job(self._context, self._spec))
            if self._opened.repeated is None:
                self._writer = task_writer(self._driver, self._opened, task=0, attempt=0)
            self._termination.interrupt()
        except BaseException as error:
            self._abort_and_release(error)
            raise
        return self

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Write rows, in any partitions.

        :raises InvalidInputError: the job is not open, or the rows do not fit.
        """
        if self._opened is None or self.committed is not None:
            raise InvalidInputError(
                "A job is written to inside its with block.", table=self._context.root.url
            )
        if self._writer is not None:
            self._writer.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._abort_and_release(error)
            return
        try:
            self._commit()
        finally:
            self._termination.release()

    def _abort_and_release(self, error: BaseException) -> None:
        try:
            if self._opened is not None:
                self._abort(self._opened, error)
        finally:
            self._termination.release()

    def _commit(self) -> None:
        if self._opened is None:
            return
        try:
            self._commit_or_skip(self._opened)
        except OutcomeUnknownError:
            raise  # Nothing may be cleaned up.
        except (ZeroRenameError, JobTerminated) as failure:
            self._abort(self._opened, failure)
            raise

    def _commit_or_skip(self, opened: OpenedJob) -> None:
        if opened.repeated is not None:
            self.committed = opened.repeated
            return
        assert self._writer is not None
        result = self._writer.close()
        # From here on a commit decision may stand, and the uploads are then the job's rows: only
        # an abort decision allows aborting them, which abort_job sees to.
        self._writer = None
        step = commit_job(self._context, opened, [result], expected_tasks=1)
        self.committed = self._driver.run(step)

    def _abort(self, opened: OpenedJob, error: BaseException) -> None:
        """Abort; a failure of that is attached to ``error`` and never replaces it."""
        try:
            self._termination.defer()
            if self._termination.expired:
                raise JobTerminated
            if self._writer is not None:
                self._writer.abort()
            outcome = self._driver.run(abort_job(self._context, opened, ()))
        except JobTerminated:
            note = "The time for cleaning up is over; recovery will finish it."
        except ZeroRenameError as failure:
            note = f"Aborting the job failed too, recovery will finish it: {failure}"
        else:
            committed = isinstance(outcome, Committed)
            note = f"The job {opened.job} is committed all the same." if committed else ""
        if note:
            error.add_note(note)
        if isinstance(error, JobTerminated):
            # Nobody prints a SystemExit and its notes.
            logger.warning(
                "%s: SIGTERM: %s", opened.root.url, note or f"job {opened.job} is aborted."
            )


def task_writer(driver: BotoDriver, opened: OpenedJob, task: int, attempt: int) -> TaskWriter:
    """The writer of one task attempt of an open job."""
    spec = opened.spec

    def stream(key: str, settings: ObjectSettings) -> DelayedOutputStream:
        return DelayedOutputStream(driver, key, settings, part_bytes=spec.files.part_bytes)

    return TaskWriter(
        opened.root,
        opened.job,
        task,
        attempt,
        opened.schema,
        opened.partition_by,
        spec.files,
        stream,
        spec.allowed_partitions,
    )


def this_process() -> Owner:
    """An owner that names this process."""
    return Owner(application="python", host=socket.gethostname(), pid=os.getpid())
