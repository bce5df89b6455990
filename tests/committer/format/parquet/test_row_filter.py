"""Filters: the rows that plain pyarrow keeps, however many row groups are left out."""

from __future__ import annotations

import datetime as dt
import io
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.arrow_data import COLUMNS, rows_of, table_of
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.parquet.row_filter import RowFilter

#: A column of each type that has an order, with values that lie close together.
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int32(), st.integers(-3, 3)),
    "u": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "x": (pa.float64(), st.sampled_from([-math.inf, -0.0, 0.0, 1.0, 2.5, math.nan])),
    "y": (pa.float32(), st.sampled_from([-1.0, 0.0, 1.0, math.nan])),
    "d": (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.50"), Decimal("0"), Decimal("2.25")])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ü", "😀"])),
    "t": (pa.timestamp("us", "UTC"), st.sampled_from([dt.datetime(1, 1, 1, tzinfo=dt.UTC)])),
    "day": (pa.date32(), st.sampled_from([dt.date(2013, 1, n) for n in (1, 2, 3)])),
    "b": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
ROWS = st.lists(
    st.fixed_dictionaries({n: st.none() | values for n, (_, values) in TYPES.items()}),
    min_size=1,
    max_size=12,
)


@st.composite
def comparisons(draw: st.DrawFn, names: tuple[str, ...]) -> pc.Expression:
    name = draw(st.sampled_from(names))
    kind, values = TYPES[name]
    field, value = pc.field(name), pa.scalar(draw(values), kind)
    several = pa.array(draw(st.lists(st.none() | values, max_size=3)), kind)
    choices = [
        *(field == value, field != value, field < value, field <= value, field > value),
        *(field >= value, field.is_null(), field.is_valid(), field.isin(several)),
    ]
    if pa.types.is_floating(kind):
        choices += [field.is_nan(), field.is_null(nan_is_null=True), field * -1 > value]
    return draw(st.sampled_from(choices))


def conditions(*names: str) -> st.SearchStrategy[pc.Expression]:
    return st.recursive(
        comparisons(names),
        lambda inner: (
            inner.map(lambda one: ~one)
            | st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1])
            | st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1])
        ),
        max_leaves=3,
    )


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
        assert RowFilter([pc.field(0) > 4], self.SCHEMA).columns == ("n", "s")
        nested = pa.schema([("a", pa.struct([("b", pa.int64())])), ("n", pa.int64())])
        assert RowFilter([pc.field("a", "b") > 4], nested).columns == ("a",)
