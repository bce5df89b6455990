"""Execution of a plan: complete a dead job's uploads, or abort them and remove its files.

The same process or another one may repeat every step after a crash at any request. The direction
is written first and deleted last. A repetition finds which files are done. The pending sets are
deleted only when nothing needs them any more.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from ...committer.errors import counted
from ...committer.format.records.success_marker import SuccessMarker, success_data
from ...committer.store.backoff import Backoff
from ...committer.store.conditional_put import Uncertain, Written, put_record
from ...committer.store.deletion import abort_until_gone, remove
from ...committer.store.listing import list_objects
from ...committer.store.requests import (
    AbortUpload,
    All,
    CompleteUpload,
    Delete,
    Done,
    Found,
    Head,
    Put,
    Refused,
    Step,
    Unknown,
)
from ..hadoop.job_traces import parse, read_marker, uploads_below
from ..runs.ledger import fence, find_unchanged, keep_report, lift_fence, note_recovered
from ..verification.delta_around import find_delta
from .ledgers import ledgers_of
from .leftovers import LeftoverJob, NamedFile, Presence, activity
from .liveness import Action
from .plan import Case, Direction, StandingDirection, decide, direction_key, withdraw

_TRIES = Backoff(tries=16, first=0.5, cap=8.0)
_MARKER_UNKNOWN = "unknown"
#: The marker there is that of a job that committed later, or of an unknown job.
_MARKER_KEPT = "another job's was kept"
#: Rounds of the clean-up: the second one comes at once.
_ROUNDS = Backoff(tries=5, first=0.5, at_once=2)


class FileOutcome(StrEnum):
    """Outcome of one file."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    REMOVED = "removed"
    #: An object at the key that is not the job's was left there.
    KEPT = "kept"
    #: Nothing was to be done.
    AS_IT_WAS = "as it was"
    LOST = "lost"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    #: An object is there, and its ETag does not show whether it is the job's file.
    UNSURE = "unsure"


#: Outcomes after which the job's records must stay, for a repetition.
_OPEN = (FileOutcome.LOST, FileOutcome.REFUSED, FileOutcome.UNKNOWN, FileOutcome.UNSURE)


#: A file's key, its outcome, and why.
_Treated = tuple[str, FileOutcome, str]


@dataclass(frozen=True)
class Execution:
    """Result of carrying out a plan.

    :param files: key, outcome and detail of each file that the pending sets name.
    :param aborted: number of other uploads that were aborted.
    :param marker: the outcome of the job's ``_SUCCESS``.
    :param problem: why the job is not settled; ``""`` if it is.
    :param unsure: the problem is that the store did not say what happened.
    :param moved: nothing was done, since the job had changed.
    :param is_joined: another recovery has begun with the job.
    """

    files: tuple[_Treated, ...] = ()
    aborted: int = 0
    marker: str | None = None
    problem: str = ""
    unsure: bool = False
    moved: bool = False
    is_joined: bool = False

    def keys(self, outcome: FileOutcome) -> tuple[str, ...]:
        return tuple(key for key, became, _ in self.files if became is outcome)


NOTHING_DONE = Execution()


def carry_out(case: Case) -> Step[Execution]:
    """Fence the job's attempt, and carry out a plan.

    :raises OutcomeUnknownError: the fence or the direction may be written; no file was changed.
    """
    record, before = case.judgement.record, None
    if record is not None:
        before = yield from fence(case.ledger, record)
        if before is None:
            return Execution(moved=True)
    done = yield from _fenced(case)
    if done.moved and not done.is_joined and before is not None:
        yield from lift_fence(case.ledger, before)
    return done


def _fenced(case: Case) -> Step[Execution]:
    """Carry out a plan, once the job's attempt is fenced or if it has no record."""
    forward = case.action is Action.FORWARD
    job, stands = case.job, None
    wanted = Direction(job.uuid, forward, case.reason)
    if job.tree is not None:
        stands = yield from decide(job.tree, wanted, case.decided)
        if stands.said.forward != forward:
            why = f"another recovery decided otherwise: {stands.said.reason}"
            return Execution(problem=f"{why}; run this again to help it")
    if (yield from _has_moved(case)):
        # Checked after the direction is written: until then another recovery may finish the job.
        # A direction that another recovery wrote is left, since it may be acting on it.
        is_own = stands is not None and stands.said is wanted
        if job.tree is not None and stands is not None and is_own:
            yield from withdraw(job.tree, stands)
        return Execution(moved=True, is_joined=stands is not None and not is_own)
    treat = _complete if forward else _undo
    done = Execution(tuple((yield from All(tuple(treat(file) for file in case.files)))))
    if left := [file for file in done.files if file[1] in _OPEN]:
        key, outcome, detail = left[0]
        why = f"{counted(len(left), 'file is', 'files are')} {outcome}, as {key!r}: {detail}"
        unsure = any(outcome is FileOutcome.UNKNOWN for _, outcome, _ in left)
        return replace(done, problem=why, unsure=unsure)
    if forward:
        done = yield from _published(case, done)
    return done if done.problem else (yield from _clean_up(case, done, stands))


