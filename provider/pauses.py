"""Pauses of tasks between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator


#: Seconds in the triggerer. Airflow 3.3 sees up to five seconds late that the process of a task
#: which has deferred is gone; where the task is at work again by then, it is taken for a dead one.
_SHORTEST = 10.0


def pause_deferred(
    task: BaseOperator, seconds: float, method_name: str, kwargs: Mapping[str, Any]
) -> NoReturn:
    """Defer a task for a while; it holds no worker meanwhile.

    :param seconds: that it is to wait; some more where they are few.
    :param method_name: by which it goes on, with ``kwargs``.
    :raises TaskDeferred: always.
    """
    # On use: DAG files are parsed by processes that defer nothing.
    from airflow.providers.common.compat.standard.triggers import TimeDeltaTrigger

    make: Any = TimeDeltaTrigger
    trigger = make(timedelta(seconds=max(seconds, _SHORTEST)))
    task.defer(trigger=trigger, method_name=method_name, kwargs=dict(kwargs))
