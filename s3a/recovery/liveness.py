"""Liveness of an S3A job: what its run says, what the caller knows, what moved last.

Nothing in the committers fences an S3A job: one that is taken for dead and is not goes on all the
same, and what is done to it meanwhile breaks it, or publishes half of it. So *live* is left alone
whatever is asked, and *unknown* unless it is forced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from ...committer.format.job_spec import NOBODY, Owner
from ..runs.ledger import NO_TRIES, OpenTries
from ..runs.try_record import PATIENCE, StoredTry, TryRecord, is_of
from .leftovers import Kind, LeftoverJob

#: Seconds of silence below which a job counts as live where nobody says otherwise.
QUIET = 3600.0


class State(StrEnum):
    LIVE = "live"
    DEAD = "dead"
    #: Dead, and its run has loaded again or is going to: what it left must not be published.
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Judgement:
    """What a job is held for, and why. ``record``: of its run's try, where that is open."""

    state: State
    reason: str
    record: TryRecord | None = None

    @property
    def owner(self) -> Owner:
        """The run it belongs to, as far as known."""
        return self.record.owner if self.record is not None else NOBODY


@dataclass(frozen=True)
class Knowledge:
    """What is known besides the store's listings.

    :param tries: those that are open.
    :param dead: UUIDs of jobs, or of tries, that the caller states to be dead.
    :param ask: tells what has become of a try, as Airflow's task instance says it;
        ``None`` where that is not known either.
    :param patience: seconds without activity after which a job of which nothing else is known
        counts as dead; ``None``: it stays unknown, however old.
    """

    tries: OpenTries = NO_TRIES
    dead: Collection[str] = frozenset()
    ask: Callable[[TryRecord], State | None] = lambda _: None
    patience: float | None = None


def judge(job: LeftoverJob, now: float, known: Knowledge) -> Judgement:
    """Tell live from dead, superseded and unknown.

    :param now: by the store's clock, as the job's times are.
    """
    quiet = max(0.0, now - job.newest)
    is_dead = any(is_of(dead, job.uuid) for dead in known.dead)
    for read in known.tries.known:
        if is_of(read.record.uuid, job.uuid):
            is_dead = is_dead or read.record.uuid in known.dead
            return Judgement(*_by_record(read, is_dead, quiet, known), read.record)
    if is_dead:
        return Judgement(State.DEAD, "the caller says that it is dead")
    if known.tries.damage:
        why = f"a run's record cannot be read: {known.tries.damage}"
        return Judgement(State.UNKNOWN, why)
    for read in known.tries.known if job.kind is Kind.UPLOADS else ():
        # A try at work that may be this job's, which has no UUID of its own.
        asked = known.ask(read.record)
        at_work = asked is State.LIVE or (asked is None and read.silent_for < PATIENCE)
        if at_work and job.newest >= read.record.opened_at:
            why = f"it may be of {_name(read.record.owner)}, which is at work"
            return Judgement(State.LIVE, why)
    return Judgement(*_by_silence(quiet, known, "no run's record names it"))


def _by_record(read: StoredTry, is_dead: bool, quiet: float, known: Knowledge) -> tuple[State, str]:
    record, run = read.record, _name(read.record.owner)
    asked, later = known.ask(record), _later_try(record, known)
    if asked is State.LIVE:
        return State.LIVE, f"{run} is at work"
    is_superseded = later is not None or asked is State.SUPERSEDED
    if is_dead and not is_superseded:
        return State.DEAD, "the caller says that it is dead"
    # Who knows that a task is over does not know that of its application, which sends them, too.
    is_asked = asked is not None or record.is_alone
    if not is_dead and (read.may_be_writing if is_asked else read.silent_for < PATIENCE):
        return State.LIVE, f"{run} sent a heartbeat {read.silent_for:.0f} s ago"
    allowed = PATIENCE if known.patience is None else min(PATIENCE, known.patience)
    if not is_dead and asked is not None and quiet < allowed:
        return State.LIVE, f"{run} is over, and it wrote something {quiet:.0f} s ago"
    if is_superseded:
        what = f"try {later}" if later is not None else "another try"
        return State.SUPERSEDED, f"{run} is over, and {what} loads or loaded instead"
    if asked is State.DEAD:
        return State.DEAD, f"{run} is over"
    silent = f"{run} sent no heartbeat for {read.silent_for:.0f} s"
    # In cluster mode the application outlives whoever submitted it.
    return _by_silence(quiet, known, f"{silent}; its application may be at work without it")


def _by_silence(quiet: float, known: Knowledge, why: str) -> tuple[State, str]:
    patience = QUIET if known.patience is None else known.patience
    why = f"{why}, and it wrote nothing for {quiet:.0f} s"
    if quiet < patience:
        return State.LIVE, f"{why}, which is less than {patience:.0f} s"
    if known.patience is None:
        return State.UNKNOWN, why
    return State.DEAD, f"{why}, of {patience:.0f} s allowed"


def _later_try(record: TryRecord, known: Knowledge) -> int | None:
    mine = record.owner.try_number
    if mine is None or record.owner.run_id is None:
        return None
    others = (read.record.owner for read in known.tries.known)
    latest = max(o.try_number or 0 for o in others if _run(o) == _run(record.owner))
    return latest if latest > mine else None


def _run(owner: Owner) -> tuple[object, ...]:
    mapped = -1 if owner.map_index is None else owner.map_index
    return owner.dag_id, owner.run_id, owner.task_id, mapped


def _name(owner: Owner) -> str:
    if owner.dag_id is None:
        return owner.application or "its run"
    mapped = f"[{owner.map_index}]" if owner.map_index not in (None, -1) else ""
    tried = f" try {owner.try_number}" if owner.try_number is not None else ""
    return f"{owner.dag_id}.{owner.task_id}{mapped} of run {owner.run_id}{tried}"
