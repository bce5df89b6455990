"""AWS Glue on moto: a table and its partitions as it is told of them."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from conftest import Bucket

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.catalog import CatalogUnsyncedError, ReadBy, sync_after_commit, sync_catalog
from zero_rename.catalog import glue as glue_room
from zero_rename.committer import InvalidInputError, UnsupportedTypeError

pytestmark = pytest.mark.memory_s3

ROWS = pa.table({"value": [1, 2, 3], "day": ["a", "a", "b"]})


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/sales")
    fill(table, "a", "b")
    return table


def fill(table: Table, *days: str) -> None:
    rows = pa.table({"value": list(range(len(days))), "day": list(days)})
    load_rows(table, rows)


def load(table: Table, day: str, column: str) -> None:
    """Bring a day, and a column."""
    rows = pa.table({"value": [1], column: [1], "day": [day]})
    load_rows(table, rows, schema_mode="merge")


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    return f"glue://{s3_bucket.name}/sales"


def partitions(glue: Any, bucket: Bucket) -> dict[str, str]:
    pages = glue.get_paginator("get_partitions")
    found = [
        partition
        for page in pages.paginate(DatabaseName=bucket.name, TableName="sales")
        for partition in page["Partitions"]
    ]
    return {"/".join(p["Values"]): p["StorageDescriptor"]["Location"] for p in found}


class TestTable:
    def test_it_is_created_over_its_folders(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        report = sync_catalog(table, url)
        assert (report.table, report.added, report.read_by) == ("created", 2, ReadBy.FOLDERS)
        there = glue.get_table(DatabaseName=s3_bucket.name, Name="sales")["Table"]
        assert there["PartitionKeys"] == [{"Name": "day", "Type": "string"}]
        storage = there["StorageDescriptor"]
        assert storage["Columns"] == [{"Name": "value", "Type": "bigint"}]
        assert storage["Location"] == f"{table.root.url}/"
        assert partitions(glue, s3_bucket)["a"] == f"{table.root.url}/day=a/"
        assert sync_catalog(table.root.url, url).table == "unchanged"

    def test_what_others_noted_of_it_stays(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        sync_catalog(table, url)
        there = glue.get_table(DatabaseName=s3_bucket.name, Name="sales")["Table"]
        kept: dict[str, Any] = {
            "Name": "sales",
            "Description": "ours",
            "Parameters": {"owner": "me"},
        }
        kept["StorageDescriptor"] = {**there["StorageDescriptor"], "Columns": []}
        kept["PartitionKeys"] = there["PartitionKeys"]
        glue.update_table(DatabaseName=s3_bucket.name, TableInput=kept)
        assert sync_catalog(table, url).table == "updated"
        there = glue.get_table(DatabaseName=s3_bucket.name, Name="sales")["Table"]
        assert there["Description"] == "ours"
        assert there["Parameters"]["owner"] == "me"
        assert there["StorageDescriptor"]["Columns"] == [{"Name": "value", "Type": "bigint"}]

    def test_comments_and_parameters_of_columns_stay_where_others_are_added(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        sync_catalog(table, url)
        place = {"DatabaseName": s3_bucket.name}
        there = glue.get_table(**place, Name="sales")["Table"]
        noted = {"Name": "value", "Type": "bigint", "Comment": "in cents", "Parameters": {"a": "b"}}
        storage = there["StorageDescriptor"] | {"Columns": [noted], "Parameters": {"ours": "1"}}
        kept = {"Name": "sales", "StorageDescriptor": storage}
        glue.update_table(
            **place, TableInput=kept | {"PartitionKeys": there["PartitionKeys"], "Parameters": {}}
        )
        load(table, "c", "extra")
        assert sync_catalog(table, url).table == "updated"
        storage = glue.get_table(**place, Name="sales")["Table"]["StorageDescriptor"]
        assert storage["Columns"] == [noted, {"Name": "extra", "Type": "bigint"}]
        assert storage["Parameters"] == {"ours": "1"}

    def test_one_without_partitions(self, glue: Any, s3_bucket: Bucket) -> None:
        table = Table(f"s3://{s3_bucket.name}/plain")
        load_rows(table, ROWS, partition_by=())
        report = sync_catalog(table, f"glue://{s3_bucket.name}/plain")
        assert (report.table, report.added) == ("created", 0)

    def test_another_process_that_creates_it_meanwhile(
        self, table: Table, glue: Any, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = [None]

        def first_not_there(self: Any) -> Any:
            return answers.pop() if answers else there(self)

        there = glue_room.GlueCatalog._get_table
        sync_catalog(table, url)
        monkeypatch.setattr(glue_room.GlueCatalog, "_get_table", first_not_there)
        assert sync_catalog(table, url).table == "unchanged"

    def test_it_is_called_by_its_root_where_no_name_is_given(
        self, table: Table, glue: Any, s3_bucket: Bucket
    ) -> None:
        assert sync_catalog(table, f"glue://{s3_bucket.name}").catalog.endswith("/sales")


class TestPartitions:
    def test_they_are_added_and_dropped(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        sync_catalog(table, url)
        fill(table, "c", "d e", "f/g")
        with table.job(mode="overwrite", replace_partitions=["day=a"]):
            pass
        report = sync_catalog(table, url)
        assert (report.added, report.updated, report.dropped) == (3, 0, 1)
        assert set(partitions(glue, s3_bucket)) == {"b", "c", "d e", "f/g"}

    def test_many_go_in_batches(
        self, glue: Any, url: str, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(glue_room, "_ADDED_AT_ONCE", 7)
        table = Table(f"s3://{s3_bucket.name}/sales")
        fill(table, *(f"d{n:03d}" for n in range(30)))
        assert sync_catalog(table, url).added == 30
        assert len(partitions(glue, s3_bucket)) == 30

    def test_one_that_another_process_added_meanwhile(
        self, table: Table, glue: Any, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = [{}]

        def first_none(self: Any) -> Any:
            return answers.pop() if answers else seen(self)

        seen = glue_room.GlueCatalog._partitions
        sync_catalog(table, url)
        monkeypatch.setattr(glue_room.GlueCatalog, "_partitions", first_none)
        report = sync_catalog(table, url)
        assert (report.added, report.updated, report.dropped) == (0, 0, 0)

    def test_none_are_registered_where_the_engine_computes_them(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        sync_catalog(table, url)
        there = glue.get_table(DatabaseName=s3_bucket.name, Name="sales")["Table"]
        names = ("Name", "StorageDescriptor", "PartitionKeys")
        projected = {name: there[name] for name in names}
        projected["Parameters"] = {"projection.enabled": "true"}
        glue.update_table(DatabaseName=s3_bucket.name, TableInput=projected)
        fill(table, "c")
        report = sync_catalog(table, url)
        assert (report.projected, report.added) == (True, 0)
        assert set(partitions(glue, s3_bucket)) == {"a", "b"}


class TestBeside:
    """Another job commits, and tells Glue, while this one is about to: whatever Glue was told of a
    later state stays."""

    @pytest.fixture
    def behind(self, table: Table, glue: Any, url: str) -> Table:
        """A table of which Glue lacks a column and a day, and has a day too many."""
        sync_catalog(table, url)
        load(table, "d", "x")
        with table.job(mode="overwrite", replace_partitions=["day=a"]):
            pass
        return table

    def test_a_late_one_takes_nothing_back(
        self, behind: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        calls = self.synced_beside(behind, glue, url, s3_bucket, strike=-1)
        assert {"UpdateTable", "BatchCreatePartition", "BatchDeletePartition"} <= set(calls)

    @pytest.mark.parametrize("strike", range(8))
    def test_whenever_the_other_one_comes(
        self, behind: Table, glue: Any, url: str, s3_bucket: Bucket, strike: int
    ) -> None:
        calls = self.synced_beside(behind, glue, url, s3_bucket, strike)
        assert len(calls) > strike
        there = glue.get_table(DatabaseName=s3_bucket.name, Name="sales")["Table"]
        columns = [column["Name"] for column in there["StorageDescriptor"]["Columns"]]
        assert columns == ["value", "x", "y"]
        assert set(partitions(glue, s3_bucket)) == {"b", "c", "d"}

    def synced_beside(
        self, table: Table, glue: Any, url: str, bucket: Bucket, strike: int
    ) -> list[str]:
        """Tell Glue, while another job brings day c and column y as the request of a number is
        sent; the requests. From then on both are there, after every request."""
        calls: list[str] = []

        def before(model: Any, params: Any, **rest: Any) -> Any:
            if len(calls) == strike:
                load(Table(table.root.url), "c", "y")
                sync_catalog(table.root.url, url)
            calls.append(model.name)
            return as_of_its_version(params) if model.name == "UpdateTable" else None

        def after(**rest: Any) -> None:
            if 0 <= strike < len(calls):
                there = glue.get_table(DatabaseName=bucket.name, Name="sales")["Table"]
                names = [column["Name"] for column in there["StorageDescriptor"]["Columns"]]
                assert "y" in names
                assert "c" in partitions(glue, bucket)

        def connect() -> Any:
            client = boto3.client("glue")
            client.meta.events.register("before-call.glue", before)
            client.meta.events.register("after-call.glue", after)
            return client

        def as_of_its_version(params: Any) -> Any:
            """What AWS does and moto does not: refuse where the table has changed."""
            wanted = json.loads(params["body"])
            there = glue.get_table(DatabaseName=bucket.name, Name="sales")["Table"]
            if wanted.get("VersionId", there["VersionId"]) == there["VersionId"]:
                return None
            code = {"Code": "ConcurrentModificationException", "Message": "It has changed."}
            refused = {"Error": code, "ResponseMetadata": {"HTTPStatusCode": 400}}
            return AWSResponse("", 400, HTTPHeaders(), None), refused

        sync_catalog(table, url, connect=connect)
        return calls

    def test_partitions_that_are_elsewhere_are_moved(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket
    ) -> None:
        sync_catalog(table, url)
        names = {"DatabaseName": s3_bucket.name, "TableName": "sales"}
        there = glue.get_partition(**names, PartitionValues=["a"])["Partition"]
        elsewhere = {**there["StorageDescriptor"], "Location": "s3://elsewhere/day=a/"}
        changed = {"Values": ["a"], "StorageDescriptor": elsewhere}
        glue.update_partition(**names, PartitionValueList=["a"], PartitionInput=changed)
        assert sync_catalog(table, url).updated == 1
        assert partitions(glue, s3_bucket)["a"] == f"{table.root.url}/day=a/"


class TestRefused:
    @pytest.mark.usefixtures("s3_server")
    def test_a_database_that_is_not_there(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="no database"):
            sync_catalog(table, "glue://nowhere/sales")

    def test_a_table_at_another_place(self, table: Table, glue: Any, url: str) -> None:
        sync_catalog(table, url)
        other = Table(f"s3://{table.root.bucket}/other")
        fill(other, "z")
        with pytest.raises(InvalidInputError, match="is a table at"):
            sync_catalog(other, url)

    def test_a_column_that_has_no_type_there(self, glue: Any, s3_bucket: Bucket) -> None:
        table = Table(f"s3://{s3_bucket.name}/odd")
        rows = pa.table({"n": pa.array([1], pa.uint64()), "m": [1]})
        load_rows(table, rows, partition_by=())
        catalog = f"glue://{s3_bucket.name}/odd"
        with pytest.raises(UnsupportedTypeError, match="'n'"):
            sync_catalog(table, catalog)
        assert sync_catalog(table, catalog, exclude=["n"]).table == "created"

    @pytest.mark.parametrize("name", ["N", "nn", "day"])
    def test_column_to_leave_out_that_cannot_be_is_refused(
        self, glue: Any, s3_bucket: Bucket, name: str
    ) -> None:
        """By a typing error the engine would see the column that was meant."""
        table = Table(f"s3://{s3_bucket.name}/odd")
        load_rows(table, pa.table({"n": [1], "day": ["a"]}), partition_by=("day",))
        catalog = f"glue://{s3_bucket.name}/odd"
        with pytest.raises(InvalidInputError, match=f"exclude names {name}"):
            sync_catalog(table, catalog, exclude=[name])
        assert sync_catalog(table, catalog).table == "created"

    @pytest.mark.parametrize("given", ["nn", iter(["nn"])])
    def test_columns_to_leave_out_are_a_name_or_an_iterator(
        self, glue: Any, s3_bucket: Bucket, given: Any
    ) -> None:
        table = Table(f"s3://{s3_bucket.name}/odd")
        load_rows(table, pa.table({"n": [1], "m": [2], "nn": [3]}), partition_by=())
        sync_catalog(table, f"glue://{s3_bucket.name}/odd", exclude=given)
        entry = glue.get_table(DatabaseName=s3_bucket.name, Name="odd")["Table"]
        assert [it["Name"] for it in entry["StorageDescriptor"]["Columns"]] == ["n", "m"]

    @pytest.mark.parametrize("url", ["glue://", "athena://a/b", "glue://a/b/c", "a.b"])
    def test_what_is_no_catalog(self, table: Table, url: str) -> None:
        with pytest.raises(InvalidInputError, match="glue://database/table"):
            sync_catalog(table, url)


class TestFailures:
    @pytest.mark.parametrize("error", [ValueError("Invalid endpoint: x"), KeyError("Table")])
    def test_any_failure_after_a_commit_is_a_warning(
        self, table: Table, url: str, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail() -> None:
            raise error

        assert sync_after_commit(table, url, connect=fail) is None
        assert (
            f"the job is committed, and {url} was not told: {type(error).__name__}" in caplog.text
        )

    def test_one_after_a_commit_is_a_warning_with_the_way_to_finish_it(
        self, table: Table, glue: Any, url: str, s3_bucket: Bucket, caplog: Any
    ) -> None:
        client = boto3.client("glue", endpoint_url="http://127.0.0.1:1")
        with pytest.raises(CatalogUnsyncedError):
            sync_catalog(table, url, connect=lambda: client)
        assert sync_after_commit(table, url, connect=lambda: client) is None
        text = caplog.text
        assert f"zero-rename catalog sync {table.root.url} --catalog {url}" in text
        fill(table, "c")
        report = sync_after_commit(table, url)
        assert report is not None
        assert report.added == 3
