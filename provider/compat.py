"""Compatibility with Airflow 2.11: what it lacks of Airflow 3, or does otherwise. What only has
another place there comes from ``airflow.providers.common.compat.sdk``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from ..orchestration.runs.task_run import task_of

if TYPE_CHECKING or AIRFLOW_V_3_0_PLUS:
    from airflow.sdk.definitions.asset import AssetRef
    from airflow.sdk.exceptions import AirflowRuntimeError
else:

    class AssetRef:
        """Airflow 3's asset by its name or address alone; nothing is one here."""

    class AirflowRuntimeError(Exception):
        """What Airflow 3's API server refuses; nobody is asked here."""


_log = logging.getLogger(__name__)
#: Asks for states of tasks, as ``RuntimeTaskInstance.get_task_states`` of Airflow 3.
AskStates = Callable[..., dict[str, Any]]


def asks_states(ti: Any) -> AskStates | None:
    """Who can be asked for states of tasks; ``None``: nobody.

    :param ti: a running task's instance.
    """
    return getattr(ti, "get_task_states", None) or (
        None if AIRFLOW_V_3_0_PLUS else states_in_database
    )


def states_of_tasks(ask: AskStates | None, keys: Iterable[str]) -> dict[str, str]:
    """The state of each run's task, by the run's idempotency key, as far as it is known.

    :param ask: :func:`asks_states`; called once for each DAG.
    """
    if ask is None:
        return {}
    tasks = {key: found for key in keys if (found := task_of(key)) is not None}
    states: dict[str, str] = {}
    for dag_id in {found.dag_id for found in tasks.values()}:
        mine = {key: found for key, found in tasks.items() if found.dag_id == dag_id}
        try:
            known = ask(
                dag_id=dag_id,
                task_ids=sorted({found.task_id for found in mine.values()}),
                run_ids=sorted({found.run_id for found in mine.values()}),
            )
        except (AirflowException, AirflowRuntimeError) as error:
            _log.warning("The states of tasks of %r are not known: %s", dag_id, error)
            continue
        for idempotency_key, found in mine.items():
            state = known.get(found.run_id, {}).get(found.state_name)
            if state is not None:
                states[idempotency_key] = str(state)
    return states


def states_in_database(
    *, dag_id: str, task_ids: list[str], run_ids: list[str]
) -> dict[str, dict[str, str | None]]:
    """As ``get_task_states``: by run, then by task, with the map index where it has one.

    For Airflow 2.11, whose workers and triggerers reach the database.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    of: Any = TaskInstance
    with create_session() as session:
        found = session.query(of.run_id, of.task_id, of.map_index, of.state).filter(
            of.dag_id == dag_id, of.task_id.in_(task_ids), of.run_id.in_(run_ids)
        )
        states: dict[str, dict[str, str | None]] = {run_id: {} for run_id in run_ids}
        for run_id, task_id, map_index, state in found:
            states[run_id][task_id if map_index < 0 else f"{task_id}_{map_index}"] = state
    return states


def silent_backend(conn_id: str) -> str | None:
    """Return why a secrets backend did not answer for a connection; ``None``: all did.

    Airflow goes on to the next backend where one fails, and says at the end that there is no such
    connection.
    """
    if AIRFLOW_V_3_0_PLUS:
        from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

        backends = ensure_secrets_backend_loaded()
    else:
        from airflow.configuration import ensure_secrets_loaded

        backends = ensure_secrets_loaded()
    for backend in backends:
        name = type(backend).__name__
        try:
            if name == "ExecutionAPISecretsBackend":
                _ask_api_server(conn_id)
            else:
                backend.get_connection(conn_id=conn_id)
        except Exception as error:
            # Without its text, which may hold what is in the connection.
            return f"{name} ({type(error).__name__})"
    return None


def _ask_api_server(conn_id: str) -> None:
    """Ask Airflow 3's API server for a connection, whose backend takes every failure for none.

    :raises Exception: it does not answer.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection

    said: Any = task_runner.SUPERVISOR_COMMS.send(GetConnection(conn_id=conn_id))
    if isinstance(said, ErrorResponse) and said.error.value != "CONNECTION_NOT_FOUND":
        raise AirflowRuntimeError(said)


def trigger_timeout(next_method: str, next_kwargs: Mapping[str, Any] | None) -> str | None:
    """Return Airflow's words for the time-out of a wait in the triggerer; ``None``: it is none.

    Airflow 2.11 raises for it what it raises for a trigger that failed.

    :param next_method: how the task is resumed.
    """
    error = str((next_kwargs or {}).get("error", ""))
    return error if next_method == "__fail__" and "timeout" in error.lower() else None


def keep_link(ti: Any, key: str, url: str) -> None:
    """Keep the address of a link that a task has found while it ran.

    Airflow 3 asks the operator for it when the task has ended, and keeps it itself.
    """
    if not AIRFLOW_V_3_0_PLUS:
        ti.xcom_push(key=key, value=url)


def kept_link(ti_key: Any, key: str) -> str:
    """That address, for the web server of Airflow 2.11; empty where there is none."""
    if AIRFLOW_V_3_0_PLUS:
        return ""
    from airflow.models.xcom import XCom

    known: Any = XCom
    return known.get_value(ti_key=ti_key, key=key) or ""
