"""Loads whose application a service of AWS runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.amazon.aws.utils.waiter_with_logging import wait
from airflow.providers.common.compat.sdk import AirflowException

from ...committer.format.handoff import HANDOFF
from ...orchestration.runs.arguments import (
    Parser,
    read_any,
    read_mapping,
    read_request_of_texts,
    read_text,
)
from ...orchestration.submit.seen_jobs import described, seen_by_driver
from ...orchestration.submit.service_words import spark_driver, with_driver_words
from ...provider.failures import final_where_refused
from ...provider.hooks import check_found_again, has_aws_connection
from .service_load import ServiceLoadOperator

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.triggers.base import AwsBaseWaiterTrigger
    from airflow.sdk import Context

    from ...orchestration.submit.job_mark import JobMark
    from ...s3a.hadoop.effective_settings import Layer
    from ...s3a.services import ServiceJob
    from .load import TableLoad

#: Seconds that a job is waited for, unless told otherwise: the amazon provider's own limits, some
#: 25 to 75 minutes, would end loads that are well. ``execution_timeout`` is the task's limit.
LONGEST_WAIT = 24 * 3600
#: Members of the services' descriptions of a job that say why it ended as it did.
_REASONS = ("stateDetails", "failureReason", "FailureDetails", "StateChangeReason", "ErrorMessage")


class AwsLoadOperator(ServiceLoadOperator):
    """Base of the loads by the amazon provider's operators.

    A job is waited for by the provider's own trigger: where the task is deferred that is its
    trigger, and else it says which of boto3's waiters waits for what.

    :param waiter_delay: seconds between two looks at the job.
    :param waiter_max_attempts: looks at it; a day's, unless told otherwise. What becomes of a job
        that has not ended then, says each operator.
    """

    connection_fields = ("aws_conn_id",)
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("aws_conn_id", "region_name"), read_text),
        "verify": read_any,
    }
    #: Seconds between two looks, unless told otherwise; ``None``: the operator that submits has
    #: other arguments for it.
    pause: int | None = 60
    deferrable: bool
    hook: Any
    aws_conn_id: str | None

    def __init__(
        self,
        *,
        waiter_delay: int | None = None,
        waiter_max_attempts: int | None = None,
        **kwargs: Any,
    ) -> None:
        if self.pause is not None:
            delay = self.pause if waiter_delay is None else waiter_delay
            attempts = LONGEST_WAIT // max(1, delay)
            kwargs["waiter_delay"] = delay
            kwargs["waiter_max_attempts"] = waiter_max_attempts or attempts
        super().__init__(**kwargs)

    def _load(self, context: Context, load: TableLoad) -> dict[str, Any]:
        with final_where_refused():
            if self.aws_conn_id and has_aws_connection(self.aws_conn_id):
                check_found_again(self.hook)
        return super()._load(context, load)

    def _client(self) -> dict[str, Any]:
        """What the provider's triggers are told of the connection."""
        names = ("aws_conn_id", "region_name", "verify", "botocore_config")
        return {name: getattr(self, name) for name in names}

    def _waiting(self) -> dict[str, Any]:
        """The same, and what they are told of their looks."""
        looks = {name: getattr(self, name) for name in ("waiter_delay", "waiter_max_attempts")}
        return looks | self._client()

    @abstractmethod
    def _trigger(self, job_id: str) -> AwsBaseWaiterTrigger: ...

    def _described(self, what: str, **where: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Ask the service to describe what its job will run on.

        :param what: the call, by boto3's name of it.
        :returns: the answer, and why there is none, a sentence; an error of another kind than
            missing rights says itself what is wrong.
        """
        return described(self.hook.conn, "The connection", what, **where)

    def _execute_parent(self, context: Context) -> Any:
        with self._saying_why():
            return super()._execute_parent(context)

    def _wait_for(self, context: Context, job_id: str) -> None:
        trigger = self._trigger(job_id)
        if self.deferrable:
            self.defer(trigger=trigger, method_name=self.completed_by)
        with self._saying_why():
            wait(
                waiter=self.hook.get_waiter(trigger.waiter_name),
                waiter_delay=trigger.waiter_delay,
                waiter_max_attempts=trigger.attempts,
                args=trigger.waiter_args,
                failure_message=trigger.failure_message,
                status_message=trigger.status_message,
                status_args=trigger.status_queries,
            )

    @contextmanager
    def _saying_why(self) -> Iterator[None]:
        """Let the provider's error of a job say what the service says of it, where it does not."""
        try:
            yield
        except AirflowException as error:
            why = ", ".join(_reasons(self._description(error)))
            if not why or why in str(error):
                raise
            raise AirflowException(f"The job did not end well: {why}\n{error}") from error

    def _description(self, error: BaseException) -> Any:
        """What the service said last of the job, from whose description an error was made."""
        cause: BaseException | None = error
        while cause is not None and not hasattr(cause, "last_response"):  # botocore's WaiterError
            cause = cause.__context__
        return getattr(cause, "last_response", None)


class DriverLoadOperator(AwsLoadOperator):
    """Base of the loads by a ``job_driver``: its ``sparkSubmitParameters`` get what the application
    is told, as a variable of the driver, and the package by ``--py-files``."""

    request_fields = ("job_driver", "configuration_overrides")
    parsers: ClassVar[Mapping[str, Parser]] = {
        "execution_role_arn": read_text,
        "job_driver": read_request_of_texts,
    }
    optional_parsers: ClassVar[Mapping[str, Parser]] = {"configuration_overrides": read_mapping}
    #: What Spark is called in a ``job_driver``, and what begins the settings that are variables of
    #: the driver.
    member, variables = "", ""
    #: States of jobs that have not ended.
    unfinished: tuple[str, ...] = ()
    job_driver: Any
    configuration_overrides: Any

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """As any load's. How long a job is waited for, says the trigger, which tells it."""
        if method_name == self.completed_by:
            more.pop("timeout", None)
        super().defer(trigger=trigger, method_name=method_name, **more)

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        if isinstance(self.job_driver, dict):
            spark_driver(self.job_driver, self.member)

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        told = {f"{self.variables}.{HANDOFF}": handed, **settings}
        self.job_driver = with_driver_words(
            self.job_driver, self.member, told, package, self.configuration_overrides
        )
        self.client_request_token = str(mark)

    def _seen_driver(self, release: str, behind: tuple[Layer, ...], *unseen: str) -> ServiceJob:
        """Return what is seen of a job by its release and its ``job_driver``.

        :param behind: configurations of the service, which count where the job says nothing.
        """
        driver = spark_driver(self.job_driver, self.member)
        overrides = self.configuration_overrides
        return seen_by_driver(driver, overrides, release, behind, *unseen)

    def _job_runs(self, **where: str) -> Iterator[tuple[str, str]]:
        """Ids and names of the jobs that have not ended.

        :param where: what the service lists jobs of.
        """
        pages = self.hook.conn.get_paginator("list_job_runs").paginate(
            states=list(self.unfinished), **where
        )
        for page in pages:
            yield from ((job["id"], job.get("name", "")) for job in page["jobRuns"])


def _reasons(description: Any) -> Iterator[str]:
    for name, value in description.items() if isinstance(description, Mapping) else ():
        if name not in _REASONS:
            yield from _reasons(value)
        elif value:
            yield ": ".join(map(str, value.values())) if isinstance(value, Mapping) else str(value)
