"""docs/conformance.md: what Hadoop's own tests ask of a committer, and which tests of ours ask it.

``python tests/support/conformance.py > docs/conformance.md`` writes it anew. A test covers an item
by naming its number in its docstring or in a comment: "Conformance 15, 16".
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
DOCUMENT = TESTS.parent / "docs" / "conformance.md"
_NAMED = re.compile(r"\bconformance(?: items?)? (\d+(?:(?:, and |, | and )\d+)*)", re.IGNORECASE)

_S3A = "belongs to the S3A committers, which a later version will configure"
_MAGIC = "paths of the S3A magic committer: a later version will configure it"
_RANDOM_ID = (
    "a job's id is made at random in the driver process and never passed in or derived, so that "
    "a restarted driver is another job"
)
_NO_DIRECTORIES = "an attempt's output is its own uploads; there are no attempt directories"


@dataclass(frozen=True)
class Item:
    """One thing that Hadoop's tests ask.

    :param behaviour: in a few words, as it is meant here.
    :param reason: why it does not apply to the native committer; empty where it does.
    :param tests: tests that show it without naming its number.
    """

    behaviour: str
    reason: str = ""
    tests: tuple[str, ...] = ()


#: Section, then items by number. Gaps in the numbers mean nothing.
SECTIONS: dict[str, dict[int, Item]] = {
    "Setup and identity": {
        1: Item(
            "an old `_SUCCESS` goes when a job is set up",
            "a marker names its job and stays until a later job's replaces it; whoever waits "
            "compares job or epoch, never existence",
        ),
        2: Item("the job's id reaches its tasks"),
        3: Item("the order in which sources of an id are asked", _RANDOM_ID),
        4: Item("no id supplied where one is required: refused", _RANDOM_ID),
        5: Item("a task may not make the job's id itself", _RANDOM_ID),
        6: Item("a stale attempt directory is removed", _NO_DIRECTORIES),
        8: Item("two attempts of one task write to different places"),
        9: Item("names carry the job's id, so that jobs may share a directory"),
        10: Item("temporary files lie outside the magic tree", _MAGIC),
        11: Item("a committer is chosen by scheme or globally", _S3A),
        12: Item("unknown and empty committer names", _S3A),
        13: Item("an unknown conflict mode is refused before anything is sent"),
        14: Item("a destination that cannot be committed to is refused"),
    },
    "A job that goes well": {
        15: Item("nothing is visible while a file is written"),
        16: Item("nothing is visible after close; the upload is pending"),
        17: Item("everything is visible, byte for byte, after the commit"),
        18: Item("no upload is left after the commit"),
        19: Item("`_SUCCESS` can be read and names committer and job"),
        20: Item("`_SUCCESS` lists the committed keys, up to a limit"),
        21: Item("`_SUCCESS` can be left out"),
        22: Item("objects keep the storage class and metadata asked for"),
        24: Item("nested directories are kept as they are"),
        25: Item("nothing but `_` and `.` names is added to a directory"),
        26: Item("no `_temporary` is left"),
        27: Item("the magic directory is gone after the job", _MAGIC),
        28: Item(
            "with the clean-up off the output is still right",
            "there is no switch that leaves the clean-up out",
        ),
        29: Item("the counters of the commit reach `_SUCCESS`"),
        30: Item("a task and a job without output succeed"),
        31: Item("an empty file is one part and one object"),
        32: Item("small files and files of many parts have the same content"),
        34: Item("the parts of every file are reported as they were uploaded"),
        35: Item("what is pending is told by task"),
        36: Item("a task with output is committed; one without leaves nothing to commit"),
    },
    "Repeats and speculation": {
        37: Item("a second commit doubles nothing"),
        39: Item("two tasks that write into one directory both land"),
        42: Item(
            "a task cannot be recovered",
            "tasks are run again, never recovered; what recovery finishes is the job",
        ),
    },
    "Abort and failure": {
        43: Item("abort of a task without work does nothing"),
        44: Item("abort of a job without work does nothing"),
        45: Item("abort of task and job leaves neither file nor upload"),
        46: Item("abort of the job alone does so too"),
        47: Item("abort twice is harmless; there is no `_SUCCESS`"),
        48: Item("the driver aborts what it has no messages of"),
        49: Item("a task that was not committed leaves nothing"),
        50: Item("a commit that failed half way is finished by the next"),
        51: Item("a failure in creating an upload leaves none"),
        54: Item("unreadable pending data spoils the whole, and everything is aborted"),
        55: Item(
            "an attempt that cannot report aborts all its uploads",
            tests=(
                "committer/test_task_writer.py::test_after_any_failure_everything_is_aborted",
                "committer/test_task_writer.py::test_an_upload_of_another_size_is_refused",
            ),
        ),
        57: Item("abort completes nothing and deletes nothing that is committed"),
        58: Item("everything pending is checked before anything is completed"),
        59: Item("uploads cannot be listed in a clean-up: here the job stays open for recovery"),
        60: Item("abort of what is gone is no error"),
        62: Item(
            "a missing local file is noticed before any upload",
            "data is streamed to the store; no local file is uploaded",
        ),
        64: Item("too many parts: refused, and the upload is aborted"),
        65: Item("a 5xx or a lost answer after success is made good"),
    },
    "Files that are there": {
        67: Item("fail-if-exists refuses a destination that has files, at the commit"),
        68: Item("an append looks for nothing (coordination *none*; else it reads heads alone)"),
        69: Item("a replace deletes at the commit, never before"),
        70: Item("fail-if-exists looks at the partitions that receive rows"),
        71: Item("an append deletes nothing"),
        74: Item("tasks never delete"),
        75: Item("file names are unique by the job's id"),
    },
    "Several jobs": {
        77: Item("a commit next door leaves this job's uploads alone"),
        78: Item("two jobs into one directory: both outputs are there"),
        80: Item("one job's clean-up leaves the other's records alone"),
    },
    "Paths of the magic committer": {
        81: Item("the destination is found from the path", _MAGIC),
        82: Item("`__base` above the marker", _MAGIC),
        83: Item("suffixes of metadata files", _MAGIC),
        84: Item("a write outside the marker is a normal write", _MAGIC),
        85: Item("a marker that is renamed", _MAGIC),
    },
    "Cost": {
        86: Item("to create a file costs no HEAD and no LIST"),
        87: Item("to close one costs no HEAD, LIST or DELETE"),
        88: Item(
            "to load a pending file costs one GET",
            "what is pending travels in the tasks' messages; there are no files to load",
        ),
        89: Item("to complete one costs no HEAD, LIST or DELETE"),
        90: Item("directories under the magic path", _MAGIC),
    },
    "Chains": {
        93: Item("three jobs, each reading the `_SUCCESS` and rows of the one before"),
    },
    "Output stream": {
        94: Item("sizes from nothing to many parts come back"),
        96: Item("visible is for the commit, not for the writer"),
        97: Item("hflush and hsync are not offered, and refused"),
        98: Item("abort: the object never appears, an existing one stays, twice is harmless"),
        99: Item("a failing close aborts the upload"),
    },
    "Conditional writes": {
        100: Item("If-None-Match over an existing object is refused"),
        102: Item("an empty object exists"),
        103: Item("If-Match: the current ETag succeeds, an old one and a missing object do not"),
    },
    "Maintenance": {
        104: Item("uploads are listed and aborted, none, one and several, and counted"),
        105: Item("younger uploads than asked for are left"),
    },
    "From the manifest committer": {
        107: Item("a report is kept of a commit and of an abort"),
        108: Item("a wrapped committer tells that it can replace partitions", _S3A),
        109: Item("other schemes are refused"),
    },
}
ITEMS: dict[int, Item] = {n: item for items in SECTIONS.values() for n, item in items.items()}

_HEAD = """\
# Conformance

