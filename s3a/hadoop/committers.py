"""Committers by their words: this project's own, and Hadoop's."""

from __future__ import annotations

from ...committer.errors import InvalidInputError
from ...committer.records.success_marker import COMMITTER as NATIVE
from .settings import Committer

COMMITTERS = (NATIVE, *Committer)


def check_committer(word: str) -> str:
    """Return ``word`` if there is that committer.

    :raises InvalidInputError: there is not.
    """
    if word in COMMITTERS:
        return word
    raise InvalidInputError(
        f"There is no committer {word!r}; nothing was written.",
        remedy=f"Choose one of {', '.join(COMMITTERS)}.",
    )
