"""Assets written by the resource: one commit a run, and what its events say."""

import datetime as dt
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dagster_zero_rename import ZeroRenameResource, zero_rename_asset
from support.dagster_loads import DAYS, SCHEMA, Load, days, flights, materialisations, rows, values
from zero_rename.committer.format.records.inputs import content_of
from zero_rename.tables.table_at import delta_at

pytestmark = pytest.mark.memory_s3

DAY = "2013-01-01"
TWO = [{"day": dt.date(2013, 1, 1), "number": n} for n in (1, 2)]


def materialise(asset: Any, zero: ZeroRenameResource, **given: Any) -> list[Any]:
    """Materialise an asset; the metadata of each of its events, and its data version."""
    return materialisations(dg.materialize([asset], resources={"zero": zero}, **given))


def written_by(data: Any, **given: Any) -> Any:
    """An asset whose function hands ``data`` over; a function is called for it."""

    @dg.asset(name="flights", partitions_def=DAYS, metadata={"partition_expr": "day"}, **given)
    def made(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, data() if callable(data) else data)

    return made


def test_a_run_of_several_partitions_is_one_commit(load: Load, zero: ZeroRenameResource) -> None:
    load.numbers = {"2013-01-01": [1, 2], "2013-01-03": [3]}
    events = materialise(flights, zero, tags=days("2013-01-01", "2013-01-03"))
    assert [event.partition for event in events] == ["2013-01-01", "2013-01-02", "2013-01-03"]
    told = [values(event) for event in events]
    assert len({it["zero_rename/job"] for it in told}) == 1
    assert [it["dagster/partition_row_count"] for it in told] == [2, 0, 1]
    assert [it["zero_rename/files"] for it in told] == [1, 0, 1]
    assert [it["zero_rename/version"] for it in told] == [1, 1, 1]
    assert told[2]["dagster/uri"] == f"{zero.table_root}/flights/day=2013-01-03"
    assert {it["zero_rename/repeated"] for it in told} == {False}
    assert told[0]["zero_rename/bytes"] > 0 <= told[0]["zero_rename/seconds"]
    columns = told[0]["dagster/column_schema"].columns
    assert [(it.name, it.type) for it in columns] == [("day", "date32[day]"), ("number", "int64")]
    assert load.calls == 1


def test_a_day_without_rows_is_emptied_and_its_neighbours_are_left(
    load: Load, zero: ZeroRenameResource
) -> None:
    load.numbers = {"2013-01-01": [1], "2013-01-02": [2], "2013-01-03": [3]}
    materialise(flights, zero, tags=days("2013-01-01", "2013-01-03"))
    load.numbers = {}
    [event] = materialise(flights, zero, partition_key="2013-01-02")
    assert values(event)["dagster/partition_row_count"] == 0
    table = zero.table("flights")
    assert sorted(table.to_arrow()["number"].to_pylist()) == [1, 3]
    assert table.partitions() == ["day=2013-01-01", "day=2013-01-03"]


@pytest.mark.parametrize("merge_on", [None, "number"])
def test_files_of_a_new_table_lie_in_the_resources_fast_root(
    zero: ZeroRenameResource, bucket: str, merge_on: str | None
) -> None:
    root, mode = f"s3://{bucket}/scratch", "merge" if merge_on else None
    fast = ZeroRenameResource(table_root=zero.table_root, layout="delta", data_root=root)

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, pd.DataFrame(TWO), mode=mode, merge_on=merge_on)

    materialise(flights, fast, partition_key=DAY)
    table = delta_at(zero.table("flights"))
    assert [(it.partition, it.rows) for it in table.not_durable()] == [(f"day={DAY}", 2)]
    assert str(table.data_root) == root


def test_the_version_of_rows_is_their_content(load: Load, zero: ZeroRenameResource) -> None:
    def version(**given: Any) -> str:
        (told,) = {it.tags["dagster/data_version"] for it in materialise(flights, zero, **given)}
        return told

    two = {"tags": days("2013-01-01", "2013-01-02")}
    load.numbers = {DAY: [1]}
    first = version(partition_key=DAY)
    # An identical load is no reason to run anything again.
    assert version(partition_key=DAY) == first
    assert first == content_of(zero.table("flights").files(f"day={DAY}"))
    # One version for several partitions: it is of both.
    both = version(**two)
    assert version(**two) == both != first
    load.numbers = {DAY: [2]}
    second = version(partition_key=DAY)
    emptied = version(partition_key="2013-01-02")
    load.numbers = {DAY: [2], "2013-01-02": [1]}
    assert len({first, second, emptied, both, version(**two)}) == 5
    assert version(partition_key=DAY) == second


def test_the_version_of_a_whole_table(zero: ZeroRenameResource) -> None:
    rows = {"day": [1, 2], "number": [1, 2]}
    loads = [rows, rows, {"day": [2, 1], "number": [1, 2]}]

    @dg.asset(metadata={"partition_expr": "day"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, pa.table(loads.pop(0)))

    found = [materialise(flights, zero)[0].tags["dagster/data_version"] for _ in range(3)]
    assert found[0] == found[1] != found[2]


def test_frames_and_iterators_are_written(zero: ZeroRenameResource) -> None:
    for data in (pd.DataFrame(TWO), pl.DataFrame(TWO), (pd.DataFrame([row]) for row in TWO)):
        materialise(written_by(data), zero, partition_key=DAY)
        assert zero.table("flights").to_arrow().sort_by("number").to_pylist() == TWO


def test_an_empty_frame_needs_no_types_where_there_is_a_table(zero: ZeroRenameResource) -> None:
    materialise(written_by(pa.Table.from_pylist(TWO, SCHEMA)), zero, partition_key=DAY)
    materialise(written_by(pd.DataFrame()), zero, partition_key=DAY)
    assert zero.table("flights").to_arrow().num_rows == 0


def test_a_table_without_partitions_is_replaced_as_a_whole(zero: ZeroRenameResource) -> None:
    numbers = [[1, 2], [3], []]

    @dg.asset
    def airports(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, pa.table({"number": pa.array(numbers.pop(0), pa.int64())}))

    for expected in ([1, 2], [3], []):
        [event] = materialise(airports, zero)
        assert values(event)["dagster/row_count"] == len(expected)
        assert zero.table("airports").to_arrow()["number"].to_pylist() == expected


def test_an_asset_of_several_columns_is_named_by_a_format(zero: ZeroRenameResource) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "year=%Y/month=%-m/day=%-d"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, pd.DataFrame({"year": [2013], "month": [1], "day": [2], "n": 7}))

    materialise(flights, zero, partition_key="2013-01-02")
    assert zero.table("flights").partitions() == ["year=2013/month=1/day=2"]


