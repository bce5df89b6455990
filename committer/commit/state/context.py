"""Context of a protocol step: the table's root, its store's guarantees, ids and time limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...format.layout import TableRoot, new_job_id, new_write_id
from ...format.parquet.foreign_columns import FooterReader, ReadColumns
from ...format.records.store_facts import StoreFacts

if TYPE_CHECKING:
    from ...format.records.table_record import TableRecord
    from .job_state import OpenedJob


@dataclass(frozen=True)
class Waiting:
    """Timeouts of a writer that waits for another job's undecided claim, in seconds.

    A claim is held from the first claim to the decision, which takes a few requests. So a much
    shorter silence counts against a claiming job than against one that writes.

    :param silence: fence the other job after nothing of it has changed for so long, by this
        process's own monotonic clock.
    :param cap: fence it after so long in any case.
    :param poll: seconds between two polls, of a job that has waited for no other job before;
        ``least``: of one that has waited for many.
    """

    silence: float = 120.0
    cap: float = 1800.0
    poll: float = 2.0
    least: float = 0.2


@dataclass(frozen=True)
class Limits:
    """Limits of the sizes of records.

    :param decisions_per_head: the most decisions that a head names. A move that would exceed it
        folds them into a manifest.
    :param merged_below: a new manifest takes up older ones that have at most so many times as many
        files.
    :param files_per_object: files and removals that a decision object holds before its partitions
        move to parts. An object of the index holds as many files.
    :param heads_without_index: heads that a table has before a job writes its first index.
    :param heads_besides_index: heads that must change before a job writes the index again. A reader
        that names partitions reads the index only if it needs at least as many heads.
    """

    decisions_per_head: int = 8
    merged_below: int = 2
    files_per_object: int = 10_000
    heads_without_index: int = 16
    heads_besides_index: int = 2


@dataclass(frozen=True)
class Progress:
    """Progress of a commit: ``done`` of ``total`` files are visible."""

    job: str
    done: int
    total: int


_PROCESS = new_write_id()


def this_process() -> str:
    """Return a name that only this process has, not even a process forked from it."""
    return f"{_PROCESS}.{os.getpid()}"


@dataclass(frozen=True)
class Context:
    """A table's root, its store's guarantees, and this process's ids and time limits.

    :param facts: all guarantees, until the table's record has been read.
    :param write_id: makes write ids that never repeat.
    :param job_id: makes job ids, at random; a simulation names its own.
    :param process: names the process that claims: a job's commit may be called in two processes.
    :param report: called as a commit goes on.
    :param read_columns: reads the columns of files that other programs wrote.
    """

    root: TableRoot
    facts: StoreFacts = field(default_factory=StoreFacts)
    write_id: Callable[[], str] = new_write_id
    job_id: Callable[[], str] = new_job_id
    process: Callable[[], str] = this_process
    waiting: Waiting = Waiting()
    limits: Limits = Limits()
    report: Callable[[Progress], None] = field(default=lambda progress: None)
    read_columns: ReadColumns = field(default_factory=lambda: FooterReader().read)

    def of(self, table: TableRecord | OpenedJob) -> Context:
        """Return this context with the store's guarantees as a table's record has them."""
        return replace(self, facts=table.facts)


@dataclass
class Count:
    """Counter of the files made visible so far; shared by the partitions of one commit."""

    context: Context
    job: str
    total: int
    done: int = 0

    def one_more(self) -> None:
        """Count one more visible file, and report it."""
        self.done += 1
        self.context.report(Progress(self.job, self.done, self.total))
