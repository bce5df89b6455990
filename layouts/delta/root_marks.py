"""Marks in data roots that name the table whose files lie in a folder there.

A table's folder in a data root is named by the table's bucket and path. Tables at two stores may
have the same bucket and path, and neither knows the other's jobs.

================================  ===================================================
the mark of the folder            purge of a table
================================  ===================================================
has this table's id               deletes the files there that nothing needs
has another's id, or is missing   deletes nothing there, and reports this
================================  ===================================================

A root is refused before it is recorded if its folder has another table's mark. Finishing the entry
that records a root writes the mark. A fast store may be lost and come back empty. So each job reads
the mark when it opens: it writes a missing mark, and is refused if the mark is another table's.
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
    """Mark a table's folder in the data root that an entry records, unless it has a mark."""
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
    """Write the mark of a table's folder in its data root again if it was lost with the root.

    :param table: the id of the table.
    :return: the id of the table that the folder is marked for; ``None``: it is unknown now.
    """
    body = json.dumps({_TABLE: table}).encode()
    try:
        owner = yield from owner_of(root, data_root)
        if owner is None:
            yield from Put(root.place(data_root).keys + _NAME, body, if_none_match=True)
            owner = yield from owner_of(root, data_root)
    except (FastRootGoneError, StoreRefusedError):
        return None  # Writing a file there will raise this error.
    return owner or None


def owner_of(root: DeltaRoot, data_root: FastRoot) -> Step[str | None]:
    """Read the mark of a table's folder in a data root.

    :return: the id of the table that the folder is marked for; ``""``: the mark cannot be read;
        ``None``: there is no mark."""
    there = yield from Get(root.place(data_root).keys + _NAME)
    return _table(there) if isinstance(there, Found) else None


def marked(folders: Iterable[str], table: str | None) -> Step[tuple[str, ...]]:
    """Return those of a table's folders in data roots that have its mark, or cannot be reached.

    :param table: the id of the table.
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
