"""Liveness of attempts of S3A loads, by the states of their task instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..s3a.recovery.liveness import JobLiveness
from ..s3a.runs.try_record import TryRecord
from .compat import asks_states, states_of_tasks

_AT_WORK = ("running", "queued", "scheduled", "restarting", "deferred", "up_for_reschedule")
#: Liveness of an attempt by the state of its task instance.
_SAID = {
    **dict.fromkeys(_AT_WORK, JobLiveness.LIVE),
    # The run is going to load in another attempt.
    "up_for_retry": JobLiveness.SUPERSEDED,
    # An attempt that has committed is closed. So a user has marked the task, or it did other work.
    "success": JobLiveness.UNKNOWN,
    # The run does not load again unless the task is cleared.
    **dict.fromkeys(("failed", "upstream_failed", "skipped", "removed"), JobLiveness.DEAD),
}


def task_states(ti: Any) -> Callable[[TryRecord], JobLiveness | None]:
    """Return a function that returns the liveness of an attempt, by its task instance's state.

    :param ti: the running task's own instance, which can ask for others' states.
    """
    get_task_states = asks_states(ti)

    def ask(record: TryRecord) -> JobLiveness | None:
        key = record.idempotency_key
        return _SAID.get(states_of_tasks(get_task_states, [key]).get(key, ""))

    return ask
