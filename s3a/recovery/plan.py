"""Plan for a dead S3A job: roll it forward, roll it back, or let a person choose; with the reason.

The rule is from the S3A architecture text. A job commit completes no file before its tests of the
destination are done. So a written file shows that they were. Then, if every pending set can be
read, the files that are not written are exactly the outstanding uploads, and completing these
finishes the job. If no file of a job is written, nothing shows that all its tasks had ended. Such a
job is rolled back. This does no harm, and the job can be loaded again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from ...committer.commit.state.tolerance import unless_denied
from ...committer.errors import OutcomeUnknownError, counted
from ...committer.format.layout import TableRoot, new_write_id
from ...committer.format.records.codec import decode, encode
from ...committer.format.records.marks import DEFAULTED
from ...committer.store.conditional_put import NotWritten, Written, put_record
from ...committer.store.requests import Delete, Found, Get, Put, Step, Unknown
from ...committer.upkeep.counted_files import counted_files
from ..hadoop.job_traces import DIRECTION_NAME, Marker, is_staged_name, read_marker
from ..runs.ledger import find_try
from ..runs.try_record import SETTLED, UNDONE
from ..verification.delta_around import find_delta
from .ledgers import ledgers_of
from .leftovers import Kind, LeftoverJob, NamedFile, Presence, look_at_files, unclaimed_files
from .liveness import Action, JobLiveness, Judgement, RecoveryOptions
from .newer_runs import NewerRun, find_newer_run

_KIND = "s3a-recovery"
#: What takes the place of a job whose attempt is undone.
_LOADS_AGAIN = "its run counts this attempt as undone, and another attempt loads the same rows"


@dataclass(frozen=True)
class Direction:
    """Direction of a recovery, written into a dead job's tree before anything is done.

    The first recovery that writes it wins (a conditional PUT). A second recovery, or a repetition
    after a crash, reads it and goes the same way. It is deleted last of all.

    :param reason: for people.
    """

    job: str
    forward: bool
    reason: Annotated[str, DEFAULTED] = ""


@dataclass(frozen=True)
class StandingDirection:
    """A direction that is written in the store."""

    said: Direction
    etag: str


def direction_key(tree: str) -> str:
    return f"{tree}{DIRECTION_NAME}"


def read_direction(tree: str) -> Step[StandingDirection | None]:
    """Read the direction in a job's tree; ``None`` if it has not been written.

    :raises RecordDamagedError: it cannot be read.
    """
    found = yield from Get(direction_key(tree))
    return _decoded(found) if isinstance(found, Found) else None


def _decoded(found: Found) -> StandingDirection:
    return StandingDirection(decode(found.body, _KIND, found.key).read(Direction), found.etag)


def decide(
    tree: str, wanted: Direction, before: StandingDirection | None
) -> Step[StandingDirection]:
    """Write a direction, or read the one that another recovery has written.

    :param before: the direction that was read, which the new one replaces; ``None``: there was
        none.
    :returns: the direction that now counts.
    :raises OutcomeUnknownError: the store does not say whether it was written; nothing was done.
    """
    if before is not None and before.said.forward == wanted.forward:
        return before
    made = new_write_id()
    body, etag = encode(_KIND, made, wanted), before.etag if before else None
    put = Put(direction_key(tree), body, if_none_match=etag is None, if_match=etag)
    outcome = yield from put_record(put, made)
    if isinstance(outcome, Written):
        return StandingDirection(wanted, outcome.etag)
    if isinstance(outcome, NotWritten) and isinstance(outcome.current, Found):
        return _decoded(outcome.current)
    raise OutcomeUnknownError(
        "Whether this recovery's direction was written is not known; no file was touched.",
        job=wanted.job,
        key=put.key,
        remedy="Run the recovery again.",
    )


def withdraw(tree: str, direction: StandingDirection) -> Step[bool]:
    """Delete a direction, unless another one has replaced it. Return whether it is gone."""
    request = Delete(direction_key(tree), if_match=direction.etag)
    answer = yield from request
    if isinstance(answer, Unknown):
        answer = yield from request
    return not isinstance(answer, Unknown)


@dataclass(frozen=True)
class Case:
    """A leftover job with all facts about it, and the action that is chosen for it.

    :param now: by the store's clock.
    :param rival: a living job that began after this one's last task; perhaps the retry. Its
        set-up has removed the marker of earlier jobs.
    :param files: the files that its pending sets name, with their states.
    :param newer: a later run that replaces partitions of the job.
    :param is_reported: the ledger has a closed attempt that counts the job as committed.
    :param is_undone: the ledger has an undone attempt that counts the job as not committed, so its
        run loads the rows by another one.
    :param decided: the direction in which an earlier recovery began.
    :param delta: the Delta table that its directory has become; ``None``: there is none, or the
        job has completed no file.
    :param in_log: keys of its files that the log of that table names; ``None``: it was not read.
    :param unclaimed: :func:`unclaimed_files`, if its pending sets do not name all its files.
    :param reason: why this action and not the other, sentences.
    """

    root: TableRoot
    job: LeftoverJob
    judgement: Judgement
    options: RecoveryOptions
    now: float
    rival: str | None = None
    files: tuple[NamedFile, ...] = ()
    marker: Marker = field(default_factory=Marker)
    newer: NewerRun | None = None
    is_reported: bool = False
    is_undone: bool = False
    decided: StandingDirection | None = None
    delta: TableRoot | None = None
    in_log: Collection[str] | None = None
    unclaimed: tuple[str, ...] | None = ()
    action: Action = Action.ASK
    reason: str = ""

    def keys(self, *presences: Presence) -> tuple[str, ...]:
        """Return the keys of the files that are in one of these states."""
        return tuple(file.commit.key for file in self.files if file.presence in presences)

    @property
    def ledger(self) -> TableRoot:
        """The destination beside which the record of its attempt lies."""
        return self.judgement.ledger or self.root

    @property
    def since(self) -> str:
        """Another job that came after this one's last task, a sentence; ``""`` for none."""
        if self.marker.is_newer_than(self.job.last_set):
            name = self.marker.job or "one that its _SUCCESS does not name"
            return f"another job ({name}) has committed here since"
        return f"another job ({self.rival}) has begun here since" if self.rival is not None else ""

    @property
    def is_committed(self) -> bool:
        """True if the job has committed, so that all of its files became visible.

        That is so if its own marker is there, which its commit writes last, or if its run has
        reported it. Readers rely on each of the two, so such a job is never rolled back, even if
        later jobs have removed its files or its marker.
        """
        own = bool(self.job.uuid) and self.marker.job == self.job.uuid
        own = own and self.marker.is_newer_than(self.job.last_set)
        return (own or self.is_reported) and not self.keys(Presence.OUTSTANDING)

    @property
    def others_won(self) -> bool:
        """True if the job left only uploads, and other task attempts have completed their files."""
        keys = {upload.key for upload in self.job.uploads}
        return self.job.kind is Kind.UPLOADS and keys <= set(self.unclaimed or ())

    @property
    def visible(self) -> tuple[str, ...]:
        """Visible files with its UUID in their names, which a roll-back leaves to a person."""
        return () if self.others_won or self.is_committed else self.unclaimed or ()


