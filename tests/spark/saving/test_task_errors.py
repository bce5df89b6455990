"""An error of a task is the driver's again, out of Spark's text around it."""

from __future__ import annotations

import pytest

from zero_rename.committer import (
    InvalidInputError,
    RefusedError,
    StoreRefusedError,
    ZeroRenameError,
)
from zero_rename.spark.saving.task_errors import error_of_task

URL, JOB = "s3://bucket/lake/table", "zr1-01M8270TE8QTCZBJHGV2QYZ85A"
ERRORS = [
    InvalidInputError("Rows of [p=y] too.", table=URL, job=JOB, remedy="Filter [them], or not."),
    StoreRefusedError("Access Denied", key="a, b/part-0.parquet"),
    StoreRefusedError("Access Denied", job=JOB, key="k", remedy="Ask for the right."),
    InvalidInputError("It lacks a [table s3 list.", remedy="Give one."),
    InvalidInputError("It is empty."),
]


def as_spark_shows(error: ZeroRenameError) -> Exception:
    name = f"zero_rename.committer.errors.{type(error).__name__}"
    return RuntimeError(
        "Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times: "
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "task_writer.py", line 1, in write\n{name}: {error}\n\n\tat org.apache.spark.api\n'
    )


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_what_it_says_is_told_apart(error: ZeroRenameError) -> None:
    again = error_of_task(as_spark_shows(error), URL, JOB)
    assert type(again) is type(error)
    assert str(again) == str(error)
    if error.table or error.job or error.key:
        assert vars(again) == vars(error)


def test_another_s_error_is_left_to_spark() -> None:
    assert error_of_task(RuntimeError("ValueError: the user's own"), URL, JOB) is None


@pytest.mark.parametrize(
    "said",
    [
        "[SPARK_JOB_CANCELLED] Job 3 cancelled by the user. SQLSTATE: XXKDA",
        "org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down",
    ],
)
def test_one_that_was_cancelled_says_so(said: str) -> None:
    error = error_of_task(RuntimeError(f"{said}\n\tat org.apache.spark"), URL, JOB)
    assert type(error) is RefusedError
    assert "Job 3 cancelled" in error.message
    assert ". Nothing of this job is visible." in error.message
    assert "at org.apache" not in str(error)
    assert (error.table, error.job) == (URL, JOB)
