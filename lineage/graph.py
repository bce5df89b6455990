"""Graph of the jobs behind tables, from their records: which partitions each wrote and read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from ..committer.errors import (
    InvalidInputError,
    TableMismatchError,
    TableNotFoundError,
    ZeroRenameError,
)
from ..committer.format.code_version import checked_code_version
from ..committer.format.job_spec import Mode
from ..committer.format.layout import TableRoot
from ..committer.format.records.inputs import UNKNOWN_INPUTS, Inputs
from ..committer.overview.job_record import JobRecord
from .nodes import JobNode, judged, run_of
from .tables import KnownTables, Place, TableNow


class LineageState(StrEnum):
    """The relation between a partition's rows and the inputs that they were computed from.

    * Lost: a file of the partition is missing.
    * Stale: an input has other rows by now, a new partition belongs to the inputs, or the rows were
      made by another version of the code than the present one.
    * Behind: the rows agree with their inputs, but an input is stale or behind itself.
    * Self-made: the rows were computed from partitions that the same job wrote.
    * Unknown: the inputs are not on record, or not all of them, or can no longer be checked.

    If several are true of a partition, its state is the first of them.
    """

    LOST = "lost"
    STALE = "stale"
    BEHIND = "behind"
    SELF_MADE = "self-made"
    UNKNOWN = "unknown"
    FRESH = "fresh"


#: States of rows that do not agree with their inputs.
WRONG = (LineageState.STALE, LineageState.BEHIND)


@dataclass(frozen=True)
class PartitionLineage:
    """A partition's state, the jobs that made its rows, and the partitions that they read.

    :param why: the reasons for its state, a sentence each.
    :param code_versions: of the programs that made its rows; ``""`` for rows whose code version is
        not known.
    """

    table: str
    partition: str
    state: LineageState
    jobs: tuple[str, ...]
    sources: tuple[Place, ...]
    why: tuple[str, ...]
    code_versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class LineageGraph:
    """The jobs behind some partitions, the jobs behind the inputs of these, and so on.

    :param targets: the partitions that the graph was built for.
    :param nodes: by table and job.
    """

    targets: frozenset[Place]
    nodes: Mapping[Place, JobNode]

    @cached_property
    def makers(self) -> Mapping[Place, frozenset[Place]]:
        """The jobs whose rows a partition holds, by partition."""
        found: dict[Place, set[Place]] = defaultdict(set)
        for key, node in self.nodes.items():
            for place in node.places:
                found[place].add(key)
        return {place: frozenset(keys) for place, keys in found.items()}

    @cached_property
    def parents(self) -> Mapping[Place, frozenset[Place]]:
        """The jobs whose rows a job reads, by job."""
        none: frozenset[Place] = frozenset()
        return {
            key: none.union(*(self.makers.get(place, none) for place in node.sources)) - {key}
            for key, node in self.nodes.items()
        }

    @cached_property
    def wrong(self) -> frozenset[Place]:
        """The jobs that are stale, and those that are behind, since they read what these wrote."""
        children: dict[Place, set[Place]] = defaultdict(set)
        for key, parents in self.parents.items():
            for parent in parents:
                children[parent].add(key)
        found = {key for key, node in self.nodes.items() if node.stale}
        front = list(found)
        while front:
            new = children[front.pop()] - found
            found |= new
            front += new
        return frozenset(found)

    def partitions(self) -> list[PartitionLineage]:
        """Return the lineage of each target, sorted by table and name."""
        return [self._partition(place) for place in sorted(self.targets)]

    def _partition(self, place: Place) -> PartitionLineage:
        keys = sorted(self.makers.get(place, ()))
        nodes = [self.nodes[key] for key in keys]
        states = LineageState
        why: dict[LineageState, list[str]] = defaultdict(list)
        for node in nodes:
            why[states.LOST] += (f"{key} is gone" for key in node.lost_in(place[1]))
            why[states.STALE] += node.stale
            if node.key in self.wrong and not node.stale:
                upstream = sorted(self.parents[node.key] & self.wrong)
                why[states.BEHIND] += (f"{table} is to be made again" for table, _ in upstream)
            why[states.SELF_MADE] += (f"{name} was read and written" for name in node.self_made)
            why[states.UNKNOWN] += [node.unknown] if node.unknown else []
        told = [state for state in states if why[state]]
        sources = sorted({source for node in nodes for source in node.sources})
        said = tuple(dict.fromkeys(text for state in told for text in why[state]))
        state = told[0] if told else states.FRESH
        versions = tuple(sorted({it for node in nodes for it in node.run.code_versions}))
        jobs = tuple(job for _, job in keys)
        return PartitionLineage(*place, state, jobs, tuple(sources), said, versions)


def look_up(
    targets: Iterable[str],
    client: Any = None,
    *,
    lost: bool = False,
    code_versions: Mapping[str, str] | None = None,
    may_be_empty: bool = False,
) -> LineageGraph:
    """Build the graph of the jobs behind tables or partitions. It costs a snapshot of each table,
    and a request for each job whose files the visited partitions hold.

    :param targets: tables, ``s3://bucket/prefix``, or partitions, ``s3://bucket/prefix/day=1``.
    :param client: as for :class:`.table.Table`.
    :param lost: check also that the files are there, by a listing of each table.
    :param code_versions: the present version of the code of a table's program, by table. Rows that
        another version made are stale, and so are rows whose version is not known. In tables that
        are not named, any version is right.
    :param may_be_empty: leave out partitions that hold no rows; ``False``: they are refused.
    :raises TableNotFoundError: the table of a target, or of a code version, is not there.
    :raises InvalidInputError: a target is invalid, or its table has no such partition; or a code
        version is invalid.
    """
    tables = KnownTables(client, lost)
    present = {
        _located(tables, target)[0].url: checked_code_version(version)
        for target, version in (code_versions or {}).items()
    }
    wanted: set[Place] = set()
    for target in targets:
        wanted |= _places(tables, target, may_be_empty)
    nodes: dict[Place, JobNode] = {}
    front, seen = set(wanted), set(wanted)
    while front:
        new = [
            node
            for url, names in _by_table(front)
            for node in _nodes(tables, url, names, present.get(url))
        ]
        front = set()
        for node in new:
            known = nodes.get(node.key)
            nodes[node.key] = node if known is None else known.beside(node)
            front |= node.sources - seen
        seen |= front
    return LineageGraph(frozenset(wanted), nodes)


def place_named(target: str) -> tuple[str, str | None]:
    """Split a target into its table and its partition, if it names one, by the text alone."""
    return next(_readings(target))


def _readings(target: str) -> Iterator[tuple[str, str | None]]:
    """Yield the tables and partitions that a target may mean. The path to a table may contain a
    directory that looks like a partition (``source=crm/flights``), and so may the table's own name
    (``raw/source=crm``)."""
    parts = target.rstrip("/").split("/")
    first = len(parts)
    while first > 4 and "=" in parts[first - 1]:
        first -= 1
    for at in range(first, len(parts) + 1):
        yield "/".join(parts[:at]), "/".join(parts[at:]) or None


def _located(tables: KnownTables, target: str) -> tuple[TableNow, str | None]:
    """Find the table that a target names, and its partition, if it names one.

    :raises TableNotFoundError: there is no such table.
    """
    found: list[ZeroRenameError] = []
    for url, partition in _readings(target):
        try:
            return _present(tables, url), partition
        except (TableNotFoundError, TableMismatchError) as error:
            found.append(error)
    raise found[0]


def _places(tables: KnownTables, target: str, may_be_empty: bool) -> set[Place]:
    table, partition = _located(tables, target)
    url = table.url
    if partition is None:
        return {(url, name) for name in table.contents}
    if partition not in table.contents:
        partition = tables.stored_name(url, partition)
    if partition not in table.contents:
        if may_be_empty:
            return set()
        raise InvalidInputError(
            f"The table holds no rows in {partition}.",
            table=url,
            remedy=f"zero-rename show {url} names its partitions.",
        )
    return {(url, partition)}


def _present(tables: KnownTables, url: str) -> TableNow:
    url = TableRoot.parse(url).url
    table = tables.table(url)
    if table is None:
        raise TableNotFoundError("There is no table here.", table=url, remedy="Check the root.")
    return table


def _by_table(places: Iterable[Place]) -> list[tuple[str, set[str]]]:
    found: dict[str, set[str]] = defaultdict(set)
    for url, name in places:
        found[url].add(name)
    return sorted(found.items())


def _nodes(
    tables: KnownTables, url: str, names: Iterable[str], version: str | None
) -> list[JobNode]:
    """Return the jobs whose rows the partitions hold, with their inputs checked.

    :param version: the present version of the code of the table's program.
    """
    table = tables.table(url)
    if table is None:
        return []
    # One partition may hold a job's own files, and another one its rows in the files of a
    # compaction: visit the jobs of all these partitions.
    held: frozenset[str] = frozenset()
    held = held.union(*(table.held.get(name, ()) for name in names))
    records = tables.records(url, held)
    made: dict[str, _Made] = {}
    for job in sorted(held):
        for name in table.holding[job]:
            origins = _origins(records.get(job), name) or (job,)
            run = origins[0] if len(origins) == 1 else job
            one = made.setdefault(run, _Made())
            one.partitions.setdefault(name, set()).add(job)
            if lost := table.lost.get((name, job)):
                one.lost[name] = (*one.lost.get(name, ()), *lost)
            one.fast |= {name} if (name, job) in table.fast else set()
            one.mixed |= set(origins) if len(origins) > 1 else set()
    origins = tables.records(url, made)
    found = []
    for job, one in made.items():
        record = origins.get(job)
        node = JobNode(
            url,
            job,
            frozenset(one.partitions),
            lost=one.lost,
            mixed=tuple(sorted(one.mixed)),
            fast=frozenset(one.fast),
        )
        wrote = one.partitions.keys()
        if record is not None:
            wrote = record.wrote | record.emptied.keys()
            empty = _still_empty(table, record)
            others = (wrote | record.before) - one.partitions.keys() - empty
            gone, shared = _replaced(tables, table, record, others)
            held_still = node.partitions | (others - gone.keys())
            theirs = {name: it for name, it in gone.items() if it is not None}
            of_run = frozenset(gone.keys() - theirs.keys())
            node = replace(
                node,
                run=run_of(record),
                replaced=theirs,
                in_part=record.narrows is not None or bool(of_run),
                of_run=of_run,
                partitions=held_still,
                empty=empty,
                versions={name: _version(table, name) for name in held_still | of_run | empty},
            )
            if node.run.mode is Mode.REPLACE:
                node = replace(node, added={**shared, **_added(table, one)})
        writers = (records.get(it) for it in sorted(set().union(*one.partitions.values())))
        told = Inputs.all_of(it.inputs if it else UNKNOWN_INPUTS for it in writers)
        found.append(judged(node, told, wrote, tables, version))
    return found


@dataclass
class _Made:
    """The rows of one job to run, wherever they are: in its own files, or rewritten by other jobs.

    :param partitions: those that hold such rows, each with the jobs that wrote the files.
    """

    partitions: dict[str, set[str]] = field(default_factory=dict)
    lost: dict[str, tuple[str, ...]] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)
    fast: set[str] = field(default_factory=set)


def _still_empty(table: TableNow, record: JobRecord) -> frozenset[str]:
    """Find the partitions that a job replaced by nothing and that are empty still. Their version
    must be the one that the job left; if its record has no version, being empty is enough."""
    there = table.state.versions
    return frozenset(
        name
        for name, version in record.emptied.items()
        if name not in table.contents and version in (None, there.get(name))
    )


def _version(table: TableNow, partition: str) -> int:
    """Return a partition's version in the state that was read. In a log a partition without files
    has no version, so the log's own is returned."""
    return table.state.versions.get(partition, table.state.log_version or 0)


