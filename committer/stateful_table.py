"""Table with readable states, kept in heads or in a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from .commit.snapshot import Snapshot
from .errors import CommitConflictError, TableMismatchError, TableNotFoundError
from .format.layout import TableRoot


class StatefulTable(ABC):
    """Interface of a table to jobs that go by one of its states."""

    root: TableRoot

    @abstractmethod
    def state(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Read one state of some partitions, or of all, from which nothing is computed."""

    def has_moved(self, state: Snapshot) -> bool:
        """Return whether the table has changed since a state was read.

        It has if its partitions hold other rows, or it has other columns. An error of a job that
        goes by the state may come from that.
        """
        try:
            now = self.state(None if state.read is not None else state.asked)
        except TableNotFoundError:
            return False
        return now.base != state.base or not now.has_columns(state.schema, state.partition_by)

    @contextmanager
    def held_against(self, state: Snapshot) -> Iterator[None]:
        """Turn a columns mismatch into a conflict if the table has changed since a state was read.

        For a job whose columns are those of the state.

        :raises CommitConflictError: it has changed; nothing of the job is visible.
        """
        try:
            yield
        except TableMismatchError as error:
            if not self.has_moved(state):
                raise
            raise CommitConflictError(
                f"The table has changed since its columns were read: {error.message}",
                table=self.root.url,
                job=error.job,
                key=error.key,
                remedy="Run the job again on what is there now.",
            ) from error
