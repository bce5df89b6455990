"""Plan for a dead S3A job: rolled forward, rolled back, or left to a person, and why.

The S3A architecture text's rule: a job commit completes nothing before its tests of the
destination are done, so a file that is written shows that they were; then, if every pending set
can be read, the files that are not written are exactly the uploads outstanding, and completing
them finishes the job. Of a job of which nothing is written, nothing says that all its tasks had
ended: it is rolled back, which harms nobody, and can be loaded again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...committer.errors import InvalidInputError, counted
from ...committer.format.layout import TableRoot
from ...committer.store.requests import Step
from ..hadoop.job_traces import Marker, read_marker
from ..hadoop.magic_paths import is_staged_name
from .direction import StandingDirection, read_direction
from .job_files import PlannedFile, Presence, look_at_files, unclaimed_files
from .leftovers import Kind, LeftoverJob
from .liveness import Judgement, State


class Action(StrEnum):
    FORWARD = "roll-forward"
    BACK = "roll-back"
    #: Nothing may be done: its metadata name what is not its.
    REFUSE = "refuse"
    #: Nothing is done until somebody says which way.
    ASK = "ask"


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
    :param deep: list the whole table for jobs that left nothing but their metadata.
    :param staging: where the directory and partitioned committers keep their pending sets, as
        :class:`~..hadoop.staging_dir.StagingFolder` takes it.
    """

    apply: bool = False
    force: bool = False
    patience: float | None = None
    dead: Collection[str] = frozenset()
    direction: Action | None = None
    jobs: Collection[str] | None = None
    folders: Collection[str] = ()
    deep: bool = False
    staging: str | None = None

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


@dataclass(frozen=True)
class Case:
    """What is known of a job when it is chosen what becomes of it.

    :param now: by the store's clock.
    :param rival: a job that lives and began after this one's last task: the retry, perhaps. Its
        set-up has removed the marker of whoever committed before.
    :param files: where those are that its pending sets name.
    :param decided: what an earlier recovery began to do.
    :param unclaimed: :func:`unclaimed_files`, where its pending sets do not name all it wrote.
    """

    root: TableRoot
    job: LeftoverJob
    judgement: Judgement
    options: RecoveryOptions
    now: float
    rival: str | None = None
    files: tuple[PlannedFile, ...] = ()
    marker: Marker = field(default_factory=Marker)
    decided: StandingDirection | None = None
    unclaimed: tuple[str, ...] | None = ()

    def keys(self, *presences: Presence) -> tuple[str, ...]:
        """Of its files that are so."""
        return tuple(file.commit.key for file in self.files if file.presence in presences)

    @property
    def since(self) -> str:
        """Who has come since its last task, a sentence; ``""`` for nobody."""
        if self.marker.is_newer_than(self.job.last_set):
            name = self.marker.job or "one that its _SUCCESS does not name"
            return f"another job ({name}) has committed here since"
        return f"another job ({self.rival}) has begun here since" if self.rival is not None else ""

    @property
    def is_committed(self) -> bool:
        """Whether the job's own marker is there, which its commit writes after all files. Readers
        rely on it: such a job is never rolled back, whatever became of its files since."""
        own = bool(self.job.uuid) and self.marker.job == self.job.uuid
        own = own and self.marker.is_newer_than(self.job.last_set)
        return own and not self.keys(Presence.OUTSTANDING)

    @property
    def others_won(self) -> bool:
        """Whether uploads alone are of attempts that lost: each has its file, by another."""
        keys = {upload.key for upload in self.job.uploads}
        return self.job.kind is Kind.UPLOADS and keys <= set(self.unclaimed or ())

    @property
    def visible(self) -> tuple[str, ...]:
        """Files with its UUID in their names that a roll-back leaves to a person."""
        return () if self.others_won or self.is_committed else self.unclaimed or ()


@dataclass(frozen=True)
class Plan:
    """What is to become of a job; ``reason``: why this and not the other, sentences."""

    case: Case
    action: Action
    reason: str


