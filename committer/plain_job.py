"""A job from plain Python: the same protocol as Spark's driver runs."""

from __future__ import annotations

import os
import socket
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from .errors import InvalidInputError, OutcomeUnknownError, ZeroRenameError
from .opened import Committed, OpenedJob
from .policy import JobSpec, Owner
from .task_writer import TaskWriter

if TYPE_CHECKING:
    from .table import Table


class PlainJob:
    """One write into a table, as a context manager.

    Entering the block opens the job, leaving it commits, an exception in it aborts.
    ``committed`` then tells what was done.
    """

    def __init__(self, table: Table, spec: JobSpec) -> None:
        self._table = table
        self._spec = spec
        self._opened: OpenedJob | None = None
        self._writer: TaskWriter | None = None
        self.committed: Committed | None = None

    @property
    def job(self) -> str | None:
        """The job's id; ``None`` before it opens."""
        return self._opened.job if self._opened else None

    def __enter__(self) -> PlainJob:
        self._opened = self._table.open_job(self._spec)
        if self._opened.repeated is None:
            self._writer = self._table.task_writer(self._opened, task=0, attempt=0)
        return self

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Write rows, in any partitions.

        :raises InvalidInputError: the job is not open, or the rows do not fit.
        """
        if self._opened is None or self.committed is not None:
            raise InvalidInputError(
                "A job is written to inside its with block.", table=self._table.root.url
            )
        if self._writer is not None:
            self._writer.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is None:
            return
        if error is None:
            try:
                self._commit(self._opened)
            except OutcomeUnknownError:
                raise  # Nothing may be cleaned up.
            except ZeroRenameError as failure:
                self._abort(self._opened, failure)
                raise
        else:
            self._abort(self._opened, error)

    def _commit(self, opened: OpenedJob) -> None:
        if opened.repeated is not None:
            self.committed = opened.repeated
            return
        assert self._writer is not None
        result = self._writer.close()
        self.committed = self._table.commit(opened, [result], expected_tasks=1)

    def _abort(self, opened: OpenedJob, error: BaseException) -> None:
        """Abort; a failure of that is attached to ``error`` and never replaces it."""
        try:
            if self._writer is not None:
                self._writer.abort()
            outcome = self._table.abort(opened)
        except ZeroRenameError as failure:
            error.add_note(f"Aborting the job failed too, recovery will finish it: {failure}")
            return
        if isinstance(outcome, Committed):
            error.add_note(f"The job {opened.job} is committed all the same.")


def this_process() -> Owner:
    """An owner that names this process."""
    return Owner(application="python", host=socket.gethostname(), pid=os.getpid())
