"""Delta tables of this package beside Delta on Spark 4.1: each reads what the other one wrote, and
goes on from it.

The table lies in a store in memory; Spark gets its objects as files of a folder, and what it writes
there is taken back. ``make delta-spark`` runs all of it; ``make test`` what is not marked so.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.delta_features import FEATURES, FeatureTable
from support.delta_values import CONDITIONS, ODD_NAMES, PARTITIONS, VALUES, days
from support.engine_process import EngineProcess
from support.shared_table import SharedTable
from zero_rename.committer.errors import CommitConflictError, TableMismatchError
from zero_rename.committer.store.requests import PutFile
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.memory_s3]
whole = pytest.mark.skipif(not os.environ.get("DELTA_SPARK"), reason="of make delta-spark")
SPARK = "spark"
COLUMNS = ["day", "delay"]


@pytest.fixture
def shared(s3_bucket: Bucket, tmp_path: Any, delta_spark: EngineProcess) -> SharedTable:
    return SharedTable(
        DeltaTable(f"s3://{s3_bucket.name}/flights"), tmp_path / "flights", delta_spark
    )


def assert_same(shared: SharedTable, columns: list[str], rows: int) -> None:
    """Spark and this package see the same rows, and so many."""
    ours = shared.ours(columns)
    assert shared.seen_by(SPARK, columns) == ours
    assert len(ours) == rows


def delays(shared: SharedTable) -> list[int]:
    return sorted(int(delay) for (delay,) in shared.ours(["delay"]))


def append_beside(shared: SharedTable, statement: str, **options: Any) -> None:
    """Run a job beside which Spark changes the table once the job's file is there."""
    rows = days(("1", 9))
    with shared.table.job(rows.schema, **options) as job:
        writer = shared.table.task_writer(job.opened, 0, 0)
        writer.write(rows)
        job.take([writer.close()], 1)
        shared.by_sql(statement)


def clean_log(bucket: Bucket) -> int:
    """Delete the entries before the newest checkpoint, as engines do; the version of it."""
    log = bucket.keys("flights/_delta_log/")
    newest = max(int(found[1]) for key in log if (found := re.search(r"(\d{20})\.checkpoint", key)))
    for key in log:
        found = re.search(r"(\d{20})\.(json|crc)$", key)
        if found and int(found[1]) < newest:
            bucket.client.delete_object(Bucket=bucket.name, Key=key)
    return newest