def plan_job(case: Case) -> Step[Plan]:
    """Look at what the store shows of a job, and choose.

    :raises RecordDamagedError: an earlier recovery's direction cannot be read.
    """
    job = case.job
    if refusals := job.refusals(case.root):  # Nothing that untrusted metadata name is asked for.
        why = f"its metadata cannot be trusted: {'; '.join(refusals[:3])}. Nothing was asked of "
        return Plan(case, Action.REFUSE, f"{why}the store for it")
    case = replace(case, marker=(yield from read_marker(job.destination)))
    if job.kind is Kind.UPLOADS or any(one.read is None for one in job.sets):
        case = replace(case, unclaimed=(yield from unclaimed_files(job)))
    if job.tree is not None:
        decided = yield from read_direction(job.tree)
        case = replace(case, files=(yield from look_at_files(job)), decided=decided)
    went_forward = case.decided is not None and case.decided.said.forward
    if case.options.direction is not None or went_forward:
        # The caller vouches for files that cannot be compared; or an earlier recovery, which had
        # compared what was there, completed them.
        case = replace(case, files=tuple(map(_vouched_for, case.files)))
    choose = _uploads_only if job.kind is Kind.UPLOADS else _choose
    return Plan(case, *choose(case))


def _vouched_for(file: PlannedFile) -> PlannedFile:
    return replace(file, presence=Presence.WRITTEN) if file.presence is Presence.UNSURE else file


def _choose(case: Case) -> tuple[Action, str]:
    job, files, since, wanted = case.job, case.files, case.since, case.options.direction
    decided = case.decided.said if case.decided is not None else None
    if (decided is None or decided.forward) and case.is_committed:
        return Action.FORWARD, "its _SUCCESS is there: its commit is done but for the clean-up"
    if decided is not None and decided.job != job.uuid:
        return Action.REFUSE, f"an earlier recovery's direction is for another job, {decided.job!r}"
    if unsure := case.keys(Presence.UNSURE):
        return Action.ASK, (
            f"of its {counted(len(files), 'file')} "
            f"{counted(len(unsure), 'is no upload', 'are no uploads')} any more, and what is at "
            f"its key, as at {unsure[0]!r}, has its size and is as new, but an ETag that is not "
            "made of the parts' as that of an unencrypted object is (SSE-KMS and SSE-C, other "
            "stores), so nothing proves that it is this job's. If it is, roll it forward; if its "
            "rows are loaded again, roll it back, which removes what is there"
        )
    unreadable, lost = _unreadable(job), case.keys(Presence.MISSING, Presence.FOREIGN)
    gone = "neither an upload nor its own object is there for "
    gone += f"{counted(len(lost), 'file')}, such as "
    broken = unreadable or (f"{gone}{lost[0]!r}" if lost else "")
    if decided is not None and not (decided.forward and lost and since):
        begun = "an earlier recovery has begun to roll it "
        if decided.forward and broken:
            return Action.BACK, f"{begun}forward, but {broken}"
        way = Action.FORWARD if decided.forward else Action.BACK
        return way, f"{begun}{way.removeprefix('roll-')}"
    if case.unclaimed != () and wanted is not Action.BACK:
        return Action.ASK, f"{unreadable}, and {_told(case.unclaimed)}, and roll it back"
    written = len(case.keys(Presence.WRITTEN))
    superseded = case.judgement.state is State.SUPERSEDED
    against = (
        unreadable
        or (not job.sets and "no task of it has committed")
        or (not files and "its tasks have committed no file")
        or broken
        or (superseded and case.judgement.reason)
        or (wanted is Action.BACK and "the caller wants it rolled back")
        or ""
    )
    record = case.judgement.record
    is_of_run = record is not None and not record.is_alone
    doubtful = not is_of_run or lost or (against and not (superseded and written < len(files)))
    if since and written and wanted is None and doubtful:
        return Action.ASK, (
            f"of its {counted(len(files), 'file')} {counted(written, 'is', 'are')} written, and "
            f"{since}. Where that one loads the same rows again, or removed some of these, this "
            "one must be rolled back, else forward: only you can tell"
        )
    if not written and not against:
        against = "none of its files is written, so nothing shows that its commit had begun"
    if against and wanted is Action.FORWARD:
        # What that loses is not for us to choose.
        why = f"it is to be rolled forward, and cannot be: {against}. Roll it back or not"
        return Action.ASK, why
    if against:
        return Action.BACK, against
    # An attempt that lost to another of the same task has the same key (HADOOP-17258).
    strange = {u.key for u in job.extra} - {commit.key for commit in job.commits}
    if job.staged is not None and strange and wanted is None:
        return Action.ASK, (
            f"no pending set names {counted(len(strange), 'upload')} of it, such as of "
            f"{min(strange)!r}: is the folder a copy that is not whole? Else roll it forward, "
            "which aborts what is not named"
        )
    lost_ones = ("upload of an attempt that lost is", "uploads of attempts that lost are")
    left = f". {counted(len(job.extra), *lost_ones)} aborted" if job.extra else ""
    return Action.FORWARD, (
        f"all of {counted(len(job.sets), 'pending set')} can be read, of "
        f"{counted(len(files), 'file')} {counted(written, 'is', 'are')} written, so its commit had "
        f"passed its tests, and the uploads of the others are all there{left}"
    )


