"""Folders that others have made, whose values look like numbers and are written otherwise: 01."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster._core.definitions.observe import observe

from dagster_zero_rename import (
    SparkPipesClient,
    ZeroRenameIOManager,
    ZeroRenameResource,
    manifest_check,
    observable_table,
)
from support import s3a_stand_in
from support.dagster_loads import told as metadata
from support.fake_spark import WRITES, FakeSpark
from support.waiting import until
from zero_rename.committer.format.records.inputs import content_of

pytestmark = pytest.mark.memory_s3

STORES = dg.StaticPartitionsDefinition(["01", "02"])
OF_STORES: dict[str, Any] = {"partitions_def": STORES, "metadata": {"partition_expr": "day"}}
of_stores: Any = dg.asset(**OF_STORES)
COLUMNS = pa.schema([("day", pa.string()), ("number", pa.int64())])


@pytest.fixture
def put(zero: ZeroRenameResource, s3_bucket: Any) -> Callable[..., None]:
    """Puts a file of a row into a folder of the table."""

    def made(folder: str, number: int) -> None:
        body = pa.BufferOutputStream()
        pq.write_table(pa.table({"number": [number]}), body)
        key = f"{zero.table('flights').root.prefix}/{folder}/part-0.parquet"
        s3_bucket.put(key, body.getvalue().to_pybytes())

    return made


@pytest.mark.parametrize("folder", ["day=01", "day=1"])
def test_input_holds_the_rows_of_its_folder(
    zero: ZeroRenameResource, put: Callable[..., None], folder: str
) -> None:
    put(folder, 1)
    put("day=2", 2)
    took: list[Any] = []

    @dg.asset(partitions_def=STORES)
    def report(flights: pa.Table) -> None:
        took.extend(flights["number"].to_pylist())

    resources = {"io_manager": ZeroRenameIOManager(zero_rename=zero)}
    made = [dg.AssetSpec("flights", **OF_STORES), report]
    dg.materialize(made, selection=[report], resources=resources, partition_key="01")
    assert took == [1]


@pytest.mark.parametrize("folder", ["day=01", "day=1"])
def test_folders_are_observed(
    zero: ZeroRenameResource, put: Callable[..., None], folder: str
) -> None:
    put(folder, 1)
    asset = observable_table("flights", partitions_def=STORES, partition_expr="day")
    result = observe([asset], resources={"zero_rename": zero})
    events = result.asset_observations_for_node(asset.op.name)
    content = content_of(zero.table("flights").files(folder))
    assert {it.partition: it.tags["dagster/data_version"] for it in events} == {"01": content}


def test_first_load_of_a_folder_of_texts_takes_its_place(
    zero: ZeroRenameResource, put: Callable[..., None]
) -> None:
    put("day=01", 1)

    @of_stores
    def flights(context: dg.AssetExecutionContext):
        return zero.write(context, pa.table({"day": ["01"], "number": [2]}, COLUMNS))

    told = metadata(dg.materialize([flights], partition_key="01"))
    assert told["01"]["zero_rename/rows"] == 1
    assert zero.table("flights").to_arrow()["number"].to_pylist() == [2]


@pytest.mark.usefixtures("s3_server")
def test_key_of_a_table_that_its_application_makes_is_what_its_columns_say(
    zero: ZeroRenameResource, spark: FakeSpark, tmp_path: Path
) -> None:
    """Nobody knew before that the column holds numbers."""
    application = tmp_path / "job.py"
    application.touch()
    spark.runs(WRITES)
    client = SparkPipesClient(zero_rename=zero, master="local[1]")

    @of_stores
    def flights(context: dg.AssetExecutionContext):
        return client.run(context, application=str(application), env={"TEST_DAYS": "1"})

    for _ in range(2):
        told = metadata(dg.materialize([flights], partition_key="01"))
        assert told["01"]["zero_rename/rows"] == 1
    assert zero.table("flights").partitions() == ["day=1"]


@pytest.mark.usefixtures("s3_server")
@pytest.mark.parametrize("committer", ["magic", "partitioned"])
def test_hadoops_committers_are_told_the_folder_of_a_key_by_each_load(
    zero: ZeroRenameResource,
    spark: FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    committer: str,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    application = tmp_path / "job.py"
    application.touch()
    spark.runs(s3a_stand_in.APPLICATION)
    tables = ZeroRenameResource(table_root=zero.table_root, committer=committer)
    client = SparkPipesClient(zero_rename=tables, master="local[1]")

    @of_stores
    def flights(context: dg.AssetExecutionContext):
        folder = {"TEST_FOLDER": "day=01"}
        return client.run(context, application=str(application), env=folder)

    check = manifest_check(flights, min_files=1)
    for _ in range(2):
        resources = {"zero_rename": tables}
        result = dg.materialize([flights, check], resources=resources, partition_key="01")
        assert metadata(result)["01"]["zero_rename/files"] == 1
        assert result.get_asset_check_evaluations()[0].passed
        # Of two loads in one second of the store's clock nobody can tell which came later.
        ended = int(time.time())
        until("the store's next second", lambda ended=ended: int(time.time()) > ended)
    said = [call["env"]["ZERO_RENAME_PARTITIONS"] for call in spark.calls()]
    assert said == ['["day=01"]'] * 2
