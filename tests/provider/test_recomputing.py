"""What a plan does where Airflow's API fails, or refuses: by an API server of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.airflow import Connect, Tables, run_task, task_context
from zero_rename.committer.commit.narrowed_run import Left, leave_narrowing, read_narrowing
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.provider import airflow_api
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.recomputed import Again, Recomputed
from zero_rename.provider.recomputing import Recomputing
from zero_rename.sensors.success_manifest import SuccessManifestSensor

from airflow.sdk.exceptions import AirflowFailException  # isort: skip

pytestmark = pytest.mark.memory_s3

TASK = {"dag_id": "flights", "dag_run_id": "a+b:c", "task_id": "days.load", "map_index": -1}
ONCE = "flights/a+b:c/days.load"
PLANNER = NamedTask("recompute", "r", "again", -1)
#: The task of another plan, about which this one's user may not ask.
OTHER = Owner("recompute_b", "r", "again")


@dataclass
class Api:
    """One task of one run.

    :param clears: how often it was cleared.
    :param lost: how many answers to a clear do not come back.
    :param down: how many requests, of those after it was cleared, are not answered at all.
    :param page: what it answers to everything, if it is none.
    :param asked: what the last clear asked for.
    """

    state: str = "success"
    clears: int = 0
    lost: int = 0
    down: int = 0
    stale: bool = False
    page: str = ""
    asked: dict[str, Any] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if self.clears and self.down:
            self.down -= 1
            return 503, {}
        if self.page:
            return 200, self.page
        if path == "/auth/token":
            return 201, {"access_token": "t"}
        if path.startswith("/api/v2/dags/recompute_b/"):
            return 403, {"detail": "Forbidden"}
        if path.startswith("/api/v2/assets/events"):
            return 200, {"asset_events": []}
        if method == "GET":
            return 200, {"state": self.state, "is_paused": False, "is_stale": self.stale}
        if not body["dry_run"]:
            if self.state == "running":
                return 409, {"detail": "It runs."}
            self.state, self.clears, self.asked = "running", self.clears + 1, body
            if self.lost:
                self.lost -= 1
                return 504, {}
        return 200, {"task_instances": [TASK]}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> Iterator[Api]:
    made = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = made.answer(self.command, self.path, json.loads(body or b"null"))
            self.send_response(status)
            self.end_headers()
            text = content if isinstance(content, str) else json.dumps(content)
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None: ...

    monkeypatch.setattr(airflow_api._answer.retry, "sleep", lambda _: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        connect("airflow_api", "http", host="127.0.0.1", port=server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("largest", "requests"),
    [
        (100, ["0 100", "100 100", "200 100", "0 100", "100 100", "0 1"]),
        (90, ["0 100", "90 100", "180 100", "0 100", "90 100", "0 1"]),
    ],
)
def test_events_of_a_load_are_read_page_by_page(
    api: Api, monkeypatch: pytest.MonkeyPatch, largest: int, requests: list[str]
) -> None:
    """A load of many partitions has an event for each. A server may give smaller pages than it is
    asked for ([api] maximum_page_limit)."""
    event = {"asset_id": 1, "timestamp": "2013-01-01T00:00:00+00:00", "created_dagruns": []}
    every = [{"id": number, **event} for number in range(250, 0, -1)]
    asked: list[str] = []

    def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
        given = parse_qs(urlsplit(path).query)
        if "limit" not in given:
            return 201, {"access_token": "t"}
        begin, most = int(given["offset"][0]), int(given["limit"][0])
        asked.append(f"{begin} {most}")
        found = every[begin : begin + min(most, largest)]
        return 200, {"asset_events": found, "total_entries": len(every)}

    monkeypatch.setattr(api, "answer", answer)
    task = NamedTask("d", "r", "t", -1)
    with airflow_api.airflow_api("airflow_api") as client:
        assert [it.number for it in client.events(task)] == list(range(250, 0, -1))
        assert [it.number for it in client.events(task, after=120)] == list(range(250, 120, -1))
        assert client.last_event(task) == 250
    assert asked == requests


@dataclass
class Lake:
    """Two days that a run has loaded by version 1 of its code, and one of which is asked for."""

    tables: Tables
    api: Api

    def load(self) -> None:
        """As the task does."""
        clears = self.api.clears
        self.tables.load(
            *(1, 2),
            mode="overwrite",
            inputs=(),
            idempotency_key=ONCE,
            on_repeat="replace_own",
            owner=Owner("flights", "a+b:c", "days.load", -1, clears + 1, series=f"x {clears}"),
            code_version=str(clears + 1),
        )
        self.api.state = "success"

    def left(self) -> Left | None:
        table = self.tables.table()
        return table.run(read_narrowing(table.root, ONCE))

    def make_again(self, wait: Callable[[], None], partition: str = "/day=1") -> Recomputed:
        url = self.tables.url()
        engine = Recomputing(
            ZeroRenameHook(), "airflow_api", PLANNER, 3600.0, code_versions={url: "2"}
        )
        return engine.to_end(engine.begin([f"{url}{partition}"]), lambda _: wait())

    def versions(self) -> dict[str, int]:
        return self.tables.table().snapshot().versions


@pytest.fixture
def lake(tables: Tables, api: Api) -> Lake:
    made = Lake(tables, api)
    made.load()
    return made


@pytest.mark.parametrize(("asked", "second"), [("/day=1", 1), ("", 2)])
def test_a_clear_whose_answer_is_lost_goes_by_the_plan(lake: Lake, asked: str, second: int) -> None:
    """It was asked for once more, refused as the task ran by then, and the word to make one day
    alone was taken back under it: it made both."""
    lake.api.lost = 1

    waits = []

    def wait() -> None:
        left = lake.left()
        assert left is not None
        assert not left.said.over
        waits.append(left)
        if len(waits) == 2:
            lake.load()

    lake.make_again(wait, asked)
    assert (lake.api.clears, lake.versions()) == (1, {"day=1": 2, "day=2": second})
    # Who clears the run later has all of it again.
    lake.api.clears = 2
    lake.load()
    assert lake.versions() == {"day=1": 3, "day=2": second + 1}


def test_sensor_that_recomputes_passes_a_partition_of_its_job_that_was_emptied(lake: Lake) -> None:
    table = lake.tables.table()
    job = table.job_of_key(ONCE)
    table.delete([("day", "==", 1)])
    given: Any = {"table": lake.tables.url(), "job": job, "on_stale": "recompute"}
    task = SuccessManifestSensor(task_id="wait", poke_interval=0.05, timeout=60, **given)
    assert run_task(task, task_context(task))["rows"] == 4
    assert lake.api.clears == 0


def test_plan_of_a_planner_that_began_again_is_ended_with_the_task_that_fails(lake: Lake) -> None:
    """Whoever cleared the failed task by hand would have loaded one of its two days alone."""

    class KilledError(Exception):
        """The planner's worker dies while it waits."""

    def killed() -> None:
        raise KilledError

    def fails() -> None:
        lake.api.state = "failed"

    with pytest.raises(KilledError):
        lake.make_again(killed)
    with pytest.raises(AirflowFailException, match="is failed"):
        lake.make_again(fails)
    lake.api.clears = 2
    lake.load()
    assert lake.versions() == {"day=1": 2, "day=2": 2}


