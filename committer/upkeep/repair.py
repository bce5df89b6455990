"""Repair of committed jobs that have lost files: their decisions are rewritten without these.

A lifecycle rule or a foreign tool can abort uploads between a job's decision and its apply. Then
these files are decided and lost, the heads of their partitions cannot move, and every later writer
stops at the job's claim. Accepting the loss rewrites the decision with those files under ``lost``.
From then on readers, appliers, markers and reports use the files that exist, and the decision still
names the lost ones.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from ..commit.apply import finish
from ..commit.close import list_uploads
from ..commit.complete import is_that_file
from ..commit.state.context import Context
from ..commit.state.decide import Decided, amend, read_decision
from ..commit.state.found_table import read_table
from ..commit.state.heads import read_head
from ..commit.state.open_jobs import list_open, read_open
from ..commit.state.tolerance import or_damage, or_error
from ..errors import (
    DamagedError,
    DataLostError,
    InvalidInputError,
    TableNotFoundError,
    UnfinishedCommitError,
    ZeroRenameError,
    first_few,
)
from ..format.job_spec import Coordination
from ..format.layout import require_job_id
from ..format.records.decision import Decision
from ..format.records.head import HeadState, Slot
from ..format.records.pending_file import PendingFile
from ..format.records.table_record import TableRecord
from ..scan.current_table import current_table
from ..store.requests import All, Head, Step


class RepairAction(StrEnum):
    """Action on a committed job. ``REPORTED``: nothing was changed. ``LEFT``: nothing was changed,
    since the job's owner may be alive and about to complete the files. ``ACCEPTED``: the job is
    applied without its lost files. ``FINISHED``: nothing was lost, and the job is applied."""

    REPORTED = "reported"
    LEFT = "left"
    ACCEPTED = "accepted"
    FINISHED = "finished"


@dataclass(frozen=True)
class Repaired:
    """An open committed job and its lost files.

    :param lost: files whose upload and object are both missing; empty if recovery can finish the
        job.
    :param removes: how many files its replace removes from the partitions that lost files.
    :param certain: ``False`` if more files may be lost: the store does not list uploads, and the
        job was not applied, which would have shown the loss.
    :param silent_for: seconds since the owner's last heartbeat, if the job was left for that.
    """

    job: str
    action: RepairAction
    lost: tuple[PendingFile, ...]
    removes: int
    certain: bool = True
    silent_for: float | None = None

    @property
    def rows(self) -> int:
        """The number of lost rows."""
        return sum(file.rows for file in self.lost)


def table_or_loss(context: Context) -> Step[TableRecord]:
    """Read the record of a table.

    :raises TableNotFoundError: there is no table.
    :raises DamagedError: the record is gone, as others show.
    """
    try:
        return (yield from read_table(context))
    except TableNotFoundError:
        found = yield from or_error(current_table(context))
        if isinstance(found, DamagedError):
            raise found from None
        raise


def repair(
    context: Context,
    accept_loss: bool = False,
    job: str | None = None,
    patience: float | None = None,
) -> Step[list[Repaired]]:
    """Report or accept the lost files of open committed jobs (:meth:`.table.Table.repair`)."""
    if job is not None:
        require_job_id(job)
    table = yield from table_or_loss(context)
    context = context.of(table)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none no head waits for a file; nothing was changed.",
            remedy="If the damaged job replaced partitions, load the same ones again with mode "
            "replace; if it appended, delete the data files with its id in their names and run it "
            "again.",
        )
    found: list[Repaired] = []
    failed: ZeroRenameError | None = None
    for name in sorted((yield from list_open(context))):
        if job is not None and name != job:
            continue
        decided = yield from or_damage(read_decision(context, name))
        if isinstance(decided, DamagedError):
            if job is not None:
                raise decided
            continue  # Its verdict is unknown; the doctor names the damaged decision.
        if decided is not None and decided.decision.is_commit:
            one = yield from or_error(_repair_one(context, decided, accept_loss, patience))
            if isinstance(one, DamagedError | UnfinishedCommitError):
                failed = failed or one  # Raised once the other jobs are repaired.
            elif isinstance(one, ZeroRenameError):
                raise one
            else:
                found.append(one)
    if failed is not None:
        if found:
            failed.add_note(f"Repaired all the same: {first_few([it.job for it in found])}.")
        raise failed
    if job is not None and not found:
        raise InvalidInputError(
            "There is no open committed job of this id here; nothing was changed.",
            job=job,
            remedy=f"See what is open: zero-rename jobs {context.root.url}",
        )
    return found


def _repair_one(
    context: Context, decided: Decided, accept_loss: bool, patience: float | None
) -> Step[Repaired]:
    job = decided.decision.job
    # Before the search for files: what a live owner completes in between is then found.
    entry = yield from read_open(context, job)
    lost = yield from find_lost(context, decided)
    silent_for = None
    if entry is not None and entry.silent_for < (entry.patience if patience is None else patience):
        silent_for = entry.silent_for
    if not accept_loss or (lost and silent_for is not None):
        action = RepairAction.LEFT if accept_loss else RepairAction.REPORTED
        removes = _removed_with(decided.decision, lost)
        certain = context.facts.uploads_listed
        return Repaired(job, action, lost, removes, certain, silent_for if accept_loss else None)
    accepted: tuple[PendingFile, ...] = ()
    while True:
        if lost:
            decided = yield from amend(context, decided, without(decided.decision, lost))
            accepted += lost
        try:
            yield from finish(context, decided)
        except DataLostError as error:
            # The loss of an upload that is listed, but without its parts, only shows here.
            lost = tuple(file for file in decided.decision.files if file.key == error.key)
            if not lost or silent_for is not None:
                raise
            continue
        action = RepairAction.ACCEPTED if accepted else RepairAction.FINISHED
        return Repaired(job, action, accepted, _removed_with(decided.decision, accepted))


def find_lost(context: Context, decided: Decided) -> Step[tuple[PendingFile, ...]]:
    """Find the decided files that are there neither as upload nor as object. Another object at a
    file's key does not count. Changes nothing.

    Uploads are listed before the objects are checked, so a file that another process completes in
    between is found. The heads are read last, and only partitions that still carry the job's claim
    count: once a head has moved, a later job may have removed the files.

    :return: the lost files; none on a store that does not list uploads, where they are unknown.
    """
    if not context.facts.uploads_listed:
        return ()
    decision = decided.decision
    listed = yield from list_uploads(context)
    uploads = {(upload.key, upload.upload_id) for upload in listed}
    missing = [file for file in decision.files if (file.key, file.upload_id) not in uploads]
    looks = yield from All(tuple(Head(file.key) for file in missing))
    claimed = yield from _claimed(context, decision)
    return tuple(
        file
        for file, found in zip(missing, looks, strict=True)
        if not is_that_file(found, decision.job, file) and file.partition in claimed
    )


def _claimed(context: Context, decision: Decision) -> Step[set[str]]:
    """Return the partitions whose heads carry the job's claim. Heads that cannot be read are left
    out: recovery and the doctor name them."""
    slots = [Slot.partition(context.root, change.partition) for change in decision.partitions]
    states = yield from All(tuple(or_damage(read_head(context, slot)) for slot in slots))
    heads = (state for state in states if isinstance(state, HeadState))
    return {state.slot.name for state in heads if state.head.claim == decision.job}


def without(decision: Decision, lost: Collection[PendingFile]) -> Decision:
    """Return the decision with ``lost`` moved from each partition's files to its losses."""
    changes = tuple(
        replace(
            change,
            files=tuple(file for file in change.files if file not in lost),
            lost=change.lost + tuple(file for file in change.files if file in lost),
        )
        for change in decision.partitions
    )
    return replace(decision, partitions=changes)


def _removed_with(decision: Decision, lost: Collection[PendingFile]) -> int:
    partitions = {file.partition for file in lost}
    return sum(len(c.removals) for c in decision.partitions if c.partition in partitions)
