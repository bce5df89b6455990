"""Plan: the jobs to run again so that partitions agree with their inputs, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from .graph import LineageGraph
from .nodes import JobNode, JobRun
from .tables import Place


@dataclass(frozen=True)
class Step:
    """A job to run again.

    :param partitions: those that are wanted; ``besides``: others that it writes with them.
    :param narrowed: whether it shall make the wanted ones only; else it makes all that its run
        does.
    :param versions: for a run that goes by plans, the versions at which it may replace partitions.
    :param after: jobs that must run before it.
    :param moved: the present contents of its inputs that have changed.
    """

    table: str
    job: str
    run: JobRun
    partitions: tuple[str, ...]
    besides: tuple[str, ...]
    why: tuple[str, ...]
    after: tuple[Place, ...]
    narrowed: bool = False
    versions: Mapping[str, int] = field(default_factory=dict)
    moved: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The partitions to make, for a report."""
        return ("only " if self.narrowed else "") + ", ".join(self.partitions)


@dataclass(frozen=True)
class Refusal:
    """A job that the plan would need but must not run."""

    table: str
    job: str
    why: str

    @property
    def said(self) -> str:
        """The job and the reason, for a report."""
        return f"{self.job or 'files of no job'} of {self.table}: {self.why}"


@dataclass(frozen=True)
class Plan:
    """The jobs to run again, in layers.

    Make a new plan after each layer. If a job's new rows equal the former ones, the jobs that were
    only behind because of it agree with their inputs then, and are not in the new plan.

    :param layers: jobs of one layer do not need each other.
    :param refused: jobs that must not be run; ``waiting``: those that need one of these first.
    :param seconds: the recorded time of the longest way through the layers; ``critical``: its jobs.
    """

    layers: tuple[tuple[Step, ...], ...]
    refused: tuple[Refusal, ...]
    waiting: tuple[Step, ...]
    seconds: float
    critical: tuple[Place, ...]


