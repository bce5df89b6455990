"""Writing of the index: only the parts with heads that have changed since."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from ...errors import DamagedError, ZeroRenameError
from ...format.records.head import HeadState
from ...store.conditional_put import NotWritten, Written, put_record
from ...store.requests import All, Delete, Done, Put, Step
from ..state.context import Context, Limits
from ..state.decide import Decided
from ..state.found_table import read_table
from ..state.heads import HeadListing, ListedHead, list_heads_and_index, read_head
from ..state.partition_files import files_of_heads
from ..state.tolerance import or_damage
from .indexed_partition import IndexedPartition, encode_part
from .lost_heads import was_made_anew
from .read_index import FoundIndex, IndexPart, TableIndex, read_index, still_true

logger = logging.getLogger("zero_rename.committer.commit.index.write_index")

#: An index is outdated if one in so many heads has changed since.
_ONE_IN = 64


def is_behind(listing: HeadListing, limits: Limits) -> bool:
    """Return whether the index should be written now.

    It should if the table has many heads and no index, or if many heads have changed since the
    index was written. A few heads are read faster than the index.
    """
    if listing.index is None:
        return len(listing.heads) >= limits.heads_without_index
    since = listing.index.last_modified
    changed = sum(head.last_modified > since for head in listing.heads.values())
    return changed >= max(limits.heads_besides_index, len(listing.heads) // _ONE_IN)


@dataclass(frozen=True)
class Moved:
    """A process's own commit, so that its heads and decision need not be read.

    :param decided: a job's commit decision.
    :param heads: those of its partitions that the process has moved.
    """

    decided: Decided
    heads: Collection[HeadState]


def look_after_index(
    context: Context, done: str, moved: Moved | None = None, has_heads: bool = True
) -> Step[None]:
    """Write the table's index if it is outdated, and another process has not just written it.

    No answer depends on the index, so it is written after everything else.

    :param done: what is done whether or not the index is written, for the log.
    :param has_heads: whether there were heads before the job; if there were none, the index of
        those that it moved is written without a listing, unless another process has written one.
    """
    try:
        if moved is not None and not has_heads and (yield from _write_first(context, moved)):
            return
        listing = yield from list_heads_and_index(context)
        if is_behind(listing, context.limits):
            yield from write_index(context, listing, moved)
    except ZeroRenameError as error:
        logger.warning(
            "%s: the table's index was not written; %s, and readers read the heads instead: %s",
            context.root.url,
            done,
            error,
        )


def _write_first(context: Context, moved: Moved) -> Step[bool]:
    """Write the index of a table's first heads, in two requests.

    Heads that others made meanwhile are left to the next process that finds the index outdated.
    """
    heads = {
        state.slot.name: ListedHead(state.slot, state.etag, 0.0)
        for state in moved.heads
        if state.etag is not None
    }
    return (yield from write_index(context, HeadListing(heads, None, 0.0), moved))


def write_index_now(context: Context) -> Step[bool]:
    """Write the index as :func:`write_index`, even if few heads have changed.

    :raises TableNotFoundError: no table here.
    """
    yield from read_table(context)
    return (yield from write_index(context, (yield from list_heads_and_index(context))))


def write_index(context: Context, listing: HeadListing, moved: Moved | None = None) -> Step[bool]:
    """Write into the index what the heads name; keep objects whose partitions have not changed.

    Entries of partitions stay as they were if their heads carry a claim, name records that cannot
    be read, or are missing: readers read those heads.

    :param listing: the heads and the index as they are listed.
    :return: whether it is there now; ``False``: another process wrote it meanwhile, or the store
        refused.
    """
    if not listing.heads:
        return True
    old = FoundIndex(None, {}) if listing.index is None else (yield from read_index(context))
    entries = old.entries
    known = still_true(entries, listing.heads)
    read = yield from _read(context, listing, entries, known, moved)
    # If a head is missing, or was made anew since, perhaps only the index shows that.
    kept, made = _arranged(old, entries | read, context.limits.files_per_object)
    if old.parts and not made:
        return True
    keys = [context.root.index_part_key(context.write_id()) for _ in made]
    parts = [
        IndexPart(key, chunk[0].name, chunk[-1].name, sum(it.rows for it in chunk))
        for key, chunk in zip(keys, made, strict=True)
    ]
    puts = tuple(
        Put(key, encode_part(context.root, chunk), content_type="application/vnd.apache.parquet")
        for key, chunk in zip(keys, made, strict=True)
    )
    answers = yield from All(puts)
    if not all(isinstance(answer, Done) for answer in answers):
        return False
    write_id = context.write_id()
    index = TableIndex(write_id, tuple(sorted((*kept, *parts), key=lambda part: part.first)))
    put = Put(
        context.root.index_key, index.encode(), if_none_match=old.etag is None, if_match=old.etag
    )
    outcome = yield from put_record(put, write_id)
    if isinstance(outcome, Written):
        superseded = [part.key for part in old.parts if part not in kept]
        yield from All(tuple(Delete(key) for key in superseded))
        return True
    if isinstance(outcome, NotWritten):
        yield from All(tuple(Delete(key) for key in keys))
    return False


def _read(
    context: Context,
    listing: HeadListing,
    old: Mapping[str, IndexedPartition],
    known: Mapping[str, IndexedPartition],
    moved: Moved | None,
) -> Step[dict[str, IndexedPartition]]:
    """Read what the heads name that the index does not know.

    :param old: all its entries; ``known``: those that are still true.
    """
    changed = [head for name, head in listing.heads.items() if name not in known]
    written = {} if moved is None else {state.slot.name: state for state in moved.heads}
    steps = [or_damage(_read_unless_known(context, head, written)) for head in changed]
    states = _unclaimed((yield from All(tuple(steps))))
    before = {name: it.files for name, it in old.items()}
    held = () if moved is None else (moved.decided,)
    named = yield from files_of_heads(context, states, before, held)
    return {
        state.slot.name: IndexedPartition(
            state.slot.name, state.etag, state.head.version, of_it, state.head.schema_version
        )
        for state, of_it in zip(states, named.files, strict=True)
        if state.etag is not None
        and not isinstance(of_it, DamagedError)
        and not _made_anew(state, old.get(state.slot.name))
    }


def _read_unless_known(
    context: Context, head: ListedHead, written: Mapping[str, HeadState]
) -> Step[HeadState]:
    state = written.get(head.slot.name)
    if state is not None and state.etag == head.etag:
        return state
    return (yield from read_head(context, head.slot))


def _made_anew(state: HeadState, old: IndexedPartition | None) -> bool:
    return old is not None and was_made_anew(state, old.version)


def _unclaimed(found: Iterable[HeadState | DamagedError]) -> list[HeadState]:
    """Return the heads without a claim, which alone say what their partitions hold.

    If a head has the claim of a decided job, that job's decision changes what the partition holds.
    """
    return [it for it in found if isinstance(it, HeadState) and it.head.claim is None]


def _arranged(
    old: FoundIndex, entries: Mapping[str, IndexedPartition], most: int
) -> tuple[list[IndexPart], list[list[IndexedPartition]]]:
    """Split the entries into objects of the old index that stay, and the content of new objects."""
    parts = sorted(old.parts, key=lambda part: part.first)
    firsts = [part.first for part in parts]
    kept: list[IndexPart] = []
    chunks: list[list[IndexedPartition]] = []
    changed: list[IndexedPartition] = []
    ordered = (entries[name] for name in sorted(entries))
    for number, group in groupby(ordered, lambda it: bisect_right(firsts, it.name) - 1):
        wanted = tuple(group)
        if number >= 0 and old.parts[parts[number]] == wanted:
            kept.append(parts[number])
            chunks += _chunks(changed, most)
            changed = []
        else:
            changed += wanted
    return kept, [*chunks, *_chunks(changed, most)]


def _chunks(entries: Iterable[IndexedPartition], most: int) -> Iterator[list[IndexedPartition]]:
    chunk: list[IndexedPartition] = []
    rows = 0
    for entry in entries:
        if chunk and rows + entry.rows > most:
            yield chunk
            chunk, rows = [], 0
        chunk.append(entry)
        rows += entry.rows
    if chunk:
        yield chunk
