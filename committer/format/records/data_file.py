"""A data file of a table's state, as readers and verifiers meet it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from .marks import ENCLOSING, LEFT_OUT, AtLeast, Count


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
    """

    key: str
    partition: Annotated[str, ENCLOSING]
    size: Count
    rows: Annotated[int, AtLeast(-1)]
    checksum: str
    job: str
    summary: Annotated[str, LEFT_OUT] = ""

    @property
    def is_foreign(self) -> bool:
        """Whether the table adopted this file instead of writing it."""
        return self.rows < 0


def rows_of(files: Collection[DataFile]) -> int | None:
    """The rows of files; ``None`` where nobody has counted those of one."""
    if any(file.is_foreign for file in files):
        return None
    return sum(file.rows for file in files)
