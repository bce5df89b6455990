"""Commit of a change: judge the entries since the base, then write; repeat until a number is won.

::

    base ── entries since, judged ──► PUT N+1 ──┬── ours: committed
                 ▲                              ├── another's: judged with those after it ──┐
                 └──────────────────────────────┼───────────────────────────────────────────┘
                                                ├── listing too old: opened again, judged, PUT again
                                                └── no answer: unknown

Before each PUT the state that the entry is made of includes every entry below its number, and each
of these was judged. So the entry is bound to exactly what was checked, also to the absence of a
table (base -1). Once an entry may be in the log, every later failure is reported as *unknown*,
never as *refused*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from ..committer.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    JobFencedError,
    OutcomeUnknownError,
    TableNotFoundError,
    ZeroRenameError,
)
from ..committer.store.requests import Clock, Step
from .actions import FORGOTTEN, LogMetadata, LogProtocol, write_actions
from .change import FENCE, LogChange, Overtaking, change_actions
from .contention import CALM
from .copies import follow_copies
from .entries import LogEntry
from .judging import JobDecided, RunRepeated, judge, judge_ranks, judge_settled
from .log_layout import LogLayout
from .opening import FRESH, LogDepth, OpenedLog, list_log, open_log, open_with_files, read_entries
from .put_entry import ListingExpired, NumberUnsure, is_ours, put_entry
from .replay import LogState, replay
from .searching import RunDone, find_run
from .vacuum import check_not_vacuumed

#: How many numbers a job tries before it gives up.
_NUMBERS = 1_000
#: The age in seconds from which on a listing is too old to rely on.
_OLD = 60.0
T = TypeVar("T")


@dataclass(frozen=True)
class EntryCommitted:
    """A job's entry that is in the log.

    :param state: the state after it; ``None`` if another process wrote the entry, or its answer
        came late.
    :param met: how many numbers the job lost to entries of other jobs before.
    :param overwritten: versions whose entries a writer without conditions has overwritten since;
        this entry may be one of them.
    """

    entry: LogEntry
    state: LogState | None = None
    met: int = 0
    overwritten: tuple[int, ...] = ()


def commit_change(
    layout: LogLayout, opened: OpenedLog, change: LogChange, now: int
) -> Step[EntryCommitted | RunDone]:
    """Commit a change.

    :param now: Unix milliseconds, for the entry's readers.
    :return: the job's entry; or what an earlier attempt of its run has committed.
    :raises RefusedError: the change is not in the log and never will be.
    :raises CommitStateUnknownError: the change may be in the log, or may still arrive there.
    """
    try:
        return (yield from _commit(layout, opened, change, now))
    except JobDecided as decided:
        return EntryCommitted(decided.entry)
    except RunRepeated as repeated:
        return RunDone(repeated.entry.version, repeated.entry)


def _commit(
    layout: LogLayout, opened: OpenedLog, change: LogChange, now: int
) -> Step[EntryCommitted | RunDone]:
    opened = yield from _as_it_is_now(layout, opened)
    if depth_of(opened.state) < (needed := _depth(opened.state, change)):
        opened = yield from _open_for(layout, change, needed)
    if change.run is not None:
        done = yield from find_run(layout, opened.state, change.run, change.job)
        if done is not None and change.repeats(done.version, opened.state):
            # The entries since the base may include this job's own, written by a publisher.
            yield from _judge_since(layout, change, opened.state)
            return done
    if FENCE + change.job in opened.state.transactions:
        # A job can be fenced as soon as it has an open record, which is before it reads its base.
        # So the fence may be at or below the base.
        raise JobFencedError("The job was declared dead. It was not committed.", job=change.job)
    change, since = yield from _judge_since(layout, change, opened.state)
    state, listed_at, contention = opened.state, opened.listed_at, CALM
    for _ in range(_NUMBERS):
        check_state(layout, change, state)
        yield from check_not_vacuumed(layout, change, state, since, now)
        cleaned = layout.cleaned_by_others(state)
        body = write_actions(change_actions(change, state, now))
        number, deadline = state.version + 1, listed_at + FRESH if cleaned else None
        answer = yield from put_entry(layout.folder, number, body, deadline, contention)
        if isinstance(answer, NumberUnsure):
            raise _unknown(change, answer.cause)
        if isinstance(answer, ListingExpired):
            if answer.sent:
                return (yield from _sent(change, _find_late(layout, change, number, deadline)))
            depth = max(_depth(state, change), depth_of(state))
            opened = yield from _open_for(layout, change, depth)
            change, since = yield from _judge_between(layout, change, state, opened.state)
            state, listed_at = opened.state, opened.listed_at
            continue
        if is_ours(answer, change.job):
            yield from _sent(change, _confirm(layout, change, number, deadline))
            return EntryCommitted(answer.entry, replay(state, [answer.entry]), contention.lost)
        contention, since = contention.after(len(answer.later)), [answer.entry, *answer.later]
        change, state = _judged(change, state, since)
    raise CommitConflictError(
        f"Other jobs were faster {_NUMBERS:,} times. This job was not committed.",
        job=change.job,
        remedy="Run it again; batch small jobs, since a log takes about 20 commits a second.",
    )


def _as_it_is_now(layout: LogLayout, opened: OpenedLog) -> Step[OpenedLog]:
    """Open the log again if its listing is old: one request, and one for each entry since.

    The table may have been deleted and made again. Then no reader would see an entry after the end
    of the new log, and an entry within it would be one of another table. If other engines clean the
    log, this is not needed: there a deadline bounds the age of the listing
    (:data:`.opening.FRESH`).
    """
    is_bound = not opened.state.exists or layout.cleaned_by_others(opened.state)
    if is_bound or (yield from Clock()) < opened.listed_at + _OLD:
        return opened
    return (yield from open_log(layout, depth_of(opened.state), before=opened.state))


def _lacks_ranks(state: LogState, change: LogChange) -> bool:
    """Return whether a state may lack transactions with ranks that the change needs."""
    return change.overtaking is Overtaking.NEWEST_RUN and not state.all_transactions


def _depth(state: LogState, change: LogChange) -> LogDepth:
    """Return how much of the log a commit must read."""
    return LogDepth.WHOLE if _lacks_ranks(state, change) else change.depth


def depth_of(state: LogState) -> LogDepth:
    """Return how much of the log was read for a state."""
    if state.files is None:
        return LogDepth.BLIND
    if not state.all_files:
        return LogDepth.FEW
    whole = state.removed is not None and state.all_transactions
    return LogDepth.WHOLE if whole else LogDepth.FILES


def _open_for(layout: LogLayout, change: LogChange, depth: LogDepth) -> Step[OpenedLog]:
    """Open the log as a change needs it. If there are very many files, read only those in the
    partitions that it touches, unless it names files or replaces the whole table."""
    if depth is not LogDepth.FILES or change.removes or change.replaced.all:
        return (yield from open_log(layout, depth))
    return (yield from open_with_files(layout, lambda state: change.touched(state).has))


def _judged(
    change: LogChange, state: LogState, entries: Iterable[LogEntry]
) -> tuple[LogChange, LogState]:
    """Judge entries in turn; return the change as they modify it, and the state after them."""
    for entry in entries:
        change = _judge_next(change, state, entry)
        state = replay(state, [entry])
    return change, state


def _judge_next(change: LogChange, before: LogState, entry: LogEntry) -> LogChange:
    """Judge an entry; return the change as the entry modifies it.

    :param before: the state before the entry.
    """
    if entry.version == 0 and (made := entry.of(LogMetadata)) and (by := entry.of(LogProtocol)):
        change = change.after_making(made[0], by[0])
        # If it is not the table that the job would have made, its partitions are not compared.
        before = replace(before, metadata=made[0] if change.metadata is None else None)
    change = follow_copies(change, entry)
    judge(change, before, entry)
    return change


def _judge_since(
    layout: LogLayout, change: LogChange, state: LogState
) -> Step[tuple[LogChange, list[LogEntry]]]:
    """Judge the entries between the base and an opened state; return the change as they modify it,
    and these entries."""
    if change.base.version > state.version:
        raise CommitConflictError(
            f"The job has read version {change.base.version}, and the table's newest is "
            f"{state.version}: it was made anew. This job was not committed.",
            job=change.job,
        )
    before = LogState(change.base.version, files=None, removed=None)
    return (yield from _judge_between(layout, change, before, state))


def _judge_between(
    layout: LogLayout, change: LogChange, before: LogState, state: LogState
) -> Step[tuple[LogChange, list[LogEntry]]]:
    """Read and judge the entries between two states; return the change as they modify it, and
    these entries.

    Partitions are identified by the columns of the state before; if it has none, by those after."""
    before = before if before.metadata is not None else replace(before, metadata=state.metadata)
    versions = range(before.version + 1, state.version + 1)
    if not versions:
        return change, []
    entries = yield from read_entries(layout.folder, versions)
    void: frozenset[int] = frozenset()
    if layout.cleaned_by_others(state):
        listed = yield from list_log(layout.folder)
        there = (v for v in versions if v in listed.entries)
        void = frozenset(v for v in there if listed.is_stale(v) or listed.is_out_of_turn(v))
    judged = []
    for entry in entries:
        if entry is None or entry.version in void:
            raise CommitConflictError(
                "Entries since the state that the job began on were cleaned, so nobody can tell "
                "what it would overwrite. This job was not committed.",
                job=change.job,
                remedy="Run it again on the present state.",
            )
        change = _judge_next(change, before, entry)
        judged.append(entry)
    return change, judged


def check_state(layout: LogLayout, change: LogChange, state: LogState) -> None:
    """Refuse a change that does not fit the state that its entry is made of."""
    if not state.exists:
        if change.metadata is None or change.protocol is None:
            raise TableNotFoundError(
                "There is no table. Nothing was written.", key=layout.folder.prefix
            )
    else:
        layout.check_writable(state, change.removes_rows)
        _check_columns(layout, change, state)
    if missing := sorted(change.removes - state.live.keys() if change.removes else ()):
        raise _gone(change, missing[0])
    for add in change.returned:
        tombstone = (state.removed or {}).get(add.path)
        if tombstone is None or tombstone.removed_at == FORGOTTEN:
            raise _gone(change, add.path)
    judge_settled(change, state)
    judge_ranks(change, state)


def _check_columns(layout: LogLayout, change: LogChange, state: LogState) -> None:
    assert state.metadata is not None
    base = change.base.table_id
    if (base is not None and base != state.table_id) or (base is None and change.base.version >= 0):
        raise CommitConflictError(
            "The table was replaced by another one since the job began. It was not committed.",
            job=change.job,
        )
    written, wanted = change.columns, change.metadata or state.metadata
    if written is not None and not layout.columns_fit(written, wanted):
        error = CommitConflictError(
            "The table's columns were changed, and the job's files do not fit them. "
            "It was not committed.",
            job=change.job,
            remedy="Run it again on the present columns.",
        )
        error.overtaken = True
        raise error


def _gone(change: LogChange, path: str) -> CommitConflictError:
    error = CommitConflictError(
        f"The file {path} is no longer what the job needs it to be: it was removed, or purged. "
        "The job was not committed.",
        job=change.job,
        remedy="Run it again on the present state.",
    )
    error.overtaken = True
    return error


def _unknown(change: LogChange, cause: str) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"Whether the job is committed is not known ({cause}). Nothing was cleaned up.",
        job=change.job,
        remedy="Look for the job in the log again later, or fence it.",
    )


def _sent(change: LogChange, look: Step[T]) -> Step[T]:
    """Carry out a check of an entry that was sent. If the check fails, the outcome is unknown."""
    try:
        return (yield from look)
    except OutcomeUnknownError:
        raise
    except ZeroRenameError as error:
        raise _unknown(change, error.message) from error


def _find_late(
    layout: LogLayout, change: LogChange, version: int, deadline: float | None
) -> Step[EntryCommitted]:
    """Find an entry that was sent without an answer. Only the entry itself proves the commit."""
    (entry,) = yield from read_entries(layout.folder, [version])
    if entry is None or entry.txn_id != change.job:
        raise _unknown(change, "no answer within the hour in which its number is safe")
    yield from _confirm(layout, change, version, deadline)
    return EntryCommitted(entry)


def _confirm(
    layout: LogLayout, change: LogChange, version: int, deadline: float | None
) -> Step[None]:
    """Check that an entry whose answer came late is in the log, and not at a cleaned number."""
    if deadline is None or (yield from Clock()) < deadline:
        return
    listed = yield from list_log(layout.folder)
    if version not in listed.entries or listed.may_be_stale(version):
        raise _unknown(change, "its entry came into a number that others had cleaned")
