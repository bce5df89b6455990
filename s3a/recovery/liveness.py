"""Liveness of an S3A job: what its run says, what recovery's caller knows, what moved last.

Nothing in the committers fences an S3A job: one that is taken for dead and is not goes on all the
same, and what is done to it meanwhile breaks it, or publishes half of it. So *live* is left alone
whatever is asked, and *unknown* unless it is forced. A job with a record is acted on only once the
record is fenced, on the condition that it says what it said when the job was judged: its
application ends its write when it finds the fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from ...committer.errors import InvalidInputError
from ...committer.format.job_spec import Owner
from ...committer.format.layout import TableRoot
from ..runs.ledger import OpenTries
from ..runs.try_record import PATIENCE, StoredTry, TryRecord, is_of
from .leftovers import Kind, LeftoverJob

#: Seconds of silence below which a job counts as live where nobody says otherwise.
QUIET = 3600.0


class Action(StrEnum):
    FORWARD = "roll-forward"
    BACK = "roll-back"
    #: Nothing may be done: its metadata name what is not its.
    REFUSE = "refuse"
    #: Nothing is done until somebody says which way.
    ASK = "ask"
    #: Nothing is done until a later run of the same partitions has ended.
    WAIT = "wait"


@dataclass(frozen=True)
class RecoveryOptions:
    """What recovery may do, and what its caller knows.

    :param apply: act; else only report.
    :param force: act on jobs too of which it is not known whether they live.
    :param patience: seconds of silence after which a job of which nothing else is known counts
        as dead; ``None``: such a job stays unknown. Longer than the longest task: one that is
        writing a file is silent.
    :param dead: UUIDs of jobs, or ids of runs, whose application is known to have ended.
    :param direction: ``Action.BACK``: roll back even where rolling forward would do; or
        ``Action.FORWARD`` where both would do and only the caller can tell. Either vouches for
        files that are there and cannot be compared.
    :param jobs: only these UUIDs; ``None`` for all.
    :param folders: further destinations below the table, as paths relative to its root.
    :param without: prefixes of the bucket of other destinations, whose jobs are not looked at.
    :param strangers: take uploads for those of a job, too, of which no record, no pending file and
        no name says so: who judges them by age leaves them out.
    :param deep: list the whole table for jobs that left nothing but their metadata.
    :param staging: where the directory and partitioned committers keep their pending sets, as
        :class:`~.hadoop.staging_dir.StagingFolder` takes it.
    :param ask: tells what has become of a try, as Airflow's task instance says it;
        ``None`` where that is not known either.
    """

    apply: bool = False
    force: bool = False
    patience: float | None = None
    dead: Collection[str] = frozenset()
    direction: Action | None = None
    jobs: Collection[str] | None = None
    folders: Collection[str] = ()
    without: tuple[str, ...] = ()
    strangers: bool = True
    deep: bool = False
    staging: str | None = None
    ask: Callable[[TryRecord], JobLiveness | None] = lambda _: None

    def check(self, root: TableRoot) -> None:
        """:raises InvalidInputError: options that cannot be right."""
        parts = [part for folder in self.folders for part in folder.strip("/").split("/")]
        if self.patience is not None and self.patience < 0:
            wrong = f"patience={self.patience} is negative"
        elif self.direction not in (None, Action.FORWARD, Action.BACK):
            wrong = f"{self.direction} is no direction"
        elif not {"", ".", ".."}.isdisjoint(parts):
            wrong = f"{', '.join(self.folders)}: a folder of a table has no '..' or empty component"
        else:
            return
        raise InvalidInputError(f"{wrong}.", table=root.url)


#: Report all, and do nothing.
REPORT = RecoveryOptions()


class JobLiveness(StrEnum):
    LIVE = "live"
    DEAD = "dead"
    #: Dead, and its run has loaded again or is going to: what it left must not be published.
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Judgement:
    """What a job is held for, and why. ``record``: of its run's try, where that is open, as it was
    when the job was judged: who acts fences it first (:func:`~.runs.ledger.fence`). ``ledger``: the
    destination beside which that record lies; ``None``: the one that is recovered."""

    state: JobLiveness
    reason: str
    record: TryRecord | None = None
    ledger: TableRoot | None = None


def judge(job: LeftoverJob, now: float, tries: OpenTries, options: RecoveryOptions) -> Judgement:
    """Tell live from dead, superseded and unknown.

    :param now: by the store's clock, as the job's times are.
    :param tries: those that are open.
    """
    quiet = max(0.0, now - job.newest)
    is_dead = any(is_of(dead, job.uuid) for dead in options.dead)
    for read in tries.known:
        if is_of(read.record.uuid, job.uuid):
            is_dead = is_dead or read.record.uuid in options.dead
            return Judgement(*_by_record(read, is_dead, quiet, tries, options), read.record)
    if is_dead:
        return Judgement(JobLiveness.DEAD, "the caller says that it is dead")
    if tries.damage:
        why = f"a run's record cannot be read: {tries.damage}"
        return Judgement(JobLiveness.UNKNOWN, why)
    for read in tries.known if job.kind is Kind.UPLOADS else ():
        # A try at work that may be this job's, which has no UUID of its own.
        asked = options.ask(read.record)
        at_work = asked is JobLiveness.LIVE or (asked is None and read.silent_for < read.patience)
        if at_work and job.newest >= read.record.opened_at:
            why = f"it may be of {_name(read.record.owner)}, which is at work"
            return Judgement(JobLiveness.LIVE, why)
    return Judgement(*_by_silence(quiet, options, "no run's record names it"))


def _by_record(
    read: StoredTry, is_dead: bool, quiet: float, tries: OpenTries, options: RecoveryOptions
) -> tuple[JobLiveness, str]:
    record, run = read.record, _name(read.record.owner)
    asked, later = options.ask(record), _later_try(record, tries)
    if asked is JobLiveness.LIVE:
        return JobLiveness.LIVE, f"{run} is at work"
    is_superseded = later is not None or asked is JobLiveness.SUPERSEDED
    if is_dead and not is_superseded:
        return JobLiveness.DEAD, "the caller says that it is dead"
    # Who knows that a task is over does not know that of its application, which sends them, too.
    is_asked = asked is not None or record.is_alone
    if not is_dead and (read.may_be_writing if is_asked else read.silent_for < read.patience):
        return JobLiveness.LIVE, f"{run} sent a heartbeat {read.silent_for:.0f} s ago"
    allowed = PATIENCE if options.patience is None else min(PATIENCE, options.patience)
    if not is_dead and asked is not None and quiet < allowed:
        return JobLiveness.LIVE, f"{run} is over, and it wrote something {quiet:.0f} s ago"
    if is_superseded:
        what = f"try {later}" if later is not None else "another try"
        return JobLiveness.SUPERSEDED, f"{run} is over, and {what} loads or loaded instead"
    if asked is JobLiveness.DEAD:
        return JobLiveness.DEAD, f"{run} is over"
    silent = f"{run} sent no heartbeat for {read.silent_for:.0f} s"
    # In cluster mode the application outlives whoever submitted it.
    return _by_silence(quiet, options, f"{silent}; its application may be at work without it")


def _by_silence(quiet: float, options: RecoveryOptions, why: str) -> tuple[JobLiveness, str]:
    patience = QUIET if options.patience is None else options.patience
    why = f"{why}, and it wrote nothing for {quiet:.0f} s"
    if quiet < patience:
        return JobLiveness.LIVE, f"{why}, which is less than {patience:.0f} s"
    if options.patience is None:
        return JobLiveness.UNKNOWN, why
    return JobLiveness.DEAD, f"{why}, of {patience:.0f} s allowed"


def _later_try(record: TryRecord, tries: OpenTries) -> int | None:
    mine = record.owner.try_number
    if mine is None or record.owner.run_id is None:
        return None
    others = (read.record.owner for read in tries.known)
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
