"""Runs that a task clears to settle conflicts: what they are told, and what is reported."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.airflow import Tables, task_context
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    Owner,
    RunRank,
    SupersededRunError,
)
from zero_rename.committer.commit.narrowed_run import read_narrowing
from zero_rename.committer.format.settling import SettledRuns
from zero_rename.committer.store.requests import Put
from zero_rename.operators.recompute import RecomputeOperator
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.provider import clearing, settling
from zero_rename.provider.airflow_api import ApiTroubleError, GoneError, TaskRunsError
from zero_rename.provider.settling import RerunOrder, RerunOutcome, SettlingRuns, settle_by_rerun

from airflow.sdk.exceptions import AirflowFailException  # isort: skip

pytestmark = pytest.mark.memory_s3


@dataclass
class Server:
    """Airflow's API: the program of a task that is cleared runs at once, or as the test says.

    :param programs: by the id of a DAG.
    """

    programs: dict[str, Callable[[], Any]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    idles: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    clears: list[tuple[str, bool]] = field(default_factory=list)
    lost: int = 0

    def state(self, instance: NamedTask) -> str:
        if instance.dag_id in self.gone:
            raise GoneError("No such run.")
        return self.states.get(instance.dag_id, "success")

    def version(self, instance: NamedTask) -> str:
        return f"3 of {instance.dag_id}"

    def idle(self, dag_id: str) -> str | None:
        return self.idles.get(dag_id)

    def clear(
        self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
    ) -> None:
        dag = instance.dag_id
        if self.state(instance) == "running":
            raise TaskRunsError("It runs.")
        self.clears.append((dag, include_downstream))
        self.states[dag] = "running"
        if self.lost:
            self.lost -= 1
            raise ApiTroubleError("504")
        self.run(dag)

    def run(self, dag: str) -> None:
        try:
            self.programs.get(dag, lambda: None)()
            self.states[dag] = "success"
        except (CommitConflictError, SupersededRunError, InvalidInputError):
            self.states[dag] = "failed"


class Lake:
    """A table whose first day two DAGs have loaded: `older` with a second day, `newer` alone."""

    def __init__(self, tables: Tables, server: Server) -> None:
        self.tables, self.server = tables, server
        self.load("older", 1, 1, 2)
        self.load("newer", 5, 1)
        server.programs["older"] = lambda: self.load("older", 1, 1, 2, clear=1, rows=3)

    def owner(self, run: str, clear: int = 0) -> Owner:
        return Owner(run, "r", "load", -1, clear + 1, series=f"x {clear}")

    def load(self, run: str, rank: int, *days: int, clear: int = 0, **policy: Any) -> str:
        told: dict[str, Any] = {"mode": "overwrite", "on_repeat": "replace_own", **policy}
        return self.tables.load(
            *days,
            inputs=(),
            idempotency_key=f"{run}/r/load",
            owner=self.owner(run, clear),
            run_rank=rank,
            **told,
        ).job

    def order(self, day: int = 1, version: int = 2, **changes: Any) -> RerunOrder:
        return replace(
            RerunOrder(
                self.tables.url(),
                f"day={day}",
                version,
                "older/r/load",
                self.owner("older"),
                ("newer/r/load",),
                RunRank.of(5),
            ),
            **changes,
        )

    def settle(self, *orders: RerunOrder, **words: Any) -> list[RerunOutcome]:
        of = words.pop("of", orders)
        downstream = words.pop("include_downstream", False)
        task = {"zero_rename_conn_id": "zero_rename_default", "airflow_conn_id": "airflow_api"}
        more = {"poll_interval": 0.0, "timeout": 3600.0, "deferrable": False}
        asked: Any = SimpleNamespace(**{**task, **more, **words})
        operator = RecomputeOperator(task_id="resolve", targets="t")
        context: Any = task_context(operator)
        return settle_by_rerun(asked, context, of, include_downstream=downstream)

    def rows(self) -> dict[int, int]:
        table = self.tables.table()
        files = table.files()
        return {int(it.partition.removeprefix("day=")): it.rows or 0 for it in files}

    def words(self) -> list[bool]:
        table = self.tables.table()
        left = table.run(read_narrowing(table.root, "older/r/load"))
        return [] if left is None else [left.said.over]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: contextlib.nullcontext(made))
    return made


@pytest.fixture
def lake(tables: Tables, server: Server) -> Lake:
    return Lake(tables, server)


def test_winner_loads_the_day_in_conflict_alone_and_the_loser_gives_way(
    lake: Lake, server: Server
) -> None:
    (made,) = lake.settle(lake.order())
    table = lake.tables.table()
    settled = table.settled(["day=1"])["day=1"]
    assert (made.error, made.job, made.dag_version) == ("", settled.job, "3 of older")
    assert settled.runs == SettledRuns("older/r/load", ("newer/r/load",))
    assert (server.clears, lake.words()) == ([("older", False)], [True])
    assert table.partition_job("day=2") != made.job
    with pytest.raises(SupersededRunError):
        lake.load("newer", 5, 1, clear=1)


def test_successors_are_cleared_where_that_is_asked_for(lake: Lake, server: Server) -> None:
    lake.settle(lake.order(), include_downstream=True)
    assert server.clears == [("older", True)]


def test_settled_conflict_is_not_settled_twice(lake: Lake, server: Server) -> None:
    (first,) = lake.settle(lake.order())
    (second,) = lake.settle(lake.order())
    assert (second.error, second.job, len(server.clears)) == ("", first.job, 1)


def test_partition_that_has_moved_since_the_look_clears_nothing(lake: Lake, server: Server) -> None:
    lake.load("newer", 5, 1, clear=1)
    (made,) = lake.settle(lake.order())
    assert "Another job has changed day=1 since the conflict was found" in made.error
    assert (server.clears, lake.words()) == ([], [])


@pytest.mark.parametrize(
    ("server_says", "said"),
    [
        ({"states": {"older": "running"}}, "at work (running)"),
        ({"idles": {"older": "paused"}}, "DAG older is paused"),
        ({"gone": {"older"}}, "No such run"),
    ],
    ids=["at work", "paused", "deleted"],
)
def test_run_that_cannot_be_cleared_is_an_error_and_nothing_changes(
    lake: Lake, server: Server, server_says: Mapping[str, Any], said: str
) -> None:
    for name, value in server_says.items():
        setattr(server, name, value)
    before = lake.tables.table().snapshot().versions
    (made,) = lake.settle(lake.order())
    assert said in made.error
    assert lake.tables.table().snapshot().versions == before
    assert (server.clears, lake.words()) == ([], [])


def test_record_that_cannot_be_read_keeps_no_other_conflict_from_being_settled(
    lake: Lake, server: Server
) -> None:
    damaged = lake.tables.table()
    damaged.driver.run(Put(damaged.root.head_key("day=2"), b"{"))
    others = {"run": "newer/r/load", "owner": lake.owner("newer"), "losers": ("older/r/load",)}
    of_damaged = lake.order(2, 1, **others)
    made = {it.order.partition: it for it in lake.settle(of_damaged, lake.order())}
    assert "cannot be read" in made["day=2"].error
    assert made["day=1"].error == ""
    assert server.clears == [("older", False)]


def test_run_outside_airflow_is_an_error(lake: Lake) -> None:
    (made,) = lake.settle(lake.order(owner=Owner(application="nightly.py")))
    assert "was made outside Airflow (nightly.py)" in made.error


@pytest.mark.parametrize("application", ["dagster", "host-jvm-1"])
def test_run_of_dagster_is_one_outside_airflow(
    lake: Lake, server: Server, application: str
) -> None:
    """Its job names a job, a run and an asset, as that of a task names a DAG, a run and a task."""
    owner = Owner("daily", "a-run", "flights", application=application)
    key = f"dagster/a-run/flights/keys-{'0' * 16}"
    (made,) = lake.settle(lake.order(owner=owner, run=key))
    assert "was made outside Airflow (Dagster, asset flights in run a-run)" in made.error
    assert (server.clears, lake.words()) == ([], [])


def test_run_that_fails_is_unresolved_and_what_it_was_told_is_taken_back(
    lake: Lake, server: Server
) -> None:
    def fails() -> None:
        raise CommitConflictError("x")

    server.programs["older"] = fails
    (made,) = lake.settle(lake.order())
    assert "is failed: its log says why" in made.error
    assert made.dag_version == "3 of older"
    assert lake.words() == [True]


def test_run_that_loads_nothing_is_unresolved(lake: Lake, server: Server) -> None:
    server.programs["older"] = lambda: None
    (made,) = lake.settle(lake.order())
    assert "on_repeat='skip'" in made.error


def test_run_that_another_one_overtakes_is_unresolved(lake: Lake, server: Server) -> None:
    def overtaken() -> None:
        lake.load("older", 1, 1, 2, clear=1)
        lake.load("third", 9, 1)

    server.programs["older"] = overtaken
    (made,) = lake.settle(lake.order())
    assert "another run has loaded since" in made.error


def test_clear_whose_answer_is_lost_is_waited_for(
    lake: Lake, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lost = 1
    waits: list[dict[str, Any]] = []

    def wait(task: object, seconds: float, deferrable: bool, progress: SettlingRuns) -> None:
        waits.append(json.loads(json.dumps(progress.said())))
        if len(waits) == 2:
            server.run("older")

    monkeypatch.setattr(settling, "wait", wait)
    (made,) = lake.settle(lake.order())
    assert (made.error, len(server.clears)) == ("", 1)
    # A task that is deferred goes on from there.
    (again,) = lake.settle(of=waits[-1])
    assert (again.error, again.job, len(server.clears)) == ("", made.job, 1)


def test_time_that_is_up_is_unresolved(lake: Lake, server: Server) -> None:
    server.lost = 1
    (made,) = lake.settle(lake.order(), timeout=-1.0)
    assert made.error.startswith("Not over after")


def test_run_that_gave_way_loads_all_that_it_has(lake: Lake, server: Server) -> None:
    server.programs["failed"] = lambda: lake.load("failed", 2, 1, 3, clear=1)
    server.states["failed"] = "failed"
    order = lake.order(run="failed/r/load", owner=lake.owner("failed"))
    (made,) = lake.settle(order)
    assert made.error == ""
    assert lake.tables.table().partition_job("day=3") == made.job


def test_several_runs_are_cleared_together(lake: Lake, server: Server) -> None:
    lake.load("newer", 5, 2, clear=1)
    server.programs["newer"] = lambda: lake.load("newer", 5, 2, clear=2)
    lake.load("third", 7, 3)
    lake.load("newer", 5, 3, clear=3)
    third = {"run": "third/r/load", "owner": lake.owner("third"), "losers": ("newer/r/load",)}
    server.programs["third"] = lambda: lake.load("third", 7, 3, clear=1)
    versions = lake.tables.table().snapshot().versions
    made = lake.settle(
        lake.order(1, versions["day=1"]),
        lake.order(2, versions["day=2"]),
        lake.order(3, versions["day=3"], **third),
    )
    assert [it.error for it in made] == ["", "", ""]
    assert [it.order.partition for it in made] == ["day=1", "day=2", "day=3"]
    assert [dag for dag, _ in server.clears] == ["older", "third"]


@pytest.mark.parametrize("conn_id", ["", None])
def test_without_a_connection_to_airflow_nothing_is_begun(
    lake: Lake, server: Server, conn_id: str | None
) -> None:
    with pytest.raises(AirflowFailException, match="airflow_conn_id names no connection"):
        lake.settle(lake.order(), airflow_conn_id=conn_id)
    assert server.clears == []
