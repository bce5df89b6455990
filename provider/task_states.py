"""States of the tasks behind ``once`` keys, as Airflow has them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from airflow.providers.common.compat.sdk import AirflowException

from ..orchestration.runs.task_run import task_of
from .compat import AirflowRuntimeError, AskStates

_log = logging.getLogger(__name__)


def states_of_tasks(ask: AskStates | None, onces: Iterable[str]) -> dict[str, str]:
    """The state of each run's task, by the run's ``once`` key, as far as it is known.

    :param ask: :func:`.compat.asks_states`; called once for each DAG.
    """
    if ask is None:
        return {}
    tasks = {once: found for once in onces if (found := task_of(once)) is not None}
    states: dict[str, str] = {}
    for dag_id in {found.dag_id for found in tasks.values()}:
        mine = {once: found for once, found in tasks.items() if found.dag_id == dag_id}
        try:
            known = ask(
                dag_id=dag_id,
                task_ids=sorted({found.task_id for found in mine.values()}),
                run_ids=sorted({found.run_id for found in mine.values()}),
            )
        except (AirflowException, AirflowRuntimeError) as error:
            _log.warning("The states of tasks of %r are not known: %s", dag_id, error)
            continue
        for once, found in mine.items():
            state = known.get(found.run_id, {}).get(found.state_name)
            if state is not None:
                states[once] = str(state)
    return states
