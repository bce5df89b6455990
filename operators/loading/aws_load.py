"""Loads whose application a service of AWS runs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.utils.waiter_with_logging import wait

from .service_load import ServiceLoadOperator

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.triggers.base import AwsBaseWaiterTrigger
    from airflow.sdk import Context

#: Seconds that a job is waited for, unless told otherwise: the amazon provider's own limits, some
#: 25 to 75 minutes, would end loads that are well. ``execution_timeout`` is the task's limit.
LONGEST_WAIT = 24 * 3600


class AwsLoadOperator(ServiceLoadOperator):
    """Base of the loads by the amazon provider's operators.

    A job is waited for by the provider's own trigger: where the task is deferred that is its
    trigger, and else it says which of boto3's waiters waits for what.
    """

    deferrable: bool
    hook: Any

    @abstractmethod
    def _trigger(self, job_id: str) -> AwsBaseWaiterTrigger: ...

    def _wait_for(self, context: Context, job_id: str) -> None:
        trigger = self._trigger(job_id)
        if self.deferrable:
            self.defer(trigger=trigger, method_name=self.completed_by)
        wait(
            waiter=self.hook.get_waiter(trigger.waiter_name),
            waiter_delay=trigger.waiter_delay,
            waiter_max_attempts=trigger.attempts,
            args=trigger.waiter_args,
            failure_message=trigger.failure_message,
            status_message=trigger.status_message,
            status_args=trigger.status_queries,
        )
