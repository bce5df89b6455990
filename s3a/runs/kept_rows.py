"""Settlement of a conflict in favour of the run whose rows are visible.

Nothing is loaded again. The ledger records that the other runs have lost, and each of their
attempts reads this.
"""

from __future__ import annotations

from dataclasses import replace

from ...committer.errors import InvalidInputError, OtherJobError
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.records.run_conflict import ConflictCause, ConflictingRun, RunConflict
from ...committer.format.settling import Settling
from ...committer.store.requests import Step
from . import ledger
from .rivals import is_at_work, loads_of_others, meet, met_others, said_of
from .try_record import COMMITTED, TryRecord

_REMEDY = "Look for conflicts again, and resolve what is found."


def find_visible(root: TableRoot, conflict: RunConflict, winner: ConflictingRun) -> Step[TryRecord]:
    """Find the attempt whose rows are visible in a partition in conflict. Changes nothing.

    :param winner: the run that is to win the conflict.
    :raises InvalidInputError: another run has loaded the partition last, or wrote at the same time
        as the winner, so that rows of both may be there; or the record of an attempt cannot be
        read.
    :raises OtherJobError: a run is at work there, or may have written; or the winner's attempt is
        not known to have committed all that it was to write.
    """
    partition = conflict.partition
    named = () if partition == UNPARTITIONED else (partition,)
    # Before the loads: a run that ends between the two reads is found by the second.
    tries = yield from ledger.open_tries(root)
    loads = yield from loads_of_others(root, TryRecord("", "", winner.owner, "", None, named))
    at_work = [
        it.record for it in tries.known if is_at_work(it) and meet(it.record.partitions, named)
    ]
    if met := [*at_work, *loads.doubtful]:
        raise OtherJobError(
            f"{said_of(met[0])} is at work, and may write {conflict.name}. Nothing was changed.",
            job=met[0].uuid,
            remedy="Settle the conflict when that run has ended. One whose worker has died is "
            "settled by its next attempt, or by `zero-rename s3a-recover --apply`.",
        )
    if tries.damage:
        raise InvalidInputError(
            "The record of an attempt cannot be read, so nobody can tell whether it is at work "
            f"there. Nothing was changed. {tries.damage}",
            remedy="Restore that object from a version or backup.",
        )
    wrote = any(not it.gave_way for it in conflict.runs if it.key != winner.key)
    if wrote and conflict.cause is ConflictCause.OVERLAPPED:
        raise _beside_another(conflict, winner)
    loaded = loads.partitions.get(partition)
    if loaded is None or loaded.by.idempotency_key != winner.key:
        by = "no run" if loaded is None else said_of(loaded.by)
        raise InvalidInputError(
            f"{conflict.name} has changed since the conflict was looked at: {by} has loaded it "
            "last by now. Nothing was changed.",
            remedy=_REMEDY,
        )
    if wrote and met_others(loaded.by):
        raise _beside_another(conflict, winner)
    if loaded.by.state != COMMITTED:
        raise OtherJobError(
            f"{said_of(loaded.by)} has written {conflict.name}, and its end is not on record: its "
            "next attempt may undo it, and the settlement with it. Nothing was changed.",
            job=loaded.by.uuid,
            remedy="Settle the conflict when that run has ended well.",
        )
    return loaded.by


def _beside_another(conflict: RunConflict, winner: ConflictingRun) -> InvalidInputError:
    """Build the error of a run that wrote at the same time as another one."""
    return InvalidInputError(
        f"{winner} was at work on {conflict.name} beside another run, so nobody can tell whose "
        "rows are there, or whether all are. Nothing was changed.",
        remedy="Let the run that is to stand load the partition again.",
    )


def note_settled(
    root: TableRoot, record: TryRecord, partition: str, settling: Settling
) -> Step[None]:
    """Enter into an attempt's record that a conflict is settled in its favour. Idempotent.

    :raises OutcomeUnknownError: the store does not say whether it is recorded.
    :raises InvalidInputError: the attempt has no record any more.
    """

    def noted(found: TryRecord, _: float) -> TryRecord:
        return found.with_kept(partition, settling)

    if (yield from ledger.change(root, record, noted)) is None:
        raise InvalidInputError(
            f"{said_of(record)} is not on record any more. Nothing was changed.", remedy=_REMEDY
        )


def forget_settled(root: TableRoot, record: TryRecord, partition: str) -> Step[None]:
    """Remove the settlement of a conflict from an attempt's record, as it was before it was noted.

    :param record: as it was read before that.
    :raises OutcomeUnknownError: the store does not say whether it is removed.
    """

    def removed(found: TryRecord, _: float) -> TryRecord:
        others = {name: it for name, it in found.kept.items() if name != partition}
        before = {name: it for name, it in record.kept.items() if name == partition}
        return replace(found, kept={**others, **before})

    yield from ledger.change(root, record, removed)
