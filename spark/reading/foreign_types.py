"""Types in files of other programs that Spark's reader refuses, and this package's reads.

Which types such files have is told by nothing but their footers. Those of a few files are read: one
program has written most of a table's files, with the same types.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow.parquet as pq

from ...committer.commit.snapshot import Snapshot
from ...committer.errors import ZeroRenameError
from ...committer.format.parquet.foreign_columns import ForeignFile, read_footer
from ...committer.store.requests import All
from ...committer.table import Table
from ...tables import DeltaTable

logger = logging.getLogger("zero_rename.spark.reading.foreign_types")
#: Most files whose footers are read, at once.
_MOST_FILES = 8
#: What Parquet calls the types that Spark's reader refuses, and what they are.
_REFUSED = {"FLOAT16": "16-bit floats", "UNKNOWN": "nulls without a type"}


def refused_by_spark(
    table: Table | DeltaTable, state: Snapshot, columns: dict[str, bool]
) -> str | None:
    """Look for types that Spark's reader refuses in a few files of other programs.

    Requests: a ranged GET for each of these files.

    :param columns: those to be read; with whether a part of it has no type for Spark, which then
        reads nulls without a type.
    :return: the column and what files hold there; ``None``: nothing was found.
    """
    foreign = [file for file in state.files if file.is_foreign]
    some = foreign[:: -(-len(foreign) // _MOST_FILES)] if foreign else []
    named = {name.lower(): is_untyped for name, is_untyped in columns.items()}
    try:
        files = (ForeignFile(file.key, file.partition, file.size) for file in some)
        footers = table.run(All(tuple(map(read_footer, files))))
    except ZeroRenameError as error:
        logger.info("%s: footers could not be read: %s", state.root.url, error)
        return None  # Whoever reads the file says so.
    found = (it for footer in footers for it in _refused(footer.metadata.schema))
    for path, what in found:
        for name, is_untyped in named.items():
            is_own = path == name or path.startswith(f"{name}.")
            if is_own and not (is_untyped and what == _REFUSED["UNKNOWN"]):
                return f"{what} in the column {path}"
    return None


def _refused(schema: pq.ParquetSchema) -> Iterator[tuple[str, str]]:
    """Yield the path, in lower case, of each value that Spark refuses, and what it is."""
    for number in range(len(schema)):
        column = schema.column(number)
        kind = column.logical_type
        what = _REFUSED.get(kind.type)
        if kind.type == "TIMESTAMP" and "nanoseconds" in str(kind):
            what = "nanoseconds"
        if what is not None:
            yield column.path.lower(), what
