"""Which test shows what a check of S3A settings guards, or why none does.

Tests say it by ``@pytest.mark.shows("id", …)``; they are in ``tests/s3a/real`` and run what
happens where the check is passed over.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
REAL = TESTS / "s3a" / "real"

#: Why a check has no test that shows its damage, with what speaks for it.
NOT_SHOWN = {
    "magic-before-3.4": "the pinned jars are newer; HADOOP-18797 describes the loss: the clean-up "
    "of one job deletes the __magic folder of all",
    "driver-restarts": "it needs YARN; OutputCommitter.isRecoverySupported is false, and what "
    "a second driver meets is in tests/s3a/real/test_killed_driver.py",
}


def shown() -> dict[str, list[str]]:
    """Tests by the id of the check they show, as ``tests/s3a/real/test_x.py::test_y``."""
    found: dict[str, list[str]] = {}
    for path in sorted(REAL.glob("test_*.py")):
        for test, ids in _marked(ast.parse(path.read_text("utf-8"))):
            for id in ids:
                name = f"{path.relative_to(TESTS.parent).as_posix()}::{test}"
                found.setdefault(id, []).append(name)
    return found


def _marked(tree: ast.AST, within: str = "") -> Iterator[tuple[str, list[str]]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _marked(node, f"{within}{node.name}::")
        elif isinstance(node, ast.FunctionDef):
            ids = [
                str(argument.value)
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("shows")
                for argument in decorator.args
                if isinstance(argument, ast.Constant)
            ]
            if ids:
                yield within + node.name, ids
