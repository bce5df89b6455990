"""Which failures of a submission a retry may mend, where the application told none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from support.airflow import SCHEMA, Tables, day_rows, task_context
from zero_rename.committer import CommitConflictError, InvalidInputError, RefusedError
from zero_rename.committer.commit.failures import failures_told
from zero_rename.provider.failures import explained, raise_all
from zero_rename.provider.task_context import task_run

WORDS = "The application was killed."


@pytest.mark.parametrize(
    ("error", "final", "said"),
    [
        # A call that cannot be right fails for good.
        (InvalidInputError("No such mode."), True, "No such mode."),
        # What Airflow calls final stays so: the output's last words do not make it a retry's.
        (AirflowFailException("No connection."), True, "No connection."),
        (AirflowException("Error code is: 9"), False, WORDS),
    ],
)
def test_a_submission_that_failed(tables: Tables, error: Exception, final: bool, said: str) -> None:
    run = task_run(task_context(SimpleNamespace(task_id="load", retries=2)))
    with pytest.raises(AirflowException) as caught, explained(tables.table(), run, lambda: WORDS):
        raise error
    assert isinstance(caught.value, AirflowFailException) is final
    assert str(caught.value).startswith(said)


class _OfAProvider(AirflowException):
    """As providers derive for the end of a job."""


@pytest.mark.parametrize("kind", [AirflowException, _OfAProvider, RuntimeError])
def test_failure_after_a_commit_says_that_the_rows_are_there(
    tables: Tables, kind: type[Exception]
) -> None:
    run, table = task_run(task_context(SimpleNamespace(task_id="load", retries=2))), tables.table()
    job = table.job(SCHEMA, idempotency_key=run.idempotency_key, owner=run.owner)
    with job:
        job.write(day_rows((1,), 2))
    with (
        pytest.raises(AirflowException, match=r"YARN application x ended. Before it failed it had"),
        explained(table, run),
    ):
        raise kind("YARN application x ended.")


@pytest.mark.parametrize(
    ("waits", "key", "kind", "remedy"),
    [
        (
            True,
            "day=1",
            AirflowException,
            "The next attempt waits for other runs, and loads on top",
        ),
        (False, "day=1", AirflowFailException, "Clear the task: it then loads on top"),
        # The table's own record: what the next try would meet again.
        (True, None, AirflowFailException, "Mend the job"),
    ],
    ids=["waits", "does not wait", "conflict over the table"],
)
def test_conflict_over_a_partition_ends_for_good_only_a_run_that_does_not_wait(
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    waits: bool,
    key: str | None,
    kind: type[Exception],
    remedy: str,
) -> None:
    run, table = task_run(task_context(SimpleNamespace(task_id="load", retries=2))), tables.table()
    monkeypatch.setattr("zero_rename.committer.commit.failures.connect", lambda _: table.driver)
    said = CommitConflictError("Another job changed day=1.", remedy="Mend the job.")
    said.key = None if key is None else table.root.head_key(key)
    with pytest.raises(RefusedError), failures_told(table.root, run.idempotency_key, run.owner):
        raise said
    with pytest.raises(AirflowException) as caught, explained(table, run, waits=waits):
        raise AirflowException("Error code is: 1")
    assert type(caught.value) is kind
    assert str(caught.value).startswith("Another job changed day=1.")
    assert remedy in str(caught.value)


REFUSED, UNANSWERED = InvalidInputError("Invalid a."), RefusedError("The store was full.")


@pytest.mark.parametrize(
    ("errors", "kind", "said"),
    [
        ([REFUSED], AirflowFailException, "Invalid a"),
        ([REFUSED, UNANSWERED], RefusedError, "The store was full"),
        ([UNANSWERED, REFUSED], RefusedError, "The store was full"),
    ],
)
def test_errors_of_several_tables_are_final_if_no_table_needs_retry(
    errors: list[Exception], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        raise_all(errors)
    raise_all([])
