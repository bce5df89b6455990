"""Problem: what an examination of a table finds."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DamagedError
from ..format.layout import TableRoot


@dataclass(frozen=True)
class Problem:
    """Something that is or will be wrong.

    :param what: in a few words.
    :param subject: the key, job, rule or store concerned.
    :param detail: what was found.
    :param remedy: what to do.
    """

    what: str
    subject: str
    detail: str
    remedy: str


def about_damage(root: TableRoot, error: DamagedError) -> Problem:
    """A record that is gone or cannot be read."""
    remedy = error.remedy or "Restore the object from a version or backup."
    return Problem("damaged", error.key or root.url, error.message, remedy)
