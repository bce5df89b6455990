"""Search for the tables of this package below a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from ..commit.state.table_kind import TableKind, table_kind
from ..format.layout import TableRoot, is_hidden
from ..store.listing import Children, list_children
from ..store.requests import All, Step
from .purging.upload_selection import UploadsPath

Place = TypeVar("Place")
#: A step that finds places in a folder. It receives the folder's prefix, with a slash at its end,
#: and the folder's children. It returns what the folder is, or what lies directly below it, by
#: prefix without that slash.
Look = Callable[[str, Children], Step[Mapping[str, Place]]]


def tables_below(path: UploadsPath) -> Step[list[TableRoot]]:
    """Find the tables of directories at and below a folder, ordered by name. Delta tables are left
    out, and nothing below them is searched."""

    def look(prefix: str, children: Children) -> Step[Mapping[str, TableKind]]:
        root = TableRoot(path.bucket, prefix.rstrip("/"))
        kind = (yield from table_kind(root, children.folders)) if prefix else TableKind.NONE
        return {root.prefix: kind} if kind is not TableKind.NONE else {}

    found = yield from walk_below(path, look)
    tables = (prefix for prefix, kind in found.items() if kind is TableKind.DIRECTORIES)
    return [TableRoot(path.bucket, prefix) for prefix in sorted(tables)]


def walk_below(
    path: UploadsPath, look: Look[Place], files: Collection[str] = ()
) -> Step[dict[str, Place]]:
    """Search a folder and the folders below it, but not below a place that was found.

    This takes one listing for each folder, and a page more for each thousand files or folders in
    it. Directories of a table that other programs have partitioned are listed as well, since a
    table may lie below any of them (``source=crm/customers``). Folders that readers skip are not
    searched; nor are those that a table's root cannot contain: a folder without a name, or with
    control characters in its name.

    :param look: finds the places in one folder.
    :param files: names of files; ``look`` learns which of them a folder has.
    """
    found: dict[str, Place] = {}
    level = [path.prefix]
    while level:
        listed = yield from All(tuple(list_children(prefix, files) for prefix in level))
        looks = tuple(look(prefix, it) for prefix, it in zip(level, listed, strict=True))
        for here in (yield from All(looks)):
            found.update(here)
        level = [
            f"{prefix}{name}/"
            for prefix, it in zip(level, listed, strict=True)
            if prefix.rstrip("/") not in found
            for name in it.folders
            if may_hold_tables(name) and f"{prefix}{name}" not in found
        ]
    return found


def may_hold_tables(name: str) -> bool:
    """Return whether the root of a table may contain a folder of this name."""
    return bool(name) and name.isprintable() and not is_hidden(name)
