"""DAGs of tests in a real Airflow: written into its home, run, and what is left of their runs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.airflow import migrate

HEAD = """
import airflow.sdk
from datetime import UTC, datetime
from airflow.sdk import DAG, Asset
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

with DAG("{dag_id}", schedule={schedule}, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
"""


@pytest.fixture
def dag_of() -> Iterator[Callable[..., Any]]:
    """Writes a DAG file into the home and loads it.

    Called with the DAG's id, the statements in its ``with``, and its schedule, an expression.
    """
    home = migrate()
    written: list[Path] = []

    def load(dag_id: str, body: str, schedule: str = "None") -> Any:
        from airflow.dag_processing.dagbag import DagBag

        file = home / "dags" / f"{dag_id}.py"
        written.append(file)
        head = HEAD.format(dag_id=dag_id, schedule=schedule)
        file.write_text(head + textwrap.indent(textwrap.dedent(body), "    "))
        bag = DagBag(str(file))
        assert bag.import_errors == {}
        return bag.get_dag(dag_id)

    yield load
    for file in written:
        file.unlink()
    forget_runs()


def forget_runs() -> None:
    """Delete the runs that tests of this process have left in the home's database: backfills leave
    out their days, and the page shows those that failed."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        for run in session.query(DagRun):
            session.delete(run)


def xcom(run: Any, task_id: str, key: str = "return_value") -> Any:
    (task,) = [ti for ti in run.get_task_instances() if ti.task_id == task_id]
    return task.xcom_pull(task_ids=task_id, key=key)


def events(run: Any) -> list[tuple[str, str | None, dict[str, Any]]]:
    """URI, partition key and extra of a run's asset events."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found: Any = session.query(AssetEvent).filter_by(source_run_id=run.run_id)
        mine = [event for event in found if event.source_dag_id == run.dag_id]
        return [(event.asset.uri, event.partition_key, dict(event.extra)) for event in mine]


def let_know(uri: str) -> None:
    """Let Airflow know an asset, as if a DAG named it."""
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        asset = AssetModel(name=uri, uri=uri, group="asset", extra={})
        session.add(asset)
        session.flush()
        session.add(AssetActive.for_asset(asset))


def let_run(*dag_ids: str) -> None:
    """Make DAGs of the home known, and take their pause off."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    (bundle,) = manager.get_all_dag_bundles()
    bag = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
    sync_bag_to_db(bag, bundle.name, None)
    with create_session() as session:
        for dag in session.query(DagModel).filter(DagModel.dag_id.in_(dag_ids)):
            dag.is_paused = False
    sync_bag_to_db(bag, bundle.name, None)  # Only now what their assets' watchers run.


def started_by_assets() -> dict[tuple[str, str | None], Any]:
    """What the scheduler starts now because of asset events, by DAG and partition key."""
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.sqlalchemy import prohibit_commit

    with create_session() as session:
        before = {run.id for run in session.query(DagRun)}
        runner = SchedulerJobRunner(job=Job())
        with prohibit_commit(session) as guard:
            runner._create_dagruns_for_dags(guard, session)
            guard.commit()
        runs: Any = session.query(DagRun)
        made = [run for run in runs if run.id not in before]
        session.expunge_all()
    return {(run.dag_id, run.partition_key): run for run in made}


def run_tasks(dag: Any, run: Any) -> Any:
    """Run the tasks of a run that the scheduler made, in this process, as ``dag.test`` does.

    :return: the run as it ended.
    """
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState

    with create_session() as session:
        run = session.merge(run)
        known = SerializedDagModel.get(run.dag_id, session=session)
        assert known is not None
        run.dag = known.dag
        run.state = DagRunState.RUNNING
        while run.state == DagRunState.RUNNING:
            ready, _ = run.update_state(session=session)
            assert ready or run.state != DagRunState.RUNNING, run.get_task_instances()
            for ti in ready:
                if ti.state != TaskInstanceState.UP_FOR_RESCHEDULE:
                    ti.try_number += 1  # Else one that fails would be retried for ever.
                ti.state = TaskInstanceState.SCHEDULED
            session.commit()
            for ti in ready:
                _run_task(ti=ti, task=dag.task_dict[ti.task_id])
            session.expire_all()
        session.expunge_all()
    return run
