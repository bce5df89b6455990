"""Fields of structs that come in another order than the table's, or under other names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from zero_rename.committer import InvalidInputError, Table, TableMismatchError
from zero_rename.spark import load, merge, save, stream, update

pytestmark = pytest.mark.spark

PRICE = pa.struct({"net": pa.int32(), "gross": pa.int32()})
SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "s": PRICE,
        "items": pa.list_(PRICE),
        "by_name": pa.map_(pa.string(), PRICE),
        "by_price": pa.map_(PRICE, pa.int32()),
        "deep": pa.struct(
            {"id": pa.int32(), "inner": pa.struct({"all": pa.list_(PRICE), "one": PRICE})}
        ),
        "p": pa.string(),
    }
)
#: The columns of a frame with the fields of each struct the other way round.
TURNED = "struct<gross:int,net:int>"
TURNED_COLUMNS = (
    f"k bigint, s {TURNED}, items array<{TURNED}>, by_name map<string,{TURNED}>, "
    f"by_price map<{TURNED},int>, "
    f"deep struct<inner:struct<one:{TURNED},all:array<{TURNED}>>,id:int>, p string"
)
EXPECTED_NULLS = {"s": None, "items": None, "by_name": None, "by_price": None, "deep": None}


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/lake/table"


def put(url: str, *prices: tuple[int, int, int], names: Sequence[str] = SCHEMA.names) -> None:
    """Write a row for each key, net and gross, which are the values of all its structs."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    found = [{name: expected(*it)[name] for name in names} for it in prices]
    with Table(url).job(schema, partition_by=["p"] if "p" in names else []) as job:
        job.write(pa.Table.from_pylist(found, schema))


def rows(spark: Any, *prices: tuple[int, int, int]) -> Any:
    """A frame of such rows, with the fields of each struct the other way round."""
    selects = []
    for key, net, gross in prices:
        one = f"named_struct('gross', {gross}, 'net', {net})"
        inner = f"named_struct('one', {one}, 'all', array({one}, null))"
        deep = f"named_struct('inner', {inner}, 'id', {net})"
        selects.append(
            f"select {key} as k, {one} as s, array({one}, null) as items, "
            f"map('a', {one}, 'b', null) as by_name, map({one}, 1) as by_price, "
            f"{deep} as deep, 'x' as p"
        )
    frame = spark.sql(" union all ".join(selects))
    return frame.select(
        *(frame[name].cast(kind).alias(name) for name, kind in _types(spark, TURNED_COLUMNS))
    )


def _types(spark: Any, columns: str) -> list[tuple[str, Any]]:
    return [(f.name, f.dataType) for f in spark.createDataFrame([], columns).schema.fields]


def expected(key: int, net: int, gross: int) -> dict[str, Any]:
    price = {"net": net, "gross": gross}
    return {
        "k": key,
        "s": price,
        "items": [price, None],
        "by_name": [("a", price), ("b", None)],
        "by_price": [(price, 1)],
        "deep": {"id": net, "inner": {"all": [price, None], "one": price}},
        "p": "x",
    }


def held(url: str) -> list[dict[str, Any]]:
    return sorted(Table(url).to_arrow().to_pylist(), key=lambda row: row["k"])


def test_merge_of_reordered_fields_updates_and_inserts_by_name(spark: Any, url: str) -> None:
    put(url, (1, 10, 12), (2, 30, 36))
    done = merge(rows(spark, (2, 20, 24), (3, 40, 48)), url, on=["k"])
    assert (done.rows.updated, done.rows.inserted) == (1, 1)
    assert held(url) == [expected(1, 10, 12), expected(2, 20, 24), expected(3, 40, 48)]


def test_merge_of_equal_reordered_structs_changes_nothing(spark: Any, url: str) -> None:
    columns = ("k", "s", "items", "deep")
    put(url, (1, 10, 12), names=columns)
    done = merge(rows(spark, (1, 10, 12)).select(*columns), url, on=["k"])
    assert (done.rows.unchanged, done.committed) == (1, None)


def test_merge_of_null_reordered_structs_keeps_them_null(spark: Any, url: str) -> None:
    put(url, (1, 10, 12))
    nulls = rows(spark, (1, 0, 0)).selectExpr(
        "k", *(f"if(k < 0, {name}, null) as {name}" for name in EXPECTED_NULLS), "p"
    )
    merge(nulls, url, on=["k"])
    assert held(url) == [{"k": 1, **EXPECTED_NULLS, "p": "x"}]


