"""Search: what the log says of a job, or of a run, since its open record was written.

A run is done if its transaction is in the state. A checksum file may name the newest transactions
only; then its report tells, which is there before the open record goes:

================================  ==========================================================
open records, then the report     the run
================================  ==========================================================
a record of the run               done if the log has the entry of that job; else not yet, and
                                  the entry comes after every base that was read before
no record of it, a report         done
neither                           not done
================================  ==========================================================

In this order: of a job that ends meanwhile, one of the two looks shows something.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..committer.errors import OutcomeUnknownError
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Found, Get, Step
from .change import FENCE, RUN
from .entries import SLACK, ListedLog, LogEntry
from .job_files import JobFiles, run_of_record, version_of_report
from .log_layout import LogLayout
from .opening import OpenedLog, list_log, read_entries
from .replay import LogState


@dataclass(frozen=True)
class JobVerdict:
    """What the log says of a job: its entry, its fence, or neither."""

    entry: LogEntry | None = None
    fenced: bool = False


def search_since_opened(
    layout: LogLayout, state: LogState, job: str, opened_at: float, after: int = -1
) -> Step[JobVerdict]:
    """Search the entries since a job's open record was written for the job and for its fence.

    :param state: of now.
    :param after: the version up to which no entry is the job's, as is known.
    :raises OutcomeUnknownError: some of them were cleaned.
    """
    since = opened_at - SLACK
    listed = yield from list_log(layout.folder)
    wanted = sorted(
        v for v, it in listed.entries.items() if it.last_modified >= since and v > after
    )
    entries = yield from read_entries(layout.folder, wanted)
    cleaned = _misses_some(listed, since, after)
    by_others = layout.cleaned_by_others(state)
    for entry in entries:
        if entry is None or (by_others and listed.may_be_stale(entry.version)):
            cleaned = True
        elif entry.job == job:
            return JobVerdict(entry)
        elif entry.transaction(FENCE + job):
            return JobVerdict(fenced=True)
    if FENCE + job in state.transactions:
        return JobVerdict(fenced=True)
    if cleaned:
        raise OutcomeUnknownError(
            "Entries since the job was opened were cleaned, so nobody can tell whether it is "
            "committed. Nothing was cleaned up.",
            job=job,
            remedy="Compare its files with the table, then delete its open record by hand.",
        )
    return JobVerdict()


def has_hidden_fence(
    layout: LogLayout, opened: OpenedLog, job: str, opened_at: float
) -> Step[bool]:
    """Tell whether a job was fenced at or below a state whose transactions do not show it.

    Where they are all known, the commit looks at them. Else the entries since the open record
    tell; there are none but where others are quick, or this process slept.
    """
    if opened.state.all_transactions or opened.written_at < opened_at - SLACK:
        return False
    return (yield from search_since_opened(layout, opened.state, job, opened_at)).fenced


def _misses_some(listed: ListedLog, since: float, after: int) -> bool:
    """Tell whether entries of that time, after a version, may have been there that the listing
    shows no more."""
    checkpoint = listed.newest_checkpoint()
    if not listed.entries:
        return checkpoint is not None
    last = max(listed.entries)
    if checkpoint is not None and checkpoint > last:
        return True
    older = (v for v, it in listed.entries.items() if it.last_modified < since)
    every = range(max(after, *older, -1) + 1, last + 1)
    return any(version not in listed.entries for version in every)


@dataclass(frozen=True)
class RunDone:
    """The run has committed before.

    :param version: of its last entry.
    :param entry: that entry, where it was read.
    """

    version: int
    entry: LogEntry | None = None


def find_run(layout: LogLayout, state: LogState, run: str, job: str) -> Step[RunDone | None]:
    """Look whether a run has committed before a state.

    :param job: the one that asks, whose own open record says nothing.
    :raises OutcomeUnknownError: its driver has died, and entries since were cleaned.
    """
    if (last := state.transactions.get(RUN + run)) is not None:
        return RunDone(last.version)
    if state.all_transactions:
        return None
    records = JobFiles(layout.control)
    opened = yield from list_objects(records.opened)
    others = sorted(key for key in opened.keys if records.job_of(key) != job)
    bodies = yield from All(tuple(Get(key) for key in others))
    report = yield from Get(records.run(run))
    tries = []
    for found in bodies:
        if isinstance(found, Found) and run_of_record(found.body, found.key) == run:
            of_run, at = records.job_of(found.key), found.last_modified
            verdict = yield from search_since_opened(layout, state, of_run, at)
            if verdict.entry is not None:
                tries.append(RunDone(verdict.entry.version, verdict.entry))
    if isinstance(report, Found):
        tries.append(RunDone(version_of_report(report.body, report.key)))
    return max(tries, key=lambda it: it.version, default=None)
