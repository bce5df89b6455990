"""Runs that load one partition, under ``on_conflict=newest_run``: which of them is newer."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_zero_rename import ZeroRenameResource
from dagster_zero_rename.asset_step import AssetStep
from support import dagster_loads
from support.dagster_loads import DAYS, SCHEMA, Load, days, rows
from zero_rename.committer import RunRank, SupersededRunError
from zero_rename.committer.format.run_rank import RunRanks

pytestmark = pytest.mark.memory_s3

DAY, NEXT = "2013-01-01", "2013-01-02"


@pytest.fixture
def newest(zero: ZeroRenameResource) -> ZeroRenameResource:
    return ZeroRenameResource(table_root=zero.table_root, on_conflict="newest_run")


def materialise(asset: Any, zero: ZeroRenameResource, **given: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize([asset], resources={"zero": zero}, raise_on_error=False, **given)


def late(zero: ZeroRenameResource, **given: Any) -> tuple[Any, list[dg.ExecuteInProcessResult]]:
    """An asset whose first run lets another run load first, and the results of these others."""
    others: list[dg.ExecuteInProcessResult] = []
    started: list[str] = []

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        started.append(context.run.run_id)
        number = len(started)
        if number == 1:
            others.append(materialise(flights, zero, instance=context.instance, **given))
        return zero.write(context, rows(context.partition_keys, {DAY: [number], NEXT: [number]}))

    return flights, others


def test_run_that_was_made_earlier_fails_without_retry_and_the_newer_rows_stay(
    newest: ZeroRenameResource,
) -> None:
    asset, others = late(newest, partition_key=DAY)
    with dg.instance_for_test() as instance:
        result = materialise(asset, newest, partition_key=DAY, instance=instance)
    assert (result.success, others[0].success) == (False, True)
    (failed,) = result.filter_events(lambda event: event.is_step_failure)
    error = failed.step_failure_data.error
    assert error is not None
    assert SupersededRunError.__name__ in str(error)
    assert newest.table("flights").to_arrow()["number"].to_pylist() == [2]


def test_run_of_several_days_leaves_out_those_that_newer_runs_have_loaded(
    newest: ZeroRenameResource,
) -> None:
    skips = ZeroRenameResource(
        table_root=newest.table_root, on_conflict="newest_run", on_superseded="skip"
    )
    asset, others = late(newest, partition_key=DAY)
    with dg.instance_for_test() as instance:
        result = materialise(asset, skips, tags=days(DAY, NEXT), instance=instance)
    assert (result.success, others[0].success) == (True, True)
    found = newest.table("flights").to_arrow().sort_by("day")["number"].to_pylist()
    assert found == [2, 1]
    told = {
        it.materialization.partition: it.materialization.metadata for it in materializations(result)
    }
    (newer,) = (it.materialization.metadata for it in materializations(others[0]))
    assert told[DAY]["zero_rename/superseded_by"] == newer["zero_rename/job"]
    counts = [told[day].get("dagster/partition_row_count") for day in (DAY, NEXT)]
    assert counts == [None, dg.IntMetadataValue(1)]


def materializations(result: dg.ExecuteInProcessResult) -> list[Any]:
    events = result.get_asset_materialization_events()
    return [event.step_materialization_data for event in events]


def test_rank_is_the_end_of_each_keys_window_and_then_the_first_runs_making(
    zero: ZeroRenameResource,
) -> None:
    seen: list[Any] = []

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        step = AssetStep.of(context)
        seen.append(step.run_rank({DAY: f"day={DAY}", NEXT: f"day={NEXT}"}))
        return zero.write(context, pa.table([[], []], SCHEMA))

    began = dt.datetime.now(dt.UTC)
    materialise(flights, zero, tags=days(DAY, NEXT))
    (ranks,) = seen
    ends = [ranks.rank(f"day={day}").value for day in (DAY, NEXT)]
    assert ends == [RunRank.of(text).value for text in (NEXT, "2013-01-03")]
    made = {ranks.rank(f"day={day}").then for day in (DAY, NEXT)}
    assert len(made) == 1
    assert 0 <= made.pop() - began.timestamp() < 60
    assert ranks.rank("day=other").value >= began.timestamp()


def test_run_of_which_newer_runs_have_loaded_all_fails_without_retry(
    newest: ZeroRenameResource,
) -> None:
    skips = ZeroRenameResource(
        table_root=newest.table_root, on_conflict="newest_run", on_superseded="skip"
    )
    asset, others = late(newest, partition_key=DAY)
    result = materialise(asset, skips, partition_key=DAY)
    assert (result.success, others[0].success) == (False, True)
    (failed,) = result.filter_events(lambda event: event.is_step_failure)
    user = failed.step_failure_data.user_failure_data
    assert user is not None
    assert user.metadata["zero_rename/error"].value == SupersededRunError.__name__
    assert newest.table("flights").to_arrow()["number"].to_pylist() == [2]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[RunRanks]:
    """The ranks of runs, in the order in which they write."""
    seen: list[RunRanks] = []
    ranked = AssetStep.run_rank

    def run_rank(step: AssetStep, paths: Mapping[str, str]) -> RunRanks:
        seen.append(ranked(step, paths))
        return seen[-1]

    monkeypatch.setattr(AssetStep, "run_rank", run_rank)
    return seen


def test_re_executed_run_has_the_rank_of_the_first_of_its_chain(
    load: Load, instance: dg.DagsterInstance, ranks: list[RunRanks]
) -> None:
    load.failures = [dagster_loads.fail]
    first = dagster_loads.execute(dagster_loads.flights_job, instance, days(DAY))
    dagster_loads.execute(dagster_loads.flights_job, instance, days(DAY))
    again = dg.ReexecutionOptions(first.run_id)
    dagster_loads.execute(dagster_loads.flights_job, instance, days(DAY), again)
    mine, other, re_executed = (it.rank(f"day={DAY}") for it in ranks)
    assert mine == re_executed
    assert mine is not None
    assert other is not None
    assert other.is_newer_than(mine)


def test_rank_of_a_key_of_several_dimensions_is_the_end_of_its_time_window(
    zero: ZeroRenameResource, ranks: list[RunRanks]
) -> None:
    carriers = dg.StaticPartitionsDefinition(["AA", "UA"])

    @dg.asset(partitions_def=dg.MultiPartitionsDefinition({"carrier": carriers, "day": DAYS}))
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        row = {"carrier": ["AA"], "day": [dt.date(2013, 1, 1)]}
        return zero.write(context, pa.table(row))

    key = dg.MultiPartitionKey({"carrier": "AA", "day": DAY})
    materialise(flights, zero, partition_key=key)
    found = ranks[0].rank(f"carrier=AA/day={DAY}")
    assert found is not None
    assert found.value == RunRank.of(NEXT).value
