"""Partitions whose values several engines have written, each in its own way."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from support.log_tables import COLUMNS, LogTable, day
from zero_rename.committer.errors import CommitConflictError
from zero_rename.log.actions import LogMetadata
from zero_rename.log.change import LogChange
from zero_rename.log.partitions import partition_of


def columns(kind: str) -> LogMetadata:
    """A table by days of another type."""
    struct = json.loads(COLUMNS.schema)
    struct["fields"][1]["type"] = kind
    return replace(COLUMNS, schema=json.dumps(struct))


#: By type: the text that is compared, and others of the same value.
TEXTS = {
    "timestamp": (
        "2013-01-01 05:00:00.000000",
        ("2013-01-01T05:00:00.000000Z", "2013-01-01 05:00:00", "2013-01-01T00:00:00-05:00"),
    ),
    "timestamp_ntz": ("2013-01-01 05:00:00.120000", ("2013-01-01 05:00:00.12",)),
    "double": ("10000000000.0", ("1.0E10", "10000000000")),
    "float": ("0.10000000149011612", ("0.1",)),
    "decimal(38,2)": (
        "123456789012345678901234567890123456.50",
        ("123456789012345678901234567890123456.5",),
    ),
    "boolean": ("true", ("True",)),
    **dict.fromkeys(("byte", "short", "integer", "long"), ("1", ("01", "+1"))),
    "date": ("2013-01-02", ("2013-1-2",)),
    "string": ("1.0E10", ()),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_one_value_are_one_partition(kind: str) -> None:
    compared, others = TEXTS[kind]
    for text in (compared, *others):
        assert partition_of({"day": text}, columns(kind)) == (compared,)


@pytest.mark.parametrize("kind", ["timestamp", "double", "decimal(5,2)", "date", "string"])
def test_null_and_the_empty_text_are_one_partition(kind: str) -> None:
    assert [partition_of({"day": text}, columns(kind)) for text in (None, "")] == [(None,)] * 2


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp", "noon"),
        ("decimal(5,2)", "1.505"),
        ("double", "1,5"),
        ("integer", "1_0"),
        ("date", "2013-13-1"),
    ],
)
def test_a_text_of_another_type_is_a_partition_of_its_own(kind: str, text: str) -> None:
    assert partition_of({"day": text}, columns(kind)) == (text,)


#: One point in time, as this package and as Spark writes it.
OURS, THEIRS = "2013-01-01 05:00:00.000000", "2013-01-01T05:00:00.000000Z"


@pytest.fixture
def table() -> LogTable:
    table = LogTable()
    table.make(columns("timestamp"))
    return table


def job(table: LogTable, partition: str, **more: Any) -> LogChange:
    return replace(table.job(partition, **more), columns=columns("timestamp"))


def test_replace_removes_files_whose_value_another_engine_has_spelled_otherwise(
    table: LogTable,
) -> None:
    table.commit(job(table, THEIRS))
    table.commit(job(table, OURS, replaced=day(OURS)))
    assert [it.values["day"] for it in table.open().state.live.values()] == [OURS]


def test_replace_beside_an_append_that_spells_the_value_otherwise_is_a_conflict(
    table: LogTable,
) -> None:
    ours = job(table, OURS, replaced=day(OURS))
    table.commit(job(table, THEIRS))
    with pytest.raises(CommitConflictError, match="changed partition"):
        table.commit(ours)


def test_replace_removes_files_of_a_number_that_another_engine_spelled_with_zeros() -> None:
    """Readers read ``month=01`` as 1, so a replace of 1 removes its rows."""
    table = LogTable()
    table.make(columns("integer"))
    table.commit(replace(table.job("01"), columns=columns("integer")))
    table.commit(replace(table.job("1", replaced=day("1")), columns=columns("integer")))
    assert [it.values["day"] for it in table.open().state.live.values()] == ["1"]
