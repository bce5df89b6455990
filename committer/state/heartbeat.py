"""Signs of life: rewriting a job's open record, never bringing one back that was removed."""

from __future__ import annotations

from dataclasses import replace

from ..records.open_record import OpenRecord
from ..s3.conditional_put import NotWritten, Written, put_record
from ..s3.requests import Absent, Get, Put, Step
from .context import Context


def send_heartbeat(context: Context, job: str, interval: float) -> Step[bool]:
    """Rewrite a job's open record.

    Conditional on the record as it was read: one that was removed stays removed.

    :param interval: seconds until the next sign, recorded for whoever judges silence.
    :returns: whether the job is still open; ``True`` too when the store did not say.
    """
    key = context.root.open_key(job)
    found = yield Get(key)
    if isinstance(found, Absent):
        return False
    record = OpenRecord.decode(found.body, key)
    opened_at = record.opened_at if record.opened_at is not None else found.last_modified
    write_id = context.write_id()
    new = replace(record, write_id=write_id, interval=interval, opened_at=opened_at)
    outcome = yield from put_record(Put(key, new.encode(), if_match=found.etag), write_id)
    if isinstance(outcome, Written):
        return True
    # Another one gave a sign at the same time, or the job was closed.
    return not (isinstance(outcome, NotWritten) and isinstance(outcome.current, Absent))
