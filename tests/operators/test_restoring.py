"""The operator that brings back what a Delta table held."""

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
from zero_rename.log.job_steps import commit_or_abandon
from zero_rename.operators.restoring import RestoreTableOperator
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])


def load(table: DeltaTable, value: int, **policy: Any) -> str:
    with table.job(SCHEMA, partition_by=["day"], **policy) as job:
        job.write(pa.table({"value": [value, value], "day": [1, 2]}, schema=SCHEMA))
    return str(job.job)


def values(table: DeltaTable) -> set[int]:
    return set(table.scan().to_arrow()["value"].to_pylist())


def run(tables: Tables, **arguments: Any) -> dict[str, Any]:
    given = {"table": f"{tables.url()}_delta", **arguments}
    task = RestoreTableOperator(task_id="restore", **given)
    report = run_task(task, task_context(task))
    assert json.loads(json.dumps(report)) == report
    return report


@pytest.fixture
def table(tables: Tables) -> DeltaTable:
    return DeltaTable(f"{tables.url()}_delta", client=tables.bucket.client)


def test_a_job_is_undone_and_that_undone_too(tables: Tables, table: DeltaTable) -> None:
    load(table, 1)
    job = load(table, 2, mode="replace")
    planned = run(tables, undo=job)
    assert (planned["version"], planned["present"], planned["job"]) == (0, 1, None)
    assert planned["partitions"] == ["day=1", "day=2"]
    assert values(table) == {2}
    done = run(tables, undo=job, apply=True)
    assert values(table) == {1}
    run(tables, undo=done["job"], apply=True)
    assert values(table) == {2}


def test_try_after_one_that_had_undone_the_job_says_which_job_did(
    tables: Tables, table: DeltaTable
) -> None:
    load(table, 1)
    job = load(table, 2, mode="replace")
    done = run(tables, undo=job, apply=True)
    again = run(tables, undo=job, apply=True)
    assert (again["job"], again["partitions"]) == (done["job"], [])
    assert values(table) == {1}


def test_one_partition_as_of_a_version(tables: Tables, table: DeltaTable) -> None:
    load(table, 1)
    load(table, 2, mode="replace")
    run(tables, as_of="0", partitions=["day=1"], apply=True)
    assert values(table) == {1, 2}


def test_retry_restores_nothing_again_and_a_cleared_task_does(
    tables: Tables, table: DeltaTable
) -> None:
    """The worker of the first try died before it could report."""
    load(table, 1)
    load(table, 2, mode="replace")
    given: dict[str, Any] = {"table": f"{tables.url()}_delta", "as_of": "0", "apply": True}
    task = RestoreTableOperator(task_id="restore", retries=1, **given)
    done = run_task(task, task_context(task))
    load(table, 3, mode="replace")
    again = run_task(task, task_context(task, try_number=2))
    assert (again["job"], again["partitions"], values(table)) == (done["job"], [], {3})
    run_task(task, task_context(task, try_number=3, max_tries=3))
    assert values(table) == {1}


def test_table_of_directories_is_refused_for_good_with_the_way_to_have_a_history(
    tables: Tables,
) -> None:
    url = f"{tables.url()}_plain"
    plain = Table(url, client=tables.bucket.client)
    with plain.job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"value": [1], "day": [1]}, schema=SCHEMA))
    for asked in ({"undo": str(job.job)}, {"as_of": 1}):
        with pytest.raises(AirflowFailException, match="--layout delta makes a Delta table"):
            run(tables, table=url, **asked, apply=True)


def _second_that_is_over() -> str:
    """A moment after all that was done, and before all that is to come: entries have seconds."""
    then = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=1)
    after = then + dt.timedelta(seconds=1)
    until("the next second", lambda: dt.datetime.now(dt.UTC) >= after)
    return then.isoformat()


@pytest.mark.parametrize("partitions", [[], "[]"])
def test_restoring_an_empty_list_of_partitions_changes_none(
    tables: Tables, table: DeltaTable, partitions: Any
) -> None:
    load(table, 1)
    then = _second_that_is_over()
    load(table, 2, mode="replace")
    assert run(tables, as_of=then)["partitions"] == ["day=1", "day=2"]
    report = run(tables, as_of=then, partitions=partitions, apply=True)
    assert (report["partitions"], report["job"]) == ([], None)
    assert values(table) == {2}


@pytest.mark.parametrize("asked", ["undo", "as_of"])
def test_conflict_with_a_job_that_commits_meanwhile_is_final_and_leaves_its_rows(
    tables: Tables, table: DeltaTable, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A retry would take those rows for old ones, and away."""
    load(table, 1)
    job = load(table, 2, mode="replace")

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        load(DeltaTable(table.root.url, client=tables.bucket.client), 3)
        return (yield from commit_or_abandon(*given))

    monkeypatch.setattr("zero_rename.tables.delta_restoring.commit_or_abandon", late)
    with pytest.raises(AirflowFailException, match="day=1"):
        run(tables, **{asked: job if asked == "undo" else 0}, apply=True)
    assert values(table) == {2, 3}


def test_partitions_may_be_the_text_that_a_template_makes_of_a_list(
    tables: Tables, table: DeltaTable
) -> None:
    load(table, 1)
    load(table, 2, mode="replace")
    run(tables, as_of="0", partitions="['day=1']", apply=True)
    assert values(table) == {1, 2}


@pytest.mark.parametrize(
    "arguments", [{}, {"undo": "zr1-x", "as_of": "1"}, {"undo": "zr1-x", "partitions": ["day=1"]}]
)
def test_what_cannot_be_meant_is_final(tables: Tables, arguments: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="Either undo"):
        run(tables, **arguments, apply=True)


def test_what_another_has_built_on_is_final(tables: Tables, table: DeltaTable) -> None:
    load(table, 1)
    job = load(table, 2, mode="replace")
    load(table, 3)
    with pytest.raises(AirflowFailException, match="Others have changed"):
        run(tables, undo=job, apply=True)
    assert values(table) == {2, 3}
