"""Loads whose application runs in a service of AWS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.amazon.aws.utils.waiter_with_logging import wait
from airflow.providers.common.compat.sdk import AirflowException

from ...committer.errors import InvalidInputError
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

#: Default of the time, in seconds, to wait for a job. The amazon provider's own limits, some 25 to
#: 75 minutes, would end healthy loads. ``execution_timeout`` is the task's limit.
LONGEST_WAIT = 24 * 3600
#: Members of the services' descriptions of a job with the reason for its end.
_REASONS = ("stateDetails", "failureReason", "FailureDetails", "StateChangeReason", "ErrorMessage")


class AwsLoadOperator(ServiceLoadOperator):
    """Base of the loads by the amazon provider's operators.

    The provider's own trigger defines how to wait for a job. If the task is deferred, the trigger
    waits. Otherwise the task waits here, with the boto3 waiter and the arguments in the trigger.

    :param waiter_delay: seconds between two polls of the job.
    :param waiter_max_attempts: the number of polls; by default those of a day. The docstring of
        each operator says what happens to a job that has not ended then.
    :raises InvalidInputError: one of these two is given to the operator for EMR on EKS, which has
        ``poll_interval`` and ``max_polling_attempts`` instead.
    """

    connection_fields = ("aws_conn_id",)
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("aws_conn_id", "region_name"), read_text),
        "verify": read_any,
    }
    #: Default of the seconds between two polls; ``None``: the provider's operator has other
    #: arguments for it.
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
        elif waiter_delay is not None or waiter_max_attempts is not None:
            raise InvalidInputError(
                f"waiter_delay={waiter_delay!r} or waiter_max_attempts={waiter_max_attempts!r} is "
                f"given to {type(self).__name__}, which has other arguments for its polls.",
                remedy="Give poll_interval and max_polling_attempts.",
            )
        super().__init__(**kwargs)

    def _load(self, context: Context, load: TableLoad) -> dict[str, Any]:
        with final_where_refused():
            if self.aws_conn_id and has_aws_connection(self.aws_conn_id):
                check_found_again(self.hook)
        return super()._load(context, load)

    def _client(self) -> dict[str, Any]:
        """Return the arguments of the provider's triggers about the connection."""
        names = ("aws_conn_id", "region_name", "verify", "botocore_config")
        return {name: getattr(self, name) for name in names}

    def _waiting(self) -> dict[str, Any]:
        """Return the arguments of the provider's triggers about the connection and the polls."""
        looks = {name: getattr(self, name) for name in ("waiter_delay", "waiter_max_attempts")}
        return looks | self._client()

    @abstractmethod
    def _trigger(self, job_id: str) -> AwsBaseWaiterTrigger: ...

    def _described(self, what: str, **where: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Ask the service to describe the environment of its job.

        :param what: boto3's name of the call.
        :param where: the arguments of the call.
        :return: the answer; and, if a right is missing, a sentence that says so. Any other error is
            raised.
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
        """Add the service's reason to the provider's error of a job, unless it has the reason."""
        try:
            yield
        except AirflowException as error:
            why = ", ".join(_reasons(self._description(error)))
            if not why or why in str(error):
                raise
            raise AirflowException(f"The job did not end well: {why}\n{error}") from error

    def _description(self, error: BaseException) -> Any:
        """Return the service's last description of the job, from the chain of an error."""
        cause: BaseException | None = error
        while cause is not None and not hasattr(cause, "last_response"):  # botocore's WaiterError
            cause = cause.__context__
        return getattr(cause, "last_response", None)


class DriverLoadOperator(AwsLoadOperator):
    """Base of the loads by a ``job_driver``.

    Its ``sparkSubmitParameters`` get the application's hand-off, as a variable of the driver, and
    the package by ``--py-files``.
    """

    request_fields = ("job_driver", "configuration_overrides")
    parsers: ClassVar[Mapping[str, Parser]] = {
        "execution_role_arn": read_text,
        "job_driver": read_request_of_texts,
    }
    optional_parsers: ClassVar[Mapping[str, Parser]] = {"configuration_overrides": read_mapping}
    #: The member of a ``job_driver`` for Spark, and the prefix of settings that are variables of
    #: the driver.
    member, variables = "", ""
    #: States of jobs that have not ended.
    unfinished: tuple[str, ...] = ()
    job_driver: Any
    configuration_overrides: Any

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """Defer, without the timeout that the provider's operator gives.

        The trigger limits the wait itself, for a job and for the start of an application, and its
        event says so. ``execution_timeout`` applies as in any load.
        """
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
        """Read the settings of a job from its release and its ``job_driver``.

        :param release: the label of the EMR release; ``""`` if it could not be read.
        :param behind: configurations of the service, for settings that the job does not give.
        :param unseen: sentences about what could not be read.
        """
        driver = spark_driver(self.job_driver, self.member)
        overrides = self.configuration_overrides
        return seen_by_driver(driver, overrides, release, behind, *unseen)

    def _job_runs(self, **where: str) -> Iterator[tuple[str, str]]:
        """Yield the ids and names of the jobs that have not ended.

        :param where: the application or cluster whose jobs the service lists.
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
