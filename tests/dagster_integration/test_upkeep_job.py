"""Maintenance as a job."""

import datetime as dt
from typing import Any

import boto3
import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.storage.dagster_run import DagsterRun, DagsterRunStatus
from dagster._core.storage.tags import MAX_RETRIES_TAG, ROOT_RUN_ID_TAG
from dagster._core.utils import make_new_run_id as new_run_id

from dagster_zero_rename import (
    ZeroRenameResource,
    checkpoint_job,
    freshness_check,
    maintenance_job,
    resolve_conflicts_sensor,
)
from support.s3a_jobs import JOB, MagicJob, a_try
from zero_rename.committer import Owner
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.store.fast_root import FastPlace
from zero_rename.s3a.runs import ledger
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import delta_at

pytestmark = pytest.mark.memory_s3

SCHEMA = pa.schema([("number", pa.int64())])


def abandoned(zero: ZeroRenameResource, name: str) -> str:
    """A table with a job that its process has left undecided."""
    table = zero.table(name)
    with table.job(SCHEMA, partition_by=[]) as job:
        job.write(pa.table({"number": [1]}, SCHEMA))
    left = table.job(SCHEMA).__enter__()
    left._release()
    assert left.job is not None
    return left.job


def report(result: Any) -> str:
    [made] = [event for event in result.all_node_events if event.is_successful_output]
    return made.event_specific_data.metadata["report"].value


@pytest.mark.parametrize(("apply", "left"), [(False, 1), (True, 0)])
def test_all_tables_below_the_root_are_looked_after(
    zero: ZeroRenameResource, apply: bool, left: int
) -> None:
    names = ("a", "b/c", "source=crm/customers")
    for name in names:
        abandoned(zero, name)
    job = maintenance_job(apply=apply, patience=dt.timedelta(0))
    result = job.execute_in_process(resources={"zero_rename": zero})
    page = report(result)
    assert page.startswith("# Maintenance" if apply else "# Maintenance, reported only")
    assert all(f"| `{zero.table_root}/{name}` | table | 1 " in page for name in names)
    assert [len(zero.table(name).open_jobs()) for name in names] == [left] * len(names)


def test_a_delta_table_below_the_root_is_looked_after(zero: ZeroRenameResource) -> None:
    delta = DeltaTable(f"{zero.table_root}/lake", zero.client())
    with delta.job(SCHEMA, partition_by=[]) as job:
        job.write(pa.table({"number": [1]}, SCHEMA))
    delta.job(SCHEMA).__enter__()
    job = maintenance_job(apply=True, patience=dt.timedelta(0))
    page = report(job.execute_in_process(resources={"zero_rename": zero}))
    assert f"| `{zero.table_root}/lake` | delta | 1 aborted | none | none | none |" in page
    assert delta.scan().count() == 1


