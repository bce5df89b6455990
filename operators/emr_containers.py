"""Loads by jobs of EMR on EKS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from airflow.providers.amazon.aws.operators.emr import EmrContainerOperator
from airflow.providers.amazon.aws.triggers.emr import EmrContainerTrigger

from ..committer.upkeep.access_policy import Service
from ..orchestration.runs.arguments import Parser, read_text
from ..orchestration.submit.job_mark import JobMark
from ..s3a.services import ServiceJob, refuse_repeats
from .loading.aws_load import LONGEST_WAIT, DriverLoadOperator


class ZeroRenameEmrContainerOperator(DriverLoadOperator, EmrContainerOperator):
    """Load a table by a Spark job of EMR on EKS.

    It takes every argument of :class:`EmrContainerOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. ``job_driver`` must have
    ``sparkSubmitJobDriver``. Its ``sparkSubmitParameters`` get the application's hand-off, as a
    variable of the driver's pod, and the package by ``--py-files``. A job's name ends with a mark
    by which the next attempt finds it; the mark is also its client token. Returns (XCom) the same
    as :class:`ZeroRenameSparkSubmitOperator`.

    A job that has not ended after ``max_polling_attempts`` polls, one every ``poll_interval``
    seconds, goes on, and the next attempt waits for it. Left out, they are those of a day.
    """

    parsers: ClassVar[Mapping[str, Parser]] = dict.fromkeys(
        ("name", "virtual_cluster_id", "release_label"), read_text
    )
    service = Service.EMR_CONTAINERS
    member, variables = "sparkSubmitJobDriver", "spark.kubernetes.driverEnv"
    unfinished = ("PENDING", "SUBMITTED", "RUNNING", "CANCEL_PENDING")
    pause = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Without this limit, EmrContainerOperator would wait without end.
        self.max_polling_attempts = self.max_polling_attempts or LONGEST_WAIT // max(
            1, self.poll_interval
        )

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        super()._hand_over(mark, handed, package, settings)
        self.name = mark.after(self.name, 64, "-")

    def _seen_job(self) -> ServiceJob:
        attempts = self.job_retry_max_attempts
        refuse_repeats("job_retry_max_attempts", attempts, (attempts or 1) > 1)
        return self._seen_driver(self.release_label, ())

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        return self._job_runs(virtualClusterId=self.virtual_cluster_id)

    def _trigger(self, job_id: str) -> EmrContainerTrigger:
        return EmrContainerTrigger(
            virtual_cluster_id=self.virtual_cluster_id,
            job_id=job_id,
            waiter_delay=self.poll_interval,
            waiter_max_attempts=self.max_polling_attempts,  # pyrefly: ignore[bad-argument-type]
            **self._client(),
            cancel_on_kill=self.cancel_on_kill,
        )

    def _cancel(self, job_id: str) -> None:
        self.hook.stop_query(job_id)