def test_failure_of_a_task_is_raised_once_the_others_have_ended(lake: Lake) -> None:
    """Their records stayed: whoever cleared such a task by hand would have loaded one of its days
    alone."""
    table, engine = lake.tables.table(), Recomputing(ZeroRenameHook(), "", PLANNER, 3600.0)
    url, keys = table.root.url, ("flights/r/first", "flights/r/second")
    tasks = [NamedTask("flights", "r", key.rpartition("/")[2], -1) for key in keys]
    for key in keys:
        who = Owner("recompute", "r", "again", -1)
        said = Narrowing(new_write_id(), key, None, {"day=1": 1}, 3600, who)
        assert table.run(leave_narrowing(table.root, said, None))
    running = tuple(
        Again(url, "zr1-J", ("day=1",), task, True, 0, key)
        for task, key in zip(tasks, keys, strict=True)
    )
    states: dict[NamedTask, str] = dict(zip(tasks, ("failed", "running"), strict=True))
    api: Any = SimpleNamespace(state=states.__getitem__)

    def over() -> list[bool]:
        read = [table.run(read_narrowing(table.root, key)) for key in keys]
        return [it is not None and it.said.over for it in read]

    progress, is_done = engine._look(api, replace(engine.begin([url]), running=running))
    assert (is_done, over()) == (False, [True, False])
    states[tasks[1]] = "success"
    with pytest.raises(AirflowFailException, match="task first of DAG flights, run r is failed"):
        engine._look(api, progress)
    assert over() == [True, True]


def test_refused_clear_is_raised_once_the_tasks_cleared_before_have_ended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, tasks = lake.tables.url(), [NamedTask("flights", "r", it, -1) for it in ("a", "b")]
    again = Again(url, "zr1-J", ("day=1",), tasks[0], True, 0)

    def run_again(_: Any, api: Any, steps: Any, instance: NamedTask) -> list[Again]:
        if instance == tasks[0]:
            return [again]
        raise airflow_api.ApiRefusedError("The API refused.")

    monkeypatch.setattr(Recomputing, "_run_again", run_again)
    monkeypatch.setattr(Recomputing, "_due", lambda *_: dict.fromkeys(tasks, ()))
    states: dict[NamedTask, str] = {tasks[0]: "running"}
    none: Any = {"followers": lambda _: (), "events": lambda *_, **__: ()}
    api: Any = SimpleNamespace(state=states.__getitem__, **none)
    engine = Recomputing(ZeroRenameHook(), "", PLANNER, 3600.0, code_versions={url: "2"})
    progress, is_done = engine._look(api, engine.begin([f"{url}/day=1"]))
    assert (is_done, progress.running) == (False, (again,))
    progress, is_done = engine._look(api, Recomputed.of(progress.said()))
    assert not is_done
    states[tasks[0]] = "success"
    with pytest.raises(AirflowFailException, match=r"The API refused\. Each table is whole"):
        engine._look(api, progress)


