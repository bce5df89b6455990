"""Partitions that Hadoop's committers wrote: the last commit of each, and its files.

The last commit of a partition is found in the ledger's reports, which stay even if another job
replaces ``_SUCCESS``; or in the ``_SUCCESS`` in the partition or at the root, if that is newer or
there is no report. A ``_SUCCESS`` names only its job's first 100 files. The other files of the
write have the same Spark UUID in their names. The files that a partition holds are those that a
listing shows.
"""

from __future__ import annotations

import math
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
from ...s3a.runs.rivals import is_at_work
from ...s3a.runs.try_record import COMMITTED, StoredTry, TryRecord, is_of

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
#: Why a ``_SUCCESS`` of this package's committer does not count here.
OF_NATIVE = "_SUCCESS is of a table of zero_rename, which require_manifest=True reads by its heads"


@dataclass(frozen=True)
class WrittenPartition:
    """A partition that a committed job wrote.

    :param job: the job that wrote it last; ``None`` if that is not known.
    :param decided_at: Unix seconds, of the ledger's report, or by the clock of the host that wrote
        the marker.
    :param keys: the files that are there, each with its size; and files that a marker names and
        that are not there, each with ``None``.
    :param recorded: the number of files that the job left in the partition; ``None``: not known.
    """

    job: str | None
    decided_at: float | None
    keys: Mapping[str, int | None]
    recorded: int | None = None

    @property
    def missing(self) -> int:
        """Number of the job's files that are certainly not there, besides those of ``keys``."""
        return max(0, (self.recorded or 0) - len(self.keys))


@dataclass(frozen=True)
class _PlainMarker:
    """A ``_SUCCESS`` of 0 bytes, as Spark's plain commit writes it.

    :param at: the time at which it was written: Unix seconds, store clock.
    """

    at: float


#: A marker as it was read; a sentence if it cannot be read.
_Marker = JobSummary | _PlainMarker | str | None


@dataclass(frozen=True)
class _Broken:
    """An attempt that began to replace partitions, and has not committed.

    :param run: its run's key.
    :param partitions: that it may have replaced; empty for any.
    :param until: its last sign of life: Unix seconds, store clock.
    """

    run: str
    partitions: tuple[str, ...]
    until: float


@dataclass
class _Memory:
    """Cache of what earlier polls of a table read.

    It has what closed attempts left, by key, with their ETags: a report, or what they broke;
    markers with their ETags and times, since all markers of 0 bytes have one ETag; and the pages of
    the last listing.
    """

    closed: dict[str, tuple[str, Mapping[str, Any] | _Broken | None]] = field(default_factory=dict)
    markers: dict[str, tuple[tuple[str, float], _Marker]] = field(default_factory=dict)
    pages: int = 1


_memories: MutableMapping[Table, _Memory] = WeakKeyDictionary()


def written_partitions(
    table: Table, partitions: Sequence[str], committer: str | None
) -> tuple[dict[str, WrittenPartition], dict[str, str]]:
    """Find what committed jobs of one of Hadoop's committers left in partitions.

    After the first poll of a table it takes three requests; one more for each run at work, each new
    report, and each new ``_SUCCESS`` of a partition.

    :param committer: ``None`` for any; then a ``_SUCCESS`` of 0 bytes counts too, for the folder in
        which it is.
    :return: the partitions by name, and for other partitions the reasons why they do not count.
    """
    memory = _memories.setdefault(table, _Memory())
    return table.run(_look(table.root, tuple(dict.fromkeys(partitions)), committer, memory))


def _look(
    root: TableRoot, partitions: Sequence[str], committer: str | None, memory: _Memory
) -> Step[tuple[dict[str, WrittenPartition], dict[str, str]]]:
    # Imported on use: processes that only parse DAG files need not load it.
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
        if isinstance(by_marker, WrittenPartition):
            unsure = said.why_unsure(name, by_marker.decided_at, by_marker.job)
            is_whole = all(size is not None for size in by_marker.keys.values())
            broken = "" if is_whole else said.why_broken(name, by_marker.decided_at)
            by_marker = unsure or broken or by_marker
        told = [it for it in (by_report, by_marker) if isinstance(it, WrittenPartition)]
        if told:
            # If both are of one job, take the report: its time is of the store's clock.
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
    """Return the markers of partitions; read those that no poll has read yet."""
    items = {
        name: item
        for name, items in listed.items()
        for item in items
        if item.key == f"{root.partition_prefix(name)}{_MARKER}"
    }
    known = {key: state for key, (state, _) in memory.markers.items()}
    new = [it for it in items.values() if known.get(it.key) != (it.etag, it.last_modified)]
    read = yield from All(tuple(_marker(item.key) for item in new))
    for item, said in zip(new, read, strict=True):
        memory.markers[item.key] = (item.etag, item.last_modified), said
    return {name: memory.markers[item.key][1] for name, item in items.items()}


