"""Runs of a Delta table that give way to others. Under ``on_conflict=newest_run`` they give way to
newer runs, and under any policy except *last_wins* to winners of settled conflicts.

The log compares ranks for its own partitions (``log/ranks.py``). Here the partitions have names,
and the parts that a job leaves out are removed from its entry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ..committer.commit.newest_run import SupersededBy, name_ranks, refuse_overtaken
from ..committer.commit.state.job_state import OpenedJob
from ..committer.errors import SupersededRunError
from ..committer.format.job_spec import Mode, OnConflict
from ..committer.format.layout import UNPARTITIONED
from ..committer.format.run_rank import RunRanks, rank_in
from ..committer.format.schema.hive_paths import normalise_partition
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.change import LogChange
from ..log.ranks import LogRanks, LogSupersededError, LogSuperseder, gave_way, lost_to
from ..log.replay import LogState, Partition
from ..log.scope import NONE, Scope
from .delta_files import log_partition, partition_name, rows_of_add, scope_of


@dataclass(frozen=True)
class LeftOut:
    """Partitions that a job leaves out, since newer runs have loaded them.

    :param superseded: the partitions, each with the job that wrote it last.
    :param rows: how many rows of this job are not committed; ``keys``: its files with them.
    """

    superseded: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    keys: tuple[str, ...] = ()


def log_ranks(
    ranks: RunRanks | None,
    job: str,
    partitions: Collection[str],
    schema: pa.Schema,
    by: tuple[str, ...],
) -> LogRanks:
    """Return the ranks of a job's run in the form for the log.

    :param ranks: the ranks that the job was given; ``None``: the run is as new as the job.
    :param partitions: the names of partitions that the job is known to write.
    """
    named = {*partitions, *(ranks.by_partition if ranks is not None else ())} - {UNPARTITIONED}
    own = {log_partition(name, schema, by): rank_in(ranks, name, job) for name in named}
    return LogRanks(own, rank_in(ranks, UNPARTITIONED, job))


def ranks_of_job(opened: OpenedJob, partitions: Collection[str]) -> LogRanks:
    """Return the ranks of a job's entry. A job that rewrites rows has none, unless it is given
    some: the partitions keep theirs."""
    spec = opened.spec
    if spec.row_changes and spec.run_rank is None:
        return LogRanks()
    return log_ranks(spec.run_rank, opened.job, partitions, opened.schema, opened.partition_by)


def find_superseded(
    state: LogState,
    partitions: Collection[str],
    ranks: RunRanks,
    replaces: bool,
    run: str | None,
    job: str = "",
    policy: OnConflict = OnConflict.NEWEST_RUN,
    settles: Collection[Partition] = (),
) -> dict[str, SupersededBy]:
    """Find those of a run's partitions in which it must give way before it writes them.

    :param state: the present state, with its files.
    :param replaces: the run replaces the partitions; otherwise it appends to them.
    :param settles: partitions in which it settles a conflict itself; they do not count.
    :raises InvalidInputError: the ranks are of two kinds.
    """
    if state.metadata is None or policy is OnConflict.LAST_WINS:
        return {}
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    scope = scope_of(partitions, schema, by)
    ranks = ranks.spelled(lambda name: normalise_partition(name, schema, by))
    own = log_ranks(ranks, job, partitions, schema, by)
    found = lost_to(state, scope, run, settles)
    if policy is OnConflict.NEWEST_RUN:
        newer = gave_way(state, scope, own, scope if replaces else NONE, run)
        found = {it: by for it, by in newer.items() if it not in settles} | found
    return _named(found, schema, by)


def refuse_at_opening(opened: OpenedJob, state: LogState) -> None:
    """Refuse a job at its opening if the partitions that it names are superseded. So it does not
    compute rows in vain.

    :raises SupersededRunError: the job gives way to other runs there.
    """
    spec = opened.spec
    named = {*(spec.replace_partitions or ())} if opened.partition_by else {UNPARTITIONED}
    ranks = RunRanks({name: rank for name in named if (rank := opened.rank(name)) is not None})
    replaces = spec.mode is Mode.REPLACE
    run, policy = spec.idempotency_key, spec.on_conflict
    settled = scope_of(opened.settles, opened.schema, opened.partition_by).partitions
    if opened.narrowed is not None:
        named &= opened.narrowed
    found = find_superseded(state, named, ranks, replaces, run, opened.job, policy, settled)
    _refuse(opened, found, named)


def without_superseded(
    layout: DeltaLayout,
    opened: OpenedJob,
    state: LogState,
    change: LogChange,
    left: LeftOut,
    error: LogSupersededError,
) -> tuple[LogChange, LeftOut]:
    """Remove from a change the partitions in which its run gives way; return it, and all that is
    left out.

    :param state: the state that the job began on; its columns give the partitions their names.
    :param left: what was left out before.
    :param error: the refusal of the change, which names these partitions.
    :raises SupersededRunError: the job's policy is to leave nothing out; or nothing would remain,
        or the job replaces the whole table.
    """
    schema, by = opened.schema, opened.partition_by
    named_by = state if change.metadata is None else replace(state, metadata=change.metadata)
    places = {place for it in change.adds if (place := named_by.partition(it)) is not None}
    touched = places | change.replaced.partitions
    found = _named(error.found, schema, by)
    whole = {*found} if change.replaced.all else {partition_name(it, schema, by) for it in touched}
    _refuse(opened, found, whole)
    gone = [it for it in change.adds if named_by.partition(it) in error.found]
    kept = tuple(it for it in change.adds if named_by.partition(it) not in error.found)
    after = LeftOut(
        {**left.superseded, **{name: it.job for name, it in found.items()}},
        left.rows + sum(max(0, rows_of_add(it)) for it in gone),
        (*left.keys, *(layout.key_of(it.path, named_by) for it in gone)),
    )
    told = {**change.told, "superseded": dict(after.superseded), "leftOut": after.rows}
    stays = {path for path, it in state.live.items() if state.partition(it) in error.found}
    return replace(
        change,
        adds=kept,
        # Rows that the run has loaded there before stay, compacted or not.
        removes=change.removes - stays,
        returned=tuple(it for it in change.returned if state.partition(it) not in error.found),
        replaced=Scope(change.replaced.partitions - error.found.keys()),
        told=told,
    ), after


def _refuse(opened: OpenedJob, found: Mapping[str, SupersededBy], named: Collection[str]) -> None:
    try:
        refuse_overtaken(found, named, opened.spec.on_superseded)
    except SupersededRunError as error:
        name_ranks(opened, error)
        raise


def _named(
    found: Mapping[Partition, LogSuperseder], schema: pa.Schema, by: tuple[str, ...]
) -> dict[str, SupersededBy]:
    return {partition_name(place, schema, by): superseded_by(it) for place, it in found.items()}


def superseded_by(it: LogSuperseder) -> SupersededBy:
    """Return the reason why a run gives way, in the form for errors."""
    return SupersededBy(it.job or "an unknown job", it.settled_for)
