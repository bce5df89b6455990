"""The directive ``arguments``: a class's or a function's arguments as a table, from its signature
and the docstrings of it and of its bases in this package. Written in reST, as docstrings are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

_OURS = ("zero_rename.", "dagster_zero_rename.")


class Arguments(SphinxDirective):
    """``.. arguments:: package.module.name``"""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        found = getattr(import_module(module), name)
        meanings = documented(found)
        defaults = dict(signatures(found))
        missing = defaults.keys() - meanings.keys()
        if missing:
            raise self.error(f"{self.arguments[0]} does not document {', '.join(sorted(missing))}")
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: auto", ""]
        lines += row("argument", "default", "meaning")
        for argument, meaning in meanings.items():
            lines += row(f"``{argument}``", defaults.get(argument, ""), meaning)
        return self.parse_text_to_nodes("\n".join(lines))


def row(first: str, second: str, third: str) -> list[str]:
    """A row of a list-table."""
    return [f"   * - {first}", f"     - {second}", f"     - {third}"]


def owners(found: Any) -> list[Any]:
    """What documents the arguments: a function itself; a class, and its bases in this package."""
    if not inspect.isclass(found):
        return [found]
    return [base for base in found.__mro__ if base.__module__.startswith(_OURS)]


def documented(found: Any) -> Mapping[str, str]:
    """Meanings by argument, in one line each: those that several classes share come first, and a
    class's own words count where its base has others."""
    meanings: dict[str, str] = {}
    for owner in reversed(owners(found)):
        text = inspect.cleandoc(owner.__doc__ or "")
        for name, meaning in re.findall(r"^:param (\w+): (.*(?:\n[ \t]+.*)*)", text, re.M):
            meanings[name] = " ".join(meaning.split())
    return meanings


def signatures(found: Any) -> Iterator[tuple[str, str]]:
    """Arguments that ours take, with their defaults in the type of code."""
    for owner in owners(found):
        made = owner.__dict__.get("__init__") if inspect.isclass(owner) else owner
        if made is None:
            continue
        for name, parameter in inspect.signature(made).parameters.items():
            if name != "self" and parameter.kind not in (
                inspect.Parameter.VAR_KEYWORD,
                inspect.Parameter.VAR_POSITIONAL,
            ):
                given = parameter.default
                yield name, "" if given is inspect.Parameter.empty else f"``{given!r}``"
