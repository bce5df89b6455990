"""delta-rs, Polars and DuckDB, in a process of their own environment."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from support.engine_process import EngineProcess, engine_process
from support.older_python import older_python
from tools.environments import LAKE_READERS

_PROGRAM = Path(__file__).with_name("lake_engines.py")


def lake_readers() -> AbstractContextManager[EngineProcess]:
    """Start them; a test is skipped where they were not fetched."""
    return engine_process([older_python(LAKE_READERS), _PROGRAM])
