"""The operator that copies what lies only in a table's fast root, beside a real store."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import Tables, run_task, task_context
from zero_rename.committer import InvalidInputError, ZeroRenameError
from zero_rename.committer.store.fast_root import FastPlace
from zero_rename.operators import checkpoint
from zero_rename.operators.checkpoint import CheckpointOperator
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])


@pytest.fixture
def table(tables: Tables) -> DeltaTable:
    """Two days, in a fast root of the same store."""
    table = DeltaTable(f"{tables.url()}_fast", client=tables.bucket.client)
    root = f"s3://{tables.bucket.name}/scratch"
    for day in (1, 2):
        rows = pa.table({"value": [day], "day": [day]}, schema=SCHEMA)
        with table.job(SCHEMA, partition_by=["day"], data_root=root) as job:
            job.write(rows)
    return table


def run(tables: Tables, **arguments: Any) -> dict[str, Any]:
    task = CheckpointOperator(task_id="copy", tables=f"{tables.url()}_fast", **arguments)
    (report,) = run_task(task, task_context(task))["tables"]
    assert json.loads(json.dumps(report)) == report
    return report


def test_it_reports_then_copies(tables: Tables, table: DeltaTable) -> None:
    planned = run(tables, order="latest")
    assert [it["partition"] for it in planned["partitions"]] == ["day=2", "day=1"]
    assert (planned["would_copy"], len(table.not_durable())) == (2, 2)
    done = run(tables, apply=True)
    assert (done["copied"], done["lost"], table.not_durable()) == (2, 0, [])
    assert run(tables, apply=True)["partitions"] == []


def lose(tables: Tables, table: DeltaTable, partition: str) -> None:
    (file,) = table.state([partition]).files
    place = FastPlace.of(tables.bucket.name, file.key)
    assert place is not None
    tables.bucket.client.delete_object(Bucket=place.root.bucket, Key=place.real(file.key))


def test_lost_partition_is_named_though_others_fill_the_report(
    tables: Tables, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(tables, table, "day=2")
    monkeypatch.setattr(checkpoint, "_MOST", 1)
    with pytest.raises(ZeroRenameError, match="in the fast root, day=2; the others are copied"):
        run(tables, apply=True)


def test_it_fails_for_what_is_lost_and_copies_the_rest(tables: Tables, table: DeltaTable) -> None:
    lose(tables, table, "day=1")
    with pytest.raises(ZeroRenameError, match=r"day=1.*lineage plan"):
        run(tables, apply=True)
    assert [it.partition for it in table.not_durable()] == ["day=1"]


def test_table_of_directories_is_refused(tables: Tables) -> None:
    tables.load(1)
    task = CheckpointOperator(task_id="copy", tables=tables.url())
    with pytest.raises(AirflowFailException, match="This table is no Delta table"):
        run_task(task, task_context(task))


def test_no_such_order() -> None:
    with pytest.raises(InvalidInputError, match="order"):
        CheckpointOperator(task_id="copy", tables="flights", order="oldest")


def test_patience_is_refused_since_no_job_is_judged_by_it() -> None:
    with pytest.raises(InvalidInputError, match="patience=60"):
        CheckpointOperator(task_id="copy", tables="flights", patience=60)
