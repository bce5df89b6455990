"""The component, loaded as Dagster loads a project's ``defs.yaml``."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

import dagster_zero_rename
from dagster_zero_rename import SparkPipesClient, SparkTableComponent, ZeroRenameResource
from support.dagster_loads import days
from support.fake_spark import WRITES, FakeSpark
from zero_rename.committer import InvalidInputError

FLIGHTS = """
type: dagster_zero_rename.SparkTableComponent
attributes:
  asset:
    key: flights
    group_name: lake
    partitions_def: {type: daily, start_date: "2013-01-01", end_date: "2013-02-01"}
  table: days
  partition_expr: day=%-d
  application: job.py
  application_args: ["--from", "{first_key}", "--to={last_key}"]
  conf: {spark.executor.memory: 1g}
  schedule: "0 3 * * *"
"""


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def loaded(sandbox: DefsFolderSandbox, text: str = FLIGHTS, **changes: Any) -> Any:
    folder = sandbox.defs_folder_path / "flights"
    folder.mkdir()
    (folder / "job.py").touch()
    given = yaml.safe_load(text)
    given["attributes"] |= changes
    (folder / "defs.yaml").write_text(yaml.safe_dump(given))
    return sandbox.load_component_and_build_defs(folder)


def test_it_is_exported_where_dg_looks() -> None:
    assert dagster_zero_rename.SparkTableComponent is SparkTableComponent


def test_a_yaml_file_is_an_asset_that_loads_its_table(
    sandbox: DefsFolderSandbox, spark: FakeSpark, zero: ZeroRenameResource
) -> None:
    spark.runs(WRITES)
    with loaded(sandbox) as (component, defs):
        assert isinstance(component, SparkTableComponent)
        asset = defs.get_assets_def("flights")
        assert asset.group_names_by_key[dg.AssetKey("flights")] == "lake"
        client = SparkPipesClient(zero_rename=zero, master="local[1]")
        done = dg.materialize([asset], partition_key="2013-01-01", resources={"spark": client})
        assert done.success
    assert zero.table("days").partitions() == ["day=1"]
    [call] = spark.calls()
    assert call["argv"][-3:] == ["--from", "2013-01-01", "--to=2013-01-01"]
    assert "spark.executor.memory=1g" in call["argv"]
    assert Path(call["argv"][-4]).name == "job.py"


def test_application_of_a_backfill_is_told_both_ends_of_its_range(
    sandbox: DefsFolderSandbox, spark: FakeSpark, zero: ZeroRenameResource
) -> None:
    spark.runs(WRITES)
    with loaded(sandbox) as (_, defs):
        client = SparkPipesClient(zero_rename=zero, master="local[1]")
        done = dg.materialize(
            [defs.get_assets_def("flights")],
            tags=days("2013-01-01", "2013-01-03"),
            resources={"spark": client},
        )
        assert done.success
    [call] = spark.calls()
    assert call["argv"][-3:] == ["--from", "2013-01-01", "--to=2013-01-03"]


def test_a_backfill_is_one_run(sandbox: DefsFolderSandbox) -> None:
    with loaded(sandbox) as (_, defs):
        policy = defs.get_assets_def("flights").backfill_policy
        assert policy == dg.BackfillPolicy.single_run()


def test_its_table_is_registered_where_it_says(sandbox: DefsFolderSandbox) -> None:
    with loaded(sandbox, catalog="glue://lake") as (_, defs):
        asset = defs.get_assets_def("flights")
        assert asset.metadata_by_key[asset.key]["catalog"] == "glue://lake"


def test_mode_in_the_metadata_of_its_asset_is_the_assets(sandbox: DefsFolderSandbox) -> None:
    """Like the other words there, and like those of a plain asset."""
    asset = {"key": "flights", "metadata": {"mode": "append", "table": "lake"}}
    changes: dict[str, Any] = {"table": None, "partition_expr": None, "application_args": []}
    with loaded(sandbox, asset=asset, schedule=None, **changes) as (_, defs):
        made = defs.get_assets_def("flights")
        metadata = made.metadata_by_key[made.key]
        assert (metadata["mode"], metadata["table"]) == ("append", "lake")


def requested(defs: dg.Definitions, at: str) -> list[Any]:
    repository = defs.get_repository_def()
    schedule = repository.get_schedule_def("flights_schedule")
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime.fromisoformat(at), repository_def=repository
    )
    found = schedule.evaluate_tick(context).run_requests
    return [(request.run_key, request.partition_key) for request in found or ()]


def test_its_schedule_loads_each_day_once_when_it_has_ended(
    sandbox: DefsFolderSandbox, zero: ZeroRenameResource
) -> None:
    with loaded(sandbox) as (_, defs):
        client = SparkPipesClient(zero_rename=zero)
        merged = dg.Definitions.merge(defs, dg.Definitions(resources={"spark": client}))
        assert requested(merged, "2013-01-05T03:00:00+00:00") == [("2013-01-04", "2013-01-04")]
        assert requested(merged, "2013-01-01T03:00:00+00:00") == []


def metadata(**said: str) -> dict[str, Any]:
    """Attributes of an asset by days with metadata."""
    days = {"type": "daily", "start_date": "2013-01-01", "end_date": "2013-02-01"}
    return {"asset": {"key": "flights", "partitions_def": days, "metadata": said}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "upsert"}, "mode='upsert'"),
        ({"catalog": "hive://lake"}, "no catalog of AWS Glue"),
        ({"partition_expr": None, **metadata(partition_expr="month=%m")}, "are both month=01"),
        (metadata(mode="upsert"), "mode='upsert'"),
        ({"asset": {"key": "a"}, "schedule": None}, "partition_expr='day=%-d', and no partitions"),
        (
            {"asset": {"key": "a", "partitions_def": {"type": "static", "partition_keys": ["x"]}}},
            "not by time",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_when_it_is_loaded(
    sandbox: DefsFolderSandbox, changes: dict[str, Any], message: str
) -> None:
    with (
        pytest.raises(Exception, match="Error while building") as caught,
        loaded(sandbox, **changes),
    ):
        pass
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, InvalidInputError):
        error = error.__cause__
    assert message in str(error)


def test_keys_of_an_asset_without_partitions(
    sandbox: DefsFolderSandbox, spark: FakeSpark, zero: ZeroRenameResource
) -> None:
    changes = {"asset": {"key": "flights"}, "partition_expr": None, "schedule": None}
    with loaded(sandbox, **changes) as (_, defs):
        client = SparkPipesClient(zero_rename=zero, master="local[1]")
        with pytest.raises(dg.Failure, match="has no partitions"):
            dg.materialize([defs.get_assets_def("flights")], resources={"spark": client})
    assert spark.calls() == []


def test_another_resource_under_its_key(sandbox: DefsFolderSandbox, spark: FakeSpark) -> None:
    with (
        loaded(sandbox) as (_, defs),
        pytest.raises(dg.Failure, match="SparkPipesClient under that key"),
    ):
        dg.materialize(
            [defs.get_assets_def("flights")],
            partition_key="2013-01-01",
            resources={"spark": "local"},
        )
