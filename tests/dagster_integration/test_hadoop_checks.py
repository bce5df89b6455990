"""Check of what Hadoop's committers wrote, by the ledger's reports and ``_SUCCESS``."""

import datetime as dt
import json
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_zero_rename import (
    ZeroRenameResource,
    freshness_check,
    heads_sensor,
    manifest_check,
    recompute_sensor,
)
from zero_rename.committer import InvalidInputError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid

pytestmark = pytest.mark.memory_s3

DAYS = dg.StaticPartitionsDefinition(["1", "2"])
WRITE, JOB = "11111111-2222-4333-8444-555555555555", "6f1d2c3b-4a59-4e8f-9b7a-0c1d2e3f0000"


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def flights() -> dg.MaterializeResult:
    """What an application wrote, whose job is told."""
    return dg.MaterializeResult(metadata={"zero_rename/job": JOB})


@dg.asset(key="flights")
def whole() -> None:
    """The same table, as an output of which Dagster tells no partitions apart."""


@pytest.fixture
def keys(zero: ZeroRenameResource, s3_bucket: Any) -> list[str]:
    """Two files of two rows in each of two days, and their job's ``_SUCCESS``."""
    prefix = zero.table("flights").root.prefix
    made = [
        f"{prefix}/day={day}/part-{part:05}-{WRITE}.parquet" for day in (1, 2) for part in (0, 1)
    ]
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"number": [1, 2]}), body)
    for key in made:
        s3_bucket.put(key, body.getvalue().to_pybytes())
    put_marker(s3_bucket, prefix, made)
    return made


def put_marker(bucket: Any, prefix: str, keys: list[str], job: str = JOB) -> None:
    said = {
        "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
        "success": True,
        "timestamp": 1_359_700_000_000,
        "committer": "magic",
        "jobId": job,
        "filenames": [f"/{key}" for key in keys],
        "iostatistics": {"counters": {"committer_commits_completed": len(keys)}},
    }
    bucket.put(f"{prefix}/_SUCCESS", json.dumps(said).encode())


def checked(zero: ZeroRenameResource, asset: Any = flights, day: str | None = "1", **asked: Any):
    given: dict[str, Any] = {"committer": "magic", **asked}
    check = manifest_check(asset, **given)
    result = dg.materialize(
        [asset, check], resources={"zero_rename": zero}, partition_key=day, raise_on_error=False
    )
    (found,) = result.get_asset_check_evaluations()
    return found


def said_of(check: dg.AssetCheckEvaluation) -> str:
    """What a check says."""
    assert check.description is not None
    return check.description


def test_partition_that_its_job_wrote_passes(zero: ZeroRenameResource, keys: list[str]) -> None:
    found = checked(zero, min_files=2, min_rows=4)
    assert found.passed
    report: Any = found.metadata["report"]
    (record,) = report.records
    assert (record.data["job"], record.data["files"], record.data["rows"]) == (JOB, 2, 4)


def test_committer_is_the_resources_where_none_is_named(
    zero: ZeroRenameResource, keys: list[str]
) -> None:
    of_magic = ZeroRenameResource(table_root=zero.table_root, committer="magic")
    assert checked(of_magic, committer=None).passed
    wrong = checked(zero, committer="partitioned")
    assert not wrong.passed
    assert "magic" in said_of(wrong)


@pytest.mark.parametrize(
    ("asked", "said"), [({"min_files": 3}, "day=1: 2 files"), ({"min_rows": 5}, "day=1: 4 rows")]
)
def test_partition_with_too_little_fails(
    zero: ZeroRenameResource, keys: list[str], asked: dict[str, Any], said: str
) -> None:
    found = checked(zero, **asked)
    assert not found.passed
    assert said_of(found).startswith(said)


def test_lost_file_fails(zero: ZeroRenameResource, keys: list[str], s3_bucket: Any) -> None:
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=keys[0])
    found = checked(zero)
    assert not found.passed
    assert "not there" in said_of(found)
    assert checked(zero, day="2").passed


