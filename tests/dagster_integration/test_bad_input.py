"""What cannot be right is refused, and nothing of it is visible."""

import datetime as dt
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from dagster_zero_rename import (
    SparkPipesClient,
    ZeroRenameIOManager,
    ZeroRenameResource,
    maintenance_job,
)
from support.dagster_loads import DAYS, SCHEMA, days
from zero_rename import Table
from zero_rename.committer.errors import InvalidInputError, TableNotFoundError

pytestmark = pytest.mark.memory_s3

ONE = [{"day": dt.date(2013, 1, 1), "number": 1}]
BOTH = dg.MultiPartitionsDefinition(
    {"carrier": dg.StaticPartitionsDefinition(["AA", "DL", "UA"]), "day": DAYS}
)


def asset(data: Any = None, **given: Any) -> Any:
    @dg.asset(name="flights", **given)
    def made(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, pa.Table.from_pylist(ONE, SCHEMA) if data is None else data)

    return made


def refused(zero: ZeroRenameResource, made: Any, message: str, **run: Any) -> None:
    """Materialise an asset that is refused, for good; the table stays what it was."""
    before = zero.table("flights").snapshot().versions if zero.table("flights").exists() else None
    with pytest.raises(dg.Failure, match=message) as failed:
        dg.materialize([made], resources={"zero": zero}, **run)
    check_final(failed.value)
    table = zero.table("flights")
    assert table.exists() is (before is not None)
    assert before is None or table.snapshot().versions == before
    assert table.open_jobs() == []


def check_final(failure: dg.Failure) -> None:
    """See that an input which cannot be right is the reason, and that no policy retries it."""
    cause = failure.__cause__
    assert isinstance(cause, InvalidInputError)
    assert failure.allow_retries is False
    assert failure.metadata["zero_rename/error"].value == type(cause).__name__
    assert failure.metadata["zero_rename/remedy"].value == cause.remedy


@pytest.fixture
def tables(s3_client: Any) -> str:
    """Where two tables lie that nothing here changes: one of days, and one without partitions."""
    s3_client.create_bucket(Bucket="dagster-bad-input")
    for name, partition_by in (("by_day", ["day"]), ("whole", [])):
        table = Table(f"s3://dagster-bad-input/{name}/flights", client=s3_client)
        with table.job(SCHEMA, partition_by=partition_by) as job:
            job.write(pa.Table.from_pylist(ONE, SCHEMA))
    return "s3://dagster-bad-input"


@pytest.fixture
def by_day(tables: str, s3_env: Any) -> ZeroRenameResource:
    """A table of days."""
    return ZeroRenameResource(table_root=f"{tables}/by_day")


@pytest.fixture
def whole(tables: str, s3_env: Any) -> ZeroRenameResource:
    """A table without partitions."""
    return ZeroRenameResource(table_root=f"{tables}/whole")


def test_an_asset_without_partitions_on_a_table_with_some(by_day: ZeroRenameResource) -> None:
    refused(by_day, asset(), "has no partitions, and its table is partitioned by day")


def test_an_asset_with_partitions_on_a_table_without(whole: ZeroRenameResource) -> None:
    made = asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    refused(whole, made, "its table has none", partition_key="2013-01-01")


def test_rows_of_other_partitions_than_the_runs(by_day: ZeroRenameResource) -> None:
    made = asset(partitions_def=DAYS)
    refused(by_day, made, "rows for the partition 'day=2013-01-01'", partition_key="2013-01-02")


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("year=%Y/month=%-m", "no partition of its table"),
        ("hour", "its rows have none of that name"),
        ({"day": "day"}, "names dimensions, and it has one only"),
        ("day=%Q", "no code of strftime"),
        ("day=%Y-%m-01", "are all day=2013-01-01"),
    ],
)
def test_keys_that_are_no_partitions(by_day: ZeroRenameResource, expr: Any, message: str) -> None:
    made = asset(partitions_def=DAYS, metadata={"partition_expr": expr})
    refused(by_day, made, message, tags=days("2013-01-01", "2013-01-02"))


def test_keys_of_another_type_than_their_column(by_day: ZeroRenameResource) -> None:
    made = asset(partitions_def=dg.StaticPartitionsDefinition(["monday"]))
    refused(by_day, made, "'monday' is not a value of", partition_key="monday")


def test_keys_of_a_new_table_whose_column_nobody_names(zero: ZeroRenameResource) -> None:
    made = asset(partitions_def=DAYS)
    refused(zero, made, "Nothing says which partition", partition_key="2013-01-01")


