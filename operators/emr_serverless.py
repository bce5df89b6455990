"""Loads by jobs of EMR Serverless."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.providers.amazon.aws.triggers.emr import EmrServerlessStartJobTrigger

from ..committer.format.handoff import HANDOFF
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.service_words import spark_driver, with_driver_words
from .loading.aws_load import LONGEST_WAIT, AwsLoadOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_UNFINISHED = ("SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED", "CANCELLING")


class ZeroRenameEmrServerlessOperator(AwsLoadOperator, EmrServerlessStartJobOperator):
    """Load a table by a Spark job of EMR Serverless.

    Takes every argument of :class:`EmrServerlessStartJobOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. ``job_driver`` has ``sparkSubmit``; its
    ``sparkSubmitParameters`` get what the application is told, as a variable of the driver, and the
    package by ``--py-files``. A job's name ends with the mark by which the next try finds it, which
    is also its client token. Returns (XCom) what :class:`ZeroRenameSparkSubmitOperator` returns.

    :param waiter_delay: seconds between two looks at the job.
    :param waiter_max_attempts: looks at it; a job that has not ended then is cancelled.
    """

    template_fields: Sequence[str] = (
        *EmrServerlessStartJobOperator.template_fields,
        *AwsLoadOperator.template_fields,
    )
    operator_extra_links = (
        *EmrServerlessStartJobOperator.operator_extra_links,
        *AwsLoadOperator.operator_extra_links,
    )
    request_fields = ("job_driver", "configuration_overrides", "config")

    def __init__(
        self,
        *,
        waiter_delay: int = 60,
        waiter_max_attempts: int = LONGEST_WAIT // 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            waiter_delay=waiter_delay, waiter_max_attempts=waiter_max_attempts, **kwargs
        )

    def execute(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """As any load's.

        :param event: of a deferred start of the service's application; the start is looked at anew.
        """
        return super().execute(context)

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        if isinstance(self.job_driver, dict):
            spark_driver(self.job_driver, "sparkSubmit")

    def _hand_over(self, mark: JobMark, handed: str, package: str | None) -> None:
        told = {f"spark.emr-serverless.driverEnv.{HANDOFF}": handed}
        self.job_driver = with_driver_words(
            self.job_driver, "sparkSubmit", told, package, self.configuration_overrides
        )
        config = dict(self.config)
        name = self.name or config.pop("name", None) or f"{self.dag_id}.{self.task_id}"
        self.config = {key: value for key, value in config.items() if key != "name"}
        self.name = mark.after(name, 256)
        self.client_request_token = str(mark)

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        client = self.hook.conn
        pages = client.get_paginator("list_job_runs").paginate(
            applicationId=self.application_id, states=list(_UNFINISHED)
        )
        try:
            for page in pages:
                yield from ((job["id"], job.get("name", "")) for job in page["jobRuns"])
        except client.exceptions.ResourceNotFoundException:
            return  # The start says what is missing.

    def _trigger(self, job_id: str) -> EmrServerlessStartJobTrigger:
        return EmrServerlessStartJobTrigger(
            application_id=self.application_id,
            job_id=job_id,
            waiter_delay=self.waiter_delay,
            waiter_max_attempts=self.waiter_max_attempts,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
            cancel_on_kill=self.cancel_on_kill,
        )

    def _cancel(self, job_id: str) -> None:
        self.hook.conn.cancel_job_run(applicationId=self.application_id, jobRunId=job_id)
