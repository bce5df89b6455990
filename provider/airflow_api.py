"""Airflow's REST API, as a task that clears others reaches it.

A task's own means (Airflow's task SDK) clear whole runs only. So this needs a connection of type
``http``: the API server's address, and the login and password of a user who may read DAGs, their
runs and assets' events, and edit task instances of the DAGs that are to be cleared. A password
alone is taken for a token. Without either a token is asked for as of a server that admits everyone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx
from airflow.providers.common.compat.sdk import AirflowException, BaseHook
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from ..committer.errors import InvalidInputError
from ..orchestration.runs.task_run import NamedTask

#: What a task instance does not leave by itself.
ENDED = frozenset(("success", "failed", "skipped", "upstream_failed", "removed"))
_TIMEOUT = 60.0


class ApiRefusedError(InvalidInputError):
    """The API refuses, so that trying again does not help; nothing was cleared by that request."""


class ApiTroubleError(AirflowException):
    """The server is not reached, or fails, each of several times. A request may have had effect."""


class TaskRunsError(AirflowException):
    """The instance is at work already: it cannot be cleared before it has ended."""


@dataclass(frozen=True)
class Run:
    """A run that an asset's event has started.

    :param state: ``queued``, ``running``, ``success`` or ``failed``.
    """

    dag_id: str
    run_id: str
    state: str


@dataclass(frozen=True)
class AssetEvent:
    """What a task of a run has told of an asset.

    :param time: Unix time, of the server.
    """

    number: int
    asset: int
    time: float
    runs: tuple[Run, ...]


class AirflowApi:
    """Version 2 of the API, which Airflow 3 has.

    Every call raises :class:`ApiRefusedError` where it is refused, and :class:`ApiTroubleError`
    where the server is not reached or fails. Each may be repeated: what is cleared and has not
    begun is cleared once more, and what has begun is refused.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def state(self, instance: NamedTask) -> str | None:
        """What an instance is doing; ``None``: it waits to be scheduled."""
        return self._call("GET", _path(instance))["state"]

    def paused(self, dag_id: str) -> bool:
        return self._call("GET", f"dags/{quote(dag_id, '')}")["is_paused"]

    def clear(self, instance: NamedTask) -> None:
        """Let one instance run again, and its run with it.

        :raises TaskRunsError: it is running.
        :raises ApiRefusedError: there is no such instance, or it is not the only one that would be
            cleared.
        """
        task: Any = instance.task_id
        if instance.map_index >= 0:
            task = [instance.task_id, instance.map_index]
        # Each default of the API is said: some differ between its versions.
        body = {
            "dag_run_id": instance.run_id,
            "task_ids": [task],
            "only_failed": False,
            "only_running": False,
            "reset_dag_runs": True,
            "run_on_latest_version": False,
            "prevent_running_task": True,
            **dict.fromkeys(
                ("include_upstream", "include_downstream", "include_future", "include_past"), False
            ),
        }
        path = f"dags/{quote(instance.dag_id, '')}/clearTaskInstances"
        named = self._call("POST", path, json=body | {"dry_run": True})["task_instances"]
        found = [
            NamedTask(*(it[key] for key in ("dag_id", "dag_run_id", "task_id", "map_index")))
            for it in named
        ]
        if found != [instance]:
            raise ApiRefusedError(
                f"To clear {instance} would clear {[str(it) for it in found]}; nothing was.",
                remedy="Clear by hand what is to run again.",
            )
        self._call("POST", path, json=body | {"dry_run": False})

    def events(self, of: NamedTask | Run, after: int = 0) -> list[AssetEvent]:
        """What an instance, or any of a run, has told of assets; the last fifty, newest first.

        :param after: the number of an event; those before are left out.
        """
        asked = {"source_dag_id": of.dag_id, "source_run_id": of.run_id}
        if isinstance(of, NamedTask):
            asked |= {"source_task_id": of.task_id, "source_map_index": str(of.map_index)}
        asked |= {"order_by": "-timestamp", "limit": "50"}
        told = self._call("GET", "assets/events", params=asked)["asset_events"]
        return [
            AssetEvent(
                it["id"],
                it["asset_id"],
                datetime.fromisoformat(it["timestamp"]).timestamp(),
                tuple(
                    Run(run["dag_id"], run["run_id"], run["state"]) for run in it["created_dagruns"]
                ),
            )
            for it in told
            if it["id"] > after
        ]

    def followers(self, asset: int) -> list[str]:
        """The DAGs that are scheduled on an asset."""
        return [it["dag_id"] for it in self._call("GET", f"assets/{asset}")["scheduled_dags"]]

    @retry(
        retry=retry_if_exception_type(ApiTroubleError),
        stop=stop_after_attempt(6),
        wait=wait_exponential(max=10),
        reraise=True,
    )
    def _call(self, method: str, path: str, **content: Any) -> Any:
        try:
            answer = self._client.request(method, f"/api/v2/{path}", **content)
        except httpx.HTTPError as error:
            raise ApiTroubleError(
                f"Airflow's API was not reached for {method} {path} ({type(error).__name__})."
            ) from error
        if answer.is_success:
            return answer.json()
        said = f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        if answer.status_code == httpx.codes.CONFLICT:
            raise TaskRunsError(f"Airflow does not clear what runs: {said}")
        if answer.is_client_error and answer.status_code not in _BUSY:
            raise ApiRefusedError(
                f"Airflow's API refused {said}",
                remedy=_REMEDIES.get(answer.status_code, "See the API server's log."),
            )
        raise ApiTroubleError(f"Airflow's API failed: {said}")


