"""The questions that the kernel asks of a layout: places, contents, and how a job finishes.

The kernel knows entries and their numbers. A layout knows files: a Delta table's are visible with
their entry; those of directories have to be completed and removed after it.
"""

from __future__ import annotations

from typing import Protocol

from ..committer.store.requests import Step
from .actions import LogMetadata
from .entries import LogEntry, LogFolder
from .replay import LogState


class LogLayout(Protocol):
    """A layout of tables, bound to one table."""

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
        """Tell whether somebody may delete entries of the log by their age."""
        ...

    def check_readable(self, state: LogState) -> None:
        """Refuse a table that has a feature whose reading is not implemented, by its name."""
        ...

    def check_writable(self, state: LogState, removes_rows: bool) -> None:
        """Refuse a table that a commit could break, by the feature's or property's name."""
        ...

    def columns_fit(self, written: LogMetadata, now: LogMetadata) -> bool:
        """Tell whether files of the former columns are right under the present ones."""
        ...

    def restored(self, then: LogMetadata, now: LogMetadata) -> LogMetadata:
        """The columns and properties of a table of which a former version is brought back."""
        ...

    def data_folders(self, state: LogState) -> tuple[str, ...]:
        """The prefixes below which jobs may have written files, :attr:`data` first."""
        ...

    def own_folders(self, state: LogState) -> Step[tuple[str, ...]]:
        """Those of :meth:`data_folders` in which no other table's files lie."""
        ...

    def key_of(self, path: str, state: LogState) -> str:
        """The object's key of a path in the log; refuses one that leaves the table, whose places
        a state has on record."""
        ...

    def path_of(self, key: str) -> str:
        """The path that the log has for a key below the data prefix."""
        ...

    def retention(self, state: LogState) -> float:
        """Seconds that a removed file stays for readers and restores."""
        ...

    def finish(self, entry: LogEntry) -> Step[None]:
        """Carry out what an entry says beyond the log; idempotent, by any process."""
        ...
