"""Tables of this package below a folder, and the walk that finds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from ..format.layout import CONTROL, TableRoot, is_hidden
from ..store.listing import Children, list_children
from ..store.requests import All, Found, Head, ListObjects, Step
from .upload_selection import UploadsPath

Place = TypeVar("Place")
#: What a folder is, or holds directly below it, by prefix without a slash at its end. It is given
#: the folder's prefix, with a slash, and what lies in it.
Look = Callable[[str, Children], Step[Mapping[str, Place]]]


def tables_below(path: UploadsPath) -> Step[list[TableRoot]]:
    """Find the tables below a folder, that itself included, by their names."""

    def look(prefix: str, children: Children) -> Step[Mapping[str, None]]:
        root = TableRoot(path.bucket, prefix.rstrip("/"))
        is_one = bool(prefix) and (yield from is_table(root, children.folders))
        return {root.prefix: None} if is_one else {}

    found = yield from walk_below(path, look)
    return [TableRoot(path.bucket, prefix) for prefix in sorted(found)]


def walk_below(
    path: UploadsPath, look: Look[Place], files: Collection[str] = ()
) -> Step[dict[str, Place]]:
    """Look at a folder, and at each below it that lies in none that was found.

    One listing a folder that is none, and a page more for each thousand files or folders in it: so
    is each directory of a table that others have partitioned, as below any of them may lie a table
    (``source=crm/customers``). What readers skip is not looked into.

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
            if not is_hidden(name) and f"{prefix}{name}" not in found
        ]
    return found


def is_table(root: TableRoot, folders: Collection[str] = (CONTROL,)) -> Step[bool]:
    """Tell whether a folder is a table. It is one also where a first job is open or died: beside a
    table of Hadoop's committers lie records of its runs below the same name.

    :param folders: names of those in it, where they are known.
    """
    if CONTROL not in folders:
        return False
    record, jobs = yield from All((Head(root.table_key), ListObjects(root.open_prefix)))
    return isinstance(record, Found) or bool(jobs.objects)
