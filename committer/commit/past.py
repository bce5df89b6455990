"""Heads as of a moment of the past, as far as they tell it: in tables that are read by heads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import DamagedError, InvalidInputError
from ..format.as_of import AsOf, told
from ..format.job_spec import Readers
from ..format.layout import UNPARTITIONED, TableRoot
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState, PartitionHead
from ..format.records.table_record import TableRecord
from ..store.requests import All, Step, Wait
from .state.context import Context
from .state.heads import HeadListing, ListedHead, list_heads_and_index, read_head
from .state.partition_files import files_of_heads
from .state.tolerance import or_damage

#: Looks at the store's clock until a second is over, and seconds between them.
_ROUNDS = 8
_PAUSE = 0.5


def check_past(table: TableRecord, past: AsOf | None, asked: Collection[str] | None) -> None:
    """Refuse what no state of a table can be; ``None``, the one of now, always can.

    :param asked: the partitions that are to be read; ``None``: all.
    :raises InvalidInputError: a table without history, or a version of no partition or of several.
    """
    if past is None:
        return
    if table.readers is not Readers.HEADS:
        raise InvalidInputError(
            "This table keeps no history: its readers list files, so a replace removes what it "
            "takes the place of. Nothing was done.",
            remedy="Only what it holds now can be read. A table keeps its history whose first job "
            "has readers='heads'.",
        )
    # A condition, too, is about partitions of which each counts its own versions.
    if past.version is not None and table.partition_by and not _is_one(asked):
        raise InvalidInputError(
            f"Version {past.version} of which partition? Each counts its own. Nothing was done.",
            remedy="Name one partition; or give a time, which is of all partitions.",
        )


def list_after(context: Context, past: AsOf | None) -> Step[HeadListing]:
    """List the heads, and the index, once the second is over whose state is to be read: a job may
    still come to count from one that is not.

    :raises InvalidInputError: the time is still to come, by the store's clock.
    """
    listing = yield from list_heads_and_index(context)
    if past is None or past.time is None:
        return listing
    if past.time > listing.since:
        raise InvalidInputError(
            f"{past} is still to come: the store's time is {told(listing.since)}. Nothing was "
            "done.",
            remedy="Give a time that is over.",
        )
    for _ in range(_ROUNDS):
        if past.time < listing.since:
            break
        yield from Wait(_PAUSE)
        listing = yield from list_heads_and_index(context)
    return listing


def _is_one(asked: Collection[str] | None) -> bool:
    return isinstance(asked, tuple | list | set | frozenset) and len(asked) == 1


def may_still_count(
    states: Iterable[HeadState], listed: Mapping[str, ListedHead], past: AsOf
) -> bool:
    """Whether a job that has not decided may come to count from before the moment on: a job counts
    from its last claim on, and these carry a claim of that time."""
    if past.time is None:
        return False
    claimed = (state.slot.name for state in states if state.head.claim is not None)
    return any(listed[name].last_modified <= past.time for name in claimed if name in listed)


def states_as_of(
    root: TableRoot, table: TableRecord, states: Sequence[HeadState], past: AsOf
) -> list[HeadState]:
    """Heads as they were, without those of partitions that were not there.

    :raises InvalidInputError: one does not tell it, or not any more.
    """
    if past.version and not states:
        raise InvalidInputError(
            f"No job has changed that partition, so it never had a version {past.version}. Nothing "
            "was done.",
            remedy=f"zero-rename show {root.url} lists the partitions.",
        )
    before = [_as_of(root, table, state, past) for state in states]
    return [state for state in before if state.head.version]


def heads_as_of(
    context: Context,
    table: TableRecord,
    listed: Mapping[str, ListedHead],
    states: Sequence[HeadState],
    past: AsOf,
) -> Step[list[HeadState]]:
    """As :func:`states_as_of`, of a table as a whole: a time before it is refused, whichever
    partitions are asked for.

    :param listed: all heads; ``states``: those that were read.
    :raises DamagedError: the one head that might tell of the table cannot be read.
    """
    moved = [state for state in states if state.head.version]
    found = states_as_of(context.root, table, moved, past)
    if not found and past.time is not None:
        yield from _refuse_before_table(context, listed, states, past, past.time)
    return found


def _refuse_before_table(
    context: Context,
    listed: Mapping[str, ListedHead],
    states: Sequence[HeadState],
    past: AsOf,
    time: float,
) -> Step[None]:
    """Nothing counted then of what was asked for, so the other heads tell. Most have not changed
    for long: the oldest is read first, and all only where that one does not tell."""
    known = {state.slot.name for state in states}
    others = [it for it in listed.values() if it.slot.name not in known]
    others.sort(key=lambda it: it.last_modified)
    found: list[HeadState | DamagedError] = list(states)
    for some in (others[:1], others[1:]):
        found += yield from All(tuple(or_damage(read_head(context, it.slot)) for it in some))
        heads = [it.head for it in found if isinstance(it, HeadState)]
        if any(head.version_at_time(time) for head in heads):
            return
    for it in found:
        if isinstance(it, DamagedError):
            raise it
    if any(head.version_at_time(time) is None for head in heads):
        raise InvalidInputError(
            f"Nothing was there of these partitions at {past}, and whether the table was there is "
            "not kept any more. Nothing was done.",
            remedy="Give a later time. How long it is kept is the table's retention: zero-rename "
            f"retention {context.root.url}",
        )
    first = [move.since for head in heads for move in head.lines[0].moves]
    if first:
        raise InvalidInputError(
            f"The table was not there yet at {past}: what counted first did from "
            f"{told(min(first))} on. Nothing was done.",
            remedy="Give a later time.",
        )


def _as_of(root: TableRoot, table: TableRecord, state: HeadState, past: AsOf) -> HeadState:
    head = state.head
    version = past.version if past.time is None else head.version_at_time(past.time)
    if version is not None and version > head.version:
        raise InvalidInputError(
            f"{_named(head)} is at version {head.version}; it never had a version {version}. "
            "Nothing was done.",
            key=state.slot.key,
            remedy=f"{told_versions(head)}.",
        )
    former = None if version is None else head.as_of(version)
    if former is None:
        raise InvalidInputError(
            f"What {_named(head)} held at {past} is not kept any more. Nothing was done.",
            key=state.slot.key,
            remedy=f"{told_versions(head)}. How long it is kept is the table's retention: "
            f"zero-rename retention {root.url}",
        )
    if former.version and former.schema_version < table.overwritten:
        raise InvalidInputError(
            f"What {_named(head)} held at {past} has other columns than the table, which were "
            "overwritten since. Nothing was done.",
            key=state.slot.key,
            remedy="Read a later state; the files of the former one stay for as long as it is "
            "kept.",
        )
    return replace(state, head=former)


@dataclass(frozen=True)
class HeldFiles:
    """The files of a partition: those that its head names, and those that it only keeps."""

    now: tuple[DataFile, ...]
    kept: tuple[DataFile, ...]


def held_files(
    context: Context, states: Sequence[HeadState]
) -> Step[dict[str, HeldFiles | DamagedError]]:
    """What heads name and keep, by partition; of one of which it cannot be told, why: damage, or
    its head has moved since it was read (:class:`.HeadMovedError`)."""
    former = [replace(state, head=head) for state in states for head in state.head.states]
    found = yield from files_of_heads(context, former)
    told: dict[str, list[tuple[DataFile, ...] | DamagedError]]
    told = {state.slot.name: [] for state in states}
    for state, files in zip(former, found.files, strict=True):
        told[state.slot.name].append(files)  # Last of each: what it names now.
    return {name: _held(files) for name, files in told.items()}


def _held(told: Sequence[tuple[DataFile, ...] | DamagedError]) -> HeldFiles | DamagedError:
    every: dict[str, DataFile] = {}
    for files in told:
        if isinstance(files, DamagedError):
            return files
        every |= {file.key: file for file in files}
    now = told[-1]
    assert not isinstance(now, DamagedError)
    kept = every.keys() - {file.key for file in now}
    return HeldFiles(now, tuple(every[key] for key in sorted(kept)))


def told_versions(head: PartitionHead) -> str:
    """What a head can tell, in words."""
    first = next((move for line in head.lines for move in line.moves), None)
    if first is None:
        return f"{_named(head)} has no former version"
    return f"{_named(head)} can be read back to version {first.version}, of {told(first.since)}"


def _named(head: PartitionHead) -> str:
    return "The table" if head.name == UNPARTITIONED else head.name
