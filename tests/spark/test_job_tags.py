"""Spark's operations of one write, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zero_rename.spark.job_tags import Operations


def operations(speculation: str | None, interrupts: str | None) -> Operations:
    settings = {} if speculation is None else {"spark.speculation": speculation}
    tags = dict.fromkeys(("addJobTag", "removeJobTag", "cancelJobsWithTag"))
    context = SimpleNamespace(
        **tags, getConf=lambda: settings, getLocalProperty=lambda name: interrupts
    )
    session: Any = SimpleNamespace(_jsparkSession=None, sparkContext=context)
    return Operations(session, "job")


@pytest.mark.parametrize("setting", ["true", "True", " TRUE "])
def test_tasks_may_outlive_their_operation_if_spark_interrupts_them(setting: str) -> None:
    """Python's ``SparkConf().set("spark.speculation", True)`` sets ``True``."""
    assert not operations(setting, None).end_for_sure
    assert not operations(None, setting).end_for_sure


@pytest.mark.parametrize("setting", [None, "false", "False"])
def test_tasks_end_with_their_operation_otherwise(setting: str | None) -> None:
    assert operations(setting, setting).end_for_sure
