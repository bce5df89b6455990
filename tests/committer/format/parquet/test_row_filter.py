"""Filters: the rows that plain pyarrow keeps, however many row groups are left out."""

from __future__ import annotations

import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.arrow_data import COLUMNS, rows_of, table_of
from support.conditions import ROWS, SCHEMA, TYPES, conditions
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.parquet.row_filter import RowFilter, comparison

CONDITIONS = conditions(*TYPES)


def stored(table: pa.Table, **more: Any) -> pq.ParquetFile:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **more)
    return pq.ParquetFile(pa.BufferReader(buffer.getvalue()))


def kept(table: pa.Table, row_filter: RowFilter, groups: Any) -> list[Any]:
    rows = stored(table, row_group_size=2).read_row_groups(groups).cast(table.schema)
    return [row for b in rows.to_batches() for row in rows_of(pa.table(row_filter.keep(b)))]


def check(table: pa.Table, condition: pc.Expression) -> None:
    row_filter = RowFilter([condition], table.schema)
    groups = row_filter.row_groups(stored(table, row_group_size=2), {})
    assert kept(table, row_filter, list(groups)) == rows_of(table.filter(condition))


@given(ROWS, CONDITIONS)
def test_no_row_is_lost_or_added(rows: list[dict[str, Any]], condition: pc.Expression) -> None:
    check(pa.Table.from_pylist(rows, SCHEMA), condition)


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=40)
@given(st.data())
def test_no_row_is_lost_or_added_by_a_filter_of_one_column(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    check(pa.table({name: pa.array(column, kind)}), data.draw(conditions(name)))


@given(ROWS, CONDITIONS)
def test_a_partitions_values_leave_no_wanted_row_out(
    rows: list[dict[str, Any]], condition: pc.Expression
) -> None:
    table = pa.Table.from_pylist(rows[:1], SCHEMA)
    row_filter = RowFilter([condition], SCHEMA)
    values = {name: pa.scalar(rows[0][name], SCHEMA.field(name).type) for name in SCHEMA.names}
    assert row_filter.may_keep(values) == bool(table.filter(condition).num_rows)
    few = {name: values[name] for name in ("i", "s", "day")}
    assert row_filter.may_keep(few) or not table.filter(condition).num_rows


def groups_of(table: pa.Table, condition: Any, schema: pa.Schema | None = None) -> list[int]:
    row_filter = RowFilter([condition], schema or table.schema)
    return list(row_filter.row_groups(stored(table, row_group_size=2), {}))


class TestRowGroups:
    TABLE = pa.table({"n": [1, 2, 3, 4, 5, 6], "x": [1.0, math.nan, 1.0, 1.0, None, None]})

    def test_those_out_of_bounds_are_left_out(self) -> None:
        assert groups_of(self.TABLE, pc.field("n") > 4) == [2]
        assert groups_of(self.TABLE, [("n", ">", 2), ("n", "<", 4)]) == [1]
        assert groups_of(self.TABLE, [[("n", "=", 1)], [("n", "=", 6)]]) == [0, 2]

    def test_a_nan_beside_ones_is_not_one(self) -> None:
        """Arrow's own fragments lose it (statistics say nothing of NaN)."""
        assert groups_of(self.TABLE, pc.field("x") != 1.0) == [0, 1]
        assert groups_of(self.TABLE, ~(pc.field("x") <= 1.0)) == [0, 1]
        assert groups_of(self.TABLE, pc.field("x") > 1.0) == []

    def test_nulls_alone_are_nothing_but_null(self) -> None:
        assert groups_of(self.TABLE, pc.field("x").is_null()) == [2]

    def test_a_column_that_is_wider_in_the_table(self) -> None:
        narrow = pa.table({"n": pa.array([1, 2, 3, 4], pa.int8())})
        wide = pa.schema([("n", pa.int64())])
        assert groups_of(narrow, pc.field("n") > 1000, wide) == []
        assert groups_of(narrow, pc.field("n") > 2, wide) == [1]

    def test_a_column_that_the_file_lacks_is_null(self) -> None:
        schema = pa.schema([("n", pa.int64()), ("new", pa.string())])
        row_filter = RowFilter([pc.field("new") == "a"], schema)
        file = stored(pa.table({"n": [1]}))
        assert list(row_filter.row_groups(file, {}, ["new"])) == []


@pytest.mark.parametrize("name", COLUMNS)
def test_bounds_of_every_type_hold(name: str) -> None:
    table = table_of({name: COLUMNS[name]})
    for value in table[name]:
        if value.is_valid and not pa.types.is_nested(value.type):
            assert groups_of(table, pc.field(name) == value), value


def test_a_long_text_that_arrow_shows_cut_within_a_character() -> None:
    table = pa.table({"n": [1, 2], "s": ["ü" * 200, "a" + "ü" * 200]})
    for text in table["s"].to_pylist():
        row_filter = RowFilter([pc.field("s") == text], table.schema)
        assert row_filter.columns == ("s",)
        assert kept(table, row_filter, [0]) == rows_of(table.filter(pc.field("s") == text))


class TestRefused:
    SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])

    @pytest.mark.parametrize(
        "condition",
        ["n > 4", pc.field("m") > 4, pc.field("n") + 1, [("n", "~", 4)], pc.field("s") > 4],
        ids=str,
    )
    def test_what_is_no_condition_over_the_columns(self, condition: Any) -> None:
        with pytest.raises(InvalidInputError, match="filter") as caught:
            RowFilter([condition], self.SCHEMA)
        assert "pyarrow.compute.field" in str(caught.value)

    def test_columns_by_number_or_inside_others_are_found(self) -> None:
        assert RowFilter([pc.field(0) > 4], self.SCHEMA).columns == ("n",)
        nested = pa.schema([("a", pa.struct([("b", pa.int64())])), ("n", pa.int64())])
        assert RowFilter([pc.field("a", "b") > 4], nested).columns == ("a",)


