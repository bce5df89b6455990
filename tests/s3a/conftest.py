"""Store in memory with a clock that only tests move, and a table of S3A jobs in one."""

from __future__ import annotations

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.s3a_jobs import World


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryDriver:
    return MemoryDriver(MemoryStore(clock))


@pytest.fixture
def world() -> World:
    return World()
