"""Verification of a destination of Hadoop's committers by the ``_SUCCESS`` files in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...committer.commit.state.tolerance import unless_denied
from ...committer.format.layout import TableRoot
from ...committer.store.listing import list_objects
from ...committer.store.requests import All, ListedObject, Step
from ..hadoop.job_traces import Marker, read_marker, uuids_in_name
from ..runs.ledger import tries_since
from ..runs.rivals import has_committed, is_at_work, meet, replaces, written_at
from ..runs.try_record import StoredTry

_NAME = "_SUCCESS"


@dataclass(frozen=True)
class MissingFile:
    """A committed file that is missing, though nothing has replaced its partition since.

    :param marker: the key of the ``_SUCCESS`` that names it.
    :param job: the job that wrote the marker.
    """

    key: str
    marker: str
    job: str


@dataclass(frozen=True)
class MarkerReport:
    """Result of the verification of a destination's markers.

    :param missing: missing files, sorted by their keys.
    :param unread: a reason for each marker that could not be compared. Markers of 0 bytes, which
        Spark's plain commit writes, do not count.
    """

    missing: tuple[MissingFile, ...]
    unread: tuple[str, ...]


def verify_markers(root: TableRoot) -> Step[MarkerReport]:
    """Find missing files that a ``_SUCCESS`` at or below a destination names.

    One listing, and a request for each marker. A file counts as replaced, not as missing, if
    its folder holds a file of another write that is as new as the marker: another job has loaded
    the partition. Writes are distinguished by the UUID that Spark puts into the names of all files
    of a write; without one, by their times. A file also counts as replaced if the ledger has a
    later run that replaces the partition, at work or committed: magic's overwrite removes before it
    writes, and a run may have no row for the partition.

    A marker names a hundred files at most (Hadoop's ``SuccessData``), and only those are compared.
    A marker that names files elsewhere is not compared: it was copied here with the files.

    :raises RecordDamagedError: files are missing, and the record of a later run cannot be read.
    """
    listing = yield from list_objects(f"{root.prefix}/")
    objects = {item.key: item for item in listing.objects}
    keys = [key for key in objects if key.rpartition("/")[2] == _NAME]
    found = yield from All(tuple(read_marker(key.removesuffix(f"/{_NAME}")) for key in keys))
    folders = _by_folder(root, objects)
    unread = [it.damage for it in found if it.damage]
    gone: list[tuple[MissingFile, float]] = []
    for key, marker in zip(keys, found, strict=True):
        names = _named(marker)
        if elsewhere := [it for it in names if not it.startswith(f"{root.prefix}/")]:
            why = f"{key} names files elsewhere, such as {elsewhere[0]}: it was copied here"
            unread.append(why)
            continue
        for name in names:
            beside = folders.get(name.rpartition("/")[0], [])
            if name not in objects and not _is_replaced(name, marker, beside):
                gone.append((MissingFile(name, key, marker.job or ""), marker.last_modified))
    since = min((at for _, at in gone), default=0.0)
    missing = gone
    # A run's record lies beside the destination that it names. That may contain this one.
    for ledger in (root, *root.around) if gone else ():
        asked = tries_since(ledger, since)
        tries = yield from asked if ledger == root else unless_denied(asked, ())
        missing = [
            (it, at)
            for it, at in missing
            if not any(_replaces(ledger, one, it.key, at) for one in tries)
        ]
    found_missing = sorted((it for it, _ in missing), key=lambda it: it.key)
    return MarkerReport(tuple(found_missing), tuple(unread))


def named_by_markers(root: TableRoot, keys: Collection[str]) -> Step[frozenset[str]]:
    """Return those of the keys that the ``_SUCCESS`` of a successful job names, at the destination
    or in their folders: a request for each."""
    folders = sorted({root.prefix, *(key.rpartition("/")[0] for key in keys)})
    found = yield from All(tuple(read_marker(folder) for folder in folders))
    return frozenset(keys).intersection(name for marker in found for name in _named(marker))


def _replaces(root: TableRoot, it: StoredTry, key: str, since: float) -> bool:
    """Return whether a run has replaced a file's partition since a moment, or is about to."""
    record = it.record
    partition = root.partition_of_data_key(key)
    if not replaces(record) or not meet(record.partitions, (partition,) if partition else ()):
        return False
    has_replaced = has_committed(record) and written_at(record) >= int(since)
    return has_replaced or is_at_work(it)


def _named(marker: Marker) -> list[str]:
    """Return the keys that a successful job's marker names."""
    if marker.said is None or not marker.said.marker.success:
        return []
    return [name.removeprefix("/") for name in marker.said.marker.filenames]


def _by_folder(
    root: TableRoot, objects: Mapping[str, ListedObject]
) -> dict[str, list[ListedObject]]:
    """Group the data files by their folders."""
    folders: dict[str, list[ListedObject]] = defaultdict(list)
    for item in filter(root.is_data, objects.values()):
        folders[item.key.rpartition("/")[0]].append(item)
    return folders


def _is_replaced(name: str, marker: Marker, beside: Sequence[ListedObject]) -> bool:
    """Return whether a file's folder has a file of another write that is as new as the marker.

    If the file's name has no UUID, as with MapReduce, neither may those of other files of its
    write. These are not newer than the marker, so only a newer file is of another write.
    """
    # All jobs of an application may have got the committer's UUID; Spark's own is of one write.
    own = set(uuids_in_name(name))
    own = own - {(marker.job or "").lower()} or own
    since = int(marker.last_modified)

    def is_of_another(item: ListedObject) -> bool:
        at, others = int(item.last_modified), uuids_in_name(item.key)
        is_new = at > since or (at == since and bool(own or others))
        return is_new and own.isdisjoint(others)

    return any(map(is_of_another, beside))
