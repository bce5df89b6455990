"""Scans of Delta tables with a condition: files that are opened, rows that are found."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Bucket
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.another_process import begin_process
from support.arrow_data import rows_of
from support.conditions import SCHEMA, TYPES, conditions
from zero_rename.committer.format.parquet.row_filter import RowFilter
from zero_rename.committer.scan.partition_condition import wanted_files
from zero_rename.committer.store.requests import Put
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]

DAYS = 40
ROWS_A_DAY = 100
#: Of an unsigned number of 64 bits Delta has no type.
NAMES = [name for name in SCHEMA.names if name != "u"]
COLUMNS = pa.schema([("day_no", pa.int32()), *(SCHEMA.field(name) for name in NAMES)])


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    """A day a file, of numbers that rise."""
    url = f"s3://{s3_bucket.name}/flights"
    ids = range(DAYS * ROWS_A_DAY)
    load(url, pa.table({"id": ids, "day": [n // ROWS_A_DAY for n in ids]}), partition_by=["day"])
    return url


def load(url: str, rows: pa.Table, **policies: Any) -> None:
    with DeltaTable(url).job(rows.schema, **policies) as job:
        job.write(rows)


def requests_of(bucket: Bucket, condition: pc.Expression, rows: int, **given: Any) -> Counter[str]:
    """The requests of a scan that finds so many rows, by kind; those for data files apart."""
    begin_process()
    table = DeltaTable(f"s3://{bucket.name}/flights")
    bucket.counter.reset()
    assert table.scan(filter=condition, **given).to_arrow().num_rows == rows
    log = bucket.counter.log()
    return Counter("file" if key.endswith(".parquet") else name for name, key in log)


#: The log, read once for the columns and the files: the hint, a listing and a checksum file.
LOG = {"GetObject": 2, "ListObjects": 1}


def test_a_condition_that_is_never_true_wants_no_file(url: str) -> None:
    state = DeltaTable(url).state()
    assert wanted_files(state, RowFilter([pc.scalar(False)], state.schema)) == ()


@pytest.mark.parametrize(
    ("condition", "rows", "files"),
    [
        (pc.field("day") == 3, ROWS_A_DAY, 1),
        (pc.field("id") < 150, 150, 2),
        ((pc.field("id") >= 150) & (pc.field("day") < 3), 150, 2),
        (pc.field("id") == -1, 0, 0),
        (pc.field("day") >= 0, DAYS * ROWS_A_DAY, DAYS),
    ],
)
def test_scan_opens_the_files_alone_that_may_match(
    s3_bucket: Bucket, url: str, condition: pc.Expression, rows: int, files: int
) -> None:
    assert requests_of(s3_bucket, condition, rows) == +Counter(**LOG, file=files)


def test_scan_of_named_partitions_reads_the_log_once(s3_bucket: Bucket, url: str) -> None:
    found = requests_of(s3_bucket, pc.field("id") >= 150, 150, partitions=["day=1", "day=2"])
    assert found == Counter(**LOG, file=2)


def test_further_scan_of_a_process_sends_a_listing_besides(s3_bucket: Bucket, url: str) -> None:
    condition = pc.field("id") < 150
    requests_of(s3_bucket, condition, 150)
    s3_bucket.counter.reset()
    assert DeltaTable(url).scan(filter=condition).to_arrow().num_rows == 150
    assert s3_bucket.counter.counts() == {"GetObject": 2, "ListObjects": 1}


def test_scan_of_a_former_version_reads_the_log_once(s3_bucket: Bucket, url: str) -> None:
    load(url, pa.table({"id": [1], "day": [1]}))
    found = requests_of(s3_bucket, pc.field("id") < 150, 150, as_of=0)
    assert found == Counter(**LOG, file=2)


def test_scan_of_a_job_opens_its_files_alone_that_may_match(s3_bucket: Bucket, url: str) -> None:
    with DeltaTable(url).job(publish=False) as job:
        job.write(pa.table({"id": [1, 9000], "day": [1, 90]}))
    assert job.unpublished is not None
    found = requests_of(s3_bucket, pc.field("id") > 5000, 1, job=job.unpublished.job)
    assert found == Counter(GetObject=2, file=1)  # Its two records, once.


def test_bounds_of_a_checkpoint_count(s3_bucket: Bucket, url: str) -> None:
    DeltaTable(url).checkpoint_log()
    log = "flights/_delta_log/00000000000000000000"
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=f"{log}.crc")
    # And the checkpoint itself.
    assert requests_of(s3_bucket, pc.field("id") < 150, 150)["file"] == 2 + 1


def test_file_without_statistics_or_with_text_that_is_none_is_opened(
    s3_bucket: Bucket, url: str
) -> None:
    table = DeltaTable(url)
    key = "flights/_delta_log/00000000000000000000.json"
    body = s3_bucket.client.get_object(Bucket=s3_bucket.name, Key=key)["Body"].read().decode()
    actions = [json.loads(line) for line in body.splitlines()]
    damaged = iter((None, "{", "[]", '{"minValues": 1, "maxValues": [], "nullCount": "x"}'))
    for add in (it["add"] for it in actions if "add" in it):
        if (text := next(damaged, "end")) != "end":
            add["stats"] = text
    text = "".join(json.dumps(it) + "\n" for it in actions)
    table.run(Put(key, text.encode()))
    assert requests_of(s3_bucket, pc.field("id") == 3950, 1)["file"] == 4 + 1


@st.composite
def batches(draw: st.DrawFn) -> pa.Table:
    """Rows as a job brings them: of some of the columns."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    count = draw(st.integers(1, 4))
    columns = {"day_no": pa.array([draw(st.integers(1, 2))] * count, pa.int32())}
    for name in names:
        kind, values = TYPES[name]
        rows = st.lists(st.none() | values, min_size=count, max_size=count)
        columns[name] = pa.array(draw(rows), kind)
    return pa.table(columns)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(batches(), min_size=1, max_size=4), conditions(*NAMES), st.booleans())
def test_scan_finds_what_it_finds_without_bounds(
    s3_bucket: Bucket, jobs: list[pa.Table], condition: pc.Expression, checkpointed: bool
) -> None:
    url = f"s3://{s3_bucket.name}/{uuid4().hex}"
    every = pa.table({"day_no": [1], **{name: [None] for name in NAMES}}, COLUMNS)
    for rows in (*jobs, every):
        load(url, rows, partition_by=["day_no"], schema_mode="merge")
    table = DeltaTable(url)
    if checkpointed:
        table.checkpoint_log()
    expected = rows_of(table.scan().to_arrow().filter(condition))
    assert rows_of(table.scan(filter=condition).to_arrow()) == expected
