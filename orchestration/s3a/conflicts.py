"""Conflicts of runs that load by Hadoop's committers: the run that gives way, and its errors.

The commit of such a job cannot depend on the state that it found. So runs are kept apart: an
attempt writes its record before it looks for others, and one that sees another at work gives way
(:mod:`~.s3a.runs.rivals`). Some conflicts are only found after the commit: a run that counted as
dead has written, or another program. No policy can undo these. The task fails with the conflict at
each attempt until the partitions are loaded again.
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
    "The record of another attempt cannot be read, so nobody can tell whether it is at work on the "
    "same partitions, or has loaded them"
)


@dataclass(frozen=True)
class ConflictPolicy:
    """Policy of a load for other runs of its partitions.

    :param on_conflict: ``last_wins`` only reports them.
    :param on_superseded: for partitions that newer runs have loaded, under *newest_run*.
    """

    on_conflict: OnConflict = OnConflict.FAIL
    on_superseded: OnSuperseded = OnSuperseded.FAIL


#: The policy if none is given.
USUAL = ConflictPolicy()


def check_policy(policy: ConflictPolicy, mode: Mode | None, names_partitions: bool) -> None:
    """Refuse a policy that Hadoop's committers cannot keep.

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
    """Find other runs at work on the partitions of an attempt, before anything is submitted.

    :param mine: the attempt, whose record is written already.
    :param planned: for an attempt that settles a conflict: by partition, the number of attempts of
        other runs that had loaded it when the settlement was planned. Its rank is not compared.
    :param waits: the attempt waits for the runs at work. It asks for their commits when they have
        ended.
    :raises CommitConflictError: the attempt settles a conflict, and another run has loaded since.
    :raises OutcomeUnknownError: it is not known whether another run is at work or has loaded the
        partitions, for example since the record of an attempt cannot be read.
    :raises SupersededRunError: newer runs have loaded the partitions, or a conflict over them was
        settled against this run.
    """
    # Before the loads: a run that ends between the two queries then shows in the second.
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
    """Build the error of an attempt for which the record of another attempt cannot be read.

    :param settles: the attempt settles a conflict; then no other policy is a remedy.
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

    :param waiting: the time that the attempt has waited for them; ``None``: it does not wait.
    :raises CommitConflictError: under *fail*, another run is at work that opened before this one,
        or in the same second so that this one gives way. This is final: a retry might not see the
        other run any more, and would write over its rows.
    :raises OutcomeUnknownError: a run that should have given way goes on, since it did not see this
        one. Or another run is at work under *newest_run*: a retry asks which run is newer when the
        other one has ended.
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
    """Return whether all rivals of an attempt must give way to it.

    They must if they opened in the same second and are lower: of two such attempts, the one with
    the lower rank gives way, and with equal ranks the one with the lower UUID. A rival that has not
    seen this attempt does not do so.
    """
    return all(it.opened_at == mine.opened_at and _is_before(it, mine) for it in rivals)


def _is_before(other: TryRecord, mine: TryRecord) -> bool:
    ranks = [(it.rank.value, it.rank.then) for it in (other, mine) if it.rank is not None]
    kinds = {it.rank.kind for it in (other, mine) if it.rank is not None}
    if len(ranks) == 2 and len(kinds) == 1 and ranks[0] != ranks[1]:
        return ranks[0] < ranks[1]
    return other.uuid < mine.uuid


def was_tried(mine: TryRecord, policy: ConflictPolicy) -> bool:
    """Return whether a conflict may have been settled against the run of an attempt.

    It may have been only if the task had an earlier attempt. Under *last_wins* it has no effect, so
    the result is false.
    """
    may_lose = policy.on_conflict is not OnConflict.LAST_WINS
    return may_lose and (mine.owner.try_number or 1) > 1


def _refuse_moved(table: Table, mine: TryRecord, planned: Mapping[str, int], loads: Loads) -> None:
    """Refuse to settle a conflict over partitions that have changed since the plan.

    :raises CommitConflictError: another run has loaded one of them since.
    :raises OutcomeUnknownError: it is not known whether another run has.
    """
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
    """Refuse a run that gives way in some of its partitions.

    Hadoop's committers cannot leave out only some of them.

    :raises SupersededRunError: newer runs have loaded one of the partitions, or a conflict over it
        was settled against this run.
    :raises InvalidInputError: ranks of two kinds, which cannot be compared.
    :raises OutcomeUnknownError: it is not known whether a newer run has loaded one of them.
    """
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
    """Find the partitions in which the run of an attempt gives way.

    :param compares: the run also gives way to newer runs; otherwise only in partitions where a
        conflict was settled against it.
    :raises InvalidInputError: ranks of two kinds, which cannot be compared.
    """
    run, loaded = mine.idempotency_key, {**loads.contested, **loads.partitions}
    return {
        name: SupersededBy(
            said_of(it.by),
            it.ranks.settled.stands if it.ranks.settled and it.ranks.has_lost(run) else None,
        )
        for name, it in loaded.items()
        if it.ranks.has_lost(run)
        or (
            compares
            and name in loads.partitions
            and it.ranks.supersede(mine.rank, replaces(mine), run, f"in {name or 'the table'}")
        )
    }


def settled_against(table: Table, mine: TryRecord) -> SupersededRunError | None:
    """Build the error of a run that has committed, and whose conflict was settled against it.

    :return: ``None`` if no conflict was settled against it.
    """
    found = superseding(table.run(loads_of_others(table.root, mine)), mine, compares=False)
    return superseded_run(found, skips=False) if found else None


def _refuse_doubtful(table: Table, mine: TryRecord, doubtful: Iterable[TryRecord]) -> None:
    """Refuse a run while a newer one may have committed.

    :param doubtful: attempts of other runs whose end is not known.
    :raises OutcomeUnknownError: one of them is newer.
    """
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
        "attempt says what it did, or `zero-rename s3a-recover`.",
    )


def ended_before(table: Table, mine: TryRecord) -> frozenset[str]:
    """Return the UUIDs of other runs' attempts that ended before the application of an attempt.

    They wrote the same partitions and ended in the second in which this attempt opened: the store's
    times have whole seconds. So this must be asked before anything is submitted. If a record cannot
    be read, the result is empty; :func:`met` reports the damage.
    """
    try:
        rivals = table.run(written_rivals(table.root, mine))
    except DamagedError:
        return frozenset()
    return frozenset(it.uuid for it in rivals if it.state in SETTLED)


def met(table: Table, mine: TryRecord, before: Collection[str]) -> str:
    """Describe other runs that wrote the partitions of an attempt while it was at work.

    Then it is not known whose rows are there.

    :param before: UUIDs of attempts that had ended when it began.
    :return: ``""`` if there are none.
    """
    return _said_of_met(table, mine, lambda it: it.uuid not in before)


def met_unseen(table: Table, mine: TryRecord, writes: Iterable[WriteRecord]) -> str:
    """Describe the same as :func:`met` for an attempt whose worker has died.

    It goes by the recorded times: an attempt that ended in the second in which this one opened
    counts as ended before this one's application began.

    :param writes: the writes that the attempt is known to have committed.
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
            "The record of another attempt cannot be read, so nobody can tell whether it wrote the "
            f"same partitions while this run was at work: {error}"
        )
    rivals = [it for it in found if counts(it)]
    if not rivals:
        return ""
    named = first_few([said_of(it) for it in rivals])
    return f"Another run wrote the same partitions while this one was at work: {named}."


def conflict_error(table: Table, job: str, said: str, mode: Mode | None) -> CommitConflictError:
    """Build the error of a load that committed while another run wrote the same partitions.

    :param said: the result of :func:`met`.
    :param mode: of the load; ``None``: only its application knows it.
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