def _by_report(
    said: _Ledger, name: str, files: Mapping[str, int], committer: str | None
) -> WrittenPartition | str | None:
    """Return a partition by the ledger's latest report, or the reason why it does not count."""
    report = said.latest.get(name)
    if report is None:
        return None
    if committer not in (None, report["committer"]):
        return f"loaded last by the {report['committer']!r} committer"
    if unsure := said.why_unsure(name, report.get("started_at"), report["job"]):
        return unsure
    entry = next(it for it in report["partitions"] if it["partition"] == name)
    if entry["files"] and not files:
        return _all_gone(entry["files"], report["job"])
    is_whole = (len(files), sum(files.values())) == (entry["files"], entry.get("bytes"))
    if not is_whole and (broken := said.why_broken(name, report.get("started_at"))):
        return broken
    return WrittenPartition(report["job"], report["decided_at"], files, entry["files"])


def _all_gone(files: int, job: str) -> str:
    return f"none of the {counted(files, 'file')} of job {job} is there"


def _listed(
    root: TableRoot, partitions: Sequence[str], memory: _Memory
) -> Step[dict[str, list[ListedObject]]]:
    """List partitions.

    They share one listing, of the prefix that their paths have in common. If the last such listing
    took more pages than there are partitions, each partition is listed by itself.
    """
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
    """Content of the ledger of a table.

    :param latest: the latest report by partition.
    :param broken: attempts that may have removed files, and have not committed.
    :param at_work: attempts whose records are not closed.
    :param damage: the reason why a part of it could not be read; ``""``: all was read.
    """

    latest: Mapping[str, Mapping[str, Any]]
    broken: Sequence[_Broken] = ()
    at_work: Sequence[StoredTry] = ()
    damage: str = ""

    def why_unsure(self, partition: str, since: float | None, job: str | None) -> str:
        """Explain why what is said of a partition may not be true any more; ``""``: it is true.

        Another attempt may be replacing the partition's files. An attempt that names no partition
        counts only while it may be writing. One whose last sign of life came before does not count:
        it is dead, and nobody may ever settle it.

        :param since: when the load began that a report tells of, or ended that a marker tells of.
        :param job: of that load; its own attempt does not count.
        """
        for known in self.at_work:
            named = known.record.partitions
            may_replace = is_at_work(known) or known.record.beat_at >= (since or 0.0)
            is_another = not is_of(known.record.uuid, job or "")
            meets = may_replace if partition in named else not named and known.may_be_writing
            if is_another and meets:
                return f"the run {known.record.idempotency_key} loads it, or left it unsettled"
        return ""

    def why_broken(self, partition: str, since: float | None) -> str:
        """Explain why other files may be in a partition than is said of it; ``""``: they are not.

        :param since: as for :meth:`why_unsure`.
        """
        for it in self.broken:
            if it.until >= (since or 0.0) and (not it.partitions or partition in it.partitions):
                return f"the run {it.run} began to replace it and did not commit: let it load again"
        return ""


