"""A data file of a table's state, as readers and verifiers meet it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from .marks import ENCLOSING, LEFT_OUT, Checked, Count, at_least


def is_content(text: str) -> bool:
    """Whether a text is a file's content; an empty one says that nobody counted it."""
    return re.fullmatch("([0-9a-f]{16})?", text) is not None


#: Sum of the hashes of a file's rows (:mod:`.parquet.row_content`).
Content = Annotated[str, LEFT_OUT, Checked(is_content, "is no content of a file")]


@dataclass(frozen=True)
class DataFile:
    """One Parquet object that a partition holds.

    :param key: whole key in the bucket.
    :param partition: Hive-escaped partition path, or :data:`.layout.UNPARTITIONED`.
    :param size: bytes.
    :param rows: rows; -1 for a foreign file that the table adopted, since nobody counted.
    :param checksum: ``sha256:<hex>`` of the object's bytes; empty for a foreign file.
    :param job: the job that wrote it; empty for a foreign file.
    :param summary: bounds of its first columns, as :mod:`.column_bounds` writes them; empty where
        nothing is known.
    :param content: empty where its job did not count by rows.
    :param statistics: the same as a Delta log states it, as JSON (:mod:`.log_bounds`).
    :param same_as: key of the file that it is a copy of, with its bytes; empty: of none.
    :param may_lack: it may lack columns, and fields inside of them, that may be null: they are. So
        the files of a log, to which any engine may add columns.
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
        """Whether the table adopted this file instead of writing it."""
        return self.rows < 0


def rows_of(files: Collection[DataFile]) -> int | None:
    """The rows of files; ``None`` where nobody has counted those of one."""
    if any(file.is_foreign for file in files):
        return None
    return sum(file.rows for file in files)
