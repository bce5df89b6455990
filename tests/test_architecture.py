"""What holds the layout together: imports point one way, and files say nothing of a machine."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "zero_rename"
#: What each folder may import of ours, besides itself. docs say: operators, sensors -> provider
#: -> s3a -> committer; spark -> s3a -> committer; committer -> nothing of ours.
MAY_IMPORT = {
    "committer": set(),
    "s3a": {"committer"},
    "spark": {"committer", "s3a"},
    "cli": {"committer", "s3a"},
    "provider": {"committer", "s3a"},
    "operators": {"provider", "committer", "s3a"},
    "sensors": {"provider", "committer", "s3a"},
    "example_dags": {"operators", "sensors", "provider", "committer", "spark"},
}
#: Third parties a folder must not know.
MUST_NOT_KNOW = {
    "committer": {"airflow", "pyspark"},
    "spark": {"airflow"},
    "s3a": {"airflow", "pyspark", "py4j"},
    "cli": {"airflow", "pyspark"},
}
LONGEST_MODULE = 400


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("**/*.py"))


def imports(path: Path) -> Iterator[str]:
    """Absolute names of all that a module of ours imports, wherever in it."""
    package = (PACKAGE, *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join((*base, *([node.module] if node.module else [])))
            # `from .. import committer` imports a sub-package by its name.
            yield from (f"{name}.{alias.name}" for alias in node.names)


def known_folder(name: str) -> str | None:
    """The sub-package of ours that an imported name lies in."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else ""


def test_every_folder_has_its_rule() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["setuptools"]["packages"]
    assert {name.split(".")[1] for name in packages if "." in name} == set(MAY_IMPORT)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_one_way(folder: str) -> None:
    allowed = MAY_IMPORT[folder] | {folder}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        for name in imports(path)
        if (target := known_folder(name)) is not None
        and target not in allowed
        # The examples import as users do, from the package itself too.
        and not (folder == "example_dags" and target == "")
    ]
    assert not wrong


@pytest.mark.parametrize("folder", MUST_NOT_KNOW)
def test_layers_do_not_know_what_is_above_them(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        for name in imports(path)
        if name.split(".")[0] in MUST_NOT_KNOW[folder]
    ]
    assert not wrong


def test_the_package_imports_neither_tests_nor_demo() -> None:
    outside = {"tests", "support", "demo", "tools"}
    paths = [path for folder in MAY_IMPORT for path in modules(folder)]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in [*paths, *ROOT.glob("*.py")]
        for name in imports(path)
        if name.split(".")[0] in outside
    ]
    assert not wrong


def test_examples_import_as_users_do() -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("example_dags")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_modules_can_be_read_in_one_sitting() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for folder in [*MAY_IMPORT, "demo", "tools"]
        for path in modules(folder)
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_MODULE} == {}


def tracked_files() -> list[Path]:
    """What git knows, or all but what .gitignore names where this is no clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file()]
    ignored = {".venv", ".demo", "build", "dist"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not ignored & set(path.relative_to(ROOT).parts)
    ]


def test_no_file_mentions_a_machines_paths() -> None:
    # Spelled so that this file does not match itself.
    paths = re.compile(r"(?<![\w.])/(?:w[o]rk|r[o]ot|h[o]me/\w+|U[s]ers/\w+)/")
    wrong = []
    for path in tracked_files():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        wrong += [
            f"{path.relative_to(ROOT)}:{number}: {found.group()}"
            for number, line in enumerate(lines, 1)
            if (found := paths.search(line))
        ]
    assert not wrong


def test_no_file_names_a_package_index() -> None:
    index = re.compile(r"^\s*(?:--(?:extra-)?index-url|--find-links|-f |-i )|index-url\s*=")
    files = [*ROOT.glob("*.lock"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    wrong = [
        f"{path.name}: {line}"
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if index.search(line)
    ]
    assert not wrong
