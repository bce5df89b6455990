from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log import in_memory as events_in_memory
from dagster._core.storage.runs import in_memory as runs_in_memory

from dagster_zero_rename import ZeroRenameResource
from support import dagster_loads
from support.dagster_loads import Load
from support.fake_spark import FakeSpark, installed


@pytest.fixture(scope="session", autouse=True)
def unstamped() -> Iterator[None]:
    """Instances in memory do not note the version of their tables, which nobody asks for: Alembic
    reads a hundred files to tell it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (events_in_memory, runs_in_memory):
            patch.setattr(module, "stamp_alembic_rev", lambda *_given: None)
        yield


@pytest.fixture
def zero(bucket: str) -> ZeroRenameResource:
    """Tables in an empty bucket, reached by the environment."""
    return ZeroRenameResource(table_root=f"s3://{bucket}/tables")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def load(zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch) -> Load:
    """What the job of :mod:`support.dagster_loads` loads in this test."""
    monkeypatch.setenv(dagster_loads.TABLES, str(zero.table_root))
    made = Load()
    monkeypatch.setattr(dagster_loads, "load", made)
    return made


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A stand-in for spark-submit that runs applications in plain Python."""
    return installed(tmp_path, monkeypatch)
