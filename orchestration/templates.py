"""Arguments of tasks that are not known before their run: templates, and outputs of other tasks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

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
    return isinstance(value, int | float | datetime)


def check_texts(task: object, names: Iterable[str]) -> None:
    """See that a task's rendered arguments are texts, or left out: templates that are rendered as
    what they stand for (``render_template_as_native_obj``) and other tasks' outputs may be
    anything.

    :raises InvalidInputError: names the first that is something else.
    """
    for name in names:
        value = getattr(task, name)
        if value is not None and not isinstance(value, str):
            raise InvalidInputError(
                f"{name}={value!r} is no text, but of type {type(value).__name__}; nothing was "
                "read or written.",
                remedy="See what its template renders to, or what the other task returned.",
            )


def check_named(name: str, value: str | None) -> None:
    """See that no template that has no value says whose job is meant: it is never committed.

    :raises InvalidInputError: one does.
    """
    if value is not None and value.strip() in ("", "None"):
        raise InvalidInputError(
            f"{name}={value!r} names no task's run; nothing was waited for.",
            remedy="Where it is a template, see what that renders to.",
        )
