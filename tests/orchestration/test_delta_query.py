"""Layout of the table at a root, as long-lived processes that poll go by it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.committer.errors import InvalidInputError, StoreRefusedError
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete, PutFile
from zero_rename.orchestration import delta_query, partitions_query
from zero_rename.orchestration.delta_query import delta_table_at
from zero_rename.orchestration.partitions_query import PartitionsQuery, as_found
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"n": [1], "day": ["a"]})


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let minutes pass for the process that polls."""
    now = [0.0]
    for module in (delta_query, partitions_query):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return lambda: now.__setitem__(0, now[0] + 600.0)


def delete(table: Table) -> None:
    for key in table.run(list_objects(f"{table.root.prefix}/")).keys:
        table.run(Delete(key))


def test_table_that_was_made_anew_in_the_other_layout_is_polled_by_that(
    s3_bucket: Bucket, later: Any
) -> None:
    """The sensors of a triggerer waited for heads, or for entries, that never came."""
    url = f"s3://{s3_bucket.name}/flights"
    polled = Table(url)
    assert delta_table_at(polled) is None
    load_rows(Table(url), ROWS)
    assert delta_table_at(polled) is None
    delete(polled)
    with DeltaTable(url).job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    later()
    found = delta_table_at(polled)
    assert found is not None
    later()
    assert delta_table_at(polled) is found
    delete(polled)
    later()
    assert delta_table_at(polled) is None
    load_rows(Table(url), ROWS)
    assert delta_table_at(polled) is None


def test_query_about_a_committer_of_hadoops_finds_a_directory_that_was_adopted_meanwhile(
    s3_bucket: Bucket, later: Any
) -> None:
    """It waited for a commit of that committer for ever."""
    url = f"s3://{s3_bucket.name}/flights"
    polled, sink = Table(url), pa.BufferOutputStream()
    query = PartitionsQuery(url, ("day=1",), committer="magic")
    pq.write_table(ROWS.drop_columns("day"), sink)
    polled.run(PutFile(f"{polled.root.prefix}/day=1/a.parquet", sink.getvalue().to_pybytes()))
    assert as_found(polled, [query]) is polled
    DeltaTable(url).adopt(apply=True)
    later()
    found = as_found(polled, [query])
    assert isinstance(found, DeltaTable)
    with pytest.raises(InvalidInputError, match="committer=magic is about tables of directories"):
        query.ask(found)


def test_query_without_the_right_to_look_for_a_log_looks_once(
    s3_bucket: Bucket, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled = Table(f"s3://{s3_bucket.name}/flights")
    query = PartitionsQuery(polled.root.url, ("day=1",), committer="magic")
    looks = []

    def denied(table: Table) -> Any:
        looks.append(table)
        raise StoreRefusedError("AccessDenied", lacks_right=True)

    monkeypatch.setattr(partitions_query, "delta_table_at", denied)
    for _ in range(2):
        assert as_found(polled, [query]) is polled
        later()
    assert len(looks) == 1
