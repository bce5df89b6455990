"""``zero_rename.spark.load`` where the session's S3A reads the files itself, on moto."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.counting import RequestCounter
from support.hadoop_committers import Application, set_in
from support.spark import COMPILED
from support.spark_tables import of_all_types, partitioned_by_all_types, rows, worker_environment
from zero_rename.committer import CommitConflictError, InvalidInputError, Table
from zero_rename.committer.store.requests import Put
from zero_rename.spark import create_view, delete, load, register, save, update
from zero_rename.spark.reading import session_store
from zero_rename.spark.startup import preflight
from zero_rename.tables import DeltaTable

TIME_TYPE = "spark.sql.timeType.enabled"
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])


@pytest.fixture
def spark(native_application: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The session, and moto for boto3: in this process and in the workers."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    known = native_application.store.environment()
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    spark = native_application.spark
    with worker_environment(spark, **known):
        yield spark


@pytest.fixture
def compiled(spark: Any) -> Iterator[None]:
    """The session as users have it, which makes Java code of each plan."""
    with set_in(spark, COMPILED):
        yield


@pytest.fixture
def url(native_application: Application, spark: Any) -> str:
    place = native_application.place()
    return f"s3://{place.bucket}/{place.prefix}"


@pytest.fixture
def ignoring(spark: Any) -> Iterator[None]:
    """A session whose user has told Spark to leave out what it cannot read."""
    names = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name in names:
        spark.conf.unset(name)


def put(url: str, *values: tuple[int, str | None], mode: str = "append") -> None:
    with Table(url).job(SCHEMA, partition_by=["p"], mode=mode) as job:
        job.write(pa.table(list(zip(*values, strict=True)), schema=SCHEMA))


def put_foreign(url: str, path: str, rows: pa.Table) -> None:
    """A file that no job of this package wrote."""
    table = Table(url)
    table.run(Put(f"{table.root.prefix}/{path}", parquet(rows)))


def parquet(rows: pa.Table) -> bytes:
    body = io.BytesIO()
    pq.write_table(rows, body)
    return body.getvalue()


def numbers(frame: Any) -> list[int]:
    return sorted(row["n"] for row in frame.collect())


def is_by_spark(frame: Any) -> bool:
    return "FileScan parquet" in frame._jdf.queryExecution().toString()


#: Settings of a session that reads dates of files of which it does not know who wrote them.
OLD_DATES = [(Table, "EXCEPTION"), (DeltaTable, "LEGACY")]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("made", [of_all_types, partitioned_by_all_types])
def test_all_types_are_what_this_package_s_reader_finds(spark: Any, url: str, made: Any) -> None:
    data = made(spark)
    save(data, url, partition_by=data.columns[1:] if made is partitioned_by_all_types else [])
    found, ours = load(spark, url), load(spark, url, by="zero_rename")
    assert is_by_spark(found)
    assert not is_by_spark(ours)
    assert found.schema == ours.schema
    assert repr(rows(found)) == repr(rows(ours))


@pytest.mark.parametrize(("kind", "mode"), OLD_DATES)
def test_old_dates_of_rows_that_no_spark_wrote_are_those_that_were_written(
    spark: Any, url: str, kind: type[Table | DeltaTable], mode: str
) -> None:
    """EXCEPTION is the default of Spark 3.5."""
    day, at = dt.date(1500, 1, 1), dt.datetime(1500, 1, 1, tzinfo=dt.UTC)
    data = pa.table({"d": [day], "at": pa.array([at], pa.timestamp("us", "UTC")), "p": [day]})
    with kind(url).job(data.schema, partition_by=["p"]) as job:
        job.write(data)
    name = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(name, mode)
    try:
        found = load(spark, url, where="d = '1500-01-01' and p = d")
        assert is_by_spark(found)
        assert found.select("d", "p", found.at.cast("double")).collect() == [
            (day, day, at.timestamp())
        ]
    finally:
        spark.conf.unset(name)


@pytest.mark.parametrize(("kind", "mode"), OLD_DATES)
def test_old_dates_beside_a_file_of_another_program_are_those_that_were_written(
    spark: Any, url: str, kind: type[Table | DeltaTable], mode: str
) -> None:
    """How the other program's files are read is the session's matter; no change writes ours anew
    with other dates."""
    old = dt.date(1, 1, 1)
    put_foreign(url, "theirs.parquet", pa.table({"n": [1], "d": [dt.date(2013, 1, 1)]}))
    kind(url).adopt(apply=True)
    ours = pa.table({"n": [2], "d": [old]})
    with kind(url).job(ours.schema) as job:
        job.write(ours)
    name = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(name, mode)
    try:
        assert is_by_spark(load(spark, url))
        assert load(spark, url, where="n = 2").select("d").collect() == [(old,)]
        assert [row["d"] for row in load(spark, url).sort("n").collect()] == [
            dt.date(2013, 1, 1),
            old,
        ]
        assert update(url, set={"n": "3"}, where="n = 1", spark=spark).rows.updated == 1
    finally:
        spark.conf.unset(name)
    assert old in kind(url).scan().to_arrow()["d"].to_pylist()


def test_columns_of_nulls_that_got_a_type_are_read(spark: Any, url: str) -> None:
    values = {"v1": "'x'", "v2": "true", "v3": "array(1)", "v4": "named_struct('a', 'x')"}
    nulls = ", ".join(f"null {name}" for name in values)
    typed = ", ".join(f"{value} {name}" for name, value in values.items())
    save(spark.sql(f"select 1 n, {nulls}, 'a' p"), url, partition_by=["p"])
    save(spark.sql(f"select 2 n, {typed}, 'b' p"), url, options={"mergeSchema": "true"})
    found = load(spark, url)
    assert not is_by_spark(found)
    for name in values:
        assert found.where(f"{name} is null").select("n").collect() == [(1,)]
        with pytest.raises(InvalidInputError, match=f"nulls without a type in the column {name}"):
            load(spark, url, by="spark", columns=["n", name])
    assert is_by_spark(load(spark, url, columns=["n"], where="p = 'a'"))
    assert update(url, set=values, where="v1 is null", spark=spark).rows.updated == 1
    assert numbers(load(spark, url, where=" and ".join(f"{it} is not null" for it in values))) == [
        *(1, 2)
    ]


def test_files_of_other_programs_with_a_column_of_nulls_are_read(spark: Any, url: str) -> None:
    """As pandas writes a column that is None in all rows."""
    put_foreign(url, "a.parquet", pa.table({"n": [1], "v": pa.nulls(1)}))
    put_foreign(url, "b.parquet", pa.table({"n": [2], "v": ["x"]}))
    for _ in range(2):
        assert sorted(load(spark, url, where="n > 0").collect()) == [(1, None), (2, "x")]
        Table(url).adopt(apply=True)


#: Conditions that are true of NaN, for Spark, and not of 5.
_OF_NAN = (
    *("x > 5", "x >= 6", "x != 5", "not (x <= 5)", "not x = 5", "x = double('NaN')"),
    *("x not in (5.0D, 6.0D)", "not (x between 0 and 10)", "s.y > 5", "s.z.y != 5", "y > 5"),
)


@pytest.mark.parametrize(
    ("layout", "sources"),
    [("directory", "parquet"), ("delta", "parquet"), ("of others", "parquet"), ("of others", "")],
)
def test_conditions_find_nan_that_statistics_ignore(
    spark: Any, url: str, layout: str, sources: str
) -> None:
    """Rows with NaN beside smaller numbers were left out, with their row group."""
    x, y = pa.array([5.0, float("nan"), None]), pa.array([5.0, float("nan"), None], pa.float32())
    z = pa.StructArray.from_arrays([y], ["y"])
    s = pa.StructArray.from_arrays([x, z], ["y", "z"])
    data = pa.table({"n": [1, 2, 3], "x": x, "s": s, "y": y})
    if layout == "of others":
        put_foreign(url, "a.parquet", data)
    else:
        with (Table if layout == "directory" else DeltaTable)(url).job(data.schema) as job:
            job.write(data)
    name = "spark.sql.sources.useV1SourceList"
    before = spark.conf.get(name)
    spark.conf.set(name, sources)
    try:
        loaded = load(spark, url, by="spark")
        for text in ("x > 5", "s.z.y != 5"):
            assert numbers(load(spark, url, where=text, by="spark")) == [2]
        found = found_by(_OF_NAN, map(loaded.where, _OF_NAN))
        assert found == {text: [2] for text in _OF_NAN}
        assert numbers(loaded.where("x is null and n > 2")) == [3]
    finally:
        spark.conf.set(name, before)
    assert delete(url, where="s.y > 5", spark=spark).rows.deleted == 1


def found_by(texts: Iterable[str], frames: Iterable[Any]) -> dict[str, list[int]]:
    """Numbers in each of some frames, by one query of Spark."""
    from pyspark.sql import functions as F

    named = [
        frame.select("n", F.lit(text).alias("text"))
        for text, frame in zip(texts, frames, strict=True)
    ]
    found: dict[str, list[int]] = {text: [] for text in texts}
    for row in reduce(lambda one, other: one.union(other), named).collect():
        found[row["text"]].append(row["n"])
    return found


_AT, _LONG = dt.datetime(2020, 1, 2, 3, 4, 5, 678901), dt.timedelta(days=1, seconds=7)


_OTHERS: dict[str, tuple[Any, pa.DataType, str]] = {
    "a": (_LONG, pa.duration("ns"), "count a in another unit"),
    "b": ({"d": _LONG}, pa.struct([("d", pa.duration("s"))]), "count b in another unit"),
    "c": (_AT, pa.timestamp("ns"), "hold nanoseconds in the column c"),
    "d": ([_AT], pa.list_(pa.timestamp("ns")), "hold nanoseconds in the column d.list"),
    "e": (1.5, pa.float16(), "hold 16-bit floats in the column e"),
}


def test_values_of_other_programs_are_those_that_were_written(spark: Any, url: str) -> None:
    """As pandas writes times. Spark took nanoseconds of a duration for microseconds, so an update
    wrote them a thousand times as long; and refused the other files."""
    columns = {name: pa.array([value, None], kind) for name, (value, kind, _) in _OTHERS.items()}
    put_foreign(url, "a.parquet", pa.table({"n": [1, 2], **columns}))
    Table(url).adopt(apply=True)
    values, nulls = tuple(value for value, _, _ in _OTHERS.values()), (None,) * len(_OTHERS)
    assert sorted(map(as_plain, load(spark, url).collect())) == [(1, *values), (2, *nulls)]
    for name, (_, _, why) in _OTHERS.items():
        with pytest.raises(InvalidInputError, match=why):
            load(spark, url, by="spark", columns=["n", name])
    assert is_by_spark(load(spark, url, columns=["n"]))
    assert update(url, set={"n": "n + 1"}, where="n = 2", spark=spark).rows.updated == 1
    assert sorted(map(as_plain, load(spark, url).collect())) == [(1, *values), (3, *nulls)]
    assert is_by_spark(load(spark, url))


def as_plain(row: Any) -> tuple[Any, ...]:
    values = row.asDict(True).values()
    return tuple(values)


@pytest.mark.parametrize(
    ("digits", "value", "sources"), [((5, 12), "42949673.01", "parquet"), ((20, 38), "9" * 30, "")]
)
def test_conditions_on_decimals_that_were_widened_find_rows_of_files_before(
    spark: Any, url: str, digits: tuple[int, int], value: str, sources: str
) -> None:
    """Spark squeezes the value into the file's type before it compares row groups with it, and
    lost these rows, or could not read the file."""
    for precision, n in zip(digits, (3, 4), strict=True):
        kind = f"decimal({precision},2)"
        rows = spark.sql(
            f"select cast({n} as {kind}) d, array(named_struct('d', cast(1 as {kind}))) s"
        )
        save(rows, url, options={"mergeSchema": "true"})
    name = "spark.sql.sources.useV1SourceList"
    before = spark.conf.get(name)
    spark.conf.set(name, sources)
    try:
        found: Any = load(spark, url, where=f"d < {value}")
        assert is_by_spark(found) or "RelationV2" in found._jdf.queryExecution().toString()
        assert found.sparkSession is spark
        assert sorted(row["d"] for row in found.collect()) == [3, 4]
        assert load(spark, url).where(f"-{value} < d and s[0].d < {value}").count() == 2
        assert delete(url, where=f"d < {value} and d > 3", spark=spark).rows.deleted == 1
    finally:
        spark.conf.set(name, before)


def test_column_with_a_default_in_the_catalog_is_null_in_files_that_lack_it(
    spark: Any, url: str
) -> None:
    save(spark.sql("select 1 n"), url)
    later = spark.sql("select 2 n, 5 c").withMetadata("c", {"EXISTS_DEFAULT": "42"})
    save(later, url, options={"mergeSchema": "true"})
    found = load(spark, url)
    assert is_by_spark(found)
    assert rows(found) == [{"n": 1, "c": None}, {"n": 2, "c": 5}]


class TestTime:
    """The type TIME, which Spark 4.3 makes and hands over, and whose own reader takes it only where
    a setting says so."""

    @pytest.fixture
    def default(self, spark: Any) -> Iterator[None]:
        """A session as users have it."""
        spark.conf.unset(TIME_TYPE)
        yield
        spark.conf.set(TIME_TYPE, "true")

    @pytest.fixture
    def saved(self, spark: Any, url: str) -> str:
        save(
            spark.sql("select 1 n, named_struct('t', time'01:02:03.000001') s, time'04:05' t"), url
        )
        return url

    def test_columns_are_read_in_a_session_of_defaults(
        self, spark: Any, saved: str, default: None
    ) -> None:
        found = load(spark, saved)
        assert not is_by_spark(found)
        at = dt.time(1, 2, 3, 1)
        assert found.collect() == [(1, (at,), dt.time(4, 5))]
        assert load(spark, saved, columns=["s"], where="n = 1").collect() == [((at,),)]
        with pytest.raises(
            InvalidInputError, match=r"takes no TIME, which is .* the column s"
        ) as no:
            load(spark, saved, by="spark")
        assert TIME_TYPE in (no.value.remedy or "")

    def test_other_columns_are_read_by_spark_in_a_session_of_defaults(
        self, spark: Any, saved: str, default: None
    ) -> None:
        found = load(spark, saved, columns=["n"], by="spark")
        assert (is_by_spark(found), found.collect()) == (True, [(1,)])

    def test_columns_are_read_by_spark_where_the_session_says_so(
        self, spark: Any, saved: str
    ) -> None:
        found = load(spark, saved, where="t > time'04:00'")
        assert (is_by_spark(found), found.count()) == (True, 1)

    @pytest.mark.parametrize("unit", [pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str)
    def test_files_of_other_programs_are_read_in_each_unit(
        self, spark: Any, url: str, unit: pa.DataType
    ) -> None:
        values = pa.array([dt.time(4, 5), None], pa.time64("us")).cast(unit)
        put_foreign(url, "f.parquet", pa.table({"t": values}))
        assert load(spark, url).collect() == [(dt.time(4, 5),), (None,)]


def test_partitions_are_cut_off_before_spark_plans(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "x"), (3, "é/%[*]? '"), (4, None), (5, "01"))
    every = load(spark, url)
    assert is_by_spark(every)
    assert rows(every)[3:] == [{"n": 4, "p": None}, {"n": 5, "p": "01"}]
    assert every.where("p = '01'").collect() == [(5, "01")]
    some = load(spark, url, where="p >= 'x' and n > 1", columns=["p"])
    assert sorted(some.collect()) == [("x",), ("é/%[*]? '",)]
    assert len(some.inputFiles()) == 2
    assert numbers(load(spark, url, partitions=["p=01"])) == [5]


def test_files_of_several_jobs_of_a_delta_table(spark: Any, url: str) -> None:
    """Saved by tasks, replaced in part, read by Spark itself."""
    frame = spark.createDataFrame([(1, "x"), (2, "y"), (3, None)], "n long, p string")
    save(frame, url, partition_by=["p"], layout="delta")
    save(frame.where("n = 1"), url, mode="append", partition_by=["p"], layout="delta")
    with DeltaTable(url).job(SCHEMA, mode="overwrite") as job:
        job.write(pa.table({"n": [20], "p": ["y"]}, SCHEMA))
    for by in ("spark", "zero_rename"):
        found = load(spark, url, by=by)
        assert is_by_spark(found) is (by == "spark")
        assert sorted((row["n"], row["p"] or "") for row in found.collect()) == [
            (1, "x"),
            (1, "x"),
            (3, ""),
            (20, "y"),
        ]
    assert load(spark, url, where="p = 'y'").collect() == [(20, "y")]


def test_an_unpartitioned_table(spark: Any, url: str) -> None:
    with Table(url).job(SCHEMA) as job:
        job.write(pa.table({"n": [1], "p": ["x"]}, SCHEMA))
    found = load(spark, url)
    assert is_by_spark(found)
    assert found.collect() == [(1, "x")]


def test_a_table_below_a_folder_that_looks_like_a_partition(
    spark: Any, url: str, native_application: Application
) -> None:
    put(f"{url}/env=prod/q=2", (1, "x"))
    found = load(spark, f"{url}/env=prod/q=2")
    assert (is_by_spark(found), found.columns, found.collect()) == (True, ["n", "p"], [(1, "x")])
    put(f"{url}/n=7/t", (1, "x"))
    with pytest.raises(InvalidInputError, match="the column n from its own path"):
        load(spark, f"{url}/n=7/t", by="spark")
    assert load(spark, f"{url}/n=7/t").collect() == [(1, "x")]


def test_the_state_stays_whatever_is_committed_and_refreshed(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "y"))
    frame = load(spark, url)
    create_view(spark, "loaded", url)
    put(url, (3, "x"))
    spark.sql("refresh table loaded")
    spark.catalog.refreshByPath(url.replace("s3:", "s3a:"))
    assert numbers(frame) == numbers(spark.table("loaded")) == [1, 2]
    assert numbers(load(spark, url)) == [1, 2, 3]
    # What Spark wrote there would lie in the folder of its list, and be lost.
    with pytest.raises(Exception, match=r"(?i)insert"):
        spark.sql("insert into loaded values (4, 'x')")
    with pytest.raises(Exception, match=r"(?i)insert"):
        frame.write.insertInto("loaded", overwrite=True)
    spark.catalog.dropTempView("loaded")


def test_files_that_are_gone_are_never_left_out(spark: Any, url: str, ignoring: None) -> None:
    put(url, (1, "x"), (2, "y"))
    frame = load(spark, url)
    put(url, (3, "x"), mode="overwrite")
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|FileNotFoundException"):
        frame.collect()
    assert numbers(frame.where("p = 'y'")) == [2]
    assert numbers(load(spark, url)) == [2, 3]


def test_a_session_that_asks_another_store(
    spark: Any, url: str, native_application: Application
) -> None:
    bucket = native_application.new_bucket()
    other = f"s3://{bucket}/t"
    put(other, (1, "x"))
    with native_application.set({f"fs.s3a.bucket.{bucket}.endpoint": "http://127.0.0.1:1"}):
        with pytest.raises(InvalidInputError, match=r"fs.s3a.endpoint is 127\.0\.0\.1:1, and"):
            load(spark, other, by="spark")
        found = load(spark, other)
        assert (is_by_spark(found), found.collect()) == (False, [(1, "x")])


def test_an_overwrite_is_held_against_what_was_loaded(spark: Any, url: str) -> None:
    put(url, (1, "x"))
    old = load(spark, url)
    put(url, (2, "x"))
    with pytest.raises(CommitConflictError, match="p=x"):
        save(old.selectExpr("n * 10 n", "p"), url, mode="overwrite")
    assert numbers(load(spark, url)) == [1, 2]


def test_dynamic_overwrites_that_append_are_warned_of(
    native_application: Application,
    spark: Any,
    url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SPARK-47618 and SPARK-56588: nobody chose the protocol but Spark."""
    put(url, (1, "x"))
    place = f"file://{native_application.folder}/overwritten"
    for _ in range(2):
        frame = spark.range(10).selectExpr("id", "id % 2 day").write.partitionBy("day")
        dynamic = frame.option("partitionOverwriteMode", "dynamic")
        dynamic.mode("overwrite").parquet(place)
    assert spark.read.parquet(place).count() == 20, "replaced: the warning is needless"
    new = spark.createDataFrame([(2, "y")], "n bigint, p string")
    for call in (lambda: load(spark, url), lambda: save(new, url), lambda: register(spark)):
        monkeypatch.setattr(preflight, "_warned", set())
        caplog.clear()
        call()
        call()
        said = [one for one in caplog.messages if "keeps the old rows beside" in one]
        assert len(said) == 1, "once an application"
        assert "spark-hadoop-cloud_2.13-4.1.1.jar" in said[0]
    monkeypatch.setattr(preflight, "_warned", set())
    caplog.clear()
    with native_application.with_committer("magic"):
        load(spark, url)
    assert "keeps the old rows beside" not in caplog.text, "it would be refused"


