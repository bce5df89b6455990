"""Failures that an attempt's application reported, as errors of its task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    StoreRefusedError,
    SupersededRunError,
    TableMismatchError,
    ZeroRenameError,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer.format.records.failure import Failure
    from ..orchestration.runs.loaded_table import LoadedTable
    from ..orchestration.runs.task_run import TaskRun

_log = logging.getLogger(__name__)
#: Names in a run's context that exist only if the run has a date.
_OF_A_DATE = (
    *("data_interval_start", "data_interval_end", "logical_date"),
    *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz"),
)


def _is_refused(error: Exception) -> bool:
    """Return whether an error is of an invalid call or a missing bucket, where no retry helps."""
    no_bucket = isinstance(error, StoreRefusedError) and error.no_bucket
    return no_bucket or isinstance(error, InvalidInputError | TableMismatchError)


@contextmanager
def final_where_refused() -> Iterator[None]:
    """Make errors of invalid calls in the block final: the task is not retried.

    :raises AirflowFailException: in place of :class:`InvalidInputError`,
        :class:`TableMismatchError`, and the error of a missing bucket.
    """
    try:
        yield
    except ZeroRenameError as error:
        if not _is_refused(error):
            raise
        raise AirflowFailException(str(error)) from error


def raise_all(errors: Sequence[Exception]) -> None:
    """Raise the errors of several tables, if there are any.

    A refused table does not keep the task from a retry that another table needs.

    :raises AirflowFailException: all tables are refused, so a retry does not help.
    :raises Exception: the first error that a retry may help, with the others as notes.
    """
    if not errors:
        return
    first = next((it for it in errors if not _is_refused(it)), errors[0])
    for other in errors:
        if other is not first:
            first.add_note(str(other))
    with final_where_refused():
        raise first


@contextmanager
def ended_for_good(first: str = "") -> Iterator[None]:
    """Make conflicts with other runs in the block final: the task fails or is skipped.

    :param first: a text before the error's own message.
    :raises AirflowSkipException: newer runs have loaded all of the task's partitions, and its
        policy is to be skipped then.
    :raises AirflowFailException: in place of a conflict that a retry would meet again, or would not
        see.
    """
    try:
        yield
    except SupersededRunError as error:
        kind = AirflowSkipException if error.skips else AirflowFailException
        raise kind(f"{first}{error}") from error
    except CommitConflictError as error:
        raise AirflowFailException(f"{first}{error}") from error


@contextmanager
def dated(context: Context) -> Iterator[None]:
    """Explain errors of templates in the block that ask for the date of a run without one.

    In Airflow 3 a run that is triggered without a date has neither a logical date nor a data
    interval, nor names derived from them, such as ``ds``.

    :raises AirflowFailException: in place of Jinja's error for such a name.
    """
    from jinja2 import UndefinedError

    try:
        yield
    except UndefinedError as error:
        if not any(f"'{name}' is undefined" in str(error) for name in _OF_A_DATE):
            raise
        if any(context.get(name) is not None for name in _OF_A_DATE):
            raise
        raise AirflowFailException(
            f"A template of this task asks for the run's date, and the run {context.get('run_id')} "
            f"has none ({error}). Nothing was read or written. Load a day of the past by "
            "`airflow backfill create --dag-id … --from-date … --to-date …`, or let the template "
            "ask for a parameter."
        ) from error


_AFTER_CONFLICT = (
    "Clear the task: it then loads on top of what is there now. Or choose on_conflict='last_wins'."
)
_AFTER_COMMIT = (
    "A retry reports that job and submits nothing, unless on_repeat is 'append' or 'replace_own'."
)
_BEFORE_WAIT = (
    "The next attempt waits for other runs, and loads on top of what they have loaded. Where none "
    "is left, clear the task."
)


@contextmanager
def explained(
    table: LoadedTable,
    run: TaskRun,
    last_words: Callable[[], str | None] = lambda: None,
    waits: bool = False,
) -> Iterator[None]:
    """Replace the error of a submission in the block by the failure that its application reported.

    :param last_words: returns the error in the application's output, if it recorded no failure.
    :param waits: a retry waits for other runs, and then loads over their rows. So a run that has
        changed a partition fails only this attempt.
    :raises AirflowFailException: the submission was invalid; or the application's own failure, if
        a retry cannot help or would hide it.
    :raises AirflowSkipException: newer runs have loaded all of the task's partitions, and
        ``on_superseded`` is ``skip``.
    :raises AirflowException: any other failure that the application reported.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..orchestration.runs.outcomes import committed_before, told_failure

    try:
        yield
    except InvalidInputError as error:
        raise AirflowFailException(str(error)) from error
    except Exception as error:
        told = told_failure(table, run)
        if told is None:
            if not _is_of_application(error):
                raise
            said, stands = last_words(), committed_before(table, run)
            if said is None and not stands:
                raise
            where = "" if said is None else f" [table {table.root.url}] The rest is in this log."
            after = f" {stands} {_AFTER_COMMIT}" if stands else ""
            raise AirflowException(f"{said or error}{where}{after}") from error
        raised = _as_raised(told, table, waits)
        if not isinstance(raised, AirflowSkipException):
            _log.error("%s", raised)
        raise raised from error


def _is_of_application(error: Exception) -> bool:
    """Return whether an error says that the submitted application has failed.

    All errors of Airflow's providers count. The provider of Spark raises a RuntimeError for a
    failed application if it polls a cluster's API.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..orchestration.runs.outcomes import UnendedJobError

    if isinstance(error, AirflowFailException | AirflowSkipException | UnendedJobError):
        return False
    return isinstance(error, AirflowException | RuntimeError)


def refuse_retry(table: LoadedTable, run: TaskRun, waits: bool) -> None:
    """Refuse to submit if an earlier attempt's application reported a final failure.

    That attempt's worker had died, so it could not end the task. This attempt would fail again. Or,
    after a conflict, it would begin after the other job's commit and overwrite its rows.

    It takes one request, except in the run's first attempt.

    :param waits: as for :func:`explained`.
    :raises AirflowFailException: there is such a failure.
    :raises AirflowSkipException: there is one, and it skips the task.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..orchestration.runs.outcomes import last_failure

    told = None if run.is_first else last_failure(table, run)
    if told is None or not run.retries(told.owner):
        return
    raised = _as_raised(told, table, waits)
    if isinstance(raised, AirflowFailException | AirflowSkipException):
        said = f"Not submitted. The application of attempt {told.owner.try_number} failed: {raised}"
        raise type(raised)(said)


def _as_raised(told: Failure, table: LoadedTable, waits: bool) -> AirflowException:
    """Build the task's error from the failure that its application reported.

    :param waits: as for :func:`explained`.
    """
    from ..orchestration.runs.outcomes import in_words, was_overtaken

    loads_on_top = waits and was_overtaken(told, table)
    text = in_words(told, table, _BEFORE_WAIT if loads_on_top else _AFTER_CONFLICT)
    if told.skips:
        return AirflowSkipException(text)
    return (AirflowFailException if told.final and not loads_on_top else AirflowException)(text)
