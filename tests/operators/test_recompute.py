"""The plan of what is to be run again, as a task."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import Tables, run_task, task_context
from zero_rename.committer import CommitConflictError, FileOptions, Owner
from zero_rename.committer.commit.narrowed_run import pending_narrowings
from zero_rename.committer.format.job_spec import Content
from zero_rename.committer.format.records.success_marker import success_data
from zero_rename.operators.recompute import PlanRecomputeOperator, RecomputeOperator
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.provider import clearing
from zero_rename.provider.airflow_api import AssetEvent, TriggeredRun

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


@pytest.mark.parametrize("operator", [PlanRecomputeOperator, RecomputeOperator])
@pytest.mark.parametrize("partition", ["", "/day=1"])
def test_target_that_hadoops_committers_load_is_refused(
    tables: Tables, operator: type[PlanRecomputeOperator], partition: str
) -> None:
    """It was never stale, so that the task ended well each day, and did nothing."""
    head = {"committer": "magic", "jobId": "a", "success": True}
    tables.bucket.put("wh/flights/day=1/part-0.parquet", b"x")
    tables.bucket.put("wh/flights/_SUCCESS", success_data(head, 0.0, ["wh/flights/day=1/x"]))
    task = operator(task_id="plan", targets=[f"{tables.url()}{partition}"])
    with pytest.raises(AirflowFailException, match=r"Hadoop's committers load s3://\S+/flights,"):
        run_task(task, task_context(task))


def test_partitions_of_which_nobody_can_tell_are_counted_in_the_log(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    tables.load(1, 2, inputs=())
    assert jobs(planned(tables.url())) == []
    assert "Of 2 partitions it is not known what they were computed from" in caplog.text


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

    def clear(
        self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
    ) -> None:
        try:
            next(self._programs)()
            self._states[instance] = "success"
        except CommitConflictError:
            self._states[instance] = "failed"

    def idle(self, dag_id: str) -> None:
        return None

    def events(self, of: object, after: int = 0) -> list[Any]:
        return []

    def last_event(self, of: object) -> int:
        return max((it.number for it in self.events(of)), default=0)

    def followers(self, asset: str) -> list[str]:
        return []


class Followed(Server):
    """Stands for an Airflow in which the week's asset starts the DAG ``monthly``, whose run goes on
    until a while after the ranking was made."""

    def __init__(self, month: Callable[[], Any], *programs: Callable[[], Any]) -> None:
        super().__init__(*programs)
        self._month, self._looks = month, 0
        self.cleared: list[str] = []
        self.run = TriggeredRun("monthly", "asset", "running")

    def clear(
        self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
    ) -> None:
        self.cleared.append(instance.dag_id)
        super().clear(instance)

    def events(self, of: object, after: int = 0) -> list[AssetEvent]:
        if not isinstance(of, NamedTask) or of.dag_id != "weekly" or not self.cleared:
            return []
        self._looks += "ranking" in self.cleared
        if self._looks == 2:
            self._month()
            self.run = replace(self.run, state="success")
        return [AssetEvent(1, "assets/weekly", time.time(), (self.run,))]

    def followers(self, asset: str) -> list[str]:
        return ["monthly"]


@pytest.fixture
def load(tables: Tables) -> Callable[..., None]:
    """Loads a table from another one, as the program of a task."""

    def run_program(name: str, source: str, run: str = "a", rows: int = 2) -> None:
        owner = Owner(name, run, "load", try_number=1, series="x 0")
        read = [tables.table(source).snapshot()]
        key = f"{name}/{run}/load"
        policy: dict[str, Any] = {"owner": owner, "idempotency_key": key}
        policy |= {"files": FileOptions(content=Content.ROWS), "inputs": read}
        more = {"mode": "overwrite", "on_repeat": "replace_own", **policy}
        tables.load(1, name=name, rows=rows, **more)

    return run_program


def test_week_that_comes_out_equal_ends_the_wave(
    tables: Tables, load: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.load(1, inputs=())
    load("weekly", "flights")
    load("monthly", "weekly")
    tables.load(1, rows=5, mode="overwrite", inputs=())
    server = Server(lambda: load("weekly", "flights"))  # And no other one is cleared.
    monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: contextlib.nullcontext(server))
    targets = [tables.url("monthly")]
    task = RecomputeOperator(task_id="again", targets=targets, poll_interval=0, deferrable=False)
    layers = run_task(task, task_context(task))["layers"]
    assert [[it["table"] for it in layer] for layer in layers] == [[tables.url("weekly")]]


def test_run_that_an_asset_has_started_is_waited_for_while_others_are_cleared(
    tables: Tables, load: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forgotten once another task of its layer was cleared, and its DAG's recorded run was
    cleared beside it."""
    tables.load(1, inputs=())
    load("weekly", "flights")
    load("monthly", "weekly")
    load("ranking", "weekly")
    tables.load(1, rows=5, mode="overwrite", inputs=())
    server = Followed(
        lambda: load("monthly", "weekly", "asset", 4),
        lambda: load("weekly", "flights", rows=3),
        lambda: load("ranking", "weekly", rows=3),
    )
    monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: contextlib.nullcontext(server))
    targets = [tables.url("monthly"), tables.url("ranking")]
    task = RecomputeOperator(task_id="again", targets=targets, poll_interval=0, deferrable=False)
    run_task(task, task_context(task))
    assert server.cleared == ["weekly", "ranking"]
    assert tables.table("monthly").to_arrow().num_rows == 4


class TestBetweenPlanAndClear:
    """Somebody else changes what a cleared task is to make again, all that its run has made."""

    @pytest.fixture
    def recompute(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., dict[str, Any]]:
        tables.load(1, inputs=())
        self.week(tables, clear=0)
        tables.load(1, rows=5, mode="overwrite", inputs=())

        def run(*programs: Callable[[], Any], targets: str = "weekly") -> dict[str, Any]:
            api = contextlib.nullcontext(Server(*programs))
            monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: api)
            targets = tables.url(targets)
            task = RecomputeOperator(
                task_id="again", targets=targets, poll_interval=0, deferrable=False
            )
            return run_task(task, task_context(task))

        return run

    def week(self, tables: Tables, clear: int, rows: int = 2, week: int = 1, **more: Any) -> None:
        """A try of the week's run."""
        owner = Owner("flights", f"{week}", "load", try_number=clear + 1, series=f"x {clear}")
        policy = {
            "owner": owner,
            "idempotency_key": f"flights/{week}/load",
            "on_repeat": "replace_own",
            **more,
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

    @pytest.mark.parametrize("partition", ["", "/day=1"])
    def test_nothing_is_left_of_it(
        self, tables: Tables, recompute: Callable[..., Any], partition: str
    ) -> None:
        """A target that was named failed as one that holds no rows, once it was made again."""
        named: dict[str, Any] = {"replace_partitions": ("day=1",)}
        found = recompute(
            lambda: self.week(tables, clear=1, rows=0, **named), targets=f"weekly{partition}"
        )
        assert [len(layer) for layer in found["layers"]] == [1]
        assert tables.table("weekly").to_arrow().num_rows == 0
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
