"""Snapshots: one state of a table, read through its heads, with all partitions as of one moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ..errors import (
    DamagedError,
    HeadMovedError,
    OtherJobError,
    OutcomeUnknownError,
    StoreRefusedError,
    UnfinishedCommitError,
)
from ..format.job_spec import Coordination
from ..format.layout import UNPARTITIONED, TableRoot, job_in_key
from ..format.read_base import ReadBase, listing_digest
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState
from ..format.records.table_record import TableRecord
from ..format.schema.lost_records import named_by
from ..format.schema.other_formats import refuse_other_logs
from ..store.requests import All, ListedObject, Step, Wait
from .apply import finish
from .index.indexed_partition import IndexedPartition
from .index.lost_heads import KnownVersion, files_without_heads, find_lost_heads, known_by_index
from .index.read_index import read_index, still_true
from .state.context import Context
from .state.data_listing import list_directories, list_older, list_partitions
from .state.decide import Decided, read_decision
from .state.found_table import read_table, with_columns
from .state.heads import HeadListing, ListedHead, list_heads, list_heads_and_index, read_head
from .state.partition_files import files_of_heads
from .state.tolerance import or_damage
from .uncoordinated import list_files

_ROUNDS = 60
_PAUSE = 0.5

#: The index's entries of partitions, by name.
_Indexed = Mapping[str, IndexedPartition]


@dataclass(frozen=True)
class Snapshot:
    """One consistent state of a table, fixed when it was read.

    :param files: all files of the partitions asked for, by partition and age.
    :param versions: version by partition. A partition that has files and no version holds what a
        listing showed: files from before the table that are not adopted yet, or any files of a
        table of coordination *none*.
    :param asked: the partitions asked for; ``None``: all.
    :param lists: partitions without a version hold what a listing showed, if it showed any.
    :param read: the read base of rows computed from this state, if more was read than this state
        has; ``None``: nothing more was read.
    :param log_version: the version of the log from which the state was read; ``None``: it was read
        from heads or a listing.
    :param entries: by job with files here, the version of its entry in that log.
    :param of_job: whether these are the rows of one job alone, and no state of the table.
    """

    root: TableRoot
    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: tuple[DataFile, ...]
    versions: dict[str, int]
    asked: Collection[str] | None = None
    lists: bool = False
    read: ReadBase | None = None
    log_version: int | None = None
    entries: Mapping[str, int] = field(default_factory=dict)
    of_job: bool = False

    @property
    def base(self) -> ReadBase:
        """Read base of a job that computes its rows from this state."""
        if self.read is not None:
            return self.read
        # A condition for partitions names those that it was given by name, if any.
        read = (*(self.asked or ()), *(file.partition for file in self.files))
        versions = {**dict.fromkeys(read, 0), **self.versions}
        listed = {
            name: listing_digest((file.key, file.size) for file in files)
            for name, files in self.by_partition().items()
            if name not in self.versions
        }
        whole = self.asked is None
        listing = listed if self.lists else None
        return ReadBase(self.root.url, versions, whole, listing, self.log_version)

    def of(self, partitions: Collection[str]) -> Snapshot:
        """Return the same state of some of the partitions that it was read of, by name."""
        files = tuple(file for file in self.files if file.partition in partitions)
        versions = {name: version for name, version in self.versions.items() if name in partitions}
        return replace(self, files=files, versions=versions, asked=tuple(sorted(partitions)))

    def chosen(self, partitions: Collection[str]) -> Snapshot:
        """Return the same state of some partitions, chosen by what all of them hold.

        Its read base remains that of all partitions.
        """
        return replace(self.of(partitions), read=self.base)

    def has_columns(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Return whether this state has exactly these columns and partition columns."""
        same = self.schema.equals(schema, check_metadata=True)
        return same and self.partition_by == tuple(partition_by)

    def by_partition(self) -> dict[str, list[DataFile]]:
        """Group the files by partition, oldest first. Partitions without files are left out."""
        files: dict[str, list[DataFile]] = {}
        for file in self.files:
            files.setdefault(file.partition, []).append(file)
        return files