def _ledger(root: TableRoot, memory: _Memory) -> Step[_Ledger]:
    """Read the ledger: reports that no poll has read yet, and attempts that are not closed."""
    try:
        listing = yield from list_objects(ledger.runs_prefix(root))
    except StoreRefusedError as error:
        return _Ledger({}, damage=error.message)
    closed = {it.key: it.etag for it in listing.objects if ledger.is_closed(it.key)}
    new = [key for key, etag in closed.items() if memory.closed.get(key, ("",))[0] != etag]
    unsettled = ledger.unsettled(listing.keys)
    read = yield from All(tuple(_readable(key) for key in (*new, *unsettled)))
    for key, known in zip(new, read[: len(new)], strict=True):
        if not isinstance(known, str):
            memory.closed[key] = closed[key], None if known is None else _left_by(known.record)
    memory.closed = {key: kept for key, kept in memory.closed.items() if key in closed}
    left = [it for _, it in memory.closed.values()]
    latest: dict[str, Mapping[str, Any]] = {}
    for report in sorted((it for it in left if isinstance(it, Mapping)), key=_order):
        latest |= {entry["partition"]: report for entry in report["partitions"]}
    at_work = [known for known in read[len(new) :] if isinstance(known, StoredTry)]
    left += (_left_by(known.record) for known in at_work)
    broken = [it for it in left if isinstance(it, _Broken)]
    return _Ledger(latest, broken, at_work, next((it for it in read if isinstance(it, str)), ""))


def _left_by(record: TryRecord) -> Mapping[str, Any] | _Broken | None:
    """Return what an attempt has left: its report, or the partitions that it may have broken.

    An overwrite removes files before it has committed: magic as it begins, others as they commit.
    """
    if record.state == COMMITTED:
        return record.report
    replacing = [it for it in record.writes if not it.is_adding]
    named = [(it.partition,) if it.partition else it.among for it in replacing]
    if not named:
        return None
    partitions = () if () in named else tuple({name for some in named for name in some})
    return _Broken(record.idempotency_key, partitions, record.beat_at)


def _order(report: Mapping[str, Any]) -> tuple[float, bool]:
    """Return the sort key of a report: its time in whole seconds, then whether it has a conflict.

    Of two attempts that met in one second, the one that reports the conflict comes last.
    """
    return report["decided_at"], "conflict" in report


def _readable(key: str) -> Step[StoredTry | str | None]:
    """Read an attempt's record, or the reason why it cannot be read."""
    try:
        return (yield from ledger.read_record(key))
    except RecordDamagedError as error:
        return f"{error.message} ({key})"


def _marker(key: str) -> Step[_Marker]:
    """Read a marker, or the reason why it cannot be read."""
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
    """Return a partition by its marker, or the reason why the marker does not count.

    The root's marker counts instead if its job wrote to the partition, and the partition has no
    later marker of its own.
    """
    marker = own
    if own is not of_root and isinstance(of_root, JobSummary):
        keys = _of_write(of_root, files)
        if any(key.startswith(root.partition_prefix(name)) for key in keys):
            marker = of_root if own is None else max((own, of_root), key=_written_at)
        elif own is None and files and (why := _why_unnamed(of_root)):
            return why
    if isinstance(marker, _PlainMarker):
        return WrittenPartition(None, marker.at, files) if committer is None else _PLAIN
    if own is None and isinstance(of_root, _PlainMarker):
        return _PLAIN_ROOT
    if marker is None or isinstance(marker, str):
        return marker
    said = marker.marker
    if said.manifest is not None and committer is None:
        return OF_NATIVE
    if committer not in (None, said.committer):
        return f"_SUCCESS is of the {said.committer!r} committer"
    if not said.success:
        return "_SUCCESS says that its job failed"
    keys = {it for it in _of_write(marker, files) if it.startswith(root.partition_prefix(name))}
    if keys and keys.isdisjoint(files):
        return _all_gone(len(keys), said.job)
    held: dict[str, int | None] = {**dict.fromkeys(sorted(keys)), **files}
    recorded = marker.files if marker is own else None
    return WrittenPartition(said.job, said.timestamp_ms / 1000, held, recorded)


def _written_at(marker: _Marker) -> float:
    """Return when a marker was written, in Unix seconds; infinity for one that cannot be read."""
    if isinstance(marker, JobSummary):
        return marker.marker.timestamp_ms / 1000
    return marker.at if isinstance(marker, _PlainMarker) else math.inf


def _why_unnamed(marker: JobSummary) -> str | None:
    """Explain why it is unknown whether a marker's job wrote a file that the marker does not name.

    :return: ``None`` if the files' names show it.
    """
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
    """Return the files of a marker's write.

    These are the files that it names, and those with a UUID in their names that all named files
    have.
    """
    named = {name.removeprefix("/") for name in marker.marker.filenames}
    common = _common_uuids(named)
    return named | {key for key in files if common & set(uuids_in_name(key))}