def test_job_of_hadoops_committers_is_left_while_its_run_is_at_work_or_executed_again(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    table = zero.table("magic")
    first = new_run_id()
    owner = Owner(dag_id="job", run_id=first, task_id="magic", application="dagster")
    record = table.run(ledger.open_try(table.root, a_try(owner=owner, idempotency_key=JOB)))
    MagicJob(table.driver.perform, table.root).begin().task(1)
    table.run(ledger.note_failed(table.root, record))
    job = maintenance_job(apply=True, s3a_patience=dt.timedelta(0))

    def found() -> str:
        given: dict[str, Any] = {"resources": {"zero_rename": zero}, "instance": instance}
        return report(job.execute_in_process(**given))

    for run_id, tags in ((first, {}), (new_run_id(), {ROOT_RUN_ID_TAG: first})):
        status = DagsterRunStatus.STARTED
        run = DagsterRun("job", run_id, status=status, tags=tags, root_run_id=None)
        instance.add_run(run)
        assert f"| `{table.root.url}` | s3a | 1 left |" in found()
        instance.report_run_failed(run)
    assert f"| `{table.root.url}` | s3a | 1 rolled-back" in found()


def test_destinations_of_hadoops_committers_are_looked_after_too(zero: ZeroRenameResource) -> None:
    table = zero.table("magic")
    MagicJob(table.driver.perform, table.root).begin().task(1)
    abandoned(zero, "ours")
    given: dict[str, Any] = {"apply": True, "patience": dt.timedelta(0)}
    job = maintenance_job(s3a_patience=dt.timedelta(0), **given)
    page = report(job.execute_in_process(resources={"zero_rename": zero}))
    assert f"| `{zero.table_root}/magic` | s3a | 1 rolled-back | 2 aborted |" in page
    assert f"| `{zero.table_root}/ours` | table | 1 aborted |" in page
    named = maintenance_job(tables=["magic", "later"], **given)
    page = report(named.execute_in_process(resources={"zero_rename": zero}))
    assert "There is no table" in page


def test_uploads_of_other_tools_below_a_plain_directory_are_aborted(
    zero: ZeroRenameResource, s3_bucket: Any
) -> None:
    """Nothing is there that says whose directory it is."""
    key = f"{zero.table('plain').root.prefix}/day=1/part.parquet"
    s3_bucket.client.create_multipart_upload(Bucket=s3_bucket.name, Key=key)
    for apply, left in ((False, 1), (True, 0)):
        given: dict[str, Any] = {"tables": ["plain"], "foreign_older_than": dt.timedelta(0)}
        job = maintenance_job(apply=apply, **given)
        assert job.execute_in_process(resources={"zero_rename": zero}).success
        listed = s3_bucket.client.list_multipart_uploads(Bucket=s3_bucket.name)
        assert len(listed.get("Uploads", [])) == left


def test_what_would_take_long_to_be_made_again_is_told(bucket: str) -> None:
    zero = ZeroRenameResource(table_root=f"s3://{bucket}/tables", max_recompute=3600)
    more: Any = {"data_root": f"s3://{bucket}/scratch", "inputs": ()}
    with delta_at(zero.table("a")).job(SCHEMA, partition_by=[], **more) as job:
        job.write(pa.table({"number": [1]}, SCHEMA))
    result = maintenance_job().execute_in_process(resources={"zero_rename": zero})
    assert "at risk: 1 partition not durable yet cannot be made again" in report(result)


def loaded(zero: ZeroRenameResource, name: str, bucket: str, query: str = "") -> None:
    """Two days of a table, in a fast root of the same store."""
    schema = SCHEMA.append(pa.field("day", pa.int32()))
    root = f"s3://{bucket}/scratch{query}"
    with delta_at(zero.table(name)).job(schema, partition_by=["day"], data_root=root) as job:
        job.write(pa.table({"number": [1, 2], "day": [1, 2]}, schema))


def test_a_checkpoint_copies_the_tables_below_the_root(
    zero: ZeroRenameResource, bucket: str
) -> None:
    loaded(zero, "a", bucket)
    loaded(zero, "b/c", bucket)
    loaded(zero, "scratch", bucket, "?temporary=true")
    abandoned(zero, "listed")
    names, resources = ("a", "b/c"), {"zero_rename": zero}
    page = report(checkpoint_job().execute_in_process(resources=resources))
    assert page.count("| would copy | 1 |") == 4
    assert [len(delta_at(zero.table(name)).not_durable()) for name in names] == [2, 2]
    page = report(checkpoint_job(apply=True).execute_in_process(resources=resources))
    assert page.count("| copied | 1 |") == 4
    assert f"| `{zero.table_root}/b/c` | `day=2` | copied" in page
    assert [delta_at(zero.table(name)).not_durable() for name in names] == [[], []]
    assert len(delta_at(zero.table("scratch")).not_durable()) == 2
    assert "Nothing lies only" in report(
        checkpoint_job(tables=["a"], apply=True).execute_in_process(resources=resources)
    )


def test_a_checkpoint_fails_for_what_is_lost_and_copies_the_rest(
    zero: ZeroRenameResource, bucket: str, s3_bucket: Any
) -> None:
    for name in ("a", "b"):
        loaded(zero, name, bucket)
    loaded(zero, "t", bucket, "?temporary=true")
    [file] = delta_at(zero.table("a")).state(["day=1"]).files
    place = FastPlace.of(bucket, file.key)
    assert place is not None
    s3_bucket.client.delete_object(Bucket=bucket, Key=place.real(file.key))
    job = checkpoint_job(tables=["t", "a", "b"], apply=True)
    result = job.execute_in_process(resources={"zero_rename": zero}, raise_on_error=False)
    [failed] = [event for event in result.all_node_events if event.is_step_failure]
    failure: Any = failed.step_failure_data.user_failure_data
    assert result.dagster_run.tags[MAX_RETRIES_TAG] == "0"
    page = failure.metadata["report"].value
    assert "the table's data root is temporary" in page.lower()
    assert (
        "day=1 are missing in the fast root. To make them again: "
        f"zero-rename lineage plan {zero.table_root}/a" in page
    )
    tables = {name: delta_at(zero.table(name)) for name in ("a", "b")}
    left = {name: [it.partition for it in table.not_durable()] for name, table in tables.items()}
    assert left == {"a": ["day=1"], "b": []}


@pytest.mark.parametrize("name", ["foreign_older_than", "patience", "s3a_patience"])
def test_duration_below_zero_is_refused(name: str) -> None:
    given: dict[str, Any] = {name: dt.timedelta(days=-3)}
    with pytest.raises(InvalidInputError, match=f"{name}=.*not a duration"):
        maintenance_job(**given)


def test_durations_of_sensors_and_checks_below_zero_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"timeout=.*not a duration"):
        resolve_conflicts_sensor("a", policy="newest_run", timeout=dt.timedelta(hours=-1))
    with pytest.raises(InvalidInputError, match=r"within=.*not a duration"):
        freshness_check("a", within=dt.timedelta(hours=-1))


