"""Airflow for tests: a home of its own, a task's context without a database, a migrated database.

Importing this module points Airflow at a fresh home in the temporary folder; it has to come
before the first import of Airflow, which is why the folders' conftest.py import it.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

HOME = Path(tempfile.mkdtemp(prefix="zero-rename-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
#: An application for tests in which what runs is said otherwise.
JOB_FILE = HOME / "flights_job.py"
JOB_FILE.touch()

SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}
if "airflow" in sys.modules:
    raise ImportError("A test imports Airflow before its settings, which are here.")
os.environ.update(SETTINGS)

from airflow.sdk.execution_time.context import OutletEventAccessors  # noqa: E402

from support.shared_servers import made_once  # noqa: E402
from support.templates import compile_once  # noqa: E402
from support.waiting import STUCK  # noqa: E402
from zero_rename.committer import JobSpec  # noqa: E402
from zero_rename.committer.commit.commit import commit_job  # noqa: E402
from zero_rename.committer.format.layout import new_write_id  # noqa: E402
from zero_rename.committer.format.records.decision import Decision  # noqa: E402
from zero_rename.committer.store.requests import Put  # noqa: E402
from zero_rename.provider import table_watch  # noqa: E402
from zero_rename.provider.hooks import ZeroRenameHook  # noqa: E402
from zero_rename.provider.task_context import resolve_partitions  # noqa: E402

compile_once()


def _migrated(made: Path) -> None:
    """In a home of its own: where this process has a connection to the database, what another one
    writes stays in SQLite's log beside the file."""
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "AIRFLOW_HOME": home}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=STUCK)
        shutil.copy(Path(home, "airflow.db"), made)


def copy_database(to: Path) -> None:
    """Copy the migrated database that is made once a run, for all its workers."""
    made = made_once("airflow.db", _migrated)
    with closing(sqlite3.connect(made)) as whole, closing(sqlite3.connect(to)) as copy:
        whole.backup(copy)


@cache
def migrate() -> Path:
    """Give the home a database.

    :return: the home.
    """
    (HOME / "dags").mkdir(exist_ok=True)
    copy_database(HOME / "airflow.db")
    return HOME


def connection_variable(conn_id: str, **fields: Any) -> tuple[str, str]:
    """Name and value of the environment variable that defines a connection."""
    return f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields)


def task_context(
    task: Any = None,
    *,
    try_number: int = 1,
    max_tries: int | None = None,
    map_index: int = -1,
    run_id: str = "scheduled__2013-02-02",
    made: datetime = datetime(2013, 2, 2, tzinfo=UTC),
    clear_number: int = 0,
    start: datetime | None = datetime(2013, 2, 1, tzinfo=UTC),
    **members: Any,
) -> dict[str, Any]:
    """A task's context as far as our operators read it, without database or supervisor.

    :param made: when the run began; one that is made anew has another.
    :param clear_number: how often something of the run was cleared.
    :param start: of the data interval; ``None`` for a run without one.
    :param members: further entries, such as ``partition_key``.
    """
    retries = int(getattr(task, "retries", 0) or 0)
    ti = SimpleNamespace(
        dag_id="flights",
        run_id=run_id,
        task_id=getattr(task, "task_id", "load"),
        map_index=map_index,
        try_number=try_number,
        max_tries=retries if max_tries is None else max_tries,
        task=task,
        stats_tags={},
    )
    dag_run = SimpleNamespace(run_id=run_id, start_date=made, clear_number=clear_number)
    context = {"ti": ti, "task": task, "run_id": run_id, "dag_run": dag_run, "params": {}}
    context["outlet_events"] = OutletEventAccessors()
    if start is not None:
        context["data_interval_start"] = start
        context["data_interval_end"] = start + timedelta(days=1)
    return {**context, **members}


def run_task(task: Any, context: dict[str, Any]) -> Any:
    """Render a task's templates and execute it."""
    task.render_template_fields(context)
    return task.execute(context)


SCHEMA = pa.schema([("day", pa.int32()), ("flight", pa.string())])