def plan_job(case: Case) -> Step[Case]:
    """Read the traces of a job in the store, and choose an action.

    :raises RecordDamagedError: an earlier recovery's direction, a later run's record, or the head
        of a partition cannot be read.
    """
    job = case.job
    if refusals := job.refusals(case.root):  # No request for keys in metadata that may be forged.
        why = f"its metadata cannot be trusted: {'; '.join(refusals[:3])}. Nothing was asked of "
        return replace(case, action=Action.REFUSE, reason=f"{why}the store for it")
    case = replace(case, marker=(yield from read_marker(job.destination)))
    if job.kind is Kind.UPLOADS or any(one.damage for one in job.sets):
        case = replace(case, unclaimed=(yield from unclaimed_files(job)))
    if job.tree is not None:
        decided = yield from read_direction(job.tree)
        case = replace(case, files=(yield from look_at_files(job)), decided=decided)
        is_begun = case.keys(Presence.WRITTEN, Presence.UNSURE)
        if case.files and (is_begun or not case.keys(Presence.OUTSTANDING)):
            # Otherwise it is not committed, and no file could be removed: it is rolled back.
            case = yield from _with_closed_attempt(case)
    went_forward = case.decided is not None and case.decided.said.forward
    if went_forward or case.keys(Presence.WRITTEN, Presence.UNSURE) or job.kind is Kind.UPLOADS:
        case = yield from _with_delta(case)
    if case.options.direction is not None or went_forward:
        # Files that cannot be compared count as the job's: the caller vouches for them, or an
        # earlier recovery has compared and completed them.
        vouched = {Presence.UNSURE: Presence.WRITTEN}
        files = (replace(f, presence=vouched.get(f.presence, f.presence)) for f in case.files)
        case = replace(case, files=tuple(files))
    action, reason = (_uploads_only if job.kind is Kind.UPLOADS else _choose)(case)
    record = case.judgement.record
    if case.is_undone:
        case = replace(case, newer=NewerRun(_LOADS_AGAIN, is_at_work=False))
        action, reason = _choose(case)
    elif job.tree is not None and job.commits and (record or action is not Action.BACK):
        ledgers = ledgers_of(case.root, job)
        case = replace(case, newer=(yield from find_newer_run(ledgers, job, record)))
        action, reason = _choose(case)
    written = case.keys(Presence.WRITTEN)
    is_stated = case.options.direction is not None and not case.options.spares_counted
    if action is Action.BACK and written and not is_stated:
        counted_there = tuple(sorted(set(case.in_log or ()).intersection(written)))
        counted_there += yield from counted_files(ledgers_of(case.root, job), written)
        if counted_there:
            action, reason = Action.ASK, _counted(counted_there, reason)
    return replace(case, action=action, reason=reason)


