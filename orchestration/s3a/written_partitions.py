"""Partitions that Hadoop's committers wrote: whose commit each holds, and which files.

Who committed a partition last is known from the ledger's reports, which stay whatever another job
does to ``_SUCCESS``; and from the ``_SUCCESS`` in the partition or at the root, where that is no
older. A ``_SUCCESS`` names its first 100 files: of the other files of its write Spark's UUID in
their names tells. What a partition holds is what a listing shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...committer.errors import RecordDamagedError, StoreRefusedError, counted
from ...committer.format.layout import TableRoot
from ...committer.store.listing import list_objects
from ...committer.store.requests import All, Found, Get, ListedObject, Step
from ...s3a.hadoop.commit_files import JobSummary
from ...s3a.hadoop.job_traces import uuids_in_name
from ...s3a.runs import ledger
from ...s3a.runs.try_record import COMMITTED, StoredTry

if TYPE_CHECKING:
    from ...committer import Table

_MARKER = "_SUCCESS"
_PAGE = 1000
_PLAIN = (
    "the _SUCCESS marker is empty, as Spark's plain commit writes it: it names neither job nor "
    "files, and counts with require_manifest=False"
)
_PLAIN_ROOT = (
    "the _SUCCESS marker at the root is empty, as Spark's plain commit writes it: it does not say "
    "which partitions it stands for"
)
_OURS = "_SUCCESS is of a table of zero_rename, which require_manifest=True reads by its heads"


@dataclass(frozen=True)
class WrittenPartition:
    """A partition that a committed job wrote.

    :param job: the job that wrote it last, as far as is known.
    :param decided_at: Unix seconds: of the ledger's report, else by the clock of the marker's host.
    :param keys: the files that are there, each with its size; and those that a marker names and
        that are not there, without.
    :param recorded: how many files the job left in the partition; ``None``: nobody says.
    """

    job: str | None
    decided_at: float | None
    keys: Mapping[str, int | None]
    recorded: int | None = None

    @property
    def missing(self) -> int:
        """How many files of the job are surely not there."""
        return max(0, (self.recorded or 0) - len(self.keys))


@dataclass(frozen=True)
class _PlainMarker:
    """A ``_SUCCESS`` of 0 bytes, as Spark's plain commit writes it.

    :param at: when it was written, Unix seconds by the store's clock.
    """

    at: float


#: A marker as it was read; a sentence where it cannot be read.
_Marker = JobSummary | _PlainMarker | str | None


@dataclass
class _Memory:
    """What earlier looks at a table read: reports and markers by key, with their ETags; and how
    many pages the listing had."""

    reports: dict[str, tuple[str, Mapping[str, Any] | None]] = field(default_factory=dict)
    markers: dict[str, tuple[str, _Marker]] = field(default_factory=dict)
    pages: int = 1


_memories: MutableMapping[Table, _Memory] = WeakKeyDictionary()


def written_partitions(
    table: Table, partitions: Sequence[str], committer: str | None
) -> tuple[dict[str, WrittenPartition], dict[str, str]]:
    """Find what committed jobs of one of Hadoop's committers left in partitions.

    After the first look at a table it takes three requests, and one for each run that is at work,
    and for each report and each ``_SUCCESS`` of a partition that is new.

    :param committer: ``None`` for any; then a ``_SUCCESS`` of 0 bytes counts too, in the folder
        whose it is.
    :return: also why others do not count, by partition.
    """
    memory = _memories.setdefault(table, _Memory())
    return table.run(_look(table.root, tuple(dict.fromkeys(partitions)), committer, memory))


def _look(
    root: TableRoot, partitions: Sequence[str], committer: str | None, memory: _Memory
) -> Step[tuple[dict[str, WrittenPartition], dict[str, str]]]:
    # On use: DAG files are parsed by processes that look at nothing.
    from ...committer.format.schema.hive_paths import as_spark_writes

    listed, said, of_root = yield from All(
        (
            _listed(root, partitions, memory),
            _ledger(root, memory),
            _marker(f"{root.prefix}/{_MARKER}"),
        )
    )
    markers = yield from _markers(root, listed, memory)
    written: dict[str, WrittenPartition] = {}
    refused: dict[str, str] = {}
    for name in partitions:
        if conflict := said.latest.get(name, {}).get("conflict"):
            refused[name] = f"{conflict} Nobody can tell whose rows are there"
            continue
        files = {it.key: it.size for it in listed[name] if root.is_data(it)}
        by_report = _by_report(said, name, files, committer)
        by_marker = _by_marker(root, name, files, markers.get(name), of_root, committer)
        told = [it for it in (by_report, by_marker) if isinstance(it, WrittenPartition)]
        if told:
            # The report's time where both are of one job: it is the store's.
            written[name] = max(told, key=lambda it: it.decided_at or 0.0)
            if len({it.job for it in told}) < len(told):
                written[name] = told[0]
            continue
        why = by_marker or by_report or said.damage
        if not why and (spelled := as_spark_writes(name)) != name:
            why = f"no commit, and Spark writes its rows below {spelled}: name it so"
        if why:
            refused[name] = str(why)
    return written, refused


def _markers(
    root: TableRoot, listed: Mapping[str, Sequence[ListedObject]], memory: _Memory
) -> Step[dict[str, _Marker]]:
    """Read those markers of partitions that no look has read yet, by partition."""
    items = {
        name: item
        for name, items in listed.items()
        for item in items
        if item.key == f"{root.partition_prefix(name)}{_MARKER}"
    }
    new = [it for it in items.values() if memory.markers.get(it.key, ("",))[0] != it.etag]
    read = yield from All(tuple(_marker(item.key) for item in new))
    for item, said in zip(new, read, strict=True):
        memory.markers[item.key] = item.etag, said
    return {name: memory.markers[item.key][1] for name, item in items.items()}


def _by_report(
    said: _Ledger, name: str, files: Mapping[str, int], committer: str | None
) -> WrittenPartition | str | None:
    """What the ledger's latest report says of a partition."""
    report = said.latest.get(name)
    if report is None or committer not in (None, report["committer"]):
        return None
    unsure = said.why_unsure(name)
    if unsure is not None:
        return unsure
    entry = next(it for it in report["partitions"] if it["partition"] == name)
    if entry["files"] and not files:
        return f"none of the {counted(entry['files'], 'file')} of job {report['job']} is there"
    return WrittenPartition(report["job"], report["decided_at"], files, entry["files"])


