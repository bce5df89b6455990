"""Evolution of a table's columns, by the commit of the job that needs it.

Just before it decides, with its claims held, the job writes into ``table.json`` what the columns
will be, on its ETag and with its own id. The change counts as soon as that job is committed and
not before, so that no other write is needed to make it or to take it back; and nobody takes it out
while the job has not decided. So of jobs that change the columns at once, each goes on from the
columns that the one before it left.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import TableMismatchError
from ..records.table_record import Evolution, TableRecord
from ..s3.conditional_put import Uncertain, Written, put_record
from ..s3.requests import Put, Step
from ..schema.evolution import evolved
from ..state.context import Context
from ..state.decide import not_confirmed
from ..state.found_table import FoundTable, find_table
from ..state.job_state import OpenedJob
from .others import about_other, outwait


def evolve(context: Context, opened: OpenedJob) -> Step[tuple[FoundTable | None, int]]:
    """See that the table's columns, once this job is committed, hold those of its files.

    :returns: the record that the job's decision makes good, ``None`` where the columns are the
        table's already; and the version of the columns that hold the job's.
    :raises TableMismatchError: another job has changed a column in a way that does not go with
        this one's; or there is no table any more.
    :raises StoreUnreachableError: the store did not say whether the record was written; nothing
        is decided.
    """
    while True:
        found: FoundTable | None = yield from find_table(context)
        if found is None or not found.counts:
            raise TableMismatchError(
                "table.json is gone since this job opened. Nothing of this job is visible.",
                table=context.root.url,
                job=opened.job,
                remedy="Restore it from a version or backup, or run the job again.",
            )
        record = found.record
        if record.evolution is not None and record.evolution.job != opened.job:
            other = record.evolution.job
            waiting = outwait(context, context.root.table_key, found.etag, other)
            yield from about_other(context.root, opened.job, other, waiting)
            continue
        if record.evolution is not None:  # This commit was called before, or in another process.
            return replace(found, record=record.evolved(), settled=False), record.schema_version + 1
        schema = evolved(record.schema, opened.schema, record.partition_by, url=context.root.url)
        if schema is record.schema:
            return None, record.schema_version
        proposed = yield from _propose(context, opened, found, Evolution(opened.job, schema))
        if proposed is not None:
            return proposed, record.schema_version + 1


def _propose(
    context: Context, opened: OpenedJob, found: FoundTable, evolution: Evolution
) -> Step[FoundTable | None]:
    """Write the change; ``None``: look again."""
    record: TableRecord = replace(
        found.record, write_id=context.write_id(), first=None, instead=None, evolution=evolution
    )
    put = Put(context.root.table_key, record.encode(), if_match=found.etag)
    outcome = yield from put_record(put, record.write_id)
    if isinstance(outcome, Uncertain):
        raise not_confirmed(context, opened.job, put.key, "table.json", outcome.cause)
    if not isinstance(outcome, Written):
        return None
    return FoundTable(record.evolved(), outcome.etag, counts=True, settled=False)
