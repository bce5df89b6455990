"""Loads by steps of EMR clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator

from ..committer.errors import InvalidInputError
from ..committer.upkeep.access_policy import Service
from ..orchestration.runs.arguments import Parser, read_request_of_texts, read_text, read_words
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.seen_jobs import seen_by_words
from ..orchestration.submit.service_words import spark_step, with_step_words
from ..provider.cancelling_triggers import CancellingStepTrigger, cancel_step
from ..s3a.services import ServiceJob, classified
from .loading.aws_load import AwsLoadOperator

_UNFINISHED = ("PENDING", "CANCEL_PENDING", "RUNNING")


class ZeroRenameEmrStepOperator(AwsLoadOperator, EmrAddStepsOperator):
    """Load a table by a step of an EMR cluster.

    It takes every argument of :class:`EmrAddStepsOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. ``steps`` must be one step that runs
    ``spark-submit`` by ``command-runner.jar``. Its words get the application's hand-off, as a
    setting of Spark and in cluster mode also as a variable of the driver, and the package by
    ``--py-files``. A step's name ends with a mark by which the next attempt finds it. Returns
    (XCom) the same as :class:`ZeroRenameSparkSubmitOperator`.

    A step that has not ended after ``waiter_max_attempts`` polls goes on, and the next attempt
    waits for it.
    """

    request_fields = ("steps",)
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("execution_role_arn", "job_flow_id", "job_flow_name"), read_text),
        "cluster_states": read_words,
        "steps": read_request_of_texts,
    }
    service = Service.EMR_STEPS
    pause = 30
    #: A driver in the cluster may outlive the step that has submitted it.
    ends_with_job = False

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        if isinstance(self.steps, list):
            spark_step(self.steps)

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        step = spark_step(self.steps)
        jar_step = step["HadoopJarStep"]
        words = with_step_words(jar_step["Args"], handed, settings, package)
        self.steps = [
            {
                **step,
                "Name": mark.after(step.get("Name", self.task_id), 256),
                "HadoopJarStep": {**jar_step, "Args": words},
            }
        ]

    def _seen_job(self) -> ServiceJob:
        said, unseen = self._described("describe_cluster", ClusterId=self._cluster_id())
        cluster = said.get("Cluster") or {}
        words = [*map(str, spark_step(self.steps)["HadoopJarStep"]["Args"])][1:]
        behind = classified(cluster.get("Configurations"), "the cluster's configurations")
        return seen_by_words(words, cluster.get("ReleaseLabel", ""), behind, *unseen)

    def _cluster_id(self) -> str:
        if self.job_flow_id is None:
            self.job_flow_id = self.hook.get_cluster_id_by_name(
                str(self.job_flow_name), self.cluster_states
            )
        if self.job_flow_id is None:
            raise InvalidInputError(
                f"No cluster is called {self.job_flow_name!r}; nothing was submitted.",
                remedy="Name a cluster that runs, or give its id as job_flow_id.",
            )
        return self.job_flow_id

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        pages = self.hook.conn.get_paginator("list_steps").paginate(
            ClusterId=self._cluster_id(), StepStates=list(_UNFINISHED)
        )
        for page in pages:
            yield from ((step["Id"], step["Name"]) for step in page["Steps"])

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """Defer with a trigger that cancels the step if the task is ended."""
        if method_name == self.completed_by:
            (step,) = trigger.waiter_args["StepIds"]
            trigger = self._trigger(step)
        super().defer(trigger=trigger, method_name=method_name, **more)

    def _trigger(self, job_id: str) -> CancellingStepTrigger:
        return CancellingStepTrigger(
            job_flow_id=self._cluster_id(), step_ids=[job_id], **self._waiting()
        )

    def _cancel(self, job_id: str) -> None:
        cancel_step(self.hook.conn, self._cluster_id(), job_id)
