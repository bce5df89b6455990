"""Plan for a dead S3A job: rolled forward, rolled back, or left to a person, and why.

The S3A architecture text's rule: a job commit completes nothing before its tests of the
destination are done, so a file that is written shows that they were; then, if every pending set
can be read, the files that are not written are exactly the uploads outstanding, and completing
them finishes the job. Of a job of which nothing is written, nothing says that all its tasks had
ended: it is rolled back, which harms nobody, and can be loaded again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...committer.layout import TableRoot
from ...committer.s3.requests import Step
from ..hadoop.upload_owners import is_staged_name
from .direction import Direction, read_direction
from .job_files import PlannedFile, Presence, look_at_files
from .leftover_job import Kind, LeftoverJob
from .liveness import Judgement, State
from .marker import DestinationMarker, read_marker
from .options import Action, RecoveryOptions
from .unclaimed_files import Unclaimed, unclaimed_files


@dataclass(frozen=True)
class Case:
    """What is known of a job when it is chosen what becomes of it.

    :param now: by the store's clock.
    :param rival: a job that lives and began after this one's last task: the retry, perhaps. Its
        set-up has removed the marker of whoever committed before.
    :param files: where those are that its pending sets name.
    :param decided: what an earlier recovery began to do.
    :param unclaimed: complete files that no readable pending set names and that carry its name.
    """

    root: TableRoot
    job: LeftoverJob
    judgement: Judgement
    options: RecoveryOptions
    now: float
    rival: str | None = None
    files: tuple[PlannedFile, ...] = ()
    marker: DestinationMarker = field(default_factory=DestinationMarker)
    decided: Direction | None = None
    unclaimed: Unclaimed = field(default_factory=Unclaimed)

    @property
    def is_vouched_for(self) -> bool:
        """Whether files that cannot be compared may be taken for the job's: the caller says which
        way, or an earlier recovery, which had compared what was there, completed them."""
        went_forward = self.decided is not None and self.decided.forward
        return self.options.direction is not None or went_forward

    @property
    def is_of_run(self) -> bool:
        """Whether its run is known, and so, whether that has loaded again."""
        return not (self.judgement.record is None or self.judgement.record.is_alone)

    def keys(self, *presences: Presence) -> tuple[str, ...]:
        """Of its files that are so."""
        return tuple(file.commit.key for file in self.files if file.presence in presences)

    @property
    def lost(self) -> tuple[str, ...]:
        """Keys of files that are neither uploads nor objects of the job."""
        return self.keys(Presence.MISSING, Presence.FOREIGN)

    @property
    def last_set(self) -> float:
        """When its last task committed, by the store's clock."""
        return max((one.last_modified for one in self.job.sets), default=0.0)

    @property
    def since(self) -> str:
        """Who has come since then, a sentence; ``""`` for nobody."""
        if self.marker.is_newer_than(self.last_set):
            name = self.marker.job or "one that its _SUCCESS does not name"
            return f"another job ({name}) has committed here since"
        return f"another job ({self.rival}) has begun here since" if self.rival is not None else ""

    @property
    def is_committed(self) -> bool:
        """Whether the job's own marker is there, which its commit writes after all files. Readers
        rely on it: such a job is never rolled back, whatever became of its files since."""
        own = bool(self.job.uuid) and self.marker.job == self.job.uuid
        own = own and self.marker.last_modified >= self.last_set
        return own and not self.keys(Presence.OUTSTANDING)


@dataclass(frozen=True)
class Plan:
    """What is to become of a job.

    :param reason: why this and not the other, sentences.
    """

    case: Case
    action: Action
    reason: str


def looked_at(case: Case) -> Step[Case]:
    """A case with what the store shows of it.

    :raises RecordDamagedError: an earlier recovery's direction cannot be read.
    """
    job = case.job
    if job.refusals(case.root):
        return case  # Nothing that untrusted metadata name is asked for.
    marker = yield from read_marker(job.destination)
    unclaimed = yield from unclaimed_files(job, marker)
    case = replace(case, marker=marker, unclaimed=unclaimed)
    if job.tree is None:
        return case
    decided = yield from read_direction(job.tree)
    files = yield from look_at_files(job)
    return replace(case, files=files, decided=decided)


def plan_job(case: Case) -> Plan:
    """Choose. Asks the store nothing."""
    if case.is_vouched_for:
        case = replace(case, files=tuple(map(_vouched_for, case.files)))
    return Plan(case, *_choose(case))


def _vouched_for(file: PlannedFile) -> PlannedFile:
    return replace(file, presence=Presence.WRITTEN) if file.presence is Presence.UNSURE else file


def _choose(case: Case) -> tuple[Action, str]:
    job, files, decided, since = case.job, case.files, case.decided, case.since
    wanted = case.options.direction
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
    if unsure := case.keys(Presence.UNSURE):
        return Action.ASK, (
            f"{len(unsure)} of its {len(files)} files are no uploads any more, and the objects at "
            f"their keys, such as {unsure[0]!r}, have their size and are as new, but their ETags "
            "are not made of the parts' as those of unencrypted objects are (SSE-KMS and SSE-C, "
            "other stores), so nothing proves that they are this job's. If they are, roll it "
            "forward; if its rows are loaded again, roll it back, which removes them"
        )
    if decided is not None and not (decided.forward and case.lost and since):
        return _go_on(case, decided)
    if (doubt := _unclaimed(case)) and wanted is not Action.BACK:
        return Action.ASK, f"{_unreadable(job)}, and {doubt}"
    against = _against(case)
    written = len(case.keys(Presence.WRITTEN))
    if since and written and wanted is None:
        superseded = case.judgement.state is State.SUPERSEDED and written < len(files)
        if not superseded and (not case.is_of_run or case.lost or against):
            return Action.ASK, (
                f"{written} of its {len(files)} files are written, and {since}. Where that one "
                "loads the same rows again, or removed some of these, this one must be rolled "
                "back, else forward: only you can tell"
            )
    if not written and not against:
        against = "none of its files is written, so nothing shows that its commit had begun"
    if against and wanted is Action.FORWARD:
        # What that loses is not for us to choose.
        why = f"it is to be rolled forward, and cannot be: {against}. Roll it back or not"
        return Action.ASK, why
    if against:
        return Action.BACK, against
    if job.staged is not None and job.unaccounted and wanted is None:
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
    if case.options.direction is Action.BACK:
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


def _go_on(case: Case, decided: Direction) -> tuple[Action, str]:
    begun = f"an earlier recovery has begun to roll it {'forward' if decided.forward else 'back'}"
    against = _unreadable(case.job) or _lost(case)
    if decided.forward and against:
        return Action.BACK, f"{begun}, but {against}"
    return Action.FORWARD if decided.forward else Action.BACK, begun


def _lost(case: Case) -> str:
    if not case.lost:
        return ""
    first, *others = case.lost
    more = f" and {len(others)} more" if others else ""
    return f"neither an upload nor its own object is there for {first!r}{more}"


def _against(case: Case) -> str:
    """What forbids to roll forward, whatever the mode; ``""`` for nothing."""
    job = case.job
    if unreadable := _unreadable(job):
        return unreadable
    if not job.sets:
        return "no task of it has committed"
    if not case.files:
        return "its tasks have committed no file"
    if case.lost:
        return _lost(case)
    if case.judgement.state is State.SUPERSEDED:
        return case.judgement.reason
    wants_back = case.options.direction is Action.BACK
    return "the caller wants it rolled back" if wants_back else ""


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
