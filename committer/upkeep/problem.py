"""Problem that an examination of a table finds."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DamagedError
from ..format.layout import TableRoot


@dataclass(frozen=True)
class Problem:
    """A present or future problem of a table.

    :param what: the problem in a few words.
    :param subject: the key, job, rule or store concerned.
    :param detail: the finding.
    :param remedy: what to do.
    """

    what: str
    subject: str
    detail: str
    remedy: str


def about_damage(root: TableRoot, error: DamagedError) -> Problem:
    """Return the problem of a record that is missing or damaged."""
    remedy = error.remedy or "Restore the object from a version or backup."
    return Problem("damaged", error.key or root.url, error.message, remedy)
