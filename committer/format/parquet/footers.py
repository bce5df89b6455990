"""Row counts of foreign Parquet files, read from their footers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ZeroRenameError
from ...store.driver import Driver
from ...store.range_reader import RangeFile
from .row_counts import counted_rows

#: Most files of one job whose rows are counted: each takes a request.
MOST_FILES = 10_000
_THREADS = 16
#: Bytes read at once from a file's end: a footer of some hundred columns and one row group.
_TAIL = 32 * 1024


def count_rows(driver: Driver, files: Mapping[str, int]) -> dict[str, int] | None:
    """Count the rows of files, by key.

    :param files: keys with their sizes.
    :return: ``None`` if there are too many files, or one is not Parquet, missing, or contradicts
        itself: no estimate is returned.
    """

    def rows(item: tuple[str, int]) -> int:
        file = pa.PythonFile(RangeFile(driver, *item, tail=_TAIL), mode="r")
        return counted_rows(pq.ParquetFile(file).metadata)

    if len(files) > MOST_FILES:
        return None
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(files, pool.map(rows, files.items()), strict=True))
    except (ZeroRenameError, pa.ArrowException, OSError):
        return None
