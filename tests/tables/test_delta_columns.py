"""Columns that another engine adds to a Delta table: files from before lack them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.delta_log import commit, metadata
from zero_rename.committer import Table
from zero_rename.committer.errors import CommitConflictError, DamagedError, TableMismatchError
from zero_rename.committer.format.job_spec import NOBODY, JobSpec, SuccessMarkers
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "part": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
        "parts": pa.array([[{"a": 1}], []], pa.list_(pa.struct([("a", pa.int64())]))),
    }
)
WITH_TIMES = ROWS.append_column("at", pa.array([datetime(2020, 1, 1), None], pa.timestamp("us")))


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    table = DeltaTable(f"s3://{s3_bucket.name}/flights")
    with table.job(ROWS.schema) as job:
        job.write(ROWS)
    return table


def field(name: str, kind: Any, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def add(bucket: Bucket, *, nested: bool = False, nullable: bool = True) -> None:
    """Add a column, or a field of nested columns."""
    changed = metadata(bucket, {})
    struct = json.loads(changed["metaData"]["schemaString"])
    new = field("seat", "integer", nullable)
    if nested:
        struct["fields"][1]["type"]["fields"].insert(0, new)
        struct["fields"][2]["type"]["elementType"]["fields"].append(new)
    else:
        struct["fields"].append(new)
    changed["metaData"]["schemaString"] = json.dumps(struct)
    commit(bucket, changed)


def test_files_from_before_have_nulls_in_a_column_that_was_added(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    add(s3_bucket)
    assert table.scan(columns=["id", "seat"]).to_arrow().to_pydict() == {
        "id": [1, 2],
        "seat": [None, None],
    }
    assert len(table.scan(filter=[("seat", "==", 1)]).to_arrow()) == 0
    with pytest.raises(TableMismatchError, match="seat is missing"), table.job(ROWS.schema):
        pass
    more = ROWS.append_column("seat", pa.array([7, 8], pa.int32()))
    with table.job(more.schema) as job:
        job.write(more)
    with table.job(ROWS.schema, schema_mode="merge") as job:
        job.write(ROWS)
    table.compact(apply=True)
    assert sorted(table.scan().to_arrow()["seat"].to_pylist(), key=str) == [7, 8, *[None] * 4]


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_job_of_spark_spells_partition_columns_in_another_case_than_the_table(
    s3_bucket: Bucket, kind: type[Table] | type[DeltaTable]
) -> None:
    table = kind(f"s3://{s3_bucket.name}/days")
    rows = pa.table({"day": ["1"], "delay": [5]})
    with table.job(rows.schema, partition_by=["day"]) as job:
        job.write(rows)
    spec = JobSpec(
        pa.schema([("Day", pa.string()), ("DELAY", pa.int64())]),
        partition_by=("Day",),
        owner=NOBODY,
        any_case=True,
        success_markers=SuccessMarkers.NONE,
    )
    with table.tasks_job(spec, lambda _: None) as job:
        writer = table.task_writer(job.opened, 0, 0)
        writer.write(rows)
        job.take([writer.close()], 1)
    assert table.scan().to_arrow().to_pylist() == [{"day": "1", "delay": 5}] * 2


def test_files_from_before_have_nulls_in_a_field_that_was_added(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    add(s3_bucket, nested=True)
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "part": {"seat": None, "a": 1}, "parts": [{"a": 1, "seat": None}]},
        {"id": 2, "part": None, "parts": []},
    ]
    table.merge(table.scan(filter=[("id", "==", 2)]).to_arrow(), ["id"])
    assert table.scan().to_arrow().to_pylist()[0]["part"] == {"seat": None, "a": 1}


def test_a_file_without_a_column_that_must_not_be_null_is_damaged(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    add(s3_bucket, nullable=False)
    with pytest.raises(DamagedError, match="seat is missing"):
        table.scan().to_arrow()


class TestLocalTimes:
    """A column of local times needs a feature, which a table has from the job on that adds one."""

    def protocols(self, bucket: Bucket) -> list[dict[str, Any]]:
        """The protocols of the log, the oldest first."""
        keys = sorted(key for key in bucket.keys("flights/_delta_log/") if key.endswith(".json"))
        lines = [line for key in keys for line in bucket.read(key).decode().splitlines()]
        return [it["protocol"] for it in map(json.loads, lines) if "protocol" in it]

    def add(self, table: DeltaTable) -> None:
        with table.job(WITH_TIMES.schema, schema_mode="merge") as job:
            job.write(WITH_TIMES)

    def test_features_that_the_versions_imply_are_listed_beside_the_new_one(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        self.add(table)
        self.add(table)
        assert self.protocols(s3_bucket) == [
            {"minReaderVersion": 1, "minWriterVersion": 2},
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["timestampNtz"],
                "writerFeatures": ["appendOnly", "invariants", "timestampNtz"],
            },
        ]

    def test_table_that_has_the_column_and_lacks_the_feature_gets_it_by_the_next_job(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        self.add(table)
        commit(s3_bucket, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        with table.job() as job:
            job.write(WITH_TIMES)
        assert self.protocols(s3_bucket)[-1]["readerFeatures"] == ["timestampNtz"]

    def test_features_that_another_engine_switches_on_meanwhile_are_a_conflict(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        features = {"readerFeatures": [], "writerFeatures": ["vacuumProtocolCheck"]}
        versions = {"minReaderVersion": 3, "minWriterVersion": 7}
        with (
            pytest.raises(CommitConflictError, match="changed the table's features"),
            table.job(WITH_TIMES.schema, schema_mode="merge"),
        ):
            commit(s3_bucket, {"protocol": {**versions, **features}})
        self.add(table)
        assert self.protocols(s3_bucket)[-1] == {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timestampNtz"],
            "writerFeatures": ["timestampNtz", "vacuumProtocolCheck"],
        }

    @pytest.mark.parametrize(("reader", "writer"), [(1, 4), (2, 5), (2, 7)])
    def test_table_whose_versions_imply_what_is_not_written_here_is_refused(
        self, table: DeltaTable, s3_bucket: Bucket, reader: int, writer: int
    ) -> None:
        commit(s3_bucket, {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}})
        with pytest.raises(TableMismatchError, match="timestampNtz"):
            self.add(table)
        assert table.schema.names == ROWS.column_names
