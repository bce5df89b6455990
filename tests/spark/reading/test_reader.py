"""Pruning, columns, packing and the fixed state of ``spark.read.format("zero_rename")``."""

from __future__ import annotations

import io
import itertools
import random
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.spark_tables import data_keys, read, rows, write
from support.waiting import STUCK
from zero_rename.committer import DataFile, SnapshotGoneError, Table
from zero_rename.spark.reading.file_rows import FileRows, pack
from zero_rename.spark.reading.reader import TableReader, known_table

SCHEMA = pa.schema([("n", pa.int64())])
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def files_read(bucket):
    """Data files whose bytes were asked for since the counter was set back."""
    keys = {key for name, key in bucket.counter.log() if name == "GetObject"}
    return sorted(key for key in keys if key.endswith(".parquet"))


def heads_read(bucket):
    return [key for name, key in bucket.counter.log() if name == "GetObject" and "/heads/" in key]


def counted(bucket, frame):
    """The rows of a query, while requests are counted."""
    bucket.counter.reset()
    return rows(frame)


def test_files_are_packed_in_their_order():
    def files(*sizes):
        return [DataFile(f"k{n}", "_unpartitioned", s, 1, "", "") for n, s in enumerate(sizes)]

    mib = 1024 * 1024
    assert pack([], 100) == []
    groups = pack(files(10 * mib, 10 * mib, 200 * mib, 1, 1), 128 * mib)
    assert [[file.key for file in group] for group in groups] == [
        ["k0", "k1"],
        ["k2"],
        ["k3", "k4"],
    ]
    assert len(pack(files(1, 1, 1), 1)) == 3


@pytest.mark.parametrize(("size", "at_once"), [(4 * 1024 * 1024, 8), (4 * 1024 * 1024 + 1, 1)])
def test_small_files_of_a_task_are_fetched_at_once_and_large_ones_in_turn(
    monkeypatch, size, at_once
):
    open_now, most = [], []
    met = Barrier(at_once, timeout=STUCK)

    def read_batches(driver, schema, by, file, columns, row_filter):
        open_now.append(file)
        most.append(len(open_now))
        met.wait()  # is passed by none before as many are here
        open_now.remove(file)
        yield pa.record_batch({"n": [int(file.key)]}, SCHEMA)

    monkeypatch.setattr("zero_rename.spark.reading.file_rows.read_batches", read_batches)
    files = [DataFile(f"{n}", "_unpartitioned", size, 1, "", "") for n in range(16)]
    found = FileRows("s3://bucket/t", SCHEMA, (), SCHEMA).read(files)
    assert [batch["n"][0].as_py() for batch in found] == list(range(16))
    assert max(most) == at_once


def test_a_state_that_is_gone_is_read_anew_after_a_load(s3_bucket):
    """Spark plans a data frame once: the reader that it keeps cannot see the new state."""
    url = f"s3://{s3_bucket.name}/t"
    for n in (1, 2):
        with Table(url).job(SCHEMA, mode="overwrite") as job:
            job.write(pa.table({"n": [n]}, SCHEMA))
        known = known_table({"path": url})
        reader = TableReader(known, known.spark_schema)
        (group,) = reader.partitions()
        assert [batch.to_pydict() for batch in reader.read(group)] == [{"n": [n]}]
    with Table(url).job(mode="overwrite") as job:
        job.write(pa.table({"n": [3]}, SCHEMA))
    with pytest.raises(SnapshotGoneError, match="Load the table anew"):
        list(reader.read(group))