def plan(graph: LineageGraph, narrow: bool = True, alone: bool = False) -> Plan:
    """Plan which jobs to run again for the graph's targets.

    The plan follows the inputs from the targets back to what is there and fresh. It has each job on
    the way whose rows are lost, stale or behind.

    :param narrow: let a job make only the wanted partitions, if its run has made more and may be
        restricted (:attr:`.JobRun.goes_by_plans`); ``False``: each job makes all.
    :param alone: every job can be run for any of its partitions alone, by the program that calls
        this.
    """
    needed = _needed(graph)
    order = {key: graph.parents[key] & needed for key in needed}
    cycle = _cycle(order)
    asked = graph.targets.union(*(graph.nodes[key].sources for key in needed))
    steps = {
        key: _step(graph.nodes[key], _wanted(graph, key, asked), order[key], narrow, alone)
        for key in needed
    }
    refused = {
        key: why
        for key in sorted(needed)
        if (why := _refusal(graph.nodes[key], steps[key], key in cycle))
    }
    blocked = _downstream(refused, order)
    steps = {key: step for key, step in steps.items() if key not in refused}
    free = {key: order[key] for key in steps.keys() - blocked}
    layers = tuple(tuple(steps[key] for key in layer) for layer in _layers(free))
    ways = ways_through(layers)
    seconds, last = max(((it[0], key) for key, it in ways.items()), default=(0.0, None))
    return Plan(
        layers,
        tuple(Refusal(*key, why) for key, why in refused.items()),
        tuple(steps[key] for key in sorted(blocked)),
        seconds,
        way_to(last, ways),
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


def _refusal(node: JobNode, step: Step, in_cycle: bool) -> str:
    """Return why a job must not be run again; empty: it may be."""
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
    if node.replaced and not step.narrowed:
        name, other = min(node.replaced.items())
        return (
            f"it also wrote {name}, which {other or 'nobody'} holds since; a run of it would take "
            "that away"
        )
    writes = {*step.partitions, *step.besides}
    if added := {name: other for name, other in node.added.items() if name in writes}:
        name, other = min(added.items())
        return (
            f"it replaces {name}, to which {other or 'somebody'} has added rows since; a run of it "
            "would take these away"
        )
    return ""


def _cycle(order: Mapping[Place, Collection[Place]]) -> set[Place]:
    """Return all jobs that lie on cycles."""
    try:
        TopologicalSorter(order).prepare()
        return set()
    except CycleError:
        pass
    # Two depth-first searches find the groups whose members all lead to each other (Kosaraju).
    children = _children(order)
    ended = list(_search(order, children))
    found = set[Place]()
    seen = set[Place]()
    for root in reversed(ended):
        group = list(_search([root], order, seen))
        if len(group) > 1 or root in order[root]:
            found.update(group)
    return found


def _search(
    roots: Iterable[Place],
    following: Mapping[Place, Collection[Place]],
    seen: set[Place] | None = None,
) -> Iterator[Place]:
    """Yield what can be reached and was not seen, depth first: each after all that follows it."""
    seen = set() if seen is None else seen
    for root in roots:
        path = [] if root in seen else [(root, iter(following[root]))]
        seen.add(root)
        while path:
            _, rest = path[-1]
            new = next((it for it in rest if it not in seen), None)
            if new is None:
                yield path.pop()[0]
            else:
                seen.add(new)
                path.append((new, iter(following[new])))


def _children(order: Mapping[Place, Collection[Place]]) -> dict[Place, set[Place]]:
    found: dict[Place, set[Place]] = {key: set() for key in order}
    for key, parents in order.items():
        for parent in parents:
            found[parent].add(key)
    return found


def _downstream(start: Iterable[Place], order: Mapping[Place, Collection[Place]]) -> set[Place]:
    """Return all jobs that need one of some jobs, directly or through others, without the
    latter."""
    first = set(start)
    return set(_search(first, _children(order))) - first


def _layers(order: Mapping[Place, Collection[Place]]) -> list[list[Place]]:
    sorter = TopologicalSorter(order)
    sorter.prepare()
    layers = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        layers.append(ready)
        sorter.done(*ready)
    return layers


#: For each job, the seconds of the longest way to its end, and the job before it on that way.
Ways = Mapping[Place, tuple[float, Place | None]]


def ways_through(layers: Iterable[Iterable[Step]]) -> Ways:
    """Return the longest way to each job of a plan's layers, by the recorded times of the jobs."""
    found: dict[Place, tuple[float, Place | None]] = {}
    for step in (step for layer in layers for step in layer):
        before, last = max(((found[it][0], it) for it in step.after), default=(0.0, None))
        found[step.table, step.job] = before + (step.run.seconds or 0.0), last
    return found


def way_to(last: Place | None, ways: Ways) -> tuple[Place, ...]:
    """Return the jobs on the longest way to a job, in order."""
    way: list[Place] = []
    while last is not None:
        way.append(last)
        last = ways[last][1]
    return tuple(reversed(way))


def _wanted(graph: LineageGraph, key: Place, asked: Collection[Place]) -> tuple[str, ...]:
    """Return the partitions of a job that are asked for and must be made again. These are all of
    them if the job is stale or behind, else those with lost files."""
    node = graph.nodes[key]
    names = (name for table, name in node.places if (table, name) in asked)
    return tuple(sorted(it for it in names if key in graph.wrong or node.lost_in(it)))


def _step(
    node: JobNode, wanted: tuple[str, ...], after: Collection[Place], narrow: bool, alone: bool
) -> Step:
    besides = tuple(sorted(node.partitions.difference(wanted)))
    by_plan = node.run.goes_by_plans
    may_narrow = alone or (narrow and by_plan)
    narrowed = may_narrow and bool(besides or node.replaced or node.in_part)
    besides = () if narrowed else tuple(sorted({*besides, *node.of_run.difference(wanted)}))
    # A run of the whole job must also find the partitions that it left empty as the plan saw them.
    empty = () if narrowed else sorted(node.empty)
    writes = (*wanted, *besides, *empty) if by_plan else ()
    versions = {name: node.versions.get(name, 0) for name in writes}
    why = (*(f"{it} is gone" for keys in node.lost.values() for it in keys), *node.stale)
    behind = why or tuple(f"{table} is made again" for table in sorted({it[0] for it in after}))
    return Step(
        *(*node.key, node.run, wanted, besides, behind, tuple(sorted(after)), narrowed, versions),
        node.moved,
    )
