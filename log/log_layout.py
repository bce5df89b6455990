"""Interface of layouts to the log: places and contents of files, and the last steps of a job.

The log knows entries and their numbers. A layout knows files. The files of a Delta table are
visible with their entry; those of a table of directories must be completed and removed after it.
"""

from __future__ import annotations

from typing import Protocol

from ..committer.store.requests import Step
from .actions import LogMetadata
from .entries import LogEntry, LogFolder
from .replay import LogState


class LogLayout(Protocol):
    """The layout of one table."""

    @property
    def folder(self) -> LogFolder:
        """The log's own folder."""
        ...

    @property
    def control(self) -> str:
        """The prefix of the records beside the log, with a slash at its end."""
        ...

    @property
    def data(self) -> str:
        """The prefix below which jobs write files, with a slash at its end."""
        ...

    def cleaned_by_others(self, state: LogState) -> bool:
        """Return whether other engines may delete entries of the log by their age."""
        ...

    def drops_transactions(self, state: LogState) -> bool:
        """Return whether other engines may leave transactions out of checkpoints by their age."""
        ...

    def check_readable(self, state: LogState) -> None:
        """Refuse a table with a feature that this package cannot read; the error names it."""
        ...

    def check_writable(self, state: LogState, removes_rows: bool) -> None:
        """Refuse a table that a commit could break; the error names the feature or property."""
        ...

    def columns_fit(self, written: LogMetadata, now: LogMetadata) -> bool:
        """Return whether files with the columns ``written`` fit the table's columns ``now``."""
        ...

    def restored(self, then: LogMetadata, now: LogMetadata) -> LogMetadata:
        """Return the columns and properties that a table has after a restore.

        :param then: those of the restored version; ``now``: those before the restore.
        """
        ...

    def data_folders(self, state: LogState) -> tuple[str, ...]:
        """Return the prefixes below which jobs may have written files, :attr:`data` first."""
        ...

    def own_folders(self, state: LogState) -> Step[tuple[str, ...]]:
        """Return those of :meth:`data_folders` that contain no files of other tables."""
        ...

    def key_of(self, path: str, state: LogState) -> str:
        """Return the key of the object that a path in the log names. Refuse a path that leads out
        of the table's folders, which the state has on record."""
        ...

    def path_of(self, key: str) -> str:
        """Return the path in the log for a key below the data prefix."""
        ...

    def retention(self, state: LogState) -> float:
        """Return the seconds that a removed file stays for readers and restores."""
        ...

    def finish(self, entry: LogEntry) -> Step[None]:
        """Carry out what an entry demands outside the log; idempotent, by any process."""
        ...
