"""What is stale is run again by the oldest Airflow, with its web server, scheduler and triggerer:
run there by ``test_older_airflow.py``, as ``in_older_airflow.py``."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pyarrow as pa
import pytest

from zero_rename import FileOptions, Table
from zero_rename.committer.format.job_spec import Content
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.provider.airflow_api import AirflowApi, ApiRefusedError, TaskRunsError, airflow_api
from zero_rename.provider.hooks import ZeroRenameHook

HOME = Path(os.environ["AIRFLOW_HOME"])
LAKE = os.environ["TEST_LAKE"]
URL = "http://127.0.0.1:" + os.environ["AIRFLOW__WEBSERVER__WEB_SERVER_PORT"]
GATE = HOME / "gate"
#: Seconds after which what is waited for does not come.
STUCK = 120.0
#: Airflow's web application, without gunicorn.
_WEB = f"from airflow.www.app import cached_app; cached_app().run(port={URL.rpartition(':')[2]})"
RUN = "manual__2013-02-01T00:00:00.5+00:00"
#: Loads the sum of a table: of days a week, of weeks a month.
_JOB = f"""#!{sys.executable}
import os
import pyarrow as pa
from zero_rename import FileOptions, Table
from zero_rename.spark.options import read_writer_options

url = os.environ["ZERO_RENAME_TABLE"]
source = "weekly" if url.endswith("monthly") else "daily"
rows = Table("{LAKE}/" + source).scan().to_arrow()
data = pa.table({{"value": [sum(rows["value"].to_pylist())], "part": [0]}})
options = read_writer_options({{"path": url, "partitionBy": "part"}}, os.environ)
with Table(url).job(
    data.schema,
    mode=options.mode(True),
    partition_by=["part"],
    replace_partitions=options.replace_partitions,
    idempotency_key=options.idempotency_key,
    on_repeat=options.on_repeat,
    owner=options.owner("test"),
    files=FileOptions(content="rows"),
) as job:
    job.write(data)
"""
_DAGS = f"""
import time
from datetime import datetime
from pathlib import Path
from airflow import DAG, Dataset
from airflow.operators.python import PythonOperator
from airflow.utils.task_group import TaskGroup
from zero_rename.operators.recompute import RecomputeOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

def held():
    while not Path("{GATE}").exists():
        time.sleep(0.1)

def load(table):
    return ZeroRenameSparkSubmitOperator(
        task_id="load", application=__file__, table=table, mode="overwrite", partition="part=0",
        outlets=[Dataset("{LAKE}/" + table)],
    )

since = {{"start_date": datetime(2013, 1, 1)}}
with DAG("weekly", schedule=None, **since):
    with TaskGroup("made"):
        load("weekly") >> PythonOperator(task_id="then", python_callable=print)
with DAG("monthly", schedule=[Dataset("{LAKE}/weekly")], **since):
    load("monthly")
with DAG("held", schedule=None, **since):
    PythonOperator(task_id="load", python_callable=held)
with DAG("mapped", schedule=None, **since):
    PythonOperator.partial(task_id="load", python_callable=print).expand(op_args=[[1], [2]])
with DAG("recompute", schedule=None, **since):
    RecomputeOperator(task_id="again", targets=["monthly"], poll_interval=1, deferrable=True)
"""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[httpx.Client]:
    """A client of the web server."""
    (HOME / "dags").mkdir()
    (HOME / "dags" / "lake.py").write_text(_DAGS)
    script = HOME / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(_JOB)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    with (
        httpx.Client(base_url=URL, auth=("anna", "secret"), timeout=60) as client,
        running("webserver", path, "-c", _WEB),
        running("scheduler", path, "-m", "airflow", "scheduler"),
        running("triggerer", path, "-m", "airflow", "triggerer"),
    ):
        until("the web server", lambda: answers(client))
        add_user("anna", "secret")
        until("the DAGs", lambda: len(call(client, "GET", "dags")["dags"]) == 5)
        yield client


@contextmanager
def running(name: str, path: dict[str, str], *command: str) -> Iterator[None]:
    with (HOME / f"{name}.log").open("wb") as log:
        process = psutil.Popen(
            [sys.executable, *command],
            env=os.environ | path,
            cwd=HOME,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        ours = [*process.children(recursive=True), process]
        for it in ours:
            it.kill()
        psutil.wait_procs(ours, timeout=20)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def add_user(name: str, password: str) -> None:
    """As ``airflow users create``, which takes ten seconds."""
    from airflow.providers.fab.auth_manager.models import Role, User  # pyrefly: ignore[missing-import]
    from airflow.utils.session import create_session
    from werkzeug.security import generate_password_hash

    with create_session() as session:
        admin = session.query(Role).filter_by(name="Admin").one()
        user = User(username=name, first_name=name, last_name=name, email=name, active=True)
        user.password, user.roles = generate_password_hash(password), [admin]
        session.add(user)


def until(what: str, ask: Callable[[], Any]) -> Any:
    end = time.monotonic() + STUCK
    while not (answer := ask()):
        assert time.monotonic() < end, f"Waited in vain: {what}."
        time.sleep(0.2)
    return answer


def call(client: httpx.Client, method: str, path: str, **content: Any) -> Any:
    answer = client.request(method, f"/api/v1/{path}", **content)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json()


def ended(client: httpx.Client, dag_id: str, run_id: str) -> str:
    path = f"dags/{dag_id}/dagRuns/{quote(run_id)}"

    def state() -> str | None:
        found = call(client, "GET", path)["state"]
        return found if found in ("success", "failed") else None

    return until(f"the end of {dag_id}, {run_id}", state)


def trigger(client: httpx.Client, dag_id: str) -> NamedTask:
    """Begin a run. Returns its only task's instance."""
    call(client, "POST", f"dags/{dag_id}/dagRuns", json={"dag_run_id": RUN})
    return NamedTask(dag_id, RUN, "load", -1)


