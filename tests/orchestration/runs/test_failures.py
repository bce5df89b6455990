"""Failures that a run's application told, read by whoever submitted it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.failures import failures_told
from zero_rename.orchestration.runs.failures import in_words, told_failure
from zero_rename.orchestration.runs.task_run import TaskRun

RUN = TaskRun("flights", "r", "load", -1, 2, 1, "s")


@pytest.fixture
def table(bucket: str) -> Table:
    return Table(f"s3://{bucket}/flights")


def tell(table: Table) -> None:
    error = InvalidInputError("No such column.", key="k", remedy="Mend it.")
    with (
        pytest.raises(InvalidInputError),
        failures_told(table.root, RUN.once, RUN.handoff().owner),
    ):
        raise error


def test_a_failure_of_this_try_in_words(table: Table) -> None:
    assert told_failure(table, RUN) is None
    tell(table)
    told = told_failure(table, RUN)
    assert told is not None
    text = in_words(told, table)
    assert text.startswith(f"No such column. [table {table.root.url}, key k] Mend it.")
    assert text.endswith("(InvalidInputError)")


@pytest.mark.parametrize("other", [{"try_number": 3}, {"series": "other"}])
def test_one_of_another_try_is_none_of_this(table: Table, other: dict[str, Any]) -> None:
    tell(table)
    assert told_failure(table, replace(RUN, **other)) is None
