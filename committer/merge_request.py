"""Request of a merge, in plain Python or Spark: what happens to rows that match and to others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import InvalidInputError, counted
from .format.job_spec import SchemaMode
from .format.parquet.row_filter import Filter

UPDATE, IGNORE, INSERT = "update", "ignore", "insert"


@dataclass(frozen=True)
class MergeRequest:
    """Arguments of a merge, as :meth:`.table.Table.merge` takes them.

    :param matched: ``update`` or ``ignore``; a subclass may allow more.
    """

    on: tuple[str, ...]
    matched: Any = UPDATE
    not_matched: str = INSERT
    delete_when: Any = None
    latest_by: str | None = None
    null_safe: bool = False
    across: bool = False

    def __post_init__(self) -> None:
        """Check the arguments.

        :raises InvalidInputError: an argument is not one of its choices, or there is no key.
        """
        if not self.on:
            raise InvalidInputError(
                "on names no column; nothing was merged.",
                remedy="Give the key's columns: on=['id'].",
            )
        self._check_matched()
        _check_word("when_not_matched", self.not_matched, INSERT)

    def _check_matched(self, besides: str = "") -> None:
        """Check ``matched``.

        :param besides: the further choices, for the error.
        """
        _check_word("when_matched", self.matched, UPDATE, besides)


@dataclass(frozen=True)
class RowMerge(MergeRequest):
    """Arguments of a merge in plain Python."""

    matched: str = UPDATE
    delete_when: Filter | None = None
    schema_mode: SchemaMode = SchemaMode.KEEP


def _check_word(name: str, given: object, does: str, besides: str = "") -> None:
    """Check that an argument is ``ignore`` or its other choice.

    :param does: the other choice.
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
    """Build the error of a merge with several rows of one key.

    :param what: what is merged, in a word.
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
