"""Partition values to directory names and back: nothing may change on the way."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.arrow_data import PARTITION_VALUES
from zero_rename.committer.errors import InvalidInputError, UnsupportedTypeError
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot
from zero_rename.committer.format.schema.hive_paths import (
    NULL,
    check_partition_type,
    escape,
    format_values,
    normalise_partition,
    parse_partition,
    partition_path,
    partition_values,
    unescape,
)


def same(left: Any, right: Any) -> bool:
    """Equal, of one type, of one sign (zeros differ), and NaN equal to NaN."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return left == right and type(left) is type(right)


def schema_of(kind: pa.DataType, column: str = "p") -> pa.Schema:
    return pa.schema([pa.field(column, kind), pa.field("v", pa.int64())])


def test_escapes_what_spark_escapes() -> None:
    # As ExternalCatalogUtils.escapePathName of Spark 4.3.0 answers for these code points, and
    # NUL besides, which no key can hold.
    expected = {*range(1, 32), *map(ord, "\"#%'*/:=?\\{[]^"), 127, 0}
    assert {code for code in range(0x250) if escape(chr(code)) != chr(code)} == expected
    assert escape("a/b:é") == "a%2Fb%3Aé"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        *(("a%20b", "a b"), ("a%", "a%"), ("a%2", "a%2"), ("a%zz", "a%zz"), ("%2f", "/")),
        *(("Z%C3%BCrich", "Zürich"), ("%E6%9D%B1%e4%ba%ac", "東京"), ("é%3A%C3%A9", "é:é")),
    ],
)
def test_escaped_bytes_are_read_as_utf8(raw: str, text: str) -> None:
    assert unescape(raw) == text
    assert parse_partition(f"p={raw}") == [("p", raw)]


@pytest.mark.parametrize("raw", ["%C3", "Z%FCrich", "%C3ü", "%BC", "%ED%A0%80", "%c3%20"])
def test_escaped_bytes_that_are_not_utf8_are_refused_by_name(raw: str) -> None:
    for path in (f"p={raw}", f"{raw}=1"):
        with pytest.raises(InvalidInputError, match=re.escape(repr(raw)) + ".* not UTF-8"):
            parse_partition(path)


VALUES = ["Zürich", "東京", "São Paulo/50%", "a=b&c+d", "naïve:ß", "😀", "\u00ff"]


def _by_pyarrow(table: pa.Table, folder: str) -> None:
    pds.write_dataset(
        table, folder, format="parquet", partitioning=["p"], partitioning_flavor="hive"
    )


def _by_pandas(table: pa.Table, folder: str) -> None:
    table.to_pandas().to_parquet(folder, partition_cols=["p"])


def _by_duckdb(table: pa.Table, folder: str) -> None:
    duckdb.from_arrow(table).to_parquet(folder, partition_by=["p"])


def _by_polars(table: pa.Table, folder: str) -> None:
    frame = cast(pl.DataFrame, pl.from_arrow(table))
    target: Any = pl.PartitionBy(folder, key="p")  # Its stubs do not have it yet.
    frame.write_parquet(target, mkdir=True)


@pytest.mark.parametrize("write", [_by_pyarrow, _by_pandas, _by_duckdb, _by_polars])
def test_directories_of_other_writers_are_read_as_the_values_they_wrote(
    tmp_path: Path, write: Callable[[pa.Table, str], None]
) -> None:
    write(pa.table({"p": VALUES, "v": range(len(VALUES))}), str(tmp_path / "t"))
    names = [path.name for path in (tmp_path / "t").iterdir()]
    found = [partition_values(name, schema_of(pa.string()), ["p"])["p"] for name in names]
    assert sorted(found) == sorted(VALUES)


@given(st.text())
def test_unescape_inverts_escape(text: str) -> None:
    assert unescape(escape(text)) == text
    assert "/" not in escape(text)


