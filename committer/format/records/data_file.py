"""Data file of a table's state, for readers and verification."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from .marks import ENCLOSING, LEFT_OUT, Checked, Count, at_least


def is_content(text: str) -> bool:
    """Return whether a text is valid as a file's content; it is empty if rows were not hashed."""
    return re.fullmatch("([0-9a-f]{16})?", text) is not None


#: Sum of the hashes of a file's rows (:mod:`.parquet.row_content`), in hexadecimal.
Content = Annotated[str, LEFT_OUT, Checked(is_content, "is no content of a file")]


@dataclass(frozen=True)
class DataFile:
    """One Parquet object that a partition holds.

    :param key: whole key in the bucket.
    :param partition: Hive-escaped partition path, or :data:`.layout.UNPARTITIONED`.
    :param size: bytes.
    :param rows: number of rows; -1 for a foreign file that the table adopted: they were not
        counted.
    :param checksum: ``sha256:<hex>`` of the object's bytes; empty for a foreign file.
    :param job: the job that wrote it; empty for a foreign file.
    :param summary: bounds of its first columns, as :mod:`.column_bounds` writes them; empty if
        none are known.
    :param content: sum of the hashes of its rows; empty if its job did not hash rows.
    :param statistics: bounds of its columns as a Delta log has them, in JSON (:mod:`.log_bounds`).
    :param same_as: key of the file that it is a copy of, byte by byte; empty: it is no copy.
    :param may_lack: it may lack nullable columns, and nullable fields inside of columns; they are
        read as null. This holds for the files of a log, since any engine may add columns to it.
    """

    key: str
    partition: Annotated[str, ENCLOSING]
    size: Count
    rows: Annotated[int, at_least(-1)]
    checksum: str
    job: str
    summary: Annotated[str, LEFT_OUT] = ""
    content: Content = ""
    may_lack: Annotated[bool, LEFT_OUT] = False
    statistics: Annotated[str, LEFT_OUT] = ""
    same_as: Annotated[str, LEFT_OUT] = ""

    @property
    def is_foreign(self) -> bool:
        """True if the table adopted this file, which another program wrote."""
        return self.rows < 0


def rows_of(files: Collection[DataFile]) -> int | None:
    """Return the number of rows in files; ``None`` if the rows of a file were not counted."""
    if any(file.is_foreign for file in files):
        return None
    return sum(file.rows for file in files)
