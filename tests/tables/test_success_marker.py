"""The ``_SUCCESS`` of Delta tables: written by jobs that ask for one, once they are committed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename.committer.errors import InvalidInputError, UnfinishedCommitError
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.store.requests import Delete, Found, Get, Put, Unknown
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
KEY = "flights/_SUCCESS"


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    return DeltaTable(f"s3://{s3_bucket.name}/flights")


def load(table: DeltaTable, day: str = "1", **policies: Any) -> Any:
    rows = pa.table({"day": [day], "delay": [5]})
    policies = {"partition_by": ["day"], "success_markers": "table", **policies}
    with table.job(rows.schema, **policies) as job:
        job.write(rows)
    return job


def marker(table: DeltaTable) -> tuple[SuccessMarker, dict[str, Any]] | None:
    """The table's marker, as Hadoop reads it, and what names the entry."""
    found = table.run(Get(KEY))
    if not isinstance(found, Found):
        return None
    return SuccessMarker.parse(found.body, KEY), json.loads(found.body)["delta"]


def version(table: DeltaTable) -> int:
    found = marker(table)
    assert found is not None
    return found[1]["version"]


def test_marker_is_hadoops_and_names_the_entry_and_the_files(table: DeltaTable) -> None:
    job = load(table).committed.job
    found = marker(table)
    assert found is not None
    it, entry = found
    assert (it.job, it.committer, it.success) == (job, "zero_rename", True)
    (file,) = table.scan().files
    assert it.filenames == (f"/{file.key}",)
    log = "flights/_delta_log/00000000000000000000.json"
    assert entry == {"version": 0, "entry": log}


@pytest.mark.parametrize("policies", [{"success_markers": "none"}, {"success_markers": "table"}])
def test_marker_takes_two_requests_where_it_is_asked_for(
    table: DeltaTable, s3_bucket: Bucket, policies: dict[str, str]
) -> None:
    load(table, **policies)
    s3_bucket.counter.reset()
    load(table, **policies)
    asked = [name for name, key in s3_bucket.counter.log() if key == KEY]
    assert asked == (["GetObject", "PutObject"] if policies["success_markers"] == "table" else [])


def test_job_that_does_not_ask_leaves_the_marker_of_another(table: DeltaTable) -> None:
    load(table)
    load(table, success_markers="none")
    assert version(table) == 0
    load(table)
    assert version(table) == 2


def test_job_that_fails_writes_no_marker(table: DeltaTable) -> None:
    columns = pa.schema([("n", pa.int64())])
    with pytest.raises(RuntimeError), table.job(columns, success_markers="table"):
        raise RuntimeError
    assert marker(table) is None


def test_marker_comes_with_the_publication_of_a_job_that_waits(table: DeltaTable) -> None:
    load(table, success_markers="none")
    waiting = load(table, publish=False)
    assert marker(table) is None
    table.publish(waiting.unpublished.job)
    assert version(table) == 1


def test_marker_of_a_job_that_died_after_its_entry_is_written_by_recovery(
    table: DeltaTable, answered_by: Any
) -> None:
    load(table, success_markers="none")
    answered_by(lambda it: Unknown("lost") if isinstance(it, Put) and it.key == KEY else None)
    with pytest.raises(UnfinishedCommitError):
        load(table)
    answered_by(lambda _: None)
    assert marker(table) is None
    table.recover(patience=0.0)
    assert version(table) == 1


def test_marker_of_a_job_that_is_finished_late_does_not_replace_a_later_one(
    table: DeltaTable, answered_by: Any
) -> None:
    answered_by(lambda it: Unknown("lost") if isinstance(it, Put) and it.key == KEY else None)
    with pytest.raises(UnfinishedCommitError):
        load(table)
    answered_by(lambda _: None)
    load(table, "2")
    table.recover(patience=0.0)
    assert version(table) == 1


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"delta": {"version": "9"}}'])
def test_marker_of_another_program_is_replaced(table: DeltaTable, body: bytes) -> None:
    load(table, success_markers="none")
    table.run(Put(KEY, body))
    load(table)
    assert version(table) == 1


def test_marker_whose_writing_is_not_answered_is_found_or_written_again(
    table: DeltaTable, answered_by: Any
) -> None:
    lost: list[Any] = []

    def answer(it: Any) -> Any:
        if isinstance(it, Put) and it.key == KEY and len(lost) < 2:
            lost.append(it)
            return Unknown("lost")
        return None

    answered_by(answer)
    load(table)
    assert len(lost) == 2
    assert version(table) == 0


def test_purge_leaves_the_marker(table: DeltaTable) -> None:
    load(table)
    load(table, mode="overwrite", success_markers="none")
    table.purge(apply=True)
    assert version(table) == 0


def test_marker_in_each_partition_is_refused(table: DeltaTable) -> None:
    with pytest.raises(InvalidInputError, match="partition_and_table is not kept"):
        load(table, success_markers="partition_and_table")


def test_marker_that_somebody_deleted_meanwhile_is_written(
    table: DeltaTable, answered_by: Any
) -> None:
    load(table)
    deleted: list[bool] = []

    def answer(it: Any) -> None:
        if isinstance(it, Put) and it.key == KEY and not deleted:
            deleted.append(True)
            table.run(Delete(KEY))

    answered_by(answer)
    load(table)
    assert version(table) == 1
