"""What loads again although its chain of retries has committed, and what a retry must not pass
over: blocking checks that failed, ranges whose keys have changed, second writes of an asset."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.storage.tags import ASSET_RESUME_RETRY_TAG

from dagster_zero_rename import ZeroRenameResource
from dagster_zero_rename.asset_step import AssetStep
from support import dagster_loads
from support.dagster_loads import DAYS, SCHEMA, TABLES, Load, days, fail, rows

pytestmark = pytest.mark.memory_s3

DAY = "2013-01-01"
CARRIERS = dg.DynamicPartitionsDefinition(name="carriers")
OF_CARRIERS = pa.schema([("carrier", pa.string()), ("number", pa.int64())])


@dataclass
class Source:
    """What the next runs load.

    :param number: of the day's one row.
    :param is_good: what a check says of it.
    :param failures: called in turn after a commit.
    """

    number: int = 1
    is_good: bool = False
    failures: list[Callable[[], None]] = field(default_factory=list)


source = Source()
of_days: dict[str, Any] = {"partitions_def": DAYS, "metadata": {"partition_expr": "day"}}


def a_row(number: int) -> pa.Table:
    return rows([DAY], {DAY: [number]})


def fail_where_told() -> None:
    if source.failures:
        source.failures.pop(0)()


@dg.asset(**of_days, check_specs=[dg.AssetCheckSpec("good", asset="checked", blocking=True)])
def checked(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
    zero.write(context, a_row(source.number))
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=source.is_good)])


@dg.asset(**of_days, check_specs=[dg.AssetCheckSpec("good", asset="warned", blocking=True)])
def warned(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
    zero.write(context, a_row(source.number))
    warning = dg.AssetCheckSeverity.WARN
    yield dg.AssetCheckResult(passed=source.is_good, severity=warning)
    fail_where_told()
    yield dg.MaterializeResult()


@dg.asset(**of_days)
def first(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
    return zero.write(context, a_row(source.number))


@dg.asset_check(asset="first", blocking=True)
def first_is_good() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=source.is_good)


@dg.asset(**of_days)
def second(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
    done = zero.write(context, a_row(source.number))
    fail_where_told()
    return done


@dg.asset(**of_days)
def written_twice(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
    zero.write(context, a_row(1), mode="append")
    fail_where_told()
    return zero.write(context, a_row(2), mode="append")


@dg.op(required_resource_keys={"zero"})
def write_one(context: dg.AssetExecutionContext) -> int:
    context.resources.zero.write(context, a_row(1), mode="append")
    return 2


@dg.op(required_resource_keys={"zero"})
def write_other(context: dg.AssetExecutionContext, number: int) -> None:
    fail_where_told()
    context.resources.zero.write(context, a_row(number), mode="append")


@dg.graph_asset(**of_days)
def written_by_two_ops():
    return write_other(write_one())


@dg.op(required_resource_keys={"zero"})
def write_beside(context: dg.AssetExecutionContext) -> None:
    zero, step = context.resources.zero, AssetStep.of(context)
    other = replace(step.owner, series=f"other_op {(step.owner.series or '').partition(' ')[2]}")

    def overtaken() -> Iterator[pa.Table]:
        """Rows that are asked for once nothing is found to be committed."""
        key = {"idempotency_key": step.idempotency_key, "owner": other}
        with zero.table("written_beside").job(SCHEMA, partition_by=["day"], **key) as job:
            job.write(a_row(1))
        yield a_row(2)

    zero.write(context, overtaken(), mode="append")


@dg.graph_asset(**of_days)
def written_beside():
    return write_beside()


@dg.op(out=dg.DynamicOut(int))
def each() -> Iterator[dg.DynamicOutput[int]]:
    yield from (dg.DynamicOutput(it, mapping_key=str(it)) for it in (1, 2))


@dg.op
def collected(done: list[int]) -> None:
    """The asset is made of all."""


@dg.op(required_resource_keys={"zero"})
def write_each(context: dg.AssetExecutionContext, number: int) -> int:
    context.resources.zero.write(context, a_row(number), mode="append")
    return number


@dg.op(required_resource_keys={"zero"})
def write_own(context: dg.AssetExecutionContext, number: int) -> int:
    context.resources.zero.write(context, a_row(number), table=f"own/{number}")
    return number


@dg.graph_asset(**of_days)
def written_by_a_map():
    return collected(each().map(write_each).collect())


@dg.graph_asset(**of_days)
def tables_of_a_map():
    return collected(each().map(write_own).collect())


@dg.asset(
    partitions_def=CARRIERS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "carrier", "mode": "append"},
)
def carriers(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
    keys = list(context.partition_keys)
    done = zero.write(context, pa.table({"carrier": keys, "number": [1] * len(keys)}, OF_CARRIERS))
    fail_where_told()
    return done


ASSETS: list[Any] = [
    *(checked, warned, first, second, written_twice, written_by_two_ops, written_by_a_map),
    *(tables_of_a_map, carriers, written_beside),
]


def job_of(*assets: Any) -> dg.JobDefinition:
    keys = dg.AssetSelection.assets(*assets)
    job = dg.define_asset_job("load", keys, executor_def=dg.in_process_executor)
    return dg.Definitions(
        assets=ASSETS,
        asset_checks=[first_is_good],
        jobs=[job],
        resources={"zero": ZeroRenameResource(table_root=dg.EnvVar(TABLES))},
    ).resolve_job_def("load")


def checked_job() -> dg.JobDefinition:
    return job_of(checked)


def warned_job() -> dg.JobDefinition:
    return job_of(warned)


def pair_job() -> dg.JobDefinition:
    return job_of(first, second)


def written_twice_job() -> dg.JobDefinition:
    return job_of(written_twice)


def two_ops_job() -> dg.JobDefinition:
    return job_of(written_by_two_ops)


def overtaken_job() -> dg.JobDefinition:
    return job_of(written_beside)


def map_job() -> dg.JobDefinition:
    return job_of(written_by_a_map)


def tables_job() -> dg.JobDefinition:
    return job_of(tables_of_a_map)


def carriers_job() -> dg.JobDefinition:
    return job_of(carriers)


@dataclass(frozen=True)
class Runs:
    """Runs of jobs on one instance, by tables of a test."""

    zero: ZeroRenameResource
    instance: dg.DagsterInstance

    def run(
        self,
        job: Callable[[], dg.JobDefinition],
        ends: tuple[str, str] = (DAY, DAY),
        again: dg.ReexecutionOptions | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Any:
        return dagster_loads.execute(job, self.instance, {**days(*ends), **(tags or {})}, again)

    def retry(
        self, job: Callable[[], dg.JobDefinition], failed: Any, ends: tuple[str, str] = (DAY, DAY)
    ) -> Any:
        """Execute a run again from its failure."""
        again = dg.ReexecutionOptions.from_failure(failed.run_id, self.instance)
        return self.run(job, ends, again)

    def from_asset_failure(self, job: Callable[[], dg.JobDefinition], failed: Any) -> Any:
        """Execute the failed assets of a run again, as Dagster's page does: all here have failed,
        or have a check that has."""
        again = dg.ReexecutionOptions(failed.run_id)
        return self.run(job, again=again, tags={ASSET_RESUME_RETRY_TAG: "true"})

    def numbers(self, table: str) -> list[int]:
        return sorted(self.zero.table(table).to_arrow()["number"].to_pylist())


@pytest.fixture
def runs(
    load: Load,
    zero: ZeroRenameResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> Runs:
    for name, value in vars(Source()).items():
        monkeypatch.setattr(source, name, value)
    return Runs(zero, instance)


def failures(result: Any) -> str:
    """What the steps of a run have failed with."""
    found = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    return "\n".join(str(it.user_failure_data or it.error) for it in found)


class TestBlockingChecks:
    def test_rows_that_the_steps_own_check_failed_are_loaded_again_from_the_failure(
        self, runs: Runs
    ) -> None:
        failed = runs.run(checked_job)
        assert (failed.success, runs.numbers("checked")) == (False, [1])
        source.number, source.is_good = 2, True
        assert runs.retry(checked_job, failed).success
        assert runs.numbers("checked") == [2]

    def test_rows_that_a_check_warned_of_are_reported_by_a_retry(self, runs: Runs) -> None:
        source.failures = [fail]
        failed = runs.run(warned_job)
        source.number = 2
        assert (failed.success, runs.retry(warned_job, failed).success) == (False, True)
        assert runs.numbers("warned") == [1]

    def test_rows_that_a_check_failed_are_loaded_again_from_the_asset_failure(
        self, runs: Runs
    ) -> None:
        failed = runs.run(pair_job)
        source.number, source.is_good = 2, True
        assert not failed.success
        assert runs.from_asset_failure(pair_job, failed).success
        assert runs.numbers("first") == [2]

    def test_commit_after_a_failed_check_is_reported_by_the_next_retry(self, runs: Runs) -> None:
        failed = runs.run(pair_job)
        source.number, source.is_good, source.failures = 2, True, [fail]
        again = runs.from_asset_failure(pair_job, failed)
        assert (again.success, runs.numbers("second")) == (False, [2])
        source.number = 3
        assert runs.retry(pair_job, again).success
        assert (runs.numbers("first"), runs.numbers("second")) == ([2], [2])


def test_asset_that_a_retry_has_made_is_loaded_again_by_a_run_of_that_retry_as_a_whole(
    runs: Runs,
) -> None:
    """Dagster hands on the tag of a run of failed assets to one that is made from it as a whole."""
    source.is_good, source.failures = True, [fail, fail]
    failed = runs.run(pair_job)
    retried = runs.from_asset_failure(pair_job, failed)
    assert not retried.success
    source.number = 2
    assert runs.from_asset_failure(pair_job, retried).success
    assert runs.numbers("first") == [2]


class TestSecondWrite:
    def test_second_call_of_a_step_is_refused_in_a_retry_too(self, runs: Runs) -> None:
        source.failures = [fail]
        failed = runs.run(written_twice_job)
        retried = runs.retry(written_twice_job, failed)
        assert not retried.success
        assert "has written this table already; the rows of this second call" in failures(retried)
        assert runs.numbers("written_twice") == [1]

    @pytest.mark.parametrize("dies", [True, False])
    def test_second_op_of_a_graph_asset_is_refused_in_a_retry_too(
        self, runs: Runs, dies: bool
    ) -> None:
        source.failures = [fail] if dies else []
        failed = runs.run(two_ops_job)
        retried = runs.retry(two_ops_job, failed)
        assert not retried.success
        assert "The op 'write_one' has written the table" in failures(retried)
        assert runs.numbers("written_by_two_ops") == [1]

    def test_op_that_another_one_overtakes_is_refused(self, runs: Runs) -> None:
        """As two processes of an executor may, which both look before either commits."""
        refused = runs.run(overtaken_job)
        assert not refused.success
        assert "The op 'other_op' has written the table" in failures(refused)
        assert runs.numbers("written_beside") == [1]

    def test_steps_of_a_map_are_refused(self, runs: Runs) -> None:
        refused = runs.run(map_job)
        assert not refused.success
        assert "'written_by_a_map.write_each[1]', one of a map" in failures(refused)
        assert not runs.zero.table("written_by_a_map").exists()

    def test_steps_of_a_map_may_write_a_table_each(self, runs: Runs) -> None:
        assert runs.run(tables_job).success
        assert (runs.numbers("own/1"), runs.numbers("own/2")) == ([1], [2])


class TestChangedKeys:
    """A run names a range by its ends, and what lies between them may change before a retry."""

    ENDS = ("AA", "UA")

    def loaded(self, runs: Runs) -> list[str]:
        return sorted(runs.zero.table("carriers").to_arrow()["carrier"].to_pylist())

    def fail_with(self, runs: Runs, *keys: str) -> Any:
        """A run that has appended a row for each key, and failed then."""
        runs.instance.add_dynamic_partitions("carriers", keys)
        source.failures = [fail]
        failed = runs.run(carriers_job, self.ENDS)
        assert (failed.success, self.loaded(runs)) == (False, [*keys])
        return failed

    def test_retry_without_a_key_that_is_gone_doubles_nothing(self, runs: Runs) -> None:
        failed = self.fail_with(runs, "AA", "DL", "UA")
        runs.instance.delete_dynamic_partition("carriers", "DL")
        assert runs.retry(carriers_job, failed, self.ENDS).success
        assert self.loaded(runs) == ["AA", "DL", "UA"]

    def test_retry_with_a_new_key_loads_it_and_doubles_nothing(self, runs: Runs) -> None:
        failed = self.fail_with(runs, "AA", "UA")
        runs.instance.delete_dynamic_partition("carriers", "UA")
        runs.instance.add_dynamic_partitions("carriers", ["DL", "UA"])
        assert runs.retry(carriers_job, failed, self.ENDS).success
        assert self.loaded(runs) == ["AA", "DL", "UA"]