class TestOursReadBySpark:
    def test_spark_reads_each_version_that_jobs_have_committed(self, shared: SharedTable) -> None:
        odd = days(("1", 5), ("2", 6), (None, 7), ("", 10), ("ü/ %2F=", 8))
        shared.write(odd, partition_by=["day"])
        shared.write(days(("1", 9)), mode="overwrite")
        shared.table.merge(days(("2", 60)), ["day"])
        shared.table.delete([("delay", "==", 8)])
        shared.table.checkpoint_log()
        shared.write(days(("3", 1)))
        shared.write(days(("3", 2)))
        shared.table.compact(apply=True)
        shared.table.restore(1, apply=True)
        shared.table.restore(5, apply=True)
        assert_same(shared, COLUMNS, 6)
        past = "select {0} of, day, delay from {{table}} version as of {0}"
        seen = shared.by_sql(" union all ".join(past.format(version) for version in range(9)))
        for version in range(9):
            scan = shared.table.scan(columns=COLUMNS, as_of=version).to_arrow().to_pylist()
            ours = sorted([str(version), *map(repr, row.values())] for row in scan)
            assert sorted(row for row in seen if row[0] == str(version)) == ours

    def test_spark_reads_values_of_each_type(self, shared: SharedTable) -> None:
        shared.write(pa.table({"id": [0, 1, 2, 3], **VALUES}))
        assert_same(shared, ["id", *VALUES], 4)

    def test_spark_skips_no_file_that_fits(self, shared: SharedTable) -> None:
        table = pa.table({"id": [0, 1, 2, 3], **VALUES})
        for row in range(4):
            shared.write(table.slice(row, 1))
        for condition, fitting in CONDITIONS.items():
            where = condition.replace('"', "`")
            found = shared.seen_by(SPARK, ["id"], where)
            assert found == [(str(row),) for row in fitting], condition

    @whole
    def test_spark_reads_partitions_of_each_type(self, shared: SharedTable) -> None:
        names = list(PARTITIONS)
        shared.write(pa.table({"id": [0, 1], **PARTITIONS}), partition_by=names)
        assert_same(shared, ["id", *names], 2)

    def test_spark_reads_points_in_time_of_partitions_whatever_its_time_zone(
        self, shared: SharedTable, delta_spark: EngineProcess
    ) -> None:
        shared.write(pa.table({"id": [0, 1], "at": PARTITIONS["p_at"]}), partition_by=["at"])
        setting = {"do": "setting", "name": "spark.sql.session.timeZone"}
        delta_spark.ask(**setting, value="America/New_York")
        try:
            found = shared.by_sql("select id, unix_micros(at) from {table}")
            where = "at = timestamp'2013-01-01 05:00:00Z'"
            assert shared.seen_by(SPARK, ["id"], where) == [("0",)]
        finally:
            delta_spark.ask(**setting, value="UTC")
        assert sorted(found) == [["0", "1357016400000000"], ["1", "None"]]

    def test_spark_reads_odd_partition_values(self, shared: SharedTable) -> None:
        odd = days(*((name, number) for number, name in enumerate(ODD_NAMES)))
        shared.write(odd, partition_by=["day"])
        assert_same(shared, COLUMNS, len(ODD_NAMES))
        for name in ("a%b", "100%25", "ünïcödé ☃", "tr."):
            found = shared.seen_by(SPARK, ["delay"], f"day = '{name}'")
            assert found == [(str(ODD_NAMES.index(name)),)]

    @whole
    def test_spark_reads_columns_that_came_later_and_files_of_another_order(
        self, shared: SharedTable
    ) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        more = days(("1", 6)).append_column("gate", pa.array(["A"]))
        shared.write(more, schema_mode="merge")
        shared.write(more.select(["gate", "delay", "day"]))
        assert_same(shared, [*COLUMNS, "gate"], 3)
        wide = pa.table({"gate": ["B"], "day": ["2"], "late": [True]})
        shared.write(wide, schema_mode="overwrite", mode="overwrite", replace_table=True)
        assert_same(shared, ["gate", "day", "late"], 1)

    def test_spark_reads_a_checkpoint_whose_entries_are_gone(
        self, shared: SharedTable, s3_bucket: Bucket
    ) -> None:
        shared.write(pa.table({"id": [0, 1], **PARTITIONS}), partition_by=list(PARTITIONS))
        shared.write(pa.table({"id": [2, 3], **PARTITIONS}))
        shared.table.delete([("id", "==", 0)])
        shared.table.checkpoint_log()
        assert clean_log(s3_bucket) == 2
        shared.write(pa.table({"id": [4, 5], **PARTITIONS}))
        assert_same(shared, ["id", *PARTITIONS], 5)
        found = shared.seen_by(SPARK, ["id"], "p_date = '2013-01-01'")
        assert found == [("2",), ("4",)]