What the tests of Hadoop's committers ask of a committer, item by item, and the tests of this
project that ask the same of the native committer. The numbers are those under which this project
keeps the list; gaps mean nothing. Written by `python tests/support/conformance.py`; a test sees
that it is up to date.
"""


def covered(tests: Path = TESTS) -> dict[int, list[str]]:
    """The tests that name each item, as ``folder/file.py::Class::test``."""
    found: dict[int, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        file = path.relative_to(tests).as_posix()
        for name, numbers in _named_in(path.read_text("utf-8")):
            for number in numbers:
                found.setdefault(number, []).append(f"{file}::{name}" if name else file)
    for number, item in ITEMS.items():
        found.setdefault(number, []).extend(item.tests)
    return {number: list(dict.fromkeys(names)) for number, names in found.items() if names}


def _named_in(source: str) -> Iterator[tuple[str, list[int]]]:
    """Items that a test file names, each with the test or class around it."""
    scopes = list(_scopes(ast.parse(source), ""))
    for name, node, first, _ in scopes:
        text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
        if text and first:
            yield from ((name, numbers) for numbers in _numbers(text))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        around = [s for s in scopes if s[2] <= token.start[0] <= s[3]]
        name = max(around, key=lambda scope: scope[2])[0] if around else ""
        yield from ((name, numbers) for numbers in _numbers(token.string))


_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST, int, int]]:
    """Tests and classes of tests: name, node, first and last line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DOCUMENTED) and child.name.lower().startswith("test"):
            name = f"{prefix}{child.name}"
            yield name, child, child.lineno, child.end_lineno or child.lineno
            yield from _scopes(child, f"{name}::")


def _numbers(text: str) -> Iterator[list[int]]:
    for found in _NAMED.finditer(" ".join(text.split())):
        yield [int(number) for number in re.findall(r"\d+", found.group(1))]


def document() -> str:
    """The whole of docs/conformance.md."""
    tests = covered()
    missing = [n for n, item in ITEMS.items() if not item.reason and n not in tests]
    inapplicable = [n for n, item in ITEMS.items() if item.reason]
    summary = (
        f"{len(ITEMS)} items: {len(ITEMS) - len(inapplicable) - len(missing)} covered, "
        f"{len(inapplicable)} do not apply, {len(missing)} not yet covered.\n"
    )
    lines = [_HEAD, summary]
    for section, items in SECTIONS.items():
        lines += [f"## {section}\n", "| No. | Behaviour | Tests |", "|---|---|---|"]
        lines += [
            f"| {n} | {item.behaviour} | {_cell(n, item, tests)} |" for n, item in items.items()
        ]
        lines.append("")
    return "\n".join(lines)


def _cell(number: int, item: Item, tests: dict[int, list[str]]) -> str:
    if item.reason:
        return f"does not apply: {item.reason}"
    return "<br>".join(f"`{name}`" for name in tests.get(number, ())) or "**not yet**"


if __name__ == "__main__":
    print(document(), end="")