def state_without_table(
    root: TableRoot, schema: pa.Schema, partition_by: Sequence[str]
) -> Snapshot:
    """Build the state of a root that has neither a table nor a file.

    It counts as read like any state: a job that goes by it is refused if a partition, or a file,
    has come since.

    :param schema: the columns of the table to be made; ``partition_by``: its partition columns.
    """
    return Snapshot(root, schema, tuple(partition_by), (), {}, lists=True)


@dataclass(frozen=True)
class Survey:
    """The readable part of a table, and an error for each partition that cannot be read.

    :param snapshot: of the partitions that can be read.
    :param damaged: by partition, why it cannot be read.
    """

    snapshot: Snapshot
    damaged: Mapping[str, DamagedError] = field(default_factory=dict)


def take_snapshot(context: Context, partitions: Collection[str] | None = None) -> Step[Snapshot]:
    """Read one state of several partitions.

    1. List the heads, read them, then read the decisions of jobs that have claims.
    2. List the heads again. The state is accepted if the ETags are equal and no claim is that of a
       decided commit.
    3. Otherwise read the heads that moved again, and the decisions of all jobs that have claims. A
       decided commit is applied first; if this process may not write, it waits for the owner.

    In a table over older files, the files are listed once before: a partition whose head has not
    moved by then holds what that listing showed. If there are many heads, the index is read first:
    heads that it knows by their ETag are not read. If a partition has no head, and the index, a
    decision or a file's name shows that it had one, its head is lost. Files are listed to find that
    out if there is no index, and for partitions asked for by name that have no head.

    :param partitions: Hive-escaped partition paths; ``None`` for all.
    :raises TableNotFoundError: no such table.
    :raises TableMismatchError: it shows files of other programs, and the folder belongs to another
        table format.
    :raises DamagedError: a record that names the files of a partition cannot be read, or is
        missing.
    :raises OtherJobError: a committed job could not be applied and its owner does not finish
        either.
    """
    found = yield from _look(context, partitions, _indexed)
    for partition in sorted(found.damaged):
        raise found.damaged[partition]
    if any(file.is_foreign and job_in_key(file.key) is None for file in found.snapshot.files):
        yield from refuse_other_logs([context.root])
    return found.snapshot


def survey(context: Context, partitions: Collection[str] | None = None) -> Step[Survey]:
    """Read as much of a table as can be read, for maintenance.

    Like :func:`take_snapshot`, but a partition that cannot be read does not prevent reading the
    others, and every record is read instead of the index. Do not read rows by it.
    """
    return (yield from _look(context, partitions, _nothing_indexed))


#: Function that reads the index's entries of the partitions asked for, by name.
_AskIndex = Callable[[Context, HeadListing, Collection[str] | None], Step[_Indexed]]


def _indexed(
    context: Context, listing: HeadListing, asked: Collection[str] | None
) -> Step[_Indexed]:
    wanted = {*_wanted(listing.heads, asked)}
    few = _are_names(asked) and len(wanted) < context.limits.heads_besides_index
    if listing.index is None or few:
        return {}
    index = yield from read_index(context, wanted or None)
    return {n: it for n, it in index.entries.items() if asked is None or n in asked}


def _nothing_indexed(
    context: Context, listing: HeadListing, asked: Collection[str] | None
) -> Step[_Indexed]:
    yield from ()
    return {}


def _are_names(asked: Collection[str] | None) -> bool:
    """Return whether partitions are asked for by name, and not by a condition or all of them."""
    return isinstance(asked, tuple | list | set | frozenset)


