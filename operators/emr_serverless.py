"""Loads by jobs of EMR Serverless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.providers.common.compat.sdk import AirflowException

from ..committer.upkeep.access_policy import Service
from ..orchestration.runs.arguments import Parser, read_mapping, read_text
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.seen_jobs import refuse_serverless_repeats
from ..provider.cancelling_triggers import CancellingServerlessTrigger, cancel_serverless
from ..s3a.services import ServiceJob, classified
from .loading.aws_load import DriverLoadOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class ZeroRenameEmrServerlessOperator(DriverLoadOperator, EmrServerlessStartJobOperator):
    """Load a table by a Spark job of EMR Serverless.

    It takes every argument of :class:`EmrServerlessStartJobOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. ``job_driver`` must have ``sparkSubmit``.
    Its ``sparkSubmitParameters`` get the application's hand-off, as a variable of the driver, and
    the package by ``--py-files``. A job's name ends with a mark by which the next attempt finds it;
    the mark is also its client token. Returns (XCom) the same as
    :class:`ZeroRenameSparkSubmitOperator`.

    A job that has not ended after ``waiter_max_attempts`` polls is cancelled.
    """

    request_fields = (*DriverLoadOperator.request_fields, "config")
    parsers: ClassVar[Mapping[str, Parser]] = {"application_id": read_text}
    optional_parsers: ClassVar[Mapping[str, Parser]] = {"name": read_text, "config": read_mapping}
    service = Service.EMR_SERVERLESS
    member, variables = "sparkSubmit", "spark.emr-serverless.driverEnv"
    unfinished = ("SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED", "CANCELLING")
    cancels_late = True

    def execute(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:  # pyrefly: ignore[bad-override]
        """Load, as any load operator does.

        :param event: of a deferred start of the service's application.
        :raises AirflowException: this start has failed. Without this error, the task would be
            deferred again and again.
        """
        if event is not None and event.get("status") != "success":
            raise AirflowException(
                f"The application {self.application_id} did not start, and nothing was submitted: "
                f"{event.get('message') or event}"
            )
        return super().execute(context)

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        super()._hand_over(mark, handed, package, settings)
        config = dict(self.config or {})
        name = self.name or config.pop("name", None) or f"{self.dag_id}.{self.task_id}"
        self.config = {key: value for key, value in config.items() if key != "name"}
        self.name = mark.after(name, 256)

    def _seen_job(self) -> ServiceJob:
        refuse_serverless_repeats(self.config or {})
        said, unseen = self._described("get_application", applicationId=self.application_id)
        application = said.get("application") or {}
        runtime = classified(application.get("runtimeConfiguration"), "runtimeConfiguration")
        return self._seen_driver(application.get("releaseLabel", ""), runtime, *unseen)

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        try:
            yield from self._job_runs(applicationId=self.application_id)
        except self.hook.conn.exceptions.ResourceNotFoundException:
            return  # The start of the job reports what is missing.

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """Defer with a trigger that cancels the job if the task is ended."""
        if method_name == self.completed_by:
            trigger = self._trigger(trigger.job_id)
        super().defer(trigger=trigger, method_name=method_name, **more)

    def _trigger(self, job_id: str) -> CancellingServerlessTrigger:
        return CancellingServerlessTrigger(
            application_id=self.application_id,
            job_id=job_id,
            **self._waiting(),
            cancel_on_kill=self.cancel_on_kill,
        )

    def _cancel(self, job_id: str) -> None:
        cancel_serverless(self.hook.conn, self.application_id, job_id)