def _counted(keys: Sequence[str], reason: str) -> str:
    """Explain that files are not removed because a table of this package counts them."""
    number = counted(len(keys), "of its files is", "of its files are")
    return (
        f"it would be rolled back ({reason}), but {number} counted by a table of this package "
        f"that came since, such as {keys[0]!r}, and would be missing there. Load those partitions "
        "again by an overwrite, which removes them, and recover then. To take them away all the "
        "same, roll it back"
    )


def _with_delta(case: Case) -> Step[Case]:
    """Find out whether the job's directory has become a Delta table, and which files it names."""
    found = yield from find_delta(ledgers_of(case.root, case.job), case.job.destination)
    if found is None:
        return case
    named, keys = None, case.keys(Presence.WRITTEN, Presence.UNSURE)
    if case.options.in_log is not None:
        named = (yield from case.options.in_log(found, keys)) if keys else ()
    return replace(case, delta=found, in_log=named)


def _with_closed_attempt(case: Case) -> Step[Case]:
    """Find out what the closed attempt of a job says about it, if the ledger has one.

    An attempt whose record is open has reported nothing.

    :raises RecordDamagedError: the record of its attempt cannot be read.
    """
    if case.judgement.record is not None:
        return case
    for ledger in ledgers_of(case.root, case.job):
        asked = find_try(ledger, case.job.uuid)
        known = yield from asked if ledger == case.root else unless_denied(asked, None)
        if known is not None and known.record.state in SETTLED:
            record, report = known.record, known.record.report or {}
            done = {report.get("job"), *report.get("jobs", ()), *record.replaced, *record.recovered}
            is_reported = case.job.uuid in done
            is_undone = record.state == UNDONE and not is_reported
            return replace(case, is_reported=is_reported, is_undone=is_undone)
    return case


