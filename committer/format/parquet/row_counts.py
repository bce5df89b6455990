"""Row count of a Parquet file: the footer has one for the file and one for each row group."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def counted_rows(metadata: pq.FileMetaData) -> int:
    """Return the number of rows of a file.

    :raises pyarrow.ArrowInvalid: the footer contradicts itself. Some readers use the file's count
        and some use those of the row groups, so neither is right.
    """
    of_groups = sum(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))
    if metadata.num_rows != of_groups:
        raise pa.ArrowInvalid(
            f"its footer counts {metadata.num_rows} rows, and its row groups have {of_groups}"
        )
    return of_groups