#: Refusals that pass.
_BUSY = frozenset((408, 425, 429))
_REMEDIES = {
    401: "See the login and password of the connection.",
    403: "The connection's user needs the right to read DAGs, runs and assets, and to edit task "
    "instances of the DAGs that are cleared.",
    404: "The DAG, or that run of it, is no more there, or this is an Airflow before version 3: "
    "load by a backfill.",
}


@contextmanager
def airflow_api(conn_id: str) -> Iterator[AirflowApi]:
    """The API, by a connection of type ``http``.

    :raises ApiRefusedError: the connection has no address, or its login is refused.
    :raises ApiTroubleError: the server is not reached, or fails.
    """
    conn = BaseHook.get_connection(conn_id)
    if not conn.host:
        raise ApiRefusedError(
            f"The connection {conn_id!r} has no host.",
            remedy="Give it the address of Airflow's API server: http://airflow.example:8080",
        )
    base = conn.host if "://" in conn.host else f"{conn.schema or 'http'}://{conn.host}"
    if conn.port:
        base = f"{base}:{conn.port}"
    with httpx.Client(base_url=base, timeout=_TIMEOUT) as client:
        client.headers["Authorization"] = f"Bearer {_token(client, conn_id, conn)}"
        yield AirflowApi(client)


def _token(client: httpx.Client, conn_id: str, conn: Any) -> str:
    if conn.password and not conn.login:
        return conn.password
    try:
        if conn.login:
            user = {"username": conn.login, "password": conn.password or ""}
            answer = client.post("/auth/token", json=user)
        else:
            answer = client.get("/auth/token")
    except httpx.HTTPError as error:
        raise ApiTroubleError(
            f"Airflow's API was not reached by the connection {conn_id!r} ({type(error).__name__})."
        ) from error
    if answer.is_client_error:
        raise ApiRefusedError(
            f"Airflow's API gave the connection {conn_id!r} no token: {answer.status_code}.",
            remedy="See its login and password; or give it a token as its password.",
        )
    if not answer.is_success:
        raise ApiTroubleError(f"Airflow's API gave no token: {answer.status_code}.")
    return answer.json()["access_token"]


def _path(task: NamedTask) -> str:
    dag_id, run_id, task_id = (quote(it, "") for it in (task.dag_id, task.run_id, task.task_id))
    mapped = f"/{task.map_index}" if task.map_index >= 0 else ""
    return f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}{mapped}"