@pytest.mark.parametrize("name", PARTITION_VALUES)
@given(data=st.data())
def test_values_read_back_equal(name: str, data: st.DataObject) -> None:
    kind, values = PARTITION_VALUES[name]
    value = data.draw(st.none() | values)
    path = partition_path({"p": value}, schema_of(kind))
    found = partition_values(path, schema_of(kind), ["p"])["p"]
    assert same(found, value)
    assert normalise_partition(path, schema_of(kind), ["p"]) == path
    assert path.count("/") == 0


@given(column=PARTITION_VALUES["string"][1].filter(lambda name: name[0] not in "_."))
def test_column_names_read_back_equal(column: str) -> None:
    path = partition_path({column: 1})
    assert parse_partition(path) == [(column, "1")]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        # What Spark 4.3.0 casts these to.
        (pa.float64(), 1e7, "1.0E7"),
        (pa.float64(), 0.001, "0.001"),
        (pa.float64(), 1e-4, "1.0E-4"),
        (pa.float64(), 9999999.5, "9999999.5"),
        (pa.float64(), -math.inf, "-Infinity"),
        (pa.float64(), math.nan, "NaN"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float32(), 0.1, "0.1"),
        (pa.decimal128(20, 10), Decimal("1e-9"), "0.0000000010"),
        (pa.bool_(), True, "true"),
        (pa.date32(), dt.date(1, 1, 1), "0001-01-01"),
        (pa.time64("us"), dt.time(1, 2, 3, 120000), "01%3A02%3A03.12"),
        (pa.timestamp("us"), dt.datetime(2013, 1, 1), "2013-01-01 00%3A00%3A00"),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2013, 1, 1, 1, 0, 0, 120000, dt.timezone(dt.timedelta(hours=1))),
            "2013-01-01 00%3A00%3A00.12",
        ),
        (pa.string(), "", NULL),
        (pa.string(), None, NULL),
        (pa.string(), "..", ".."),
    ],
)
def test_values_are_written_as_spark_casts_them(kind: pa.DataType, value: Any, text: str) -> None:
    assert format_values("p", pa.array([value], kind)) == [text]


@pytest.mark.parametrize("value", [NULL, "x._COPYING_", "a\ufffeb", "a\uffffb", "\ud800"])
def test_values_that_would_change_are_refused(value: str) -> None:
    with pytest.raises(InvalidInputError, match="'p'"):
        partition_path({"p": value}, schema_of(pa.string()))


def test_values_beyond_python_are_refused() -> None:
    far = pa.array([10**7], pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidInputError, match="'p'"):
        format_values("p", far)
    broken = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidInputError, match="'p'"):
        format_values("p", broken)


def test_a_column_with_an_underscore_makes_directories_that_readers_see() -> None:
    """Spark skips ``_x``, and reads ``_x=1``."""
    assert partition_path({"_x": 1}) == "_x=1"
    root = TableRoot("b", "t")
    assert root.partition_of_data_key("t/_x=1/a.parquet") == "_x=1"
    for hidden in ("t/_x/a.parquet", "t/.x=1/a.parquet", "t/_x=1/_SUCCESS", "t/_x=1/.a=b"):
        assert root.partition_of_data_key(hidden) is None


@pytest.mark.parametrize("column", [".hidden", ""])
def test_columns_readers_skip_are_refused(column: str) -> None:
    with pytest.raises(InvalidInputError):
        partition_path({column: 1})


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.binary(3),
        pa.null(),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.string(), pa.int8()),
        pa.uuid(),
    ],
    ids=str,
)
def test_types_no_directory_can_hold_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match="'p'"):
        check_partition_type("p", kind)


