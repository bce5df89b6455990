"""What is advised after a conflict, by what the application has read."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket
from pyspark.sql.types import StructType

from support.protocol import DAY1, DAY2, ROOT, World
from zero_rename.committer import CommitConflictError, ReadBase, Table
from zero_rename.committer.format.job_spec import Mode, SuccessMarkers
from zero_rename.committer.format.read_base import NOTHING_READ
from zero_rename.spark.options import read_writer_options
from zero_rename.spark.reading.table_reads import Noted
from zero_rename.spark.saving.planned_job import advise, planned_job
from zero_rename.tables import DeltaTable

NOTHING = Noted(replace(NOTHING_READ, table=ROOT.url))


@pytest.mark.parametrize(
    ("noted", "anew"),
    [
        (NOTHING, False),
        # It knows what it has written itself, and another partition.
        (NOTHING.read(ReadBase(ROOT.url, {DAY2: 1}, whole=False), None), False),
        (NOTHING.read(ReadBase(ROOT.url, {DAY1: 1}, whole=False), None), True),
        (NOTHING.read(ReadBase(ROOT.url, {DAY1: 1, DAY2: 1}), None), True),
    ],
)
def test_to_read_anew_only_what_was_read(noted: Noted, anew: bool) -> None:
    world = World()
    world.load(DAY1, DAY2)
    opened = world.open(Mode.REPLACE)
    base = noted.base_of(opened)
    opened = replace(opened, spec=replace(opened.spec, base=base))
    result = world.write(opened, DAY1)
    world.load(DAY1)
    with pytest.raises(CommitConflictError) as caught:
        world.commit(opened, result)
    advise(caught.value, opened.root, base)
    assert ("Load the table anew" in (caught.value.remedy or "")) is anew
    assert ("since this job opened" in caught.value.message) is not anew


@pytest.mark.memory_s3
@pytest.mark.usefixtures("s3_env")
@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize(
    ("stored", "values", "given", "where"),
    [
        (pa.int64(), [1, 5_000_000_000], "integer", "p = 1 or p = 2"),
        (pa.int64(), [1, 5_000_000_000], "integer", "p = 1"),
        (pa.decimal128(10, 3), [Decimal("1.500"), Decimal("1.505")], "decimal(4,1)", "p <= 1.5"),
        (pa.string(), ["a", "b"], "void", "p = 'a'"),
        (pa.string(), ["a", "b"], "void", "p < 'b'"),
    ],
    ids=str,
)
def test_a_condition_means_the_partitions_of_the_table_also_if_the_frame_has_a_narrower_type(
    s3_bucket: Bucket,
    kind: type[Table | DeltaTable],
    stored: pa.DataType,
    values: list[Any],
    given: str,
    where: str,
) -> None:
    table = kind(f"s3://{s3_bucket.name}/flights")
    rows = pa.table({"n": [1, 2], "p": pa.array(values, stored)})
    with table.job(rows.schema, partition_by=["p"]) as job:
        job.write(rows)
    options = read_writer_options({"replaceWhere": where}, {})
    if kind is DeltaTable:
        options = replace(options, success_markers=SuccessMarkers.NONE)
    schema = StructType().add("n", "long").add("p", given)
    planned = planned_job(table, schema, True, options, True, None)
    with table.tasks_job(planned.spec, lambda _: None) as job:
        job.take([], 0)
    assert table.scan().to_arrow()["n"].to_pylist() == [2]


@pytest.mark.memory_s3
@pytest.mark.usefixtures("s3_env")
@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_columns_that_are_overwritten_are_spelled_as_the_frame_does_but_for_partition_columns(
    s3_bucket: Bucket, kind: type[Table | DeltaTable]
) -> None:
    table = kind(f"s3://{s3_bucket.name}/flights")
    rows = pa.table({"n": [1], "p": ["a"]})
    with table.job(rows.schema, partition_by=["p"]) as job:
        job.write(rows)
    given = {"replaceTable": "true", "overwriteSchema": "true", "partitionBy": "P"}
    options = read_writer_options(given, {})
    if kind is DeltaTable:
        options = replace(options, success_markers=SuccessMarkers.NONE)
    schema = StructType().add("N", "long").add("P", "string")
    planned = planned_job(table, schema, True, options, True, None)
    with table.tasks_job(planned.spec, lambda _: None) as job:
        job.take([], 0)
    assert (table.schema.names, table.partition_by) == (["N", "p"], ("p",))
