"""Numbers in arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from support.delta_tables import on
from support.memory_store import MemoryStore
from support.protocol import memory_table
from zero_rename.committer import InvalidInputError


@pytest.mark.parametrize("given", [math.inf, math.nan, -1.0, "24h"])
@pytest.mark.parametrize("opened", [memory_table, on], ids=["directories", "delta"])
def test_doctor_refuses_a_longest_job_without_an_end(
    opened: Callable[[MemoryStore], Any], given: Any
) -> None:
    """Infinity was an OverflowError."""
    with pytest.raises(InvalidInputError, match=r"Invalid max_duration=.*Give seconds"):
        opened(MemoryStore()).doctor(given)