def _choose(case: Case) -> tuple[Action, str]:
    job, files, since, wanted = case.job, case.files, case.since, case.options.direction
    decided = case.decided.said if case.decided is not None else None
    if (decided is None or decided.forward) and case.is_committed:
        seen = "its run has reported it" if case.is_reported else "its _SUCCESS is there"
        return Action.FORWARD, f"{seen}: its commit is done but for the clean-up{_unseen(case)}"
    if decided is not None and decided.job != job.uuid:
        return Action.REFUSE, f"an earlier recovery's direction is for another job, {decided.job!r}"
    if case.delta is not None and not _is_all_in_log(case):
        return _in_delta(case, case.delta)
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
    newer = case.newer if wanted is None else None
    if newer is not None and not (newer.is_at_work and decided is not None):
        said = f"{newer.said}, over whose rows it may not be rolled forward"
        return (Action.WAIT if newer.is_at_work else Action.BACK), said
    if decided is not None and not (decided.forward and lost and since):
        begun = "an earlier recovery has begun to roll it "
        if decided.forward and broken:
            return Action.BACK, f"{begun}forward, but {broken}"
        way = Action.FORWARD if decided.forward else Action.BACK
        return way, f"{begun}{way.removeprefix('roll-')}"
    if case.unclaimed != () and wanted is not Action.BACK:
        return Action.ASK, f"{unreadable}, and {_told(case.unclaimed)}, and roll it back"
    written = len(case.keys(Presence.WRITTEN))
    superseded = case.judgement.state is JobLiveness.SUPERSEDED
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
    if written and wanted is None and record and case.options.ask(record) is JobLiveness.UNKNOWN:
        return Action.ASK, (
            f"of its {counted(len(files), 'file')} {counted(written, 'is', 'are')} written, and "
            "its task counts as successful, though this attempt has reported no commit: perhaps "
            "somebody marked it so. Where its rows were loaded in another way, this job must be "
            "rolled back, else forward: only you can tell"
        )
    if not written and not against:
        against = "none of its files is written, so nothing shows that its commit had begun"
    if against and wanted is Action.FORWARD:
        # A person has to choose, since rows would be lost.
        why = f"it is to be rolled forward, and cannot be: {against}. Roll it back or not"
        return Action.ASK, why
    if against:
        return Action.BACK, against
    # A failed attempt has the same key as the attempt of its task that won (HADOOP-17258).
    strange = {u.key for u in job.extra} - {commit.key for commit in job.commits}
    if job.staged is not None and strange and wanted is None:
        return Action.ASK, (
            f"no pending set names {counted(len(strange), 'upload')} of it, such as of "
            f"{min(strange)!r}: is the folder a copy that is not whole? Else roll it forward, "
            "which aborts what is not named"
        )
    lost_ones = ("upload of a task attempt that lost is", "uploads of task attempts that lost are")
    left = f". {counted(len(job.extra), *lost_ones)} aborted" if job.extra else ""
    return Action.FORWARD, (
        f"all of {counted(len(job.sets), 'pending set')} can be read, of "
        f"{counted(len(files), 'file')} {counted(written, 'is', 'are')} written, so its commit had "
        f"passed its tests, and the uploads of the others are all there{left}"
    )


def _is_all_in_log(case: Case) -> bool:
    """Return whether the log of the Delta table around a job names all files of it."""
    keys = {file.commit.key for file in case.files}
    return case.in_log is not None and bool(keys) and keys <= set(case.in_log)


def _unseen(case: Case) -> str:
    """Return the end of a sentence about visible files of a job that the log around it does not
    name; ``""``: there are none."""
    there = set(case.keys(Presence.WRITTEN)).difference(case.in_log or ())
    if case.delta is None or case.in_log is None or not there:
        return ""
    return (
        f". But the directory is the Delta table {case.delta.url}, whose log does not name "
        f"{counted(len(there), 'file')} of it, such as {min(there)!r}: no reader of that table "
        "sees their rows. Where no later load has replaced them, load them again"
    )


