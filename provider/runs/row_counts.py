"""Rows of Parquet files that somebody else wrote: from their footers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Files of one job beyond which nobody counts: a request each.
MOST_FILES = 1000
_THREADS = 8


def count_rows(driver: Any, files: Mapping[str, int]) -> dict[str, int] | None:
    """Rows by key.

    :param files: keys with their sizes.
    :return: ``None`` where there are too many files, or one is no Parquet file or gone by now:
        nobody is told a guess.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ...committer.errors import ZeroRenameError
    from ...committer.s3.range_reader import RangeFile

    def rows(item: tuple[str, int]) -> int:
        file = pa.PythonFile(RangeFile(driver, *item), mode="r")
        return pq.ParquetFile(file).metadata.num_rows

    if len(files) > MOST_FILES:
        return None
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(files, pool.map(rows, files.items()), strict=True))
    except (ZeroRenameError, pa.ArrowException, OSError):
        return None
