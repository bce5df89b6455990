"""Fences of jobs: after the entry with its fence a job can no longer commit.

==============================  ============================  ============================
the log, since J's open record  the fence                     a publisher of J
==============================  ============================  ============================
an entry of J                   none: J is committed          committed: finishes
a fence of J                    none: that fence stands       fenced
neither, and all was read       an entry with a ``txn`` of J  an entry of J
some of it was cleaned          unknown                       unknown
==============================  ============================  ============================

Both write at the number after all entries that they have judged, so one comes before the other and
the later one sees it. They search the log since J's open record was written, by the store's clock,
or since the time in J's id if that is earlier (in a bucket that was restored, J's entry may be
older than its record), and not since the base of the searching process: J's entry may be older than
that base. A fence is a ``txn``, since checkpoints of every engine keep it; they drop a
``commitInfo``.
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
    """Find the entry of a job, or write its fence.

    :param opened_at: when the job's open record was written, by the store's clock.
    :param fencer: the id of the fence's entry; each process has its own.
    :param after: a version up to which the log is known to have no entry of the job.
    :raises OtherJobError: there is no table, and so no log for a fence.
    :raises OutcomeUnknownError: the log was cleaned meanwhile, or the table deleted and made again.
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
        # This error is about the fence's entry. It does not say whether the job is committed.
        raise OutcomeUnknownError(
            "Whether the job is committed is not known: its fence could not be written, as entries "
            "were cleaned, or the table was made anew, meanwhile. Nothing was changed.",
            job=job,
            remedy="Recover it again.",
        ) from error
    found = done.entry
    return JobVerdict(found) if found and found.job == job else JobVerdict(fenced=True)
