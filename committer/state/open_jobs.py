"""Jobs with an open record, as a listing shows them."""

from __future__ import annotations

from ..layout import is_job_id
from ..s3.listing import list_objects
from ..s3.requests import Step
from .context import Context


def list_open(context: Context) -> Step[set[str]]:
    """Ids of the jobs with an open record: one LIST. No job has what others put there."""
    prefix = context.root.open_prefix
    listing = yield from list_objects(prefix)
    names = (key.removeprefix(prefix).removesuffix(".json") for key in listing.keys)
    return {name for name in names if is_job_id(name)}