def _listed(
    root: TableRoot, partitions: Sequence[str], memory: _Memory
) -> Step[dict[str, list[ListedObject]]]:
    """List partitions: together by what their paths have in common, each by itself where that
    took more pages before than there are partitions."""
    prefixes = [root.partition_prefix(name) for name in partitions]
    wanted = prefixes if memory.pages > len(prefixes) else [_common(prefixes)]
    listings = yield from All(tuple(list_objects(prefix) for prefix in wanted))
    if len(wanted) < len(prefixes):
        memory.pages = 1 + len(listings[0].objects) // _PAGE
    names = dict(zip(prefixes, partitions, strict=True))
    found: dict[str, list[ListedObject]] = defaultdict(list)
    for item in (item for listing in listings for item in listing.objects):
        folders = (item.key[: at + 1] for at, letter in enumerate(item.key) if letter == "/")
        for folder in names.keys() & set(folders):
            found[names[folder]].append(item)
    return found


def _common(prefixes: Sequence[str]) -> str:
    first, last = min(prefixes), max(prefixes)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in same)


@dataclass(frozen=True)
class _Ledger:
    """What the ledger says of a table.

    :param latest: the latest report by partition.
    :param at_work: tries that are not settled.
    :param damage: why a part of it could not be read; ``""`` for none.
    """

    latest: Mapping[str, Mapping[str, Any]]
    at_work: Sequence[StoredTry] = ()
    damage: str = ""

    def why_unsure(self, partition: str) -> str | None:
        """Say why a report of a partition may be true no longer: another try may be replacing its
        files. One that names no partition counts while it is at work."""
        for known in self.at_work:
            named = known.record.partitions
            if partition in named or (not named and known.may_be_writing):
                return f"the run {known.record.idempotency_key} loads it, or left it unsettled"
        return None