def test_expressions_of_reordered_fields_are_matched_by_name(spark: Any, url: str) -> None:
    put(url, (1, 10, 12), (2, 30, 36))
    changes = rows(spark, (1, 20, 24)).withColumn("other", _other())
    sets = {"s": "source.other", "items": "array(source.other, null)", "deep": "source.deep"}
    merge(changes, url, on=["k"], when_matched=sets)
    price = {"net": 5, "gross": 6}
    deep = expected(1, 20, 24)["deep"]
    assert held(url)[0] == {**expected(1, 10, 12), "s": price, "items": [price, None], "deep": deep}


def _other() -> Any:
    from pyspark.sql import functions as F

    return F.expr("named_struct('gross', 6, 'net', 5)")


def test_latest_by_a_reordered_struct_compares_by_name(spark: Any, url: str) -> None:
    put(url, (1, 1, 9))
    done = merge(rows(spark, (1, 2, 1)), url, on=["k"], latest_by="s")
    assert done.rows.updated == 1
    assert held(url) == [expected(1, 2, 1)]


def test_merge_that_widens_reordered_fields_keeps_every_value_under_its_name(
    spark: Any, url: str
) -> None:
    put(url, (1, 10, 12), (2, 30, 36))
    wider = rows(spark, (2, 20, 24))
    kinds = {f.name: f.dataType.simpleString() for f in wider.schema.fields}
    kinds = {name: kind.replace("int", "bigint") for name, kind in kinds.items()}
    casts = [f"cast({name} as {kinds[name]}) as {name}" for name in EXPECTED_NULLS]
    wider = wider.selectExpr("k", *casts, "p")
    merge(wider, url, on=["k"], schema_mode="merge")
    assert held(url) == [expected(1, 10, 12), expected(2, 20, 24)]
    assert [f.name for f in Table(url).schema.field("s").type] == ["net", "gross"]
    for by in ("auto", "zero_rename"):
        read = load(spark, url, columns=["k", "s"], by=by).where("k = 2").collect()
        assert [row["s"].asDict() for row in read] == [{"net": 20, "gross": 24}]


def test_save_that_widens_reordered_fields_keeps_every_value_under_its_name(
    spark: Any, url: str
) -> None:
    put(url, (1, 10, 12))
    wider = rows(spark, (2, 20, 24)).withColumn("s", _wide())
    save(wider, url, options={"mergeSchema": "true"})
    assert held(url) == [expected(1, 10, 12), expected(2, 20, 24)]
    for by in ("auto", "zero_rename"):
        read = load(spark, url, columns=["k", "s"], by=by).orderBy("k").collect()
        assert [row["s"].asDict() for row in read] == [
            {"net": 10, "gross": 12},
            {"net": 20, "gross": 24},
        ]


def _wide() -> Any:
    from pyspark.sql import functions as F

    return F.expr("cast(s as struct<gross:bigint,net:bigint>)")


def test_save_of_reordered_fields_appends_by_name(spark: Any, url: str) -> None:
    put(url, (1, 10, 12))
    save(rows(spark, (2, 20, 24)), url)
    assert held(url) == [expected(1, 10, 12), expected(2, 20, 24)]


def test_update_by_reordered_fields_sets_each_by_name(spark: Any, url: str) -> None:
    put(url, (1, 10, 12), (2, 30, 36))
    price = "named_struct('GROSS', 6, 'net', 5)"
    sets = {
        "s": price,
        "items": f"array({price}, null)",
        "by_name": f"map('a', {price}, 'b', null)",
        "by_price": f"map({price}, 1)",
        "deep": f"named_struct('inner', named_struct('one', {price}, 'all', array({price}, null)), "
        "'id', 5)",
    }
    update(url, set=sets, where="k = 2", spark=spark)
    assert held(url) == [expected(1, 10, 12), expected(2, 5, 6)]


def test_update_computes_a_reordered_struct_once_for_all_its_fields(spark: Any, url: str) -> None:
    put(url, (1, 10, 12))
    options = ", ".join(f"named_struct('gross', {n}, 'net', {n})" for n in range(50))
    update(
        url,
        set={"s": f"element_at(array({options}), 1 + cast(rand() * 49 as int))"},
        where="true",
        spark=spark,
    )
    [row] = held(url)
    assert row["s"]["net"] == row["s"]["gross"]


