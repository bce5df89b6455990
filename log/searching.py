"""Search in a log for the entry or fence of a job, or for the last entry of a run.

A run is done if its transaction is in the state. But a checksum file may name only the newest
transactions, and another engine's checkpoint leaves old ones out if the table says so. Then the
run's report decides, which is written before the open record is removed:

================================  ==========================================================
open records, then the report     the run
================================  ==========================================================
an open record of the run         done if the log has the entry of that job; otherwise not yet:
                                  the entry will come after every base that was read before
no open record, a report          done
neither                           not done
================================  ==========================================================

They must be read in this order: if a job ends meanwhile, one of the two reads shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..committer.errors import OutcomeUnknownError
from ..committer.format.layout import is_job_id, job_began
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
    """Result of a search for a job: its entry, its fence, or neither."""

    entry: LogEntry | None = None
    fenced: bool = False


def search_since_opened(
    layout: LogLayout, state: LogState, job: str, opened_at: float, after: int = -1
) -> Step[JobVerdict]:
    """Search for a job's entry or fence among the entries since the job began.

    In a bucket that was copied or restored, all objects have new times, and an entry may be older
    than the open record of its job. So the time in the job's id counts, if it is earlier.

    :param state: the present state.
    :param opened_at: when its open record was written, by the store's clock.
    :param after: a version up to which the log is known to have no entry of the job.
    :raises OutcomeUnknownError: some of these entries were cleaned, and neither was found.
    """
    began = job_began(job) if is_job_id(job) else opened_at
    since = min(opened_at, began) - SLACK
    return (yield from _search_since(layout, state, job, since, after))


def _search_since(
    layout: LogLayout, state: LogState, job: str, since: float, after: int = -1
) -> Step[JobVerdict]:
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
    """Return whether a job was fenced before a state that may lack the fence's transaction.

    If the state has all transactions, the commit checks them. Otherwise the entries since the open
    record are searched. There are none unless other jobs were quick, or this process slept.
    """
    if _has_all(layout, opened.state) or opened.written_at < opened_at - SLACK:
        return False
    # The job is this process's own, so its record was not copied.
    return (yield from _search_since(layout, opened.state, job, opened_at - SLACK)).fenced


def _has_all(layout: LogLayout, state: LogState) -> bool:
    """Return whether each transaction of the table is in a state."""
    return state.all_transactions and not layout.drops_transactions(state)


def _misses_some(listed: ListedLog, since: float, after: int) -> bool:
    """Return whether entries after a time and a version may be missing from the listing, since they
    were cleaned."""
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
    """An earlier commit of a run.

    :param version: the version of the run's last entry.
    :param entry: that entry, if it was read.
    """

    version: int
    entry: LogEntry | None = None


def find_run(layout: LogLayout, state: LogState, run: str, job: str) -> Step[RunDone | None]:
    """Find the last commit of a run up to a state; ``None``: it has not committed.

    :param job: the job of the caller, whose own open record does not count.
    :raises OutcomeUnknownError: another job of the run is open, and entries since were cleaned.
    """
    if (last := state.transactions.get(RUN + run)) is not None:
        return RunDone(last.version)
    if _has_all(layout, state):
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
