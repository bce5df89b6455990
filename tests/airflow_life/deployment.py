"""Processes of a whole Airflow: scheduler, DAG processor, triggerer and API server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from torture.servers import Store

from support.waiting import until
from tools.server_process import free_port
from zero_rename.spark.startup.launch import jvm_options

REPOSITORY = Path(__file__).resolve().parents[2]
_PROCESSES = ("scheduler", "dag-processor", "triggerer", "api-server")


@dataclass
class Deployment:
    """A running Airflow.

    :param home: ``AIRFLOW_HOME``; the processes' logs are there too.
    :param api: a client of its REST API.
    """

    home: Path
    environment: dict[str, str]
    api: httpx.Client
    processes: dict[str, psutil.Popen] = field(default_factory=dict)

    @property
    def gates(self) -> Path:
        return self.home / "gates"

    def start(self, name: str) -> None:
        port = ["--port", self.environment["LIFE_PORT"]] if name == "api-server" else []
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = psutil.Popen(
                [sys.executable, "-m", "airflow", name, *port],
                env=self.environment,
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End every process, and what it started: those whose parent was killed, too."""
        ours = [it for it in psutil.process_iter() if _works_in(it, self.home)]
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(ours, timeout=20)

    def call(self, method: str, path: str, **content: Any) -> Any:
        answer = self.api.request(method, f"/api/v2/{path}", **content)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:1000]}"
        return answer.json() if answer.content else None

    def healthy(self, name: str) -> bool:
        """Whether a part of Airflow has sent a heartbeat lately."""
        try:
            return self.call("GET", "monitor/health")[name]["status"] == "healthy"
        except (httpx.TransportError, AssertionError):
            return False

    def backfill(self, dag_id: str, day: str, last: str = "", **more: Any) -> None:
        """Begin a backfill, once the scheduler has seen that the DAG's last one is over."""
        begin, end = f"{day}T00:00:00Z", f"{last or day}T00:00:00Z"
        content = {"dag_id": dag_id, "from_date": begin, "to_date": end, "max_active_runs": 3}

        def begun() -> bool:
            answer = self.api.post("/api/v2/backfills", json=content | more)
            assert answer.is_success or answer.status_code == 409, answer.text
            return answer.is_success

        until(f"no other backfill of {dag_id}", begun)

    def trigger(self, dag_id: str, **content: Any) -> str:
        path = f"/api/v2/dags/{dag_id}"
        until(f"{dag_id} to be read", lambda: self.api.get(path).is_success)
        made = self.call("POST", f"dags/{dag_id}/dagRuns", json={"logical_date": None} | content)
        return made["dag_run_id"]

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        return self.call("GET", f"dags/{dag_id}/dagRuns")["dag_runs"]

    def run_of(self, dag_id: str, day: str) -> dict[str, Any]:
        """The run whose data interval begins with a day."""
        return until(
            f"a run of {dag_id} for {day}",
            lambda: next(
                (r for r in self.runs(dag_id) if (r["data_interval_start"] or "")[:10] == day), None
            ),
        )

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        return self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")

    def report(self, dag_id: str, run_id: str, task_id: str) -> Any:
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        found = self.call("GET", path, params={"deserialize": "false", "stringify": "false"})
        value = found["value"]
        return json.loads(value) if isinstance(value, str) else value

    def ended(self, dag_id: str, run_id: str) -> str:
        """The state of a run when it has ended."""

        def state() -> str | None:
            found = self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"]
            return found if found in ("success", "failed") else None

        return until(f"the end of {dag_id}, {run_id}", state)

    def succeeded(self, dag_id: str, run_id: str) -> None:
        assert self.ended(dag_id, run_id) == "success", self.said(dag_id, run_id)[-5000:]

    def settled(self, dag_id: str) -> None:
        """Wait for the end of all runs, such as those that assets have started."""
        over = ("success", "failed")
        until(
            f"the end of all runs of {dag_id}",
            lambda: all(run["state"] in over for run in self.runs(dag_id)),
        )

    def made_again(self, dag_id: str, **content: Any) -> list[list[tuple[str, str]]]:
        """Let a DAG recompute. Returns the layers that were run again: tables and partitions."""
        run = self.trigger(dag_id, **content)
        self.succeeded(dag_id, run)
        layers = self.report(dag_id, run, "again")["layers"]
        return [
            [(it["table"].rpartition("/")[2], *it["partitions"]) for it in each] for each in layers
        ]

    def said(self, dag_id: str, run_id: str) -> str:
        """What the tasks of a run have logged."""
        logs = (self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}").rglob("*.log")
        return "".join(log.read_text() for log in logs)

    def hold(self, name: str) -> None:
        """Let the application ``<dag>-<task>-<period>`` wait in the middle of its job."""
        (self.gates / f"{name}.hold").touch()

    def release(self, name: str) -> None:
        (self.gates / f"{name}.hold").unlink()

    def begun(self, name: str) -> None:
        """Wait until that application is in the middle of its job."""
        until(f"{name} in the middle of its job", lambda: list(self.gates.glob(f"{name}.*.begun")))

    def spark_submit(self, word: str) -> psutil.Process:
        """The Java process of the submission that has a word on its command line."""
        return until(f"a spark-submit with {word}", lambda: self._java(word))

    def _java(self, word: str) -> psutil.Process | None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                is_spark = bool(words) and words[0].endswith("java") and word in words
                if is_spark and _works_in(process, self.home):
                    return process
        return None

    def worker_of(self, application: psutil.Process) -> list[psutil.Process]:
        """The processes of Airflow's worker above an application, the scheduler left out."""
        scheduler = self.processes["scheduler"].pid
        return [it for it in application.parents() if it.pid not in (1, scheduler, os.getpid())][:2]


