"""docs/conformance.md: what Hadoop's own tests ask of a committer, and which tests of ours ask it.

``python -m docs.extensions.conformance > docs/conformance.md`` writes it anew; the items are in
conformance.toml. A test covers an item by naming its number in its docstring or in a comment:
"Conformance 15, 16" says that it asks it of the native committer, "S3A conformance 15, 16" that it
asks it of Hadoop's S3A committers as this project configures them, or of what checks, verifies
and recovers their jobs. A test of both sides says both.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "conformance.md"
TESTS = DOCUMENT.parents[1] / "tests"
_NAMED = re.compile(
    r"\b(S3A )?conformance(?: items?)? (\d+(?:(?:, and |, | and )\d+)*)", re.IGNORECASE
)
#: Tests below it run Hadoop's own code.
_REAL = "s3a/real/"


class Side(Enum):
    """Of whom an item is asked."""

    NATIVE = "Native committer"
    S3A = "S3A committers"


@dataclass(frozen=True)
class Item:
    """One thing that Hadoop's tests ask.

    :param behaviour: in a few words, as it is meant here.
    :param native: why it does not apply to the native committer; empty where it does.
    :param s3a: the same of the S3A committers and what sees to their jobs.
    :param s3a_hadoop: why Hadoop's own code is believed, with no test of ours that exercises it.
    :param native_tests: tests that show it without naming its number.
    """

    number: int
    behaviour: str
    native: str = ""
    s3a: str = ""
    s3a_hadoop: str = ""
    native_tests: tuple[str, ...] = ()

    def why_not(self, side: Side) -> str:
        """Why no test has to ask it of that side; empty where one has to."""
        if side is Side.NATIVE:
            return f"does not apply: {self.native}" if self.native else ""
        if self.s3a:
            return f"does not apply: {self.s3a}"
        return f"Hadoop's own code, not exercised here: {self.s3a_hadoop}" * bool(self.s3a_hadoop)


def _sections() -> Iterator[tuple[str, tuple[Item, ...]]]:
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for section in read["section"]:
        for item in section["item"]:
            item["native_tests"] = tuple(item.get("native_tests", ()))
        yield section["title"], tuple(Item(**item) for item in section["item"])


#: Items by section. Gaps in the numbers mean nothing.
SECTIONS = dict(_sections())
ITEMS = {item.number: item for items in SECTIONS.values() for item in items}

_HEAD = """\
# Conformance

What the tests of Hadoop's committers ask of a committer, item by item, and the tests of this
project that ask the same: of the native committer, and of Hadoop's S3A committers as this project
configures them, with what checks, verifies and recovers their jobs. Tests in `s3a/real/` run
Hadoop's own code, from its released jars on a real S3 server; the others ask it of ours, on the
records that Hadoop's code writes. The numbers are those under which this project keeps the list;
gaps mean nothing. Written by `python -m docs.extensions.conformance`; a test sees that it is up
to date.
"""

Covered = dict[Side, dict[int, list[str]]]


@functools.cache
def covered(tests: Path = TESTS) -> Covered:
    """The tests that name each item, by side and number, as ``folder/file.py::Class::test``."""
    found: Covered = {side: {} for side in Side}
    for path in sorted(tests.rglob("test_*.py")):
        file = path.relative_to(tests).as_posix()
        for name, side, numbers in _named_in(path.read_text("utf-8")):
            for number in numbers:
                found[side].setdefault(number, []).append(f"{file}::{name}" if name else file)
    for number, item in ITEMS.items():
        if item.native_tests:
            found[Side.NATIVE].setdefault(number, []).extend(item.native_tests)
    return {
        side: {number: list(dict.fromkeys(names)) for number, names in named.items()}
        for side, named in found.items()
    }


def _named_in(source: str) -> Iterator[tuple[str, Side, list[int]]]:
    """Items that a test file names, each with the test or class around it."""
    scopes = list(_scopes(ast.parse(source), ""))
    for name, node, _, _ in scopes:
        text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
        yield from ((name, *one) for one in _numbers(text or ""))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        around = [s for s in scopes if s[2] <= token.start[0] <= s[3]]
        name = max(around, key=lambda scope: scope[2])[0] if around else ""
        yield from ((name, *one) for one in _numbers(token.string))


_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST, int, int]]:
    """Tests and classes of tests: name, node, first and last line, with what decorates them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DOCUMENTED) and child.name.lower().startswith("test"):
            name = f"{prefix}{child.name}"
            first = min([child.lineno, *(made.lineno for made in child.decorator_list)])
            yield name, child, first, child.end_lineno or child.lineno
            yield from _scopes(child, f"{name}::")


def _numbers(text: str) -> Iterator[tuple[Side, list[int]]]:
    for found in _NAMED.finditer(" ".join(text.split())):
        side = Side.S3A if found.group(1) else Side.NATIVE
        yield side, [int(number) for number in re.findall(r"\d+", found.group(2))]


def missing(tests: Covered) -> dict[Side, list[int]]:
    """Items that apply to a side, and that no test asks of it."""
    return {
        side: [n for n, i in ITEMS.items() if not i.why_not(side) and n not in tests[side]]
        for side in Side
    }


def document() -> str:
    """The whole of docs/conformance.md."""
    tests = covered()
    lines = [_HEAD, *(_summary(side, tests) for side in Side), ""]
    for section, items in SECTIONS.items():
        lines += [f"## {section}\n"]
        lines += [f"| No. | Behaviour | {' | '.join(s.value for s in Side)} |", "|---|---|---|---|"]
        for item in items:
            cells = " | ".join(_cell(item, side, tests) for side in Side)
            lines.append(f"| {item.number} | {item.behaviour} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def _summary(side: Side, tests: Covered) -> str:
    away = [item for item in ITEMS.values() if item.why_not(side)]
    left = len(missing(tests)[side])
    by_hadoop = sum(1 for item in away if side is Side.S3A and not item.s3a)
    said = [
        f"{len(ITEMS) - len(away) - left} covered",
        f"{len(away) - by_hadoop} do not apply",
        *([f"{by_hadoop} left to Hadoop's own tests"] if by_hadoop else []),
        f"{left} not yet covered",
    ]
    return f"* {side.value}: {len(ITEMS)} items, {', '.join(said)}."


def _cell(item: Item, side: Side, tests: Covered) -> str:
    if why := item.why_not(side):
        return why
    names = tests[side].get(item.number, [])
    cell = [f"`{name}`" for name in names if not name.startswith(_REAL)]
    if real := [f"`{name}`" for name in names if name.startswith(_REAL)]:
        cell += ["Hadoop's own code, exercised by:", *real]
    return "<br>".join(cell) or "**not yet**"


if __name__ == "__main__":
    print(document(), end="")