def test_rows_of_another_job_than_was_materialised_fail(
    zero: ZeroRenameResource, keys: list[str], s3_bucket: Any
) -> None:
    other = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeee0000"
    put_marker(s3_bucket, zero.table("flights").root.prefix, keys, other)
    found = checked(zero)
    assert not found.passed
    assert f"it holds the rows of job {other}, and job {JOB} was materialised" in said_of(found)


def test_plain_marker_counts_only_where_no_manifest_is_required(
    zero: ZeroRenameResource, keys: list[str], s3_bucket: Any
) -> None:
    prefix = zero.table("flights").root.prefix
    s3_bucket.put(f"{prefix}/_SUCCESS", b"")
    s3_bucket.put(f"{prefix}/day=1/_SUCCESS", b"")
    assert "Spark's plain commit" in said_of(checked(zero))
    assert checked(zero, committer=None, require_manifest=False).passed


def test_partitions_of_a_whole_output_are_counted(
    zero: ZeroRenameResource, keys: list[str]
) -> None:
    assert checked(zero, whole, None, min_partitions=2).passed
    found = checked(zero, whole, None, min_partitions=3)
    assert not found.passed
    assert said_of(found).startswith("2 of 3 partitions are below /")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"committer": "magick"}, "magick"),
        ({"committer": "magic", "require_manifest": False}, "which committer wrote it"),
        ({"min_partitions": 1}, "has partitions of its own"),
    ],
)
def test_what_cannot_be_checked_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        manifest_check(flights, **asked)


def freshness(zero: ZeroRenameResource, within: dt.timedelta) -> dg.AssetCheckEvaluation:
    check = freshness_check(flights, within=within)
    result = dg.materialize(
        [flights, check], resources={"zero_rename": zero}, selection=dg.AssetSelection.checks(check)
    )
    (found,) = result.get_asset_check_evaluations()
    return found


def test_freshness_goes_by_the_marker(zero: ZeroRenameResource, keys: list[str]) -> None:
    written = dt.datetime.fromtimestamp(1_359_700_000, dt.UTC)
    age = dt.datetime.now(dt.UTC) - written
    hour = dt.timedelta(hours=1)
    assert not freshness(zero, age - hour).passed
    found = freshness(zero, age + hour)
    assert found.passed
    assert found.metadata["zero_rename/job"].value == JOB


def test_freshness_goes_by_the_ledger_whatever_lies_in_the_root(
    zero: ZeroRenameResource, keys: list[str]
) -> None:
    table = zero.table("flights")
    tried = TryRecord(run_uuid(), "a run", Owner(), "magic", "replace", ("day=2",))
    opened = table.run(ledger.open_try(table.root, tried))
    entry = {"partition": "day=2", "files": 2, "rows": 4}
    report = {
        "job": tried.uuid,
        "committer": "magic",
        "decided_at": opened.opened_at,
        "partitions": [entry],
    }
    table.run(ledger.close_try(table.root, opened, state=COMMITTED, report=report))
    found = freshness(zero, dt.timedelta(hours=1))
    assert found.passed
    assert found.metadata["zero_rename/job"].value == tried.uuid


def test_sensor_that_goes_by_heads_is_refused_where_none_can_come(
    zero: ZeroRenameResource, keys: list[str]
) -> None:
    with (
        dg.build_sensor_context(resources={"zero_rename": zero}) as context,
        pytest.raises(InvalidInputError, match="leave no heads by which this sensor"),
    ):
        heads_sensor(flights).evaluate_tick(context)


def test_recompute_names_a_target_of_which_nothing_is_known(
    zero: ZeroRenameResource, keys: list[str], instance: dg.DagsterInstance
) -> None:
    defs = dg.Definitions(assets=[flights], resources={"zero_rename": zero})
    with (
        dg.build_sensor_context(
            instance, repository_def=defs.get_repository_def(), resources={"zero_rename": zero}
        ) as context,
        pytest.raises(dg.Failure, match="Hadoop's committers load it, and record no inputs"),
    ):
        recompute_sensor(flights).evaluate_tick(context)