def _has_moved(case: Case) -> Step[bool]:
    """Return whether a job has changed since it was judged.

    Its application may have sent a heartbeat, or its tree may have changed. Between judging and
    acting, many other jobs may have been recovered, and this one by another process.
    """
    job, record = case.job, case.judgement.record
    if record is not None and (yield from find_unchanged(case.ledger, record)) is None:
        return True
    if case.action is Action.FORWARD and case.delta is None:
        # The directory may have been adopted as a Delta table since the job was planned.
        came = yield from find_delta(ledgers_of(case.root, job), job.destination)
        if came is not None:
            return True
    if job.staged is not None:
        return not job.staged.is_unchanged()
    if job.tree is None:
        return False
    listing = yield from list_objects(job.tree)
    is_newer = max(activity(listing.objects), default=0.0) > job.newest
    # The store's times have whole seconds: a task may have committed in the last one.
    sets = {key for key in listing.keys if (path := parse(key)) is not None and path.is_set}
    return is_newer or sets != {one.key for one in job.sets}


def _published(case: Case, done: Execution) -> Step[Execution]:
    """Write the marker of a job after all its files, and record that it is committed."""
    job, record = case.job, case.judgement.record
    # Without pending sets, an earlier recovery wrote the marker before it deleted them, or the
    # job's own commit did.
    if job.sets and not case.is_reported:
        # The committer's name in Hadoop's settings. The store does not show which of the staging
        # committers it was.
        unsaid = "magic" if job.staged is None else "staging"
        body = _success_data(job, record.committer if record is not None else unsaid)
        done = replace(done, marker=(yield from _write_marker(job, body)))
        if record is not None and not record.is_alone:
            # The marker will be, or is already, that of a later job.
            yield from keep_report(case.ledger, record, job.uuid, body)
    if done.marker == _MARKER_UNKNOWN:
        why = "all files are written, and whether its _SUCCESS is, the store did not say"
        return replace(done, problem=why, unsure=True)
    if record is not None:
        # Before the last trace of the job is deleted: a retry of its run reads this.
        yield from note_recovered(case.ledger, record, job.uuid)
    return done


def _success_data(job: LeftoverJob, committer: str) -> bytes:
    """Return Hadoop's SuccessData of a job, version 1, as the committer of this name fills it."""
    commits = job.commits
    counters = {
        "committer_commits_completed": len(commits),
        "committer_bytes_committed": sum(commit.length for commit in commits),
        "committer_tasks_completed": len(job.sets),
        "committer_jobs_completed": 1,
    }
    head = {
        "hostname": socket.gethostname(),
        "committer": committer,
        "description": "Rolled forward by zero_rename after its driver died",
        "jobId": job.uuid,
        "jobIdSource": "zero_rename recovery",
        "diagnostics": {"recovered_by": "zero_rename"},
    }
    return success_data(head, time.time(), [commit.key for commit in commits], counters)


def _write_marker(job: LeftoverJob, body: bytes) -> Step[str]:
    """Write a job's marker, unless one is there that is newer than the job's last task.

    The job's own committer would have replaced any marker that was there at that time.
    """
    for _ in range(3):
        there = yield from read_marker(job.destination)
        if there.job == job.uuid:
            return "there already"
        if there.is_newer_than(job.last_set):
            return _MARKER_KEPT
        none, etag = not there.etag, there.etag or None
        put = Put(f"{job.destination}/_SUCCESS", body, if_none_match=none, if_match=etag)
        outcome = yield from put_record(put, job.uuid, _job_of)
        if isinstance(outcome, Written | Uncertain):
            return "written" if isinstance(outcome, Written) else _MARKER_UNKNOWN
    return _MARKER_KEPT


def _job_of(body: bytes) -> str | None:
    read = SuccessMarker.parse_or_none(body)
    return read.job if read else None