class TestColumnsByNumber:
    """A number means a column of the table, whichever columns a batch has."""

    TABLE = pa.table({"x": [1, 6, 9], "a": [7, 7, 0], "s": ["u", "v", "w"]})
    FILTERS = pytest.mark.parametrize(
        ("condition", "columns", "expected"),
        [
            (pc.field(0) > 5, ["x"], ["v", "w"]),
            ((pc.field(0) > 5) & (pc.field("a") > 3), ["x", "a"], ["v"]),
            ((pc.field(0) > 5) & (pc.field("s") != "aa" + "ü" * 200), ["x", "s"], ["v", "w"]),
        ],
        ids=["alone", "beside a name", "beside a long text"],
    )

    @FILTERS
    def test_batch_with_the_used_columns_alone_is_filtered_by_the_tables_column(
        self, condition: pc.Expression, columns: list[str], expected: list[str]
    ) -> None:
        row_filter = RowFilter([condition], self.TABLE.schema)
        assert list(row_filter.columns) == columns
        (batch,) = self.TABLE.select(dict.fromkeys(["s", *columns])).to_batches()
        assert row_filter.keep(batch)["s"].to_pylist() == expected
        dropped = row_filter.drop(batch)["s"].to_pylist()
        assert sorted(expected + dropped) == ["u", "v", "w"]
        assert self.TABLE["s"].filter(row_filter.holds(self.TABLE)).to_pylist() == expected

    def test_partition_is_chosen_by_the_tables_column(self) -> None:
        row_filter = RowFilter([pc.field(1) == 7], self.TABLE.schema)
        assert row_filter.may_keep({"a": pa.scalar(7)})
        assert not row_filter.may_keep({"a": pa.scalar(0)})

    def test_condition_on_record_means_the_tables_column(self) -> None:
        text = RowFilter([pc.field(1) == 7], self.TABLE.schema).encode(["a"])
        assert text is not None
        (batch,) = self.TABLE.to_batches()
        assert RowFilter.decode(text).keep(batch)["s"].to_pylist() == ["u", "v"]


class TestOnRecord:
    """Substrait has comparisons with each value in place of a test for one of several."""

    TABLE = pa.table({"i": [1, 2, None], "x": [1.0, math.nan, None]})
    NUMBER, FLOAT = pc.field("i"), pc.field("x")

    @pytest.mark.parametrize(
        "condition",
        [
            *(
                NUMBER.isin([1, 5]),
                NUMBER.isin([1]) & (FLOAT > 0),
                NUMBER.isin([1]) | FLOAT.isin([1.0]),
                ~(NUMBER == 1),
            ),
            *(NUMBER > 1, NUMBER.is_null(), pa.scalar(None, pa.int64()) != NUMBER, FLOAT != 1.0),
        ],
        ids=str,
    )
    def test_condition_that_its_text_keeps_is_sure(self, condition: pc.Expression) -> None:
        text = RowFilter([condition], self.TABLE.schema).encode([])
        assert text is not None
        kept = RowFilter.decode(text)
        assert not kept.is_unsure
        (batch,) = self.TABLE.select(kept.schema.names).to_batches()
        expected = self.TABLE.filter(condition).select(kept.schema.names)
        assert rows_of(pa.table(kept.keep(batch))) == rows_of(expected)

    @pytest.mark.parametrize(
        "condition",
        [
            *(
                ~NUMBER.isin([1]),
                NUMBER.isin([1, None]),
                FLOAT.isin([math.nan]),
                NUMBER.isin([1]).is_null(),
            ),
            *(NUMBER.isin([1]) == pc.scalar(False), ~NUMBER.isin([1]) & (FLOAT > 0)),
        ],
        ids=str,
    )
    def test_condition_that_may_differ_for_null_says_so(self, condition: pc.Expression) -> None:
        text = RowFilter([condition], self.TABLE.schema).encode([])
        assert text is not None
        assert RowFilter.decode(text).is_unsure


#: NaN is larger than any number, and equals itself, as in Spark.
ORDER = [-math.inf, -1.0, 0.0, 5.0, 6.0, math.inf, math.nan]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("value", ["5", "0", "-0.0", "-1.0", "inf", "nan", "'NaN'"])
def test_text_of_a_comparison_means_the_rows_that_it_means_for_spark(
    kind: pa.DataType, value: str
) -> None:
    """A deletion by the command line left NaN, which Spark's deletes."""
    table = pa.table({"x": pa.array([*ORDER, None], kind)})
    given = float(value.strip("'"))
    at = len(ORDER) - 1 if math.isnan(given) else ORDER.index(given)
    wanted = {
        "=": ORDER[at : at + 1],
        "!=": ORDER[:at] + ORDER[at + 1 :],
        "<": ORDER[:at],
        "<=": ORDER[: at + 1],
        ">": ORDER[at + 1 :],
        ">=": ORDER[at:],
    }
    for how, values in wanted.items():
        condition = comparison(f"x {how} {value}", table.schema, "--where")
        check(table, condition)
        found = table.filter(condition)["x"].to_pylist()
        assert str(found) == str(values), how
        known = RowFilter([condition], table.schema).encode(())
        assert known is not None
        kept = RowFilter.decode(known).holds(table)
        assert str(table.filter(kept)["x"].to_pylist()) == str(values), how