def test_a_server_that_is_away_for_minutes_is_waited_for(lake: Lake) -> None:
    lake.api.down = 20
    looks = []

    def wait() -> None:
        looks.append(lake.api.down)
        if lake.api.state == "running" and not lake.api.down:
            lake.load()

    assert len(lake.make_again(wait).layers) == 1
    assert len(looks) > 2
    assert (lake.api.clears, lake.versions()) == (1, {"day=1": 2, "day=2": 1})


def test_a_server_that_stays_away(lake: Lake) -> None:
    lake.api.down = 1000
    with pytest.raises(airflow_api.ApiTroubleError, match="503"):
        lake.make_again(lambda: None)
    assert lake.api.down > 500


def test_the_word_of_a_plan_that_cannot_be_asked_about_stays(lake: Lake) -> None:
    """Who may not ask about its task took it for one that was deleted."""
    table = lake.tables.table()
    said = Narrowing(new_write_id(), ONCE, table.job_of_key(ONCE), {"day=2": 1}, 3600, OTHER)
    table.run(leave_narrowing(table.root, said, None))
    with pytest.raises(AirflowFailException, match="403"):
        lake.make_again(lake.load)
    left = lake.left()
    assert left is not None
    assert (left.said.planner, left.said.over, lake.api.clears) == (OTHER, False, 0)


def test_wait_for_another_plan_is_one_layer_however_long_it_lasts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A deferred task kept one more with each poll."""
    table, other = lake.tables.table(), Owner("recompute_c", "r", "again")
    said = Narrowing(new_write_id(), ONCE, table.job_of_key(ONCE), {"day=2": 1}, 3600, other)
    table.run(leave_narrowing(table.root, said, None))
    polls: list[int] = []
    answer = lake.api.answer

    def answered(method: str, path: str, body: Any) -> tuple[int, Any]:
        if path.startswith("/api/v2/dags/recompute_c/"):
            return 200, {"state": "running" if len(polls) < 5 else "success"}
        return answer(method, path, body)

    def wait() -> None:
        polls.append(1)
        if lake.api.state == "running":
            lake.load()

    monkeypatch.setattr(lake.api, "answer", answered)
    with caplog.at_level("INFO"):
        layers = lake.make_again(wait).layers
    assert [it.cleared for layer in layers for it in layer] == [False, True]
    assert lake.api.clears == 1
    assert "at work, or is to run by another plan" in caplog.text


def test_a_dag_that_is_no_more_in_its_folder(lake: Lake) -> None:
    """Its cleared run would wait to be scheduled until the time was up."""
    lake.api.stale = True
    with pytest.raises(AirflowFailException, match="DAG flights is not there any more"):
        lake.make_again(lake.load)
    assert lake.api.clears == 0


def test_run_of_dagster_is_named_as_one_outside_airflow(lake: Lake) -> None:
    """Its job names a job, a run and an asset, as that of a task names a DAG, a run and a task."""
    owner = Owner("daily", "a-run", "days", application="dagster", series="- 0 a-run")
    key = f"dagster/a-run/days/keys-{'0' * 16}"
    lake.tables.load(1, mode="overwrite", inputs=(), idempotency_key=key, owner=owner)
    said = "run outside Airflow, by Dagster, asset days in run a-run: run it again there, for day=1"
    with pytest.raises(AirflowFailException, match=said):
        lake.make_again(lake.load)
    assert lake.api.clears == 0


def test_run_that_is_to_have_another_code_version_goes_by_the_newest_version_of_its_dag(
    lake: Lake,
) -> None:
    """A run keeps the version of its DAG that it began with, where bundles have versions: it would
    make its rows by the old code again."""
    lake.make_again(lake.load)
    assert lake.api.asked["run_on_latest_version"] is True


def test_version_of_the_dag_is_its_author_s_or_airflow_s_to_say_where_no_other_is_asked_for(
    lake: Lake,
) -> None:
    task = NamedTask("flights", "a+b:c", "days.load", -1)
    with airflow_api.airflow_api("airflow_api") as api:
        api.clear(task)
    assert lake.api.clears == 1
    assert "run_on_latest_version" not in lake.api.asked


def test_an_address_that_is_no_api_s(lake: Lake) -> None:
    """A page to log in by, as of a proxy."""
    lake.api.page = "<html>"
    with pytest.raises(AirflowFailException, match=r"no JSON.* See the connection's address"):
        lake.make_again(lake.load)
