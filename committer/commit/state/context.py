"""Context of a protocol step: the table's root, what its store keeps, ids and patience."""

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
    """How long a writer waits for another's undecided claim, in seconds.

    A claim is held from the first claim to the decision: a few requests. So a claiming job is
    silent long before a writing one is.

    :param silence: fence the other job when nothing of it changed for so long, by this
        process's own monotonic clock.
    :param cap: fence it after so long in any case.
    :param poll: time between looks, of who has waited for no other job before; ``least``: of who
        has for many.
    """

    silence: float = 120.0
    cap: float = 1800.0
    poll: float = 2.0
    least: float = 0.2


@dataclass(frozen=True)
class Limits:
    """How large a record may grow.

    :param decisions_per_head: decisions that a head names before the next move folds them into
        a manifest.
    :param merged_below: a new manifest takes up those of at most so many times as many files.
    :param files_per_object: files and removals that a decision object holds before its
        partitions move to parts. An object of the index holds as many files.
    :param heads_without_index: heads that a table has before a job writes its first index.
    :param heads_besides_index: heads that change before a job writes the index anew, and of which a
        reader asks it that names partitions.
    """

    decisions_per_head: int = 8
    merged_below: int = 2
    files_per_object: int = 10_000
    heads_without_index: int = 16
    heads_besides_index: int = 2


@dataclass(frozen=True)
class Progress:
    """How far a commit is: ``done`` of ``total`` files made visible."""

    job: str
    done: int
    total: int


_PROCESS = new_write_id()


def this_process() -> str:
    """A name for this process that no other has, not even one forked from it."""
    return f"{_PROCESS}.{os.getpid()}"


@dataclass(frozen=True)
class Context:
    """A table's root, what its store keeps, and this process's ids and patience.

    :param facts: a store that keeps everything, until the table's record has been read.
    :param write_id: makes write ids that never repeat.
    :param job_id: makes job ids, at random; a simulation names its own.
    :param process: names the process that claims: a job's commit may be called in two.
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
        """This, going by what a table's record says of its store."""
        return replace(self, facts=table.facts)


@dataclass
class Count:
    """Files made visible so far; shared by the partitions of one commit."""

    context: Context
    job: str
    total: int
    done: int = 0

    def one_more(self) -> None:
        """Report one more."""
        self.done += 1
        self.context.report(Progress(self.job, self.done, self.total))
