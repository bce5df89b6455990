"""Two partition keys of a definition never become one partition, run by run."""

import re
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_zero_rename import ZeroRenameResource, zero_rename_asset
from dagster_zero_rename.distinct_keys import check_formats
from zero_rename.committer.errors import InvalidInputError

BERLIN = "Europe/Berlin"
DAYS = dg.DailyPartitionsDefinition("2013-01-01")
WEEKS = dg.WeeklyPartitionsDefinition("2012-01-02", day_offset=1)
AUTUMN = dg.HourlyPartitionsDefinition("2013-10-27-00:00", timezone=BERLIN)


def of_format(partitions_def: Any, expr: Any, **given: Any) -> dg.AssetsDefinition:
    @zero_rename_asset(partitions_def=partitions_def, partition_expr=expr, **given)
    def flights() -> None: ...

    return flights


class TestWhenDefinitionsLoad:
    @pytest.mark.parametrize(
        ("partitions_def", "expr", "keys", "part"),
        [
            (DAYS, "year=%Y/month=%-m", ["2013-01-01", "2013-01-02"], "year=2013/month=1"),
            (DAYS, "month=%m/day=%d", ["2013-01-01", "2014-01-01"], "month=01/day=01"),
            (DAYS, "day=%Y%-m%-d", ["2013-01-11", "2013-11-01"], "day=2013111"),
            (WEEKS, "year=%Y/week=%V", ["2012-01-02", "2012-12-31"], "year=2012/week=01"),
            (
                dg.HourlyPartitionsDefinition("2013-01-01-00:00"),
                "year=%Y/week=%V/day=%u/hour=%H",
                ["2013-01-01-00:00", "2013-12-31-00:00"],
                "year=2013/week=01/day=2/hour=00",
            ),
            (
                dg.DailyPartitionsDefinition("1913-01-01"),
                "day=%y-%m-%d",
                ["1913-01-01", "2013-01-01"],
                "day=13-01-01",
            ),
        ],
    )
    def test_a_format_that_writes_two_keys_alike_is_refused(
        self, partitions_def: Any, expr: str, keys: list[str], part: str
    ) -> None:
        message = f"{keys[0]!r} and {keys[1]!r} of the asset 'flights' are both {part} in"
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            of_format(partitions_def, expr)

    def test_a_format_of_one_dimension_that_writes_two_keys_alike_is_refused(self) -> None:
        carriers = dg.StaticPartitionsDefinition(["AA", "DL"])
        both = dg.MultiPartitionsDefinition({"carrier": carriers, "day": DAYS})
        with pytest.raises(InvalidInputError, match="are both year=2013 in"):
            of_format(both, {"day": "year=%Y"})

    @pytest.mark.parametrize(
        ("partitions_def", "expr"),
        [
            (DAYS, "year=%Y/month=%-m/day=%-d"),
            (WEEKS, "year=%G/week=%V"),
            (dg.MonthlyPartitionsDefinition("2013-01-01", end_date="2014-01-01"), "month=%m"),
            (dg.DailyPartitionsDefinition("2013-01-01", timezone=BERLIN), "day=%F"),
            (AUTUMN, "day=%F/hour=%H%z"),
            (
                dg.TimeWindowPartitionsDefinition(
                    "2013-01-01", "%Y-%m-%d", cron_schedule="0 0 * * *", exclusions=["0 0 * * 2-7"]
                ),
                "week=%G-%V",
            ),
        ],
    )
    def test_a_format_that_keeps_all_keys_apart_is_taken(
        self, partitions_def: Any, expr: str
    ) -> None:
        of_format(partitions_def, expr)

    def test_keys_that_append_to_one_partition_are_taken(self) -> None:
        of_format(DAYS, "year=%Y/month=%-m", mode="append")

    def test_a_component_whose_format_writes_two_keys_alike_is_refused(self) -> None:
        spec = dg.AssetSpec("flights", partitions_def=WEEKS)
        with pytest.raises(InvalidInputError, match="are both year=2012/week=01"):
            check_formats(spec, "year=%Y/week=%V", "overwrite")


def static(*keys: str) -> dg.StaticPartitionsDefinition:
    return dg.StaticPartitionsDefinition(list(keys))


def column(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("at", kind), ("number", pa.int64())])