@pytest.mark.spark
class TestPruning:
    """On one table: twelve days of two carriers, the last day's carrier null."""

    @pytest.fixture(scope="class")
    def table(self, spark, s3_server):
        client = s3_server.client()
        client.create_bucket(Bucket="test-pruning")
        frame = spark.sql(
            "select cast(id as int) n, date_add(date'2013-01-01', cast(id as int)) day, "
            "if(id = 11, null, concat('c', id % 2)) carrier, cast(id as int) as num "
            "from range(12)"
        ).coalesce(1)
        write(frame, "s3://test-pruning/days", partitionBy="day,carrier,num")
        return frame

    @pytest.fixture
    def bucket(self, s3_bucket, s3_server, table):
        return type(s3_bucket)("test-pruning", s3_bucket.client, s3_server.counter("test-pruning"))

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("day >= '2013-01-09' and day < '2013-01-11'", 2),
            ("DAY between '2013-01-09' and '2013-01-10' and carrier like 'c%'", 2),
            ("carrier is null or not num > 0", 2),
            ("num > 9", 2),  # as numbers, not as text
            ("carrier != 'c0' and num <> 1", 4),
            ("num = 100", 0),
        ],
    )
    def test_by_the_option(self, spark, bucket, table, condition, expected):
        pruned = read(spark, "s3://test-pruning/days", where=condition)
        assert counted(bucket, pruned) == rows(table.where(condition))
        assert len(files_read(bucket)) == expected
        # Heads of pruned partitions are not even read.
        assert len(heads_read(bucket)) == expected

    def test_by_the_option_and_other_columns(self, spark, bucket, table):
        """Files are left out by the bounds of their columns, which the table has on record."""
        some = read(spark, "s3://test-pruning/days", where="n > 8 and num >= 8 and n != 10")
        assert sorted(row["n"] for row in counted(bucket, some)) == [9, 11]
        assert len(files_read(bucket)) == 3

    def test_by_names(self, spark, bucket, table):
        named = "day=2013-1-2/carrier=c1/num=01;day=2013-01-01/carrier=c0/num=0"
        some = read(spark, "s3://test-pruning/days", partitions=named)
        assert [row["n"] for row in counted(bucket, some)] == [0, 1]
        assert len(files_read(bucket)) == 2

    def test_columns(self, spark, bucket, table):
        some = read(spark, "s3://test-pruning/days", columns="num,N")
        assert some.columns == ["num", "n"]
        assert rows(some.where("num > 10")) == [{"num": 11, "n": 11}]
        alone = read(spark, "s3://test-pruning/days", columns="day", where="num < 11")
        assert len(counted(bucket, alone)) == 11
        assert files_read(bucket) == []  # the rows are on record

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"columns": "nn"}, "has no column 'nn'"),
            ({"partitions": "n=1"}, "is no partition of this table"),
            (
                {"where": "nn = 1"},
                "'nn' is not surely understood; nothing was read. Read by zero_rename",
            ),
            ({"where": "day >= 2013-01-09"}, "cannot be held to select what Spark would"),
            ({"where": "n = 1 and upper(carrier) = 'C'"}, "is not surely understood"),
            ({"partitionBy": "day"}, "option for writing only"),
        ],
    )
    def test_options_that_cannot_be_right(self, spark, bucket, options, message):
        with pytest.raises(Exception, match=message):
            read(spark, "s3://test-pruning/days", **options).count()

    def test_a_schema_of_the_user_s(self, spark, bucket):
        some = spark.read.format("zero_rename").schema("n int, carrier string")
        assert some.load("s3://test-pruning/days").where("n = 3").collect() == [(3, "c1")]
        wrong = spark.read.format("zero_rename").schema("n bigint")
        with pytest.raises(Exception, match="'n' is bigint in the schema given"):
            wrong.load("s3://test-pruning/days").count()


