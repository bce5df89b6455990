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

from ..committer.errors import CommitConflictError, OtherJobError, OutcomeUnknownError
from ..committer.store.requests import Step
from .change import LogBase, LogChange
from .committing import commit_change
from .log_layout import LogLayout
from .opening import LogDepth, open_log
from .searching import JobVerdict, search_since_opened


def fence_job(
    layout: LogLayout, job: str, opened_at: float, fencer: str, now: int, after: int = -1
) -> Step[JobVerdict]:
    """Decide a job: find its entry, or write its fence.

    :param opened_at: when its open record was written, by the store's clock.
    :param fencer: the id of the fence's entry; each process has its own.
    :param after: the version up to which no entry is the job's, as is known.
    :raises OtherJobError: there is no table, so no log that could carry a fence.
    :raises OutcomeUnknownError: the log was cleaned, or the table made anew, meanwhile.
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
    verdict = yield from search_since_opened(layout, state, job, opened_at, after)
    if verdict.entry is not None or verdict.fenced:
        return verdict
    change = LogChange(
        f"{fencer}-{job}",
        LogBase(state.version, state.table_id),
        fences=frozenset({job}),
        changes_data=False,
        operation="FENCE",
    )
    try:
        done = yield from commit_change(layout, opened, change, now)
    except CommitConflictError as error:
        # It speaks of the fence's entry; what became of the job it does not say.
        raise OutcomeUnknownError(
            "Whether the job is committed is not known: its fence could not be written, as entries "
            "were cleaned, or the table was made anew, meanwhile. Nothing was changed.",
            job=job,
            remedy="Recover it again.",
        ) from error
    found = done.entry
    return JobVerdict(found) if found and found.job == job else JobVerdict(fenced=True)
