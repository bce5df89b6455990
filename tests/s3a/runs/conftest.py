"""Store in memory, with a clock that only tests move."""

from __future__ import annotations

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryDriver:
    return MemoryDriver(MemoryStore(clock))
