"""What looks after tables of directories leaves Delta tables, and the jobs in them, alone."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.command_line import invoke
from zero_rename import Table
from zero_rename.committer.commit.state.table_kind import OPEN_IN_LOG, TableKind, table_kind
from zero_rename.committer.format.schema.other_formats import OtherFormatError
from zero_rename.committer.store.requests import CreateUpload
from zero_rename.committer.upkeep.purging.upload_selection import UploadsPath
from zero_rename.committer.upkeep.tables_below import tables_below
from zero_rename.log.job_files import KIND
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"day": ["1", "2"], "delay": [5, 6]})


@pytest.fixture(params=["first job", "later job"])
def delta(request: Any, s3_bucket: Bucket) -> DeltaTable:
    """A Delta table, or a root that is to become one, in which a job is to be opened."""
    table = DeltaTable(f"s3://{s3_bucket.name}/lake/flights")
    if request.param == "later job":
        with table.job(ROWS.schema, partition_by=["day"]) as job:
            job.write(ROWS)
    return table


def upload(table: DeltaTable, name: str) -> None:
    """Begin an upload below a table's root, and leave it."""
    table.driver.perform(CreateUpload(f"{table.root.prefix}/{name}"))


def test_the_kind_in_open_records_is_that_which_tables_of_directories_look_for() -> None:
    assert KIND == OPEN_IN_LOG


def test_recovery_of_directories_refuses_a_delta_table_and_its_job_commits(
    delta: DeltaTable,
) -> None:
    directories = Table(delta.root.url)
    with delta.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
        for settle in (directories.recover, directories.plan_recovery):
            with pytest.raises(OtherFormatError, match="Delta Lake"):
                settle(0)
        with pytest.raises(OtherFormatError, match="Delta Lake"):
            directories.purge(apply=True, patience=0)
    assert job.committed is not None
    assert delta.scan().count() in (2, 4)


def test_a_delta_table_is_none_of_the_tables_of_directories_below_a_folder(
    delta: DeltaTable,
) -> None:
    with delta.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
        assert delta.run(table_kind(delta.root)) is TableKind.DELTA
        assert delta.run(tables_below(UploadsPath(delta.root.bucket, "lake/"))) == []


def test_a_sweep_leaves_uploads_of_an_open_job_and_aborts_those_of_a_closed_one(
    delta: DeltaTable,
) -> None:
    root = f"s3://{delta.root.bucket}/lake"
    with delta.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
        upload(delta, f"data/{job.job}/part-0.parquet")
        for path in (root, delta.root.url):
            swept = invoke("uploads", "abort", path, "--older-than", "0", "--apply", "--json")
            (found,) = [json.loads(line) for line in swept.stdout.splitlines()]
            assert (found["action"], found["job"], found["whose"]) == ("kept", job.job, "ours")
            assert "its job is open" in found["reason"]
    swept = invoke("uploads", "abort", root, "--older-than", "0", "--apply", "--json")
    (found,) = [json.loads(line) for line in swept.stdout.splitlines()]
    assert (found["action"], found["table"]) == ("aborted", delta.root.url)
    assert "its job is closed" in found["reason"]
