"""Plan for a dead S3A job: rolled forward, rolled back, or left, and why.

The S3A architecture text's rule: a job commit completes nothing before its tests of the
destination are done, so a file that is written shows that they were; then, if every pending set
can be read, the files that are not written are exactly the uploads outstanding, and completing
them finishes the job. A job of mode *append* makes no such tests, and can be rolled forward with
nothing written yet.

That last part has a limit: nothing in the store says how many tasks a job has. A job that died
while tasks were running looks like one that died before its commit, but for the uploads of the
tasks that ran and for gaps in the tasks' numbers. So an append of which nothing is written is
rolled forward only when its mode and its death are stated, no task attempt left anything, and no
task number is missing; tasks that had not begun behind the last one still cannot be seen, and
``tasks`` is there to say how many there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...committer.layout import TableRoot
from ...committer.records.success_marker import SuccessMarker
from ...committer.s3.requests import All, Found, Head, Step
from ..hadoop.commit_files import PendingCommit
from .direction import Direction
from .leftovers import Kind, LeftoverJob
from .liveness import Judgement, State
from .marker import DestinationMarker

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


def composite_etag(etags: Sequence[str]) -> str | None:
    """The ETag S3 gives an object made of parts, where the parts' ETags are MD5 sums; ``None``
    where they are not, as under SSE-KMS."""
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in etags)
    except ValueError:
        return None
    if not etags or len(digests) != 16 * len(etags):
        return None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def is_file_of(commit: PendingCommit, found: Found, since: float) -> bool:
    """Whether an object is what completing a commit's upload makes.

    Where the parts' ETags are no checksums, size, number of parts and time have to do: the file
    appeared after its task had committed.

    :param since: when it had, by the store's clock.
    """
    if found.size != commit.length:
        return False
    expected = composite_etag(commit.etags)
    if expected is not None:
        return found.etag == expected
    return found.etag.endswith(f"-{len(commit.etags)}") and found.last_modified >= since


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
    presence = Presence.WRITTEN if is_file_of(commit, found, since) else Presence.FOREIGN
    return PlannedFile(commit, presence, since)


@dataclass(frozen=True)
class Case:
    """What is known of a job when it is chosen what becomes of it.

    :param files: where those are that its pending sets name.
    :param decided: what an earlier recovery began to do.
    :param rival: a job that lives and began after this one's last task: the retry, perhaps. Its
        set-up has removed the marker of whoever committed before.
    """

    root: TableRoot
    job: LeftoverJob
    judgement: Judgement
    overrides: Overrides
    files: tuple[PlannedFile, ...] = ()
    marker: DestinationMarker = field(default_factory=DestinationMarker)
    decided: Direction | None = None
    rival: str | None = None

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
    action, reason = _choose(case)
    return Plan(case.job, case.judgement, action, reason, case.files)


def _choose(case: Case) -> tuple[Action, str]:
    job, files, decided, since = case.job, case.files, case.decided, case.since
    refusals = job.refusals(case.root)
    if refusals:
        return Action.REFUSE, (
            f"its metadata cannot be trusted: {'; '.join(refusals[:3])}. Nothing was asked of "
            "the store for it"
        )
    if job.kind is Kind.UPLOADS:
        return Action.BACK, (
            "it left uploads and no metadata in the store: a staging committer keeps its pending "
            "sets on the cluster's file system, and a task that closed no file has none"
        )
    if (decided is None or decided.forward) and case.is_committed:
        return Action.FORWARD, "its _SUCCESS is there: its commit is done but for the clean-up"
    if decided is not None and decided.job != job.uuid:
        return Action.REFUSE, f"an earlier recovery's direction is for another job, {decided.job!r}"
    if decided is not None and not (decided.forward and case.lost and since):
        return _go_on(decided, case.lost, _unreadable(job))
    against = _against(case)
    written = sum(1 for file in files if file.presence is Presence.WRITTEN)
    if since and written and case.overrides.direction is None:
        superseded = case.judgement.state is State.SUPERSEDED and written < len(files)
        if not superseded and (case.judgement.record is None or case.lost or against):
            return Action.ASK, (
                f"{written} of its {len(files)} files are written, and {since}. Where that one "
                "loads the same rows again, or removed some of these, this one must be rolled "
                "back, else forward: only you can tell"
            )
    if against:
        return Action.BACK, against
    if not written:
        return _nothing_written(case)
    rest = len(files) - written
    left = f". {len(job.extra)} uploads of attempts that lost are aborted" if job.extra else ""
    return Action.FORWARD, (
        f"all {len(job.sets)} pending sets load, {written} of {len(files)} files are written, "
        "so its commit had passed its tests, and "
        + (f"the uploads of the other {rest} are all there" if rest else "none is outstanding")
        + left
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
        return Action.BACK, f"{none}, so nothing shows that its commit had begun, and {mode}"
    if not judgement.stated:
        return Action.BACK, (
            f"{none}, and that it is dead follows from its silence only: nobody states it"
        )
    if job.unaccounted or job.running:
        return Action.BACK, (
            f"{none}, and task attempts that did not commit left {len(job.unaccounted)} uploads "
            f"({len(job.running)} closed files): it died while tasks were running"
        )
    if job.task_gaps:
        return Action.BACK, f"{none}, and task {job.task_gaps[0]} has no pending set"
    if case.since:
        return Action.BACK, f"{none}, and {case.since}, which may be a retry of the same load"
    counted = "" if overrides.tasks is not None else ". How many tasks it has is not known"
    return Action.FORWARD, (
        f"all {len(job.sets)} pending sets load, the uploads outstanding are its {len(case.files)} "
        f"files and no others, its mode is append, and it is stated to be dead{counted}"
    )


def read_marker(found: Found | None) -> DestinationMarker:
    """What the ``_SUCCESS`` of a destination says; an unreadable one is another job's."""
    if found is None:
        return DestinationMarker()
    read = SuccessMarker.parse_or_none(found.body)
    return DestinationMarker(found.etag, found.last_modified, read.job if read else None)
