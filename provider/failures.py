"""The failure that a try's application told, as the error of its task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from ..committer.errors import InvalidInputError

if TYPE_CHECKING:
    from ..committer import Table
    from ..orchestration.runs.task_run import TaskRun

_log = logging.getLogger(__name__)


@contextmanager
def final_where_refused() -> Iterator[None]:
    """Let a call in the block that cannot be right fail its task for good.

    :raises AirflowFailException: in place of an :class:`InvalidInputError`.
    """
    try:
        yield
    except InvalidInputError as error:
        raise AirflowFailException(str(error)) from error


@contextmanager
def explained(table: Table, run: TaskRun) -> Iterator[None]:
    """Let a submission that fails in the block fail as its application says that it did.

    :raises AirflowFailException: what was submitted cannot be right; or the application's own
        failure, where running the same again cannot mend it or would hide it.
    :raises AirflowException: any other failure that the application told.
    """
    # On use: DAG files are parsed by processes that submit nothing.
    from ..orchestration.runs.failures import in_words, told_failure

    try:
        yield
    except InvalidInputError as error:
        raise AirflowFailException(str(error)) from error
    except Exception as error:
        told = told_failure(table, run)
        if told is None:
            raise
        text = in_words(told, table)
        _log.error("%s", text)
        raise (AirflowFailException(text) if told.final else AirflowException(text)) from error
