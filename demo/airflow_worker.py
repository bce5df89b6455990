"""A process with a real Airflow in it that runs a DAG when told to.

``python -m demo.airflow_worker DAG_ID [--migrate]`` reads one request per line from stdin and
answers each with one line on stdout (:mod:`.airflow`); all that Airflow prints goes to stderr.
One process for several runs, since importing Airflow takes longer than a small run of it.

``DAG.test`` makes a run, and makes it anew if there was one. To run a run *again*, as clearing a
task does, or as the scheduler does after a worker died, this module does the scheduler's part.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from typing import Any

from .processes import end_with_parent

#: How a run can be begun.
FIRST, CLEARED, RETRIED = "first", "cleared", "retried"


def main() -> None:
    """Answer requests until stdin ends."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Airflow and spark-submit print to stdout.

    def answer(**content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    if "--migrate" in sys.argv:
        from airflow.utils import db

        db.initdb()
    dag = _dag(sys.argv[1])
    answer(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            run = _run(
                dag, datetime.fromisoformat(request["date"]), request["how"], request["conf"]
            )
            answer(state=str(run.state), run_id=run.run_id)
        except Exception as error:
            answer(state="error", error=f"{type(error).__name__}: {error}")
            raise


def _dag(dag_id: str) -> Any:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    if bag.import_errors:
        raise RuntimeError(f"The DAGs do not import: {bag.import_errors}")
    return bag.get_dag(dag_id)


def _run(dag: Any, date: datetime, how: str, conf: dict[str, Any]) -> Any:
    if how == FIRST:
        return dag.test(logical_date=date, run_conf=conf)
    return _run_again(dag, date, how, conf)


def _run_again(dag: Any, date: datetime, how: str, conf: dict[str, Any]) -> Any:
    """Another try of all tasks of an existing run.

    :param how: ``cleared``: as a user does who wants the tasks to run again. ``retried``: as
        the scheduler does with tasks whose worker went silent.
    """
    from airflow import settings
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import clear_task_instances
    from airflow.sdk import DagRunState, TaskInstanceState
    from airflow.sdk.definitions.dag import _run_task
    from airflow.serialization.serialized_objects import DagSerialization
    from sqlalchemy import select

    assert settings.Session is not None, "importing Airflow has configured it"
    session = settings.Session()
    run = session.scalar(
        select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.logical_date == date)
    )
    if run is None:
        raise LookupError(f"{dag.dag_id} has no run of {date}")
    run.dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    tasks = run.get_task_instances(session=session)
    if how == CLEARED:
        clear_task_instances(tasks, session, dag_run_state=False)
    else:
        for task in tasks:
            task.state = None
    run.conf = conf
    run.state = DagRunState.RUNNING
    session.commit()
    while run.state == DagRunState.RUNNING:
        session.expire_all()
        schedulable, _ = run.update_state(session=session)
        if run.state == DagRunState.RUNNING and not schedulable:
            raise RuntimeError(f"Nothing of {run} can be scheduled")
        for task in schedulable:
            task.try_number += 1
            task.state = TaskInstanceState.SCHEDULED
        session.commit()
        for task in schedulable:
            _run_task(ti=task, task=dag.task_dict[task.task_id], run_triggerer=True)
    return run


if __name__ == "__main__":
    main()
