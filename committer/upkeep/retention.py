"""Retention of a table that is read by heads: for how long what is replaced is kept, and heads that
forget it then, each by a swap on its ETag.

Files go after that. So no clock decides about a file: whoever undoes a job has claimed the head,
which then forgets nothing, or finds that it has forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..commit.past import HeldFiles, check_past, held_files
from ..commit.state.context import Context
from ..commit.state.found_table import (
    change_table,
    existing_table,
    find_table,
    is_changed,
    read_table,
)
from ..commit.state.heads import Swapped, swap_head
from ..commit.state.old_records import KEPT_FOR, read_heads
from ..commit.state.open_jobs import list_open
from ..commit.state.tolerance import unless_gone
from ..errors import DamagedError, InvalidInputError
from ..format.as_of import AsOf
from ..format.job_spec import Readers
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState
from ..format.records.table_record import TableRecord
from ..store.fast_root import FastPlace, FastRoot
from ..store.listing import list_uploads
from ..store.requests import All, ListObjects, Step
from .doctor import longest_job

#: A hundred years, in seconds: the end of what is kept is a time that can be told.
_MOST = 100 * 365.25 * 86_400


@dataclass(frozen=True)
class Keeping:
    """How much of what was replaced is kept.

    :param before: what was replaced before this time may be forgotten, by the store's clock.
    :param most: former states of a partition that stay at the most.
    """

    before: float
    most: int


@dataclass(frozen=True)
class Forgotten:
    """A head that has forgotten former states, or would.

    :param states: how many.
    """

    state: HeadState
    states: int


def set_retention(context: Context, seconds: float) -> Step[None]:
    """As :meth:`.table.Table.set_retention`."""
    if not seconds <= _MOST:
        raise InvalidInputError(
            f"A retention of {seconds} s is not one of at most 100 years. Nothing was changed.",
            remedy="Give a number of seconds; it may be long.",
        )
    longest = yield from longest_job(context)
    if seconds < longest:
        raise InvalidInputError(
            f"A retention of {seconds:.0f} s is less than the {longest:.0f} s that a job may last, "
            "so it could lose what it reads. Nothing was changed.",
            remedy="Give more. What is kept can go now, too: zero-rename purge "
            f"{context.root.url} --keep 1 --apply",
        )
    while True:
        found = yield from existing_table(context)
        check_past(found.record, AsOf(time=0.0), None)
        if (yield from is_changed(context, found, retention=int(seconds))):
            return


def retention(context: Context) -> Step[float]:
    """As :attr:`.table.Table.retention`."""
    table = yield from read_table(context)
    check_past(table, AsOf(time=0.0), None)
    return retention_of(table)


def retention_of(table: TableRecord) -> float:
    """As :func:`retention`, of a table's record."""
    return KEPT_FOR if table.retention is None else float(table.retention)


def kept_files(context: Context) -> Step[dict[str, tuple[DataFile, ...]]]:
    """As :meth:`.table.Table.kept_files`, of the heads that can be read."""
    found = yield from find_table(context)
    if found is None or found.record.readers is Readers.LISTING:
        return {}
    heads = yield from read_heads(context)
    held = yield from held_files(context, list(heads.states.values()))
    return {n: it.kept for n, it in held.items() if isinstance(it, HeldFiles) and it.kept}


def forget(context: Context, keeping: Keeping, apply: bool) -> Step[list[Forgotten]]:
    """Let heads forget what is kept too long: those that carry no claim. One that moves meanwhile
    is left for the next time."""
    heads = yield from read_heads(context)
    found = [it for state in heads.states.values() if (it := _forgetful(context, state, keeping))]
    if not apply:
        return found
    swaps = [swap_head(heads.states[it.state.slot.name], it.state.head) for it in found]
    outcomes = yield from All(tuple(swaps))
    return [it for it, done in zip(found, outcomes, strict=True) if isinstance(done, Swapped)]


def _forgetful(context: Context, state: HeadState, keeping: Keeping) -> Forgotten | None:
    if state.head.claim is not None or state.etag is None:
        return None
    after = state.head.forgetting(keeping.before, keeping.most, context.write_id(), state.etag)
    if after is None:
        return None
    return Forgotten(replace(state, head=after), len(state.head.kept) - len(after.kept))


def forget_roots(context: Context) -> Step[None]:
    """Let the table forget its former data roots in which nothing is left; or which cannot be
    reached, once no head names or keeps a file there.

    The record is read before the open jobs, and these before the roots: who may write there yet has
    opened before the root was changed. Where another changes the record, the next purge does it.
    """
    found = yield from existing_table(context)
    if (yield from list_open(context)):
        return
    heads = yield from read_heads(context)
    held = yield from held_files(context, list(heads.states.values()))
    if heads.damaged or any(isinstance(it, DamagedError) for it in held.values()):
        return
    named = {
        place.keys
        for it in held.values()
        if isinstance(it, HeldFiles)
        for file in (*it.now, *it.kept)
        if (place := FastPlace.of(context.root.bucket, file.key)) is not None
    }
    left: list[FastRoot] = []
    for root in found.record.former_roots:
        folder = context.root.fast_data_prefix(root)
        objects = yield from unless_gone(iter(ListObjects(folder)), None)
        uploads = yield from unless_gone(list_uploads(folder), [])
        if folder in named or uploads or (objects is not None and objects.objects):
            left.append(root)
    if len(left) < len(found.record.former_roots):
        yield from change_table(context, found, former_roots=tuple(left))
