"""What is left unread because of a condition in SQL: nothing that Spark selects by it."""

from __future__ import annotations

import datetime as dt
import io
import logging
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zero_rename.committer.format.schema.hive_paths import partition_path
from zero_rename.spark.reading.predicate import read_predicate, row_filter, selected_partitions
from zero_rename.spark.types import spark_schema

NAN, INF = float("nan"), float("inf")
BY = ("p", "pn", "pd", "pat")
SCHEMA = pa.schema(
    {
        "n": pa.int32(),
        "small": pa.int8(),
        "l": pa.int64(),
        "s": pa.string(),
        "d": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "ntz": pa.timestamp("us"),
        "f": pa.float32(),
        "x": pa.float64(),
        "price": pa.decimal128(10, 2),
        "ok": pa.bool_(),
        "p": pa.string(),
        "pn": pa.int32(),
        "pd": pa.date32(),
        "pat": pa.timestamp("us", "UTC"),
    }
)
_MOMENTS = [dt.datetime(2013, 1, day, hour) for day in (1, 2, 3) for hour in (0, 4, 12, 23)]
_TEXTS = ["", "a", "A", "ab", "aé", "b", "x y", "7", "07", "2013-01-02", "é\U0001f600", "z%"]
VALUES: dict[str, list[Any]] = {
    "n": [-7, 0, 1, 7, 2013],
    "small": [-7, 0, 7, 100],
    "l": [-7, 0, 7, 2**53 + 1, 2**62],
    "s": _TEXTS,
    "d": [dt.date(2012, 12, 31), dt.date(2013, 1, 1), dt.date(2013, 1, 2)],
    "at": [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
    "ntz": _MOMENTS,
    "f": [0.1, 0.3, -0.0, 0.0, NAN, INF, 16777216.0],
    "x": [0.1, 0.3, -0.0, 0.0, 7.0, NAN, INF, float(2**53)],
    "price": [Decimal("-0.30"), Decimal("0.00"), Decimal("0.30"), Decimal("7.00")],
    "ok": [True, False],
    "p": [text for text in _TEXTS if text],
    "pn": [-7, 0, 7, 2013],
    "pd": [dt.date(2013, 1, 1), dt.date(2013, 1, 2)],
    "pat": [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS[::5]],
}
_NUMBERS = ["-7", "0", "1", "7", "0.3", "0.30", "-0.3", "7.0", "16777217", "9007199254740993", "7L"]
_STRINGS = ["'a'", "'A'", "'aé'", "'7'", "'07'", "''", "'x y'", "'z%'", '"a"', "'a' 'b'"]
_DATES = ["'2013-01-01'", "date'2013-01-02'", "cast('2013-01-01' as date)", "'2013-1-1'"]
_TIMES = [
    *("'2013-01-02'", "'2013-01-02 00:00:00'", "'2013-01-01T23:00:00'", "'2013-01-02 04:00:00.5'"),
    *("timestamp'2013-01-02 00:00:00'", "timestamp_ntz'2013-01-02 12:00:00'", "date'2013-01-02'"),
    *("'2013-01-02T00:00:00Z'", "'2013-01-02 04:00:00+05:30'", "'2013-01-01 12:00:00-08:00'"),
]
LITERALS = {
    **dict.fromkeys(("n", "small", "f", "price", "pn"), _NUMBERS),
    "l": [*_NUMBERS, "-7L", "cast(7 as bigint)", "cast('7' as bigint)"],
    "x": [*_NUMBERS, "0.3D", "-0.0D", "cast(0.3 as double)"],
    **dict.fromkeys(("s", "p"), _STRINGS),
    **dict.fromkeys(("d", "pd"), _DATES),
    **dict.fromkeys(("at", "ntz", "pat"), _TIMES),
    "ok": ["true", "false"],
}
_SYMBOLS = ["=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>"]


def one_condition(rng: random.Random, wild: float) -> str:
    """About one column, mostly with a literal of its kind."""
    column = rng.choice(list(LITERALS))
    literals = LITERALS[column]
    if rng.random() < wild:
        literals = [*_NUMBERS, *_STRINGS, *_DATES, *_TIMES, "null", "n", "upper('a')"]
    name = rng.choice([column, column.upper(), f"`{column}`"])
    if column == "l" and rng.random() < 0.3:
        name = "cast(l as bigint)"

    def literal() -> str:
        return rng.choice(literals)

    shapes: list[Callable[[], str]] = [
        lambda: f"{name} {rng.choice(_SYMBOLS)} {literal()}",
        lambda: f"{literal()} {rng.choice(_SYMBOLS)} {name}",
        lambda: f"{name} {rng.choice(['', 'not'])} in ({', '.join(literal() for _ in range(3))})",
        lambda: f"{name} {rng.choice(['', 'not'])} between {literal()} and {literal()}",
        lambda: f"{name} is {rng.choice(['', 'not'])} null",
        lambda: f"{name} {rng.choice(['', 'not'])} like {rng.choice(_PATTERNS)}",
    ]
    return rng.choices(shapes, [6, 2, 2, 2, 1, 2 if column in ("s", "p") else 0])[0]()


_GROUP = 8
#: Conditions that each session is asked about.
_CONDITIONS = 60
_PATTERNS = ["'a%'", "'%'", "'a'", "'A_%'", "'7%'", "'%a'", "'x y%'", "'z%%'"]


def condition(rng: random.Random, wild: float, depth: int = 3) -> str:
    """A condition of several."""
    if depth == 0 or rng.random() < 0.3:
        return one_condition(rng, wild)
    left, right = condition(rng, wild, depth - 1), condition(rng, wild, depth - 1)
    return rng.choice(
        [
            f"{left} and {right}",
            f"{left} or {right}",
            f"({left} or {right})",
            f"not {left}",
            f"not ({left} and {right})",
            f"! ({left} or {right})",
        ]
    )


def rows(rng: random.Random, count: int) -> pa.Table:
    def value(name: str) -> Any:
        return None if rng.random() < 0.12 else rng.choice(VALUES[name])

    columns = {name: [value(name) for _ in range(count)] for name in SCHEMA.names}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def some_rows() -> pa.Table:
    return rows(random.Random(2013), 200).append_column("id", pa.array(range(200), pa.int32()))


@pytest.fixture(scope="module")
def in_spark(spark: Any, some_rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(some_rows, path)
    return spark.read.schema(spark_schema(some_rows.schema)).parquet(str(path)).cache()


@pytest.fixture
def quiet() -> Iterator[None]:
    """PySpark logs each refusal with Java's stack."""
    log = logging.getLogger("SQLQueryContextLogger")
    log.disabled = True
    yield
    log.disabled = False


def selected_by_spark(frame: Any, conditions: list[str]) -> Iterator[tuple[str, set[int]]]:
    """The ids of the rows for which each is true; without those that Spark does not take."""
    from pyspark.errors import PySparkException

    try:
        found = frame.selectExpr("id", *(f"({text}) c{n}" for n, text in enumerate(conditions)))
        answers = found.collect()
    except PySparkException:  # One of them is refused, or fails by some row.
        half = len(conditions) // 2
        for some in (conditions[:half], conditions[half:]) if half else ():
            yield from selected_by_spark(frame, some)
        return
    for number, text in enumerate(conditions):
        yield text, {row["id"] for row in answers if row[f"c{number}"]}


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("l < 7L", "l < 7"),
        ("l >= -7L", "l >= -7"),
        ("cast(l as bigint) in (cast(7 as bigint), 0L)", "l in (7, 0)"),
        ("(CAST(L AS BIGINT) = CAST(7 AS BIGINT))", "l = 7"),
        ("x < 0.3D", "x < 0.3"),
        ("(x > CAST(0.3 AS DOUBLE))", "x > 0.3"),
    ],
)
def test_casts_to_a_column_s_own_type_are_read_as_if_they_were_not_there(text, like):
    found, expected = read_predicate(text, SCHEMA), read_predicate(like, SCHEMA)
    assert found.unsure is None
    assert expected.expression is not None
    assert found.expression is not None
    assert found.expression.equals(expected.expression)


