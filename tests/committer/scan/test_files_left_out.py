"""Files that a filter leaves unopened, by the bounds that are on record: never one with a row that
is wanted."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.arrow_data import COLUMNS, rows_of
from support.conditions import SCHEMA, TYPES, conditions
from support.memory_store import MemoryStore
from support.protocol import memory_table
from zero_rename import FileOptions, Table
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.store.requests import Get, Put

#: What columns were before they became wider, with the values that fit.
NARROW: dict[str, tuple[pa.DataType, Any]] = {
    "i": (pa.int8(), None),
    "u": (pa.uint8(), (0, 1)),
    "x": (pa.float32(), None),
    "d": (pa.decimal128(4, 2), None),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.Table:
    """Rows as a job brings them: of some of the columns, some of them of narrower types."""
    names = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True))
    count = draw(st.integers(1, 4))
    columns: dict[str, Any] = {"day_no": pa.array([draw(st.integers(1, 2))] * count, pa.int32())}
    for name in names:
        kind, values = TYPES[name]
        if name in NARROW and draw(st.booleans()):
            kind, few = NARROW[name]
            values = values if few is None else st.sampled_from(few)
        rows = st.lists(st.none() | values, min_size=count, max_size=count)
        columns[name] = pa.array(draw(rows), kind)
    return pa.table(columns)


def whole_schema() -> pa.Table:
    """No new rows of worth, but all columns in their widest types."""
    row = {"day_no": [1], **{name: [None] for name in SCHEMA.names}}
    return pa.table(row, pa.schema([("day_no", pa.int32()), *SCHEMA]))


@settings(max_examples=50)
@given(
    st.lists(batches(), min_size=1, max_size=4), conditions(*TYPES), st.booleans(), st.booleans()
)
def test_a_scan_finds_what_it_finds_without_bounds(
    jobs: list[pa.Table], condition: pc.Expression, indexed: bool, folded: bool
) -> None:
    """Over columns that came later and became wider, one row group a row, one file a partition."""
    store = MemoryStore()
    table = memory_table(store)
    if folded:
        table._context = replace(table._context, limits=Limits(decisions_per_head=1))
    for rows in (*jobs, whole_schema()):
        policy: dict[str, Any] = {"partition_by": ["day_no"], "schema_mode": "merge"}
        with table.job(rows.schema, **policy, files=FileOptions(row_group_rows=2)) as job:
            job.write(rows)
    if indexed:
        assert table.write_index()
    reader = memory_table(store)
    found, every = reader.scan(filter=condition).to_arrow(), reader.to_arrow()
    assert rows_of(found) == rows_of(every.filter(condition))


DAYS = 40
ROWS_A_DAY = 100


def requests_of(table: Table) -> list[Any]:
    """Those since the last look."""
    driver: Any = table.driver
    sent = list(driver.requests)
    driver.requests.clear()
    return sent


def data_read(table: Table) -> list[str]:
    """The data files that were read since the last look."""
    gets = [request.key for request in requests_of(table) if isinstance(request, Get)]
    return [key for key in gets if key.endswith(".parquet")]


@pytest.fixture
def store() -> MemoryStore:
    """A day a file, of numbers that rise."""
    store = MemoryStore()
    count = DAYS * ROWS_A_DAY
    rows = pa.table({"id": range(count), "day": [n // ROWS_A_DAY for n in range(count)]})
    with memory_table(store).job(rows.schema, partition_by=["day"]) as job:
        job.write(rows)
    return store


class TestWhatIsRead:
    def test_a_handful_of_requests(self, store: MemoryStore) -> None:
        table = memory_table(store)
        found = table.scan(filter=pc.field("id") < 150).to_arrow()
        assert found.num_rows == 150
        # The record twice, heads twice, the index and its part, and two files.
        assert len(requests_of(table)) == 6 + 2
        assert table.scan(filter=[("id", "=", -1)]).count() == 0
        assert data_read(table) == []

    def test_without_an_index_too(self, store: MemoryStore) -> None:
        for key in [key for key in store.keys("flights/_zero_rename/") if "index" in key]:
            del store.objects[key]
        table = memory_table(store)
        assert table.scan(filter=pc.field("id") == 150).count() == 1
        assert len(data_read(table)) == 1

    def test_nor_after_a_fold(self, store: MemoryStore) -> None:
        writer = memory_table(store)
        writer._context = replace(writer._context, limits=Limits(decisions_per_head=1))
        for _ in range(2):
            rows = pa.table({"id": [10**6], "day": [1]})
            with writer.job(rows.schema) as job:
                job.write(rows)
        table = memory_table(store)
        assert table.scan(["day=1"], filter=pc.field("id") == 150).count() == 1
        assert len(data_read(table)) == 1

    def test_files_that_others_wrote_are_read(self) -> None:
        store = MemoryStore()
        body = io.BytesIO()
        pq.write_table(pa.table({"id": [1, 2]}), body)
        table = memory_table(store)
        table.driver.run(Put("flights/day=1/theirs.parquet", body.getvalue()))
        rows = pa.table({"id": [3], "day": pa.array([1], pa.int32())})
        with table.job(rows.schema, partition_by=["day"]) as job:
            job.write(rows)
        reader = memory_table(store)
        assert reader.scan(filter=pc.field("id") == 2).count() == 1
        assert [key.rsplit("/", 1)[1] for key in data_read(reader)] == ["theirs.parquet"]

    def test_a_column_of_another_type_since(self) -> None:
        """An overwrite of the columns leaves no file of before, and none of its bounds."""
        store = MemoryStore()
        for column in (pa.array([1, 2]), pa.array(["a", "b"]), pa.array([7.5, float("nan")])):
            rows = pa.table({"x": column})
            options = {"mode": "overwrite", "replace_table": True, "schema_mode": "overwrite"}
            with memory_table(store).job(rows.schema, **options) as job:  # type: ignore[arg-type]
                job.write(rows)
            table = memory_table(store)
            assert table.scan(filter=pc.field("x") == column[0]).count() == 1


@pytest.mark.parametrize("name", COLUMNS)
def test_no_value_of_any_type_is_lost(name: str) -> None:
    kind, values = COLUMNS[name]
    rows = pa.table({"x": pa.array(values, kind), "n": range(len(values))})
    store = MemoryStore()
    with memory_table(store).job(rows.schema) as job:
        job.write(rows)
    table = memory_table(store)
    for value in table.to_arrow()["x"]:
        if not pa.types.is_nested(value.type):
            asked = pc.field("x") == value if value.is_valid else pc.field("x").is_null()
            assert table.scan(filter=asked).count(), value
