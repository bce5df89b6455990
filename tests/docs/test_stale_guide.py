"""The guide *What is stale*: its programs and commands do what it says, as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import Bucket
from typer.testing import CliRunner

from support.doc_examples import examples
from zero_rename.cli import app

pytestmark = pytest.mark.memory_s3

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "what-is-stale.md"
#: A command, or a marked block of Python, in the page's order.
_STEP = re.compile(
    r"^\$ zero-rename (.*?)(?:# ends with (\d).*)?$|<!-- example: ([\w-]+) -->", re.M
)


def test_its_programs_and_commands(s3_bucket: Bucket) -> None:
    here = f"s3://{s3_bucket.name}"
    blocks = examples(PAGE)
    names: dict[str, Any] = {}
    ran = []
    for command, code, example in _STEP.findall(PAGE.read_text("utf-8")):
        if example:
            exec(blocks[example].replace("s3://bucket", here), names)
        else:
            words = shlex.split(command.partition("#")[0].replace("s3://bucket", here))
            found = CliRunner().invoke(app, words)
            assert not code or found.exit_code == int(code), found.output
            ran.append(found.output)
        if example == "programs":
            for day in range(14):
                names["make_day"](day, 800)
            names["make_week"](0)
            names["make_week"](1)
            names["make_month"]()
    stale, behind, plan, chart, again, done, other_version, all_of_it = ran
    assert "week=0" in stale
    assert "week=1" not in stale
    assert "behind" in behind
    assert "2 jobs in 2 layers" in plan
    assert chart.startswith("flowchart LR")
    assert "1 job in 1 layer" in again
    assert "Nothing is to be run again" in done
    assert other_version.count("made by no code version, now 4") == 2
    assert "3 jobs in 2 layers" in all_of_it
