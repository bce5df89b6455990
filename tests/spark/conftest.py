"""A table that tests of Spark write, and a frame of two partitions for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zero_rename.committer import Table


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/lake/table"


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.createDataFrame([(1, "x"), (2, "y"), (3, "x")], "n int, p string")


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets another job commit once, when a change of rows has been computed, before its job
    opens."""
    waiting: list[Callable[[], None]] = []
    policies = Table.rewrite_policies

    def lands(self: Table, *given: Any) -> Any:
        while waiting:
            waiting.pop()()
        return policies(self, *given)

    monkeypatch.setattr(Table, "rewrite_policies", lands)
    return waiting.append