class TestSparksBetweenJobs:
    def test_changes_of_spark_are_read_and_committed_upon(self, shared: SharedTable) -> None:
        shared.write(days(("1", 5), ("2", 6)), partition_by=["day"])
        shared.by_sql("insert into {table} values ('1', 7), (null, 8)")
        assert delays(shared) == [5, 6, 7, 8]
        shared.write(days((None, 9)))
        shared.by_sql("update {table} set delay = 100 where delay = 5")
        shared.by_sql("delete from {table} where delay = 6")
        shared.write(days(("2", 10)), mode="overwrite")
        assert delays(shared) == [7, 8, 9, 10, 100]
        shared.by_sql(
            "merge into {table} t using (select '2' day, 11L delay union all select '3', 12L) s "
            "on s.day = t.day when matched then update set * when not matched then insert *"
        )
        shared.table.merge(days(("3", 13)), ["day"])
        shared.by_sql("optimize {table}")
        shared.write(days(("4", 14)))
        assert delays(shared) == [7, 8, 9, 11, 13, 14, 100]
        shared.by_sql("insert overwrite {table} partition (day = '1') values (15)")
        assert delays(shared) == [8, 9, 11, 13, 14, 15]
        shared.table.delete([("delay", "==", 8)])
        shared.by_sql("restore {table} to version as of 1")
        assert delays(shared) == [5, 6, 7, 8]
        shared.write(days(("1", 16)))
        shared.by_sql("vacuum {table} retain 0 hours")
        shared.write(days(("1", 17)), mode="overwrite")
        assert_same(shared, COLUMNS, 3)
        assert delays(shared) == [6, 8, 17]

    def test_values_that_spark_wrote_are_read(
        self, shared: SharedTable, delta_spark: EngineProcess
    ) -> None:
        values = pa.table({"id": [0, 1, 2, 3], **VALUES})
        shared.write(values)
        other = SharedTable(
            DeltaTable(f"{shared.table.root.url}_copy"),
            shared._folder.with_name("copy"),
            delta_spark,
        )
        source = f"delta.`{shared.hand_out()}`"
        other.by_sql(f"create table {{table}} using delta as select * from {source}")
        assert other.ours(["id", *VALUES]) == shared.ours(["id", *VALUES])
        other.write(values)
        assert_same(other, ["id", *VALUES], 8)

    def test_partitions_that_spark_wrote_are_read_and_replaced(
        self, shared: SharedTable, delta_spark: EngineProcess
    ) -> None:
        odd = pa.array([name or None for name in ODD_NAMES], pa.string())
        names = ["odd", *PARTITIONS]
        first, second = (
            pa.table(
                {
                    "id": list(range(start, start + len(odd))),
                    "odd": odd,
                    **{name: pa.repeat(them[0], len(odd)) for name, them in PARTITIONS.items()},
                }
            )
            for start in (0, 100)
        )
        shared.write(first)
        other = SharedTable(
            DeltaTable(f"{shared.table.root.url}_copy"),
            shared._folder.with_name("copy"),
            delta_spark,
        )
        source = f"delta.`{shared.hand_out()}`"
        by = ", ".join(names)
        other.by_sql(
            f"create table {{table}} using delta partitioned by ({by}) as select * from {source}"
        )
        assert other.ours(["id", *names]) == shared.ours(["id", *names])
        other.write(second, mode="overwrite")
        assert_same(other, ["id", *names], len(odd))
        assert {int(number) for (number,) in other.ours(["id"])} == {*range(100, 100 + len(odd))}

    @whole
    @pytest.mark.parametrize(
        ("column", "kind", "raw", "value"),
        [
            ("month", "int", "01", pa.scalar(1, pa.int32())),
            ("day", "date", "2013-1-2", pa.scalar(date(2013, 1, 2))),
        ],
    )
    def test_directories_that_spark_has_converted_are_replaced_however_they_are_spelled(
        self, shared: SharedTable, column: str, kind: str, raw: str, value: Any
    ) -> None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"delay": [5]}), sink)
        key = f"{shared.table.root.prefix}/{column}={raw}/a.parquet"
        shared.table.driver.run(PutFile(key, sink.getvalue()))
        shared.by_sql(
            f"convert to delta parquet.`{shared.hand_out()}` partitioned by ({column} {kind})"
        )
        assert delays(shared) == [5]
        shared.write(pa.table({"delay": [6], column: pa.array([value])}), mode="overwrite")
        assert_same(shared, [column, "delay"], 1)
        assert delays(shared) == [6]

    @whole
    def test_columns_that_spark_has_added_are_null_before(self, shared: SharedTable) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        shared.by_sql("alter table {table} add columns (gate string)")
        shared.by_sql("insert into {table} values ('1', 6, 'A')")
        shared.write(days(("2", 7)), schema_mode="merge")
        assert_same(shared, [*COLUMNS, "gate"], 3)

    @whole
    def test_a_replace_beside_an_append_of_spark_is_refused(self, shared: SharedTable) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        with pytest.raises(CommitConflictError):
            append_beside(shared, "insert into {table} values ('1', 7)", mode="overwrite")
        assert delays(shared) == [5, 7]

    @whole
    @pytest.mark.parametrize(
        "overwrite",
        [
            "insert overwrite {table} values ('1', 7)",
            "insert overwrite {table} partition (day = '1') values (7)",
        ],
        ids=["the table", "a partition"],
    )
    def test_an_append_beside_an_overwrite_of_spark_is_refused(
        self, shared: SharedTable, overwrite: str
    ) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        with pytest.raises(CommitConflictError):
            append_beside(shared, overwrite)
        assert delays(shared) == [7]

    @whole
    def test_an_append_passes_a_compaction_of_spark(self, shared: SharedTable) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        shared.write(days(("1", 6)))
        append_beside(shared, "optimize {table}")
        assert_same(shared, ["delay"], 3)

    @whole
    def test_a_run_that_spark_has_compacted_takes_the_place_of_its_rows(
        self, shared: SharedTable
    ) -> None:
        shared.write(days(("1", 5)), partition_by=["day"], idempotency_key="run")
        shared.write(days(("1", 6)))
        shared.by_sql("optimize {table}")
        shared.write(days(("1", 7)), idempotency_key="run", on_repeat="replace_own")
        assert_same(shared, ["delay"], 2)
        assert delays(shared) == [6, 7]

    @whole
    def test_a_run_whose_rows_spark_has_updated_is_refused(self, shared: SharedTable) -> None:
        shared.write(days(("1", 5), ("1", 6)), partition_by=["day"], idempotency_key="run")
        shared.by_sql("update {table} set delay = 50 where delay = 5")
        with pytest.raises(CommitConflictError):
            shared.write(days(("1", 7)), idempotency_key="run", on_repeat="replace_own")
        assert delays(shared) == [6, 50]

    @whole
    def test_a_job_whose_files_a_vacuum_of_spark_has_deleted_is_refused(
        self, shared: SharedTable
    ) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        with pytest.raises(CommitConflictError, match="A VACUUM has deleted files of this job"):
            append_beside(shared, "vacuum {table} retain 0 hours")
        assert delays(shared) == [5]
        assert shared.table.verify() == []

    @whole
    def test_a_write_of_spark_that_is_repeated_is_skipped_after_a_checkpoint_of_ours(
        self, shared: SharedTable, delta_spark: EngineProcess, s3_bucket: Bucket
    ) -> None:
        shared.write(days(("1", 5)), partition_by=["day"])
        for number in range(2):
            delta_spark.ask(
                do="write",
                folder=shared.hand_out(),
                rows=[["1", 6]],
                columns="day string, delay bigint",
                mode="append",
                options={"txnAppId": "a program", "txnVersion": "1"},
            )
            shared.take_back()
            if not number:
                shared.table.checkpoint_log()
                clean_log(s3_bucket)
        assert delays(shared) == [5, 6]


