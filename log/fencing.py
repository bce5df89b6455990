"""Fences: the end of a job that may not commit any more, decided by an entry.

==============================  ===========================  ============================
the log, since J's open record  the fence                    a publisher of J
==============================  ===========================  ============================
an entry of J                   none: J is committed         committed: finishes
a fence of J                    none: stands                 fenced
neither, and all was seen       an entry with a ``txn`` of J an entry of J
some of it was cleaned          unknown                      unknown
==============================  ===========================  ============================

Both write to the next number after all that they judged, so one of them is before the other. What
is asked is the time since J's open record was written, by the store's clock, not since anybody's
own base: the entry of J may be older than that. A fence is a ``txn``, which checkpoints of every
engine keep; a ``commitInfo`` they drop.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..committer.errors import OtherJobError, OutcomeUnknownError
from ..committer.store.requests import Step
from .change import FENCE, LogBase, LogChange
from .committing import commit_change
from .entries import ListedLog, LogEntry
from .log_layout import LogLayout
from .opening import LogDepth, list_log, open_log, read_entries
from .replay import LogState

#: Seconds by which stores round the times of objects, and their nodes differ.
_SLACK = 5.0


@dataclass(frozen=True)
class JobVerdict:
    """What the log says of a job: its entry, its fence, or neither."""

    entry: LogEntry | None = None
    fenced: bool = False


def search_since_opened(
    layout: LogLayout, state: LogState, job: str, opened_at: float
) -> Step[JobVerdict]:
    """Search the entries since a job's open record was written for the job and for its fence.

    :param state: of now.
    :raises OutcomeUnknownError: some of them were cleaned.
    """
    since = opened_at - _SLACK
    listed = yield from list_log(layout.folder)
    wanted = sorted(v for v, it in listed.entries.items() if it.last_modified >= since)
    entries = yield from read_entries(layout.folder, wanted)
    cleaned = _misses_some(listed, since, wanted)
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


def _misses_some(listed: ListedLog, since: float, wanted: list[int]) -> bool:
    """Tell whether entries of that time may have been there that the listing shows no more."""
    if not listed.entries:
        return listed.newest_checkpoint() is not None
    lowest = min(listed.entries)
    oldest_is_wanted = listed.entries[lowest].last_modified >= since
    holes = bool(wanted) and wanted[-1] - wanted[0] + 1 != len(wanted)
    return holes or (lowest > 0 and oldest_is_wanted)


def fence_job(
    layout: LogLayout, job: str, opened_at: float, fencer: str, now: int
) -> Step[JobVerdict]:
    """Decide a job: find its entry, or write its fence.

    :param opened_at: when its open record was written, by the store's clock.
    :param fencer: the id of the fence's entry; each process has its own.
    :raises OtherJobError: there is no table, so no log that could carry a fence.
    """
    opened = yield from open_log(layout, LogDepth.BLIND)
    state = opened.state
    if not state.exists:
        raise OtherJobError(
            "The table's first job cannot be fenced, since there is no log yet. "
            "Nothing was changed; its files and its record stay.",
            job=job,
            other=job,
            remedy="Try again once the table is there, or delete its open record by hand.",
        )
    verdict = yield from search_since_opened(layout, state, job, opened_at)
    if verdict.entry is not None or verdict.fenced:
        return verdict
    change = LogChange(
        f"{fencer}-{job}",
        LogBase(state.version, state.table_id),
        fences=frozenset({job}),
        changes_data=False,
        operation="FENCE",
    )
    done = yield from commit_change(layout, opened, change, now)
    found = done.entry
    return JobVerdict(found) if found and found.job == job else JobVerdict(fenced=True)
