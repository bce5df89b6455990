"""Kind of table that a root holds: one of directories, or a Delta table with its own log.

Both kinds have records of jobs below the same names. So maintenance asks for the kind first: what
is right for jobs of one kind would delete the files of the other's.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import StrEnum

from ...format.layout import CONTROL, TableRoot, jobs_on_record
from ...format.schema.other_formats import DELTA_LOG, delta_error
from ...store.requests import All, Found, Get, Head, ListObjects, Step

#: Kind that the open record of a job in a log has.
OPEN_IN_LOG = "open-in-log"


class TableKind(StrEnum):
    """Kind of table that a root holds, by its records."""

    NONE = "none"
    DIRECTORIES = "table"
    DELTA = "delta"


def table_kind(root: TableRoot, folders: Collection[str] | None = None) -> Step[TableKind]:
    """Return the kind of table at a root: three requests, one more if a first job is open or died.

    :param folders: names of the folders in it, if they are known. Then no request is sent for a
        root without a table.
    """
    if folders is not None and CONTROL not in folders:
        return TableKind.DELTA if DELTA_LOG in folders else TableKind.NONE
    asked = (Head(root.table_key), ListObjects(root.open_prefix), ListObjects(_log(root)))
    if folders is None:
        record, jobs, log = yield from All(asked)
        has_log = bool(log.objects)
    else:
        record, jobs = yield from All(asked[:2])
        has_log = DELTA_LOG in folders
    if isinstance(record, Found):
        return TableKind.DIRECTORIES
    if has_log:
        return TableKind.DELTA
    opened = jobs_on_record(root.open_prefix, [item.key for item in jobs.objects])
    if opened and (yield from _is_in_log(root, opened[0])):
        return TableKind.DELTA
    return TableKind.DIRECTORIES if jobs.objects else TableKind.NONE


def _log(root: TableRoot) -> str:
    return f"{root.prefix}/{DELTA_LOG}/"


def _is_in_log(root: TableRoot, job: str) -> Step[bool]:
    """Return whether an open record is of a job that commits to a log."""
    found = yield from Get(root.open_key(job))
    try:
        members = json.loads(found.body) if isinstance(found, Found) else None
    except (ValueError, RecursionError):
        return False  # A damaged record: recovery of directories names it.
    return isinstance(members, dict) and members.get("kind") == OPEN_IN_LOG


def refuse_delta(root: TableRoot) -> Step[None]:
    """Refuse a root that holds a Delta table. For callers that need a table of directories.

    :raises OtherFormatError: it does.
    """
    if (yield from table_kind(root)) is TableKind.DELTA:
        raise delta_error(root, _log(root))