@pytest.mark.spark
def test_an_empty_table(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/empty"
    write(spark.sql("select 1 n, 'x' p").where("false"), url, partitionBy="p")
    assert read(spark, url).count() == 0
    assert rows(read(spark, url).where("p = 'x'")) == []
    with pytest.raises(Exception, match="TableNotFoundError: There is no zero_rename table here"):
        read(spark, url + "r")


@pytest.mark.spark
def test_a_scan_that_outlives_a_replace_fails(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/moving"
    frame = spark.range(10).selectExpr("id", "'x' p")
    write(frame, url, partitionBy="p")
    planned = read(spark, url)
    planned.rdd.getNumPartitions()  # fixes the state of this data frame's plan
    write(frame.where("id < 5"), url, "overwrite")
    with pytest.raises(Exception, match="SnapshotGoneError") as caught:
        planned.rdd.count()
    assert "a data frame keeps the state" in str(caught.value)
    assert read(spark, url).count() == 5


@pytest.mark.spark
def test_many_small_files_make_few_tasks(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/small"
    write(spark.range(9).selectExpr("id", "id p").coalesce(1), url, partitionBy="p")
    assert len(data_keys(s3_bucket, "small")) == 9
    assert read(spark, url).rdd.getNumPartitions() == 1
    # A file counts as 4 MiB more than it has.
    few = read(spark, url, targetPartitionBytes=str(20 * 1024 * 1024))
    assert few.rdd.getNumPartitions() == 3
    assert read(spark, url, targetPartitionBytes="1").rdd.getNumPartitions() == 9
    assert read(spark, url).selectExpr("sum(id)").collect()[0][0] == 36


PREDICATES = 10


@pytest.mark.spark
class TestOneFrame:
    """Queries of one data frame, one after the other: what one asks must not reach the next.

    Spark 4.3 lets a query that pushes no filter run with the reader of the query before it, pruned
    by *its* filters, wherever filters are pushed to Python data sources (SPARK-58551).
    """

    @pytest.fixture(scope="class", autouse=True)
    def pushing(self, spark):
        """A session whose user turned filter push-down on."""
        spark.conf.set(PUSHDOWN, "true")
        yield
        spark.conf.unset(PUSHDOWN)

    @pytest.fixture(scope="class")
    def plain(self, spark, s3_server):
        """Eight partitions of every kind, as a frame of Spark's own."""
        s3_server.client().create_bucket(Bucket="test-one-frame")
        frame = spark.sql(
            "select cast(id as int) i, if(id = 7, null, concat('s', id % 3)) s, "
            "cast(id % 4 as int) n, date_add(date'2013-01-01', cast(id as int)) day, "
            "id % 2 = 0 ok, case id when 3 then double('NaN') when 4 then double('-0.0') "
            "else id / 2 end x, cast(id as decimal(6, 2)) / 4 price from range(8)"
        ).coalesce(1)
        write(frame, "s3://test-one-frame/t", partitionBy="s,n,day,ok,x,price")
        return frame.cache()

    def test_a_query_without_a_filter_sees_all_rows(self, spark, plain):
        frame = read(spark, "s3://test-one-frame/t")
        assert frame.where("s = 's0'").count() == 3
        assert frame.where("s = 's0' or i > 1").count() == 7
        assert frame.count() == 8

    def test_a_union_of_two_days(self, spark, plain):
        frame = read(spark, "s3://test-one-frame/t")
        days = [frame.where(f"day = '2013-01-0{n}'") for n in (1, 2)]
        assert [row["i"] for row in rows(days[0].union(days[1]))] == [0, 1]

    def test_random_predicates_answer_as_on_spark_s_own_rows(self, spark, plain):
        predicates = list(itertools.islice(random_predicates(random.Random(1)), PREDICATES))
        sums = ", ".join(f"sum(if({text}, 1, 0))" for text in predicates)
        expected = spark.sql(f"select {sums} from {{rows}}", rows=plain).collect()[0]
        frame = read(spark, "s3://test-one-frame/t")
        found = [frame.where(text).count() for text in predicates]
        assert dict(zip(predicates, found, strict=True)) == dict(
            zip(predicates, expected, strict=True)
        )


@pytest.mark.spark
def test_registering_leaves_filter_push_down_as_it_is(spark):
    assert spark.conf.get(PUSHDOWN) == "false"


def random_predicates(chance):
    """Conditions over every kind of partition column, some of which Spark can push."""
    literals = {
        "s": ["'s0'", "'s1'", "'s9'"],
        "n": ["0", "2", "3"],
        "day": ["date'2013-01-02'", "'2013-01-06'"],
        "ok": ["true", "false"],
        "x": ["0.0", "double('-0.0')", "double('NaN')", "1.5"],
        "price": ["0.25", "1", "1.75"],
        "i": ["1", "5"],
    }

    def comparison():
        column = chance.choice(sorted(literals))
        kind = chance.random()
        if kind < 0.15:
            return f"{column} is {chance.choice(['', 'not '])}null"
        if kind < 0.3:
            return f"{column} in ({', '.join(literals[column][:2])})"
        operator = chance.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        return f"{column} {operator} {chance.choice(literals[column])}"

    while True:
        terms = [comparison() for _ in range(chance.randint(1, 3))]
        text = terms[0]
        for term in terms[1:]:
            text = f"({text}) {chance.choice(['and', 'or'])} ({term})"
        yield f"not ({text})" if chance.random() < 0.15 else text


@pytest.mark.spark
class TestOlderFiles:
    """A directory of another writer, and the first job into it."""

    @pytest.fixture
    def table(self, spark, s3_bucket):
        body = io.BytesIO()
        pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), body)
        s3_bucket.put("older/day=1/part-0.parquet", body.getvalue())
        url = f"s3://{s3_bucket.name}/older"
        write(spark.sql("select 3 n, 2 day"), url)
        return url

    def test_both_are_read(self, spark, table):
        def numbers(**options):
            return [row["n"] for row in rows(read(spark, table, **options))]

        assert rows(read(spark, table))[2] == {"n": 3, "day": 2}
        assert numbers() == [1, 2, 3]
        assert numbers(partitions="day=1") == numbers(where="day < 2") == [1, 2]

    def test_a_partition_s_folder_is_no_table(self, spark, table):
        with pytest.raises(Exception, match=r'option\("partitions", "day=1"\)'):
            read(spark, f"{table}/day=1")
