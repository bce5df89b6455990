"""Loads by Hadoop's committers that forbid to settle a conflict of this package's own runs."""

from __future__ import annotations

import math
from dataclasses import replace

from ...committer.errors import InvalidInputError, OtherJobError, first_few
from ...committer.format.job_spec import NOBODY, Mode
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.records.run_conflict import RunConflict
from ...committer.store.requests import Step
from .rivals import living_rivals, said_of, written_rivals
from .try_record import TryRecord


def refuse_later_loads(root: TableRoot, conflict: RunConflict) -> Step[None]:
    """Refuse to settle a conflict if one of Hadoop's committers wrote the partition later.

    Such a load may have replaced rows of the runs in conflict, which cannot be brought back, and
    its own rows would be removed. It is also refused if such a load is at work on the partition.
    Two LISTs for each thousand attempts, and a GET for each that is open or has ended since.
    Changes nothing.

    :raises OtherJobError: a run is at work on the partition, or a record that cannot be read may be
        that of one.
    :raises InvalidInputError: a run has loaded it since, or may have.
    :raises RecordDamagedError: the record of an attempt that ended since cannot be read.
    """
    partition = conflict.partition
    named = () if partition == UNPARTITIONED else (partition,)
    since = max((it.at for it in conflict.runs if not it.gave_way), default=0.0)
    ours = TryRecord("", "", NOBODY, "", Mode.REPLACE, named, opened_at=since)
    # Before the ended runs: one that ends between the two reads is found by the second.
    living = yield from living_rivals(root, replace(ours, opened_at=math.inf))
    if living.known:
        raise OtherJobError(
            f"{said_of(living.known[0])} is at work, and may write {conflict.name}. Nothing was "
            "changed.",
            job=living.known[0].uuid,
            remedy="Settle the conflict when that run has ended. One whose worker has died is "
            "settled by its next attempt, or by `zero-rename s3a-recover --apply`.",
        )
    if living.damage:
        raise OtherJobError(
            "The record of an attempt cannot be read, so nobody can tell whether it is at work on "
            f"{conflict.name}. Nothing was changed. {living.damage}",
            remedy="Restore that object from a version or backup.",
        )
    later = yield from written_rivals(root, ours)
    if later:
        raise InvalidInputError(
            f"{first_few([said_of(it) for it in later])} has loaded {conflict.name} by one of "
            "Hadoop's committers since the runs that conflict over it, or may have: what a replace "
            "took the place of is not there any more, and its own rows would go. Nothing was "
            "changed.",
            remedy="Load the partition again by the task that is to own it, with "
            "on_conflict='last_wins'.",
        )