def test_an_expression_with_other_field_names_is_refused(spark: Any, url: str) -> None:
    put(url, (1, 10, 12))
    for column, text, named in (
        ("s", "named_struct('net', 2, 'tax', 3)", "s.tax"),
        ("s", "named_struct('net', 2)", "s.gross"),
        ("s", "named_struct('net', 2, 'gross', 3, 'tax', 4)", "s.tax"),
        ("s", "named_struct('net', 2, 'net', 3)", "s.net"),
        ("items", "array(named_struct('a', 2, 'b', 3))", "items[].a"),
        ("by_name", "map('k', named_struct('a', 2, 'b', 3))", "by_name.value.a"),
        ("by_price", "map(named_struct('a', 2, 'b', 3), 1)", "by_price.key.a"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            update(url, set={column: text}, where="k = 1", spark=spark)
        assert f"set['{column}']" in str(caught.value)
        assert named in str(caught.value)
    with pytest.raises(InvalidInputError) as caught:
        merge(rows(spark, (1, 20, 24)), url, on=["k"], when_matched={column: text})
    assert f"when_matched['{column}']" in str(caught.value)
    assert named in str(caught.value)
    assert held(url) == [expected(1, 10, 12)]


def test_a_frame_with_other_field_names_is_refused_by_merge_and_save(spark: Any, url: str) -> None:
    put(url, (1, 10, 12))
    other = rows(spark, (1, 20, 24)).withColumn("s", _renamed())
    for write in (lambda: merge(other, url, on=["k"]), lambda: save(other, url)):
        with pytest.raises(TableMismatchError, match=r"s\.tax"):
            write()
    assert held(url) == [expected(1, 10, 12)]


def _renamed() -> Any:
    from pyspark.sql import functions as F

    return F.expr("named_struct('tax', 1, 'net', 2)")


def test_stream_that_merges_reordered_fields_matches_by_name(
    spark: Any, url: str, tmp_path: Any
) -> None:
    put(url, (1, 10, 12))
    source = tmp_path / "source"
    source.mkdir()
    turned = {"gross": 24, "net": 20}
    row = {"k": 1, "s": turned, "items": [turned, None], "by_name": {"a": turned, "b": None}}
    row |= {"inner": {"one": turned, "all": [turned, None]}, "id": 20, "p": "x"}
    (source / "a.json").write_text(json.dumps(row) + "\n")
    columns = (
        f"k bigint, s {TURNED}, items array<{TURNED}>, by_name map<string,{TURNED}>, "
        f"inner struct<one:{TURNED},all:array<{TURNED}>>, id int, p string"
    )
    frame = (
        spark.readStream.schema(columns)
        .json(str(source))
        .selectExpr(
            *("k", "s", "items", "by_name", "map(s, 1) as by_price"),
            *("named_struct('inner', inner, 'id', id) as deep", "p"),
        )
    )
    checkpoint, once = str(tmp_path / "checkpoint"), {"availableNow": True}
    query = stream(frame, url, checkpoint=checkpoint, mode="merge", merge_on=["k"], trigger=once)
    query.awaitTermination()
    assert held(url) == [expected(1, 20, 24)]


def test_plain_merge_of_reordered_fields_updates_and_inserts_by_name(url: str) -> None:
    price = [pa.field("net", pa.int32()), pa.field("gross", pa.int32())]

    def table(fields: list[pa.Field], *prices: tuple[int, int, int]) -> pa.Table:
        kind = pa.struct(fields)
        values = [{"net": net, "gross": gross} for _, net, gross in prices]
        columns = {
            "k": pa.array([key for key, _, _ in prices], pa.int64()),
            "s": pa.array(values, kind),
            "items": pa.array([[value, None] for value in values], pa.list_(kind)),
            "by_name": pa.array([[("a", value)] for value in values], pa.map_(pa.string(), kind)),
        }
        return pa.table(columns)

    before = table(price, (1, 10, 12), (2, 30, 36))
    with Table(url).job(before.schema) as job:
        job.write(before)
    Table(url).merge(table(price[::-1], (2, 20, 24), (3, 40, 48)), on=["k"])
    assert held(url) == table(price, (1, 10, 12), (2, 20, 24), (3, 40, 48)).to_pylist()
    wider = [pa.field(it.name, pa.int64()) for it in price[::-1]]
    Table(url).merge(table(wider, (1, 50, 60)), on=["k"], schema_mode="merge")
    assert held(url) == table(price, (1, 50, 60), (2, 20, 24), (3, 40, 48)).to_pylist()
    assert [f.name for f in Table(url).schema.field("s").type] == ["net", "gross"]
