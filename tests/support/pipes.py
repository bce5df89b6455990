"""Dagster Pipes from the application's side: a session's variables, and what it was told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster_pipes
import pytest
from dagster_pipes import PipesContext, encode_param


@dataclass(frozen=True)
class PipesRun:
    """A run that launches applications.

    :param messages: the file that they write messages to.
    """

    messages: Path

    @property
    def environment(self) -> dict[str, str]:
        context = {
            "asset_keys": ["flights"],
            "code_version_by_asset_key": {},
            "provenance_by_asset_key": {},
            "partition_key": None,
            "partition_key_range": None,
            "partition_time_window": None,
            "run_id": "run",
            "job_name": "job",
            "retry_number": 0,
            "extras": {},
        }
        return {
            "DAGSTER_PIPES_CONTEXT": encode_param({"data": context}),
            "DAGSTER_PIPES_MESSAGES": encode_param({"path": str(self.messages)}),
        }

    def told(self) -> list[tuple[str, Any]]:
        """Methods and parameters of the messages so far."""
        if not self.messages.exists():
            return []
        lines = [json.loads(line) for line in self.messages.read_text().splitlines()]
        return [(line["method"], line["params"]) for line in lines]

    def params(self, method: str) -> list[Any]:
        return [params for name, params in self.told() if name == method]


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PipesRun]:
    """This process is launched by a run."""
    run = PipesRun(tmp_path / "messages")
    for name, value in run.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dagster_pipes.PipesContext, "_instance", None)
    yield run
    if PipesContext.is_initialized():
        PipesContext.get().close()
