"""Partitions that a job names: spelled as the table stores them, or refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.memory_store import MemoryStore
from support.protocol import memory_table, put_rows
from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.layout import UNPARTITIONED

SCHEMA = pa.schema([("k", pa.int64()), ("day", pa.int32())])
BEFORE = [{"k": 1, "day": 1}, {"k": 2, "day": 2}]


@pytest.fixture
def table() -> Table:
    return memory_table(MemoryStore())


def put(table: Table, rows: list[dict[str, Any]], **policy: Any) -> Any:
    return put_rows(table, SCHEMA, rows, **policy)


def held(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize("spelling", ["day=01", "Day=1", "/day=1/"])
def test_a_partition_to_replace_is_emptied_in_whatever_spelling(
    table: Table, spelling: str
) -> None:
    put(table, BEFORE, partition_by=["day"])
    done = put(table, [], mode="overwrite", replace_partitions=[spelling])
    assert [it.partition for it in done.partitions] == ["day=1"]
    assert held(table) == BEFORE[1:]


@pytest.mark.parametrize("policy", ["replace_partitions", "only_partitions"])
def test_rows_of_a_partition_that_is_named_in_another_spelling_are_written(
    table: Table, policy: str
) -> None:
    put(table, BEFORE, partition_by=["day"], mode="overwrite", **{policy: ["day=01", "day=2"]})
    assert held(table) == BEFORE
    put(table, [{"k": 9, "day": 1}], mode="overwrite", **{policy: ["day=01"]})
    assert held(table) == [BEFORE[1], {"k": 9, "day": 1}]


def test_a_merge_may_write_a_partition_that_is_named_in_another_spelling(table: Table) -> None:
    put(table, BEFORE, partition_by=["day"])
    rows = pa.Table.from_pylist([{"k": 9, "day": 1}], SCHEMA)
    done = table.merge(rows, on=["k"], only_partitions=["day=01"])
    assert (done.rows.inserted, len(held(table))) == (1, 3)


@pytest.mark.parametrize("policy", ["replace_partitions", "only_partitions"])
@pytest.mark.parametrize("named", [["x=1"], ["day=a"], ["day="], [""], ["day=1/hour=1"]])
def test_a_partition_that_the_table_cannot_have_is_refused(
    table: Table, policy: str, named: list[str]
) -> None:
    put(table, BEFORE, partition_by=["day"])
    before = table.snapshot().versions
    with pytest.raises(InvalidInputError):
        put(table, [], mode="overwrite", **{policy: named})
    assert (held(table), table.snapshot().versions) == (BEFORE, before)


@pytest.mark.parametrize("policy", ["replace_partitions", "only_partitions"])
def test_a_partition_of_an_unpartitioned_table_is_refused_but_its_only_one(
    table: Table, policy: str
) -> None:
    put(table, BEFORE, partition_by=[])
    with pytest.raises(InvalidInputError, match="'day=1' is no partition of this table"):
        put(table, [], mode="overwrite", **{policy: ["day=1"]})
    with pytest.raises(InvalidInputError, match="'day=1' is no partition of this table"):
        table.snapshot(["day=1"])
    put(table, BEFORE[:1], mode="overwrite", **{policy: [UNPARTITIONED]})
    assert held(table) == BEFORE[:1]


@pytest.mark.parametrize("policy", ["replace_partitions", "only_partitions"])
@pytest.mark.parametrize("given", ["", "day=1", [1], [None]])
def test_what_is_not_a_list_of_partition_paths_is_refused_by_name(
    table: Table, policy: str, given: Any
) -> None:
    put(table, BEFORE, partition_by=["day"])
    with pytest.raises(InvalidInputError, match=f"{policy}=.* is not a list of partition paths"):
        put(table, [], mode="overwrite", **{policy: given})
    if policy == "only_partitions":
        with pytest.raises(InvalidInputError, match=f"{policy}=.* is not a list"):
            table.merge(SCHEMA.empty_table(), on=["k"], only_partitions=given)
    assert held(table) == BEFORE


@pytest.mark.parametrize(
    "policy",
    [{"replace_partitions": ["day=1"]}, {"replace_partitions": []}, {"replace_table": True}],
)
@pytest.mark.parametrize("mode", ["append", "fail-if-exists"])
def test_what_is_to_be_replaced_is_refused_without_mode_replace(
    table: Table, policy: dict[str, Any], mode: str
) -> None:
    put(table, BEFORE, partition_by=["day"])
    with pytest.raises(InvalidInputError, match=f"and its mode is {mode}"):
        put(table, [{"k": 9, "day": 3}], mode=mode, **policy)
    assert held(table) == BEFORE
