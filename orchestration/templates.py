"""Arguments of tasks that are not known before their run: templates, and outputs of other tasks."""

from __future__ import annotations

from datetime import date, timedelta

from ..committer.errors import InvalidInputError

#: What Jinja begins expressions, statements and comments with.
_MARKS = ("{{", "{%", "{#")


def is_template(text: str) -> bool:
    """Whether a text is to be rendered."""
    return any(mark in text for mark in _MARKS)


def is_known(value: object) -> bool:
    """Whether an argument is what it will be: no template, no other task's output."""
    if isinstance(value, str):
        return not is_template(value)
    return isinstance(value, int | float | date | timedelta)


def check_named(name: str, value: str | None) -> None:
    """See that no template that has no value says whose job is meant: it is never committed.

    :raises InvalidInputError: one does.
    """
    if value is not None and value.strip() in ("", "None"):
        raise InvalidInputError(
            f"{name}={value!r} names no task's run; nothing was waited for.",
            remedy="Where it is a template, see what that renders to.",
        )
