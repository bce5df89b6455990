"""A Delta table on a store in memory, and loads of its days."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.tables import DeltaTable

URL = "s3://bucket/flights"


def on(store: MemoryStore, fault: Any = None) -> DeltaTable:
    """A table as another process meets it."""
    table = DeltaTable(URL)
    table.driver = MemoryDriver(store, fault)  # type: ignore[assignment]
    return table


def rows(*values: int, day: str = "1") -> pa.Table:
    return pa.table({"day": [day] * len(values), "value": pa.array(values, pa.int64())})


def write(table: DeltaTable, data: pa.Table, **options: Any) -> Any:
    with table.job(data.schema, partition_by=["day"], **options) as job:
        job.write(data)
    return job.committed
