"""A Dagster job that loads days of a table, and may be told to fail before or after its commit.

Runs are re-executed by name: Dagster imports the job from this module, whose state a test sets.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

from dagster_zero_rename import ZeroRenameResource
from zero_rename.committer.format.job_spec import TableLayout

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
    :param deaths: called in turn, one a call of the asset's function, before it writes.
    """

    numbers: dict[str, list[int]] = field(default_factory=dict)
    failures: list[Callable[[], None]] = field(default_factory=list)
    mode: str = "overwrite"
    calls: int = 0
    deaths: list[Callable[[dg.AssetExecutionContext], None]] = field(default_factory=list)


load = Load()


def rows(days: Sequence[str], numbers: dict[str, list[int]]) -> pa.Table:
    pairs = [(dt.date.fromisoformat(day), n) for day in days for n in numbers.get(day, ())]
    columns = list(zip(*pairs, strict=True)) or [[], []]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def load_a_day(context: dg.AssetExecutionContext, zero: ZeroRenameResource) -> Any:
    """An asset's function: of the days that its run asks for the first has a row."""
    return zero.write(context, rows(context.partition_keys, {"2013-01-01": [1]}))


def fail() -> None:
    raise RuntimeError("failed after the commit")


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
)
def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource) -> dg.MaterializeResult:
    load.calls += 1
    if load.deaths:
        load.deaths.pop(0)(context)
    done = zero.write(context, rows(context.partition_keys, load.numbers), mode=load.mode)
    if load.failures:
        load.failures.pop(0)()
    return done


def flights_job() -> dg.JobDefinition:
    return _job(TableLayout.DIRECTORY)


def delta_flights_job() -> dg.JobDefinition:
    """The same job, for a Delta table."""
    return _job(TableLayout.DELTA)


def _job(layout: str) -> dg.JobDefinition:
    return dg.Definitions(
        assets=[flights],
        jobs=[dg.define_asset_job("flights_job", [flights], executor_def=dg.in_process_executor)],
        resources={"zero": ZeroRenameResource(table_root=dg.EnvVar(TABLES), layout=layout)},
    ).resolve_job_def("flights_job")


def materialisations(result: Any) -> list[Any]:
    """What a run has told of each partition, in its order."""
    events = [event for event in result.all_events if event.is_step_materialization]
    return [event.step_materialization_data.materialization for event in events]


def values(event: dg.AssetMaterialization) -> dict[str, Any]:
    """Its metadata."""
    return {name: value.value for name, value in event.metadata.items()}


def told(result: Any) -> dict[Any, dict[str, Any]]:
    """The metadata of each partition's materialisation."""
    return {it.partition: values(it) for it in materialisations(result)}


def execute(
    job: Callable[[], dg.JobDefinition],
    instance: dg.DagsterInstance,
    tags: Mapping[str, str],
    again: dg.ReexecutionOptions | None = None,
    config: Any = None,
) -> Any:
    """Run a job in this process.

    :param job: makes it, a function of a module.
    :param again: how a run before is executed again.
    """
    with dg.execute_job(
        dg.reconstructable(job),
        instance=instance,
        raise_on_error=False,
        reexecution_options=again,
        run_config=config,
        tags={**tags},
    ) as result:
        return result


def days(first: str, last: str | None = None) -> dict[str, Any]:
    """Tags of a run of some days, as a backfill of one run has them."""
    return {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last or first}
