"""Values between ops beside tables, under the I/O manager's usual name."""

from pathlib import Path
from typing import Any, Optional

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dagster_zero_rename import ZeroRenameIOManager, ZeroRenameResource
from support.dagster_loads import DAYS

pytestmark = pytest.mark.memory_s3


@dg.op
def number_of(context: dg.OpExecutionContext) -> dict[str, Any]:
    return {"day": context.partition_key, "number": int(context.partition_key[-2:])}


@dg.op
def as_frame(found: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([found])


@dg.graph_asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def flights() -> pd.DataFrame:
    return as_frame(number_of())


@dg.op
def doubled(flights: pd.DataFrame | None) -> pa.Table:
    assert flights is not None
    return pa.table({"day": flights["day"].tolist(), "twice": (flights["number"] * 2).tolist()})


@dg.op
def unchanged(rows: Optional[pa.Table]) -> Optional[pa.Table]:  # noqa: UP045
    return rows


@dg.graph_asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def twice(flights: Any) -> Any:
    return unchanged(doubled(flights))


@dg.op(out=dg.DynamicOut())
def parts() -> Any:
    for number in range(3):
        yield dg.DynamicOutput({"number": number}, mapping_key=str(number))


@dg.op
def increased(part: dict[str, int]) -> int:
    return part["number"] + 1


@dg.op
def total(parts: list[int]) -> int:
    return sum(parts)


def manager(zero: ZeroRenameResource) -> dict[str, ZeroRenameIOManager]:
    return {"io_manager": ZeroRenameIOManager(table_root=zero.table_root)}


def test_ops_of_a_graph_asset_hand_values_on_and_its_result_is_written(
    zero: ZeroRenameResource,
) -> None:
    for day in ("2013-01-02", "2013-01-03"):
        dg.materialize([flights, twice], resources=manager(zero), partition_key=day)
    assert zero.table("flights").to_arrow()["number"].to_pylist() == [2, 3]
    assert zero.table("twice").to_arrow()["twice"].to_pylist() == [4, 6]
    assert {table.root.url.rpartition("/")[2] for table in zero.tables()} == {"flights", "twice"}


def test_ops_of_a_job_hand_values_on_and_no_table_is_made(zero: ZeroRenameResource) -> None:
    @dg.job(resource_defs=manager(zero))
    def counting() -> None:
        total(parts().map(increased).collect())

    result = counting.execute_in_process()
    assert result.output_for_node("total") == 6
    assert zero.tables() == []


def test_values_between_ops_are_kept_for_a_step_that_is_retried(zero: ZeroRenameResource) -> None:
    ran: list[str] = []

    @dg.op
    def before() -> dict[str, int]:
        ran.append("before")
        return {"number": 7}

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
    def after(found: dict[str, int]) -> pd.DataFrame:
        ran.append("after")
        if ran.count("after") == 1:
            raise ValueError("the first try")
        return pd.DataFrame([found])

    @dg.graph_asset
    def numbers() -> pd.DataFrame:
        return after(before())

    dg.materialize([numbers], resources=manager(zero))
    assert ran == ["before", "after", "after"]
    assert zero.table("numbers").to_arrow().to_pydict() == {"number": [7]}


def test_an_op_of_a_job_takes_an_asset_as_it_is_annotated(zero: ZeroRenameResource) -> None:
    took: list[Any] = []

    @dg.op
    def shown(flights: pl.DataFrame | None) -> None:
        took.append(flights)

    @dg.job(resource_defs=manager(zero), partitions_def=DAYS)
    def showing() -> None:
        shown(flights.to_source_asset())

    for day in ("2013-01-02", "2013-01-03"):
        dg.materialize([flights], resources=manager(zero), partition_key=day)
    # Dagster maps the asset's partitions to those of assets; an op takes all of them.
    showing.execute_in_process(partition_key="2013-01-03")
    assert took[0]["number"].to_list() == [2, 3]


def test_dagster_s_own_setting_of_the_default_manager_is_heeded(
    zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_DEFAULT_IO_MANAGER_MODULE", "dagster")
    monkeypatch.setenv("DAGSTER_DEFAULT_IO_MANAGER_ATTRIBUTE", "mem_io_manager")
    with dg.DagsterInstance.ephemeral() as instance:
        resources = manager(zero)
        dg.materialize(
            [flights], resources=resources, instance=instance, partition_key="2013-01-02"
        )
        kept = Path(instance.storage_directory()).rglob("*")
        assert [path for path in kept if path.is_file() and "number_of" in str(path)] == []


@pytest.mark.parametrize("kind", [Optional[pd.DataFrame], pd.DataFrame | None])  # noqa: UP045
def test_an_asset_that_returns_none_is_refused(zero: ZeroRenameResource, kind: Any) -> None:
    def nothing():
        return None

    nothing.__annotations__["return"] = kind
    with pytest.raises(dg.Failure, match="rows are None") as refused:
        dg.materialize([dg.asset(nothing)], resources=manager(zero))
    assert "return a frame without rows" in str(refused.value)
    assert zero.tables() == []


def test_an_input_of_an_op_that_is_no_asset_and_of_no_op_is_refused(
    zero: ZeroRenameResource,
) -> None:
    @dg.op(ins={"rows": dg.In(input_manager_key="io_manager")})
    def shown(rows: pa.Table) -> None:
        raise AssertionError("the input is not read")

    @dg.job(resource_defs=manager(zero))
    def showing() -> None:
        shown()

    with pytest.raises(dg.Failure, match="'rows' of 'shown' is no asset and comes from no op"):
        showing.execute_in_process()
