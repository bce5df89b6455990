"""The command that deletes rows: it counts first."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.command_line import as_json, invoke
from zero_rename import Table
from zero_rename.cli.output import Exit

pytestmark = pytest.mark.memory_s3


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    table = Table(f"s3://{s3_bucket.name}/people")
    rows = pa.table({"id": [1, 2, 3, None], "name": ["a", "b's", None, "d"], "day": [1, 1, 2, 2]})
    with table.job(rows.schema, partition_by=["day"]) as job:
        job.write(rows)
    return table


def ids(table: Table) -> set[int | None]:
    return set(table.to_arrow()["id"].to_pylist())


def test_it_counts_and_deletes(table: Table) -> None:
    url = table.root.url
    counted = invoke("delete", url, "--where", "id >= 2")
    assert "2 rows would be deleted; 2 of the rows read stay." in counted.output
    assert "--apply" in counted.output
    assert ids(table) == {1, 2, 3, None}
    found = as_json("delete", url, "--where", "ID >= 2", "--where", "day = 1", "--apply")
    assert found["rows"] == {"inserted": 0, "updated": 0, "deleted": 1, "unchanged": 1}
    assert found["partitions"] == ["day=1"]
    assert ids(table) == {1, 3, None}
    assert (
        "No row meets the condition"
        in invoke("delete", url, "--where", "name = 'b''s'", "--apply").output
    )
    invoke("delete", url, "--where", "`name` is null", "--partition", "day=2", "--apply")
    invoke("delete", url, "--where", "id is not null", "--apply")
    assert ids(table) == {None}


def test_nan_is_larger_than_any_number_as_for_spark(s3_bucket: Any) -> None:
    table = Table(f"s3://{s3_bucket.name}/delays")
    rows = pa.table({"id": [1, 2, 3, 4], "delay": [1.0, float("nan"), None, 7.0]})
    with table.job(rows.schema) as job:
        job.write(rows)
    invoke("delete", table.root.url, "--where", "delay > 5", "--apply")
    assert ids(table) == {1, 3}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("id", "is no comparison"),
        ("id = 1 and day = 1", "is no comparison"),
        ("nope = 1", "names no column"),
        ("id = 'x'", "is no value of id"),
    ],
)
def test_what_cannot_be_read(table: Table, where: str, message: str) -> None:
    ended = invoke("delete", table.root.url, "--where", where, "--apply")
    assert ended.exit_code == Exit.REFUSED
    assert message in ended.output
    assert len(ids(table)) == 4


def test_a_person_is_forgotten_in_files_and_records(s3_bucket: Any) -> None:
    """As docs/guides/forgetting-a-person.md has it."""
    table = Table(f"s3://{s3_bucket.name}/kept")
    rows = pa.table({"id": [1, 7], "name": ["somebody", "forgotten"]})
    with table.job(rows.schema) as job:
        job.write(rows)
    former = {file.key for file in table.files()}
    invoke("delete", table.root.url, "--where", "id = 7", "--apply")
    while as_json("gc", table.root.url, "--older-than", "0s")["condensed"] < 2:
        pass  # The store's dates are whole seconds.
    invoke("gc", table.root.url, "--older-than", "0s", "--apply")
    invoke("index", table.root.url)
    left = set(s3_bucket.keys("kept/"))
    assert not former & left
    bodies = [s3_bucket.client.get_object(Bucket=s3_bucket.name, Key=key) for key in left]
    assert not [it for it in bodies if b"forgotten" in it["Body"].read()]
    assert ids(table) == {1}
