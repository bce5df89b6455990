"""Arguments that are known only at run time: templates, and outputs of other tasks."""

from __future__ import annotations

from datetime import date, timedelta

from ..committer.errors import InvalidInputError

#: Marks with which Jinja's expressions, statements and comments begin.
_MARKS = ("{{", "{%", "{#")


def is_template(text: str) -> bool:
    """Return whether a text is a template."""
    return any(mark in text for mark in _MARKS)


def is_known(value: object) -> bool:
    """Return whether an argument has its final value: no template, no other task's output."""
    if isinstance(value, str):
        return not is_template(value)
    return isinstance(value, int | float | date | timedelta)


def check_named(name: str, value: str | None) -> None:
    """Refuse an empty run or task id, such as a template that rendered to nothing.

    No job of such a run is ever committed.

    :raises InvalidInputError: the value is empty, or ``None`` as a text.
    """
    if value is not None and value.strip() in ("", "None"):
        raise InvalidInputError(
            f"{name}={value!r} names no task's run; nothing was waited for.",
            remedy="Where it is a template, see what that renders to.",
        )
