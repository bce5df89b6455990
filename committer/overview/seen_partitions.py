"""Partitions of a table at about one moment: what each holds, by index or head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..commit.index.indexed_partition import IndexedPartition
from ..commit.index.lost_heads import files_without_heads, find_lost_heads, known_by_index
from ..commit.index.read_index import read_index, still_true
from ..commit.state.context import Context
from ..commit.state.data_listing import list_older
from ..commit.state.heads import ListedHead, list_heads, list_heads_and_index, read_head
from ..commit.state.partition_files import files_of_heads
from ..commit.state.tolerance import or_damage
from ..commit.uncoordinated import list_files
from ..errors import DamagedError
from ..format.job_spec import Coordination
from ..format.records.data_file import DataFile, rows_of
from ..format.records.head import HeadState
from ..format.records.table_record import TableRecord
from ..store.requests import All, ListedObject, Step


class SeenState(StrEnum):
    """First thing to report of a partition, the most pressing last.

    * ``listed``: no head; it holds what a listing shows.
    * ``emptied``: its last job left it without files.
    * ``committed``: it holds what all its jobs brought.
    * ``replaced``: it holds what a later job put in the place of earlier files.
    * ``running``: a job under way writes it.
    * ``conflicted``: the last look for conflicts has found runs that conflict over it, and that is
      not settled; or a run gave way there and has not committed since.
    * ``failed``: a run or a job that was to write it has failed, and the run has not committed
      since.
    * ``unreadable``: a record that names its files cannot be read.
    """

    LISTED = "listed"
    EMPTIED = "emptied"
    COMMITTED = "committed"
    REPLACED = "replaced"
    RUNNING = "running"
    CONFLICTED = "conflicted"
    FAILED = "failed"
    UNREADABLE = "unreadable"

    @property
    def pressing(self) -> int:
        """Rank of the state by urgency; greater is more pressing."""
        return list(SeenState).index(self)


@dataclass(frozen=True)
class SeenPartition:
    """A partition, and the first thing to report of it.

    :param version: how many jobs have moved it; ``None``: it has no head.
    :param rows: ``None`` if the rows of a file were not counted.
    :param job: the last that wrote files it holds.
    :param changed_at: when its head was written last; ``None`` without one. A claim counts.
    :param why: a sentence, for the states that need one.
    """

    name: str
    state: SeenState
    version: int | None
    files: int
    rows: int | None
    bytes: int
    job: str | None
    changed_at: float | None
    why: str = ""


@dataclass(frozen=True)
class PartitionsThere:
    """Partitions by the heads of a table, without regard to its jobs.

    :param claims: the claiming job by partition.
    :param behind_index: number of heads that were read because the index does not know them.
    """

    partitions: Mapping[str, SeenPartition]
    claims: Mapping[str, str]
    behind_index: int = 0


def partitions_there(context: Context, table: TableRecord | None) -> Step[PartitionsThere]:
    """Read the partitions of a table, each by its head.

    :param table: ``None`` if its first job has not made it yet.
    """
    if table is None:
        return PartitionsThere({}, {})
    if table.coordination is Coordination.NONE:
        files = yield from list_files(context, table.partition_by, None)
        return PartitionsThere(_listed(files), {})
    older: dict[str, list[ListedObject]] = {}
    if table.unadopted:
        older = yield from list_older(context, table, None)
    listing = yield from list_heads_and_index(context)
    seen: dict[str, SeenPartition] = {}
    index: Mapping[str, IndexedPartition] = {}
    if listing.index is not None:
        index = (yield from read_index(context)).entries
        for name, it in still_true(index, listing.heads).items():
            seen[name] = _seen(listing.heads[name], it.version, it.files)
    changed = [head for name, head in listing.heads.items() if name not in seen]
    claims = yield from _read(context, changed, seen)
    unmoved = {name: items for name, items in older.items() if name not in seen}
    files, lost = yield from files_without_heads(context, unmoved)
    seen |= _listed(file for of_it in files.values() for file in of_it)
    if index.keys() - listing.heads.keys():
        # The index may be younger than the first listing of heads, but not than a second one.
        heads = yield from list_heads(context)
        lost |= find_lost_heads(context.root, known_by_index(index.values()), heads, ())
    seen |= {name: _unread(name, error, None) for name, error in lost.items()}
    return PartitionsThere(seen, claims, len(changed))


def _read(
    context: Context, heads: Iterable[ListedHead], seen: dict[str, SeenPartition]
) -> Step[dict[str, str]]:
    """Read heads, add their partitions to ``seen``, and return their claims."""
    listed = list(heads)
    found = yield from All(tuple(or_damage(read_head(context, head.slot)) for head in listed))
    states = [state for state in found if isinstance(state, HeadState)]
    named = yield from files_of_heads(context, states)
    files = {state.slot.name: of_it for state, of_it in zip(states, named.files, strict=True)}
    claims = {}
    for head, state in zip(listed, found, strict=True):
        name = head.slot.name
        if isinstance(state, DamagedError):
            seen[name] = _unread(name, state, head.last_modified)
            continue
        if state.head.claim is not None:
            claims[name] = state.head.claim
        of_it = files[name]
        if isinstance(of_it, DamagedError):
            seen[name] = _unread(name, of_it, head.last_modified)
        elif state.head.version:
            seen[name] = _seen(head, state.head.version, of_it)
    return claims


def _unread(name: str, error: DamagedError, at: float | None) -> SeenPartition:
    return SeenPartition(name, SeenState.UNREADABLE, None, 0, None, 0, None, at, str(error))


def _seen(head: ListedHead, version: int, files: tuple[DataFile, ...]) -> SeenPartition:
    jobs = {file.job for file in files}
    state = SeenState.COMMITTED
    if not files:
        state = SeenState.EMPTIED
    elif version > len(jobs):
        # Each job moves a head once: the files of at least one of them are no longer there.
        state = SeenState.REPLACED
    last = max(jobs, default="") or None
    return _counted(head.slot.name, state, version, files, last, head.last_modified)


def _listed(files: Iterable[DataFile]) -> dict[str, SeenPartition]:
    by_name: dict[str, list[DataFile]] = {}
    for file in files:
        by_name.setdefault(file.partition, []).append(file)
    return {
        name: _counted(name, SeenState.LISTED, None, of_it, None, None)
        for name, of_it in by_name.items()
    }


def _counted(
    name: str,
    state: SeenState,
    version: int | None,
    files: Sequence[DataFile],
    job: str | None,
    changed_at: float | None,
) -> SeenPartition:
    rows, size = rows_of(files), sum(file.size for file in files)
    return SeenPartition(name, state, version, len(files), rows, size, job, changed_at)
