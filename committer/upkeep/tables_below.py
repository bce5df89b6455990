"""Tables of this package below a folder, and the walk that finds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from ..commit.state.table_kind import TableKind, table_kind
from ..format.layout import TableRoot, is_hidden
from ..store.listing import Children, list_children
from ..store.requests import All, Step
from .upload_selection import UploadsPath

Place = TypeVar("Place")
#: What a folder is, or holds directly below it, by prefix without a slash at its end. It is given
#: the folder's prefix, with a slash, and what lies in it.
Look = Callable[[str, Children], Step[Mapping[str, Place]]]


def tables_below(path: UploadsPath) -> Step[list[TableRoot]]:
    """Find the tables of directories below a folder, that itself included, by their names. A Delta
    table is none, and nothing below it is looked at."""

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
    """Look at a folder, and at each below it that lies in none that was found.

    One listing a folder that is none, and a page more for each thousand files or folders in it: so
    is each directory of a table that others have partitioned, as below any of them may lie a table
    (``source=crm/customers``). What readers skip is not looked into, nor what no table can be named
    by: a folder without a name, and one with control characters.

    :param files: names of files whose presence in a folder ``look`` is told.
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
    """Tell whether the root of a table may have a folder of this name."""
    return bool(name) and name.isprintable() and not is_hidden(name)
