"""Objects of former indexes, which nobody reads any more."""

from __future__ import annotations

from ...store.listing import list_objects
from ...store.requests import Step
from ..state.context import Context
from ..state.old_records import OldRecord, aged
from .read_index import read_record


def find_old_parts(context: Context, kept_for: float) -> Step[list[OldRecord]]:
    """Objects that the index does not name, of a certain age: who wrote them died, or another
    process wrote the index meanwhile. Changes nothing.

    :param kept_for: seconds, by the store's clock.
    """
    listing = yield from list_objects(context.root.index_parts_prefix)
    if not listing.objects:
        return []
    _, parts = yield from read_record(context)
    named = {part.key for part in parts}
    unnamed = [item for item in listing.objects if item.key not in named]
    return aged("of a former index", unnamed, listing.date, kept_for)
