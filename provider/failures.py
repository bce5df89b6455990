"""The failure that a try's application told, as the error of its task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from ..committer.errors import InvalidInputError, ZeroRenameError, printable

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

    :raises AirflowFailException: what was submitted cannot be right.
    """
    try:
        yield
    except InvalidInputError as error:
        raise AirflowFailException(str(error)) from error
    except Exception as error:
        told = told_failure(table, run)
        if told is None:
            raise
        raise told from error


def told_failure(table: Table, run: TaskRun) -> AirflowException | None:
    """What the application of this try said of its failure.

    :return: an error that begins with the application's own sentence, and that Airflow does not
        retry where running the same again cannot mend it or would hide it; ``None`` where the
        application said nothing.
    """
    from ..committer.failures import read_failure

    try:
        told = table.run(read_failure(table.root, run.once))
    except ZeroRenameError as error:
        _log.warning("Whether the application said why it failed could not be read: %s", error)
        return None
    if told is None or not told.is_of(run.series, run.try_number):
        return None
    named = (("table", table.root.url), ("job", told.job), ("key", told.key))
    context = ", ".join(f"{name} {value}" for name, value in named if value)
    text = printable(f"{told.message} [{context}] {told.remedy or ''} ({told.error})")
    _log.error("%s", text)
    return AirflowFailException(text) if told.final else AirflowException(text)
