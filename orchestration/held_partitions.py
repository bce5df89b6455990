"""Partitions as commits left them: by their heads, or by ``_SUCCESS`` of Hadoop's committers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..committer.errors import RecordDamagedError
from ..committer.format.layout import TableRoot
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step
from .look import State

if TYPE_CHECKING:
    from ..committer import Table
    from ..committer.format.records.success_marker import SuccessMarker
    from ..committer.scan.partition_state import PartitionState


@dataclass(frozen=True)
class HeldPartition:
    """What a partition holds, and by whose commit.

    :param epoch: ``None`` where there are no heads.
    :param job: the commit's.
    :param decided_at: seconds since the epoch; ``None`` where nobody knows it any more.
    :param rows: ``None`` where nobody counted them; ``bytes`` as well.
    :param keys: of the files, each with its size in bytes where that is known.
    :param unfinished: a job that is committed and not applied to its end.
    :param settled: this stays so while nothing changes at the key that was read.
    """

    partition: str
    job: str | None
    decided_at: float | None
    rows: int | None
    bytes: int | None
    keys: Mapping[str, int | None]
    epoch: int | None = None
    unfinished: str | None = None
    settled: bool = True

    @property
    def files(self) -> int:
        return len(self.keys)


class HeldByHeads:
    """Of one table, remembered by the heads' ETags: all who wait in a process for partitions of it
    read each state once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, HeldPartition]] = {}

    def read(self, table: Table, etags: Mapping[str, str]) -> dict[str, HeldPartition]:
        """What partitions hold now.

        :param etags: of their heads, as a listing shows them.
        """
        unread = [name for name, etag in etags.items() if not self._is_known(name, etag)]
        for name, state in table.partition_states(unread).items():
            self._known[name] = (state.etag, _of_state(state))
        return {name: self._known[name][1] for name in etags if name in self._known}

    def _is_known(self, partition: str, etag: str) -> bool:
        known = self._known.get(partition)
        return known is not None and known[0] == etag and known[1].settled


#: Tables live as long as the process looks at them.
_held: MutableMapping[Table, HeldByHeads] = WeakKeyDictionary()


def held_by_heads(
    table: Table, partitions: Iterable[str], seen: Mapping[str, State]
) -> dict[str, HeldPartition]:
    """Partitions that jobs of this package have changed or, of epoch 0, are about to.

    :param seen: what lies at their heads' keys (:func:`.look.look`).
    """
    states = {name: seen[table.root.head_key(name)] for name in partitions}
    etags = {name: state[0][1] for name, state in states.items() if state}
    return _held.setdefault(table, HeldByHeads()).read(table, etags)


def _of_state(state: PartitionState) -> HeldPartition:
    return HeldPartition(
        partition=state.partition,
        job=state.job,
        decided_at=state.decided_at,
        rows=state.rows,
        bytes=state.bytes,
        keys={file.key: file.size for file in state.files},
        epoch=state.epoch,
        unfinished=state.unfinished,
        settled=state.unfinished is None and state.claim is None,
    )


def held_by_markers(
    table: Table, partitions: Sequence[str], committer: str, count: bool
) -> tuple[dict[str, HeldPartition], dict[str, str]]:
    """Partitions that one of Hadoop's committers wrote, by the ``_SUCCESS`` in each or, where the
    job was one of the whole table, by the table's, if it names a file of the partition.

    A marker names its first 100 files. Its time is that of the host that wrote it.

    :param count: read the rows' number from the files' footers.
    :return: what they hold, and why others do not count, by partition.
    """
    root, of_table = table.root, _marker(table, None)
    held: dict[str, HeldPartition] = {}
    refused: dict[str, str] = {}
    for name in partitions:
        marker = _marker(table, name)
        if marker is None and not isinstance(of_table, str) and of_table is not None:
            marker = of_table if _keys(root, of_table, name) else None
        if marker is None:
            continue
        if isinstance(marker, str):
            refused[name] = marker
        elif marker.committer != committer or not marker.success:
            refused[name] = f"_SUCCESS is of the {marker.committer!r} committer"
            if marker.committer == committer:
                refused[name] = "_SUCCESS says that its job failed"
        else:
            held[name] = HeldPartition(
                partition=name,
                job=marker.job,
                decided_at=marker.timestamp_ms / 1000,
                rows=table.scan(partitions=[name]).count() if count else None,
                bytes=None,
                keys=dict.fromkeys(_keys(root, marker, name)),
            )
    return held, refused


def _marker(table: Table, place: str | None) -> SuccessMarker | str | None:
    """A marker, or why it cannot be read."""
    try:
        return table.marker(place)
    except RecordDamagedError as error:
        return error.message


def _keys(root: TableRoot, marker: SuccessMarker, partition: str) -> list[str]:
    prefix = root.partition_prefix(partition)
    names = [name.lstrip("/") for name in marker.filenames]
    return [name for name in names if name.startswith(prefix)]


def absent_files(table: Table, held: Mapping[str, HeldPartition]) -> dict[str, list[str]]:
    """The files that partitions should hold and that a listing does not show, or in another size;
    by partition, of those that lack any."""
    listed = table.run(_below([table.root.partition_prefix(name) for name in held]))
    sizes = {item.key: item.size for item in listed}
    absent = {
        name: [
            key
            for key, size in of_it.keys.items()
            if key not in sizes or size not in (None, sizes[key])
        ]
        for name, of_it in held.items()
    }
    return {name: keys for name, keys in absent.items() if keys}


def _below(prefixes: Sequence[str]) -> Step[list[ListedObject]]:
    listings = yield from All(tuple(list_objects(prefix) for prefix in prefixes))
    return [item for listing in listings for item in listing.objects]
