"""Loads by runs of Databricks jobs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
from airflow.providers.databricks.triggers.databricks import DatabricksExecutionTrigger

from ..committer.errors import InvalidInputError
from ..committer.format.handoff import HANDOFF
from ..committer.upkeep.access_policy import Service
from ..orchestration.runs.arguments import Parser, read_list, read_mapping, read_text, read_whole
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.package_file import build_wheel
from .loading.service_load import ServiceLoadOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_LIST_RUNS = ("GET", "2.2/jobs/runs/list")
#: Runs of a page; the most that Databricks gives.
_PAGE = 25
#: Arguments that describe a run's only task, and become members of the request's JSON.
_OF_A_TASK = (
    *("spark_python_task", "notebook_task", "spark_jar_task"),
    *("new_cluster", "existing_cluster_id", "libraries"),
)
#: Templated arguments by their kind.
_TEXTS = (
    *("databricks_conn_id", "existing_cluster_id"),
    *("run_name", "idempotency_token", "performance_target"),
)
_DICTIONARIES = (
    *("json", "new_cluster", "git_source", "spark_python_task", "spark_submit_task"),
    *("spark_jar_task", "notebook_task", "pipeline_task", "dbt_task"),
)
_LISTS = ("tasks", "libraries", "environments", "access_control_list")


class ZeroRenameDatabricksSubmitRunOperator(ServiceLoadOperator, DatabricksSubmitRunOperator):
    """Load a table by a Databricks run with one task on its own cluster.

    It takes every argument of :class:`DatabricksSubmitRunOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. ``new_cluster`` (or that of the only task
    in ``tasks``) gets the application's hand-off in ``spark_env_vars``. The task gets the package,
    as a wheel among its ``libraries``. A run's name ends with a mark by which the next attempt
    finds it; the mark is also its ``idempotency_token``. Returns (XCom) the same as
    :class:`ZeroRenameSparkSubmitOperator`.
    """

    request_fields = ("json", "tasks", *_OF_A_TASK)
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(_TEXTS, read_text),
        **dict.fromkeys(_DICTIONARIES, read_mapping),
        **dict.fromkeys(_LISTS, read_list),
        "timeout_seconds": read_whole,
    }
    connection_fields = ("databricks_conn_id",)
    service = Service.DATABRICKS
    waits_by = "wait_for_termination"
    build_package = staticmethod(build_wheel)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # DatabricksSubmitRunOperator's own search for a run would find that of a cleared task.
        self.durable = False

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        known = (self.json, Mapping), (self.new_cluster, Mapping), (self.tasks, list)
        if not parsing or all(it is None or isinstance(it, kind) for it, kind in known):
            _cluster_and_task(self._get_merged_json())

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        request = copy.deepcopy(self._get_merged_json())
        cluster, task = _cluster_and_task(request)
        cluster["spark_env_vars"] = {**(cluster.get("spark_env_vars") or {}), HANDOFF: handed}
        if package:
            task["libraries"] = [*(task.get("libraries") or ()), {"whl": package}]
        request["run_name"] = mark.after(request["run_name"], 4096)
        request["idempotency_token"] = str(mark)
        self.json = request
        for name in self._get_named_json_parameters():
            setattr(self, name, None)

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        asked: dict[str, Any] = {"active_only": "true", "run_type": "SUBMIT_RUN", "limit": _PAGE}
        while True:
            found = self._hook._do_api_call(_LIST_RUNS, asked)
            for run in found.get("runs", ()):
                yield str(run["run_id"]), run.get("run_name", "")
            if not found.get("next_page_token"):
                return
            asked["page_token"] = found["next_page_token"]

    def _wait_for(self, context: Context, job_id: str) -> None:
        if not self.deferrable:
            self.poll_until_complete(int(job_id), context)
            return
        trigger = DatabricksExecutionTrigger(
            run_id=int(job_id),
            databricks_conn_id=self.databricks_conn_id,
            polling_period_seconds=self.polling_period_seconds,
            retry_limit=self.databricks_retry_limit,
            retry_delay=self.databricks_retry_delay,
            retry_args=self.databricks_retry_args,
            run_page_url=self._hook.get_run_page_url(int(job_id)),
        )
        self.defer(trigger=trigger, method_name=self.completed_by)

    def _check_event(self, context: Context, event: dict[str, Any] | None) -> None:
        DatabricksSubmitRunOperator.execute_complete(self, None, event or {})

    def _cancel(self, job_id: str) -> None:
        self._hook.cancel_run(int(job_id))


def _cluster_and_task(request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of a request that describe the run's new cluster and its only task.

    :raises InvalidInputError: the run makes no cluster, has several tasks, or a task by
        spark-submit.
    """
    tasks = request.get("tasks", [request])
    task = tasks[0] if isinstance(tasks, list) and len(tasks) == 1 else None
    if not isinstance(task, dict):
        raise InvalidInputError(
            "tasks is not one task, so it is not known which one loads. Nothing was submitted.",
            remedy="Give the task that loads alone; others belong to a task of their own.",
        )
    if "spark_submit_task" in task:
        raise InvalidInputError(
            "The run has a spark_submit_task, which installs no libraries, so the application "
            "would not have this package; and Databricks takes no new ones. Nothing was submitted.",
            remedy="Give spark_python_task, {'python_file': …, 'parameters': […]}, with the "
            "settings in new_cluster's spark_conf and other files among the libraries.",
        )
    cluster = task.get("new_cluster")
    if not isinstance(cluster, dict):
        raise InvalidInputError(
            "The run has no new_cluster. A cluster that is there already, and serverless compute, "
            "have no variables or settings of a single run, by which the application would be told "
            "what it loads. Nothing was submitted.",
            remedy="Give new_cluster; an instance pool or a cluster policy makes it start sooner.",
        )
    return cluster, task
