"""Spark applications under Dagster Pipes: what they are told, and what becomes of their commits.

``spark-submit`` is a stand-in that runs the application in plain Python.
"""

import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.storage.tags import MAX_RETRIES_TAG

from dagster_zero_rename import SparkPipesClient, ZeroRenameResource
from support import dagster_loads
from support.dagster_loads import DAYS as DAILY
from support.dagster_loads import days
from support.dagster_loads import told as metadata
from support.fake_spark import FAILS_AFTERWARDS, IDLE, WRITES, FakeSpark
from support.moto_server import S3Server
from zero_rename.committer import CommitConflictError, RefusedError, Table
from zero_rename.committer.commit.failures import record_failure
from zero_rename.committer.commit.state.job_state import JobState
from zero_rename.committer.format.job_spec import JobSpec
from zero_rename.orchestration.runs import heartbeat
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import opened_as_it_is

pytestmark = pytest.mark.memory_s3

DAYS = dg.StaticPartitionsDefinition(["1", "2", "3"])
#: As ``save()`` does after its write.
REPORTS = """
from zero_rename.spark.pipes import pipes_session, report_commit
session = pipes_session()
report_commit(session, job.committed, is_asset=True)
"""
KEYS = {"partition_expr": "day"}


@pytest.fixture
def application(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.touch()
    return str(path)


class Asset:
    """Days of a table, by an application that writes ``days``."""

    def __init__(self, zero: ZeroRenameResource, application: str) -> None:
        self.zero = zero
        self.client = SparkPipesClient(zero_rename=zero, master="local[1]")
        self.days = "1"
        self.arguments: dict[str, Any] = {}
        self.afterwards: list[BaseException] = []

        self.application = application

    def definition(self, **given: Any) -> Any:
        @dg.asset(
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata=KEYS,
            **given,
        )
        def flights(context: dg.AssetExecutionContext):
            arguments = {"application": self.application, "env": {"TEST_DAYS": self.days}}
            fields: dict[str, Any] = arguments | self.arguments
            result = self.client.run(context, **fields)
            if self.afterwards:
                raise self.afterwards.pop()
            return result

        return flights

    def load(self, first: str, last: str, raise_on_error: bool = True, **given: Any) -> Any:
        made = self.definition(**given)
        return dg.materialize([made], tags=days(first, last), raise_on_error=raise_on_error)

    def rows(self) -> list[int]:
        return sorted(self.zero.table("flights").to_arrow()["day"].to_pylist())


@pytest.fixture
def asset(zero: ZeroRenameResource, application: str, spark: FakeSpark) -> Asset:
    spark.runs(WRITES + REPORTS)
    return Asset(zero, application)


@pytest.mark.usefixtures("s3_server")
def test_one_application_loads_all_partitions_of_a_run(
    asset: Asset, spark: FakeSpark, zero: ZeroRenameResource
) -> None:
    asset.days = "2,2"
    assert asset.load("2", "2").success
    asset.days = "1,1,3"
    told = metadata(asset.load("1", "3"))
    assert asset.rows() == [1, 1, 3]
    assert len(spark.calls()) == 2
    assert {k: v["zero_rename/rows"] for k, v in told.items()} == {"1": 2, "2": 0, "3": 1}
    assert {k: v["zero_rename/version"] for k, v in told.items()} == {"1": 1, "2": 2, "3": 1}
    jobs = {v["zero_rename/job"] for v in told.values()}
    assert jobs == {told["1"]["zero_rename/job"]}
    assert "zero_rename/partitions" not in told["1"]
    assert told["3"]["dagster/uri"] == f"{zero.table('flights').root.url}/day=3"


def test_what_the_application_is_told(
    asset: Asset, spark: FakeSpark, s3_server: S3Server, zero: ZeroRenameResource
) -> None:
    keys = s3_server.environment
    asset.client = SparkPipesClient(
        zero_rename=ZeroRenameResource(
            table_root=zero.table_root,
            access_key_id=keys["AWS_ACCESS_KEY_ID"],
            secret_access_key="a-secret-of-its-own",
        ),
        master="local[1]",
        conf={"spark.executor.memory": "1g"},
    )
    asset.arguments = {"application_args": ["--day", "1"]}
    asset.client.zero_rename.table("flights")
    # The secret is another one's: the store of the tests takes any.
    assert asset.load("1", "1").success
    [call] = spark.calls()
    words = call["argv"]
    assert words[-2:] == ["--day", "1"]
    assert "spark.executor.memory=1g" in words
    assert "a-secret-of-its-own" not in " ".join(words)
    variables = call["env"]
    assert variables["AWS_SECRET_ACCESS_KEY"] == "a-secret-of-its-own"
    assert variables["ZERO_RENAME_MODE"] == "replace"
    assert json.loads(variables["ZERO_RENAME_PARTITIONS"]) == ["day=1"]
    assert variables["ZERO_RENAME_IDEMPOTENCY_KEY"].startswith("dagster/")
    assert "DAGSTER_PIPES_CONTEXT" in variables


@pytest.mark.usefixtures("s3_server")
def test_a_step_retried_after_its_commit_submits_nothing(asset: Asset, spark: FakeSpark) -> None:
    asset.afterwards = [dg.RetryRequested(max_retries=1)]
    told = metadata(asset.load("1", "1"))
    assert len(spark.calls()) == 1
    assert told["1"]["zero_rename/repeated"] is True
    assert asset.rows() == [1]


@pytest.mark.usefixtures("s3_server")
def test_a_step_retried_after_its_application_failed_late_submits_nothing(
    asset: Asset, spark: FakeSpark
) -> None:
    spark.runs(FAILS_AFTERWARDS)
    result = asset.load("1", "1", retry_policy=dg.RetryPolicy(max_retries=1))
    assert result.success
    assert len(spark.calls()) == 1
    assert asset.rows() == [1]


@pytest.mark.usefixtures("s3_server")
def test_run_that_a_newer_one_has_overtaken_submits_nothing_and_fails_for_good(
    application: str, zero: ZeroRenameResource, spark: FakeSpark
) -> None:
    newest = ZeroRenameResource(table_root=zero.table_root, on_conflict="newest_run")
    rows = pa.table({"day": pa.array([1], pa.int32()), "flight": ["newer"]})
    newer = newest.table("flights").job(
        rows.schema,
        mode="replace",
        partition_by=("day",),
        run_rank=datetime(2100, 1, 1, tzinfo=UTC),
    )
    with newer:
        newer.write(rows)
    result = Asset(newest, application).load("1", "1", raise_on_error=False)
    (failed,) = result.filter_events(lambda event: event.is_step_failure)
    assert "Newer runs have loaded day=1" in str(failed.step_failure_data.error)
    assert spark.calls() == []


#: What the attempts at :func:`orphaned` do before they submit.
before: list[Callable[[Any], None]] = []


@dg.asset(partitions_def=DAYS, metadata=KEYS)
def orphaned(context: dg.AssetExecutionContext, spark: SparkPipesClient):
    if before:
        before.pop(0)(spark.zero_rename.spark_load(context))
    return spark.run(context, application=os.environ["TEST_APPLICATION"], env={"TEST_DAYS": "1"})


@dg.asset(
    partitions_def=dg.DynamicPartitionsDefinition(name="numbers"),
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata=KEYS,
)
def numbered(context: dg.AssetExecutionContext, spark: SparkPipesClient):
    given = {"TEST_DAYS": ",".join(context.partition_keys)}
    return spark.run(context, application=os.environ["TEST_APPLICATION"], env=given)


def job_of(asset: dg.AssetsDefinition) -> dg.JobDefinition:
    zero = ZeroRenameResource(table_root=dg.EnvVar(dagster_loads.TABLES))
    return dg.Definitions(
        assets=[asset],
        jobs=[dg.define_asset_job("its_job", [asset], executor_def=dg.in_process_executor)],
        resources={"spark": SparkPipesClient(zero_rename=zero, master="local[1]")},
    ).resolve_job_def("its_job")


def orphaned_job() -> dg.JobDefinition:
    return job_of(orphaned)


def numbered_job() -> dg.JobDefinition:
    return job_of(numbered)


def meets_conflict(load: Any) -> None:
    """The application meets a conflict and records it, and the step's process has died before."""
    step, root = load.step, load.table.root
    error = CommitConflictError("Another job changed day=1.", key=root.head_key("day=1"))
    key = step.idempotency_key
    load.table.run(record_failure(error, root, key, step.owner, ["day=1"]))
    raise RuntimeError("the worker dies")


@pytest.fixture
def told_by_environment(
    zero: ZeroRenameResource, application: str, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that Dagster makes by their names find their tables and their application."""
    spark.runs(WRITES)
    monkeypatch.setenv(dagster_loads.TABLES, str(zero.table_root))
    monkeypatch.setenv("TEST_APPLICATION", application)


@pytest.fixture
def run_orphaned(
    told_by_environment: None, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run a job whose worker dies before it reads what its application has recorded."""
    monkeypatch.setitem(globals(), "before", [meets_conflict])

    def run(failed: Any = None) -> Any:
        again = failed and dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        return dagster_loads.execute(orphaned_job, instance, days("1"), again)

    return run


@pytest.mark.usefixtures("s3_server")
def test_conflict_of_an_application_whose_worker_died_is_not_hidden_by_a_retry(
    run_orphaned: Callable[..., Any], spark: FakeSpark
) -> None:
    failed = run_orphaned()
    retried = run_orphaned(failed)
    [failure] = [e for e in retried.all_events if e.is_step_failure]
    said = failure.step_failure_data.user_failure_data
    assert said.description.startswith(
        f"Not submitted. The application of attempt 1 in run {failed.run_id} failed, and its "
        "worker had died: Another job changed day=1."
    )
    assert said.metadata["zero_rename/error"].value == "CommitConflictError"
    assert retried.dagster_run.tags[MAX_RETRIES_TAG] == "0"
    assert spark.calls() == []


@pytest.mark.usefixtures("s3_server")
def test_run_that_is_executed_again_after_a_conflict_was_reported_loads(
    run_orphaned: Callable[..., Any], spark: FakeSpark
) -> None:
    reported = run_orphaned(run_orphaned())
    assert run_orphaned(reported).success
    assert len(spark.calls()) == 1


@pytest.mark.usefixtures("s3_server", "told_by_environment")
def test_run_that_is_executed_again_as_a_whole_without_a_former_key_takes_that_keys_rows_away(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    instance.add_dynamic_partitions("numbers", ["1", "2", "3"])
    done = dagster_loads.execute(numbered_job, instance, days("1", "3"))
    instance.delete_dynamic_partition("numbers", "2")
    again = dg.ReexecutionOptions(done.run_id)
    assert dagster_loads.execute(numbered_job, instance, days("1", "3"), again).success
    assert sorted(zero.table("numbered").to_arrow()["day"].to_pylist()) == [1, 3]


#: Writes day 3, whichever partitions its run asks for.
_WRITES_OTHERS = WRITES.replace("mode=options.mode(overwrite)", 'mode="append"').replace(
    "replace_partitions=options.replace_partitions", "replace_partitions=None"
)


@pytest.mark.usefixtures("s3_server")
def test_rows_in_partitions_that_a_run_does_not_ask_for_fail_it_for_good(
    asset: Asset, spark: FakeSpark
) -> None:
    spark.runs(_WRITES_OTHERS)
    asset.days = "1,3"
    result = asset.load("1", "2", raise_on_error=False, retry_policy=dg.RetryPolicy(max_retries=1))
    [failure] = [e for e in result.all_events if e.is_step_failure]
    assert not [e for e in result.all_events if e.is_step_up_for_retry]
    user = failure.step_failure_data.user_failure_data
    assert "it also changed partitions that its task does not name: day=3" in user.description
    assert user.metadata["zero_rename/error"].value == "TaskResultsError"


@pytest.mark.usefixtures("s3_server")
@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([], "The asset 'made' has no partitions, and its table is partitioned by day."),
        (["1", "01"], "a run of one would replace the rows of the other."),
    ],
)
def test_table_that_the_asset_cannot_have_fails_for_good_the_run_whose_application_made_it(
    asset: Asset, zero: ZeroRenameResource, keys: list[str], why: str
) -> None:
    definition = dg.StaticPartitionsDefinition(keys) if keys else None

    @dg.asset(partitions_def=definition, retry_policy=dg.RetryPolicy(max_retries=1), metadata=KEYS)
    def made(context: dg.AssetExecutionContext):
        env = {"TEST_DAYS": "1", "TEST_OVERWRITE": "1"}
        return asset.client.run(context, application=asset.application, env=env)

    result = dg.materialize([made], partition_key=keys[0] if keys else None, raise_on_error=False)
    [failure] = [e for e in result.all_events if e.is_step_failure]
    assert not [e for e in result.all_events if e.is_step_up_for_retry]
    user = failure.step_failure_data.user_failure_data
    said = "" if user is None else user.description or ""
    assert said.startswith("The job is committed, and the asset cannot have the table")
    assert why in said
    assert "othing was written" not in said
    assert zero.table("made").to_arrow().num_rows == 1


@pytest.mark.usefixtures("s3_server")
def test_retry_that_waits_for_other_runs_loads_after_a_conflict_of_an_orphaned_application(
    zero: ZeroRenameResource, application: str, spark: FakeSpark
) -> None:
    spark.runs(WRITES)
    waits = ZeroRenameResource(table_root=zero.table_root, wait_for_other_runs=60)
    client, attempts = SparkPipesClient(zero_rename=waits, master="local[1]"), [meets_conflict]

    @dg.asset(
        name="orphaned",
        partitions_def=DAYS,
        metadata=KEYS,
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def made(context: dg.AssetExecutionContext):
        if attempts:
            attempts.pop()(waits.spark_load(context))
        return client.run(context, application=application, env={"TEST_DAYS": "1"})

    assert dg.materialize([made], partition_key="1").success
    assert len(spark.calls()) == 1


@pytest.mark.usefixtures("s3_server")
def test_a_table_that_is_not_there_yet_is_loaded_by_a_format_of_times(
    asset: Asset, spark: FakeSpark, zero: ZeroRenameResource
) -> None:
    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day=%-d"})
    def flights(context: dg.AssetExecutionContext):
        return asset.client.run(context, application=asset.application, env={"TEST_DAYS": "5,5"})

    told = metadata(dg.materialize([flights], partition_key="2013-01-05"))
    assert told["2013-01-05"]["zero_rename/rows"] == 2
    assert zero.table("flights").partitions() == ["day=5"]


@pytest.mark.usefixtures("s3_server")
def test_an_asset_without_partitions_is_emptied_by_no_rows(
    asset: Asset, spark: FakeSpark, zero: ZeroRenameResource
) -> None:
    @dg.asset
    def carriers(context: dg.AssetExecutionContext):
        return asset.client.run(context, application=asset.application, env={"ROWS": asset.days})

    spark.runs(_WHOLE)
    asset.days = "2"
    dg.materialize([carriers])
    assert zero.table("carriers").to_arrow().num_rows == 2
    asset.days = "0"
    told = metadata(dg.materialize([carriers]))
    assert zero.table("carriers").to_arrow().num_rows == 0
    assert told[None]["zero_rename/rows"] == 0


#: Writes ``ROWS`` rows into a table without partitions.
_WHOLE = """
import os
import pyarrow as pa
from zero_rename import committer
from zero_rename.spark.options import read_writer_options

url = os.environ["ZERO_RENAME_TABLE"]
options = read_writer_options({"path": url})
schema = pa.schema([("carrier", pa.string())])
job = committer.Table(url).job(
    schema,
    mode=options.mode(options.expected_mode == "replace"),
    replace_table=options.replace_table,
    idempotency_key=options.idempotency_key,
    on_repeat=options.on_repeat,
    owner=options.owner("test"),
)
with job:
    job.write(pa.table({"carrier": ["UA"] * int(os.environ["ROWS"])}, schema=schema))
"""


@pytest.mark.usefixtures("s3_server")
def test_another_run_loads_again(asset: Asset, spark: FakeSpark) -> None:
    asset.load("1", "1")
    asset.days = "1,1"
    asset.load("1", "1")
    assert len(spark.calls()) == 2
    assert asset.rows() == [1, 1]


@pytest.mark.usefixtures("s3_server")
def test_rows_of_other_partitions_fail_the_step_for_good(asset: Asset, spark: FakeSpark) -> None:
    asset.days = "1,3"
    result = asset.load("1", "2", raise_on_error=False, retry_policy=dg.RetryPolicy(max_retries=1))
    assert not result.success
    [failure] = [e for e in result.all_events if e.is_step_failure]
    user = failure.step_failure_data.user_failure_data
    assert "day=3" in user.description
    assert user.metadata["zero_rename/error"].value == "InvalidInputError"
    assert len(spark.calls()) == 1


def test_an_application_that_commits_nothing_is_no_success(asset: Asset, spark: FakeSpark) -> None:
    spark.runs(IDLE)
    with pytest.raises(RefusedError, match="committed no job of asset 'flights'"):
        asset.load("1", "1")


@pytest.mark.usefixtures("s3_server")
def test_its_own_metadata_and_checks_are_kept(asset: Asset, spark: FakeSpark) -> None:
    spark.runs(
        WRITES + "\nfrom zero_rename.spark.pipes import pipes_session\nsession = pipes_session()\n"
        "session.report_asset_materialization({'source': 'a.csv', 'zero_rename/rows': 9})\n"
        "session.report_asset_check('plausible', passed=False, severity='WARN')\n"
    )
    result = asset.load("1", "1", check_specs=[dg.AssetCheckSpec("plausible", asset="flights")])
    told = metadata(result)["1"]
    assert (told["source"], told["zero_rename/rows"]) == ("a.csv", 1)
    [check] = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("plausible", False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"application_args": ["--token=abcdefgh"]}, "application_args"),
        ({"conf": {"spark.hadoop.fs.s3a.secret.key": "abcdefgh"}}, "conf"),
        ({"application": "/nowhere/job.py"}, "does not exist"),
        ({"mode": "upsert"}, "mode='upsert'"),
        ({"partition_expr": "day=%Y"}, "is a format of times"),
    ],
)
def test_calls_that_cannot_be_right_submit_nothing(
    asset: Asset, spark: FakeSpark, arguments: dict[str, Any], message: str
) -> None:
    asset.arguments = arguments
    with pytest.raises(dg.Failure, match=message):
        asset.load("1", "1", retry_policy=dg.RetryPolicy(max_retries=1))
    assert spark.calls() == []


