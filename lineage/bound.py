"""Bound of recomputing: what would take longer to be made again than somebody is ready to wait."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from ..committer.errors import TableMismatchError, TableNotFoundError, counted, first_few
from ..committer.format.layout import UNPARTITIONED
from ..tables import DeltaTable
from .graph import LineageGraph, look_up
from .nodes import JobNode
from .plan import plan, way_to, ways_through
from .tables import Place


@dataclass(frozen=True)
class AtRisk:
    """A partition that is not durable, and takes longer to be made again than is wanted.

    :param seconds: of the longest way from what is durable, by what was recorded of each job on it;
        ``None``: it cannot be made again.
    :param why: the jobs on that way, in order; or why there is none.
    """

    table: str
    partition: str
    seconds: float | None
    why: str


def at_risk(
    graph: LineageGraph, most: float, durable: Collection[str] | None = None
) -> list[AtRisk]:
    """The targets that would take more than so many seconds to be made again, were all lost that is
    not durable: the longest way of the plan for that, since what needs nothing of each other runs
    side by side (Tachyon's bound, Li et al. 2014).

    Durable are foreign files and all partitions whose files lie in their table's own bucket.

    :param durable: tables that alone are durable, besides foreign files: as if all others lay in a
        fast root. A partition of which it is not known what it was made from is to be in one.
    """
    gone: dict[Place, JobNode] = {}
    for key, node in graph.nodes.items():
        held = node.fast if durable is None else node.partitions
        is_durable = durable is not None and node.table in durable
        # As if they were lost: the file of each is called as the partition.
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
    """Tell what of a Delta table is at risk, as sentences for who looks after it. Nothing is told
    of a table that has no data root.

    :param most: seconds that making it again may take.
    :param client: as the table's.
    """
    try:
        names = [it.partition for it in table.not_durable()] if table.has_data_roots else []
    except (TableNotFoundError, TableMismatchError):
        return []  # Its first job has not committed, or another engine's features are in its way.
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
