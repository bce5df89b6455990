"""Plan for a dead S3A job: rolled forward, rolled back, or left to a person, and why.

The S3A architecture text's rule: a job commit completes nothing before its tests of the
destination are done, so a file that is written shows that they were; then, if every pending set
can be read, the files that are not written are exactly the uploads outstanding, and completing
them finishes the job. A job of mode *append* makes no such tests, and can be rolled forward with
nothing written yet.

That last part has a limit: nothing in the store says how many tasks a job has. So an append of
which nothing is written is rolled forward only when its mode and its death are stated, no task
attempt left anything, and no task number is missing; tasks that had not begun behind the last one
still cannot be seen, and ``tasks`` is there to say how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...committer.layout import TableRoot
from ...committer.s3.requests import All, Found, Head, Step
from ..hadoop.commit_files import PendingCommit
from ..hadoop.upload_owners import is_staged_name
from .direction import Direction
from .leftover_job import Kind, LeftoverJob
from .liveness import Judgement, State
from .marker import DestinationMarker
from .unclaimed_files import Unclaimed
from .whose_file import Match, compare

#: Modes in which a job adds to what is there.
APPEND = "append"


class Action(StrEnum):
    FORWARD = "roll-forward"
    BACK = "roll-back"
    #: Nothing may be done: its metadata name what is not its.
    REFUSE = "refuse"
    #: Nothing is done until somebody says which way.
    ASK = "ask"


class Presence(StrEnum):
    """Where a file that a pending set names is."""

    WRITTEN = "written"
    OUTSTANDING = "outstanding"
    #: Neither an upload nor an object.
    MISSING = "missing"
    #: No upload, and an object at its key that is another's.
    FOREIGN = "foreign"
    #: No upload, and an object at its key of which only a person can say that it is this file.
    UNSURE = "unsure"


@dataclass(frozen=True)
class PlannedFile:
    """``since``: when the pending set that names it was written, by the store's clock."""

    commit: PendingCommit
    presence: Presence
    since: float


@dataclass(frozen=True)
class Plan:
    """What is to become of one job.

    :param reason: why this and not the other, sentences.
    """

    job: LeftoverJob
    judgement: Judgement
    action: Action
    reason: str
    files: tuple[PlannedFile, ...] = ()

    def count(self, presence: Presence) -> int:
        return sum(1 for file in self.files if file.presence is presence)


@dataclass(frozen=True)
class Overrides:
    """What the caller says of the jobs, besides whether they live.

    :param mode: ``append`` where the jobs are known to add to what is there; ``None`` takes a
        job's record's word only against it, never for it.
    :param direction: roll back where either would do, or forward where the caller alone can
        tell that it is right; ``None`` for neither.
    :param tasks: how many tasks the job has: as many pending sets there must be.
    """

    mode: str | None = None
    direction: Action | None = None
    tasks: int | None = None


def look_at_files(job: LeftoverJob) -> Step[tuple[PlannedFile, ...]]:
    """Where each file is that the job's pending sets name: one HEAD for each not outstanding."""
    under_way = {(upload.key, upload.upload_id) for upload in job.uploads}
    steps = [
        _look(commit, one.last_modified, under_way)
        for one in job.sets
        if one.read is not None
        for commit in one.read.commits
    ]
    return tuple((yield All(tuple(steps))))


def _look(
    commit: PendingCommit, since: float, under_way: set[tuple[str, str]]
) -> Step[PlannedFile]:
    if (commit.key, commit.upload_id) in under_way:
        return PlannedFile(commit, Presence.OUTSTANDING, since)
    found = yield Head(commit.key)
    if not isinstance(found, Found):
        return PlannedFile(commit, Presence.MISSING, since)
    return PlannedFile(commit, _PRESENT[compare(commit, found, since)], since)


_PRESENT = {
    Match.SAME: Presence.WRITTEN,
    Match.UNSURE: Presence.UNSURE,
    Match.OTHER: Presence.FOREIGN,
}


