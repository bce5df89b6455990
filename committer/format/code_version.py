"""Code version: a program's own name for the version of its code that computes a job's rows."""

from __future__ import annotations

from ..errors import InvalidInputError

_LONGEST = 200


def checked_code_version(given: str) -> str:
    """Check a code version (a number, a tag, a commit's hash) and return it.

    :raises InvalidInputError: it is empty, too long, not printable, or has blanks around it.
    """
    fits = isinstance(given, str) and given.isprintable() and given == given.strip()
    if not fits or not 0 < len(given) <= _LONGEST:
        raise InvalidInputError(
            f"code_version={str(given)[:_LONGEST]!r} is no version of a program's code; "
            "nothing was sent.",
            remedy=f"Give a text of 1 to {_LONGEST} printable characters, without blanks "
            "around it: a number, a tag, a commit's hash.",
        )
    return given
