"""Failures that a run's application told, in its own words."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ...committer.commit.failures import read_failure
from ...committer.errors import (
    CommitConflictError,
    JobFencedError,
    ZeroRenameError,
    printable,
)

if TYPE_CHECKING:
    from ...committer import Table
    from ...committer.format.records.failure import Failure
    from .load_run import LoadRun

_log = logging.getLogger(__name__)
#: Errors that name the head of a partition where another job has changed it.
_OVERTAKEN = (CommitConflictError.__name__, JobFencedError.__name__)


def told_failure(table: Table, run: LoadRun) -> Failure | None:
    """What the application of this try said of its failure; ``None`` where it said nothing, or
    that cannot be read."""
    try:
        told = table.run(read_failure(table.root, run.once))
    except ZeroRenameError as error:
        _log.warning("Whether the application said why it failed could not be read: %s", error)
        return None
    return told if told is not None and run.made(told.owner) else None


def in_words(told: Failure, table: Table, after_conflict: str | None = None) -> str:
    """A failure as one line that begins with the application's own sentence.

    :param after_conflict: the scheduler's remedy where another job has changed a partition: it runs
        the application, which can only say that it be run.
    """
    changed = told.error in _OVERTAKEN and told.key is not None
    if changed and table.root.partition_of_head_key(told.key or "") is not None:
        told = replace(told, remedy=after_conflict or told.remedy)
    named = (("table", table.root.url), ("job", told.job), ("key", told.key))
    context = ", ".join(f"{name} {value}" for name, value in named if value)
    return printable(f"{told.message} [{context}] {told.remedy or ''} ({told.error})")
