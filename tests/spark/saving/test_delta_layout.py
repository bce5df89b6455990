"""save() and load() of Delta tables, on a real Spark without any jar of Delta's."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from conftest import Bucket

from zero_rename import Table
from zero_rename.committer import Committed, UnpublishedJob
from zero_rename.committer.errors import (
    CommitConflictError,
    InvalidInputError,
    TableMismatchError,
    UnsupportedTypeError,
)
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import TableLayout
from zero_rename.committer.format.layout import TableRoot
from zero_rename.spark import delete, load, merge, save
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.spark
VARIANT = "parse_json('{}')"


def found(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def url(spark: Any, s3_bucket: Bucket) -> str:
    url = f"s3://{s3_bucket.name}/flights"
    frame = spark.createDataFrame([(1, "a"), (2, "a"), (3, "b")], "n int, p string")
    done = save(frame, url, partition_by=["p"], layout="delta")
    assert done is not None
    assert done.rows == 3
    return url


def test_a_saved_frame_is_a_delta_table_that_is_loaded(spark: Any, url: str) -> None:
    assert found(load(spark, url)) == [(1, "a"), (2, "a"), (3, "b")]
    assert found(load(spark, url, where="p = 'a' and n > 1", columns=["n"])) == [(2,)]
    assert [it.operation for it in DeltaTable(url).history()] == ["WRITE"]


def test_an_overwrite_replaces_the_partitions_that_have_rows(spark: Any, url: str) -> None:
    save(
        spark.createDataFrame([(9, "a")], "n int, p string"), url, mode="overwrite", layout="delta"
    )
    assert found(load(spark, url)) == [(3, "b"), (9, "a")]
    assert found(load(spark, url, as_of=0)) == [(1, "a"), (2, "a"), (3, "b")]


def test_what_the_application_has_read_is_held_against_its_overwrite(spark: Any, url: str) -> None:
    more = load(spark, url).selectExpr("n + 10 as n", "p")
    with DeltaTable(url).job() as other:
        other.write(spark.createDataFrame([(4, "a")], "n int, p string").toArrow())
    with pytest.raises(CommitConflictError, match="Load the table anew now"):
        save(more, url, mode="overwrite", layout="delta")
    again = load(spark, url).selectExpr("n + 10 as n", "p")
    save(again, url, mode="overwrite", layout="delta")
    assert found(load(spark, url)) == [(11, "a"), (12, "a"), (13, "b"), (14, "a")]
    # Its own overwrite is no change of another job.
    save(load(spark, url).where("n > 12"), url, mode="overwrite", layout="delta")


def test_own_commits_since_the_application_has_read_are_no_conflicts(spark: Any, url: str) -> None:
    more = spark.createDataFrame([(7, "a"), (8, "b")], "n int, p string")
    assert load(spark, url).count() == 3
    save(more.where("p = 'a'"), url, layout="delta")
    merge(more.where("p = 'b'"), url, on=["n"])
    save(more, url, mode="overwrite", layout="delta")
    for where in ("p = 'a'", "p = 'b'"):
        save(
            more.where(where),
            url,
            mode="overwrite",
            layout="delta",
            options={"replaceWhere": where},
        )
    replaces: dict[str, Any] = {"mode": "overwrite", "layout": "delta"}
    replaces["options"] = {"replaceTable": "true"}
    for _ in range(2):
        save(more, url, **replaces)
    with DeltaTable(url).job() as other:
        other.write(more.selectExpr("n", "'c' as p").toArrow())
    with pytest.raises(CommitConflictError, match="p=c"):
        save(more, url, **replaces)
    assert [row for row in found(load(spark, url)) if row[1] != "c"] == [(7, "a"), (8, "b")]


@pytest.mark.usefixtures("nothing_loaded")
def test_a_saved_frame_is_made_of_what_the_application_has_loaded(
    spark: Any, url: str, s3_bucket: Bucket
) -> None:
    for name, layout in (("totals", "delta"), ("listed", "directory")):
        made = f"s3://{s3_bucket.name}/{name}"
        frame = load(spark, url, where="p = 'a'").groupBy("p").sum("n").toDF("p", "n")
        done = save(frame, made, layout=layout, code_version="4")
        assert isinstance(done, Committed)
        table = DeltaTable(made) if layout == "delta" else Table(made)
        inputs = table.inputs_of(done.job)
        (read,) = [it for it in inputs.tables if it.table == url]
        assert [it.partition for it in read.partitions] == ["p=a"]
        assert inputs.code_versions == ("4",)


def test_frames_lie_in_a_data_root_and_are_loaded_from_there_and_after_a_checkpoint(
    spark: Any, s3_bucket: Bucket
) -> None:
    url, root = f"s3://{s3_bucket.name}/fast", f"s3://{s3_bucket.name}/scratch"
    frame = spark.createDataFrame([(1, "a"), (2, "a"), (3, "b")], "n int, p string")
    save(frame, url, partition_by=["p"], layout="delta", options={"dataRoot": root})
    more = spark.createDataFrame([(4, "b")], "n int, p string")
    save(more, url, layout="delta")
    table = DeltaTable(url)
    assert len(table.not_durable()) == 2
    rows = [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert found(load(spark, url)) == rows
    delete(url, where="n = 2")
    table.checkpoint(apply=True)
    assert table.not_durable() == []
    assert found(load(spark, url)) == [row for row in rows if row[0] != 2]


@pytest.mark.parametrize("value", [VARIANT, f"array({VARIANT})", f"struct({VARIANT} AS a, 1 AS b)"])
def test_variant_is_refused_by_its_column(spark: Any, s3_bucket: Bucket, value: str) -> None:
    url = f"s3://{s3_bucket.name}/variants"
    frame = spark.sql(f"SELECT 1 AS id, {value} AS c")
    for write in (save, partial(merge, on=["id"])):
        with pytest.raises(UnsupportedTypeError, match=r"'c.*' is a variant"):
            write(frame, url, layout="delta")
    assert not DeltaTable(url).exists()


def test_former_state_is_loaded_by_the_columns_of_then(spark: Any, url: str) -> None:
    more = spark.createDataFrame([(4, "a", 5)], "n int, p string, added int")
    save(more, url, layout="delta", options={"mergeSchema": "true"})
    others = spark.createDataFrame([("a", "x")], "p string, other string")
    options = {"replaceTable": "true", "overwriteSchema": "true"}
    save(others, url, mode="overwrite", layout="delta", options=options)
    assert load(spark, url).columns == ["p", "other"]
    assert load(spark, url, as_of=0).columns == ["n", "p"]
    assert found(load(spark, url, as_of=0, where="p = 'a'")) == [(1, "a"), (2, "a")]
    then = load(spark, url, as_of=1, partitions=["p=a"], columns=["n", "added"])
    assert found(then.where("n > 1")) == [(2, None), (4, 5)]


def test_a_former_state_of_a_table_of_directories_is_refused(spark: Any, s3_bucket: Bucket) -> None:
    url = f"s3://{s3_bucket.name}/listed"
    save(spark.createDataFrame([(1, "a")], "n int, p string"), url)
    with pytest.raises(InvalidInputError, match="a table of directories keeps none"):
        load(spark, url, as_of=1)


def test_a_delta_table_is_not_written_as_directories(spark: Any, url: str) -> None:
    with pytest.raises(TableMismatchError, match="layout="):
        save(spark.createDataFrame([(1, "a")], "n int, p string"), url)


def test_a_layout_that_hadoops_committers_do_not_write_is_refused(spark: Any, url: str) -> None:
    frame = spark.createDataFrame([(1, "a")], "n int, p string")
    with pytest.raises(InvalidInputError, match="magic writes directories"):
        save(frame, url, committer="magic", layout="delta")
    with pytest.raises(InvalidInputError, match="Choose one of directory, delta"):
        save(frame, url, layout="deltas")


def test_rows_that_are_held_back_are_loaded_by_their_job_and_seen_once_it_is_published(
    spark: Any, url: str
) -> None:
    frame = spark.createDataFrame([(9, "a"), (8, "c")], "n int, p string")
    held = save(frame, url, mode="overwrite", layout="delta", publish=False)
    assert isinstance(held, UnpublishedJob)
    assert held.rows == 2
    assert found(load(spark, url)) == [(1, "a"), (2, "a"), (3, "b")]
    assert found(load(spark, url, job=held.job)) == [(8, "c"), (9, "a")]
    assert found(load(spark, url, job=held.job, where="p = 'a'", columns=["n"])) == [(9,)]
    assert found(load(spark, url, job=held.job, partitions=["p=c"])) == [(8, "c")]
    assert DeltaTable(url).publish(held.job).rows == 2
    assert found(load(spark, url)) == [(3, "b"), (8, "c"), (9, "a")]


def test_rows_are_held_back_where_the_submitter_says_so(
    spark: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Handoff(table=TableRoot.parse(url), layout=TableLayout.DELTA, publish=False)
    for name, value in said.encode().items():
        monkeypatch.setenv(name, value)
    frame = spark.createDataFrame([(9, "a")], "n int, p string")
    held = save(frame, url)
    assert isinstance(held, UnpublishedJob)
    with pytest.raises(InvalidInputError, match="to be held back"):
        save(frame, url, publish=True)
    with pytest.raises(InvalidInputError, match="publish=False says nothing to a change"):
        delete(url, where="n = 1")
    assert found(load(spark, url)) == [(1, "a"), (2, "a"), (3, "b")]


def test_job_that_the_application_has_held_back_is_its_own_once_it_is_published(
    spark: Any, url: str
) -> None:
    rows = load(spark, url).selectExpr("n + 10 n", "p")
    held = save(rows, url, mode="overwrite", layout="delta", publish=False)
    assert isinstance(held, UnpublishedJob)
    DeltaTable(url).publish(held.job)
    one = spark.createDataFrame([(9, "a")], "n int, p string")
    save(one, url, mode="overwrite", layout="delta")
    assert found(load(spark, url)) == [(9, "a"), (13, "b")]


def test_rows_that_the_submitter_waits_for_are_not_held_back(
    spark: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the application for one that has committed nothing."""
    root = TableRoot.parse(url)
    said = Handoff(table=root, layout=TableLayout.DELTA, idempotency_key="dag/run/task")
    for name, value in said.encode().items():
        monkeypatch.setenv(name, value)
    frame = spark.createDataFrame([(9, "a")], "n int, p string")
    with pytest.raises(InvalidInputError, match="holds its rows back, and the task"):
        save(frame, url, publish=False)
    assert DeltaTable(url).unpublished() == []
    own = {"idempotencyKey": "another write"}
    assert isinstance(save(frame, url, publish=False, options=own), UnpublishedJob)


