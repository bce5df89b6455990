"""Tables that no job has ever changed, though they have a record.

Versions before wrote ``table.json`` when a first job opened, and left it where that job failed.
"""

from __future__ import annotations

from ..layout import jobs_on_record
from ..records.head import HeadState, Slot
from ..s3.listing import list_objects
from ..s3.requests import All, Step
from .context import Context
from .decide import read_decision
from .heads import list_heads, read_head
from .open_jobs import list_open


def is_unused(context: Context, mine: str) -> Step[bool]:
    """Whether no job has committed here, and none but ``mine`` is under way.

    The open records are listed first: a job that closed before that has left its decision.
    """
    if (yield from list_open(context)) - {mine}:
        return False
    listed = yield from list_heads(context)
    slots = (Slot.partition(context.root, name) for name in listed)
    states: list[HeadState] = yield All(tuple(read_head(context, slot) for slot in slots))
    if any(state.head.epoch or state.head.claim not in (None, mine) for state in states):
        return False
    prefix = context.root.decisions_prefix
    found = yield from list_objects(prefix)
    jobs = jobs_on_record(prefix, found.keys)
    decisions = yield All(tuple(read_decision(context, job) for job in jobs))
    return not any(decided and decided.decision.is_commit for decided in decisions)
