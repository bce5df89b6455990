"""Compilation of Jinja's templates once a process, however many environments Airflow makes."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment


def compile_once() -> None:
    """Keep the code of each template for environments whose settings are equal."""
    kept: dict[Any, Any] = {}
    compiled: Any = Environment.compile

    def once(self: Environment, source: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(source, str):
            return compiled(self, source, *rest, **named)
        key = (source, rest, *named.items(), *_settings(self))
        if key not in kept:
            kept[key] = compiled(self, source, *rest, **named)
        return kept[key]

    setattr(Environment, "compile", once)  # noqa: B010 - its overloads are none of ours


def _settings(environment: Environment) -> tuple[Any, ...]:
    """What a template's code depends on, but the template."""
    it = environment
    marks = (it.block_start_string, it.variable_start_string, it.comment_start_string)
    folded = (it.optimized, it.autoescape, it.is_async, it.undefined)
    known = (frozenset(it.filters.items()), frozenset(it.tests.items()))
    return (type(it), *marks, *folded, *known, it.trim_blocks, it.lstrip_blocks, *it.extensions)
