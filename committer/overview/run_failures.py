"""Failures of runs that have not committed since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.heads import read_head
from ..commit.state.tolerance import or_damage
from ..format.job_spec import Owner
from ..format.records.failure import Failure
from ..format.records.head import HeadState, Slot
from ..store.listing import list_objects
from ..store.requests import All, ListedObject, Step
from ..upkeep.conflicts.conflict_look import GAVE_WAY, head_met, read_failure
from .recent_jobs import SeenJob

#: Seconds before now within which failures are read: purges keep them as long.
_SINCE = 7 * 24 * 3600.0
#: Failures that are read, at the most; the newest.
_MOST = 100


@dataclass(frozen=True)
class RunFailure:
    """The last failure of a run that has committed nothing after it.

    :param at: the time of its record, by the store's clock.
    :param partitions: those that the run was to load, or the one for which it was refused; empty:
        not known.
    """

    idempotency_key: str
    owner: Owner
    job: str | None
    error: str
    message: str
    remedy: str | None
    at: float
    partitions: tuple[str, ...]

    @property
    def gave_way(self) -> bool:
        """True if the run wrote nothing because it gave way to another job."""
        return self.error in GAVE_WAY


def standing_failures(
    context: Context, now: float, recent: Iterable[SeenJob]
) -> Step[list[RunFailure]]:
    """Find failures of the last seven days after which the run has not committed, newest first.

    One LIST, one request a failure, and two more for one whose run has no recent job.

    :param recent: jobs that are known to have been decided.
    """
    listing = yield from list_objects(context.root.failures_prefix)
    young = [item for item in listing.objects if item.last_modified >= now - _SINCE]
    young.sort(key=lambda item: item.last_modified, reverse=True)
    done: dict[str, float] = {}
    for job in recent:
        if job.idempotency_key is not None and job.verdict == "commit":
            done[job.idempotency_key] = max(done.get(job.idempotency_key, 0.0), job.decided_at)
    found = yield from All(tuple(_standing(context, item, done) for item in young[:_MOST]))
    return [failure for failure in found if failure is not None]


def _standing(
    context: Context, item: ListedObject, done: dict[str, float]
) -> Step[RunFailure | None]:
    failure = yield from or_damage(read_failure(item.key))
    if not isinstance(failure, Failure):
        return None  # Damaged records are left out: the run's own log has the failure.
    since = done.get(failure.idempotency_key)
    if since is None:
        since = yield from _committed_at(context, failure.idempotency_key)
    if since is not None and since >= item.last_modified:
        return None
    head = head_met(context.root, failure)
    return RunFailure(
        failure.idempotency_key,
        failure.owner,
        failure.job,
        failure.error,
        failure.message,
        failure.remedy,
        item.last_modified,
        failure.partitions or ((head,) if head else ()),
    )


def _committed_at(context: Context, idempotency_key: str) -> Step[float | None]:
    """Return the time of the run's last commit; ``None`` without one, or if it cannot be read."""
    state = yield from or_damage(read_head(context, Slot.run(context.root, idempotency_key)))
    if not isinstance(state, HeadState) or state.head.last_job is None:
        return None
    decided = yield from or_damage(read_decision(context, state.head.last_job))
    return decided.date if isinstance(decided, Decided) else None