def _look(context: Context, partitions: Collection[str] | None, known: _AskIndex) -> Step[Survey]:
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        files = yield from list_files(context, table.partition_by, partitions)
        listed = Snapshot(context.root, table.schema, table.partition_by, files, {}, partitions)
        return Survey(listed)
    context = context.of(table)
    older: dict[str, list[ListedObject]] = {}
    if table.unadopted:
        older = yield from list_older(context, table, partitions)
    listing = yield from list_heads_and_index(context)
    wanted = _wanted(listing.heads, partitions)
    index = yield from known(context, listing, partitions)
    states: list[HeadState] = []
    for _ in range(_ROUNDS):
        indexed = still_true(index, wanted)
        unknown = {name: head for name, head in wanted.items() if name not in indexed}
        found = yield from _read_moved(context, unknown, states)
        damaged = {name: it for name, it in found.items() if isinstance(it, DamagedError)}
        states = [state for state in found.values() if isinstance(state, HeadState)]
        settled = yield from _settle_claims(context, states, damaged)
        heads = yield from list_heads(context)
        again = _wanted(heads, partitions)
        seen = _etags(wanted) | {state.slot.name: state.etag for state in states}
        if settled and _etags(again) == seen:
            view = _View(context, table, index, indexed, states, heads, older, damaged)
            seen_now = yield from _snapshot(view, partitions)
            if not any(isinstance(it, HeadMovedError) for it in seen_now.damaged.values()):
                return seen_now
            # A record that a head named was folded into another one before it was read here.
            again = _wanted((yield from list_heads(context)), partitions)
        wanted = again
    raise OtherJobError(
        f"The table did not hold still for {_ROUNDS} looks, or a committed job is not applied. "
        "Nothing was read or changed.",
        table=context.root.url,
        remedy=f"Finish what is open: zero-rename recover {context.root.url} --apply",
    )


def _wanted(
    listed: dict[str, ListedHead], partitions: Collection[str] | None
) -> dict[str, ListedHead]:
    if partitions is None:
        return listed
    return {name: head for name, head in listed.items() if name in partitions}


def _read_moved(
    context: Context, listed: dict[str, ListedHead], known: list[HeadState]
) -> Step[dict[str, HeadState | DamagedError]]:
    """Read the listed heads again, except those with the ETag that was read before.

    If many writers are at work, some head moves between any two listings of all of them.

    :param known: the heads as they were read in the rounds before.
    """
    same = {s.slot.name: s for s in known if s.slot.name in listed}
    same = {name: state for name, state in same.items() if state.etag == listed[name].etag}
    moved = [name for name in listed if name not in same]
    reads = tuple(or_damage(read_head(context, listed[name].slot)) for name in moved)
    return {**same, **dict(zip(moved, (yield from All(reads)), strict=True))}


def _etags(listed: dict[str, ListedHead]) -> dict[str, str | None]:
    return {name: head.etag for name, head in listed.items()}


def _settle_claims(
    context: Context, states: Sequence[HeadState], damaged: dict[str, DamagedError]
) -> Step[bool]:
    """Apply the decided commits among the claims; return ``False`` if heads must be read again.

    They must be if such a commit was applied, or if this process may not apply it and has waited.

    :param damaged: gets the partitions added whose claims cannot be resolved: it is unknown whether
        their job is committed, or what its rows are.
    """
    jobs = sorted({state.head.claim for state in states if state.head.claim is not None})
    decisions = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    settled = True
    for job, decided in zip(jobs, decisions, strict=True):
        error = decided if isinstance(decided, DamagedError) else None
        claimed = [state.slot for state in states if state.head.claim == job]
        # A claim of a commit that does not name the partition changes nothing of it.
        if isinstance(decided, Decided) and any(map(decided.names, claimed)):
            error = yield from _finish(context, decided)
            settled = settled and error is not None
        if error is not None:
            damaged |= dict.fromkeys((slot.name for slot in claimed), error)
    return settled


def _finish(context: Context, decided: Decided) -> Step[DamagedError | None]:
    try:
        yield from finish(context, decided)
    except (StoreRefusedError, UnfinishedCommitError, OutcomeUnknownError):
        # A reader needs only that the heads have moved. If it may not write, or the store fails, it
        # waits for the owner.
        yield from Wait(_PAUSE)
    except DamagedError as error:
        return error
    return None