@whole
class TestCheckpointsOfSpark:
    @pytest.mark.parametrize("size", [None, "2"], ids=["one", "of several parts"])
    def test_a_checkpoint_whose_entries_are_gone_is_read_and_committed_upon(
        self, shared: SharedTable, delta_spark: EngineProcess, s3_bucket: Bucket, size: str | None
    ) -> None:
        name = "spark.databricks.delta.checkpoint.partSize"
        delta_spark.ask(do="setting", name=name, value=size)
        try:
            shared.by_sql(
                "create table {table} (day string, delay bigint) using delta partitioned by (day) "
                "tblproperties ('delta.checkpointInterval' = '4')"
            )
            for number in range(4):
                shared.by_sql(f"insert into {{table}} values ('{number % 2}', {number})")
        finally:
            delta_spark.ask(do="setting", name=name, value=None)
        parts = [key for key in s3_bucket.keys("flights/_delta_log/") if ".checkpoint." in key]
        assert (len(parts) > 1) == (size is not None)
        assert clean_log(s3_bucket) == 4
        shared.write(days(("1", 10)), mode="overwrite")
        for number in range(4):
            shared.write(days(("2", 20 + number)))
        assert_same(shared, COLUMNS, 7)
        assert delays(shared) == [0, 2, 10, 20, 21, 22, 23]
        assert clean_log(s3_bucket) > 4
        assert_same(shared, COLUMNS, 7)


def _write(table: DeltaTable, **options: Any) -> None:
    rows = pa.table({"id": pa.array([9], pa.int64()), "p": pa.array([9], pa.int32())})
    with table.job(rows.schema, schema_mode="merge", **options) as job:
        job.write(rows)


#: Verbs that are tried on a table that Spark has made.
VERBS: dict[str, Callable[[DeltaTable], object]] = {
    "append": _write,
    "replace": lambda table: _write(table, mode="overwrite", replace_table=True),
    "checkpoint": lambda table: table.checkpoint_log(),
}


@whole
@pytest.mark.parametrize("feature", FEATURES, ids=lambda it: it.name)
def test_a_table_of_spark_with_a_feature_is_read_and_written_as_the_list_says(
    shared: SharedTable, s3_bucket: Bucket, delta_spark: EngineProcess, feature: FeatureTable
) -> None:
    for made in feature.made:
        if isinstance(made, str):
            shared.by_sql(made)
        else:
            delta_spark.ask(do="build", folder=shared.hand_out(), columns=made)
            shared.take_back()
    [detail] = shared.by_sql("describe detail {table}")
    assert any(repr(feature.name) in cell for cell in detail), detail
    mapped = any("columnMapping" in str(made) for made in feature.made)
    name = "columnMapping" if mapped else feature.name
    if feature.read:
        assert_same(shared, ["id", "p"], 2)
    else:
        with pytest.raises(TableMismatchError, match=re.escape(name)):
            shared.ours(["id", "p"])
    allowed = {"yes": {*VERBS}, "appends": {"append", "checkpoint"}, "no": set[str]()}
    rows = 2
    for verb, change in VERBS.items():
        if verb in allowed[feature.written]:
            change(shared.table)
            rows = {"append": rows + 1, "replace": 1, "checkpoint": rows}[verb]
            assert_same(shared, ["id", "p"], rows)
            continue
        before = s3_bucket.sizes()
        with pytest.raises(TableMismatchError, match=re.escape(name)):
            change(shared.table)
        assert s3_bucket.sizes() == before, verb
