"""Fates of tries of S3A loads, as the states of their task instances tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..s3a.recovery.liveness import JobLiveness
from ..s3a.runs.try_record import TryRecord
from .compat import asks_states, states_of_tasks

_AT_WORK = ("running", "queued", "scheduled", "restarting", "deferred", "up_for_reschedule")
#: What the state of its task instance says of a try.
_SAID = {
    **dict.fromkeys(_AT_WORK, JobLiveness.LIVE),
    # The run has loaded, or is going to load, by another try.
    **dict.fromkeys(("success", "up_for_retry"), JobLiveness.SUPERSEDED),
    # Nobody loads unless somebody clears the task.
    **dict.fromkeys(("failed", "upstream_failed", "skipped", "removed"), JobLiveness.DEAD),
}


def task_states(ti: Any) -> Callable[[TryRecord], JobLiveness | None]:
    """Make the question what has become of a try, by the state of its task instance.

    :param ti: the running task's own instance, which can ask for others' states.
    """
    get_task_states = asks_states(ti)

    def ask(record: TryRecord) -> JobLiveness | None:
        key = record.idempotency_key
        return _SAID.get(states_of_tasks(get_task_states, [key]).get(key, ""))

    return ask
