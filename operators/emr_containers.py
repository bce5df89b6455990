"""Loads by jobs of EMR on EKS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow.providers.amazon.aws.operators.emr import EmrContainerOperator
from airflow.providers.amazon.aws.triggers.emr import EmrContainerTrigger

from ..committer.format.handoff import HANDOFF
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.service_words import spark_driver, with_driver_words
from .loading.aws_load import LONGEST_WAIT, AwsLoadOperator

_UNFINISHED = ("PENDING", "SUBMITTED", "RUNNING", "CANCEL_PENDING")


class ZeroRenameEmrContainerOperator(AwsLoadOperator, EmrContainerOperator):
    """Load a table by a Spark job of EMR on EKS.

    Takes every argument of :class:`EmrContainerOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. ``job_driver`` has
    ``sparkSubmitJobDriver``; its ``sparkSubmitParameters`` get what the application is told, as a
    variable of the driver's pod, and the package by ``--py-files``. A job's name ends with the mark
    by which the next try finds it, which is also its client token. Returns (XCom) what
    :class:`ZeroRenameSparkSubmitOperator` returns.
    """

    template_fields: Sequence[str] = (
        *EmrContainerOperator.template_fields,
        *AwsLoadOperator.template_fields,
    )
    operator_extra_links = (
        *EmrContainerOperator.operator_extra_links,
        *AwsLoadOperator.operator_extra_links,
    )
    request_fields = ("job_driver", "configuration_overrides")

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        if isinstance(self.job_driver, dict):
            spark_driver(self.job_driver, "sparkSubmitJobDriver")

    def _hand_over(self, mark: JobMark, handed: str, package: str | None) -> None:
        told = {f"spark.kubernetes.driverEnv.{HANDOFF}": handed}
        self.job_driver = with_driver_words(
            self.job_driver, "sparkSubmitJobDriver", told, package, self.configuration_overrides
        )
        self.name = mark.after(self.name, 64, "-")
        self.client_request_token = str(mark)

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        pages = self.hook.conn.get_paginator("list_job_runs").paginate(
            virtualClusterId=self.virtual_cluster_id, states=list(_UNFINISHED)
        )
        for page in pages:
            yield from ((job["id"], job.get("name", "")) for job in page["jobRuns"])

    def _trigger(self, job_id: str) -> EmrContainerTrigger:
        return EmrContainerTrigger(
            virtual_cluster_id=self.virtual_cluster_id,
            job_id=job_id,
            waiter_delay=self.poll_interval,
            waiter_max_attempts=self.max_polling_attempts
            or LONGEST_WAIT // max(1, self.poll_interval),
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
            cancel_on_kill=self.cancel_on_kill,
        )

    def _cancel(self, job_id: str) -> None:
        self.hook.stop_query(job_id)
