"""Compatibility with Airflow 2.11: parts of Airflow 3 that it lacks or does differently.

Names that are only in another module there are imported from
``airflow.providers.common.compat.sdk``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from ..orchestration.runs.task_run import task_of
from . import get_provider_info

if TYPE_CHECKING or AIRFLOW_V_3_0_PLUS:
    from airflow.sdk.definitions.asset import AssetRef
    from airflow.sdk.exceptions import AirflowRuntimeError
else:

    class AssetRef:
        """Stand-in for Airflow 3's reference to an asset, which Airflow 2.11 does not have."""

    class AirflowRuntimeError(Exception):
        """Stand-in for Airflow 3's error of its API server, which Airflow 2.11 never raises."""


_log = logging.getLogger(__name__)
#: Function that asks for states of tasks, as Airflow 3's ``RuntimeTaskInstance.get_task_states``.
AskStates = Callable[..., dict[str, Any]]


def asks_states(ti: Any) -> AskStates | None:
    """Return the function that asks for states of tasks; ``None`` if there is none.

    :param ti: a running task's instance.
    """
    return getattr(ti, "get_task_states", None) or (
        None if AIRFLOW_V_3_0_PLUS else states_in_database
    )


def states_of_tasks(ask: AskStates | None, keys: Iterable[str]) -> dict[str, str]:
    """Return the states of runs' tasks by idempotency key; keys without a known state are left out.

    :param ask: the result of :func:`asks_states`; called once for each DAG.
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
    """Read states of tasks from the database, for Airflow 2.11.

    There, workers and triggerers can reach the database.

    :return: as ``get_task_states``: by run, then by task, with the map index if it has one.
    :raises AirflowException: the database did not answer.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy.exc import SQLAlchemyError

    of: Any = TaskInstance
    states: dict[str, dict[str, str | None]] = {run_id: {} for run_id in run_ids}
    try:
        with create_session() as session:
            found = session.query(of.run_id, of.task_id, of.map_index, of.state).filter(
                of.dag_id == dag_id, of.task_id.in_(task_ids), of.run_id.in_(run_ids)
            )
            for run_id, task_id, map_index, state in found:
                states[run_id][task_id if map_index < 0 else f"{task_id}_{map_index}"] = state
    except SQLAlchemyError as error:
        raise AirflowException(f"Airflow's database did not answer: {error}") from error
    return states


def silent_backend(conn_id: str) -> str | None:
    """Return the backend, and its error, that did not answer for a connection; ``None``: all did.

    If a secrets backend fails, Airflow goes on to the next one, and reports at the end that there
    is no such connection.
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
            # Without the error's text, which may quote the connection.
            return f"{name} ({type(error).__name__})"
    return None


def _ask_api_server(conn_id: str) -> None:
    """Ask Airflow 3's API server for a connection.

    Airflow's own backend reports each failure as a missing connection.

    :raises Exception: the server does not answer.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection

    said: Any = task_runner.SUPERVISOR_COMMS.send(GetConnection(conn_id=conn_id))
    if isinstance(said, ErrorResponse) and said.error.value != "CONNECTION_NOT_FOUND":
        raise AirflowRuntimeError(said)


def trigger_timeout(next_method: str, next_kwargs: Mapping[str, Any] | None) -> str | None:
    """Return Airflow's message if a wait in the triggerer has timed out, else ``None``.

    Airflow 2.11 raises the same error for a timeout and for a trigger that failed.

    :param next_method: the method with which the task is resumed.
    """
    error = str((next_kwargs or {}).get("error", ""))
    return error if next_method == "__fail__" and "timeout" in error.lower() else None


def keep_link(ti: Any, key: str, url: str) -> None:
    """Keep the address of a link that a task has found while it ran, on Airflow 2.11.

    Airflow 3 asks the operator for it when the task has ended, and keeps it itself.
    """
    if not AIRFLOW_V_3_0_PLUS:
        ti.xcom_push(key=key, value=url)


def kept_link(ti_key: Any, key: str) -> str:
    """Return the address that :func:`keep_link` kept; empty if there is none, or on Airflow 3."""
    if AIRFLOW_V_3_0_PLUS:
        return ""
    from airflow.models.xcom import XCom

    known: Any = XCom
    return known.get_value(ti_key=ti_key, key=key) or ""


def form_widgets() -> dict[str, Any]:
    """Return the fields of the connection's form, for Airflow 2.11, which asks the hook for them;
    Airflow 3 reads them in the provider information."""
    from flask_appbuilder.fieldwidgets import BS3TextFieldWidget
    from wtforms import StringField
    from wtforms.validators import AnyOf, Optional

    fields: dict[str, Any] = {}
    for name, field in _connection_type()["conn-fields"].items():
        choices = field["schema"].get("enum", ())
        fields[name] = StringField(
            field["label"],
            widget=BS3TextFieldWidget(),
            description=" ".join(filter(None, (field["description"], _one_of(choices)))),
            validators=[Optional(), *([AnyOf(choices)] if choices else [])],
        )
    return fields


def form_behaviour() -> dict[str, Any]:
    """Return which fields that every connection has are hidden, for Airflow 2.11."""
    behaviour = _connection_type()["ui-field-behaviour"]
    return {name.replace("-", "_"): value for name, value in behaviour.items()}


def _connection_type() -> dict[str, Any]:
    return get_provider_info()["connection-types"][0]


def _one_of(choices: Sequence[str]) -> str:
    return f"[{', '.join(choices)}]" if choices else ""
