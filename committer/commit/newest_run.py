"""Runs that give way to newer ones, under ``on_conflict=newest_run``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..errors import SupersededRunError, first_few
from ..format.job_spec import Mode, OnConflict, OnSuperseded
from ..format.layout import UNPARTITIONED
from ..format.records.head import HeadState, Slot
from ..format.run_rank import RunRanks
from ..store.requests import All, Step
from .state.context import Context
from .state.heads import read_head
from .state.job_state import OpenedJob


def is_superseded(opened: OpenedJob, state: HeadState, replaces: bool) -> bool:
    """Tell whether a newer run has loaded a partition that a job is to write.

    :raises InvalidInputError: the ranks of the two do not compare.
    """
    if opened.spec.on_conflict is not OnConflict.NEWEST_RUN or state.slot.is_run:
        return False
    return state.head.ranks.supersede(opened.rank(state.slot.name), replaces)


def is_newest(opened: OpenedJob, state: HeadState, replaces: bool) -> bool:
    """Tell whether all rows of a partition that a job would replace or add to are of older runs:
    what came since the job opened then counts as if it had come before."""
    if opened.spec.on_conflict is not OnConflict.NEWEST_RUN or state.slot.is_run:
        return False
    rank = opened.rank(state.slot.name)
    return rank is not None and rank.is_newer_than(state.head.ranks.against(replaces))


def refuse_superseded(opened: OpenedJob, states: Iterable[HeadState]) -> None:
    """Refuse a job as it opens, by the heads of partitions that it is to write for sure: nobody
    computes rows that are then left out.

    :raises SupersededRunError: newer runs have loaded what it is to write.
    """
    replaces, only = opened.spec.mode is Mode.REPLACE, opened.narrowed
    own = (it for it in states if only is None or it.slot.name in only)
    found = {it.slot.name: writer_of(it) for it in own if is_superseded(opened, it, replaces)}
    named = {*(opened.spec.replace_partitions or ())} if opened.partition_by else {UNPARTITIONED}
    if only is not None:
        named &= only
    refuse_overtaken(found, named, opened.spec.on_superseded)


def refuse_overtaken(
    found: Mapping[str, str], named: Collection[str], on_superseded: OnSuperseded
) -> None:
    """Refuse a run by what newer ones have loaded, unless it leaves that out and another partition
    is left: one that it names, or any where it names none.

    :param found: partitions that newer runs have loaded, each with the job that wrote it last.
    :param named: all that the run names.
    :raises SupersededRunError: it is refused.
    """
    skips = on_superseded is OnSuperseded.SKIP
    if found and not (skips and len(found) != len(named)):
        raise superseded_run(found, skips)


def find_superseded(
    context: Context, partitions: Iterable[str], ranks: RunRanks, replaces: bool
) -> Step[dict[str, str]]:
    """Look which partitions newer runs have loaded than one that is about to begin a job: a request
    for each. What comes after this look the job finds as it claims.

    :param replaces: whether the job replaces partitions; else it appends.
    :returns: by partition, the job that wrote it last.
    :raises InvalidInputError: the ranks do not compare.
    """
    slots = [Slot.partition(context.root, name) for name in partitions]
    states = yield from All(tuple(read_head(context, slot) for slot in slots))
    return {
        it.slot.name: writer_of(it)
        for it in states
        if it.head.ranks.supersede(ranks.rank(it.slot.name), replaces)
    }


def writer_of(state: HeadState) -> str:
    """Name the job that moved a head last, for a message."""
    return state.head.last_job or "an unknown job"


def superseded_run(superseded: Mapping[str, str], skips: bool) -> SupersededRunError:
    """Build the error of a run that gives way to newer ones.

    :param superseded: partitions, each with the job that wrote it last.
    :param skips: the job was to leave these out, and none is left.
    """
    named = [
        f"{'the table' if name == UNPARTITIONED else name} (by {job})"
        for name, job in superseded.items()
    ]
    return SupersededRunError(
        f"Newer runs have loaded {first_few(named)}, and on_conflict=newest_run keeps their rows. "
        "Nothing of this job is visible.",
        partitions=superseded,
        skips=skips,
        remedy="Nothing is to be done if the newer rows are to stay. To load the older ones in "
        "their place, run this again with on_conflict=last_wins.",
    )
