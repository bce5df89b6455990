"""The distribution as users install it: a wheel, and environments that have it and no checkout.

A plugin of ``tests/conftest.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.shared_servers import made_once

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTION = "airflow-provider-zero-rename"


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel that this checkout makes, once a run for all workers."""

    def made(folder: Path) -> None:
        folder.mkdir()
        build_wheel(folder)

    [wheel] = made_once("wheel", made).glob("*.whl")
    return wheel


def build_wheel(folder: Path, path: str | None = None) -> Path:
    """A wheel built from a copy.

    :param folder: for the wheel; what is made besides is removed.
    :param path: the build's ``PATH``; ``None``: the tests' own.
    """
    with checkout_copy() as source:
        return build(source, "wheel", folder, path)


@contextlib.contextmanager
def checkout_copy() -> Iterator[Path]:
    """A copy to build from: setuptools leaves stale files of earlier builds in ``build``."""
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / "checkout"
        made_here = (".git", ".venv", ".demo", ".*_cache", ".hypothesis", "build", "dist")
        ignored = shutil.ignore_patterns(*made_here, "*.egg-info", "__pycache__")
        shutil.copytree(ROOT, source, ignore=ignored)
        yield source


def build(source: Path, kind: str, folder: Path, path: str | None = None) -> Path:
    """Build a distribution as an installer does.

    :param source: a copy of the checkout, or what an archive of sources has.
    :param kind: ``wheel`` or ``sdist``.
    :param folder: for the distribution, and for no other one.
    """
    call = f"import setuptools.build_meta as b, sys; print(b.build_{kind}(sys.argv[1]))"
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    done = subprocess.run(
        [sys.executable, "-c", call, str(folder)],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.iterdir()
    return built


def unpack(wheel: Path, folder: Path) -> None:
    """Install a wheel, without what it needs: a folder to be found on ``sys.path``."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def needed_by(extras: Iterable[str]) -> set[str]:
    """The distributions that the package needs with some extras, and those that they need."""
    found: set[tuple[str, str]] = set()
    waiting = [(DISTRIBUTION, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for text in distribution(name).requires or ():
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                waiting += [(need.name, other) for other in ("", *need.extras)]
    return {name for name, _ in found} - {DISTRIBUTION}


def environment(folder: Path, wheel: Path, extras: Iterable[str]) -> Path:
    """A virtual environment with the wheel and what it needs with some extras, and nothing else:
    links to this environment's packages.

    :return: its interpreter.
    """
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    [site] = venv.glob("lib/python*/site-packages")
    for name in needed_by(extras):
        made = distribution(name)
        for top in {file.parts[0] for file in made.files or () if file.parts[0] != ".."}:
            link = site / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(Path(str(made.locate_file(top))))
    unpack(wheel, site)
    return venv / "bin" / "python"


def borrow_bytecode(venv: Path) -> None:
    """Give an environment the compiled modules of the tests' own, where both have the same files:
    compiling what is installed takes longer than what is done with it. Python compiles what
    differs."""
    lender = Path(pytest.__file__).parents[1]
    [site] = venv.glob("lib/python*/site-packages")
    for cache in lender.rglob("__pycache__"):
        folder = site / cache.relative_to(lender)
        if folder.parent.is_dir():
            shutil.copytree(cache, folder, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    if not os.path.exists(target):
        os.link(source, target)
