"""Conflicts of runs that load by Hadoop's committers: which gives way, and what is said of it.

Nothing binds such a job's commit to what it found, so runs are kept from meeting: a try is on
record before it looks, and one that sees another at work gives way (:mod:`~.s3a.runs.rivals`). What
slips through, since a run counted as dead or another program wrote, is found after the commit: no
policy can undo that, and the task says so at each try until somebody loads the partitions again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...committer.commit.newest_run import SupersededBy, called, superseded_run
from ...committer.errors import (
    CommitConflictError,
    DamagedError,
    InvalidInputError,
    OutcomeUnknownError,
    SupersededRunError,
    first_few,
)
from ...committer.format.job_spec import Mode, OnConflict, OnSuperseded, check_superseded
from ...committer.format.records.partition_ranks import NO_RANKS
from ...s3a.runs.rivals import (
    Loads,
    living_rivals,
    loads_of_others,
    replaces,
    said_of,
    written_at,
    written_rivals,
)
from ...s3a.runs.try_record import SETTLED, TryRecord, WriteRecord

if TYPE_CHECKING:
    from ...committer import Table
    from ...committer.rival_wait import RivalWait

_log = logging.getLogger(__name__)
_UNREAD = (
    "The record of another try cannot be read, so nobody can tell whether it is at work on the "
    "same partitions, or has loaded them"
)


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
    check_superseded(policy.on_conflict, policy.on_superseded, "nothing was submitted")
    if policy.on_conflict is not OnConflict.NEWEST_RUN:
        return
    if not names_partitions or mode not in (Mode.APPEND, Mode.REPLACE):
        what = "partition names none" if not names_partitions else "mode is not append or overwrite"
        raise InvalidInputError(
            f"on_conflict=newest_run compares runs of the same partitions, and {what}; with one of "
            "Hadoop's committers nothing looks again as the job commits. Nothing was submitted.",
            remedy="Name the partitions and the mode, or let committer='zero_rename' write.",
        )


def find_rivals(
    table: Table,
    mine: TryRecord,
    policy: ConflictPolicy,
    planned: Mapping[str, int] | None = None,
    waits: bool = False,
) -> tuple[TryRecord, ...]:
    """Find other runs at work on the partitions of a try, before anything is submitted.

    :param mine: the try, which is on record.
    :param planned: of a try that settles a conflict, how many tries of other runs had loaded each
        partition as that was planned. Its rank is not compared.
    :param waits: the try waits for them. What one that is at work has committed, it asks when that
        has ended.
    :raises CommitConflictError: the try settles a conflict, and another run has loaded since.
    :raises OutcomeUnknownError: nobody can tell whether one is at work, or has loaded the
        partitions, also since the record of a try cannot be read.
    :raises SupersededRunError: newer runs have loaded the partitions, or a conflict over them was
        settled against this one.
    """
    # First, so that one which ends between the two looks is seen by the second.
    found = table.run(living_rivals(table.root, mine))
    loads_are_asked = (
        planned is not None
        or policy.on_conflict is OnConflict.NEWEST_RUN
        or was_tried(mine, policy)
    )
    if loads_are_asked:
        try:
            loads = table.run(loads_of_others(table.root, mine))
        except DamagedError as error:
            raise _unread(table, mine, str(error), planned is not None) from error
        if waits and found.known:
            loads = replace(loads, doubtful=())
        if planned is not None:
            _refuse_moved(table, mine, planned, loads)
        else:
            _refuse_superseded(table, mine, policy, loads)
    if found.damage:
        if policy.on_conflict is not OnConflict.LAST_WINS:
            raise _unread(table, mine, found.damage)
        _log.warning("%s, and on_conflict is last_wins: %s", _UNREAD, found.damage)
    return found.known


def _unread(
    table: Table, mine: TryRecord, damage: str, settles: bool = False
) -> OutcomeUnknownError:
    """Build the error of a try beside the record of another one that cannot be read.

    :param settles: the try settles a conflict, which it does under no policy then.
    """
    remedy = "Restore that object from a version or backup"
    other = "" if settles else "; or choose on_conflict='last_wins', which does not ask"
    return OutcomeUnknownError(
        f"{_UNREAD}. Nothing was submitted. {damage}",
        table=table.root.url,
        job=mine.uuid,
        remedy=f"{remedy}{other}.",
    )


def refuse_rivals(
    table: Table,
    mine: TryRecord,
    policy: ConflictPolicy,
    rivals: Sequence[TryRecord],
    waiting: RivalWait | None = None,
) -> None:
    """Give way to other runs that are at work, before anything is submitted.

    :param waiting: how long the try has waited for them; ``None``: it does not wait.
    :raises CommitConflictError: under *fail* another run is at work that opened before, or in the
        same second and this one gives way. Final: the next try would not see it, and write over
        its rows.
    :raises OutcomeUnknownError: one that was to give way goes on, since it did not see this one; or
        it is at work, and the policy is *newest_run*: which is newer is asked again when it has
        ended.
    """
    if not rivals:
        return
    named = first_few([said_of(it) for it in rivals])
    after = "" if waiting is None else f" after wait_for_other_runs={waiting.longest:.0f} s"
    if policy.on_conflict is OnConflict.LAST_WINS:
        _log.warning(
            "At work on the same partitions%s, and on_conflict is last_wins: %s", after, named
        )
        return
    said = f"Another run is at work on the same partitions{after}: {named}. Nothing was submitted."
    if policy.on_conflict is OnConflict.FAIL and not keeps_its_turn(mine, rivals):
        raise CommitConflictError(
            said,
            table=table.root.url,
            job=mine.uuid,
            remedy="Load again when that run has ended, on top of its rows: clear Airflow's task, "
            "or materialize Dagster's asset. Or wait for it longer, by wait_for_other_runs; or "
            "choose on_conflict='last_wins'.",
        )
    raise OutcomeUnknownError(
        said,
        table=table.root.url,
        job=mine.uuid,
        remedy="Let the task be retried when that run has ended.",
    )


def keeps_its_turn(mine: TryRecord, rivals: Iterable[TryRecord]) -> bool:
    """Tell whether a try stays on record: all that it sees opened in the same second and give way
    to it, if they have seen it. Of two, the one with the lower rank gives way, and of equal ranks
    the one with the lower UUID."""
    return all(it.opened_at == mine.opened_at and _is_before(it, mine) for it in rivals)


def _is_before(other: TryRecord, mine: TryRecord) -> bool:
    ranks = [(it.rank.value, it.rank.then) for it in (other, mine) if it.rank is not None]
    kinds = {it.rank.kind for it in (other, mine) if it.rank is not None}
    if len(ranks) == 2 and len(kinds) == 1 and ranks[0] != ranks[1]:
        return ranks[0] < ranks[1]
    return other.uuid < mine.uuid


def was_tried(mine: TryRecord, policy: ConflictPolicy) -> bool:
    """Tell whether a try may be of a run against which a conflict was settled: of a task that was
    tried before, and does not say *last_wins*."""
    may_lose = policy.on_conflict is not OnConflict.LAST_WINS
    return may_lose and (mine.owner.try_number or 1) > 1


def _refuse_moved(table: Table, mine: TryRecord, planned: Mapping[str, int], loads: Loads) -> None:
    """:raises CommitConflictError: another run has loaded a partition since it was planned that
    this one settles a conflict.
    :raises OutcomeUnknownError: nobody knows whether one has."""
    for it in loads.doubtful:
        raise _in_doubt(table, mine, "Another run", it)
    numbers = {name: it.number for name, it in loads.partitions.items()}
    moved = [name for name, number in planned.items() if numbers.get(name, 0) != number]
    if moved:
        named = first_few([called(name) for name in moved])
        raise CommitConflictError(
            f"This run was to settle a conflict over {named}, and another run has loaded there "
            "since that was planned. Nothing was submitted, and nothing is settled.",
            table=table.root.url,
            job=mine.uuid,
            remedy="Look for conflicts again, and resolve what is found.",
        )


def _refuse_superseded(table: Table, mine: TryRecord, policy: ConflictPolicy, loads: Loads) -> None:
    """:raises SupersededRunError: newer runs have loaded all partitions, or some, or a conflict was
    settled against this one; a committer of Hadoop's cannot leave out some.
    :raises InvalidInputError: ranks of two kinds.
    :raises OutcomeUnknownError: nobody knows whether a newer run has loaded some."""
    compares = policy.on_conflict is OnConflict.NEWEST_RUN
    found = superseding(loads, mine, compares)
    if not found:
        if compares:
            _refuse_doubtful(table, mine, loads.doubtful)
        return
    skips = policy.on_superseded is OnSuperseded.SKIP and len(found) == len(mine.partitions)
    error = superseded_run(found, skips)
    left = sorted(set(mine.partitions) - found.keys())
    if left:
        error.message += f" It would have written {first_few(left)} besides: load these alone."
    raise error


def superseding(loads: Loads, mine: TryRecord, compares: bool) -> dict[str, SupersededBy]:
    """Find the partitions in which the run of a try gives way.

    :param compares: whether it gives way to newer runs; else only where a conflict was settled
        against it.
    :raises InvalidInputError: ranks of two kinds.
    """
    run = mine.idempotency_key
    return {
        name: SupersededBy(
            said_of(it.by),
            it.ranks.settled.stands if it.ranks.settled and it.ranks.has_lost(run) else None,
        )
        for name, it in loads.partitions.items()
        if it.ranks.has_lost(run)
        or (
            compares
            and it.ranks.supersede(mine.rank, replaces(mine), run, f"in {name or 'the table'}")
        )
    }


def settled_against(table: Table, mine: TryRecord) -> SupersededRunError | None:
    """Build the error of a run that has committed beside another one, once that conflict is settled
    against it; ``None``: it is not."""
    found = superseding(table.run(loads_of_others(table.root, mine)), mine, compares=False)
    return superseded_run(found, skips=False) if found else None


def _refuse_doubtful(table: Table, mine: TryRecord, doubtful: Iterable[TryRecord]) -> None:
    """:raises OutcomeUnknownError: one of them is a newer run, which may have committed."""
    for it in doubtful:
        if NO_RANKS.after(it.rank, replaces(it)).supersede(mine.rank, replaces(mine)):
            raise _in_doubt(table, mine, "A newer run", it)


def _in_doubt(table: Table, mine: TryRecord, who: str, other: TryRecord) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{who} has begun to write the same partitions, and nobody knows yet whether it has "
        f"committed: {said_of(other)}. Nothing was submitted.",
        table=table.root.url,
        job=mine.uuid,
        remedy="Let the task be retried when that run has ended. If its worker has died, its next "
        "try says what it did, or RecoverS3AJobsOperator.",
    )


def ended_before(table: Table, mine: TryRecord) -> frozenset[str]:
    """Return the UUIDs of tries of other runs of the partitions that ended in the second in which a
    try opened. Asked before anything is submitted: the store's times have whole seconds. None
    where a record cannot be read, which :func:`met` tells."""
    try:
        rivals = table.run(written_rivals(table.root, mine))
    except DamagedError:
        return frozenset()
    return frozenset(it.uuid for it in rivals if it.state in SETTLED)


def met(table: Table, mine: TryRecord, before: Collection[str]) -> str:
    """Say which other runs wrote the partitions of a try while it was at work; ``""`` for none.
    Nobody can tell whose rows are there.

    :param before: those that had ended when it began.
    """
    return _said_of_met(table, mine, lambda it: it.uuid not in before)


def met_unseen(table: Table, mine: TryRecord, writes: Iterable[WriteRecord]) -> str:
    """:func:`met` for a try whose worker did not live to look, by the times on record: what ended
    in the second in which it opened had ended before its application began.

    :param writes: what it is known to have committed.
    """
    ended = [it.ended_at for it in writes]
    until = max(ended) if all(ended) else math.inf

    def is_between(it: TryRecord) -> bool:
        had_ended = it.state in SETTLED and written_at(it) < int(mine.opened_at) + 1
        return it.opened_at <= until and not had_ended

    return _said_of_met(table, mine, is_between)


def _said_of_met(table: Table, mine: TryRecord, counts: Callable[[TryRecord], bool]) -> str:
    try:
        found = table.run(written_rivals(table.root, mine))
    except DamagedError as error:
        return (
            "The record of another try cannot be read, so nobody can tell whether it wrote the "
            f"same partitions while this run was at work: {error}"
        )
    rivals = [it for it in found if counts(it)]
    if not rivals:
        return ""
    named = first_few([said_of(it) for it in rivals])
    return f"Another run wrote the same partitions while this one was at work: {named}."


def conflict_error(table: Table, job: str, said: str, mode: Mode | None) -> CommitConflictError:
    """Build the error of a load that has committed beside another one.

    :param said: of :func:`met`.
    :param mode: of the load; ``None``: only its application knows.
    """
    return CommitConflictError(
        f"{said} This run has committed, and so has the other one, or it is about to: nobody can "
        "tell whose rows are there, or whether all are.",
        table=table.root.url,
        job=job,
        remedy=_AFTER_APPEND if mode is Mode.APPEND else _AFTER_REPLACE,
    )


_AFTER_REPLACE = (
    "Look which rows are there. Then clear the task of the run whose rows are to stay, when both "
    "have ended: it replaces the partitions. A retry says this again."
)
_AFTER_APPEND = (
    "This run appended, so do not clear it before you know which of its rows are there: cleared, "
    "it adds all of them. When both have ended, look for its files. If all are there, mark the "
    "task as successful. If none is, clear the task with on_repeat='append'. If some are, remove "
    "these first. To have the rows of the other run alone, remove this one's, and clear that one. "
    "A retry says this again."
)