NAIVE = column(pa.timestamp("us"))


@pytest.mark.memory_s3
class TestWhenARunWrites:
    """One key a run, as a backfill of a plain asset makes them: each run succeeded."""

    def materialise(
        self,
        zero: ZeroRenameResource,
        partitions_def: Any,
        expr: Any,
        schema: pa.Schema,
        key: str,
        instance: dg.DagsterInstance | None = None,
    ) -> None:
        metadata = {} if expr is None else {"partition_expr": expr}

        @dg.asset(name="flights", partitions_def=partitions_def, metadata=metadata)
        def made(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            return zero.write(context, schema.empty_table())

        dg.materialize([made], partition_key=key, resources={"zero": zero}, instance=instance)

    @pytest.mark.parametrize(
        ("partitions_def", "expr", "schema", "key", "message"),
        [
            (
                AUTUMN,
                "at",
                NAIVE,
                "2013-10-27-00:00",
                r"'2013-10-27-02:00' and '2013-10-27-02:00\+0100'.* both at=2013-10-27 02:00:00",
            ),
            (
                dg.HourlyPartitionsDefinition("2013-01-01-00:00"),
                "at",
                column(pa.date32()),
                "2013-01-01-05:00",
                "'2013-01-01-00:00' and '2013-01-01-01:00'.* both at=2013-01-01 in",
            ),
            (DAYS, "at=%Y-%m", column(pa.string()), "2013-01-01", "both at=2013-01 in"),
            (WEEKS, "at=%Y%V", column(pa.int32()), "2012-01-02", "2012-12-31.* both at=201201"),
            (static("1", "2", "01"), "at", column(pa.int32()), "2", "'1' and '01'.* both at=1"),
            (static("TRUE", "true"), "at", column(pa.bool_()), "true", "both at=true"),
            (
                static("at=1/number=2", "number=2/at=1"),
                None,
                NAIVE.set(0, pa.field("at", pa.string())),
                "at=1/number=2",
                "both at=1/number=2",
            ),
            (
                dg.MultiPartitionsDefinition({"number": static("1", "01"), "day": DAYS}),
                {"day": "at"},
                NAIVE,
                dg.MultiPartitionKey({"number": "01", "day": "2013-01-01"}),
                "'1' and '01'.* both number=1",
            ),
        ],
    )
    def test_keys_that_a_column_does_not_keep_apart_are_refused(
        self,
        zero: ZeroRenameResource,
        partitions_def: Any,
        expr: Any,
        schema: pa.Schema,
        key: str,
        message: str,
    ) -> None:
        with pytest.raises(dg.Failure, match=message):
            self.materialise(zero, partitions_def, expr, schema, key)
        assert not zero.table("flights").exists()

    def test_a_dynamic_key_that_is_another_one_s_partition_is_refused(
        self, zero: ZeroRenameResource, instance: dg.DagsterInstance
    ) -> None:
        numbers = dg.DynamicPartitionsDefinition(name="numbers")
        schema = column(pa.int32())
        instance.add_dynamic_partitions("numbers", ["1"])
        self.materialise(zero, numbers, "at", schema, "1", instance)
        instance.add_dynamic_partitions("numbers", ["01"])
        with pytest.raises(dg.Failure, match=r"'1' and '01'.* both at=1"):
            self.materialise(zero, numbers, "at", schema, "01", instance)
        assert zero.table("flights").snapshot().versions == {"at=1": 1}

    @pytest.mark.parametrize(
        ("partitions_def", "schema", "key"),
        [
            (AUTUMN, column(pa.timestamp("us", "UTC")), "2013-10-27-02:00+0100"),
            (dg.HourlyPartitionsDefinition("2013-10-27-00:00"), NAIVE, "2013-10-27-02:00"),
            (WEEKS, column(pa.date32()), "2012-12-31"),
            (static("1", "01"), column(pa.string()), "01"),
            (static("1", "02", "monday"), column(pa.int32()), "02"),
        ],
    )
    def test_keys_that_a_column_keeps_apart_are_written(
        self, zero: ZeroRenameResource, partitions_def: Any, schema: pa.Schema, key: str
    ) -> None:
        self.materialise(zero, partitions_def, "at", schema, key)
        assert len(zero.table("flights").snapshot().versions) == 1