def _works_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a process is one of the deployment: it and all it starts work in its home. (Airflow
    gives processes titles, in the place of their environment.)"""
    try:
        return process.cwd() == str(folder)
    except (psutil.Error, OSError):
        return False


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


#: Examples that write Delta tables here, by one word more; the others write directories.
_DELTA = ("daily", "backfill", "delays", "hourly")


def examples(folder: Path) -> None:
    """The examples as they are, but for what would take days, their pauses between tries and the
    runs of this year, and for the layout of some tables."""
    shutil.copytree(REPOSITORY / "example_dags", folder)
    for file in folder.glob("*.py"):
        text = file.read_text("utf-8").replace("timedelta(minutes=5)", "timedelta(seconds=1)")
        text = text.replace("_interval=30", "_interval=10")
        text = re.sub(r"^ +end_date=.*\n", "", text, flags=re.M)
        if file.stem.removeprefix("flights_") in _DELTA:
            text = text.replace('mode="overwrite",', 'mode="overwrite", layout="delta",')
        begin = r"(\"?)start(_date\"?(?:=|: )datetime)\(2013, 1, 1, tzinfo=UTC\),"
        file.write_text(re.sub(begin, r"\g<0> \1end\2(2013, 3, 1, tzinfo=UTC),", text))
    jobs = folder / "jobs"
    (jobs / "flights_job.py").rename(jobs / "flights_example.py")
    here = Path(__file__).parent
    shutil.copy(here / "gated_job.py", jobs / "flights_job.py")
    shutil.copy(here / "conflicting_dags.py", folder)


@contextlib.contextmanager
def deployment(
    home: Path,
    database: str,
    store: Store,
    root: str,
    write_dags: Callable[[Path], None] = examples,
    more: Mapping[str, str] | None = None,
) -> Iterator[Deployment]:
    """Start Airflow with DAGs, unpaused; ended afterwards.

    :param database: its URL; a file ``airflow.db`` in the home is migrated.
    :param root: the connection's table root.
    :param write_dags: makes the folder of DAGs. :param more: variables of all processes.
    """
    write_dags(home / "dags")
    (home / "gates").mkdir()
    port = str(free_port())
    environment = _variables(home, database, store, root, port) | dict(more or {})
    if not (home / "airflow.db").exists():
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as api:
        made = Deployment(home, environment, api)
        try:
            for name in _PROCESSES:
                made.start(name)
            until("an answer of the API server", lambda: _token(api))
            for name in ("scheduler", "triggerer", "dag_processor"):
                until(f"a heartbeat of the {name}", lambda name=name: made.healthy(name))
            yield made
        finally:
            made.stop()


def _token(api: httpx.Client) -> bool:
    try:
        answer = api.get("/auth/token")
    except httpx.TransportError:
        return False
    if answer.is_success:
        api.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    return answer.is_success


def _variables(home: Path, database: str, store: Store, root: str, port: str) -> dict[str, str]:
    ours = ("AIRFLOW", "AWS_", "SPARK_", "PYSPARK_", "PYTHON", "ZERO_RENAME_")
    aws = {
        "conn_type": "aws",
        "login": store.variables["AWS_ACCESS_KEY_ID"],
        "password": store.variables["AWS_SECRET_ACCESS_KEY"],
        "extra": {
            "endpoint_url": store.endpoint,
            "region_name": store.variables.get("AWS_REGION", "us-east-1"),
        },
    }
    settings: Mapping[str, Any] = {
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_FOLDER": home / "dags",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": 4,
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "API_AUTH__JWT_SECRET": "of no importance, and longer than the 64 bytes that HS512 wants",
        "API__SECRET_KEY": "another one",
        "API__WORKERS": 1,
        # Nobody changes a file: each would be read again every half minute.
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 3600,
        "DATABASE__SQL_ALCHEMY_CONN": database,
        "LOGGING__WORKER_LOG_SERVER_PORT": free_port(),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": free_port(),
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 30,
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": 3,
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": 5,
        "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": 20,
        "USAGE_DATA_COLLECTION__ENABLED": "False",
        "WORKERS__EXECUTION_API_TIMEOUT": 60,
    }
    connections = {
        "AWS_DEFAULT": aws,
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[1]"},
        "AIRFLOW_API": {"conn_type": "http", "host": f"http://127.0.0.1:{port}"},
        "ZERO_RENAME_DEFAULT": {"conn_type": "zero_rename", "extra": {"table_root": root}},
    }
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
        **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
        **{f"AIRFLOW_CONN_{name}": json.dumps(value) for name, value in connections.items()},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_LIFE_GATES": str(home / "gates"),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "LIFE_PORT": port,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The folders are those of Hadoop's committers.
        "SPARK_SUBMIT_OPTS": f"{jvm_options()} -Dspark.ui.enabled=false"
        f" -Dspark.hadoop.hadoop.tmp.dir={home}/hadoop"
        f" -Dspark.hadoop.fs.s3a.committer.staging.tmp.path=file://{home}/staging",
    }
