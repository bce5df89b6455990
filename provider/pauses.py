"""Pauses of tasks between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator


def pause_deferred(
    task: BaseOperator, seconds: float, method_name: str, kwargs: Mapping[str, Any]
) -> NoReturn:
    """Defer a task for a while; it holds no worker meanwhile.

    :param method_name: by which it goes on, with ``kwargs``.
    :raises TaskDeferred: always.
    """
    # On use: DAG files are parsed by processes that defer nothing.
    from airflow.providers.common.compat.standard.triggers import TimeDeltaTrigger

    make: Any = TimeDeltaTrigger
    trigger = make(timedelta(seconds=seconds))
    task.defer(trigger=trigger, method_name=method_name, kwargs=dict(kwargs))
