"""Names of pyarrow that the package uses, looked for in the oldest one that it allows."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.older_python import older_python
from tools.environments import OLDER_SPARK

CHECKOUT = Path(__file__).parents[1]
#: Rooms whose code is not installed with the package.
NOT_SHIPPED = {"benchmarks", "build", "demo", "docs", "examples", "tests", "tools"}
#: Prints those names of ``[module, name]`` that are not there.
LOOK = """
import importlib, json, sys

def is_there(module, name):
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(module + "." + name)
    except ImportError:
        return False
    return True

print(json.dumps([it for it in json.load(sys.stdin) if not is_there(*it)]))
"""


def sources() -> Iterator[Path]:
    for path in sorted(CHECKOUT.rglob("*.py")):
        room = path.relative_to(CHECKOUT).parts[0]
        if room not in NOT_SHIPPED and not room.startswith("."):
            yield path


def names_used(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that a module takes from pyarrow, with where it takes it from."""
    tree = ast.parse(path.read_text("utf-8"))
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for it in node.names:
                if it.name.split(".")[0] == "pyarrow":
                    modules[it.asname or it.name] = it.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyarrow":
            yield from ((node.module or "", it.name) for it in node.names)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in modules:
            yield modules[node.value.id], node.attr


@pytest.mark.slow
def test_names_that_the_package_uses_are_in_the_oldest_pyarrow() -> None:
    names = sorted({it for path in sources() for it in names_used(path)})
    assert ("pyarrow", "RecordBatch") in names
    command = [older_python(OLDER_SPARK), "-c", LOOK]
    ran = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []
