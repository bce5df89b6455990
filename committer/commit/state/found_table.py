"""``table.json`` as it was read: a table's record, and whether it counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.types as pt

from ...errors import DamagedError, InvalidInputError, OutcomeUnknownError, TableNotFoundError
from ...format.layout import TableRoot, jobs_on_record
from ...format.records.head import Slot
from ...format.records.table_record import TableRecord
from ...format.schema.hive_paths import unescape
from ...format.schema.other_formats import FORMATS, first_of_log, refuse_other_logs
from ...store.conditional_put import NotWritten, Uncertain, Written, put_record
from ...store.listing import list_objects
from ...store.requests import Absent, All, Get, Put, Step
from .context import Context
from .decide import read_decision
from .heads import list_heads, read_head
from .open_jobs import list_open
from .table_kind import TableKind, table_kind
from .tolerance import unless_denied


@dataclass(frozen=True)
class FoundTable:
    """Table's record as it was read.

    :param counts: whether it is the table's: the job that made it is committed.
    :param as_stored: whether the object has the same content; false if its evolution has been
        decided and the record here shows the outcome.
    """

    record: TableRecord
    etag: str
    counts: bool
    as_stored: bool = True


def find_table(context: Context) -> Step[FoundTable | None]:
    """Read ``table.json``, and find out whether it counts and which columns count.

    Requests: one; another if its first job is not known to be committed, and another if it has an
    evolution, whose job may have decided.
    """
    found = yield from _find_made(context)
    if found is None or found.record.evolution is None:
        return found
    decided = yield from read_decision(context, found.record.evolution.job)
    if decided is None:
        return found
    committed = decided.decision.is_commit
    record = found.record.evolved() if committed else replace(found.record, evolution=None)
    return replace(found, record=record, as_stored=False)


def _find_made(context: Context) -> Step[FoundTable | None]:
    found = yield from Get(context.root.table_key)
    if isinstance(found, Absent):
        return None
    record = TableRecord.decode(found.body, found.key)
    if record.first is None:
        return FoundTable(record, found.etag, counts=True)
    decided = yield from read_decision(context, record.first)
    counts = decided is not None and decided.decision.is_commit
    if decided is not None and not counts and record.instead is not None:
        before = TableRecord.decode(record.instead.encode(), found.key)
        return FoundTable(replace(before, first=record.first), found.etag, counts=True)
    return FoundTable(record, found.etag, counts)


def change_table(
    context: Context, found: FoundTable, **changes: Any
) -> Step[FoundTable | NotWritten | Uncertain]:
    """Write a table's record with changes, on the ETag that was read. The new record counts."""
    record = replace(found.record, write_id=context.write_id(), first=None, instead=None, **changes)
    put = Put(context.root.table_key, record.encode(), if_match=found.etag)
    outcome = yield from put_record(put, record.write_id)
    if isinstance(outcome, Written):
        return FoundTable(record, outcome.etag, counts=True)
    return outcome


def is_changed(context: Context, found: FoundTable, **changes: Any) -> Step[bool]:
    """Write a table's record as :func:`change_table`; ``False`` if another process has changed it.

    :raises OutcomeUnknownError: the store did not say.
    """
    outcome = yield from change_table(context, found, **changes)
    if isinstance(outcome, Uncertain):
        raise table_not_confirmed(context)
    return isinstance(outcome, FoundTable)


def table_not_confirmed(context: Context) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "The store did not confirm that table.json was written again; its former text, or the "
        "new one, stands.",
        key=context.root.table_key,
        remedy="Run it again.",
    )


def read_table(context: Context) -> Step[TableRecord]:
    """Read a table's record.

    :raises TableNotFoundError: there is none, or none that counts.
    """
    return (yield from existing_table(context)).record


def existing_table(context: Context) -> Step[FoundTable]:
    """Read ``table.json`` as :func:`find_table`, and refuse one that does not count.

    :raises TableNotFoundError: there is none, or none that counts.
    """
    found = yield from find_table(context)
    if found is None or not found.counts:
        raise (yield from no_table(context.root))
    return found


def no_table(root: TableRoot) -> Step[TableNotFoundError]:
    """Build the error for a root without a table. If the root is a partition's directory, the error
    names the table around it."""
    around = yield from root_around(root)
    what = "There is no zero_rename table here"
    remedy = (
        "Check the root: zero-rename maintain FOLDER lists the tables below a folder. A first "
        "write makes the table."
    )
    if around is not None:
        what = f"{what}: {root.url} is a partition of the table {around.url}"
        remedy = "Name that table."
    return TableNotFoundError(f"{what}.", key=root.table_key, remedy=remedy)


def with_columns(
    context: Context, table: TableRecord, versions: Iterable[int]
) -> Step[TableRecord]:
    """Return the table's record with the columns of all files that the heads name.

    It is read again if the table has evolved since it was read.

    :raises DamagedError: it is older than the files.
    """
    needed = max(versions, default=0)
    if needed > table.schema_version:
        table = yield from read_table(context)
    if needed > table.schema_version:
        raise DamagedError(
            f"Files have columns of version {needed}, table.json has version "
            f"{table.schema_version}: it was put back to a former state.",
            key=context.root.table_key,
            remedy="Restore its newest version.",
        )
    return table