@dataclass(frozen=True)
class _View:
    """The heads of one moment.

    :param index: all entries of the index, also of heads that are missing.
    :param states: the heads that were read; ``indexed``: the index's entries of the others.
    :param heads: all that are listed, also of partitions that are not asked for.
    :param older: files from before the table, by partition.
    :param damaged: by partition, why it cannot be read.
    """

    context: Context
    table: TableRecord
    index: _Indexed
    indexed: _Indexed
    states: Sequence[HeadState]
    heads: Mapping[str, ListedHead]
    older: dict[str, list[ListedObject]]
    damaged: Mapping[str, DamagedError]


def _snapshot(view: _View, asked: Collection[str] | None) -> Step[Survey]:
    moved = [state for state in view.states if state.head.version]
    known = [it for it in view.indexed.values() if it.version]
    told = {*view.damaged, *(state.slot.name for state in moved), *(it.name for it in known)}
    unmoved = {name: items for name, items in view.older.items() if name not in told}
    before = {name: it.files for name, it in view.index.items()}
    named, (listed, gone) = yield from All(
        (files_of_heads(view.context, moved, before), _without_heads(view, told, unmoved, asked))
    )
    lost = _lost(view, named.decisions)
    damaged = {**{n: it for n, it in lost.items() if asked is None or n in asked}, **gone}
    damaged |= view.damaged
    versions = {it.name: it.version for it in known}
    files = {**listed, **{it.name: it.files for it in known}}
    for state, of_it in zip(moved, named.files, strict=True):
        name = state.slot.name
        if isinstance(of_it, DamagedError):
            damaged.setdefault(name, of_it)
        elif name not in damaged:
            files[name] = of_it
            versions[name] = state.head.version
    every = tuple(file for name in sorted(files) for file in files[name])
    columns = {it.name: it.schema_version for it in known}
    columns |= {state.slot.name: state.head.schema_version for state in moved}
    table = yield from with_columns(view.context, view.table, tuple(columns.values()))
    for name, since in columns.items():
        if since < table.overwritten:
            # The table was read again, after another change.
            error = HeadMovedError("Its columns were overwritten.")
            damaged.setdefault(name, error)
    shown = Snapshot(
        view.context.root,
        table.schema,
        table.partition_by,
        every,
        versions,
        asked,
        lists=view.table.unadopted,
    )
    return Survey(shown, damaged)


def _without_heads(
    view: _View,
    told: Collection[str],
    older: Mapping[str, Sequence[ListedObject]],
    asked: Collection[str] | None,
) -> Step[tuple[dict[str, tuple[DataFile, ...]], dict[str, DamagedError]]]:
    """Find the files of partitions whose heads never moved; find lost heads among them.

    Files from before the table count in a table over such files. In other tables partitions are
    listed only if nothing else would show a lost head.

    :param told: partitions that heads or the index know.
    :returns: the files by partition; an error for each partition whose head is lost.
    """
    if view.table.unadopted:
        return (yield from files_without_heads(view.context, older))
    columns = view.table.partition_by
    names: Iterable[str] = ()
    if _are_names(asked):
        names = asked or ()
    elif not columns:
        names = (UNPARTITIONED,)
    elif not view.index:
        directories = yield from list_directories(view.context, columns)
        names = (name for name in directories if asked is None or name in asked)
    listed = yield from list_partitions(view.context, columns, set(names).difference(told))
    _, gone = yield from files_without_heads(view.context, listed)
    return {}, gone


def _lost(view: _View, decisions: Iterable[Decided]) -> dict[str, DamagedError]:
    """Find partitions with lost heads, by the index and the decisions that were read."""
    root = view.context.root
    known = [
        KnownVersion(change.partition, change.base_version + 1, named_by(root, it.decision.job))
        for it in decisions
        for change in it.decision.partitions
    ]
    known += known_by_index(view.index.values())
    return find_lost_heads(root, known, view.heads, view.states)
