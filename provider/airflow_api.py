"""Airflow's REST API, as a task that clears others reaches it.

A task's own means (Airflow's task SDK) clear whole runs only. So this needs a connection of type
``http``: the address of the API server (of Airflow 2.11: of the web server), and the login and
password of a user who may read DAGs, their runs and assets' events, and edit task instances of the
DAGs that are to be cleared. A password alone is taken for a token. Without either it is taken for a
server that admits everyone.

It is the API of the task's own Airflow, so the version is known: 2 in Airflow 3, 1 in 2.11.
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
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from ..committer.errors import InvalidInputError
from ..orchestration.runs.task_run import NamedTask

#: What a task instance does not leave by itself.
ENDED = frozenset(("success", "failed", "skipped", "upstream_failed", "removed"))
_TIMEOUT = 60.0
#: What the two versions call otherwise: their root, assets, what an asset is found by, the DAGs on
#: it, a run's id.
_ROOT, _ASSET, _ASSET_ID, _FOLLOWERS, _RUN_ID = (
    ("/api/v2", "asset", "asset_id", "scheduled_dags", "run_id")
    if AIRFLOW_V_3_0_PLUS
    else ("/api/v1", "dataset", "dataset_uri", "consuming_dags", "dag_run_id")
)


class ApiRefusedError(InvalidInputError):
    """The API refuses, so that trying again does not help; nothing was cleared by that request."""


class GoneError(ApiRefusedError):
    """What is asked about is not there, or not any more."""


class ApiTroubleError(AirflowException):
    """The server is not reached, or fails, however often it was asked. What was asked for may have
    been done."""


class TaskRunsError(AirflowException):
    """The instance is at work already: it cannot be cleared before it has ended."""


@dataclass(frozen=True)
class TriggeredRun:
    """A run that an asset's event has started.

    :param state: ``queued``, ``running``, ``success`` or ``failed``.
    """

    dag_id: str
    run_id: str
    state: str


@dataclass(frozen=True)
class AssetEvent:
    """What a task of a run has told of an asset.

    :param asset: its path below the API's root.
    :param time: Unix time, of the server.
    """

    number: int
    asset: str
    time: float
    runs: tuple[TriggeredRun, ...]


class AirflowApi:
    """The API, by a client that is logged in.

    Every call raises :class:`ApiRefusedError` where it is refused, and :class:`ApiTroubleError`
    where the server is not reached or fails. What only asks is tried several times.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def state(self, instance: NamedTask) -> str | None:
        """What an instance is doing; ``None``: it waits to be scheduled."""
        return self._call("GET", _path(instance))["state"]

    def version(self, instance: NamedTask) -> str | None:
        """Return the version of the DAG that an instance ran by last: its number, and its bundle's
        version where that has one; ``None``: Airflow does not say, as 2.11 never does."""
        said = self._call("GET", _path(instance)).get("dag_version") or {}
        number, bundle = said.get("version_number"), said.get("bundle_version")
        if number is None:
            return None
        return f"{number} ({bundle})" if bundle else str(number)

    def idle(self, dag_id: str) -> str | None:
        """Why no task of a DAG begins; ``None``: they do."""
        found = self._call("GET", f"dags/{quote(dag_id, '')}")
        gone = found["is_stale"] if AIRFLOW_V_3_0_PLUS else not found["is_active"]
        return "not there any more" if gone else "paused" if found["is_paused"] else None

    def clear(
        self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
    ) -> None:
        """Let one instance run again, and its run with it. That is asked for once: where the answer
        is lost, a second request might meet it at work.

        :param include_downstream: its successors, too.
        :param latest: by the newest version of the DAG; else as the DAG's, or Airflow's,
            ``rerun_with_latest_version`` says. Airflow 2.11 has no other version.
        :raises TaskRunsError: it is at work. Airflow 2.11 does not look itself: what begins right
            after this has looked is ended there, and begun once more.
        :raises ApiRefusedError: there is no such instance, or it is not the only one that would be
            cleared.
        """
        if instance.map_index >= 0 and not AIRFLOW_V_3_0_PLUS:
            raise ApiRefusedError(
                f"Airflow 2.11 does not clear {instance} alone, but all that are mapped with it; "
                "nothing was cleared.",
                remedy="Clear it by hand, if all of them are to run again.",
            )
        state = self.state(instance)
        if state is not None and state not in ENDED:
            raise TaskRunsError(f"{instance} is {state}, so it is not cleared.")
        path = f"dags/{quote(instance.dag_id, '')}/clearTaskInstances"
        body = _clearing(instance, include_downstream, latest)
        named = self._call("POST", path, json=body | {"dry_run": True})["task_instances"]
        found = [
            NamedTask(it["dag_id"], it["dag_run_id"], it["task_id"], it.get("map_index", -1))
            for it in named
        ]
        successors = [it for it in found if _is_beside(it, instance)] if include_downstream else []
        if [it for it in found if it not in successors] != [instance]:
            raise ApiRefusedError(
                f"To clear {instance} would clear {[str(it) for it in found]}; nothing was.",
                remedy="Clear by hand what is to run again.",
            )
        _ask(self._client, "POST", f"{_ROOT}/{path}", json=body | {"dry_run": False})

    def events(self, of: NamedTask | TriggeredRun, after: int = 0) -> list[AssetEvent]:
        """What an instance, or any of a run, has told of assets; the last fifty, newest first.

        :param after: the number of an event; those before are left out.
        """
        asked = {"source_dag_id": of.dag_id, "source_run_id": of.run_id}
        if isinstance(of, NamedTask):
            asked |= {"source_task_id": of.task_id, "source_map_index": str(of.map_index)}
        asked |= {"order_by": "-timestamp", "limit": "50"}
        told = self._call("GET", f"{_ASSET}s/events", params=asked)[f"{_ASSET}_events"]
        return [
            AssetEvent(
                it["id"],
                f"{_ASSET}s/{quote(str(it[_ASSET_ID]), '')}",
                datetime.fromisoformat(it["timestamp"]).timestamp(),
                tuple(
                    TriggeredRun(run["dag_id"], run[_RUN_ID], run["state"])
                    for run in it["created_dagruns"]
                ),
            )
            for it in told
            if it["id"] > after
        ]

    def followers(self, asset: str) -> list[str]:
        """The DAGs that are scheduled on an asset."""
        return [it["dag_id"] for it in self._call("GET", asset)[_FOLLOWERS]]

    def _call(self, method: str, path: str, **content: Any) -> Any:
        return _answer(self._client, method, f"{_ROOT}/{path}", **content)


