"""The plan of what is to be run again, as a task."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import Tables, run_task, task_context
from zero_rename.committer import CommitConflictError, Owner
from zero_rename.committer.commit.narrowed_run import pending_narrowings
from zero_rename.operators.recompute import PlanRecomputeOperator, RecomputeOperator
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.provider import clearing

pytestmark = pytest.mark.memory_s3


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
    week = tables.load(1, name="weekly", inputs=[days], idempotency_key="w")
    month = tables.load(1, name="monthly", inputs=[tables.table("weekly").snapshot()])
    assert jobs(planned(tables.url("monthly"))) == []
    tables.load(2, rows=5, mode="overwrite", inputs=())
    assert jobs(planned(tables.url("monthly"))) == [[week.job], [month.job]]
    found = planned(["{{ params.of }}"], of=f"{tables.url('weekly')}/day=1")
    assert jobs(found) == [[week.job]]
    ((step,),) = found["layers"]
    assert (step["run"]["idempotency_key"], step["partitions"]) == ("w", ["day=1"])
    assert "day=2 was of version 1, is of 2" in step["why"][0]


def test_a_lost_one_without_lineage_is_refused(tables: Tables) -> None:
    lost = tables.load(1, inputs=())
    (file,) = tables.table().files()
    tables.bucket.delete(file.key)
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


class Server:
    """Stands for Airflow's API: the program of a task that is cleared runs at once."""

    def __init__(self, *programs: Callable[[], Any]) -> None:
        self._programs = iter(programs)
        self._states: dict[NamedTask, str] = {}

    def state(self, instance: NamedTask) -> str:
        return self._states.get(instance, "success")

    def clear(self, instance: NamedTask, include_downstream: bool = False) -> None:
        try:
            next(self._programs)()
            self._states[instance] = "success"
        except CommitConflictError:
            self._states[instance] = "failed"

    def idle(self, dag_id: str) -> None:
        return None

    def events(self, of: object, after: int = 0) -> list[Any]:
        return []


class TestBetweenPlanAndClear:
    """Somebody else changes what a cleared task is to make again, all that its run has made."""

    @pytest.fixture
    def recompute(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., dict[str, Any]]:
        tables.load(1, inputs=())
        self.week(tables, clear=0)
        tables.load(1, rows=5, mode="overwrite", inputs=())

        def run(*programs: Callable[[], Any]) -> dict[str, Any]:
            api = contextlib.nullcontext(Server(*programs))
            monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: api)
            targets = tables.url("weekly")
            task = RecomputeOperator(
                task_id="again", targets=targets, poll_interval=0, deferrable=False
            )
            return run_task(task, task_context(task))

        return run

    def week(self, tables: Tables, clear: int, rows: int = 2, week: int = 1) -> None:
        """A try of the week's run."""
        owner = Owner("flights", f"{week}", "load", try_number=clear + 1, series=f"x {clear}")
        policy = {
            "owner": owner,
            "idempotency_key": f"flights/{week}/load",
            "on_repeat": "replace_own",
        }
        read = [tables.table().snapshot()]
        tables.load(week, name="weekly", rows=rows, mode="overwrite", inputs=read, **policy)

    def left(self, tables: Tables) -> list[bool]:
        table = tables.table("weekly")
        return [it.said.over for it in table.run(pending_narrowings(table.root))]

    @pytest.mark.parametrize(("mode", "rows"), [("overwrite", 7), ("append", 2 + 7)])
    def test_that_stays(
        self, tables: Tables, recompute: Callable[..., Any], mode: str, rows: int
    ) -> None:
        def mended() -> None:
            tables.load(1, name="weekly", rows=7, mode=mode, inputs=())
            self.week(tables, clear=1)

        with pytest.raises(AirflowFailException, match="is failed"):
            recompute(mended)
        assert tables.table("weekly").to_arrow().num_rows == rows
        assert self.left(tables) == [True]

    def test_nobody_does(self, tables: Tables, recompute: Callable[..., Any]) -> None:
        found = recompute(lambda: self.week(tables, clear=1, rows=3))
        assert [len(layer) for layer in found["layers"]] == [1]
        assert tables.table("weekly").to_arrow().num_rows == 3
        assert self.left(tables) == [True]

    def test_it_ends_and_has_made_nothing(
        self, tables: Tables, recompute: Callable[..., Any]
    ) -> None:
        with pytest.raises(AirflowFailException, match="still hold rows of job"):
            recompute(lambda: None)
        assert tables.table("weekly").to_arrow().num_rows == 2
        assert self.left(tables) == [True]

    def test_one_fails_and_another_has_made_nothing(
        self, tables: Tables, recompute: Callable[..., Any]
    ) -> None:
        """Who clears that one by hand then loads it as he wants."""

        def mended() -> None:
            tables.load(1, name="weekly", rows=7, mode="overwrite", inputs=())
            self.week(tables, clear=1)

        self.week(tables, clear=0, week=2)
        tables.load(1, rows=6, mode="overwrite", inputs=())
        with pytest.raises(AirflowFailException, match="is failed"):
            recompute(mended, lambda: None)
        assert self.left(tables) == [True, True]
