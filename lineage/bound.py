"""Bound of recomputing: the partitions that would take too long to be made again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..committer.errors import TableMismatchError, TableNotFoundError, counted, first_few
from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..tables import DeltaTable
from .graph import LineageGraph, look_up
from .nodes import JobNode
from .plan import plan, way_to, ways_through
from .tables import Place


@dataclass(frozen=True)
class AtRisk:
    """A partition that is not durable and takes too long to be made again, or cannot be.

    :param seconds: the recorded time of all jobs on the longest way to it from what is durable;
        ``None``: it cannot be made again.
    :param why: the jobs on that way, in order; or why it cannot be made again.
    """

    table: str
    partition: str
    seconds: float | None
    why: str


def at_risk(graph: LineageGraph, most: float, durable: Iterable[str] | None = None) -> list[AtRisk]:
    """List the targets that could not be made again within a number of seconds.

    They are judged as if all that is not durable were lost. A target takes as long as the longest
    way through the plan that makes everything again, since jobs that do not need each other run
    side by side (Tachyon's bound, Li et al. 2014).

    Foreign files are durable, and so are partitions whose files all lie in their table's own
    bucket.

    :param most: the seconds.
    :param durable: the only tables that are durable, besides foreign files: as if all others lay in
        a fast root. A partition whose inputs are not known should lie in one of them; elsewhere it
        cannot be made again.
    :raises InvalidInputError: the URL of a durable table is invalid.
    """
    named = (durable,) if isinstance(durable, str) else durable
    roots = None if named is None else {TableRoot.parse(it).url for it in named}
    gone: dict[Place, JobNode] = {}
    for key, node in graph.nodes.items():
        held = node.fast if roots is None else node.partitions
        is_durable = roots is not None and node.table in roots
        # As if these partitions were lost: one missing file each, named like the partition.
        lost = {} if is_durable else {name: (name,) for name in sorted(held)}
        gone[key] = replace(node, lost=lost, stale=())
    lost = replace(graph, nodes=gone)
    found = plan(lost)
    ways = ways_through(found.layers)
    no_way = {(it.table, it.job): it.why for it in found.refused}
    no_way |= {
        (it.table, it.job): "a job that it needs cannot be run again" for it in found.waiting
    }
    risks = []
    for place in sorted(graph.targets):
        makers = [key for key in lost.makers.get(place, ()) if gone[key].lost_in(place[1])]
        cannot = [no_way[key] for key in makers if key in no_way]
        seconds, last = max(
            ((ways[key][0], key) for key in makers if key in ways), default=(0, None)
        )
        if cannot:
            risks.append(AtRisk(*place, None, cannot[0]))
        elif seconds > most:
            jobs = [f"{table} ({job})" for table, job in way_to(last, ways)]
            risks.append(AtRisk(*place, seconds, f"by way of {first_few(jobs)}"))
    return risks


def risks_of(table: DeltaTable, most: float, client: Any = None) -> list[str]:
    """Say what of a Delta table is at risk, in sentences for a report of maintenance. There are
    none for a table without a data root.

    :param most: the seconds that recomputing may take.
    :param client: as the table's.
    """
    try:
        names = [it.partition for it in table.not_durable()] if table.has_data_roots else []
    except (TableNotFoundError, TableMismatchError):
        return []  # Its first job has not committed, or it has features that we cannot read.
    url = table.root.url
    targets = [url if name == UNPARTITIONED else f"{url}/{name}" for name in names]
    found = at_risk(look_up(targets, client), most) if targets else []
    late = [it for it in found if it.seconds is not None]
    never = [it for it in found if it.seconds is None]
    told = []
    if late:
        longest = max(it.seconds or 0.0 for it in late)
        told.append(
            f"at risk: {counted(len(late), 'partition')} not durable yet would take up to "
            f"{longest:,.0f} s to be made again, more than {most:,.0f} s: "
            f"{first_few([it.partition for it in late])}"
        )
    if never:
        told.append(
            f"at risk: {counted(len(never), 'partition')} not durable yet cannot be made again: "
            f"{never[0].partition}, {never[0].why}"
        )
    return [f"{it}; zero-rename checkpoint {url} --apply makes them durable" for it in told]