@pytest.mark.parametrize(
    "text",
    [
        *("n = '7'", "l = '7'", "x = '0.3'", "price = '0.30'", "ok = 'true'", "s = 7", "p > 7"),
        *(
            "n < 2.5",
            "l < 2.5",
            "price < 0.305",
            "price < 0.3D",
            "n < 7L",
            "l < cast('7' as bigint)",
        ),
        *("l < cast(7 as int)", "l < cast(7.5 as bigint)", "cast(n as bigint) < 7", "x < 7L"),
        *("cast(l as int) < 7", "cast(l as double) < 7", "cast(x as bigint) < 7", "l < 7Y"),
        *("cast(l as string) < '7'", "d < timestamp'2013-01-02 00:00:00'", "d < '2013-1-2'"),
        *("d < 20130102", "date(at) < '2013-01-02'", "cast(at as date) = date'2013-01-02'"),
        *("at < '2013-01-02 00:00'", "x = double('NaN')", "x < cast('NaN' as double)", "n.n < 7"),
    ],
)
def test_comparison_after_a_conversion_leaves_nothing_out(text):
    assert read_predicate(text, SCHEMA).expression is None


@pytest.mark.spark
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("seed", "ansi", "zone"),
    [
        (1, "true", "America/New_York"),
        (2, "true", "Asia/Kolkata"),
        (3, "false", "Pacific/Kiritimati"),
        (4, "false", "UTC"),
    ],
)
def test_no_row_that_spark_selects_is_left_out(spark, some_rows, in_spark, seed, ansi, zone):
    given = {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}
    before = {name: spark.conf.get(name) for name in given}
    # Under ANSI such a comparison is mostly refused, or fails by a row.
    wild = 0.002 if ansi == "true" else 0.03
    rng = random.Random(seed)
    told, exact, compared = 0, 0, 0
    try:
        for name, value in given.items():
            spark.conf.set(name, value)
        some = [condition(rng, wild) for _ in range(_CONDITIONS)]
        for text, wanted in selected_by_spark(in_spark, some):
            compared += 1
            told += read_predicate(text, SCHEMA).expression is not None
            exact += holds_for(text, wanted, some_rows)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    # Else nothing would have been tried.
    assert (compared > _CONDITIONS / 2, told > compared / 3, exact > compared / 10) == (
        True,
        True,
        True,
    )


def holds_for(text: str, wanted: set[int], some_rows: pa.Table) -> bool:
    """Whether the text selects these rows exactly; fails where it leaves one of them out."""
    schema = some_rows.schema
    ids = some_rows["id"].to_pylist()
    found = row_filter(text, schema)
    kept = set(ids)
    if found is not None:
        (batch,) = some_rows.combine_chunks().to_batches()
        kept = set(found.keep(batch).column("id").to_pylist())
        assert wanted <= kept, text
        body = io.BytesIO()
        pq.write_table(some_rows, body, row_group_size=_GROUP)
        groups = found.row_groups(pq.ParquetFile(body), {})
        read = {row for group in groups for row in ids[_GROUP * group : _GROUP * (group + 1)]}
        assert wanted <= read, text
    partitions = selected_partitions(text, schema, BY)
    if partitions is not None:
        values = some_rows.select(BY).to_pylist()
        names = [partition_path(row, schema) for row in values]
        assert wanted <= {id for id, name in zip(ids, names, strict=True) if name in partitions}, (
            text
        )
    if read_predicate(text, schema).unsure is None:
        assert kept == wanted, text
        return True
    return False
