"""The operator that brings back what a table held, on a table that is read by heads."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import Tables, run_task, task_context
from support.waiting import until
from zero_rename.committer import Table
from zero_rename.operators.restoring import RestoreTableOperator

pytestmark = pytest.mark.memory_s3

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])


def load(table: Table, value: int, **policy: Any) -> str:
    with table.job(SCHEMA, partition_by=["day"], readers="heads", **policy) as job:
        job.write(pa.table({"value": [value, value], "day": [1, 2]}, schema=SCHEMA))
    return str(job.job)


def values(table: Table) -> set[int]:
    return set(table.to_arrow()["value"].to_pylist())


def run(tables: Tables, **arguments: Any) -> dict[str, Any]:
    task = RestoreTableOperator(task_id="restore", table=f"{tables.url()}_heads", **arguments)
    report = run_task(task, task_context(task))
    assert json.loads(json.dumps(report)) == report
    return report


@pytest.fixture
def table(tables: Tables) -> Table:
    return Table(f"{tables.url()}_heads", client=tables.bucket.client)


def test_a_job_is_undone_and_that_undone_too(tables: Tables, table: Table) -> None:
    load(table, 1)
    job = load(table, 2, mode="replace")
    planned = run(tables, undo=job)
    assert (planned["versions"], planned["job"]) == ({"day=1": 1, "day=2": 1}, None)
    assert values(table) == {2}
    done = run(tables, undo=job, apply=True)
    assert values(table) == {1}
    run(tables, undo=done["job"], apply=True)
    assert values(table) == {2}


def test_one_partition_as_of_a_version(tables: Tables, table: Table) -> None:
    load(table, 1)
    load(table, 2, mode="replace")
    run(tables, as_of="1", partitions=["day=1"], apply=True)
    assert values(table) == {1, 2}


def _second_that_is_over() -> str:
    """A moment after all that was done, and before all that is to come: decisions have seconds."""
    then = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=1)
    after = then + dt.timedelta(seconds=1)
    until("the next second", lambda: dt.datetime.now(dt.UTC) >= after)
    return then.isoformat()


@pytest.mark.parametrize("partitions", [[], "[]"])
def test_restoring_an_empty_list_of_partitions_changes_none(
    tables: Tables, table: Table, partitions: Any
) -> None:
    load(table, 1)
    then = _second_that_is_over()
    load(table, 2, mode="replace")
    assert run(tables, as_of=then)["versions"] == {"day=1": 1, "day=2": 1}
    report = run(tables, as_of=then, partitions=partitions, apply=True)
    assert (report["versions"], report["job"]) == ({}, None)
    assert values(table) == {2}


def test_partitions_may_be_the_text_that_a_template_makes_of_a_list(
    tables: Tables, table: Table
) -> None:
    load(table, 1)
    load(table, 2, mode="replace")
    run(tables, as_of="1", partitions="['day=1']", apply=True)
    assert values(table) == {1, 2}


@pytest.mark.parametrize(
    "arguments", [{}, {"undo": "zr1-x", "as_of": "1"}, {"undo": "zr1-x", "partitions": ["day=1"]}]
)
def test_what_cannot_be_meant_is_final(tables: Tables, arguments: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="Either undo"):
        run(tables, **arguments, apply=True)


def test_what_another_has_built_on_is_final(tables: Tables, table: Table) -> None:
    load(table, 1)
    job = load(table, 2, mode="replace")
    load(table, 3)
    with pytest.raises(AirflowFailException, match="has built on it"):
        run(tables, undo=job, apply=True)
    assert values(table) == {2, 3}
