"""Rules of a merge: what becomes of rows that match, and of those that do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...committer.merge_request import INSERT, UPDATE, check_key, check_word
from ..reading.predicate import refuse_beyond_rows


@dataclass(frozen=True)
class MergeRules:
    """What a merge does with the rows that match, and with those that do not.

    :param on: the key's columns.
    :param matched: ``update``, ``ignore``, or expressions by column.
    :param not_matched: ``insert`` or ``ignore``.
    :param delete_when: of which rows the match is deleted, and none inserted.
    :param latest_by: the column by which the last of several rows of a key counts, the table's own
        among them.
    :param null_safe: null keys match each other.
    :param across: keys are looked for in all partitions.
    :param evolves: the frame's columns become the table's.
    """

    on: tuple[str, ...]
    matched: str | Mapping[str, str] = UPDATE
    not_matched: str = INSERT
    delete_when: str | None = None
    latest_by: str | None = None
    null_safe: bool = False
    across: bool = False
    evolves: bool = False

    def __post_init__(self) -> None:
        """:raises InvalidInputError: a word that is none of its choices, no key."""
        check_key(self.on)
        if isinstance(self.matched, str):
            check_word("when_matched", self.matched, UPDATE, ", or give expressions by column")
        check_word("when_not_matched", self.not_matched, INSERT)
        for name, text in self.expressions.items():
            refuse_beyond_rows(name, text)

    @property
    def sets(self) -> Mapping[str, str]:
        """Expressions for matched rows, by column."""
        return {} if isinstance(self.matched, str) else self.matched

    @property
    def expressions(self) -> Mapping[str, str]:
        """All expressions, by what they are for."""
        found = {f"when_matched[{name!r}]": text for name, text in self.sets.items()}
        return found | ({"delete_when": self.delete_when} if self.delete_when else {})

    def serves(self, column: str) -> bool:
        """Whether a column may be there for one of the expressions, or for ``latest_by``, alone."""
        texts = [*self.expressions.values(), self.latest_by]
        text = " ".join(text or "" for text in texts).lower()
        return re.search(rf"(?<!\w){re.escape(column.lower())}(?!\w)", text) is not None
