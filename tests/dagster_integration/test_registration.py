"""Tables that a catalog is told of once a load is committed; moto is its Glue."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_zero_rename import (
    SparkPipesClient,
    ZeroRenameIOManager,
    ZeroRenameResource,
    zero_rename_asset,
)
from support.dagster_loads import DAYS, load_a_day, rows, told
from support.fake_spark import FakeSpark
from zero_rename.committer import InvalidInputError

pytestmark = pytest.mark.memory_s3

DAY = "2013-01-01"
#: An asset's metadata, and its partitions.
FLIGHTS: dict[str, Any] = {"name": "flights", "partitions_def": DAYS, "partition_expr": "day"}


@pytest.fixture
def glue(glue_client: Any, bucket: str) -> Any:
    """A client of Glue, with a database named as the bucket."""
    glue_client.create_database(DatabaseInput={"Name": bucket})
    return glue_client


def partitions(glue: Any, database: str, table: str) -> list[list[str]]:
    found = glue.get_partitions(DatabaseName=database, TableName=table)["Partitions"]
    return [it["Values"] for it in found]


def materialised(asset: Any, zero: ZeroRenameResource) -> dict[str, Any]:
    """The metadata of a load of one day."""
    return told(dg.materialize([asset], resources={"zero": zero}, partition_key=DAY))[DAY]


def test_a_load_is_told_to_the_resources_catalog(
    glue: Any, bucket: str, zero: ZeroRenameResource
) -> None:
    resource = ZeroRenameResource(table_root=zero.table_root, catalog=f"glue://{bucket}")
    asset = zero_rename_asset(**FLIGHTS)(load_a_day)
    metadata = materialised(asset, resource)
    assert partitions(glue, bucket, "flights") == [[DAY]]
    assert metadata["zero_rename/catalog"] == f"glue://{bucket}/flights"
    assert metadata["zero_rename/catalog_told"].startswith("table created; partitions 1 added")


def test_an_asset_names_another_catalog_or_none(
    glue: Any, bucket: str, zero: ZeroRenameResource
) -> None:
    resource = ZeroRenameResource(table_root=zero.table_root, catalog=f"glue://{bucket}")
    none = zero_rename_asset(catalog="", **FLIGHTS)(load_a_day)
    assert "zero_rename/catalog" not in materialised(none, resource)
    other = zero_rename_asset(catalog=f"glue://{bucket}/departures", **FLIGHTS)(load_a_day)
    materialised(other, resource)
    [table] = glue.get_tables(DatabaseName=bucket)["TableList"]
    assert table["Name"] == "departures"


def test_a_catalog_that_cannot_be_told_is_a_warning(
    bucket: str, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    resource = ZeroRenameResource(table_root=zero.table_root, catalog="glue://nowhere")
    asset = zero_rename_asset(**FLIGHTS)(load_a_day)
    given = {"instance": instance, "resources": {"zero": resource}}
    done = dg.materialize([asset], partition_key=DAY, **given)
    said = "\n".join(record.user_message for record in instance.all_logs(done.run_id))
    assert "glue://nowhere was not told of it" in said
    assert zero.table("flights").to_arrow().num_rows == 1


def test_what_is_returned_is_told_too(glue: Any, bucket: str, zero: ZeroRenameResource) -> None:
    @zero_rename_asset(partitions_def=DAYS, partition_expr="day", catalog=f"glue://{bucket}")
    def flights(context: dg.AssetExecutionContext) -> pa.Table:
        return rows(context.partition_keys, {DAY: [1]})

    manager = ZeroRenameIOManager(zero_rename=zero)
    dg.materialize([flights], resources={"io_manager": manager}, partition_key=DAY)
    assert partitions(glue, bucket, "flights") == [[DAY]]


@pytest.mark.usefixtures("s3_server")
def test_an_applications_load_is_told_too(
    glue: Any, bucket: str, zero: ZeroRenameResource, spark: FakeSpark, tmp_path: Path
) -> None:
    application = tmp_path / "job.py"
    application.touch()
    client = SparkPipesClient(zero_rename=zero, master="local[1]")

    @zero_rename_asset(
        partitions_def=dg.StaticPartitionsDefinition(["1"]),
        partition_expr="day",
        catalog=f"glue://{bucket}",
    )
    def flights(context: dg.AssetExecutionContext):
        return client.run(context, application=str(application), env={"TEST_DAYS": "1"})

    dg.materialize([flights], partition_key="1")
    assert partitions(glue, bucket, "flights") == [["1"]]


def test_what_is_no_catalog_is_refused_before_anything(zero: ZeroRenameResource) -> None:
    with pytest.raises(InvalidInputError, match="no catalog of AWS Glue"):
        zero_rename_asset(catalog="hive://db")(load_a_day)
    asset = zero_rename_asset(**FLIGHTS)(load_a_day)
    asset = asset.with_attributes(metadata_by_key={asset.key: {"catalog": "hive://db"}})
    with pytest.raises(dg.Failure, match="no catalog of AWS Glue"):
        dg.materialize([asset], resources={"zero": zero}, partition_key=DAY)
    assert not zero.table("flights").exists()
