"""The failure that a try's application told, as the error of its task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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
    SupersededRunError,
    TableMismatchError,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer.format.records.failure import Failure
    from ..orchestration.runs.loaded_table import LoadedTable
    from ..orchestration.runs.task_run import TaskRun

_log = logging.getLogger(__name__)
#: What a run's context has by its date alone.
_OF_A_DATE = (
    *("data_interval_start", "data_interval_end", "logical_date"),
    *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz"),
)


@contextmanager
def final_where_refused() -> Iterator[None]:
    """Let a call in the block that cannot be right fail its task for good.

    :raises AirflowFailException: in place of an :class:`InvalidInputError`, or of an error that
        says that the table is another one.
    """
    try:
        yield
    except (InvalidInputError, TableMismatchError) as error:
        raise AirflowFailException(str(error)) from error


@contextmanager
def ended_for_good(first: str = "") -> Iterator[None]:
    """Let a conflict with another run in the block fail its task for good, or skip it.

    :param first: what the task says before the error's own words.
    :raises AirflowSkipException: newer runs have loaded all that it was to load, and it is to be
        skipped then.
    :raises AirflowFailException: in place of a conflict that the next try would meet again, or not
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
    """Let templates in the block say what to do about a run that has no date.

    Airflow 3 gives none to a run that is triggered without one: neither a logical date nor a data
    interval, nor what is named after them, such as ``ds``.

    :raises AirflowFailException: in place of what Jinja says of such a name.
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
            f"has none ({error}). Nothing was submitted. Load a day of the past by "
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
    "The next try waits for other runs, and loads on top of what they have loaded. Where none is "
    "left, clear the task."
)


@contextmanager
def explained(
    table: LoadedTable,
    run: TaskRun,
    last_words: Callable[[], str | None] = lambda: None,
    waits: bool = False,
) -> Iterator[None]:
    """Let a submission that fails in the block fail as its application says that it did.

    :param last_words: what its output tells of a failure that the application put nowhere.
    :param waits: the next try waits for other runs, and is to load on top of what they have loaded:
        one that has changed a partition ends only this try.
    :raises AirflowFailException: what was submitted cannot be right; or the application's own
        failure, where running the same again cannot mend it or would hide it.
    :raises AirflowSkipException: newer runs have loaded all that it was to load, and
        ``on_superseded`` is ``skip``.
    :raises AirflowException: any other failure that the application told.
    """
    # On use: DAG files are parsed by processes that submit nothing.
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
    """Tell whether an error says that what was submitted has failed: those of Airflow's providers
    do, that of Spark by a RuntimeError where it asks a cluster's API."""
    # On use: DAG files are parsed by processes that submit nothing.
    from ..orchestration.runs.outcomes import UnendedJobError

    if isinstance(error, AirflowFailException | AirflowSkipException | UnendedJobError):
        return False
    return isinstance(error, AirflowException | RuntimeError)


def refuse_retry(table: LoadedTable, run: TaskRun, waits: bool) -> None:
    """Refuse to submit where the application of an earlier try, whose worker had died, told a
    failure that ends the task: this try would meet it again, or begin on the rows of the job that
    it conflicted with, and overwrite them.

    Requests: one, of a try that is not the run's first.

    :param waits: as of :func:`explained`.
    :raises AirflowFailException: there is one.
    :raises AirflowSkipException: there is one, by which the task is skipped.
    """
    # On use: DAG files are parsed by processes that submit nothing.
    from ..orchestration.runs.outcomes import last_failure

    told = None if run.is_first else last_failure(table, run)
    if told is None or not run.retries(told.owner):
        return
    raised = _as_raised(told, table, waits)
    if isinstance(raised, AirflowFailException | AirflowSkipException):
        said = f"Not submitted. The application of try {told.owner.try_number} failed: {raised}"
        raise type(raised)(said)


def _as_raised(told: Failure, table: LoadedTable, waits: bool) -> AirflowException:
    """Build the task's error of what its application told.

    :param waits: as of :func:`explained`.
    """
    from ..orchestration.runs.outcomes import in_words, was_overtaken

    loads_on_top = waits and was_overtaken(told, table)
    text = in_words(told, table, _BEFORE_WAIT if loads_on_top else _AFTER_CONFLICT)
    if told.skips:
        return AirflowSkipException(text)
    return (AirflowFailException if told.final and not loads_on_top else AirflowException)(text)