def _told(unclaimed: tuple[str, ...] | None) -> str:
    """What may be visible of a job that no readable pending set names."""
    if unclaimed is None:
        return (
            "nothing that can be read says what its files are called, so whether some are "
            "visible is not known. See to them"
        )
    return f"{named_files(unclaimed)}. Remove what is its"


def named_files(keys: Sequence[str]) -> str:
    """Complete files that may be a job's, a sentence."""
    carry = ("complete file carries", "complete files carry")
    found = f"{counted(len(keys), *carry)} its UUID in the name, such as {keys[0]!r}"
    return f"{found}: a name does not prove whose it is"


def _uploads_only(case: Case) -> tuple[Action, str]:
    """There is no metadata of it in the store, nor in a staging folder that was looked at."""
    job, there = case.job, case.unclaimed or ()
    none = (
        "it left uploads and no metadata in the store: a staging committer keeps its pending "
        "sets on the cluster's file system, and a task that closed no file has none"
    )
    if case.is_committed or case.others_won:
        return Action.BACK, (
            f"{none}. Other attempts won: its _SUCCESS is there, or each upload's file"
        )
    if case.options.direction is Action.BACK:
        return Action.BACK, f"{none}. The caller wants it rolled back"
    if not there and case.judgement.state is State.SUPERSEDED:
        return Action.BACK, f"{none}. {case.judgement.reason}"
    if there or any(is_staged_name(upload.key) for upload in job.uploads):
        seen = f"{_told(there)}. It may have died in its commit. " if there else ""
        return Action.ASK, (
            f"{none}. {seen}What its tasks wrote may be in these uploads alone. Name the staging "
            "folder (--staging, staging=: fs.s3a.committer.staging.tmp.path) that holds its "
            "pending sets: it may be rolled forward with them. Where its rows are loaded again, "
            "or the folder is lost, roll it back"
        )
    return Action.BACK, none


def _unreadable(job: LeftoverJob) -> str:
    """What is wrong with the pending sets themselves; ``""`` for nothing."""
    damaged = [one for one in job.sets if one.read is None]
    if damaged:
        return (
            f"of {counted(len(job.sets), 'pending set')} {len(damaged)} cannot be read "
            f"({damaged[0].damage}), so what the job wrote is not known"
        )
    # Hadoop's readers let such a record pass, and find out when other files are completed.
    partless = [commit.key for commit in job.commits if not commit.etags]
    if partless:
        return f"the record of {partless[0]!r} names no part of its upload: no store completes it"
    return ""
