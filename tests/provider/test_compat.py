"""Parts of Airflow 3 that 2.11 lacks or does differently."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from support import airflow  # noqa: F401 - Airflow's home, before its import
from zero_rename.provider.compat import states_in_database, states_of_tasks


def test_states_are_unknown_while_the_database_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error failed all deferred sensors of a table at once."""

    def fails(**_: Any) -> None:
        raise OperationalError("select", {}, Exception("the server closed the connection"))

    monkeypatch.setattr("airflow.utils.session.create_session", fails)
    assert states_of_tasks(states_in_database, ["flights/a/load"]) == {}
    assert "The states of tasks of 'flights' are not known" in caplog.text
