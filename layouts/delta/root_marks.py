"""Marks in data roots: which table's files lie in a folder there.

A table's folder in a data root is called by the table's bucket and path. Tables of two stores may
have both in common, and neither knows of the other's jobs.

================================  ===================================================
the mark of the folder            purge of a table
================================  ===================================================
has this table's id               deletes there what nothing needs
has another's, or is not there    deletes nothing there, and says so
================================  ===================================================

A root whose folder has another table's mark is refused before it is put on record. The entry that
puts it there is finished by writing the mark. A fast store may be lost, and come back empty: so
each job looks for the mark as it opens, writes it where it is gone, and is refused where it is
another's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from ...committer.errors import FastRootGoneError, StoreRefusedError
from ...committer.store.fast_root import FastRoot
from ...committer.store.requests import Found, Get, Put, Step
from ...log.actions import LogMetadata
from ...log.entries import LogEntry
from .data_roots import present_root
from .paths import DeltaRoot

logger = logging.getLogger("zero_rename.layouts.delta.root_marks")
_NAME, _TABLE = "_table.json", "table"


def write_mark(root: DeltaRoot, entry: LogEntry) -> Step[None]:
    """Mark a table's folder in the data root that an entry puts on record, unless it has a mark."""
    for metadata in entry.of(LogMetadata):
        data_root = present_root(metadata.properties)
        if data_root is None:
            continue
        body = json.dumps({_TABLE: metadata.id}).encode()
        try:
            if (yield from owner_of(root, data_root)) is None:
                yield from Put(root.place(data_root).keys + _NAME, body, if_none_match=True)
        except FastRootGoneError as error:
            logger.warning("The data root was not marked as this table's: %s", error)


def keep_mark(root: DeltaRoot, data_root: FastRoot, table: str | None) -> Step[str | None]:
    """Mark a table's folder in its data root again where the mark was lost with the root; return
    the id of the table that it is marked for. ``None``: that cannot be told now.

    :param table: the id of the table.
    """
    body = json.dumps({_TABLE: table}).encode()
    try:
        owner = yield from owner_of(root, data_root)
        if owner is None:
            yield from Put(root.place(data_root).keys + _NAME, body, if_none_match=True)
            owner = yield from owner_of(root, data_root)
    except (FastRootGoneError, StoreRefusedError):
        return None  # Whoever writes a file there is told.
    return owner or None


def owner_of(root: DeltaRoot, data_root: FastRoot) -> Step[str | None]:
    """Read which table's files lie in a table's folder in a data root, by its id; ``""``: the mark
    cannot be read; ``None``: there is none."""
    there = yield from Get(root.place(data_root).keys + _NAME)
    return _table(there) if isinstance(there, Found) else None


def marked(folders: Iterable[str], table: str | None) -> Step[tuple[str, ...]]:
    """Choose those of a table's folders in data roots that have its mark, or cannot be reached.

    :param table: its id.
    """
    found: list[str] = []
    for folder in folders:
        key = folder + _NAME
        try:
            there = yield from Get(key)
        except FastRootGoneError:
            found.append(folder)  # Further requests to it raise the error.
            continue
        if isinstance(there, Found) and _table(there) == table:
            found.append(folder)
        else:
            logger.warning("%s", _of_another(key))
    return tuple(found)


def _table(found: Found) -> str:
    try:
        return str(json.loads(found.body)[_TABLE])
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""


def _of_another(key: str) -> str:
    return (
        f"The table's folder in its data root is not marked as its own ({key}): files of another "
        "table, whose bucket and path have the same names, may lie there. Nothing in it is purged. "
        "Where the other table is gone, delete the mark, and set the data root again by "
        "`zero-rename data-root`: to none, then to what it was."
    )
