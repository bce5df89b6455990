"""Empty lists of partitions: they name none, so rows are refused, and none change nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.memory_store import MemoryStore
from support.protocol import memory_table, put_rows
from zero_rename.committer import InvalidInputError, Table, TableNotFoundError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import JobSpec, Mode
from zero_rename.committer.format.records.open_record import OpenRecord

SCHEMA = pa.schema([("k", pa.int64()), ("day", pa.string())])
BEFORE = [{"k": 1, "day": "a"}, {"k": 2, "day": "b"}]
POLICIES = [
    {"mode": "overwrite", "replace_partitions": []},
    {"mode": "overwrite", "only_partitions": []},
    {"mode": "append", "only_partitions": []},
    {"mode": "overwrite", "replace_partitions": [], "only_partitions": ["day=a"]},
]
#: Policies, and the partition columns of a table that can have what they name.
CASES = [*((it, ("day",)) for it in POLICIES), *((it, ()) for it in POLICIES[:3])]


@pytest.fixture
def table() -> Table:
    return memory_table(MemoryStore())


def put(table: Table, rows: list[dict[str, Any]], **policy: Any) -> Any:
    return put_rows(table, SCHEMA, rows, **policy)


def held(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize(("policy", "by"), CASES)
def test_rows_of_a_job_that_names_no_partition_are_refused(
    table: Table, policy: dict[str, Any], by: tuple[str, ...]
) -> None:
    put(table, BEFORE, partition_by=by)
    with pytest.raises(InvalidInputError, match="it names none"):
        put(table, [{"k": 9, "day": "a"}], **policy)
    assert held(table) == BEFORE


@pytest.mark.parametrize(("policy", "by"), CASES)
def test_no_rows_of_a_job_that_names_no_partition_change_nothing(
    table: Table, policy: dict[str, Any], by: tuple[str, ...]
) -> None:
    put(table, BEFORE, partition_by=by)
    before = table.snapshot().versions
    done = put(table, [], **policy)
    assert not done.partitions
    assert (held(table), table.snapshot().versions) == (BEFORE, before)


def test_a_first_job_that_names_no_partition_makes_no_row_visible(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="it names none"):
        put(table, BEFORE, partition_by=["day"], mode="overwrite", replace_partitions=[])
    with pytest.raises(TableNotFoundError):
        table.snapshot()


def test_a_whole_replace_that_may_write_no_partition_is_refused(table: Table) -> None:
    put(table, BEFORE, partition_by=["day"])
    with pytest.raises(InvalidInputError, match="may write no partition only"):
        put(table, [], mode="overwrite", replace_table=True, only_partitions=[])
    assert held(table) == BEFORE


def test_a_merge_that_may_write_no_partition_is_refused_where_a_row_changes(table: Table) -> None:
    put(table, BEFORE, partition_by=["day"])
    for rows in ([{"k": 1, "day": "b"}], [{"k": 9, "day": "c"}]):
        with pytest.raises(InvalidInputError, match="may write no partition only"):
            table.merge(pa.Table.from_pylist(rows, SCHEMA), on=["k"], only_partitions=[])
    done = table.merge(SCHEMA.empty_table(), on=["k"], only_partitions=[])
    assert (done.committed, held(table)) == (None, BEFORE)


def test_partitions_that_are_left_out_may_be_any(table: Table) -> None:
    for policy in ({}, {"replace_partitions": None, "only_partitions": None}):
        put(table, BEFORE, partition_by=["day"], mode="overwrite", **policy)
        assert held(table) == BEFORE
    spec = JobSpec(SCHEMA, Mode.REPLACE)
    assert spec.allowed_partitions is None
    assert OpenRecord.of("j", "w", spec).partitions == ()


@pytest.mark.parametrize("named", [None, (), ("day=a",)])
def test_a_handoff_tells_no_partition_from_any(named: tuple[str, ...] | None) -> None:
    said = Handoff(mode=Mode.REPLACE, partitions=named)
    assert Handoff.decode(said.encode()).partitions == named
    assert Handoff.decode({"ZERO_RENAME_HANDOFF": said.pack()}).partitions == named
