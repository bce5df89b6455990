"""The plan of what is to be run again, as a task."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import Tables, run_task, task_context
from zero_rename.operators.recompute import PlanRecomputeOperator


def planned(targets: Any, **params: Any) -> dict[str, Any]:
    task = PlanRecomputeOperator(task_id="plan", targets=targets)
    found = run_task(task, task_context(task, params=params))
    assert json.loads(json.dumps(found)) == found
    return found


def jobs(found: dict[str, Any]) -> list[list[str]]:
    return [[step["job"] for step in layer] for layer in found["layers"]]


def test_two_layers_after_a_correction(tables: Tables) -> None:
    tables.load(1, 2, inputs=())
    days = tables.table().snapshot()
    week = tables.load(1, name="weekly", inputs=[days], once="w")
    month = tables.load(1, name="monthly", inputs=[tables.table("weekly").snapshot()])
    assert jobs(planned(tables.url("monthly"))) == []
    tables.load(2, rows=5, mode="overwrite", inputs=())
    assert jobs(planned(tables.url("monthly"))) == [[week.job], [month.job]]
    found = planned(["{{ params.of }}"], of=f"{tables.url('weekly')}/day=1")
    assert jobs(found) == [[week.job]]
    ((step,),) = found["layers"]
    assert (step["run"]["once"], step["partitions"]) == ("w", ["day=1"])
    assert "day=2 was of version 1, is of 2" in step["why"][0]


def test_a_lost_one_without_lineage_is_refused(tables: Tables) -> None:
    lost = tables.load(1, inputs=())
    (file,) = tables.table().files()
    tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=file.key)
    found = planned(tables.url())
    assert (found["layers"], [it["job"] for it in found["refused"]]) == ([], [lost.job])


@pytest.mark.parametrize("targets", [[], {"a": 1}, [5], "s3://bucket", "None"])
def test_what_names_no_table(tables: Tables, targets: Any) -> None:
    with pytest.raises(AirflowFailException):
        planned(targets)


def test_a_partition_that_is_not_there(tables: Tables) -> None:
    tables.load(1)
    with pytest.raises(AirflowFailException, match="no rows in day=2"):
        planned(f"{tables.url()}/day=2")
