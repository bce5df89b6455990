"""Other jobs in a job's way: the job waits for them, and fences them after a long silence.

The job in the way may be committed and impossible to finish, or it may be unknown whether it was
fenced. That does not make the caller's own job committed or unknown: it has decided nothing. So
errors about other jobs are raised as :class:`.OtherJobError`, and say what holds for the caller's
job.
"""

from __future__ import annotations

from typing import Any

from ..errors import (
    DamagedError,
    OtherJobError,
    OutcomeUnknownError,
    UnfinishedAbortError,
    UnfinishedCommitError,
)
from ..format.job_spec import NOBODY
from ..format.layout import TableRoot
from ..format.records.decision import Decision
from ..store.backoff import Deadline
from ..store.requests import All, Found, Get, Head, Step, Wait, etag_of
from .state.context import Context
from .state.decide import decide
from .state.open_jobs import entry_of

_TROUBLES = (UnfinishedCommitError, UnfinishedAbortError, OutcomeUnknownError, DamagedError)


def about_other(root: TableRoot, other: str, step: Step[Any]) -> Step[Any]:
    """Carry out a step that finishes another job, on behalf of an undecided job.

    :raises OtherJobError: the other job cannot be finished; nothing of the caller's is visible.
    """
    try:
        return (yield from step)
    except _TROUBLES as error:
        settle = f"Settle {other} first: zero-rename recover {root.url} --apply"
        if isinstance(error, DamagedError) and error.remedy:
            settle = error.remedy.rstrip(".")  # Recovery would meet the same damage.
        raise OtherJobError(
            f"Job {other} is in this job's way and cannot be settled: {error.message} So this job "
            "commits nothing: nothing of it is visible, and it can be run again.",
            other=other,
            key=error.key,
            remedy=f"{settle}. Then run this job again.",
        ) from error


def outwait(context: Context, key: str, etag: str | None, job: str, before: int = 0) -> Step[None]:
    """Wait until a job decides or what it holds changes; fence a job that is silent for too long.

    :param key: the record that it holds, a head or ``table.json``; ``etag`` is that record's state.
    :param before: how many jobs this one has waited for already. A job that has waited for many
        polls more often than a newcomer, so that others cannot overtake it for ever.
    """
    waiting = context.waiting
    end = yield from Deadline.after(waiting.cap)
    silent = yield from Deadline.after(waiting.silence)
    seen = None
    while True:
        held, record = yield from All((Head(key), Get(context.root.open_key(job))))
        # Read the decision last: a job closes after it has decided. So if its open record was gone
        # by then, its decision is found here.
        decision = yield from Head(context.root.decision_key(job))
        open_etag = etag_of(record)
        if isinstance(decision, Found) or etag_of(held) != etag:
            return
        if open_etag != seen:
            seen, silent = open_etag, (yield from Deadline.after(waiting.silence))
        if open_etag is None or (yield from silent.is_over()) or (yield from end.is_over()):
            owner = entry_of(record, job).owner if isinstance(record, Found) else NOBODY
            yield from decide(context, Decision.abort(job, context.write_id(), owner))
            return
        yield from Wait(max(waiting.least, waiting.poll / (1 + before)), spread=0.5)
