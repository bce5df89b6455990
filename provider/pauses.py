"""Pauses of deferred tasks between two polls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator


#: The least seconds in the triggerer. Airflow 3.3 notices only after up to five seconds that the
#: process of a deferred task has ended. If the task is at work again by then, Airflow takes it for
#: dead.
_SHORTEST = 10.0


def pause_deferred(
    task: BaseOperator, seconds: float, method_name: str, kwargs: Mapping[str, Any]
) -> NoReturn:
    """Defer a task for a while, so that it holds no worker.

    :param seconds: the time to wait; at least :data:`_SHORTEST`.
    :param method_name: the method with which the task goes on.
    :param kwargs: the arguments of that method.
    :raises TaskDeferred: always.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from airflow.providers.common.compat.standard.triggers import TimeDeltaTrigger

    make: Any = TimeDeltaTrigger
    trigger = make(timedelta(seconds=max(seconds, _SHORTEST)))
    task.defer(trigger=trigger, method_name=method_name, kwargs=dict(kwargs))
