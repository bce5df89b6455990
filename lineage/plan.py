"""Plan: the jobs to run again so that partitions are as their inputs are, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from .graph import LineageGraph
from .nodes import JobNode, JobRun
from .tables import Place


@dataclass(frozen=True)
class Step:
    """A job to run again.

    :param partitions: those that are asked for; ``besides``: others that it writes with them.
    :param after: jobs that are to be run before.
    """

    table: str
    job: str
    run: JobRun
    partitions: tuple[str, ...]
    besides: tuple[str, ...]
    why: tuple[str, ...]
    after: tuple[Place, ...]


@dataclass(frozen=True)
class Refusal:
    """A job that the plan would need, and must not run."""

    table: str
    job: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What to run again.

    After each layer it is asked for anew: what came out equal ends there, since a job that
    was only behind is as its inputs are then.

    :param layers: jobs of one layer need nothing of each other.
    :param refused: jobs that must not be run; ``waiting``: those that need one of these first.
    :param seconds: of the longest way through the layers, by what was recorded; ``critical``: its
        jobs.
    """

    layers: tuple[tuple[Step, ...], ...]
    refused: tuple[Refusal, ...]
    waiting: tuple[Step, ...]
    seconds: float
    critical: tuple[Place, ...]


def plan(graph: LineageGraph) -> Plan:
    """What is to be run again for the graph's targets.

    From the targets back to what is there and fresh: a lost partition needs all that it is computed
    from, and another one only what is stale or behind.
    """
    needed = _needed(graph)
    order = {key: graph.parents[key] & needed for key in needed}
    cycle = _cycle(order)
    refused = {
        key: why for key in sorted(needed) if (why := _refusal(graph.nodes[key], key in cycle))
    }
    blocked = _downstream(refused, order)
    steps = {key: _step(graph, key, needed, order[key]) for key in needed - refused.keys()}
    free = {key: order[key] for key in steps.keys() - blocked}
    layers = _layers(free)
    seconds, critical = _longest(layers, free, graph.nodes)
    return Plan(
        tuple(tuple(steps[key] for key in layer) for layer in layers),
        tuple(Refusal(*key, why) for key, why in refused.items()),
        tuple(steps[key] for key in sorted(blocked)),
        seconds,
        critical,
    )


def _needed(graph: LineageGraph) -> set[Place]:
    front, seen = set(graph.targets), set(graph.targets)
    found: set[Place] = set()
    while front:
        table, partition = front.pop()
        for key in graph.makers.get((table, partition), ()):
            node = graph.nodes[key]
            if key in graph.wrong or node.lost_in(partition):
                found.add(key)
                front |= node.sources - seen
                seen |= node.sources
    return found


def _refusal(node: JobNode, in_cycle: bool) -> str:
    """Why a job must not be run again; empty: it may."""
    if not node.job:
        return "no job wrote its rows; load them again from where they came"
    if node.mixed:
        return f"rows of {', '.join(node.mixed)} were written again as one, so none can be replaced"
    if node.self_made:
        return (
            f"it was computed from {', '.join(node.self_made)}, which it wrote itself, so that "
            "what it read is gone"
        )
    if in_cycle:
        return "it is computed from what is computed from it"
    if node.gone:
        return f"{', '.join(node.gone)}, which it was computed from, is gone"
    if node.unknown and node.lost:
        return node.unknown
    if node.replaced:
        name, other = min(node.replaced.items())
        return (
            f"it also wrote {name}, which {other or 'nobody'} holds since; a run of it would take "
            "that away"
        )
    if node.added:
        name, other = min(node.added.items())
        return (
            f"it replaces {name}, to which {other or 'somebody'} has added rows since; a run of it "
            "would take these away"
        )
    return ""


def _cycle(order: Mapping[Place, Collection[Place]]) -> set[Place]:
    """All jobs that lie on circles."""
    left, found = {key: set(parents) for key, parents in order.items()}, set[Place]()
    while True:
        try:
            TopologicalSorter(left).prepare()
            return found
        except CycleError as error:
            circle = set(error.args[1])
            found |= circle
            left = {k: v - circle for k, v in left.items() if k not in circle}


def _downstream(start: Iterable[Place], order: Mapping[Place, Collection[Place]]) -> set[Place]:
    """What needs one of some jobs, in however many steps, besides these."""
    bad = set(start)
    first = set(bad)
    while new := {key for key, parents in order.items() if key not in bad and bad & set(parents)}:
        bad |= new
    return bad - first


def _layers(order: Mapping[Place, Collection[Place]]) -> list[list[Place]]:
    sorter = TopologicalSorter(order)
    sorter.prepare()
    layers = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        layers.append(ready)
        sorter.done(*ready)
    return layers


def _longest(
    layers: Iterable[Iterable[Place]],
    order: Mapping[Place, Collection[Place]],
    nodes: Mapping[Place, JobNode],
) -> tuple[float, tuple[Place, ...]]:
    ends: dict[Place, tuple[float, tuple[Place, ...]]] = {}
    for key in (key for layer in layers for key in layer):
        before = max((ends[parent] for parent in order[key]), default=(0.0, ()))
        ends[key] = before[0] + (nodes[key].run.seconds or 0.0), (*before[1], key)
    return max(ends.values(), default=(0.0, ()))


def _step(
    graph: LineageGraph, key: Place, needed: Collection[Place], after: Collection[Place]
) -> Step:
    node = graph.nodes[key]
    asked = graph.targets.union(*(graph.nodes[other].sources for other in needed))
    wanted = tuple(sorted(name for table, name in node.places if (table, name) in asked))
    besides = tuple(sorted(node.partitions.difference(wanted)))
    why = (*(f"{it} is gone" for it in node.lost), *node.stale)
    behind = why or tuple(f"{table} is made again" for table in sorted({it[0] for it in after}))
    return Step(*key, node.run, wanted, besides, behind, tuple(sorted(after)))
