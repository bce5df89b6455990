"""References in docstrings and pages: each names something that the tree has."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Folders of the root that hold no module of the product.
_OTHERS = {"build", "tests"}
_REFERENCE = re.compile(r"(?::\w+:|\{(?:py:)?\w+\})`([^`{}]+)`")
_ROLES = re.compile(r"(?::(?:class|meth|func|data|attr|mod|exc):|\{py:\w+\})`")


def sources() -> Iterator[tuple[str, Path]]:
    """The product's modules by their dotted names."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in _OTHERS or any(part.startswith(".") for part in parts):
            continue
        package = () if parts[0] == "dagster_zero_rename" else ("zero_rename",)
        yield ".".join((*package, *(part for part in parts if part != "__init__"))), path


class Names(ast.NodeVisitor):
    """What a module defines, by dotted names; of classes what they inherit from, too."""

    def __init__(self, module: str) -> None:
        self.scope = [module]
        self.found = {module}
        self.bases: dict[str, list[str]] = {}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._add(node.name)
        self.bases[node.name] = [ast.unparse(base).split(".")[-1] for base in node.bases]
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._add(node.name)
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            # ``self.x`` in a method is the class's.
            self.found.add(".".join((*self.scope[:-1], node.attr)))
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._add(alias.asname or alias.name)

    def _add(self, name: str) -> None:
        self.found.add(".".join((*self.scope, name)))


@cache
def known() -> frozenset[str]:
    """Each name that something has, with all of its endings; members of classes under those that
    inherit them."""
    found: set[str] = set()
    bases: dict[str, list[str]] = {}
    for module, path in sources():
        names = Names(module)
        names.visit(ast.parse(path.read_text("utf-8")))
        found |= names.found
        bases |= names.bases
    endings = {
        ".".join(parts[start:])
        for parts in (name.split(".") for name in found)
        for start in range(len(parts))
    }
    members: dict[str, set[str]] = {}
    for name in endings:
        owner, _, member = name.rpartition(".")
        if owner in bases:
            members.setdefault(owner, set()).add(member)

    def all_members(name: str) -> set[str]:
        inherited = (all_members(base) for base in bases.get(name, ()) if base != name)
        return members.get(name, set()).union(*inherited)

    endings |= {f"{name}.{member}" for name in bases for member in all_members(name)}
    return frozenset(endings)


def is_known(target: str) -> bool:
    """Whether the tree has it; a member is looked for in its class, wherever that is exported."""
    if target in known():
        return True
    *_, owner, member = ("", *target.split("."))
    return owner[:1].isupper() and f"{owner}.{member}" in known()


def targets(text: str) -> Iterator[tuple[int, str]]:
    """What a text refers to, with the line that does."""
    for found in _REFERENCE.finditer(text):
        if not _ROLES.match(found[0]):
            continue
        title = re.search(r"<([^<>]+)>$", found[1])
        yield text.count("\n", 0, found.start()) + 1, (title[1] if title else found[1]).lstrip("~")


def unresolved(path: Path) -> list[str]:
    """The references of a file that name nothing, or by two dots, which Sphinx does not know."""
    lost = []
    for line, target in targets(path.read_text("utf-8")):
        ours = target.startswith((".", "zero_rename", "dagster_zero_rename"))
        local = "." not in target and not hasattr(builtins, target)
        if target.startswith("..") or ((ours or local) and not is_known(target.lstrip("."))):
            lost.append(f"{path.relative_to(ROOT)}:{line}: {target}")
    return lost


def test_each_reference_of_docstrings_and_pages_names_something() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    lost = [it for path in (*(path for _, path in sources()), *pages) for it in unresolved(path)]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("target", ["committer.table.Table.merge", "Table.marker", "errors"])
def test_inherited_members_and_endings_are_known(target: str) -> None:
    assert is_known(target)


@pytest.mark.parametrize("target", ["committer.table.Table.nothing", "committer.tables"])
def test_what_nobody_defines_is_not_known(target: str) -> None:
    assert not is_known(target)