def refuse_partition_folder(context: Context) -> Step[None]:
    """Refuse a root that is a partition's directory of another table, of this or of another format.

    Otherwise that table's heads, or its log, would be bypassed. Called for a root that has no
    record of its own; a few requests for each ``column=value`` at its end.

    :raises InvalidInputError: it is one; says what to write instead.
    :raises TableMismatchError: it is one of another format.
    """
    around = yield from table_around(context.root)
    if around is not None:
        raise _no_root(context.root, *around)
    yield from refuse_other_logs(_above(context.root))


def table_around(root: TableRoot) -> Step[tuple[TableRoot, TableRecord] | None]:
    """Find the table that has a root as a partition's directory; return its root and record."""
    folders = _above(root)
    tables = yield from All(tuple(find_table(Context(it)) for it in folders))
    for folder, found in zip(folders, tables, strict=True):
        if found is not None and found.counts:
            return folder, found.record
    return None


def root_around(root: TableRoot) -> Step[TableRoot | None]:
    """Find the table, of either kind, that has a root as a partition's directory; return its root.

    A few requests for each ``column=value`` at its end. A folder that these credentials may not
    read counts as one without a table.
    """
    folders = _above(root)
    asked = tuple(unless_denied(table_kind(it), TableKind.NONE) for it in folders)
    kinds = yield from All(asked)
    found = zip(folders, kinds, strict=True)
    return next((folder for folder, kind in found if kind is not TableKind.NONE), None)


def refuse_below_swept(root: TableRoot) -> Step[None]:
    """Refuse a root below a table whose clean-up would delete the files of a table below it.

    Such a clean-up deletes all files that the upper table's log does not name. Called before a
    table is made: two requests for each folder above it. A folder that these credentials may not
    list counts as one without a table.

    :raises InvalidInputError: it lies below such a table.
    """
    asked = [(folder, its) for folder in root.around for its in FORMATS if its.sweep]
    logs = yield from All(tuple(unless_denied(first_of_log(*it), None) for it in asked))
    for (folder, its), key in zip(asked, logs, strict=True):
        if key is not None:
            raise InvalidInputError(
                f"{root.url} lies below {folder.url}, a table of {its.name}, whose {its.sweep} "
                "deletes all files there that its log does not name: those of this table, too. "
                "Nothing was written.",
                table=root.url,
                key=key,
                remedy="Write to a root that lies below no table.",
            )


def refuse_folder_of_others(context: Context) -> Step[None]:
    """Refuse a root that belongs to another table. For a writer without a record here.

    It belongs to another table format, is a partition's directory of another table, or lies below a
    table whose clean-up deletes files of others.

    :raises InvalidInputError: as :func:`refuse_partition_folder` and :func:`refuse_below_swept`.
    :raises TableMismatchError: it belongs to another format.
    """
    yield from refuse_partition_folder(context)
    yield from refuse_below_swept(context.root)
    yield from refuse_other_logs([context.root])


def _above(root: TableRoot) -> list[TableRoot]:
    """Return the folders of which ``root`` may be a partition, nearest first."""
    parts = root.prefix.split("/")
    above = []
    while len(parts) > 1 and "=" in parts[-1]:
        parts.pop()
        above.append(TableRoot(root.bucket, "/".join(parts)))
    return above


def _literal(record: TableRecord, column: str, text: str) -> str:
    """Return a partition's value as an SQL literal."""
    known = column in record.schema.names
    kind = record.schema.field(column).type if known else None
    is_plain = kind is not None and (pt.is_integer(kind) or pt.is_decimal(kind))
    return text if is_plain else f"'{text}'"


def _no_root(folder: TableRoot, table: TableRoot, record: TableRecord) -> InvalidInputError:
    partition = folder.prefix.removeprefix(f"{table.prefix}/")
    named = [part.partition("=") for part in partition.split("/")]
    if len(named) == len(record.partition_by):
        option, value = "partitions", partition
    else:
        option = "where"
        value = " and ".join(
            f"{unescape(name)} = {_literal(record, unescape(name), unescape(raw))}"
            for name, _, raw in named
        )
    return InvalidInputError(
        f"{folder.url} is a partition of the table {table.url}, not a table: read without the "
        "table's heads it may show half of a job, and no reader of the table sees what is written "
        "there. Nothing was read or written.",
        remedy=f'Read {table.url} with .option("{option}", "{value}"), or by '
        "Table(…).to_arrow(partitions=[…]); write to it with rows of that partition.",
    )


def is_unused(context: Context, mine: str) -> Step[bool]:
    """Return whether no job has committed here, and only the job ``mine`` may be under way.

    Earlier versions wrote ``table.json`` when a first job opened, and left it if that job failed.
    The open records are listed first: a job that closed before that has left its decision.
    """
    if (yield from list_open(context)) - {mine}:
        return False
    listed = yield from list_heads(context)
    slots = (Slot.partition(context.root, name) for name in listed)
    states = yield from All(tuple(read_head(context, slot) for slot in slots))
    if any(state.head.version or state.head.claim not in (None, mine) for state in states):
        return False
    prefix = context.root.decisions_prefix
    found = yield from list_objects(prefix)
    jobs = jobs_on_record(prefix, found.keys)
    decisions = yield from All(tuple(read_decision(context, job) for job in jobs))
    return not any(decided and decided.decision.is_commit for decided in decisions)
