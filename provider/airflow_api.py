"""Client of Airflow's REST API, for a task that clears other tasks.

Airflow's task SDK can only clear whole runs. So this needs a connection of type ``http``. It has
the address of the API server (in Airflow 2.11: of the web server), and the login and password of a
user. The user needs the right to read DAGs, their runs and assets' events, and to edit task
instances of the DAGs to clear. A password without a login is used as a token. Without both, the
server is expected to need no login.

It is the API of the task's own Airflow, so its version is known: 2 in Airflow 3, 1 in Airflow 2.11.
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

#: States of a task instance that has ended.
ENDED = frozenset(("success", "failed", "skipped", "upstream_failed", "removed"))
_TIMEOUT = 60.0
#: Events in an answer: the most that a server allows by default.
_PAGE = 100
#: Names that differ between the two versions: the API's root, assets, the id of an asset, the DAGs
#: that are scheduled on an asset, and the id of a run.
_ROOT, _ASSET, _ASSET_ID, _FOLLOWERS, _RUN_ID = (
    ("/api/v2", "asset", "asset_id", "scheduled_dags", "run_id")
    if AIRFLOW_V_3_0_PLUS
    else ("/api/v1", "dataset", "dataset_uri", "consuming_dags", "dag_run_id")
)


class ApiRefusedError(InvalidInputError):
    """The API refused a request, so a retry does not help; the request has cleared nothing."""


class GoneError(ApiRefusedError):
    """The API does not know the DAG, the run or the task, or does not know it any more."""


class ApiTroubleError(AirflowException):
    """The server cannot be reached, or fails, after all retries.

    It may have carried out the request.
    """


class TaskRunsError(AirflowException):
    """The task instance is at work: it cannot be cleared before it has ended."""


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
    """An event of an asset that a task of a run has made.

    :param number: the event's id, which grows with time.
    :param asset: its path below the API's root.
    :param time: in Unix seconds, by the server's clock.
    :param runs: the runs that the event has started.
    """

    number: int
    asset: str
    time: float
    runs: tuple[TriggeredRun, ...]


class AirflowApi:
    """The API, with a client that is logged in.

    Every call raises :class:`ApiRefusedError` if it is refused, and :class:`ApiTroubleError` if the
    server cannot be reached or fails. Requests that change nothing are tried several times.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def state(self, instance: NamedTask) -> str | None:
        """Return the state of a task instance; ``None``: it waits to be scheduled."""
        return self._call("GET", _path(instance))["state"]

    def version(self, instance: NamedTask) -> str | None:
        """Return the version of the DAG with which an instance ran last.

        :return: its number, and the version of its bundle if there is one. ``None`` if Airflow does
            not report it, as Airflow 2.11 never does.
        """
        said = self._call("GET", _path(instance)).get("dag_version") or {}
        number, bundle = said.get("version_number"), said.get("bundle_version")
        if number is None:
            return None
        return f"{number} ({bundle})" if bundle else str(number)

    def idle(self, dag_id: str) -> str | None:
        """Return the reason why tasks of a DAG do not begin; ``None``: they do begin."""
        found = self._call("GET", f"dags/{quote(dag_id, '')}")
        gone = found["is_stale"] if AIRFLOW_V_3_0_PLUS else not found["is_active"]
        return "not there any more" if gone else "paused" if found["is_paused"] else None

    def clear(
        self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
    ) -> None:
        """Let one instance run again, and its run with it.

        The request is sent only once: if its answer is lost, a second one might find the instance
        at work.

        :param include_downstream: clear its successors, too.
        :param latest: use the newest version of the DAG. Otherwise ``rerun_with_latest_version`` of
            the DAG, or of Airflow, decides. Airflow 2.11 only has the newest version.
        :raises TaskRunsError: the instance is at work. Airflow 2.11 does not check this itself: an
            instance that begins right after the check here is ended there, and begun once more.
        :raises ApiRefusedError: there is no such instance, or the request would also clear others.
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
        """Return the asset events of an instance or a run, newest first.

        A load has an event for each partition and outlet, so there may be many pages.

        :param after: the number of an event; it and earlier ones are left out.
        """
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
            for it in self._events(of, after)
        ]

    def last_event(self, of: NamedTask) -> int:
        """Return the number of the newest asset event of an instance; 0 if it has none."""
        return next((it["id"] for it in self._events(of, 0, 1)), 0)

    def _events(
        self, of: NamedTask | TriggeredRun, after: int, page: int = _PAGE
    ) -> Iterator[dict[str, Any]]:
        """Yield events as the API returns them, page by page, newest first."""
        asked = {"source_dag_id": of.dag_id, "source_run_id": of.run_id}
        if isinstance(of, NamedTask):
            asked |= {"source_task_id": of.task_id, "source_map_index": str(of.map_index)}
        asked |= {"order_by": "-timestamp", "limit": str(page)}
        read = 0
        while True:
            params = asked | {"offset": str(read)}
            said = self._call("GET", f"{_ASSET}s/events", params=params)
            found = said[f"{_ASSET}_events"]
            newer = [it for it in found if it["id"] > after]
            yield from newer
            # The server may give fewer than were asked for ([api] maximum_page_limit).
            read += len(found)
            if not found or len(newer) < len(found) or read >= said["total_entries"]:
                return

    def followers(self, asset: str) -> list[str]:
        """Return the DAGs that are scheduled on an asset.

        :param asset: its path below the API's root.
        """
        return [it["dag_id"] for it in self._call("GET", asset)[_FOLLOWERS]]

    def _call(self, method: str, path: str, **content: Any) -> Any:
        return _answer(self._client, method, f"{_ROOT}/{path}", **content)


def _is_beside(other: NamedTask, instance: NamedTask) -> bool:
    """Return whether another instance is of the same run and of another task."""
    run = (instance.dag_id, instance.run_id)
    return (other.dag_id, other.run_id) == run and other.task_id != instance.task_id


def _clearing(instance: NamedTask, include_downstream: bool, latest: bool) -> dict[str, Any]:
    """Return the body of a request that clears an instance.

    It names each option, since some defaults differ between the API's versions.
    """
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
        # If it is left out, the DAG's author or Airflow's configuration decides the version.
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
    """Return the server's own reason; never the request's content, which may be a password."""
    try:
        told = answer.json()["detail"]
    except (ValueError, TypeError, KeyError):
        told = None
    if isinstance(told, list):  # The request is malformed.
        told = "; ".join(str(it.get("msg")) for it in told if isinstance(it, dict))
    return str(told or answer.reason_phrase)[:500]


#: Status codes of refusals that are temporary.
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
    """Log in to the API with a connection of type ``http``, for the block.

    :raises ApiRefusedError: the connection has no address, or its login is refused.
    :raises ApiTroubleError: the server cannot be reached, or fails.
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
