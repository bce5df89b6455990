"""Job in plain Python as a context manager, by the protocol that Spark's driver runs."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from .attempt import task_writer
from .commit.failures import failures_told
from .commit.interrupted import JobInterrupted, alone, fate
from .commit.state.heartbeat import Beats
from .commit.state.job_state import Committed, JobState, OpenedJob, UnpublishedJob
from .errors import (
    DataLostError,
    InvalidInputError,
    OutcomeUnknownError,
    UnfinishedAbortError,
    UnfinishedCommitError,
    ZeroRenameError,
    about,
)
from .format.job_spec import JobSpec, Owner
from .format.parquet.task_writer import TaskWriter
from .format.read_base import ReadBase
from .format.records.inputs import Inputs
from .format.records.pending_file import TaskResult
from .job_steps import JobSteps
from .periodic import INTERVAL, repeating
from .scan.reads import note_end, noted
from .sigterm import JobTerminated, Termination

logger = logging.getLogger("zero_rename.committer.write_job")
#: Seconds that the end of a block waits for a heartbeat under way. A late one does no harm: it is
#: conditional on the open record that it has read.
_LINGER = 2.0


class WriteJob:
    """One write into a table, as a context manager.

    Entering the block opens the job, leaving it commits, an exception in it aborts. ``committed``
    then has the report. For a job that is published later, ``unpublished`` has the report of what
    waits, and ``committed`` stays ``None``. Rows are written in the block, or by tasks in other
    processes, which get ``opened`` and whose results are taken.

    Heartbeats are sent from a thread while the job is open, so that a job that only waits does not
    count as dead. They end with the block, and at the latest when the job has been open for its
    ``max_duration``: the job of a process that hangs counts as dead ten minutes later. A process
    that is stopped, or whose threads cannot run, sends none. A forked child sends none either, and
    cannot write, commit or abort: the job belongs to its parent.

    If the block runs in the main thread, SIGTERM raises :class:`.sigterm.JobTerminated` in it: the
    job is aborted within :data:`.sigterm.GRACE` seconds, or found to be committed, and then the
    earlier handler is called. What cannot be cleaned up in that time is left to recovery.

    Ctrl-C aborts the job, too. In the block the ``KeyboardInterrupt`` carries a note that says so;
    while the job commits it becomes :class:`.interrupted.JobInterrupted`, which says whether the
    job is committed.
    """

    def __init__(
        self,
        steps: JobSteps,
        spec: JobSpec,
        beats: Beats | None = None,
        inputs: Callable[[], Inputs] | None = None,
        before: Callable[[], object] | None = None,
    ) -> None:
        self._steps = steps
        self._driver = steps.driver
        self._spec = spec
        self._inputs = inputs
        #: Called before the job opens, when it holds nothing yet.
        self._before = before
        self._beats = beats or Beats(INTERVAL, spec.max_duration)
        self._termination = Termination()
        self._heartbeats = ExitStack()
        self._begin()

    def _begin(self) -> None:
        """Forget the job of an earlier block: each block is a job of its own."""
        self._opened: OpenedJob | None = None
        self._writer: TaskWriter | None = None
        self._taken: Sequence[TaskResult] | None = None
        self._tasks = 0
        #: Results with which the commit was called: an abort releases the claims that it may have
        #: made.
        self._reported: Sequence[TaskResult] = ()
        self._pid = os.getpid()
        self._retries = self._driver.retries
        self._is_over = False
        self.committed: Committed | None = None
        self.unpublished: UnpublishedJob | None = None

    @property
    def job(self) -> str | None:
        """The job's id; ``None`` before it opens."""
        return self._opened.job if self._opened else None

    @property
    def opened(self) -> OpenedJob:
        """The open job, as other processes need it to write tasks of it.

        :raises InvalidInputError: it is not open.
        """
        if self._opened is None or self._is_over:
            raise InvalidInputError(
                "A job is open inside its with block.", table=self._steps.root.url
            )
        return self._opened

    @property
    def repeats(self) -> bool:
        """True if an earlier job of the run has written the rows, so that this one writes none."""
        return self._opened is not None and self._opened.is_repeat

    def made_of(self, inputs: Inputs) -> None:
        """Set the inputs of the rows, unless the program has stated them."""
        if self.opened.inputs is None:
            self._opened = replace(self.opened, inputs=inputs)

    def check_against(self, base: ReadBase) -> None:
        """Set the read base of the job: the commit is refused if partitions have changed since."""
        self._opened = replace(self.opened, spec=replace(self.opened.spec, base=base))

    def take(self, results: Sequence[TaskResult], tasks: int) -> None:
        """Commit the results of tasks in other processes, instead of rows written here.

        :param results: their reports, one each, by :meth:`.table.Table.task_writer`.
        :param tasks: how many there were. If that is not the number of results, or if rows were
            written here too, the commit is refused.
        """
        self._taken, self._tasks = tuple(results), tasks

    def __enter__(self) -> WriteJob:
        self._begin()
        # Opening is not interrupted: a job whose id is not known yet could not be aborted.
        self._termination.install()
        try:
            self._open()
            self._termination.interrupt()
        except BaseException as error:
            self._abort_and_release(error)
            raise
        return self

    def write(self, data: Any) -> None:
        """Write rows, in any partitions.

        :param data: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas frame (an index
            with a name is a column), a Polars frame, or any other object with Arrow's C stream
            interface. A stream is written as it is read.
        :raises InvalidInputError: the job is not open, or belongs to another process, or the rows
            do not fit.
        """
        self._refuse_children()
        if self._opened is None or self._is_over:
            raise InvalidInputError(
                "A job is written to inside its with block. These rows were not written.",
                table=self._steps.root.url,
                job=self.job,
                remedy="Write them in the block, or in that of another job.",
            )
        if self._writer is not None:
            with self._failures_told():
                self._writer.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            if self._pid == os.getpid():
                self._abort_and_release(error)
            return
        self._refuse_children()
        try:
            self._commit()
        finally:
            self._release()

    def _open(self) -> None:
        job: str | None = None
        try:
            with self._failures_told():
                if self._before is not None:
                    self._before()
                inputs = None if self._inputs is None else self._inputs()
                # The id says when the job began, and searches for conflicts go by that: it is made
                # after a wait for other runs. It is made before the opening, so that the open
                # record can be removed if the opening is interrupted.
                job = self._steps.job_id()
                opened = self._steps.open(job, self._spec)
        except BaseException as error:
            # Ctrl-C, or what a scheduler raises instead: Dagster's is no KeyboardInterrupt.
            if isinstance(error, Exception | SystemExit):
                raise
            if job is not None:
                # Nothing but the open record was written: there are no tasks yet.
                self._steps.forget(job)
            error.add_note(f"A job of {self._steps.root.url} was not opened; nothing was written.")
            raise
        self._opened = replace(opened, inputs=inputs)
        if opened.is_repeat:
            return
        self._writer = task_writer(self._driver, opened, task=0, attempt=0)
        beats = self._beats
        send = self._steps.heartbeat(opened, beats)
        if send is not None:
            self._heartbeats.enter_context(repeating(send, beats.interval, beats.first, _LINGER))

    def _failures_told(self) -> AbstractContextManager[None]:
        spec = self._spec
        named = spec.allowed_partitions or ()
        encryption = spec.files.encrypted_if_right
        key, owner = spec.idempotency_key, spec.owner
        return failures_told(self._steps.root, key, owner, named, encryption, self._driver)

    def _refuse_children(self) -> None:
        if self._pid != os.getpid():
            raise InvalidInputError(
                f"The job was opened by process {self._pid}, which forked this one; only that one "
                "writes and commits it. This process changed nothing.",
                table=self._steps.root.url,
                job=self.job,
                remedy="Open the job after the fork, or hand the rows to the process that opened "
                "it.",
            )

    def _release(self) -> None:
        self._is_over = True
        note_end()
        try:
            self._heartbeats.close()
        finally:
            self._termination.release()

    def _abort_and_release(self, error: BaseException) -> None:
        try:
            if self._opened is not None:
                self._tell(self._opened, error, *self._abort(self._opened))
        finally:
            self._release()

    def _commit(self) -> None:
        if self._opened is None:
            return
        try:
            with self._failures_told():
                self._commit_or_skip(self._opened)
        except (OutcomeUnknownError, UnfinishedCommitError, DataLostError):
            raise  # The job is committed, or may be: nothing of it may be cleaned up.
        except KeyboardInterrupt as interrupt:
            state, cause = self._abort(self._opened)
            raise JobInterrupted(
                self._opened.job, self._opened.root.url, state, cause
            ) from interrupt
        except BaseException as failure:
            self._tell(self._opened, failure, *self._abort(self._opened))
            raise

    def _commit_or_skip(self, opened: OpenedJob) -> None:
        if opened.is_repeat:
            self.committed, self.unpublished = opened.repeated, opened.unpublished
            return
        assert self._writer is not None
        # Collect the inputs before the first claim: the rows contain nothing that is read later.
        self.made_of(noted().inputs)
        opened = self.opened
        self._reported = self._results(self._writer.close())
        expected = 1 if self._taken is None else self._tasks
        # From here on a commit decision may stand, and then the uploads are the job's rows. They
        # may be aborted only under an abort decision, which abort_job writes first.
        self._writer = None
        if not opened.facts.atomic:
            # Such a store could check a heartbeat's condition before the close and write it after:
            # the open record would come back. Its tables have one writer at a time, so no other job
            # waits for heartbeats.
            self._heartbeats.close()
        with alone(opened), about(opened.root.url):
            done = self._steps.commit(opened, self._reported, expected)
        retries = self._driver.retries - self._retries
        retries += sum(result.retries for result in self._taken or ())
        if isinstance(done, Committed):
            self.committed = replace(done, retries=retries)
            log_retries(logger, self.committed)
        else:
            self.unpublished = replace(done, retries=retries)
            log_retries(logger, self.unpublished)

    def _results(self, own: TaskResult) -> list[TaskResult]:
        if self._taken is None:
            return [own]
        return [*self._taken, own] if own.files else list(self._taken)

    def _abort(self, opened: OpenedJob) -> tuple[JobState, str]:
        """Abort the job; return its state after that, and the error's text if the abort failed."""
        try:
            self._termination.defer()
            if self._termination.expired:
                raise JobTerminated
            if self._writer is not None:
                self._writer.abort()
            with alone(opened), about(opened.root.url):
                outcome = self._steps.abort(opened, self._reported)
        except JobTerminated:
            return JobState.UNKNOWN, "The time for cleaning up is over"
        except KeyboardInterrupt:
            return JobState.UNKNOWN, "aborting it was interrupted, too"
        except UnfinishedAbortError as failure:
            return JobState.ABORTED, str(failure)
        except (UnfinishedCommitError, DataLostError) as failure:
            return JobState.COMMITTED, str(failure)
        except ZeroRenameError as failure:
            return JobState.UNKNOWN, str(failure)
        if not isinstance(outcome, Committed):
            return JobState.ABORTED, ""
        self.committed = outcome
        return JobState.COMMITTED, ""

    def _tell(self, opened: OpenedJob, error: BaseException, state: JobState, cause: str) -> None:
        """Attach a note on the job's state to ``error``, which is never replaced."""
        note = ""
        if isinstance(error, KeyboardInterrupt) or (cause and state is JobState.COMMITTED):
            note = fate(opened.job, opened.root.url, state, cause)
        elif cause:
            note = f"Aborting the job failed too, recovery will finish it: {cause}"
        elif state is JobState.COMMITTED:
            note = f"The job {opened.job} is committed all the same."
        if note:
            error.add_note(note)
        if isinstance(error, JobTerminated):
            # Python prints neither a SystemExit nor its notes.
            logger.warning(
                "%s: SIGTERM: %s", opened.root.url, note or f"job {opened.job} is aborted."
            )


def log_retries(log: logging.Logger, done: Committed | UnpublishedJob) -> None:
    """Log how often a job's requests were sent again, if any were."""
    if done.retries:
        log.info(
            "%s: job %s: %d requests were sent again: the store throttled them, failed or did not "
            "answer",
            done.table,
            done.job,
            done.retries,
        )


def this_process() -> Owner:
    """Return an owner that names this process."""
    return Owner(application="python", host=socket.gethostname(), pid=os.getpid())