def test_dimensions_that_are_no_columns(by_day: ZeroRenameResource) -> None:
    key = dg.MultiPartitionKey({"carrier": "AA", "day": "2013-01-01"})
    refused(
        by_day, asset(partitions_def=BOTH), "its rows have none of that name", partition_key=key
    )
    expr = {"weekday": "day"}
    made = asset(partitions_def=BOTH, metadata={"partition_expr": expr})
    refused(by_day, made, "does not go by its dimensions, carrier, day", partition_key=key)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("AA|2013-01-01", "DL|2013-01-02", "4 partitions dimension by dimension, and 33 in a row"),
        ("AA|2013-01-02", "DL|2013-01-01", "goes backwards"),
        ("DL|2013-01-01", "AA|2013-01-02", "goes backwards"),
    ],
)
def test_a_range_that_is_not_one(
    zero: ZeroRenameResource, first: str, last: str, message: str
) -> None:
    """Read as Dagster reads it, it names partitions that nobody asked for, or none, and a job
    that names none may write any."""
    refused(zero, asset(partitions_def=BOTH), message, tags=days(first, last))


def test_a_range_that_goes_backwards(by_day: ZeroRenameResource) -> None:
    made = asset(partitions_def=DAYS)
    refused(by_day, made, "goes backwards", tags=days("2013-01-03", "2013-01-01"))


def test_a_range_of_keys_that_are_none(by_day: ZeroRenameResource) -> None:
    made = asset(partitions_def=dg.WeeklyPartitionsDefinition(start_date="2013-01-06"))
    refused(by_day, made, "no partition of it", tags=days("2013-01-01", "2013-01-09"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("rows", "a builtins.str"),
        ({"day": []}, "a builtins.dict"),
        (7, "a builtins.int"),
        ([ONE[0]], "a builtins.dict"),
        (pd.DataFrame(), "nothing says what its columns are"),
        (pd.DataFrame({"day": []}, dtype=object), "nothing says what its columns are"),
    ],
)
def test_rows_in_no_known_form(zero: ZeroRenameResource, data: Any, message: str) -> None:
    made = asset(data, partitions_def=DAYS, metadata={"partition_expr": "day"})
    refused(zero, made, message, partition_key="2013-01-01")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"mode": "upsert"}, "mode='upsert' is unknown"),
        ({"mode": "error"}, "could never be materialised again"),
        ({"mode": "merge"}, "merge_on names no column"),
        ({"table": "a//b"}, "names no table"),
    ],
)
def test_metadata_that_cannot_be_right(
    zero: ZeroRenameResource, metadata: dict[str, str], message: str
) -> None:
    refused(zero, asset(metadata=metadata), message)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"table_root": None}, "gives no table root"), ({"committer": "magic"}, "which Spark appl")],
)
def test_a_resource_that_does_not_serve_an_asset(
    zero: ZeroRenameResource, given: dict[str, Any], message: str
) -> None:
    fields: dict[str, Any] = {"table_root": zero.table_root, **given}
    wrong = ZeroRenameResource(**fields)
    with pytest.raises(dg.Failure, match=message) as failed:
        dg.materialize([asset()], resources={"zero": wrong})
    check_final(failed.value)
    assert not zero.table("flights").exists()


@pytest.mark.parametrize("kind", [ZeroRenameResource, ZeroRenameIOManager])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table_root": "lake/tables"}, "'lake/tables' is no path on S3"),
        ({"access_key_id": "key"}, "one of access_key_id and secret_access_key"),
        ({"session_token": "token"}, "a session_token, and neither access_key_id"),
        ({"on_conflict": "lastwins"}, "on_conflict is 'lastwins'"),
        ({"on_conflct": "newest_run"}, "has no field 'on_conflct'"),
        ({"data_root": "s3://user:hush@fast/lake"}, "'s3://…@fast/lake' is no data root"),
        ({"encryption": "rot13"}, "encryption='rot13' is unknown"),
        ({"committer": "magicc"}, "no committer 'magicc'"),
        ({"catalog": "nonsense"}, "catalog='nonsense' is no catalog"),
        ({"endpoint_url": "https://user:hush@store:9000"}, "'https://…@store:9000' holds a user"),
        (
            {"wait_for_other_runs": dg.EnvVar("WAIT")},
            r"wait_for_other_runs is an EnvVar.*float\(os\.environ\['WAIT'\]\)",
        ),
        ({"max_recompute": dg.EnvVar.int("MOST")}, r"environ\['MOST'\]"),
        ({"path_style": dg.EnvVar("STYLE")}, r"environ\['STYLE'\] == 'true'"),
    ],
)
def test_what_cannot_be_right_is_refused_while_definitions_load(
    kind: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**{"table_root": "s3://lake/tables", **given})


