"""Completeness of the reference: what packages export has its place there, or the build fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from zero_rename.provider import get_provider_info

#: Packages whose ``__all__`` is public.
PACKAGES = (
    *("zero_rename", "zero_rename.committer", "zero_rename.spark", "zero_rename.catalog"),
    "dagster_zero_rename",
)
#: Names that are values, not documented by a docstring of their own.
_VALUES = {"zero_rename.__version__", "zero_rename.committer.UNPARTITIONED"}
_INTERNAL = {"zero_rename.provider.triggers", "zero_rename.provider.cancelling_triggers"}
_LOG = logging.getLogger(__name__)


def exported() -> Iterator[tuple[str, str]]:
    """What is public, by the name it is imported by, and by where it is defined."""
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            yield f"{package}.{name}", f"{found.__module__}.{name}" if callable(found) else ""
    for module in provided():
        # Not imported: some need packages that are not there.
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                yield f"{module}.{node.name}", ""


def provided() -> Iterator[str]:
    """Modules whose classes the provider names to Airflow, but those of triggers that operators and
    sensors start themselves."""
    information = get_provider_info()
    for kind in ("operators", "sensors", "hooks", "triggers"):
        for entry in information[kind]:
            yield from (name for name in entry["python-modules"] if name not in _INTERNAL)


def check(app: Sphinx, env: BuildEnvironment) -> None:
    documented = env.domains.python_domain.objects
    for name, defined in exported():
        if not {name, defined} & documented.keys() and name not in _VALUES:
            _LOG.warning("%s is exported, and no page of the reference has it", name)
