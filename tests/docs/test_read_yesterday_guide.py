"""The guide *Read yesterday, undo a job*: its code and its commands do what it says, as they stand,
but for the job that they undo."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import zero_rename
from support.memory_store import ManualClock, MemoryStore
from support.protocol import ROOT, memory_table
from zero_rename import Table
from zero_rename.cli import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "read-yesterday.md"
DAY = "2026-01-30"
THEN = datetime(2026, 1, 31, 23, 0, tzinfo=UTC).timestamp()
SHOWN_JOB = "zr1-01J0000000000000000000000A"
GOOD, BAD = {"flight": [1], "day": [DAY]}, {"flight": [2], "day": [DAY]}


@pytest.fixture
def bad_job(monkeypatch: pytest.MonkeyPatch) -> str:
    """After seven jobs of one evening, the one that replaced their rows a night later."""
    store = MemoryStore(clock=ManualClock(THEN - 3600))
    for name in ("zero_rename", "zero_rename.cli.main", "zero_rename.cli.past"):
        monkeypatch.setattr(import_module(name), "Table", lambda _: memory_table(store))
    for _ in range(7):
        load(GOOD)
    store.clock.advance(7200)
    return load(BAD)


def table() -> Table:
    return zero_rename.Table(ROOT.url)


def load(of: dict[str, list]) -> str:
    words: dict[str, Any] = {"mode": "replace", "partition_by": ["day"], "readers": "heads"}
    with table().job(pa.table(of).schema, **words) as job:
        job.write(pa.table(of))
    assert job.job is not None
    return job.job


def rows() -> list[int]:
    return table().to_arrow()["flight"].to_pylist()


def kept() -> int:
    return sum(map(len, table().kept_files().values()))


def command(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert done.exit_code == 0, done.output
    return done.output


def test_its_code_reads_and_brings_back(bad_job: str) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert rows() == [2]
    exec(code.replace(SHOWN_JOB, bad_job), {})
    assert rows() == [1]
    assert "restore 7" in table().history()["change"].to_pylist()


def test_its_commands_too(bad_job: str) -> None:
    lines = [it[2:] for it in re.findall(r"^\$ .*$", PAGE.read_text("utf-8"), re.M)]
    history, undo, restore, retention, purge = (it.replace(SHOWN_JOB, bad_job) for it in lines)
    assert bad_job in command(history)
    command(undo)
    assert rows() == [1]
    load(BAD)
    command(restore)
    assert rows() == [1]
    assert "30 days" in command(retention)
    assert kept() > 1
    command(purge)
    assert kept() == 1
