"""``save()`` with the project's own committer: what it is given, and what the submitter says."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from support.moto_server import running
from support.spark_tables import read, rows
from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.handoff import Handoff
from zero_rename.spark import load, save
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.spark


def count(url):
    return dict(Counter(Table(url).to_arrow()["p"].to_pylist()))


@pytest.fixture
def told(url, monkeypatch):
    """Says something to this application."""

    def told(**variables):
        for name, text in {"table": url, **variables}.items():
            monkeypatch.setenv(Handoff.variable(name), text)

    return told


@pytest.mark.parametrize("columns", [["a,b"], ["[c", "a,b", "d;e"]])
def test_partition_columns_of_any_name(spark, url, columns):
    names = ["n", *columns]
    values = [(1, "x,y", "z;1", "u"), (2, "[x", "z=2", "v")]
    frame = spark.createDataFrame([row[: len(names)] for row in values], names)
    save(frame, url, partition_by=columns)
    save(frame, url, partition_by=columns, mode="overwrite")
    assert Table(url).partition_by == tuple(columns)
    assert rows(read(spark, url)) == rows(frame)


def test_partitions_with_separators_in_their_values(spark, url):
    frame = spark.createDataFrame([(1, "x;y"), (2, "a,b"), (3, "c")], "n int, p string")
    save(frame, url, partition_by=["p"])
    save(frame.where("p = 'a,b'"), url, mode="overwrite", partitions=["p=x;y", "p=a,b"])
    assert count(url) == {"a,b": 1, "c": 1}
    with pytest.raises(Exception, match="p=c"):
        save(frame, url, mode="append", partitions=["p=x;y", "p=a,b"])
    assert count(url) == {"a,b": 1, "c": 1}


@pytest.mark.parametrize("mode", ["replace", ""])
def test_the_submitters_partitions_are_replaced_even_without_rows(url, frame, told, mode):
    save(frame, url, partition_by=["p"])
    told(mode=mode, partitions=json.dumps(["p=x"]))
    save(frame.where("false"), mode="overwrite")
    assert count(url) == {"y": 1}


def test_rows_of_partitions_that_the_submitter_does_not_name_are_refused(url, frame, told):
    save(frame, url, partition_by=["p"])
    told(mode="append", partitions=json.dumps(["p=x"]))
    with pytest.raises(Exception, match="p=y"):
        save(frame)
    with pytest.raises(InvalidInputError, match=r"writes p=y, and its task is about p=x"):
        save(frame.where("p = 'y'"), partitions=["p=y"])
    save(frame.where("p = 'x'"))
    assert count(url) == {"x": 4, "y": 1}


@pytest.mark.parametrize(("task", "call"), [("day=01", "day=1"), ("day=1", "day=01/")])
def test_first_load_and_its_task_may_spell_a_partition_otherwise(spark, url, told, task, call):
    """The submitter of a table's first load knows no column's type. The application was refused."""
    frame = spark.createDataFrame([(1, 1)], "n int, day int")
    told(mode="replace", partitions=json.dumps([task]))
    with pytest.raises(InvalidInputError, match=r"writes day=2, and its task is about"):
        save(frame, mode="overwrite", partition_by=["day"], partitions=["day=2"])
    save(frame, mode="overwrite", partition_by=["day"], partitions=[call])
    assert Table(url).state().by_partition().keys() == {"day=1"}
    as_text = frame.selectExpr("n", "cast(day as string) day")
    with pytest.raises(InvalidInputError, match="and its task is about"):
        save(as_text, mode="overwrite", partition_by=["day"], partitions=[call])


def test_a_data_root_is_refused_for_directories(url, frame):
    with pytest.raises(InvalidInputError, match="s3://fast/scratch is of Delta tables"):
        save(frame, url, partition_by=["p"], options={"dataRoot": "s3://fast/scratch"})
    assert not Table(url).exists()


def test_into_a_fast_root_first(spark, url, frame):
    """Written by Spark's tasks to another server, read back by tasks, and copied."""
    with running() as fast:
        client = fast.client()
        client.create_bucket(Bucket="fast")
        given = {"dataRoot": f"s3://fast/scratch?endpoint={fast.endpoint}"}
        save(frame, url, partition_by=["p"], layout="delta", options=given)
        save(frame.where("p = 'x'"), url, mode="append", layout="delta")
        assert client.list_objects_v2(Bucket="fast")["KeyCount"] >= 3
        both = frame.unionAll(frame.where("p = 'x'"))
        assert rows(load(spark, url).orderBy("n")) == rows(both.orderBy("n"))
        assert {it.partition for it in DeltaTable(url).not_durable()} == {"p=x", "p=y"}
        DeltaTable(url).checkpoint(apply=True)
    assert rows(load(spark, url).orderBy("n")) == rows(both.orderBy("n"))