def _complete(file: NamedFile) -> Step[_Treated]:
    """Complete one upload, or find that it is completed already.

    The store also answers NoSuchUpload for an upload that the job itself, or another recovery, has
    completed.
    """
    key, answer = file.commit.key, None
    if file.presence is not Presence.OUTSTANDING:
        # It can be missing only if the job is known to have committed: then only its remains are
        # cleaned up.
        return key, FileOutcome.AS_IT_WAS, ""
    for attempt in _TRIES.attempts():
        yield from _TRIES.pause(attempt)
        commit = file.commit
        answer = yield from CompleteUpload(key, commit.upload_id, commit.etags, commit.checksums)
        if isinstance(answer, Done):
            return key, FileOutcome.COMPLETED, ""
        found = yield from Head(key)
        # The upload was under way a moment ago, so an object that came in its place is its file.
        if isinstance(found, Found) and file.whose(found) is not Presence.FOREIGN:
            return key, FileOutcome.AS_IT_WAS, ""
        if isinstance(answer, Refused) and answer.code != "NoSuchUpload":
            return key, FileOutcome.REFUSED, answer.code
    if isinstance(answer, Refused):
        return key, FileOutcome.LOST, answer.code
    return key, FileOutcome.UNKNOWN, answer.cause if answer else ""


def _undo(file: NamedFile) -> Step[_Treated]:
    """Abort one upload; if it was completed, remove the object if it is provably the job's.

    In this order, since no process can complete an upload after it was aborted.
    """
    key = file.commit.key
    answer = yield from _sent(AbortUpload(key, file.commit.upload_id))
    if isinstance(answer, Unknown):
        return key, FileOutcome.UNKNOWN, answer.cause
    if isinstance(answer, Done) and file.presence is Presence.OUTSTANDING:
        return key, FileOutcome.ABORTED, ""
    found = yield from Head(key)
    if not isinstance(found, Found):
        return key, FileOutcome.AS_IT_WAS, ""
    whose = file.whose(found)
    if whose is Presence.FOREIGN:
        return key, FileOutcome.KEPT, ""
    if whose is Presence.UNSURE and file.presence is not Presence.WRITTEN:
        why = "it came while the job was rolled back, and its ETag proves nothing"
        return key, FileOutcome.UNSURE, why
    answer = yield from _sent(Delete(key, if_match=found.etag))
    if isinstance(answer, Unknown):
        return key, FileOutcome.UNKNOWN, answer.cause
    if isinstance(answer, Done):
        return key, FileOutcome.REMOVED, ""
    changed = answer.code in ("PreconditionFailed", "ConditionalRequestConflict")
    return key, FileOutcome.KEPT if changed else FileOutcome.REFUSED, answer.code


def _sent(request: AbortUpload | Delete) -> Step[Done | Refused | Unknown]:
    """Send an idempotent request, and repeat it while the store does not say what happened."""
    answer: Done | Refused | Unknown = Unknown("")
    for attempt in _TRIES.attempts():
        yield from _TRIES.pause(attempt)
        answer = yield from request
        if not isinstance(answer, Unknown):
            break
    return answer


def _clean_up(case: Case, done: Execution, stands: StandingDirection | None) -> Step[Execution]:
    """Abort the uploads that no task committed, then delete the job's tree, the direction last."""
    root, job = case.root, case.job
    # If the job is rolled forward, no other upload is outstanding any more. If it is rolled back, a
    # part that came late may have left some of the aborted uploads listed.
    doomed = {(upload.key, upload.upload_id) for upload in job.extra}
    doomed |= job.listed if case.action is Action.BACK else set()
    listed = partial(uploads_below, f"{root.prefix}/")
    there = [u for u in (yield from listed()) if (u.key, u.upload_id) in doomed]
    left = yield from abort_until_gone(there, listed)
    stay = ("of its uploads is", "of its uploads are")
    problem = f"{counted(len(left), *stay)} still listed after being aborted" if left else ""
    if not problem and job.tree is not None and stands is not None:
        problem = job.staged.remove() if job.staged is not None else ""
        problem = problem or (yield from _delete_tree(job.tree, stands))
    return replace(done, aborted=len(job.extra), problem=problem)


def _delete_tree(tree: str, stands: StandingDirection) -> Step[str]:
    """Delete a job's tree. Return the problem, a sentence; ``""`` for none."""
    direction = direction_key(tree)
    for attempt in _ROUNDS.attempts():
        yield from _ROUNDS.pause(attempt)
        listing = yield from list_objects(tree)
        keys = [key for key in listing.keys if key != direction]
        if not keys:
            gone = yield from withdraw(tree, stands)
            return "" if gone else f"whether {direction!r} is deleted, the store did not say"
        failed = yield from remove((key, None) for key in keys)
        if failed and attempt == _ROUNDS.tries - 1:
            key, cause = next(iter(failed.items()))
            return f"{key!r} cannot be deleted: {cause}"
    return f"objects are still listed below {tree!r} after being deleted"