def tries(client: httpx.Client, dag_id: str, task_id: str) -> int:
    path = f"dags/{dag_id}/dagRuns/{quote(RUN)}/taskInstances/{task_id}"
    return call(client, "GET", path)["try_number"]


def day(part: int, value: int) -> None:
    """Load a day: what a program outside Airflow does."""
    rows = pa.table({"value": [value], "part": [part]})
    with table("daily").job(
        rows.schema,
        partition_by=["part"],
        mode="overwrite",
        files=FileOptions(content=Content.ROWS),
        inputs=(),
    ) as job:
        job.write(rows)


def table(name: str) -> Table:
    return ZeroRenameHook().get_table(name)


def value(name: str) -> int:
    return table(name).to_arrow()["value"].to_pylist()[0]


@pytest.fixture
def api() -> Iterator[AirflowApi]:
    with airflow_api("airflow_api") as found:
        yield found


def test_a_task_that_runs_is_not_cleared(server: httpx.Client, api: AirflowApi) -> None:
    instance = trigger(server, "held")
    until("the task at work", lambda: api.state(instance) == "running")
    with pytest.raises(TaskRunsError):
        api.clear(instance)
    assert api.state(instance) == "running"
    GATE.touch()
    assert ended(server, "held", RUN) == "success"
    assert tries(server, "held", "load") == 1


def test_a_mapped_task_is_not_cleared(server: httpx.Client, api: AirflowApi) -> None:
    trigger(server, "mapped")
    assert ended(server, "mapped", RUN) == "success"
    one = NamedTask("mapped", RUN, "load", 1)
    assert api.state(one) == "success"
    with pytest.raises(ApiRefusedError, match="all that are mapped"):
        api.clear(one)
    with pytest.raises(ApiRefusedError, match="is mapped"):
        api.clear(NamedTask("mapped", RUN, "load", -1))


def test_what_is_not_there(api: AirflowApi) -> None:
    with pytest.raises(ApiRefusedError, match="no more there"):
        api.clear(NamedTask("held", "manual__no", "load", -1))


def test_who_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"conn_type": "http", "host": URL, "login": "anna", "password": "wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_API", json.dumps(wrong))
    with airflow_api("airflow_api") as api, pytest.raises(ApiRefusedError) as error:
        api.idle("held")
    assert "login and password" in str(error.value)
    assert "wrong" not in str(error.value)


def test_what_is_stale_is_run_again(server: httpx.Client, api: AirflowApi) -> None:
    """The month by a run that the week's dataset has started, and not a second time."""
    day(0, 1)
    day(1, 10)
    trigger(server, "weekly")
    week = NamedTask("weekly", RUN, "made.load", -1)
    assert ended(server, "weekly", RUN) == "success"
    event = until("the month's run", lambda: next((it for it in api.events(week) if it.runs), None))
    assert [run.dag_id for run in event.runs] == api.followers(event.asset) == ["monthly"]
    assert api.events(week, after=event.number) == []
    assert ended(server, "monthly", event.runs[0].run_id) == "success"
    assert value("monthly") == 11

    day(1, 20)
    call(server, "PATCH", "dags/weekly", json={"is_paused": True})
    assert (api.idle("weekly"), api.idle("monthly")) == ("paused", None)
    call(server, "PATCH", "dags/weekly", json={"is_paused": False})
    trigger(server, "recompute")
    assert ended(server, "recompute", RUN) == "success"
    assert (value("weekly"), value("monthly")) == (21, 21)
    path = f"dags/recompute/dagRuns/{quote(RUN)}/taskInstances/again/xcomEntries/return_value"
    said = call(server, "GET", path)["value"]
    assert said.count("'cleared': True") == 1
    assert [tries(server, "weekly", f"made.{it}") for it in ("load", "then")] == [2, 1]
    assert len(call(server, "GET", "dags/monthly/dagRuns")["dag_runs"]) == 2
