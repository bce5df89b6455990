"""Runs that give way to others in a partition.

Under ``on_conflict=newest_run`` a run gives way to newer ones. Under any policy but *last_wins* it
gives way to a run in whose favour a conflict was settled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ..errors import RefusedError, SupersededRunError, first_few
from ..format.job_spec import Mode, OnConflict, OnSuperseded
from ..format.layout import UNPARTITIONED
from ..format.records.head import HeadState, Slot
from ..format.run_rank import RunRank, RunRanks
from ..format.schema.hive_paths import normalise_partition
from ..store.requests import All, Step
from .state.context import Context
from .state.found_table import find_table
from .state.heads import read_head
from .state.job_state import OpenedJob


@dataclass(frozen=True)
class SupersededBy:
    """Job or run to which a run gives way in a partition.

    :param job: the job that wrote the partition last, for a message.
    :param settled_for: the key of the run in whose favour a conflict was settled; ``None``: there
        was no settlement, and the run gives way since it is older.
    """

    job: str
    settled_for: str | None = None

    @staticmethod
    def of(state: HeadState, run: str | None) -> SupersededBy:
        """Build this from a head, for a run that gives way there."""
        ranks = state.head.ranks
        winner = ranks.settled.stands if ranks.settled and ranks.has_lost(run) else None
        return SupersededBy(state.head.last_job or "an unknown job", winner)


def is_superseded(opened: OpenedJob, state: HeadState, replaces: bool) -> bool:
    """Return whether a job's run gives way to another one in a partition.

    It gives way if a newer run has loaded the partition, or a conflict over it was settled against
    the job's run. A job that settles a conflict there never gives way.

    :raises InvalidInputError: the ranks of the two do not compare.
    """
    name, spec = state.slot.name, opened.spec
    if state.slot.is_run or name in opened.settles:
        return False
    return _gives_way(
        state, spec.on_conflict, spec.idempotency_key, partial(opened.rank, name), replaces
    )


def _gives_way(
    state: HeadState,
    policy: OnConflict,
    run: str | None,
    rank: Callable[[], RunRank | None],
    replaces: bool,
) -> bool:
    ranks = state.head.ranks
    if policy is OnConflict.LAST_WINS:
        return False
    if ranks.has_lost(run):
        return True
    where = f"in {called(state.slot.name)}"
    return policy is OnConflict.NEWEST_RUN and ranks.supersede(rank(), replaces, run, where)


def is_newest(opened: OpenedJob, state: HeadState, replaces: bool) -> bool:
    """Return whether all rows that a job would replace or add to are of older runs.

    Changes since the job opened then count as if they had come before.
    """
    if opened.spec.on_conflict is not OnConflict.NEWEST_RUN or state.slot.is_run:
        return False
    rank = opened.rank(state.slot.name)
    return rank is not None and rank.is_newer_than(state.head.ranks.against(replaces))


def refuse_superseded(opened: OpenedJob, states: Iterable[HeadState]) -> None:
    """Refuse a job as it opens, by the heads of partitions that it will certainly write.

    So no rows are computed that would then be left out.

    :raises SupersededRunError: newer runs have loaded those partitions.
    """
    replaces, only = opened.spec.mode is Mode.REPLACE, opened.narrowed
    own = (it for it in states if only is None or it.slot.name in only)
    run = opened.spec.idempotency_key
    found = {
        it.slot.name: SupersededBy.of(it, run) for it in own if is_superseded(opened, it, replaces)
    }
    named = {*(opened.spec.replace_partitions or ())} if opened.partition_by else {UNPARTITIONED}
    if only is not None:
        named &= only
    try:
        refuse_overtaken(found, named, opened.spec.on_superseded)
    except SupersededRunError as error:
        name_ranks(opened, error)
        raise


def name_ranks(opened: OpenedJob, error: RefusedError) -> None:
    """Record in an error how new a job's run is in the partitions in which it gave way."""
    ranks = {name: opened.rank(name) for name in error.gave_way}
    said = RunRanks({name: rank for name, rank in ranks.items() if rank is not None})
    error.run_ranks = str(said) if said.by_partition else ""


def refuse_overtaken(
    found: Mapping[str, SupersededBy], named: Collection[str], on_superseded: OnSuperseded
) -> None:
    """Refuse a run that gives way to others, unless it may leave out those partitions.

    It may under ``on_superseded=skip``, if another partition remains: one that the run names, or
    any if it names none.

    :param found: the partitions in which the run gives way.
    :param named: all that the run names.
    :raises SupersededRunError: it is refused.
    """
    skips = on_superseded is OnSuperseded.SKIP
    if found and not (skips and len(found) != len(named)):
        raise superseded_run(found, skips)


def find_superseded(
    context: Context,
    partitions: Iterable[str],
    ranks: RunRanks,
    replaces: bool,
    run: str | None = None,
    policy: OnConflict = OnConflict.NEWEST_RUN,
) -> Step[dict[str, SupersededBy]]:
    """Find the partitions in which a run gives way, before it begins a job.

    A request for each partition, and one if the ranks name partitions. Changes after these requests
    are noticed when the job claims.

    :param replaces: whether the job replaces partitions; else it appends.
    :param run: the run's key, if it has one.
    :raises InvalidInputError: the ranks do not compare.
    """
    if set(ranks.by_partition) - {UNPARTITIONED}:
        found = yield from find_table(context)
        if found is not None and found.counts:
            shape = found.record.schema, found.record.partition_by
            ranks = ranks.spelled(lambda name: normalise_partition(name, *shape))
    slots = [Slot.partition(context.root, name) for name in partitions]
    states = yield from All(tuple(read_head(context, slot) for slot in slots))
    return {
        it.slot.name: SupersededBy.of(it, run)
        for it in states
        if _gives_way(it, policy, run, partial(ranks.rank, it.slot.name), replaces)
    }


def superseded_run(superseded: Mapping[str, SupersededBy], skips: bool) -> SupersededRunError:
    """Build the error of a run that gives way to others.

    :param superseded: the partitions in which it does.
    :param skips: the job was to leave these out, and none is left.
    """
    settled = {name: it for name, it in superseded.items() if it.settled_for is not None}
    newer = {name: it for name, it in superseded.items() if it.settled_for is None}
    said = []
    if newer:
        named = first_few([f"{called(name)} (by {it.job})" for name, it in newer.items()])
        said.append(f"Newer runs have loaded {named}, and on_conflict=newest_run keeps their rows.")
    if settled:
        named = first_few(
            [f"{called(name)} (for {it.settled_for})" for name, it in settled.items()]
        )
        said.append(f"A conflict was settled against this run over {named}.")
    again = "" if not settled else ", or settle the conflict for it"
    error = SupersededRunError(
        f"{' '.join(said)} Nothing of this job is visible.",
        partitions={name: it.job for name, it in superseded.items()},
        skips=skips,
        remedy=f"Nothing is to be done if {'the newer' if newer else 'those'} rows are to stay. To "
        f"load {'the older ones' if newer else 'those of this run'} in their place, run this again "
        f"with on_conflict=last_wins{again}.",
    )
    error.gave_way = {name: it.job for name, it in superseded.items()}
    return error


def called(partition: str) -> str:
    """Return a partition's name for a message; "the table" for an unpartitioned one."""
    return "the table" if partition == UNPARTITIONED else partition