def test_letters_escaped_as_utf8_are_left_to_this_package_s_reader(spark: Any, url: str) -> None:
    put_foreign(url, "p=Z%C3%BCrich/part-0.parquet", pa.table({"n": [1]}))
    found = load(spark, url)
    assert not is_by_spark(found)
    assert rows(found) == [{"n": 1, "p": "Zürich"}]
    with pytest.raises(InvalidInputError, match=r"Z%C3%BCrich.* escaped as UTF-8"):
        load(spark, url, by="spark")


DAYS = 12


def put_days(url: str) -> None:
    """Ten rows a day, a file each: ``n`` grows from day to day."""
    schema = pa.schema([("n", pa.int64()), ("day", pa.int32())])
    numbers = list(range(DAYS * 10))
    columns: dict[str, list[int]] = {"n": numbers, "day": [n // 10 for n in numbers]}
    data = pa.table(columns, schema=schema)
    with Table(url).job(schema, partition_by=["day"]) as job:
        job.write(data)


def counter_of(application: Application, url: str) -> RequestCounter:
    """Of the requests to a table's bucket from now on."""
    endpoint = application.store.endpoint
    assert endpoint is not None
    counter = RequestCounter(endpoint, url.split("/")[2])
    counter.reset()
    return counter


def files_opened(application: Application, url: str, frame: Any) -> set[str]:
    """Keys of the files that a query opens, by two requests each at most. It sends no others."""
    counter = counter_of(application, url)
    frame.collect()
    asked = [key for _, key in counter.log()]
    files = set(asked)
    assert all(key.endswith(".parquet") for key in files)
    assert len(asked) <= 2 * len(files)
    return files


def opened(application: Application, url: str, frame: Any) -> list[str]:
    """Partitions of a table of directories whose files a query opens."""
    return sorted(key.rsplit("/", 2)[1] for key in files_opened(application, url, frame))


@pytest.mark.parametrize(("seconds", "sizes"), [(30.0, 0), (0.0, 1)])
def test_a_session_that_has_told_the_size_of_a_file_is_not_asked_again_soon(
    spark: Any,
    url: str,
    native_application: Application,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    sizes: int,
) -> None:
    monkeypatch.setattr(session_store, "_COUNTS", seconds)
    put(url, (1, "x"))
    assert is_by_spark(load(spark, url))
    counter = counter_of(native_application, url)
    assert is_by_spark(load(spark, url))
    asked = [name for name, key in counter.log() if key.endswith(".parquet")]
    assert asked == ["HeadObject"] * sizes


def test_where_behind_load_opens_only_files_that_may_match(
    spark: Any, url: str, native_application: Application
) -> None:
    from pyspark.sql import functions as F

    put_days(url)
    frame = load(spark, url)
    assert is_by_spark(frame)
    assert len(opened(native_application, url, frame)) == DAYS
    for condition in ("n < 20", F.col("n") < 20, frame.n < 20, frame["n"].isin(3, 17)):
        found = frame.where(condition)
        assert opened(native_application, url, found) == ["day=0", "day=1"], condition
    assert opened(native_application, url, load(spark, url, where="n < 20")) == ["day=0", "day=1"]
    twice = frame.filter("n >= 15").where(F.col("n") < 25)
    assert opened(native_application, url, twice) == ["day=1", "day=2"]
    assert numbers(twice.select(frame.n)) == list(range(15, 25))
    assert opened(native_application, url, frame.where("n < 0")) == []
    assert opened(native_application, url, frame[frame.n == 7]) == ["day=0"]


def holding(data: Any, conditions: list[Any]) -> list[set[int]]:
    """Values of ``part`` where each condition holds, all by one query of Spark's own rows."""
    from pyspark.sql import functions as F

    def column(condition: Any) -> Any:
        return F.expr(condition) if isinstance(condition, str) else condition

    asked = [column(it(data) if callable(it) else it) for it in conditions]
    found = data.select("part", *(it.alias(f"c{n}") for n, it in enumerate(asked))).collect()
    return [{row[0] for row in found if row[n + 1]} for n in range(len(asked))]


def test_where_behind_load_finds_what_spark_finds_without_it(spark: Any, url: str) -> None:
    """Nulls, NaN, zeros with signs, decimals, texts and times, one row a file."""
    from pyspark.sql import functions as F

    data = spark.sql(
        "select case id when 2 then null else cast(id as int) end i, "
        "case id when 0 then double('NaN') when 1 then double('-0.0') when 2 then null "
        "when 3 then 0.0D else id / 2D end x, case id when 2 then null else "
        'cast(id as decimal(9, 2)) / 4 end price, case id when 2 then null when 3 then "it\'s" '
        "when 4 then 'É' else concat('s', id) end s, timestamp_seconds(id * 43200) at, "
        "cast(timestamp_seconds(id * 43200) as timestamp_ntz) local_at, "
        "date_add(date'2013-01-01', cast(id as int)) day, id = 1 ok, "
        "cast(id as float) f, named_struct('i', id) st, id * 1000 `st.i`, id part from range(8)"
    )
    save(data, url, partition_by=["part"])
    frame: Any = load(spark, url)
    data = spark.createDataFrame(data.sort("part").collect(), data.schema)
    every = rows(data)
    assert is_by_spark(frame)
    conditions = [
        # Texts are compared in tests/spark/reading/test_predicate.py, each with all rows.
        *("i <> 3", "i is null", "I = 4", "i > 1 or s = 's1'", "x > 1", "x < 0.0", "price < 1"),
        *('s = "it\'s"', "at < timestamp'1970-01-02 00:00:00'", "i > 2 and rand() >= 0", "1 = 0"),
        *("part = 3 and i < 100", "st.i > 3", "`st.i` > 3000", "x = 'NaN'"),
        *(F.col("i") > 2, F.col("i") == 3.0, F.col("x") > 1.0, F.col("x") == float("nan")),
        *(F.col("x") > -0.0, F.col("s") == "it's", ~(F.col("i") < 3), F.col("i").isin(1, 5)),
        *(F.col("part").isin(1, 5), F.col("part") < 3_000_000_000, F.col("s").startswith("s")),
        *(F.col("at") > F.lit("1970-01-02").cast("timestamp"), F.col("i").eqNullSafe(F.lit(None))),
        *(
            F.col("st.i") > 3,
            F.col("st")["i"] > 3,
            F.col("`st.i`") > 3000,
            lambda it: it["`st.i`"] > 3000,
        ),
        *((F.col("x") > 1) | (F.col("part") == 0), ~F.col("x").isNull(), F.isnan("x")),
        *(F.col("day") > F.lit("2013-01-02").cast("date"), F.expr("i > 2"), F.col("I") > 2),
        *(F.col("price") < 1, F.col("part").between(2, 4)),
        *(lambda it: it.i >= it.part, lambda it: it.ok),
    ]
    fits = holding(data, conditions)
    pruned = 0
    for condition, fit in zip(conditions, fits, strict=True):
        found = frame.where(condition(frame) if callable(condition) else condition)
        expected = [row for row in every if row["part"] in fit]
        assert repr(rows(found)) == repr(expected), condition
        pruned += "file_path IN" in found._jdf.queryExecution().optimizedPlan().toString()
    assert pruned > 10
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        frame.where("nothing = 1")


def test_where_behind_load_spells_paths_as_spark_does(
    spark: Any, url: str, native_application: Application
) -> None:
    """Of every kind of letter; one with a quote is opened."""
    names = ["x", "é日😀", "a b", "%2F/", "=:,;&+$@", "[*]?#", "(~!)", "\u00a0\u2003", "it's", "-"]
    put(url, *enumerate(names))
    frame: Any = load(spark, url)
    assert is_by_spark(frame)
    quoted = [
        name for name in opened(native_application, url, frame) if "'" in name or "%27" in name
    ]
    last = opened(native_application, url, frame.where("n = 9"))
    assert [name for name in last if name not in quoted] == ["p=-"]
    assert numbers(frame.where("n = 8")) == [8]


def test_filtered_frames_of_one_load_are_joined_and_united(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "y"), (3, "z/% '"))
    frame: Any = load(spark, url)
    low, high = frame.where("n < 2"), frame.where(frame.n > 2)
    assert numbers(low.union(high)) == [1, 3]
    assert numbers(low.unionByName(frame)) == [1, 1, 2, 3]
    assert low.columns == ["n", "p"]
    assert low.join(frame, "n").select(low.n).collect() == [(1,)]
    assert numbers(low.alias("a").join(low.alias("b"), "n").select("n")) == [1]
    assert frame.join(low, frame.n == low.n).count() == 1
    assert numbers(frame) == [1, 2, 3]
    low.createOrReplaceTempView("low")
    assert spark.sql("select count(*) from low").collect() == [(1,)]
    spark.catalog.dropTempView("low")


def test_where_behind_load_is_right_by_version_2_of_spark_s_sources(
    spark: Any, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which tell no row's file."""
    put_days(url)
    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    try:
        found = load(spark, url, by="spark").where("n < 2")
        assert numbers(found.where(found.n > 0)) == [1]
    finally:
        spark.conf.unset("spark.sql.sources.useV1SourceList")
    assert "by version 2 of Spark's sources" in caplog.text


def test_where_behind_load_uses_a_cached_frame(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "y"))
    frame: Any = load(spark, url).cache()
    try:
        assert frame.count() == 2
        found = frame.where("n < 2")
        assert "InMemoryRelation" in found._jdf.queryExecution().withCachedData().toString()
        assert numbers(found) == [1]
    finally:
        frame.unpersist()


def test_where_behind_load_opens_few_files_of_several_jobs(
    spark: Any, url: str, native_application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a Delta table, whose files lie in no partitions' directories."""
    for start in range(0, 30, 10):
        some = list(range(start, start + 10))
        data = pa.table([some, list(map(str, some))], schema=SCHEMA)
        with DeltaTable(url).job(SCHEMA, partition_by=["p"]) as job:
            job.write(data)
    partitions = {file.key: file.partition for file in DeltaTable(url).state().files}

    def seen(frame: Any) -> list[str]:
        return sorted(partitions[key] for key in files_opened(native_application, url, frame))

    frame: Any = load(spark, url)
    assert is_by_spark(frame)
    assert frame.columns == ["n", "p"]
    assert len(seen(frame)) == 30
    found = frame.where("n < 12").where(frame.n > 9)
    assert seen(found) == ["p=10", "p=11"]
    assert found.select("*").collect() == found.collect()
    assert sorted(found.collect()) == [(10, "10"), (11, "11")]
    assert seen(frame.where("p = '3' or n = 25")) == ["p=25", "p=3"]
    assert numbers(found.union(frame.where("n >= 28")).select(frame.n)) == [10, 11, 28, 29]
    assert "in vain" not in caplog.text


def test_where_behind_load_leaves_partitions_to_spark(
    spark: Any, url: str, native_application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    put_days(url)
    found: Any = load(spark, url).where("day < 8 and (day = 7 or n = 20)")
    assert opened(native_application, url, found) == ["day=2", "day=7"]
    plan = found._jdf.queryExecution().analyzed().toString()
    assert plan.count(".parquet") <= 8
    alone: Any = load(spark, url).where("day = 7")
    assert "file_path" not in alone._jdf.queryExecution().analyzed().toString()
    assert opened(native_application, url, alone) == ["day=7"]
    assert "in vain" not in caplog.text


def test_where_behind_load_of_a_table_that_was_changed(spark: Any, url: str) -> None:
    """Files that lack a column, rows that were changed and deleted, files of others."""
    put_foreign(url, "p=w/theirs.parquet", pa.table({"n": pa.array([9], pa.int64())}))
    put(url, (1, "x"), (2, "y"), (3, "z"), (40, "z"))
    more = spark.sql("select 5L n, 'x' p, 7 extra union all select 6L, 'v', null")
    save(more, url, partition_by=["p"], options={"schemaMode": "merge"})
    delete(url, where="n = 3")
    update(url, set={"n": "n + 100"}, where="n = 2")
    frame: Any = load(spark, url)
    assert is_by_spark(frame)
    assert sorted(row["n"] for row in frame.collect()) == [1, 5, 6, 9, 40, 102]
    conditions = (
        *("extra is null", "extra = 7", "not extra = 7", "n = 3", "n = 2", "n > 100", "n < 9"),
        *("n >= 9 and p > 'a'", "n = 9 or p = 'v'"),
    )
    columns = [f"({condition}) c{it}" for it, condition in enumerate(conditions)]
    answers = frame.selectExpr("n", *columns).collect()
    expected = {
        condition: sorted(row["n"] for row in answers if row[f"c{it}"])
        for it, condition in enumerate(conditions)
    }
    assert {it: numbers(frame.where(it)) for it in conditions} == expected


def test_where_behind_load_of_a_state_that_is_gone_is_right_or_fails(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "y"), (3, "z"))
    frame: Any = load(spark, url)
    kept, replaced = frame.where("n < 2"), frame.where("n > 1")
    put(url, (20, "y"), mode="overwrite")
    assert numbers(kept) == [1]
    with pytest.raises(Exception, match=r"(?i)no such file|does not exist|not found"):
        replaced.collect()


def test_where_behind_load_of_some_columns_takes_no_variable_for_a_column(
    spark: Any, url: str
) -> None:
    put(url, (1, "x"), (2, "y"))
    spark.sql("DECLARE OR REPLACE VARIABLE n INT DEFAULT 50")
    try:
        frame: Any = load(spark, url, columns=["p"])
        assert sorted(row["p"] for row in frame.where("n > 10").collect()) == ["x", "y"]
    finally:
        spark.sql("DROP TEMPORARY VARIABLE n")


def made(url: str, kind: pa.DataType, *values: Any) -> None:
    """A Delta table with the columns n and p, with rows of ours."""
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    with DeltaTable(url).job(schema, partition_by=["p"]) as job:
        job.write(pa.table([[1] * len(values), pa.array(values, kind)], schema=schema))


def added(url: str, values: dict[str, str]) -> None:
    """Files of one row, that another engine has added: their paths and values of p."""
    row, lines = pa.table({"n": [1]}), []
    said = {"size": len(parquet(row)), "modificationTime": 1, "dataChange": True}
    for path, value in values.items():
        put_foreign(url, path, row)
        add = {"path": quote(path), "partitionValues": {"p": value}, **said}
        lines.append(json.dumps({"add": add}))
    table = Table(url)
    entry = f"{table.root.prefix}/_delta_log/00000000000000000001.json"
    table.run(Put(entry, "\n".join(lines).encode()))


class TestDeltaTable:
    """Spark itself reads the files that this package has written: they hold partition columns."""

    @pytest.mark.parametrize("made", [of_all_types, partitioned_by_all_types])
    def test_all_types_are_what_this_package_s_reader_finds(
        self, spark: Any, url: str, made: Any
    ) -> None:
        data = made(spark).drop("a_time", "an_array_of_times")
        data = data.drop("a_void", "a_nested_void", "a_day_interval", "an_hour_interval")
        data = data.drop("a_variant", "an_array_of_variants", "a_map_of_variants")
        by = data.columns[1:] if made is partitioned_by_all_types else []
        save(data, url, partition_by=by, layout="delta")
        found, ours = load(spark, url), load(spark, url, by="zero_rename")
        assert (is_by_spark(found), is_by_spark(ours)) == (True, False)
        assert found.schema == ours.schema
        assert repr(rows(found)) == repr(rows(ours))

    def test_condition_opens_only_files_that_may_match(
        self,
        spark: Any,
        url: str,
        native_application: Application,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Given to load(), which reads by Spark or not, and behind it."""
        days = pa.table({"n": range(120), "day": [n // 10 for n in range(120)]})
        with DeltaTable(url).job(days.schema, partition_by=["day"]) as job:
            job.write(days)
        for where, count, files in (
            *(("day = 3", 10, 1), ("n < 15", 15, 2), ("n < 15 and day > 0", 5, 1), ("n < 0", 0, 0)),
        ):
            behind = load(spark, url).where(where)
            assert is_by_spark(behind)
            given = (load(spark, url, where=where, by=by) for by in ("spark", "zero_rename"))
            for found in (behind, *given):
                assert len(opened(native_application, url, found)) == files
                assert found.count() == count
        assert "in vain" not in caplog.text

    def test_files_of_others_in_their_directories_are_read_by_spark_beside_ours(
        self, spark: Any, url: str
    ) -> None:
        put_foreign(url, "day=7/theirs.parquet", pa.table({"n": [9, 10]}))
        put_foreign(url, "day=__HIVE_DEFAULT_PARTITION__/theirs.parquet", pa.table({"n": [11]}))
        DeltaTable(url).adopt(apply=True)
        assert is_by_spark(load(spark, url))
        assert load(spark, url).where("day is null").select("n").collect() == [(11,)]
        with DeltaTable(url).job() as job:
            job.write(spark.sql("select 1L n, 8 day").toArrow())
        found: Any = load(spark, url)
        assert is_by_spark(found)
        assert found.schema == load(spark, url, by="zero_rename").schema
        assert sorted(found.where("day > 0").collect()) == [(1, 8), (9, 7), (10, 7)]
        assert sorted(found.where(found.n > 9).collect()) == [(10, 7), (11, None)]
        assert load(spark, url, columns=["day"], where="n = 1").collect() == [(8,)]
        assert load(spark, url, where="day = 7").groupBy("day").count().collect() == [(7, 2)]

    def test_where_behind_load_skips_partitions_of_others_by_their_directories(
        self,
        spark: Any,
        url: str,
        native_application: Application,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        for day in range(11):
            put_foreign(url, f"day={day}/theirs.parquet", pa.table({"n": [day]}))
        DeltaTable(url).adopt(apply=True)
        with DeltaTable(url).job() as job:
            job.write(spark.sql("select 1L n, 50 day").toArrow())
        found = load(spark, url).where("day = 3")
        assert found.collect() == [(3, 3)]
        assert opened(native_application, url, found)[:1] == ["day=3"]
        assert len(opened(native_application, url, found)) == 2
        assert "in vain" not in caplog.text
        load(spark, url).where("n = 100")
        assert "opens 12 of 12 files in vain" in caplog.text

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            (pa.string(), {"a b": "a b", "a%2Fb": "a/b", "01": "01", "2013-01-01": "2013-01-01"}),
            (pa.date32(), {"2013-01-01": "2013-01-01", "1969-12-31": "1969-12-31"}),
            (pa.timestamp("us", "UTC"), {"2013-01-01 12%3A30%3A00": "2013-01-01T12:30:00.000000Z"}),
            (pa.timestamp("us"), {"2013-01-01 12%3A30%3A00.5": "2013-01-01 12:30:00.5"}),
            (pa.decimal128(9, 2), {"1.50": "1.50", "-0.25": "-0.25"}),
            (pa.bool_(), {"true": "true", "false": "false"}),
            (pa.int64(), {"12345678901": "12345678901", "-1": "-1", "07": "7"}),
        ],
        ids=str,
    )
    def test_partition_values_in_directories_of_others_are_what_this_package_s_reader_finds(
        self, spark: Any, url: str, kind: pa.DataType, values: dict[str, str]
    ) -> None:
        made(url, kind)
        added(url, {f"p={folder}/theirs.parquet": value for folder, value in values.items()})
        found, ours = load(spark, url), load(spark, url, by="zero_rename")
        assert is_by_spark(found)
        assert found.schema == ours.schema
        assert sorted(map(repr, rows(found))) == sorted(map(repr, rows(ours)))
        assert len(rows(found)) == len(values)

    @pytest.mark.parametrize(
        "path",
        [
            *("theirs.parquet", "p=8/theirs.parquet", "P=7/theirs.parquet", "x=1/p=7/t.parquet"),
            "p=7/x=1/theirs.parquet",
        ],
    )
    def test_files_of_others_without_their_values_are_left_to_this_package_s_reader(
        self, spark: Any, url: str, path: str
    ) -> None:
        made(url, pa.int64(), 8)
        added(url, {path: "7"})
        found = load(spark, url)
        assert not is_by_spark(found)
        assert sorted(found.collect()) == [(1, 7), (1, 8)]
        with pytest.raises(InvalidInputError, match="no directories of their partition's values"):
            load(spark, url, by="spark")
        assert is_by_spark(load(spark, url, where="p = 8"))
