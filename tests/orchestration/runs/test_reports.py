"""Reports of committed jobs, and what a log says of them."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.committer import Committed
from zero_rename.orchestration.runs.reports import commit_report, one_line

DONE: dict[str, Any] = {"job": "zr1-x", "table": "s3://bucket/flights", "decided_at": 1.0}


def said(**given: Any) -> str:
    return one_line(commit_report(Committed(partitions=(), **DONE, **given)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"narrows": "zr1-a", "left_out": 7}, "7 of other partitions left out, as a plan asked"),
        (
            {"superseded": {"day=1": "zr1-b"}, "left_out": 7},
            "7 of other partitions left out, which newer runs have loaded",
        ),
        (
            {"narrows": "zr1-a", "superseded": {"day=1": "zr1-b"}, "left_out": 7},
            "7 of other partitions left out, which newer runs have loaded",
        ),
    ],
)
def test_rows_left_out_are_said_with_their_reason(given: dict[str, Any], words: str) -> None:
    assert said(**given).endswith(f"; rows {words}")


def test_run_that_dropped_nothing_of_its_own_says_no_plan() -> None:
    """It skipped a partition that it wrote before and has no row for now: a newer run has it."""
    assert "left out" not in said(narrows="zr1-a", left_out=0)
