"""A Dagster job that loads days of a table, and may be told to fail before or after its commit.

Runs are re-executed by name: Dagster imports the job from this module, whose state a test sets.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

from dagster_zero_rename import ZeroRenameResource

DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2013-02-01")
#: The variable that names the root of the job's tables.
TABLES = "TEST_TABLES"
SCHEMA = pa.schema([("day", pa.date32()), ("number", pa.int64())])


@dataclass
class Load:
    """What the next runs load, and where they fail.

    :param numbers: of the days that have rows.
    :param failures: called in turn, one a call of the asset's function, after its commit.
    :param calls: how often the function was called.
    """

    numbers: dict[str, list[int]] = field(default_factory=dict)
    failures: list[Callable[[], None]] = field(default_factory=list)
    mode: str = "overwrite"
    calls: int = 0


load = Load()


def rows(days: Sequence[str], numbers: dict[str, list[int]]) -> pa.Table:
    pairs = [(dt.date.fromisoformat(day), n) for day in days for n in numbers.get(day, ())]
    columns = list(zip(*pairs, strict=True)) or [[], []]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def fail() -> None:
    raise RuntimeError("failed after the commit")


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
)
def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource) -> dg.MaterializeResult:
    load.calls += 1
    done = zero.write(context, rows(context.partition_keys, load.numbers), mode=load.mode)
    if load.failures:
        load.failures.pop(0)()
    return done


def flights_job() -> dg.JobDefinition:
    return dg.Definitions(
        assets=[flights],
        jobs=[dg.define_asset_job("flights_job", [flights], executor_def=dg.in_process_executor)],
        resources={"zero": ZeroRenameResource(table_root=dg.EnvVar(TABLES))},
    ).resolve_job_def("flights_job")


def days(first: str, last: str | None = None) -> dict[str, Any]:
    """Tags of a run of some days, as a backfill of one run has them."""
    return {
        ASSET_PARTITION_RANGE_START_TAG: first,
        ASSET_PARTITION_RANGE_END_TAG: last or first,
    }