def test_rows_are_not_held_back_in_directories_or_by_hadoops_committers(
    spark: Any, s3_bucket: Bucket
) -> None:
    frame, other = spark.createDataFrame([(1,)], "n int"), f"s3://{s3_bucket.name}/other"
    refused = pytest.raises(InvalidInputError, match="publish=False is given for a table of dir")
    with refused:
        save(frame, other, publish=False)
    with refused:
        save(frame, other, publish=False, committer="magic")
    with refused:
        save(frame, other, options={"publish": "false"})


def test_success_marker_is_written_where_it_is_asked_for(
    spark: Any, url: str, s3_bucket: Bucket
) -> None:
    frame = spark.createDataFrame([(9, "a")], "n int, p string")
    save(frame, url, layout="delta")
    assert "flights/_SUCCESS" not in s3_bucket.keys("")
    done = save(frame, url, layout="delta", options={"successMarkers": "table"})
    assert isinstance(done, Committed)
    found = s3_bucket.client.get_object(Bucket=s3_bucket.name, Key="flights/_SUCCESS")
    assert json.loads(found["Body"].read())["jobId"] == done.job
    with pytest.raises(InvalidInputError, match="success_markers=partition_and_table"):
        save(frame, url, layout="delta", options={"successMarkers": "partition_and_table"})