def _in_delta(case: Case, delta: TableRoot) -> tuple[Action, str]:
    """Choose the action for a job whose directory has become a Delta table before the job had
    completed all files. It is never rolled forward: the log does not name what would be completed,
    so the job would count as committed, and no reader would see its rows."""
    wanted = case.options.direction
    why = (
        f"its directory has become the Delta table {delta.url}, whose log alone says which files "
        "count: no reader of that table would see what is completed now"
    )
    if wanted is Action.FORWARD:
        return Action.ASK, f"it is to be rolled forward, and cannot be: {why}. Roll it back"
    if wanted is Action.BACK:
        return Action.BACK, why
    unsure, written = case.keys(Presence.UNSURE), case.keys(Presence.WRITTEN)
    if case.in_log is None and (unsure or written):
        return Action.ASK, (
            f"{why}. Whether the log names {counted(len(unsure + written), 'file')} of it that "
            "are visible was not read. Where it names none, roll the job back"
        )
    if unsure:
        return Action.ASK, (
            f"{why}. It cannot be rolled back either: nothing proves that what is at the key of "
            f"{counted(len(unsure), 'file')} of it, such as {unsure[0]!r}, is its own. If it is, "
            "and the table's rows are not in it, roll it back"
        )
    return Action.BACK, why


def _told(unclaimed: tuple[str, ...] | None) -> str:
    """Describe visible files that may be a job's and are in no readable pending set."""
    if unclaimed is None:
        return (
            "nothing that can be read says what its files are called, so whether some are "
            "visible is not known. See to them"
        )
    return f"{named_files(unclaimed)}. Remove what is its"


def named_files(keys: Sequence[str]) -> str:
    """Describe complete files that may be a job's, in one sentence."""
    carry = ("complete file carries", "complete files carry")
    found = f"{counted(len(keys), *carry)} its UUID in the name, such as {keys[0]!r}"
    return f"{found}: a name does not prove whose it is"


def _uploads_only(case: Case) -> tuple[Action, str]:
    """Choose the action for a job that left only uploads, without metadata or pending sets."""
    job, there = case.job, case.unclaimed or ()
    none = (
        "it left uploads and no metadata in the store: a staging committer keeps its pending "
        "sets on the cluster's file system, and a task that closed no file has none"
    )
    if case.is_committed or case.others_won:
        return Action.BACK, (
            f"{none}. Other task attempts won: its _SUCCESS is there, or each upload's file"
        )
    if case.options.direction is Action.BACK:
        return Action.BACK, f"{none}. The caller wants it rolled back"
    if not there and case.judgement.state is JobLiveness.SUPERSEDED:
        return Action.BACK, f"{none}. {case.judgement.reason}"
    if case.delta is not None:
        why = (
            f"{none}. Its directory has become the Delta table {case.delta.url}, so what is in its "
            "uploads cannot be completed into a table"
        )
        if there:
            return Action.ASK, (
                f"{why}. {_told(there)}: but not what the table's log names. Then roll it back, "
                "which aborts the uploads, and load its rows again"
            )
        return Action.BACK, why
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
    """Return what is wrong with the job's pending sets; ``""`` if nothing is."""
    damaged = [one for one in job.sets if one.damage]
    if damaged:
        return (
            f"of {counted(len(job.sets), 'pending set')} {len(damaged)} cannot be read "
            f"({damaged[0].damage}), so what the job wrote is not known"
        )
    # Hadoop accepts such a record, and fails only when other files are already completed.
    partless = [commit.key for commit in job.commits if not commit.etags]
    if partless:
        return f"the record of {partless[0]!r} names no part of its upload: no store completes it"
    return ""