@dataclass(frozen=True)
class Case:
    """What is known of a job when it is chosen what becomes of it.

    :param files: where those are that its pending sets name.
    :param decided: what an earlier recovery began to do.
    :param rival: a job that lives and began after this one's last task: the retry, perhaps. Its
        set-up has removed the marker of whoever committed before.
    :param unclaimed: complete files that no readable pending set names and that carry its name.
    """

    root: TableRoot
    job: LeftoverJob
    judgement: Judgement
    overrides: Overrides
    files: tuple[PlannedFile, ...] = ()
    marker: DestinationMarker = field(default_factory=DestinationMarker)
    decided: Direction | None = None
    rival: str | None = None
    unclaimed: Unclaimed = field(default_factory=Unclaimed)

    @property
    def is_vouched_for(self) -> bool:
        """Whether files that cannot be compared may be taken for the job's: the caller says which
        way, or an earlier recovery, which had compared what was there, completed them."""
        went_forward = self.decided is not None and self.decided.forward
        return self.overrides.direction is not None or went_forward

    @property
    def is_of_run(self) -> bool:
        """Whether its run is known, and so, whether that has loaded again."""
        return not (self.judgement.record is None or self.judgement.record.is_alone)

    @property
    def unsure(self) -> tuple[str, ...]:
        return tuple(f.commit.key for f in self.files if f.presence is Presence.UNSURE)

    @property
    def lost(self) -> tuple[str, ...]:
        """Keys of files that are neither uploads nor objects of the job."""
        lost = (Presence.MISSING, Presence.FOREIGN)
        return tuple(file.commit.key for file in self.files if file.presence in lost)

    @property
    def last_set(self) -> float:
        """When its last task committed, by the store's clock."""
        return max((one.last_modified for one in self.job.sets), default=0.0)

    @property
    def since(self) -> str:
        """Who has come since then, a sentence; ``""`` for nobody."""
        if self.marker.is_newer_than(self.last_set):
            return f"another job ({self.marker.name}) has committed here since"
        return f"another job ({self.rival}) has begun here since" if self.rival is not None else ""

    @property
    def is_committed(self) -> bool:
        """Whether the job's own marker is there, which its commit writes after all files. Readers
        rely on it: such a job is never rolled back, whatever became of its files since."""
        return (
            bool(self.job.uuid)
            and self.marker.job == self.job.uuid
            and self.marker.last_modified >= self.last_set
            and not any(file.presence is Presence.OUTSTANDING for file in self.files)
        )


def plan_job(case: Case) -> Plan:
    """Choose. Asks the store nothing."""
    if case.is_vouched_for:
        case = replace(case, files=tuple(map(_vouched_for, case.files)))
    action, reason = _choose(case)
    return Plan(case.job, case.judgement, action, reason, case.files)


def _vouched_for(file: PlannedFile) -> PlannedFile:
    return replace(file, presence=Presence.WRITTEN) if file.presence is Presence.UNSURE else file


def _choose(case: Case) -> tuple[Action, str]:
    job, files, decided, since = case.job, case.files, case.decided, case.since
    refusals = job.refusals(case.root)
    if refusals:
        return Action.REFUSE, (
            f"its metadata cannot be trusted: {'; '.join(refusals[:3])}. Nothing was asked of "
            "the store for it"
        )
    if job.kind is Kind.UPLOADS:
        return _uploads_only(case)
    if (decided is None or decided.forward) and case.is_committed:
        return Action.FORWARD, "its _SUCCESS is there: its commit is done but for the clean-up"
    if decided is not None and decided.job != job.uuid:
        return Action.REFUSE, f"an earlier recovery's direction is for another job, {decided.job!r}"
    if case.unsure:
        return Action.ASK, _cannot_compare(case)
    if decided is not None and not (decided.forward and case.lost and since):
        return _go_on(decided, case.lost, _unreadable(job))
    if (doubt := _unclaimed(case)) and case.overrides.direction is not Action.BACK:
        return Action.ASK, f"{_unreadable(job)}, and {doubt}"
    against = _against(case)
    written = sum(1 for file in files if file.presence is Presence.WRITTEN)
    if since and written and case.overrides.direction is None:
        superseded = case.judgement.state is State.SUPERSEDED and written < len(files)
        if not superseded and (not case.is_of_run or case.lost or against):
            return Action.ASK, (
                f"{written} of its {len(files)} files are written, and {since}. Where that one "
                "loads the same rows again, or removed some of these, this one must be rolled "
                "back, else forward: only you can tell"
            )
    if against:
        return _back(case, against)
    if not written:
        return _nothing_written(case)
    if job.staged is not None and job.unaccounted and case.overrides.direction is None:
        return Action.ASK, (
            f"there are {len(job.unaccounted)} uploads of it that no pending set names, such as "
            f"of {job.unaccounted[0].key!r}: is the folder a copy that is not whole? Else roll it "
            "forward, which aborts them"
        )
    rest = len(files) - written
    left = f". {len(job.extra)} uploads of attempts that lost are aborted" if job.extra else ""
    return Action.FORWARD, (
        f"all {len(job.sets)} pending sets load, {written} of {len(files)} files are written, "
        "so its commit had passed its tests, and "
        + (f"the uploads of the other {rest} are all there" if rest else "none is outstanding")
        + left
    )


def _back(case: Case, why: str) -> tuple[Action, str]:
    """Back, unless the caller wants it forward: what that loses is not for us to choose."""
    if case.overrides.direction is Action.FORWARD:
        return Action.ASK, f"it is to be rolled forward, and cannot be: {why}. Roll it back or not"
    return Action.BACK, why


def _unclaimed(case: Case) -> str:
    """What may be visible of a job some of whose pending sets cannot be read; ``""``: nothing."""
    if case.unclaimed.is_unknown:
        return (
            "nothing that can be read says what its files are called, so whether some are "
            "visible is not known. See to them, and roll it back"
        )
    named = f"{case.unclaimed.told} its UUID in their names: they may be its, which a name does "
    return f"{named}not prove. Remove them or not, and roll it back" if case.unclaimed.keys else ""