def test_cluster_mode_is_refused(asset: Asset, zero: ZeroRenameResource, spark: FakeSpark) -> None:
    asset.client = SparkPipesClient(zero_rename=zero, deploy_mode="cluster", master="yarn")
    with pytest.raises(dg.Failure, match="deploy_mode='client'"):
        asset.load("1", "1")
    assert spark.calls() == []


def test_a_terminated_run_takes_its_applications_job_back(asset: Asset) -> None:
    opened: list[str] = []

    @dg.asset(partitions_def=DAYS, metadata=KEYS)
    def flights(context: dg.AssetExecutionContext) -> None:
        load = asset.zero.spark_load(context)
        schema = pa.schema([("day", pa.int32()), ("flight", pa.string())])
        spec = JobSpec(schema, partition_by=("day",), owner=load.step.owner)
        with load.submitted():
            assert isinstance(load.table, Table)
            opened.append(load.table.open_job(spec).job)
            raise DagsterExecutionInterruptedError

    with pytest.raises(DagsterExecutionInterruptedError):
        dg.materialize([flights], partition_key="1")
    assert asset.zero.table("flights").job_state(opened[0]) is JobState.ABORTED


@pytest.mark.parametrize("by", ["an application", "the resource"])
def test_job_that_a_former_attempt_left_open_is_closed_once_the_step_has_committed(
    zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Its driver was killed. In a Delta table no heartbeat tells so, and other runs waited."""
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.0)
    schema = pa.schema([("day", pa.int32()), ("flight", pa.string())])

    @dg.asset(partitions_def=DAYS, metadata={**KEYS, "layout": "delta"})
    def flights(context: dg.AssetExecutionContext) -> Any:
        load = zero.spark_load(context)
        assert isinstance(load.table, DeltaTable)
        run = {"owner": load.step.owner, "idempotency_key": load.step.idempotency_key}
        job = load.table.job(schema, partition_by=("day",), on_repeat="replace_own", **run)
        if context.retry_number == 0:
            job.__enter__()
            raise dg.RetryRequested(max_retries=1)
        rows = pa.table({"day": [1], "flight": ["f1"]}, schema=schema)
        if by == "the resource":
            return zero.write(context, rows)
        with job:
            job.write(rows)
        return load.result()

    assert dg.materialize([flights], partition_key="1", resources={"zero": zero}).success
    assert opened_as_it_is(zero.table("flights")).open_jobs() == []


def test_the_variables_reach_the_store_too(asset: Asset, zero: ZeroRenameResource) -> None:
    found: dict[str, str] = {}

    @dg.asset(partitions_def=DAYS, metadata=KEYS)
    def flights(context: dg.AssetExecutionContext) -> None:
        keyed = ZeroRenameResource(
            table_root=zero.table_root,
            access_key_id="id",
            secret_access_key="secret",
            layout="delta",
            data_root="s3://fast/lake?profile=nvme",
            encryption="SSE-KMS alias/lake",
        )
        found.update(keyed.spark_env(context, table="other"))

    dg.materialize([flights], partition_key="1")
    assert found["AWS_SECRET_ACCESS_KEY"] == "secret"
    assert found["ZERO_RENAME_TABLE"] == f"{zero.table_root}/other"
    assert found["ZERO_RENAME_ENCRYPTION"] == "SSE-KMS alias/lake"
    assert found["ZERO_RENAME_DATA_ROOT"] == "s3://fast/lake?profile=nvme"


@pytest.mark.usefixtures("s3_server")
def test_step_that_waits_for_an_application_without_a_worker_says_so_in_its_log(
    asset: Asset, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    living: list[dict[str, Any]] = [{"zr1-a": (1, 3.0)}, {}]
    monkeypatch.setattr(heartbeat, "_living", lambda *_: living.pop(0))
    monkeypatch.setattr(heartbeat, "sleep", lambda _: None)
    made = asset.definition()
    done = dg.materialize([made], partition_key="1", instance=instance)
    said = [record.user_message for record in instance.all_logs(done.run_id)]
    assert any(
        "The application of attempt 1 lives, without its worker: its job zr1-a" in it for it in said
    )
    assert said.count("No earlier application is at work any more.") == 1
    assert not logging.getLogger("zero_rename").handlers
