"""Loads whose application a service of AWS runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.utils.waiter_with_logging import wait
from airflow.providers.common.compat.sdk import AirflowException

from .service_load import ServiceLoadOperator

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.triggers.base import AwsBaseWaiterTrigger
    from airflow.sdk import Context

#: Seconds that a job is waited for, unless told otherwise: the amazon provider's own limits, some
#: 25 to 75 minutes, would end loads that are well. ``execution_timeout`` is the task's limit.
LONGEST_WAIT = 24 * 3600
#: Members of the services' descriptions of a job that say why it ended as it did.
_REASONS = ("stateDetails", "failureReason", "FailureDetails", "StateChangeReason", "ErrorMessage")


class AwsLoadOperator(ServiceLoadOperator):
    """Base of the loads by the amazon provider's operators.

    A job is waited for by the provider's own trigger: where the task is deferred that is its
    trigger, and else it says which of boto3's waiters waits for what.
    """

    connection_fields = ("aws_conn_id",)
    deferrable: bool
    hook: Any

    @abstractmethod
    def _trigger(self, job_id: str) -> AwsBaseWaiterTrigger: ...

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


def _reasons(description: Any) -> Iterator[str]:
    for name, value in description.items() if isinstance(description, Mapping) else ():
        if name not in _REASONS:
            yield from _reasons(value)
        elif value:
            yield ": ".join(map(str, value.values())) if isinstance(value, Mapping) else str(value)