def _uploads_only(case: Case) -> tuple[Action, str]:
    """There is no metadata of it in the store, nor in a staging folder that was looked at."""
    job, unclaimed = case.job, case.unclaimed
    none = (
        "it left uploads and no metadata in the store: a staging committer keeps its pending "
        "sets on the cluster's file system, and a task that closed no file has none"
    )
    if unclaimed.is_committed:
        return Action.BACK, (
            f"{none}. Other attempts won: its _SUCCESS is there, or files have its keys"
        )
    if case.overrides.direction is Action.BACK:
        return Action.BACK, f"{none}. The caller wants it rolled back"
    if unclaimed.keys:
        return Action.ASK, (
            f"{none}. {unclaimed.told} the UUID of its uploads: it died in its commit. "
            f"{_WHERE} Where the folder is lost, remove these files and roll it back"
        )
    if case.judgement.state is State.SUPERSEDED:
        return Action.BACK, f"{none}. {case.judgement.reason}"
    if any(is_staged_name(upload.key) for upload in job.uploads):
        return Action.ASK, (
            f"the names of its uploads are a staging committer's, and {none}. What its tasks "
            f"wrote is in these uploads alone. {_WHERE} Where it is loaded again, roll it back"
        )
    return Action.BACK, none


_WHERE = (
    "Name the staging folder (--staging, staging=: fs.s3a.committer.staging.tmp.path) that holds "
    "its pending sets: it may be rolled forward with them."
)


def _cannot_compare(case: Case) -> str:
    keys = case.unsure
    return (
        f"{len(keys)} of its {len(case.files)} files are no uploads any more, and the objects at "
        f"their keys, such as {keys[0]!r}, have their size and are as new, but their ETags are "
        "not made of the parts' as those of unencrypted objects are (SSE-KMS and SSE-C, other "
        "stores), so nothing proves that they are this job's. If they are, roll it forward; if "
        "its rows are loaded again, roll it back, which removes them"
    )


def _go_on(decided: Direction, lost: Sequence[str], unreadable: str) -> tuple[Action, str]:
    begun = "an earlier recovery has begun"
    against = unreadable or (_lost(lost) if lost else "")
    if decided.forward and against:
        return Action.BACK, f"{begun} to roll it forward, but {against}"
    if decided.forward:
        return Action.FORWARD, f"{begun} to roll it forward"
    return Action.BACK, f"{begun} to roll it back"


def _lost(lost: Sequence[str]) -> str:
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return f"neither an upload nor its own object is there for {lost[0]!r}{more}"


def _against(case: Case) -> str:
    """What forbids to roll forward, whatever the mode; ``""`` for nothing."""
    job, overrides = case.job, case.overrides
    unreadable = _unreadable(job)
    if unreadable:
        return unreadable
    if not job.sets:
        return "no task of it has committed"
    if not case.files:
        return "its tasks have committed no file"
    if case.lost:
        return _lost(case.lost)
    if overrides.tasks is not None and len(job.sets) != overrides.tasks:
        return f"{len(job.sets)} tasks have committed, of {overrides.tasks}"
    if case.judgement.state is State.SUPERSEDED:
        return case.judgement.reason
    if overrides.direction is Action.BACK:
        return "the caller wants it rolled back"
    return ""


def _unreadable(job: LeftoverJob) -> str:
    """What is wrong with the pending sets themselves; ``""`` for nothing."""
    damaged = [one for one in job.sets if one.read is None]
    if damaged:
        return (
            f"{len(damaged)} of {len(job.sets)} pending sets cannot be read "
            f"({damaged[0].damage}), so what the job wrote is not known"
        )
    # Hadoop's readers let such a record pass, and find out when other files are completed.
    partless = [commit.key for commit in job.commits if not commit.etags]
    if partless:
        return f"the record of {partless[0]!r} names no part of its upload: no store completes it"
    return ""


def _nothing_written(case: Case) -> tuple[Action, str]:
    job, judgement, overrides = case.job, case.judgement, case.overrides
    none = "none of its files is written"
    if overrides.mode != APPEND or judgement.mode not in (None, APPEND):
        mode = f"its mode is {judgement.mode}" if judgement.mode else "its mode is not said to be"
        mode += "" if judgement.mode else " append"
        return _back(case, f"{none}, so nothing shows that its commit had begun, and {mode}")
    if not judgement.stated:
        return _back(
            case, f"{none}, and that it is dead follows from its silence only: nobody states it"
        )
    if job.unaccounted or job.running:
        return _back(
            case,
            f"{none}, and task attempts that did not commit left {len(job.unaccounted)} uploads "
            f"({len(job.running)} closed files): it died while tasks were running",
        )
    if job.task_gaps:
        return _back(case, f"{none}, and task {job.task_gaps[0]} has no pending set")
    if case.since:
        return _back(case, f"{none}, and {case.since}, which may be a retry of the same load")
    counted = "" if overrides.tasks is not None else ". How many tasks it has is not known"
    return Action.FORWARD, (
        f"all {len(job.sets)} pending sets load, the uploads outstanding are its {len(case.files)} "
        f"files and no others, its mode is append, and it is stated to be dead{counted}"
    )
