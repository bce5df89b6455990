"""Folders of other table formats, which are never read, adopted or written to here.

Their own log says which files count; a listing would also show replaced and deleted rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import TableMismatchError
from ...store.listing import first_object
from ...store.requests import All, ListedObject, Step
from ..layout import TableRoot

#: The format that :mod:`zero_rename.tables` reads and writes.
DELTA = "Delta Lake"
#: The folder of its log.
DELTA_LOG = "_delta_log"


class OtherFormatError(TableMismatchError):
    """Error for a folder that belongs to another table format.

    :param format_name: the name of that format.
    """

    format_name: str = ""


@dataclass(frozen=True)
class OtherFormat:
    """Another table format.

    :param folder: the folder of its log in a table's root.
    :param log: a pattern for names of files in the log that show the format.
    :param reader: the call that reads such a table, for the error's remedy.
    :param sweep: the engines' name of the clean-up that deletes all files below the root that the
        log does not name; ``""``: they have no such clean-up.
    """

    name: str
    folder: str
    log: str
    reader: str
    sweep: str = ""


_ANY = r"."
DELTA_LAKE = OtherFormat(
    DELTA,
    DELTA_LOG,
    _ANY,
    "zero_rename.spark.load(…), or zero_rename.tables.DeltaTable(…).scan()",
    sweep="VACUUM",
)
#: The first format that fits counts: a Delta table that Iceberg's readers can also read has both
#: logs.
FORMATS = (
    DELTA_LAKE,
    OtherFormat("Apache Hudi", ".hoodie", _ANY, "spark.read.format('hudi')"),
    OtherFormat(
        "Apache Iceberg",
        "metadata",
        r".*\.metadata\.json(\.gz)?|version-hint\.text",
        "a catalog: spark.table('catalog.schema.table'), or pyiceberg's Catalog.load_table(…)",
        sweep="remove_orphan_files",
    ),
    OtherFormat(
        "Spark's streaming file sink",
        "_spark_metadata",
        _ANY,
        "spark.read.parquet(…) on this very folder",
    ),
)


def refuse_other_format(root: TableRoot, keys: Iterable[str]) -> None:
    """Refuse a folder that belongs to another table format.

    :param keys: all keys that a listing shows below the root.
    :raises TableMismatchError: a log of another format lies in the root, or in a partition's
        directory.
    """
    found = find_log(root, keys)
    if found is not None:
        raise _belongs_to(root, *found)


def find_log(root: TableRoot, keys: Iterable[str]) -> tuple[OtherFormat, str] | None:
    """Find the log of another table format in a root or in a partition's directory.

    :param keys: all keys that a listing shows below the root.
    :returns: the format, and the key of a file of its log; ``None``: not found.
    """
    logs = {found.folder: found for found in FORMATS}
    seen: dict[str, str] = {}
    for key in keys:
        folders = key.removeprefix(f"{root.prefix}/").split("/")
        name = folders.pop()
        # A log below any other folder belongs to another table, whose files are not this table's.
        while folders and "=" in folders[0]:
            folders.pop(0)
        its = logs.get(folders[0]) if folders else None
        if its is not None and its.name not in seen and re.match(its.log, name):
            seen[its.name] = key
    return next(((its, seen[its.name]) for its in FORMATS if its.name in seen), None)


def refuse_other_logs(folders: Sequence[TableRoot]) -> Step[None]:
    """Refuse folders of another table format, without a listing of them.

    Requests: one for each folder and format.

    :raises TableMismatchError: a log of another format lies in one of them.
    """
    asked = [(folder, its) for folder in folders for its in FORMATS]
    logs = yield from All(tuple(first_of_log(folder, its) for folder, its in asked))
    for (folder, its), key in zip(asked, logs, strict=True):
        if key is not None:
            raise _belongs_to(folder, its, key)


def first_of_log(folder: TableRoot, its: OtherFormat) -> Step[str | None]:
    """Find the key of the first file of a format's log in a folder.

    Requests: one for each thousand files or folders there.
    """
    prefix = f"{folder.prefix}/{its.folder}/"

    def tells(item: ListedObject) -> bool:
        return re.match(its.log, item.key.removeprefix(prefix)) is not None

    found = yield from first_object(prefix, tells, direct=True)
    return None if found is None else found.key


def delta_error(root: TableRoot, key: str) -> OtherFormatError:
    """Build the error for a Delta table where a table of directories was expected."""
    return _belongs_to(root, DELTA_LAKE, key)


def _belongs_to(root: TableRoot, its: OtherFormat, key: str) -> OtherFormatError:
    writer = (
        'save(…, layout="delta"), and look after it by zero_rename.tables.DeltaTable(…)'
        if its.name == DELTA
        else "its own engine, or to another root"
    )
    error = OtherFormatError(
        f"{root.url} is a table of {its.name}: its log, and no listing, says which of the files "
        "count. Nothing was read, adopted or written.",
        table=root.url,
        key=key,
        remedy=f"Read it by {its.reader}; write it by {writer}.",
    )
    error.format_name = its.name
    return error
