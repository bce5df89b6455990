"""Columns that expressions of a change of rows name, decided without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from zero_rename.committer import InvalidInputError, TableRoot
from zero_rename.spark.changing.changed_rows import reads_table
from zero_rename.spark.changing.merge_source import MergeRules, _SourceReading
from zero_rename.spark.changing.row_edits import _Edit

QUOTED_NAMES = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}


def session(**conf: str) -> Any:
    return SimpleNamespace(conf=conf)


def serves(condition: str, column: str, **conf: str) -> bool:
    return MergeRules(("id",), delete_when=condition).serves(column, session(**conf))


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("closed", "closed"),
        ("not Closed", "closed"),
        ("source.closed", "closed"),
        ("`closed` or false", "closed"),
        ("`source`.`is closed`", "is closed"),
        ("op = 'it''s' and closed", "closed"),
        ("r'\\' = op and closed and op = 'x'", "closed"),
        ("source.source = 'shop'", "source"),
        ("source = 'shop'", "source"),
    ],
)
def test_column_that_a_condition_names_serves_it(condition: str, column: str) -> None:
    assert serves(condition, column)


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("op = 'closed'", "closed"),
        ('op = "closed"', "closed"),
        (r"op = 'it\'s closed'", "closed"),
        ("op = 'D' -- closed", "closed"),
        ("op = 'D' /* closed */", "closed"),
        ("is_closed", "closed"),
        ("source.op = 'D'", "source"),
        ("`source`.op = 'D' and target . n > 1", "source"),
        ("target.op = 'D'", "target"),
    ],
)
def test_word_in_a_text_or_a_comment_names_no_column(condition: str, column: str) -> None:
    """A new column of that name goes into the table: as one that serves the condition it would
    not."""
    assert not serves(condition, column)


def test_double_quotes_enclose_names_where_the_session_says_so() -> None:
    assert serves('"closed" = 1', "closed", **QUOTED_NAMES)
    assert not serves("op = 'closed'", "closed", **QUOTED_NAMES)


def test_latest_by_names_its_column_alone() -> None:
    rules = MergeRules(("id",), latest_by="read at")
    assert rules.serves("Read At", session())
    assert not rules.serves("at", session())


def test_struct_named_like_a_side_of_a_merge_is_the_tables_in_an_update() -> None:
    """An update by it changes rows again each time that it is made."""
    columns = ["id", "source", "price"]
    assert reads_table("source.factor * 2", columns, has_source=False)
    assert not reads_table("source.factor * 2", columns)
    assert reads_table("source.factor * price", columns)
    assert not reads_table("2", columns, has_source=False)


def reading(any_case: bool = True) -> _SourceReading:
    frame: Any = SimpleNamespace(columns=["id", "price", "op"], sparkSession=session())
    own = pa.schema([("id", pa.int64()), ("price", pa.int64())])
    return _SourceReading("s3://bucket/orders", frame, own, (), any_case)


def test_expression_for_a_column_that_only_serves_a_condition_is_refused() -> None:
    rules = MergeRules(("id",), {"op": "'x'"}, delete_when="op = 'D'")
    rules = reading().in_its_case(rules)
    stored = pa.schema([("id", pa.int64()), ("price", pa.int64()), ("op", pa.string())])
    schema = reading().merged_schema(stored, rules, is_first=False)
    with pytest.raises(InvalidInputError, match=r"when_matched\['op'\].* does not have"):
        reading().check_sets(rules, schema)


def test_two_expressions_for_one_column_are_refused() -> None:
    rules = MergeRules(("id",), {"price": "1", "Price": "2"})
    with pytest.raises(InvalidInputError, match="two expressions for the column 'price'"):
        reading().in_its_case(rules)
    with pytest.raises(InvalidInputError, match="when_matched names 'Price'"):
        reading(any_case=False).in_its_case(rules)


def test_two_expressions_of_an_update_for_one_column_are_refused() -> None:
    table: Any = SimpleNamespace(
        root=TableRoot.parse("s3://bucket/orders"),
        schema=pa.schema([("price", pa.int64())]),
        partition_by=(),
    )
    edit = _Edit(session(), table, "true", {"price": "1", "PRICE": "2"}, any_case=True)
    with pytest.raises(InvalidInputError, match="set has two expressions for the column 'price'"):
        edit.rows()
