"""Rerun: a run that loads again takes the place of what its entries left.

Each entry of a run names the one before, and the run's transaction has the number of the last. So
what they added is known whatever other engines made of it. Of a file of theirs that is live the
rerun's entry removes it. Of one that is not, the entries since say where its rows are:

=====================================  ==========  =========================================
an entry since                         the rows    from then on
=====================================  ==========  =========================================
of the run, removes the file           gone
replaces its partition, or all         gone
restores a version, removes the file   gone        unless they ever were rewritten
any other that removes it              rewritten   in files that say nothing of the run
restores a version                     unsure      where they were rewritten before
was cleaned                            unsure
=====================================  ==========  =========================================

Rows that may be there are refused: the rerun would double them. A restore that comes before its
entry is a conflict, since it may bring back what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..committer.errors import CommitConflictError
from ..committer.store.requests import Step
from .actions import AddFile, RemoveFile
from .change import RESTORE, LogChange
from .entries import LogEntry
from .judging import replaced_by
from .log_layout import LogLayout
from .opening import OpenedLog, read_entries
from .replay import LogState
from .scope import ALL
from .searching import find_run


@dataclass(frozen=True)
class RunPast:
    """What the entries of a run have left in a state.

    :param version: of its last entry.
    :param live: paths of its files that are there.
    """

    version: int
    live: frozenset[str]

    def replaced_by(self, change: LogChange) -> LogChange:
        """The change that takes the place of these files; its base is at or before the state."""
        return replace(change, removes=change.removes | self.live, former=self.version)


def find_past(layout: LogLayout, opened: OpenedLog, run: str, job: str) -> Step[RunPast | None]:
    """Find what the entries of a run have left; ``None``: it has none.

    :param opened: with its live files.
    :param job: the one that asks.
    :raises CommitConflictError: rows of the run may be in files of others.
    """
    state = opened.state
    done = yield from find_run(layout, state, run, job)
    if done is None:
        return None
    own = yield from _entries_of(layout, run, done.version)
    added = [(entry.version, add) for entry in own for add in entry.of(AddFile)]
    live = frozenset(add.path for _, add in added) & state.live.keys()
    if lost := [(version, add) for version, add in added if add.path not in live]:
        first = own[-1].version + 1
        entries = yield from read_entries(layout.folder, range(first, state.version + 1))
        for version, add in lost:
            since = entries[version + 1 - first :]
            _see_gone(run, add, since, {it.version for it in own}, state)
    return RunPast(done.version, frozenset(live))


def _entries_of(layout: LogLayout, run: str, last: int) -> Step[list[LogEntry]]:
    """Read the entries of a run, the last one first."""
    found: list[LogEntry] = []
    version: int | None = last
    while version is not None:
        (entry,) = yield from read_entries(layout.folder, [version])
        if entry is None:
            raise _refused(run, f"its entry {version} was cleaned from the log")
        found.append(entry)
        former = entry.ours.get("former")
        version = former if isinstance(former, int) and former < version else None
    return found


def _see_gone(
    run: str, add: AddFile, entries: Sequence[LogEntry | None], own: set[int], state: LogState
) -> None:
    """See that the rows of a file that is not live are nowhere else."""
    why, rewritten = "no entry says who removed it", False
    for entry in entries:
        if entry is None:
            raise _refused(run, f"entries since it wrote {add.path} were cleaned from the log")
        by = f"version {entry.version} of {f'job {entry.job}' if entry.job else 'another engine'}"
        removes = any(it.path == add.path for it in entry.of(RemoveFile))
        if entry.operation == RESTORE:
            if rewritten:
                why = f"{by} may have brought them back"
            elif removes:
                why = ""
        elif (removes and entry.version in own) or _replaces(entry, add, state):
            why = ""
        elif removes:
            why, rewritten = f"{by} wrote the rows of {add.path} again", True
    if why:
        raise _refused(run, why)


def _replaces(entry: LogEntry, add: AddFile, state: LogState) -> bool:
    """Tell whether an entry leaves no row of a file's partition, whichever file has it."""
    if entry.job is None:
        parameters = entry.info.members.get("operationParameters")
        if not isinstance(parameters, dict) or parameters.get("predicate"):
            return False  # Files that match in part are written again.
        # Without a predicate it removes all, or the partitions of its new files.
        removes = any(it.path == add.path for it in entry.of(RemoveFile))
        return replaced_by(entry, state) == ALL and removes
    return replaced_by(entry, state).has(state.partition(add))


def _refused(run: str, why: str) -> CommitConflictError:
    return CommitConflictError(
        f"The run {run} has loaded before, and its rows may still be there: {why}. Nothing was "
        "committed.",
        remedy="Let it replace the partitions that it loads, or skip what it has done before "
        "(on_repeat='skip').",
    )
