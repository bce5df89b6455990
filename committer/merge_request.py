"""Request of a merge: what becomes of rows that match and of others, as Spark has it, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import InvalidInputError, counted
from .format.job_spec import SchemaMode
from .format.parquet.row_filter import Filter

UPDATE, IGNORE, INSERT = "update", "ignore", "insert"


@dataclass(frozen=True)
class MergeRequest:
    """What a merge is asked for, by whoever carries it out: as :meth:`.table.Table.merge` takes it.

    :param matched: ``update`` or ``ignore``, or what else it may be there.
    """

    on: tuple[str, ...]
    matched: Any = UPDATE
    not_matched: str = INSERT
    delete_when: Any = None
    latest_by: str | None = None
    null_safe: bool = False
    across: bool = False

    def __post_init__(self) -> None:
        """:raises InvalidInputError: a word that is none of its choices, no key."""
        if not self.on:
            raise InvalidInputError(
                "on names no column; nothing was merged.",
                remedy="Give the key's columns: on=['id'].",
            )
        self._check_matched()
        _check_word("when_not_matched", self.not_matched, INSERT)

    def _check_matched(self, besides: str = "") -> None:
        """:param besides: what else it may be, for the error."""
        _check_word("when_matched", self.matched, UPDATE, besides)


@dataclass(frozen=True)
class RowMerge(MergeRequest):
    """What a merge in plain Python is asked for."""

    matched: str = UPDATE
    delete_when: Filter | None = None
    schema_mode: SchemaMode = SchemaMode.KEEP


def _check_word(name: str, given: object, does: str, besides: str = "") -> None:
    """:param does: the word that it may be, besides ``ignore``.
    :raises InvalidInputError: it is neither.
    """
    if given not in (does, IGNORE):
        raise InvalidInputError(
            f"{name} is {given!r}; nothing was merged.",
            remedy=f"Choose {does!r} or {IGNORE!r}{besides}.",
        )


def several_rows(
    what: str, keys: int, example: str, latest_by: str | None, url: str
) -> InvalidInputError:
    """The error of a merge that is given several rows of a key.

    :param what: is merged, in a word.
    """
    why = "and none says which of them counts"
    remedy = "Give latest_by, the column whose greatest value is the last, or drop duplicates."
    if latest_by is not None:
        why = f"also by the greatest {latest_by}"
        remedy = f"Drop duplicates from the {what} before the merge."
    return InvalidInputError(
        f"{counted(keys, 'key')} of the {what} {'is' if keys == 1 else 'are'} there several times, "
        f"{why}: such as {example}. Nothing was merged.",
        table=url,
        remedy=remedy,
    )