def _is_beside(other: NamedTask, instance: NamedTask) -> bool:
    """Tell whether another instance is of the same run, and of another task."""
    run = (instance.dag_id, instance.run_id)
    return (other.dag_id, other.run_id) == run and other.task_id != instance.task_id


def _clearing(instance: NamedTask, include_downstream: bool, latest: bool) -> dict[str, Any]:
    """What is to be cleared. Each default of the API is said: some differ between its versions."""
    task: Any = instance.task_id
    if instance.map_index >= 0:
        task = [instance.task_id, instance.map_index]
    around = ("include_upstream", "include_downstream", "include_future", "include_past")
    body = {
        "dag_run_id": instance.run_id,
        "task_ids": [task],
        "only_failed": False,
        "only_running": False,
        "reset_dag_runs": True,
        **dict.fromkeys(around, False),
        "include_downstream": include_downstream,
    }
    if AIRFLOW_V_3_0_PLUS:
        body |= {"prevent_running_task": True}
        # Left out, the version is the one that the DAG's author, or Airflow's configuration, says.
        body |= {"run_on_latest_version": True} if latest else {}
    return body


def _ask(client: httpx.Client, method: str, path: str, **content: Any) -> Any:
    asked = f"{method} {path}"
    try:
        answer = client.request(method, path, **content)
    except httpx.HTTPError as error:
        raise ApiTroubleError(
            f"Airflow's API was not reached for {asked} ({type(error).__name__})."
        ) from error
    if answer.is_success:
        try:
            return answer.json()
        except ValueError as error:
            raise ApiRefusedError(f"{asked} was answered by no JSON.", remedy=_REMEDY) from error
    said = f"{asked}: {answer.status_code} {_reason(answer)}"
    if answer.status_code == httpx.codes.CONFLICT:
        raise TaskRunsError(f"Airflow does not clear what runs: {said}")
    if answer.is_server_error or answer.status_code in _BUSY:
        raise ApiTroubleError(f"Airflow's API failed: {said}")
    refused = GoneError if answer.status_code == httpx.codes.NOT_FOUND else ApiRefusedError
    raise refused(
        f"Airflow's API refused {said}", remedy=_REMEDIES.get(answer.status_code, _REMEDY)
    )


_answer = retry(
    retry=retry_if_exception_type(ApiTroubleError),
    stop=stop_after_attempt(6),
    wait=wait_exponential(max=10),
    reraise=True,
)(_ask)


def _reason(answer: httpx.Response) -> str:
    """Why it is refused, in the server's words; not what it was sent, which may be a password."""
    try:
        told = answer.json()["detail"]
    except (ValueError, TypeError, KeyError):
        told = None
    if isinstance(told, list):  # Of a request that is malformed.
        told = "; ".join(str(it.get("msg")) for it in told if isinstance(it, dict))
    return str(told or answer.reason_phrase)[:500]


#: Refusals that pass.
_BUSY = frozenset((408, 425, 429))
_REMEDY = "See the connection's address, and the API server's log."
_REMEDIES = {
    401: "See the login and password of the connection to the API.",
    403: "See the login and password of the connection to the API. Its user needs the right to "
    "read DAGs, runs and assets, and to edit task instances of the DAGs that are cleared.",
    404: "The DAG, or that run of it, is no more there: load by a backfill. Or it is of another "
    "Airflow than the connection leads to.",
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
        _log_in(client, conn.login, conn.password or "")
        yield AirflowApi(client)


def _log_in(client: httpx.Client, login: str | None, password: str) -> None:
    token = "" if login else password
    if AIRFLOW_V_3_0_PLUS and not token:
        user = {"json": {"username": login, "password": password}} if login else {}
        method = "POST" if login else "GET"
        token = _answer(client, method, "/auth/token", **user)["access_token"]
    if token:
        client.headers["Authorization"] = f"Bearer {token}"
    elif login:
        client.auth = (login, password)


def _path(task: NamedTask) -> str:
    dag_id, run_id, task_id = (quote(it, "") for it in (task.dag_id, task.run_id, task.task_id))
    mapped = f"/{task.map_index}" if task.map_index >= 0 else ""
    return f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}{mapped}"