def test_what_the_environment_holds_is_looked_at_when_it_is_read(
    zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ON_CONFLICT", "lastwins")
    wrong = ZeroRenameResource(table_root=zero.table_root, on_conflict=dg.EnvVar("ON_CONFLICT"))
    result = dg.materialize([asset()], resources={"zero": wrong}, raise_on_error=False)
    assert not result.success
    assert not zero.table("flights").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (ZeroRenameIOManager, "has no table_root"),
        (SparkPipesClient, "has no zero_rename"),
        (
            lambda: ZeroRenameIOManager(
                zero_rename=ZeroRenameResource(table_root="s3://lake"), region_name="eu-west-1"
            ),
            "has zero_rename=…, and region_name besides",
        ),
        (lambda: maintenance_job(catalog="nonsense"), "is no catalog"),
    ],
)
def test_a_missing_resource_or_two_are_refused_while_definitions_load(
    make: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("client", [ZeroRenameIOManager, SparkPipesClient])
def test_a_resource_that_is_configured_at_launch_is_taken(client: Any) -> None:
    late: Any = ZeroRenameResource.configure_at_launch()
    found = []

    @dg.op(required_resource_keys={"client"})
    def look(context: dg.OpExecutionContext) -> None:
        found.append(context.resources.client.zero_rename.table_root)

    @dg.job(resource_defs={"zero": late, "client": client(zero_rename=late)})
    def looks() -> None:
        look()

    given = {"zero": {"config": {"table_root": "s3://lake/wh"}}}
    assert looks.execute_in_process(run_config={"resources": given}).success
    assert found == ["s3://lake/wh"]


def test_no_refusal_shows_a_key() -> None:
    with pytest.raises(ValueError, match="one of access_key_id") as refused:
        ZeroRenameResource(table_root="s3://lake", secret_access_key="not-to-be-shown")
    assert "not-to-be-shown" not in str(refused.value)


def test_an_input_whose_table_is_not_there(zero: ZeroRenameResource) -> None:
    flights = dg.AssetSpec("flights")

    @dg.asset
    def report(flights: pa.Table) -> None:
        raise AssertionError("called")

    with pytest.raises(TableNotFoundError, match="no table of the asset 'flights'"):
        dg.materialize(
            [flights, report], resources={"io_manager": ZeroRenameIOManager(zero_rename=zero)}
        )


class TestContextOfNoAsset:
    """The step makes no asset, or another one, or there is no step."""

    def test_op_of_a_job(self, zero: ZeroRenameResource) -> None:
        @dg.op
        def load(context: dg.OpExecutionContext, zero: ZeroRenameResource) -> None:
            zero.write(context, pa.Table.from_pylist(ONE, SCHEMA))

        @dg.job(resource_defs={"zero": zero})
        def job() -> None:
            load()

        with pytest.raises(dg.Failure, match=r"op 'load' makes no asset.*resource's table\(name\)"):
            job.execute_in_process()

    def test_op_of_a_graph_asset_is_taken(self, zero: ZeroRenameResource) -> None:
        @dg.op
        def load(context: dg.OpExecutionContext, zero: ZeroRenameResource) -> None:
            zero.write(context, pa.Table.from_pylist(ONE, SCHEMA))

        @dg.graph_asset
        def flights() -> Any:
            return load()

        assert dg.materialize([flights], resources={"zero": zero}).success
        assert zero.table("flights").to_arrow().num_rows == 1

    def test_asset_check(self, zero: ZeroRenameResource) -> None:
        @dg.asset_check(asset="flights")
        def check(context: dg.AssetCheckExecutionContext, zero: ZeroRenameResource):
            given: Any = context
            with pytest.raises(InvalidInputError, match="AssetCheckExecutionContext"):
                zero.write(given, pa.Table.from_pylist(ONE, SCHEMA))
            return dg.AssetCheckResult(passed=True)

        assert dg.materialize([asset(), check], resources={"zero": zero}).success

    def test_direct_call(self, zero: ZeroRenameResource) -> None:
        with pytest.raises(InvalidInputError, match=r"called directly.*dg\.materialize"):
            asset()(dg.build_asset_context(), zero=zero)

    @pytest.mark.parametrize(
        ("written", "message"),
        [(None, "asset_key="), ("neither", "'neither' is not among"), ("other", "'other' is not")],
    )
    def test_asset_that_the_run_does_not_make(
        self, zero: ZeroRenameResource, written: str | None, message: str
    ) -> None:
        """A run of one of two assets must not replace the rows of the other."""

        @dg.multi_asset(specs=[dg.AssetSpec("flights"), dg.AssetSpec("other")], can_subset=True)
        def both(context: dg.AssetExecutionContext, zero: ZeroRenameResource) -> Any:
            yield zero.write(context, pa.Table.from_pylist(ONE, SCHEMA), asset_key=written)

        selection = None if written is None else ["flights"]
        refused(zero, both, message, selection=selection)
        assert not zero.table("other").exists()
