"""Failures that an application puts on record for its submitter."""

from __future__ import annotations

from typing import Any

import boto3
import pyarrow as pa
import pytest

from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    Owner,
    StoreRefusedError,
    StoreUnfitError,
    StoreUnreachableError,
    Table,
    TableMismatchError,
    TableRoot,
    ZeroRenameError,
)
from zero_rename.committer.commit.failures import failures_told, read_failure
from zero_rename.committer.store.driver import BotoDriver

OWNER = Owner(dag_id="d", run_id="r", task_id="t", try_number=2, series="s")
ONCE = "d/r/t"


def fail(
    root: TableRoot,
    error: ZeroRenameError,
    idempotency_key: str | None = ONCE,
    owner: Owner = OWNER,
):
    with pytest.raises(type(error)), failures_told(root, idempotency_key, owner):
        raise error


def test_it_comes_back_as_it_was_said(driver: BotoDriver) -> None:
    root = TableRoot(driver.bucket, "flights")
    assert driver.run(read_failure(root, ONCE)) is None
    fail(root, TableMismatchError("other columns", job="zr1-x", key="k", remedy="Do this."))
    told = driver.run(read_failure(root, ONCE))
    assert told is not None
    assert (told.error, told.message, told.remedy) == (
        "TableMismatchError",
        "other columns",
        "Do this.",
    )
    assert (told.job, told.key, told.owner) == ("zr1-x", "k", OWNER)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (InvalidInputError("x"), True),
        (TableMismatchError("x"), True),
        (CommitConflictError("x", key="flights/_zero_rename/heads/day=1.json"), True),
        # Another try did the run's work: the next one reports it.
        (CommitConflictError("x", key="flights/_zero_rename/runs/d.json"), False),
        (StoreUnfitError("Another job is open on this table"), True),
        (StoreUnreachableError("x"), False),
        (StoreRefusedError("x"), False),
        (StoreRefusedError("There is no such bucket", no_bucket=True), True),
    ],
)
def test_whether_a_retry_mends_it(driver: BotoDriver, error: ZeroRenameError, final: bool) -> None:
    root = TableRoot(driver.bucket, "flights")
    fail(root, error)
    told = driver.run(read_failure(root, ONCE))
    assert told is not None
    assert told.final is final


def test_nothing_is_written_where_nobody_submitted_it(s3_bucket: Any) -> None:
    root = TableRoot(s3_bucket.name, "flights")
    fail(root, InvalidInputError("x"), idempotency_key=None)
    fail(root, InvalidInputError("x"), owner=Owner())
    assert s3_bucket.keys() == []


def test_a_store_that_does_not_answer_hides_nothing(s3_env: Any, caplog: Any) -> None:
    fail(TableRoot("no-such-bucket", "flights"), InvalidInputError("the reason"))
    assert "could not be put on record" in caplog.text


def test_a_job_s_failure_lies_where_its_table_does(driver: BotoDriver, monkeypatch: Any) -> None:
    """Its client leads to another store than boto3's standard chain."""
    table = Table(f"s3://{driver.bucket}/flights", boto3.client("s3"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    data = pa.table({"n": [1]})
    with (
        pytest.raises(InvalidInputError),
        table.job(data.schema, idempotency_key=ONCE, owner=OWNER) as job,
    ):
        job.write(pa.table({"m": ["x"]}))
    told = table.run(read_failure(table.root, ONCE))
    assert told is not None
    assert told.error == "InvalidInputError"
