"""Failures that a run's application told, read by whoever submitted it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    Table,
    ZeroRenameError,
)
from zero_rename.committer.commit.failures import failures_told
from zero_rename.committer.format.records.failure import Failure
from zero_rename.orchestration.runs.outcomes import in_words, told_failure
from zero_rename.orchestration.runs.task_run import TaskRun

RUN = TaskRun("flights", "r", "load", -1, 2, 1, "s")


@pytest.fixture
def table(bucket: str) -> Table:
    return Table(f"s3://{bucket}/flights")


def tell(table: Table) -> None:
    error = InvalidInputError("No such column.", key="k", remedy="Mend it.")
    with (
        pytest.raises(InvalidInputError),
        failures_told(table.root, RUN.idempotency_key, RUN.handoff().owner),
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


@pytest.mark.parametrize("kind", [CommitConflictError, JobFencedError])
def test_what_to_do_about_a_conflict_is_the_schedulers_to_say(
    table: Table, kind: type[ZeroRenameError]
) -> None:
    """The application says to load the table anew, and to run the job again: it cannot."""
    said = {"remedy": "Run the job again.", "table": table.root.url}
    keys = (
        table.root.head_key("day=1"),
        table.root.run_key("r"),
        table.root.table_key,
        None,
    )
    owner = RUN.handoff().owner
    for key, remedy in zip(keys, ("Clear the task.", *["Run the job again."] * 3), strict=True):
        error = kind("Partitions changed.", key=key, **said)
        told = Failure.of(error, table.root, RUN.idempotency_key, owner, "w")
        assert f"] {remedy} (" in in_words(told, table, "Clear the task.")
        assert "] Run the job again. (" in in_words(told, table)
    error = InvalidInputError("No.", key=keys[0], **said)
    told = Failure.of(error, table.root, RUN.idempotency_key, owner, "w")
    assert "] Run the job again. (" in in_words(told, table, "Clear the task.")


@pytest.mark.parametrize("other", [{"try_number": 3}, {"series": "other"}])
def test_one_of_another_try_is_none_of_this(table: Table, other: dict[str, Any]) -> None:
    tell(table)
    assert told_failure(table, replace(RUN, **other)) is None