@dataclass(frozen=True)
class Tables:
    """Tables in a bucket of their own, reached with what an AWS connection says alone."""

    bucket: Any
    _made: dict[str, Any] = field(default_factory=dict)

    def url(self, name: str = "flights") -> str:
        return f"s3://{self.bucket.name}/wh/{name}"

    def table(self, name: str = "flights") -> Any:
        if name not in self._made:
            self._made[name] = ZeroRenameHook().get_table(self.url(name))
        return self._made[name]

    def load(self, *days: int, name: str = "flights", rows: int = 2, **policy: Any) -> Any:
        """Commit ``rows`` rows for each day."""
        job = self.table(name).job(SCHEMA, partition_by=("day",), **policy)
        with job:
            job.write(day_rows(days, rows))
        return job.committed

    def decided(self, day: int, name: str = "flights", **policy: Any) -> str:
        """A job whose driver died right after it wrote its decision."""
        return self._dead(day, name, False, policy)

    def claimed(self, day: int, name: str = "flights", **policy: Any) -> str:
        """A job whose driver died when it had claimed its partition, right before it decided."""
        return self._dead(day, name, True, policy)

    def _dead(self, day: int, name: str, undecided: bool, policy: dict[str, Any]) -> str:
        table = self.table(name)
        opened = table.open_job(JobSpec(SCHEMA, partition_by=("day",), **policy))
        writer = table.task_writer(opened, 0, 0)
        writer.write(day_rows((day,), 2))
        commit = commit_job(table._context, opened, [writer.close()])
        try:
            table.driver.run(_dying(commit, undecided))
        except _Died:
            return opened.job
        raise AssertionError("the job did not come to its decision")

    def aborted(self, day: int, name: str = "flights", **policy: Any) -> str:
        """A job whose process died right after it had written that it is aborted; it leaves its
        open record and an upload."""
        job, table = self.undecided(day, name, **policy), self.table(name)
        decision = Decision.abort(job, new_write_id())
        table.driver.run(Put(table.root.decision_key(job), decision.encode(), if_none_match=True))
        return job

    def undecided(self, day: int, name: str = "flights", **policy: Any) -> str:
        """A job whose driver died before it decided; it leaves an upload."""
        table = self.table(name)
        opened = table.open_job(JobSpec(SCHEMA, partition_by=("day",), **policy))
        writer = table.task_writer(opened, 0, 0)
        writer.write(day_rows((day,), 2))
        writer.close()
        return opened.job


def day_rows(days: Iterable[int], rows: int) -> pa.Table:
    values = [(day, f"{day}-{n}") for day in days for n in range(rows)]
    return pa.table(
        {"day": [day for day, _ in values], "flight": [flight for _, flight in values]},
        schema=SCHEMA,
    )


class _Died(BaseException):
    """The driver's process has ended."""


def _dying(step: Any, undecided: bool) -> Any:
    """Carry a commit out up to its decision, that included unless ``undecided``, and no further."""
    answer = None
    while True:
        request = step.send(answer)
        decides = isinstance(request, Put) and "/jobs/" in request.key
        if decides and undecided:
            raise _Died
        answer = yield request
        if decides:
            raise _Died


#: Defines a connection by its id, of type ``zero_rename`` unless another is said, and its fields.
Connect = Callable[..., None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def define(conn_id: str, conn_type: str = "zero_rename", **fields: Any) -> None:
        monkeypatch.setenv(*connection_variable(conn_id, conn_type=conn_type, **fields))

    return define


def tell_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hooks not tell AWS who calls, by the source lines of all frames: a third of a second a
    client."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    monkeypatch.setattr(AwsGenericHook, "_generate_user_agent_extra_field", lambda *_, **__: "")


@pytest.fixture
def aws_connection(s3_here: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default AWS connection leads to the test server; the environment has no keys."""
    tell_no_caller(monkeypatch)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    known = s3_here.environment
    monkeypatch.setenv(
        *connection_variable(
            "aws_default",
            conn_type="aws",
            login=known["AWS_ACCESS_KEY_ID"],
            password=known["AWS_SECRET_ACCESS_KEY"],
            extra={"endpoint_url": s3_here.endpoint, "region_name": known["AWS_REGION"]},
        )
    )
    return "aws_default"


@pytest.fixture
def tables(s3_bucket: Any, aws_connection: str, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Tables in an empty bucket; triggers have not read a connection yet."""
    monkeypatch.setattr(table_watch, "_tables", table_watch.SharedTables())
    return Tables(s3_bucket)


def partitions_of(load: Any, context: dict[str, Any]) -> tuple[str, ...]:
    """The partitions that a load's arguments name, in a run."""
    said = (load.partition, load.partition_format, load.partition_timezone)
    return resolve_partitions(context, *said)