def test_a_checkpoint_in_no_known_order() -> None:
    with pytest.raises(InvalidInputError, match="order"):
        checkpoint_job(order="oldest")


def test_a_run_fails_where_a_person_is_needed(zero: ZeroRenameResource, s3_bucket: Any) -> None:
    abandoned(zero, "a")
    [file] = zero.table("a").files()
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=file.key)
    job = maintenance_job(tables=["a"])
    result = job.execute_in_process(resources={"zero_rename": zero}, raise_on_error=False)
    [failed] = [event for event in result.all_node_events if event.is_step_failure]
    failure: Any = failed.step_failure_data.user_failure_data
    assert failure.description.startswith("Action is needed. ")
    assert file.key in failure.metadata["report"].value
    # Neither does the daemon retry the run.
    assert result.dagster_run.tags[MAX_RETRIES_TAG] == "0"


def test_table_that_cannot_be_looked_at_does_not_keep_others_from_maintenance(
    zero: ZeroRenameResource,
) -> None:
    abandoned(zero, "ours")
    names = ["s3://nobody-has-this-bucket/wh/flights", "ours"]
    job = maintenance_job(tables=names, apply=True, patience=dt.timedelta(0))
    result = job.execute_in_process(resources={"zero_rename": zero}, raise_on_error=False)
    assert not result.success
    assert zero.table("ours").open_jobs() == []
    [failure] = [it.step_failure_data for it in result.all_node_events if it.is_step_failure]
    assert failure.user_failure_data is not None
    said = failure.user_failure_data.description
    assert said is not None
    assert said.startswith("Action is needed. s3://nobody-has-this-bucket/wh/flights: ")


def test_slip_in_a_name_is_a_note(zero: ZeroRenameResource) -> None:
    abandoned(zero, "ours")
    job = maintenance_job(tables=["ours", "our"])
    page = report(job.execute_in_process(resources={"zero_rename": zero}))
    assert f"* `{zero.table_root}/our`: There is no table" in page
    assert f"* `{zero.table_root}/ours`: There is no table" not in page


@pytest.mark.usefixtures("s3_server")
def test_tables_are_registered(zero: ZeroRenameResource, bucket: str) -> None:
    for name in ("a", "b/c"):
        abandoned(zero, name)
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": bucket})
    told = ZeroRenameResource(table_root=zero.table_root, catalog=f"glue://{bucket}")
    job = maintenance_job(apply=True, patience=dt.timedelta(0))
    page = report(job.execute_in_process(resources={"zero_rename": told}))
    assert f"registered as glue://{bucket}/a, created" in page
    tables = glue.get_tables(DatabaseName=bucket)["TableList"]
    assert sorted(table["Name"] for table in tables) == ["a", "c"]
    for_one = maintenance_job(apply=True, catalog=f"glue://{bucket}/a")
    with pytest.raises(dg.Failure, match="is one table's, and 2 tables would"):
        for_one.execute_in_process(resources={"zero_rename": told})


def test_a_schedule_brings_the_job_along() -> None:
    schedule = dg.ScheduleDefinition(job=maintenance_job(), cron_schedule="0 4 * * *")
    defs = dg.Definitions(schedules=[schedule], resources={"zero_rename": ZeroRenameResource()})
    assert defs.resolve_job_def("zero_rename_maintenance")
