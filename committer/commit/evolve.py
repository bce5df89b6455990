"""Change of a table's columns by the commit of the job that needs it.

Just before it decides, with its claims held, the job writes the future columns into ``table.json``,
with its own id, on the record's ETag. The change counts as soon as that job is committed and not
before, so no other write is needed to make the change or to undo it. No process removes the change
of a job that has not decided. So if several jobs change the columns at once, each goes on from the
columns that the one before it left.

A job that overwrites the columns replaces all files, so a job that opened before it must not add
files with former columns. The overwriting job claims every head that there is. A job that makes a
new head reads ``table.json`` after it has claimed that head, and the overwriting job lists the
heads after it has written ``table.json``: at least one of the two sees the other. No job claims a
head while its own undecided change stands in ``table.json``. So other jobs may wait for its end
while they hold claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import CommitConflictError, TableMismatchError
from ..format.job_spec import SchemaMode
from ..format.records.head import HeadState, Slot
from ..format.records.table_record import Evolution, TableRecord
from ..format.schema.compatibility import how_unlike
from ..format.schema.evolution import holding, overwritten
from ..store.conditional_put import Uncertain
from ..store.requests import Step
from .others import about_other, outwait
from .state.context import Context
from .state.decide import not_confirmed
from .state.found_table import FoundTable, change_table, find_table
from .state.job_state import OpenedJob


def evolve(context: Context, opened: OpenedJob) -> Step[tuple[FoundTable | None, int]]:
    """Make sure that the table's columns, once this job is committed, include those of its files.

    :returns: the record that counts once the job is committed, ``None`` if the table has these
        columns already; and the version of the columns with which the job's files can be read.
    :raises TableMismatchError: another job has changed a column in a way that does not go with this
        one's; or there is no table any more.
    :raises CommitConflictError: another job has overwritten the columns.
    :raises StoreUnreachableError: the store did not say whether the record was written; nothing is
        decided.
    """
    while True:
        found = yield from _undisturbed(context, opened)
        if found is None:
            continue
        record = found.record
        overwrites = opened.spec.schema_mode is SchemaMode.OVERWRITE
        if not overwrites:
            _refuse_overwritten(context, opened, record)
            if record.evolution is not None:
                # This commit was called before, or in another process.
                return _made(found)
        change = overwritten if overwrites else holding
        schema = change(record.schema, opened.schema, record.partition_by, url=context.root.url)
        if schema is record.schema and record.evolution is None:
            return None, record.schema_version
        # A job that overwrites the columns writes its change again even if it is there: another
        # process of the same job may have written it, and be about to remove it.
        evolution = Evolution(opened.job, schema, overwrites)
        proposed = yield from _propose(context, found, evolution)
        if proposed is not None:
            return _made(proposed)


def _made(found: FoundTable) -> tuple[FoundTable, int]:
    """Return the record as it is once the job is committed, and the version of its columns."""
    record = found.record.evolved()
    return replace(found, record=record, as_stored=False), record.schema_version


def withdraw(context: Context, opened: OpenedJob) -> Step[None]:
    """Remove this job's undecided change of the columns, so that the job may claim more heads.

    :raises StoreUnreachableError: the store did not say whether it was removed; nothing is decided.
    """
    while True:
        found = yield from find_table(context)
        evolution = None if found is None else found.record.evolution
        if found is None or evolution is None or evolution.job != opened.job:
            return
        if (yield from _propose(context, found, None)) is not None:
            return


def see_columns(context: Context, opened: OpenedJob, held: Mapping[Slot, HeadState]) -> Step[None]:
    """Refuse a job if the columns were overwritten since it opened and its claims do not show that.

    Claims do not show it on heads that the job makes, and on heads with files of younger columns.

    :raises CommitConflictError: another job has overwritten the columns since this one opened.
    :raises TableMismatchError: there is no table any more, or one that was made anew and that the
        job's files do not fit.
    """
    heads = [state.head for slot, state in held.items() if not slot.is_run]
    if all(head.version and head.schema_version <= opened.schema_version for head in heads):
        return
    found = None
    while found is None:
        found = yield from _undisturbed(context, opened, by_additions=False)
    _refuse_overwritten(context, opened, found.record)
    why = how_unlike(found.record.schema, opened.schema)
    if why is not None:
        raise _made_anew(why)


def _undisturbed(
    context: Context, opened: OpenedJob, by_additions: bool = True
) -> Step[FoundTable | None]:
    """Read ``table.json`` once no other job is about to change it; ``None`` after waiting for one.

    :param by_additions: whether to wait also for a job that keeps the columns that there are.
    """
    found = yield from find_table(context)
    if found is None or not found.counts:
        raise TableMismatchError(
            "table.json is gone since this job opened. Nothing of this job is visible.",
            remedy="Restore it from a version or backup, or run the job again.",
        )
    if found.record.partition_by != opened.partition_by:
        by = ", ".join(found.record.partition_by) or "nothing"
        raise _made_anew(f"The table is partitioned by {by} now.")
    other = found.record.evolution
    if other is None or other.job == opened.job or not (by_additions or other.overwrites):
        return found
    waiting = outwait(context, context.root.table_key, found.etag, other.job)
    yield from about_other(context.root, other.job, waiting)
    return None


def _made_anew(why: str) -> TableMismatchError:
    """Build the error of a job whose table was deleted, and made anew as another one."""
    return TableMismatchError(
        f"{why} The table was deleted and made anew since this job opened. Nothing of this job is "
        "visible.",
        remedy="Run the job again, with the columns that the table has now.",
    )


def _refuse_overwritten(context: Context, opened: OpenedJob, record: TableRecord) -> None:
    if record.overwritten > opened.schema_version:
        raise CommitConflictError(
            "Another job has replaced the whole table and its columns since this job opened. "
            "Nothing of this job is visible.",
            key=context.root.table_key,
            remedy="Run the job again, with the columns that the table has now.",
        )


def _propose(
    context: Context, found: FoundTable, evolution: Evolution | None
) -> Step[FoundTable | None]:
    """Write the change into ``table.json``, or remove it; ``None`` if the record has changed."""
    now = yield from change_table(context, found, evolution=evolution)
    if isinstance(now, Uncertain):
        key = context.root.table_key
        raise (yield from not_confirmed(context, key, "table.json", now))
    return now if isinstance(now, FoundTable) else None
