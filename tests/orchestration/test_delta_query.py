"""Layout of the table at a root, as long-lived processes that poll go by it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete
from zero_rename.orchestration import delta_query
from zero_rename.orchestration.delta_query import delta_table_at
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"n": [1], "day": ["a"]})


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let minutes pass for the process that polls."""
    now = [0.0]
    monkeypatch.setattr(delta_query, "monotonic", lambda: now[0])
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
