"""Repair of a log: commits a job's change again after another writer has overwritten its entry.

=======================================  =======================================================
the overwritten entry                    the repair
=======================================  =======================================================
adds rows                                adds the files, if they are there and nothing may be
                                         deleting them
replaces partitions                      the same, and removes all files that are live there
rewrites files, deletes, updates         removes these files, which must be live
compacts                                 nothing: the rows have not changed
changes columns or properties            changes them again
makes the table, restores a version,     nothing: this is reported
settles a conflict of runs
is not kept beside the log               nothing: this is reported
=======================================  =======================================================

A repair is a change of the same job. Every entry since is judged: the one that has overwritten it,
and all after that. So a job is committed again only once: a second repair meets the entry of the
first. Rows that were replaced, restored or removed since stay so. A run that has loaded again has
done its work. If an entry cannot be judged, nothing is brought back.

A loss is accepted by a fence: the job can never commit again, and it is not reported any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ..committer.errors import (
    CommitConflictError,
    JobFencedError,
    OutcomeUnknownError,
    SnapshotGoneError,
    SupersededRunError,
    TableMismatchError,
    counted,
)
from ..committer.store.requests import All, Found, Head, Step
from .actions import AddFile, AppTransaction, LogMetadata, LogProtocol, RemoveFile
from .change import FENCE, REPAIR, REPAIRS, RESTORE, RUN, LogBase, LogChange
from .committing import EntryCommitted, check_state
from .copies import follow_copies
from .entries import LogEntry
from .fencing import fence_job
from .job_steps import commit_job
from .judging import JobDecided, RunRepeated, judge
from .kept_entries import OverwrittenEntry, find_overwritten
from .log_layout import LogLayout
from .opening import LogDepth, OpenedLog, open_log, read_entries
from .ranks import ranks_said
from .replay import LogState
from .scope import NONE, Scope, read_scope
from .settling import read_settles
from .vacuum import spared_for

#: The member of an entry with the inputs of its rows.
INPUTS = "inputs"
#: Members of an entry about the rows of its job, written or left out. A repair repeats them.
_TOLD = ("rowChanges", "changeReads", INPUTS, "narrows", "superseded", "leftOut", "replacedWhere")


class RepairOutcome(StrEnum):
    """Outcome for an overwritten entry.

    ``REPEATED``: the log has another entry of the job, or one of a later attempt of its run.
    ``NEEDLESS``: the entry had changed no rows. ``LEFT``: it cannot be committed again.
    ``ACCEPTED``: its loss was accepted. ``UNKNOWN``: the entry of the repair or fence may still
    come."""

    WOULD_COMMIT = "would-commit"
    COMMITTED = "committed"
    REPEATED = "repeated"
    NEEDLESS = "needless"
    WOULD_ACCEPT = "would-accept"
    ACCEPTED = "accepted"
    LEFT = "left"
    UNKNOWN = "unknown"

    @property
    def is_lost(self) -> bool:
        """True if rows of the entry are still missing."""
        return self not in (self.COMMITTED, self.REPEATED, self.NEEDLESS, self.ACCEPTED)


@dataclass(frozen=True)
class RepairedEntry:
    """An overwritten entry, and the outcome of its repair.

    :param version: its number.
    :param job: the job that had committed it; ``by``: the writer that has overwritten it.
    :param files: how many files it had added; ``removed``: how many it had removed.
    :param committed: the version of its new entry, if there is one.
    :param reason: why it cannot be committed again.
    """

    version: int
    job: str
    by: str
    outcome: RepairOutcome
    files: int = 0
    removed: int = 0
    committed: int | None = None
    reason: str = ""


class _Unrepairable(Exception):
    """An entry cannot be committed again, for the reason that the message gives."""


def repair_log(
    layout: LogLayout, now: int, apply: bool, accept_loss: bool, fencer: str
) -> Step[list[RepairedEntry]]:
    """Commit overwritten entries again, the oldest first.

    :param now: Unix milliseconds, by the store's clock.
    :param apply: ``False`` only reports what would be done.
    :param accept_loss: fence the jobs whose entries cannot be committed again.
    :param fencer: the id of this process, for the fences' entries.
    """
    done = []
    for lost in (yield from find_overwritten(layout)):
        found = yield from _repair(layout, lost, now, apply)
        if accept_loss and found.outcome is RepairOutcome.LEFT and found.job:
            found = replace(found, outcome=RepairOutcome.WOULD_ACCEPT)
            if apply:
                found = yield from _accepted(layout, lost, found, fencer, now)
        done.append(found)
    return done


def _accepted(
    layout: LogLayout, lost: OverwrittenEntry, found: RepairedEntry, fencer: str, now: int
) -> Step[RepairedEntry]:
    """Fence the job of an overwritten entry, so that its loss is not reported any more."""
    try:
        # The job has no entry up to this number, which another writer's entry has now.
        since, after = lost.now.written_at, lost.version
        yield from fence_job(layout, found.job, since, fencer, now, after)
    except OutcomeUnknownError as error:
        return replace(found, outcome=RepairOutcome.UNKNOWN, reason=error.message)
    return replace(found, outcome=RepairOutcome.ACCEPTED)


def _repair(
    layout: LogLayout, lost: OverwrittenEntry, now: int, apply: bool
) -> Step[RepairedEntry]:
    was = lost.was
    by = f"job {lost.now.job}" if lost.now.job else _engine(lost.now)
    report = RepairedEntry(lost.version, lost.job, by, RepairOutcome.LEFT)
    if was is not None:
        files, removed = len(was.of(AddFile)), len(was.of(RemoveFile))
        report = replace(report, files=files, removed=removed)
    try:
        return (yield from _judged(layout, lost, report, now, apply))
    except OutcomeUnknownError as error:
        return replace(report, outcome=RepairOutcome.UNKNOWN, reason=error.message)
    except (CommitConflictError, SupersededRunError, TableMismatchError, JobFencedError) as error:
        return replace(report, reason=error.message)
    except _Unrepairable as error:
        return replace(report, reason=str(error))
    except (JobDecided, RunRepeated) as decided:
        return _repeated(report, decided.entry)


def _repeated(report: RepairedEntry, entry: LogEntry | None) -> RepairedEntry:
    version = None if entry is None else entry.version
    return replace(report, outcome=RepairOutcome.REPEATED, committed=version)


def _judged(
    layout: LogLayout, lost: OverwrittenEntry, report: RepairedEntry, now: int, apply: bool
) -> Step[RepairedEntry]:
    opened = yield from open_log(layout, LogDepth.WHOLE)
    if FENCE + lost.job in opened.state.transactions:
        return replace(report, outcome=RepairOutcome.ACCEPTED)
    was = lost.was
    if was is None:
        raise _Unrepairable("what it had added and removed is not kept")
    if was.version == 0:
        raise _Unrepairable("it had made the table, which another one is now")
    if was.operation == RESTORE:
        raise _Unrepairable("it had restored a version: restore it again")
    if was.ours.get("settles"):
        raise _Unrepairable("it had settled a conflict of runs: settle it again")
    try:
        before = (yield from open_log(layout, LogDepth.BLIND, was.version - 1)).state
    except SnapshotGoneError as error:
        raise _Unrepairable("the version before it was cleaned from the log") from error
    change = repairing_change(was, before)
    entries = yield from read_entries(layout.folder, range(was.version, opened.state.version + 1))
    for entry in entries:
        if entry is None:
            raise _Unrepairable("entries since were cleaned, so nobody can tell what has changed")
        change = follow_copies(change, entry)
        judge(change, before, entry)
    if not change.changes_data and change.metadata is None:
        return replace(report, outcome=RepairOutcome.NEEDLESS)
    if (run := change.run) is not None:
        last = opened.state.transactions.get(RUN + run)
        if last is not None and change.repeats(last.version, opened.state):
            return _repeated(report, None)
    check_state(layout, change, opened.state)
    yield from _check_kept(layout, opened.state, change, now)
    if not apply:
        return replace(report, outcome=RepairOutcome.WOULD_COMMIT)
    return (yield from _commit(layout, opened, change, report, now))


def _commit(
    layout: LogLayout, opened: OpenedLog, change: LogChange, report: RepairedEntry, now: int
) -> Step[RepairedEntry]:
    answer = yield from commit_job(layout, opened, change, now)
    if isinstance(answer, EntryCommitted):
        version = answer.entry.version
        return replace(report, outcome=RepairOutcome.COMMITTED, committed=version)
    return _repeated(report, answer.entry)


def repairing_change(was: LogEntry, before: LogState) -> LogChange:
    """Return the change that commits an entry again.

    :param before: the state that the entry was made of, without files.
    """
    job = was.job or ""
    adds = tuple(it for it in was.of(AddFile) if it.tags.get("job") == job)
    returned = tuple(it for it in was.of(AddFile) if it.tags.get("job") != job)
    metadata = was.of(LogMetadata)[-1] if was.of(LogMetadata) else None
    protocol = was.of(LogProtocol)[-1] if was.of(LogProtocol) else None
    changes_data = any(it.changes_data for it in (*was.of(AddFile), *was.of(RemoveFile)))
    replaced = read_scope(was.ours.get("replaced"))
    removes = frozenset(
        it.path for it in was.of(RemoveFile) if not replaced.has(before.partition(it))
    )
    touched = frozenset(it for file in was.changes if (it := before.partition(file)) is not None)
    runs = [it.app for it in was.of(AppTransaction) if it.app.startswith(RUN)]
    former, owner = was.ours.get("former"), was.ours.get("owner")
    told = {k: v for k, v in was.ours.items() if k in _TOLD}
    return LogChange(
        job,
        LogBase(was.version - 1, before.table_id),
        metadata or before.metadata,
        adds,
        removes,
        returned,
        replaced,
        Scope(touched) if removes and changes_data else NONE,
        ranks=ranks_said(was, before),
        run=runs[0].removeprefix(RUN) if runs else None,
        former=former if isinstance(former, int) else None,
        settles=read_settles(was.ours.get("settles") or [], str(was.version)),
        metadata=metadata,
        protocol=protocol,
        changes_data=changes_data,
        operation=REPAIR if changes_data else was.operation,
        owner=owner if isinstance(owner, dict) else {},
        told={**told, REPAIRS: was.version},
    )


def _check_kept(layout: LogLayout, state: LogState, change: LogChange, now: int) -> Step[None]:
    """Refuse files that are missing, or that a VACUUM may be deleting since no entry names them."""
    keys = [layout.key_of(add.path, state) for add in change.adds]
    found = yield from All(tuple(Head(key) for key in keys))
    gone = sum(not isinstance(it, Found) for it in found)
    if gone:
        raise _Unrepairable(f"{counted(gone, 'file')} of {len(keys)} that it had added are gone")
    kept_since = now / 1000 - spared_for(layout.retention(state))
    if any(isinstance(it, Found) and it.last_modified <= kept_since for it in found):
        raise _Unrepairable(
            "files that it had added are older than the table's retention, so that a VACUUM may be "
            "deleting them; load them again"
        )


def _engine(entry: LogEntry) -> str:
    return str(entry.info.members.get("engineInfo") or "another writer")