def _ledger(root: TableRoot, memory: _Memory) -> Step[_Ledger]:
    """Read what no look has read yet of the ledger, and the tries that are not settled."""
    try:
        listing = yield from list_objects(ledger.runs_prefix(root))
    except StoreRefusedError as error:
        return _Ledger({}, damage=error.message)
    closed = {it.key: it.etag for it in listing.objects if ledger.is_closed(it.key)}
    new = [key for key, etag in closed.items() if memory.reports.get(key, ("",))[0] != etag]
    unsettled = ledger.unsettled(listing.keys)
    read = yield from All(tuple(_readable(key) for key in (*new, *unsettled)))
    for key, known in zip(new, read[: len(new)], strict=True):
        if not isinstance(known, str):
            is_done = known is not None and known.record.state == COMMITTED
            memory.reports[key] = closed[key], known.record.report if known and is_done else None
    memory.reports = {key: kept for key, kept in memory.reports.items() if key in closed}
    latest: dict[str, Mapping[str, Any]] = {}
    for _, report in sorted(memory.reports.values(), key=lambda it: _order(it[1])):
        if report is not None:
            latest |= {entry["partition"]: report for entry in report["partitions"]}
    at_work = [known for known in read[len(new) :] if isinstance(known, StoredTry)]
    return _Ledger(latest, at_work, next((it for it in read if isinstance(it, str)), ""))


def _order(report: Mapping[str, Any] | None) -> tuple[float, bool]:
    """By time, in whole seconds; of two that met in one, the one that says so comes last."""
    return (0.0, False) if report is None else (report["decided_at"], "conflict" in report)


def _readable(key: str) -> Step[StoredTry | str | None]:
    """Read a try's record; why it cannot be read."""
    try:
        return (yield from ledger.read_record(key))
    except RecordDamagedError as error:
        return f"{error.message} ({key})"


def _marker(key: str) -> Step[_Marker]:
    """Read a marker; why it does not count, where it cannot be read."""
    found = yield from Get(key)
    if not isinstance(found, Found):
        return None
    if not found.size:
        return _PlainMarker(found.last_modified)
    try:
        return JobSummary.parse(found.body, key)
    except RecordDamagedError as error:
        return error.message


def _by_marker(
    root: TableRoot,
    name: str,
    files: Mapping[str, int],
    own: _Marker,
    of_root: _Marker,
    committer: str | None,
) -> WrittenPartition | str | None:
    """What a marker says of a partition: its own, else the root's where that job wrote to it."""
    marker = own
    if own is None and isinstance(of_root, JobSummary):
        keys = _of_write(of_root, files)
        if any(key.startswith(root.partition_prefix(name)) for key in keys):
            marker = of_root
        elif files and (why := _why_unnamed(of_root)):
            return why
    if isinstance(marker, _PlainMarker):
        return WrittenPartition(None, marker.at, files) if committer is None else _PLAIN
    if own is None and isinstance(of_root, _PlainMarker):
        return _PLAIN_ROOT
    if marker is None or isinstance(marker, str):
        return marker
    said = marker.marker
    if said.manifest is not None and committer is None:
        return _OURS
    if committer not in (None, said.committer):
        return f"_SUCCESS is of the {said.committer!r} committer"
    if not said.success:
        return "_SUCCESS says that its job failed"
    keys = {it for it in _of_write(marker, files) if it.startswith(root.partition_prefix(name))}
    held: dict[str, int | None] = {**dict.fromkeys(sorted(keys)), **files}
    recorded = marker.files if own is not None else None
    return WrittenPartition(said.job, said.timestamp_ms / 1000, held, recorded)


def _why_unnamed(marker: JobSummary) -> str | None:
    """Say why nobody can tell whether a marker's job wrote a file that the marker does not name;
    ``None`` where the names tell."""
    named = marker.marker.filenames
    if (marker.files or 0) <= len(named) or _common_uuids(named):
        return None
    return (
        f"the _SUCCESS marker at the root names {len(named)} of its job's {marker.files} files, "
        "and their names have no UUID that tells the others"
    )


def _common_uuids(keys: Collection[str]) -> set[str]:
    return set.intersection(*(set(uuids_in_name(key)) for key in keys)) if keys else set()


def _of_write(marker: JobSummary, files: Mapping[str, int]) -> set[str]:
    """The files of a marker's write: those that it names, and those with the UUIDs in their names
    that all named ones have."""
    named = {name.removeprefix("/") for name in marker.marker.filenames}
    common = _common_uuids(named)
    return named | {key for key in files if common & set(uuids_in_name(key))}
