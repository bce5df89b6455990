"""The command ``zero-rename``, called in the tests' own process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from zero_rename.cli.main import app


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def as_json(*arguments: str, code: int = 0) -> Any:
    """The document that it prints with ``--json``; it ends with this exit code."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)
