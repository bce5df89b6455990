"""Which failures of a submission a retry may mend, where the application told none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from support.airflow import Tables, task_context
from zero_rename.committer import InvalidInputError
from zero_rename.provider.failures import explained
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
