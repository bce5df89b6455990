"""Rows of numbered days, loaded into a table as users do, and read again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from support.protocol import SCHEMA
from zero_rename import Table


def rows(*values: int, day: int = 1) -> pa.Table:
    return pa.table({"value": values, "day": [day] * len(values)}, schema=SCHEMA)


def load(table: Table, *values: int, day: int = 1, **policy: Any) -> str:
    """Load values of a day by one job; its id."""
    return load_rows(table, rows(*values, day=day), **policy)


def load_rows(table: Table, made: pa.Table, **policy: Any) -> str:
    given: dict[str, Any] = {"partition_by": ["day"], **policy}
    with table.job(made.schema, **given) as job:
        job.write(made)
    assert job.job is not None
    return job.job


def values(table: Table, *partitions: str) -> list[int]:
    """The values that are there, of these partitions or of all."""
    return sorted(table.to_arrow(["value"], partitions or None)["value"].to_pylist())
