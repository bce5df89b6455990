"""Conflicts of runs that load by Hadoop's committers: which gives way, and what is said of it.

Nothing binds such a job's commit to what it found, so runs are kept from meeting: a try is on
record before it looks, and one that sees another at work gives way (:mod:`~.s3a.runs.rivals`). What
slips through, since a run counted as dead or another program wrote, is found after the commit: no
policy can undo that, and the task says so at each try until somebody loads the partitions again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...committer.commit.newest_run import superseded_run
from ...committer.errors import (
    CommitConflictError,
    InvalidInputError,
    OutcomeUnknownError,
    first_few,
)
from ...committer.format.job_spec import Mode, OnConflict, OnSuperseded
from ...s3a.runs.rivals import living_rivals, loaded_partitions, replaces, said_of, written_rivals
from ...s3a.runs.try_record import SETTLED, TryRecord

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConflictPolicy:
    """What a load does about other runs of its partitions.

    :param on_conflict: ``last_wins`` only notes them.
    :param on_superseded: of partitions that newer runs have loaded, under *newest_run*.
    """

    on_conflict: OnConflict = OnConflict.FAIL
    on_superseded: OnSuperseded = OnSuperseded.FAIL


#: Where nothing is said.
USUAL = ConflictPolicy()


def check_policy(policy: ConflictPolicy, mode: Mode | None, names_partitions: bool) -> None:
    """Refuse a policy that Hadoop's committers cannot keep to.

    :raises InvalidInputError: *newest_run* without partitions, or without a mode; skipping without
        *newest_run*.
    """
    if policy.on_conflict is not OnConflict.NEWEST_RUN:
        if policy.on_superseded is OnSuperseded.SKIP:
            raise InvalidInputError(
                f"on_superseded=skip is about runs that give way to newer ones, and on_conflict="
                f"{policy.on_conflict} lets none; nothing was submitted.",
                remedy="Give on_conflict=newest_run as well, or leave on_superseded out.",
            )
        return
    if not names_partitions or mode not in (Mode.APPEND, Mode.REPLACE):
        what = "partition names none" if not names_partitions else "mode is not append or overwrite"
        raise InvalidInputError(
            f"on_conflict=newest_run compares runs of the same partitions, and {what}; with one of "
            "Hadoop's committers nothing looks again as the job commits. Nothing was submitted.",
            remedy="Name the partitions and the mode, or let committer='zero_rename' write.",
        )


def refuse_rivals(table: Table, mine: TryRecord, policy: ConflictPolicy) -> None:
    """Give way to another run, before anything is submitted.

    :param mine: the try, which is on record.
    :raises CommitConflictError: under *fail* another run that opened before is at work. Final: the
        next try would not see it, and write over its rows.
    :raises OutcomeUnknownError: one opened in the same second, and gives way as well; or it is at
        work, and the policy is *newest_run*: which is newer is asked again when it has ended.
    :raises SupersededRunError: newer runs have loaded the partitions.
    """
    if policy.on_conflict is OnConflict.NEWEST_RUN:
        _refuse_superseded(table, mine, policy)
    rivals = table.run(living_rivals(table.root, mine))
    if not rivals:
        return
    named = first_few([said_of(it) for it in rivals])
    if policy.on_conflict is OnConflict.LAST_WINS:
        _log.warning("At work on the same partitions, and on_conflict is last_wins: %s", named)
        return
    earlier = [it for it in rivals if it.opened_at < mine.opened_at]
    if policy.on_conflict is OnConflict.FAIL and earlier:
        raise CommitConflictError(
            f"Another run is at work on the same partitions: {named}. Nothing was submitted.",
            table=table.root.url,
            job=mine.uuid,
            remedy="Clear the task when that run has ended: it then loads on top of its rows. Or "
            "choose on_conflict='last_wins'.",
        )
    raise OutcomeUnknownError(
        f"Another run is at work on the same partitions: {named}. Nothing was submitted.",
        table=table.root.url,
        job=mine.uuid,
        remedy="Let the task be retried when that run has ended.",
    )


def _refuse_superseded(table: Table, mine: TryRecord, policy: ConflictPolicy) -> None:
    """:raises SupersededRunError: newer runs have loaded all partitions, or some; a committer of
    Hadoop's cannot leave out some.
    :raises InvalidInputError: ranks of two kinds."""
    loaded = table.run(loaded_partitions(table.root, mine))
    found = {
        name: said_of(it.by)
        for name, it in loaded.items()
        if it.ranks.supersede(mine.rank, replaces(mine))
    }
    if not found:
        return
    skips = policy.on_superseded is OnSuperseded.SKIP and len(found) == len(mine.partitions)
    error = superseded_run(found, skips)
    left = sorted(set(mine.partitions) - found.keys())
    if left:
        error.message += f" It would have written {first_few(left)} besides: load these alone."
    raise error


def ended_before(table: Table, mine: TryRecord) -> frozenset[str]:
    """The other runs of the partitions that ended in the second in which a try opened, by the UUIDs
    of their tries. Asked before anything is submitted: the store's times have whole seconds."""
    rivals = table.run(written_rivals(table.root, mine))
    return frozenset(it.uuid for it in rivals if it.state in SETTLED)


def met(table: Table, mine: TryRecord, before: Collection[str]) -> str:
    """Say which other runs wrote the partitions of a try while it was at work; ``""`` for none.
    Nobody can tell whose rows are there.

    :param before: those that had ended when it began.
    """
    rivals = [it for it in table.run(written_rivals(table.root, mine)) if it.uuid not in before]
    if not rivals:
        return ""
    named = first_few([said_of(it) for it in rivals])
    return f"Another run wrote the same partitions while this one was at work: {named}."


def conflict_error(table: Table, job: str, said: str) -> CommitConflictError:
    """The error of a load that has committed beside another one.

    :param said: of :func:`met`.
    """
    return CommitConflictError(
        f"{said} This run has committed, and so has the other one, or it is about to: nobody can "
        "tell whose rows are there, or whether all are.",
        table=table.root.url,
        job=job,
        remedy="Look which rows are there. Then clear the task of the run whose rows are to stay, "
        "when both have ended: it replaces the partitions. A retry says this again.",
    )
