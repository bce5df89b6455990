"""Table of which a state can be read, whichever records tell it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from .commit.snapshot import Snapshot
from .errors import CommitConflictError, TableMismatchError, TableNotFoundError
from .format.layout import TableRoot


class StatefulTable(ABC):
    """What a job that goes by a state asks of its table."""

    root: TableRoot

    @abstractmethod
    def state(self, partitions: Collection[str] | None = None) -> Snapshot:
        """One state of some partitions, or of all; nothing is computed from it."""

    def has_moved(self, state: Snapshot) -> bool:
        """Whether partitions hold other rows than in a state that was read, or the table has other
        columns: an error of a job that goes by the state may come of that."""
        try:
            now = self.state(None if state.read is not None else state.asked)
        except TableNotFoundError:
            return False
        return now.base != state.base or not now.has_columns(state.schema, state.partition_by)

    @contextmanager
    def held_against(self, state: Snapshot) -> Iterator[None]:
        """Make a mismatch of columns a conflict, in a job whose columns are those of a state, where
        the table has moved since.

        :raises CommitConflictError: it has; nothing of the job is visible.
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
