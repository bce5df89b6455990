"""Liveness of an S3A job, by its run's record, its caller's knowledge and its last activity.

The committers cannot fence an S3A job. If a living job is declared dead, it continues, and recovery
breaks it or publishes half of it. So a *live* job is always left alone, and an *unknown* one unless
recovery is forced. If the job's attempt has a record, recovery acts only after it has fenced the
record. The fence is written only if the record is still as it was when the job was judged. The
application ends its write when it finds the fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from ...committer.errors import InvalidInputError
from ...committer.format.given_numbers import check_age
from ...committer.format.job_spec import Owner
from ...committer.format.layout import TableRoot
from ...committer.store.requests import Step
from ..runs.ledger import OpenTries
from ..runs.try_record import PATIENCE, StoredTry, TryRecord, is_of
from .leftovers import Kind, LeftoverJob

#: Seconds of silence below which a job counts as live if no ``patience`` is given.
QUIET = 3600.0


class Action(StrEnum):
    FORWARD = "roll-forward"
    BACK = "roll-back"
    #: Nothing may be done: the job's metadata name files that are not its own.
    REFUSE = "refuse"
    #: Nothing is done until a person chooses.
    ASK = "ask"
    #: Nothing is done until a later run of the same partitions has ended.
    WAIT = "wait"


@dataclass(frozen=True)
class RecoveryOptions:
    """Options of a recovery, with its caller's knowledge about jobs.

    :param apply: act; else only report.
    :param force: also act on jobs that are not known to be dead or live.
    :param patience: seconds of silence after which a job counts as dead if nothing else is known
        about it; ``None``: such a job stays unknown. It must be longer than the longest task, since
        a task is silent while it writes a file.
    :param dead: UUIDs of jobs, or ids of runs, whose application is known to have ended.
    :param direction: ``Action.BACK``: roll back even if the job could be rolled forward.
        ``Action.FORWARD``: roll forward if both are possible and only the caller can choose. With
        either, the caller vouches for files that exist and cannot be compared.
    :param jobs: only these UUIDs; ``None`` for all.
    :param folders: further destinations below the table, as paths relative to its root.
    :param without: prefixes in the bucket of other destinations, whose jobs are left out.
    :param strangers: also treat uploads as a job's if no record, no pending file and no name
        shows that they are. A caller that judges such uploads by age leaves them out.
    :param deep: list the whole table, to find jobs that left only their metadata.
    :param staging: the folder in which the directory and partitioned committers keep their pending
        sets, as :class:`~.hadoop.staging_dir.StagingFolder` takes it.
    :param ask: returns the liveness of an attempt by Airflow's task instance; ``None`` if that is
        not known either. ``JobLiveness.UNKNOWN``: the task has succeeded, which does not say what
        became of the attempt.
    :param in_log: returns the keys, of those given, that the log of the Delta table at a root
        names. ``None``: logs are not read, and a job that has files in such a table is left to a
        person.
    :param spares_counted: a person has not given the direction, so a job is not rolled back if a
        table counts some of its files.
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
    in_log: Callable[[TableRoot, Collection[str]], Step[Collection[str]]] | None = None
    spares_counted: bool = False

    def check(self, root: TableRoot) -> None:
        """Refuse invalid options.

        :raises InvalidInputError: an invalid patience, an invalid direction or an invalid folder.
        """
        check_age("patience", self.patience)
        parts = [part for folder in self.folders for part in folder.strip("/").split("/")]
        if self.direction not in (None, Action.FORWARD, Action.BACK):
            wrong = f"{self.direction} is no direction"
        elif not {"", ".", ".."}.isdisjoint(parts):
            wrong = f"{', '.join(self.folders)}: a folder of a table has no '..' or empty component"
        else:
            return
        raise InvalidInputError(f"{wrong}.", table=root.url)


#: Options of a recovery that reports all jobs and changes nothing.
REPORT = RecoveryOptions()


class JobLiveness(StrEnum):
    LIVE = "live"
    DEAD = "dead"
    #: Dead, and its run has loaded again or will: its remaining files must not be published.
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Judgement:
    """Judgement of whether a job is live, with its reason.

    :param record: the record of its attempt, if it is open, as it was when the job was judged.
        Recovery fences it before it acts (:func:`~.runs.ledger.fence`).
    :param ledger: the destination beside which that record lies; ``None``: the one that is
        recovered.
    """

    state: JobLiveness
    reason: str
    record: TryRecord | None = None
    ledger: TableRoot | None = None


def judge(job: LeftoverJob, now: float, tries: OpenTries, options: RecoveryOptions) -> Judgement:
    """Judge whether a job is live, dead, superseded or unknown, by one ledger.

    :param now: by the store's clock, like the job's times.
    :param tries: the ledger's open attempts.
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
        # The uploads name no job, so they may be of any attempt at work.
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
    # Airflow knows when a task is over, but not its application, which also sends heartbeats.
    is_asked = asked is not None or record.is_alone
    if not is_dead and (read.may_be_writing if is_asked else read.silent_for < read.patience):
        return JobLiveness.LIVE, f"{run} sent a heartbeat {read.silent_for:.0f} s ago"
    allowed = PATIENCE if options.patience is None else min(PATIENCE, options.patience)
    if not is_dead and (is_superseded or asked is not None) and quiet < allowed:
        return JobLiveness.LIVE, f"{run} is over, and it wrote something {quiet:.0f} s ago"
    if is_superseded:
        what = f"attempt {later}" if later is not None else "another attempt"
        return JobLiveness.SUPERSEDED, f"{run} is over, and {what} loads or loaded instead"
    if asked is JobLiveness.DEAD:
        return JobLiveness.DEAD, f"{run} is over"
    if asked is JobLiveness.UNKNOWN:
        return JobLiveness.DEAD, f"{run} is over, and reported no commit though its task succeeded"
    silent = f"{run} sent no heartbeat for {read.silent_for:.0f} s"
    # In cluster mode the application outlives the process that submitted it.
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
    tried = f" attempt {owner.try_number}" if owner.try_number is not None else ""
    return f"{owner.dag_id}.{owner.task_id}{mapped} of run {owner.run_id}{tried}"
