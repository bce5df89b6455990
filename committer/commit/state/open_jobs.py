"""Jobs with an open record, as a listing shows them."""

from __future__ import annotations

from ...format.layout import jobs_on_record
from ...store.listing import list_objects
from ...store.requests import Step
from .context import Context


def list_open(context: Context) -> Step[set[str]]:
    """Ids of the jobs with an open record: one LIST. No job has what others put there."""
    prefix = context.root.open_prefix
    listing = yield from list_objects(prefix)
    return set(jobs_on_record(prefix, listing.keys))
