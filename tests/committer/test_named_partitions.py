"""Partitions that a job names: spelled as the table stores them, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import Bucket

from support.memory_store import MemoryStore
from support.protocol import memory_table, put_rows
from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

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


@pytest.mark.parametrize("spelling", ["day=1", "day=01", "Day=1", "/day=1/"])
def test_the_past_of_a_partition_is_found_by_its_name_in_whatever_spelling(
    table: Table, spelling: str
) -> None:
    done = put(table, BEFORE, partition_by=["day"])
    found = table.partition_history(spelling)
    assert (found.partition, found.version) == ("day=1", 1)
    assert [it.job.job for it in found.entries] == [done.job]
    marker = table.marker(spelling)
    assert marker is not None
    assert (marker.job, len(marker.filenames)) == (done.job, 1)


def test_marker_of_a_partition_that_the_table_cannot_have_is_none(table: Table) -> None:
    put(table, BEFORE, partition_by=["day"])
    assert table.marker("month=1") is None
    assert table.partition_history("month=1").version == 0


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


#: Names of one partition as programs have them.
NAMES: dict[str, Callable[[], Any]] = {
    "generator": lambda: (name for name in ["day=01"]),
    "keys": lambda: {"day=01": 1}.keys(),
    "mapping": lambda: {"day=01": 1},
    "set": lambda: {"day=01"},
    "array": lambda: np.array(["day=01"]),
    "series": lambda: pd.Series(["day=01"], index=["other"]),
    "arrow": lambda: pa.chunked_array([["day=01"]]),
}


@pytest.mark.parametrize("kind", ["directories", "delta"])
@pytest.mark.parametrize("given", NAMES.values(), ids=NAMES)
def test_partitions_are_named_by_whatever_can_be_gone_through(
    s3_bucket: Bucket, kind: str, given: Callable[[], Any]
) -> None:
    root = f"s3://{s3_bucket.name}/flights"
    table = Table(root) if kind == "directories" else DeltaTable(root)
    rows = pa.Table.from_pylist(BEFORE, SCHEMA)
    with table.job(SCHEMA, partition_by=["day"]) as job:
        job.write(rows)
    assert table.scan(given()).to_arrow()["k"].to_pylist() == [1]
    assert table.scan(given(), filter=[("k", ">", 0)]).count() == 1
    assert table.snapshot(given()).by_partition().keys() == {"day=1"}
    assert table.delete([("k", ">", 0)], partitions=given(), apply=False).rows.deleted == 1
    with table.job(SCHEMA, mode="overwrite", replace_partitions=given()) as job:
        pass
    assert table.scan().to_arrow()["k"].to_pylist() == [2]


def test_deletion_that_is_computed_anew_still_has_the_partitions_that_came_once(
    table: Table,
) -> None:
    put(table, BEFORE, partition_by=["day"])
    others = iter([lambda: put(table, [{"k": 9, "day": 1}])])
    state_to_change = table.state_to_change

    def beside(partitions: Any) -> Any:
        state = state_to_change(partitions)
        next(others, lambda: None)()
        return state

    table.state_to_change = beside  # type: ignore[method-assign]
    once: Any = (name for name in ["day=1"])
    done = table.delete([("k", ">", 0)], partitions=once)
    assert (done.rows.deleted, held(table)) == (2, BEFORE[1:])


@pytest.mark.parametrize("given", [5, [None], [1], "day=1", [["day=1"]]])
def test_what_is_no_list_of_partitions_is_refused(table: Table, given: Any) -> None:
    put(table, BEFORE, partition_by=["day"])
    for ask in (table.scan, table.snapshot, table.compact):
        with pytest.raises(InvalidInputError, match="not a list of partitions"):
            ask(given)
    with pytest.raises(InvalidInputError, match="not a list of partition paths"):
        table.job(SCHEMA, replace_partitions=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": -1}, "limit=-1 is not a number of rows"),
        ({"limit": 1.5}, "limit=1.5 is not a number of rows"),
        ({"limit": True}, "limit=True is not a number of rows"),
        ({"columns": "delay"}, "columns is the text 'delay', not a list"),
    ],
)
def test_scan_that_cannot_be_meant_is_refused(
    table: Table, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        table.scan(**given)


def test_a_refused_partition_of_a_scan_names_the_table(table: Table) -> None:
    put(table, BEFORE, partition_by=["day"])
    with pytest.raises(InvalidInputError, match=rf"dy=1.*\[table {table.root.url}\]"):
        table.scan(["dy=1"]).to_arrow()


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_a_text_for_the_partition_columns_is_refused(
    kind: type[Table | DeltaTable], table: Table
) -> None:
    """It would name a column by each of its letters: a table by ``a`` and ``b``."""
    rows = pa.table({"a": [1], "b": [2], "c": [3]})
    other = kind(f"{table.root.url}_of_letters")
    asked = r"partition_by='ab'.*partition_by=\['ab'\]"
    with pytest.raises(InvalidInputError, match=asked):
        other.job(rows.schema, partition_by="ab")
    with pytest.raises(InvalidInputError, match=asked):
        other.merge(rows, on=["c"], partition_by="ab")
