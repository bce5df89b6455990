"""Tables of this package below a folder."""

from __future__ import annotations

from ..format.layout import CONTROL, TableRoot, is_hidden
from ..store.listing import list_folders
from ..store.requests import All, Found, Head, ListObjects, Step
from .upload_selection import UploadsPath


def tables_below(path: UploadsPath) -> Step[list[TableRoot]]:
    """The tables below a folder, that itself included, by their names.

    One listing a folder that is none, and a page more for each thousand files or folders in it: so
    is each directory of a table that others have partitioned, as below any of them may lie a table
    (``source=crm/customers``). What readers skip is not looked into, nor what lies in a table.
    """
    found: list[TableRoot] = []
    level = [path.prefix]
    while level:
        children = yield from All(tuple(list_folders(prefix) for prefix in level))
        marked = [
            TableRoot(path.bucket, prefix.rstrip("/"))
            for prefix, names in zip(level, children, strict=True)
            if prefix and CONTROL in names
        ]
        tables = yield from All(tuple(_is_table(root) for root in marked))
        here = {root.prefix for root, it in zip(marked, tables, strict=True) if it}
        found += (TableRoot(path.bucket, prefix) for prefix in here)
        level = [
            f"{prefix}{name}/"
            for prefix, names in zip(level, children, strict=True)
            if prefix.rstrip("/") not in here
            for name in names
            if not is_hidden(name)
        ]
    return sorted(found, key=lambda root: root.prefix)


def _is_table(root: TableRoot) -> Step[bool]:
    """Also where a first job is open or died: beside a table of Hadoop's committers lie records of
    its runs below the same name."""
    record, jobs = yield from All((Head(root.table_key), ListObjects(root.open_prefix)))
    return isinstance(record, Found) or bool(jobs.objects)