@pytest.mark.parametrize(
    ("kind", "given_path", "canonical"),
    [
        (pa.int32(), "p=01", "p=1"),
        (pa.int32(), "/p=+1/", "p=1"),
        (pa.date32(), "p=2013-1-2", "p=2013-01-02"),
        (pa.timestamp("us", "UTC"), "p=2013-01-01 00:00:00", "p=2013-01-01 00%3A00%3A00"),
        (pa.timestamp("us", "UTC"), "p=2013-01-01T01:00:00+01:00", "p=2013-01-01 00%3A00%3A00"),
        (pa.timestamp("us"), "p=2013-01-01", "p=2013-01-01 00%3A00%3A00"),
        (pa.string(), "p=50%", "p=50%25"),
        (pa.string(), "p=a=b", "p=a%3Db"),
        (pa.string(), f"p={NULL}", f"p={NULL}"),
        (pa.bool_(), "p=TRUE", "p=true"),
        (pa.float64(), "p=10000000", "p=1.0E7"),
        (pa.decimal128(5, 2), "p=1.1", "p=1.10"),
    ],
)
def test_what_users_name_becomes_canonical(
    kind: pa.DataType, given_path: str, canonical: str
) -> None:
    assert normalise_partition(given_path, schema_of(kind), ["p"]) == canonical


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.int8(), "p=128"),
        (pa.int32(), "p=1_0"),
        (pa.int32(), "p=٣"),  # a digit, but not one to write
        (pa.int32(), "p=1.0"),
        (pa.int32(), "p="),
        (pa.string(), "p="),
        (pa.bool_(), "p=1"),
        (pa.float64(), "p=1e400"),
        (pa.float32(), "p=1e39"),
        (pa.float64(), "p=0x1p3"),
        (pa.decimal128(5, 2), "p=1.111"),
        (pa.decimal128(5, 2), "p=NaN"),
        (pa.date32(), "p=2013-02-30"),
        (pa.date32(), "p=20130101"),
        (pa.timestamp("us"), "p=2013-01-01 00:00:00Z"),
        (pa.time64("us"), "p=25:00:00"),
        (pa.string(), "p=a/b"),
        (pa.string(), "q=a"),
        (pa.string(), "pp=a"),
        (pa.string(), "p=a/p=b"),
        (pa.string(), ""),
        (pa.string(), UNPARTITIONED),
    ],
)
def test_what_is_no_partition_is_refused(kind: pa.DataType, path: str) -> None:
    with pytest.raises(InvalidInputError):
        normalise_partition(path, schema_of(kind), ["p"])


@pytest.mark.parametrize("path", ["p=a/p=b", "p=a/q=b/p=a", "p%2F=a/p%2f=b"])
def test_a_path_that_names_a_column_twice_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="names a column twice"):
        parse_partition(path)


@given(st.text() | st.lists(st.text(), max_size=4).map("=".join) | st.just("a=b/../c=d"))
def test_parsing_untrusted_paths_refuses_or_inverts(path: str) -> None:
    try:
        found = parse_partition(path)
    except InvalidInputError:
        return
    parts = [] if path == UNPARTITIONED else [part.partition("=") for part in path.split("/")]
    assert found == [(unescape(name), raw) for name, _, raw in parts]


def test_unpartitioned_tables_have_one_partition() -> None:
    schema = schema_of(pa.int8())
    assert partition_path({}) == UNPARTITIONED
    assert partition_values(UNPARTITIONED, schema, []) == {}
    assert normalise_partition(UNPARTITIONED, schema, []) == UNPARTITIONED
    with pytest.raises(InvalidInputError, match="not partitioned"):
        normalise_partition("p=1", schema, [])


def test_users_name_columns_in_any_order_and_case() -> None:
    schema = pa.schema([("year", pa.int32()), ("name", pa.string())])
    by = ["year", "name"]
    assert normalise_partition("name=M%2FS/year=02013", schema, by) == "year=2013/name=M%2FS"
    assert normalise_partition("NAME=x/Year=1", schema, by) == "year=1/name=x"
    doubled = ("name=x/name=y", "year=1/name=x/NAME=y", "YEAR=1/year=2")
    for path in ("name=x", "name=x/year=1/day=2", "month=1/name=x", *doubled):
        with pytest.raises(InvalidInputError):
            normalise_partition(path, schema, by)


def test_order_of_columns_matters() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("v", pa.int8())])
    assert partition_values("b=1/a=2", schema, ["b", "a"]) == {"b": 1, "a": 2}
    with pytest.raises(InvalidInputError, match="b=…/a=…") as caught:
        partition_values("a=2/b=1", schema, ["b", "a"])
    assert "a=2/b=1" in str(caught.value)