def test_dimensions_are_columns_by_their_names(zero: ZeroRenameResource) -> None:
    both = dg.MultiPartitionsDefinition(
        {"carrier": dg.StaticPartitionsDefinition(["AA", "M/S"]), "day": DAYS}
    )

    @dg.asset(partitions_def=both)
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        row = {"carrier": ["M/S"], "day": [dt.date(2013, 1, 2)], "n": [7]}
        return zero.write(context, pd.DataFrame(row))

    key = dg.MultiPartitionKey({"carrier": "M/S", "day": "2013-01-02"})
    [event] = materialise(flights, zero, partition_key=key)
    assert event.partition == key
    assert zero.table("flights").partitions() == ["carrier=M%2FS/day=2013-01-02"]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({"carrier": "AA", "day": "2013-01-02"}, {"carrier": "DL", "day": "2013-01-02"}),
        ({"carrier": "DL", "day": "2013-01-01"}, {"carrier": "DL", "day": "2013-01-02"}),
    ],
)
def test_a_backfills_range_varies_in_one_dimension(
    zero: ZeroRenameResource, first: dict[str, str], last: dict[str, str]
) -> None:
    carriers = dg.StaticPartitionsDefinition(["AA", "DL", "UA"])

    @dg.asset(partitions_def=dg.MultiPartitionsDefinition({"carrier": carriers, "day": DAYS}))
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        keys: Any = context.partition_keys
        return zero.write(
            context, pd.DataFrame([{**key.keys_by_dimension, "n": 1} for key in keys])
        )

    ends = [dg.MultiPartitionKey(end) for end in (first, last)]
    materialise(flights, zero, tags=days(*ends))
    found = zero.table("flights").partitions()
    assert found == [f"carrier={end['carrier']}/day={end['day']}" for end in (first, last)]


def test_dynamic_partitions(zero: ZeroRenameResource, instance: dg.DagsterInstance) -> None:
    carriers = dg.DynamicPartitionsDefinition(name="carriers")
    instance.add_dynamic_partitions("carriers", ["AA", "UA", "DL"])

    @dg.asset(partitions_def=carriers, metadata={"partition_expr": "carrier"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, pd.DataFrame({"carrier": context.partition_keys, "n": 1}))

    events = materialise(flights, zero, instance=instance, tags=days("AA", "UA"))
    assert {event.partition for event in events} == {"AA", "UA"}
    assert zero.table("flights").partitions() == ["carrier=AA", "carrier=UA"]


def test_columns_that_only_the_rows_have_become_the_tables(zero: ZeroRenameResource) -> None:
    materialise(written_by(pd.DataFrame(TWO)), zero, partition_key=DAY)
    wider = pd.DataFrame([{**TWO[0], "delay": 7}])
    with pytest.raises(dg.Failure, match="schema_mode=merge"):
        materialise(written_by(wider), zero, partition_key=DAY)

    @zero_rename_asset(partitions_def=DAYS, partition_expr="day", schema_mode="merge")
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, wider)

    [event] = materialise(flights, zero, partition_key="2013-01-01")
    assert zero.table("flights").to_arrow().to_pylist() == [{**TWO[0], "delay": 7}]
    assert [it.name for it in values(event)["dagster/column_schema"].columns][-1] == "delay"


def test_a_second_write_in_one_step_is_refused(zero: ZeroRenameResource) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        zero.write(context, pd.DataFrame(TWO[:1]))
        return zero.write(context, pd.DataFrame(TWO[1:]))

    with pytest.raises(dg.Failure, match="second call were not written"):
        materialise(flights, zero, partition_key=DAY)
    assert zero.table("flights").to_arrow()["number"].to_pylist() == [1]


def test_keys_by_environment_are_in_no_text(
    zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL"):
        monkeypatch.setenv(f"OUR_{name}", dg.EnvVar(f"AWS_{name}").get_value() or "")
        monkeypatch.delenv(f"AWS_{name}")
    keyed = ZeroRenameResource(
        table_root=zero.table_root,
        endpoint_url=dg.EnvVar("OUR_ENDPOINT_URL"),
        region_name="us-east-1",
        access_key_id=dg.EnvVar("OUR_ACCESS_KEY_ID"),
        secret_access_key=dg.EnvVar("OUR_SECRET_ACCESS_KEY"),
    )
    events = materialise(written_by(rows([DAY], {DAY: [1]})), keyed, partition_key=DAY)
    assert values(events[0])["zero_rename/rows"] == 1
    named = ZeroRenameResource(access_key_id="key", secret_access_key="hidden")
    assert "hidden" not in f"{named!r} {named}"
    assert named.aws_env()["AWS_SECRET_ACCESS_KEY"] == "hidden"
