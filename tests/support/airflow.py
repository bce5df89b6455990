"""Airflow for tests: a home of its own, a task's context without a database, a migrated database.

Importing this module points Airflow at a fresh home in the temporary folder; it has to come
before the first import of Airflow, which is why the folders' conftest.py import it.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HOME = Path(tempfile.mkdtemp(prefix="zero-rename-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}
os.environ.update(SETTINGS)


@cache
def migrate() -> Path:
    """Make the home's database, once a session.

    :return: the home.
    """
    (HOME / "dags").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(command, env=os.environ, check=True, capture_output=True, timeout=180)
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
    start: datetime | None = datetime(2013, 2, 1, tzinfo=UTC),
    **members: Any,
) -> dict[str, Any]:
    """A task's context as far as our operators read it, without database or supervisor.

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
    context = {"ti": ti, "task": task, "run_id": run_id, "params": {}, "outlet_events": {}}
    if start is not None:
        context["data_interval_start"] = start
    return {**context, **members}


def run_task(task: Any, context: dict[str, Any]) -> Any:
    """Render a task's templates and execute it."""
    task.render_template_fields(context)
    return task.execute(context)


def installed(folder: Path) -> dict[str, str]:
    """The environment of a child process in which the distribution's entry points are found.

    Where the package is not installed, as in a checkout that is only on the path, its metadata
    are written to ``folder`` from ``pyproject.toml``.
    """
    try:
        importlib.metadata.distribution("airflow-provider-zero-rename")
    except importlib.metadata.PackageNotFoundError:
        root = Path(__file__).parents[2]
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
        info = folder / f"airflow_provider_zero_rename-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        groups = project["entry-points"].items()
        (info / "entry_points.txt").write_text(
            "\n".join(
                f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
                for group, entries in groups
            )
        )
        return {**os.environ, "PYTHONPATH": str(folder)}
    return dict(os.environ)