def _added(table: TableNow, one: _Made) -> dict[str, str]:
    """Return the partitions that hold rows of other jobs, too, each with one of these jobs."""
    found = {name: table.held[name] - writers for name, writers in one.partitions.items()}
    return {name: min(others) for name, others in sorted(found.items()) if others}


def _origins(record: JobRecord | None, partition: str) -> tuple[str, ...]:
    """Return the jobs whose rows a job rewrote in a partition. Empty: it wrote rows of its own."""
    return () if record is None else record.origins.get(partition, ())


def _replaced(
    tables: KnownTables, table: TableNow, record: JobRecord, partitions: Iterable[str]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Find the present holders of partitions that a job once wrote.

    :returns: two mappings. Partitions without rows of the job, each with a job that holds it now:
        ``""`` if none does, ``None`` if other jobs of the same run do. And partitions with rows of
        it and of other jobs, each with one of the others.
    """
    gone: dict[str, str | None] = {}
    shared: dict[str, str] = {}
    for name in sorted(partitions):
        holders = table.held.get(name, frozenset())
        writers = tables.records(table.url, holders)
        made = {it: _origins(writers.get(it), name) or (it,) for it in holders}
        if (record.job,) in made.values():
            if others := [it for it, jobs in made.items() if jobs != (record.job,)]:
                shared[name] = min(others)
            continue
        runs = tables.records(table.url, {job for jobs in made.values() for job in jobs})
        keys = {None if it is None else it.idempotency_key for it in runs.values()}
        own = keys == {record.idempotency_key} != {None}
        gone[name] = None if own else min(holders, default="")
    return gone, shared
