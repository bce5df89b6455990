"""Rules of a merge: what becomes of rows that match, and of those that do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...committer.merge_request import UPDATE, MergeRequest
from ..reading.predicate import refuse_beyond_rows


@dataclass(frozen=True)
class MergeRules(MergeRequest):
    """What a merge does with the rows that match, and with those that do not.

    :param matched: ``update``, ``ignore``, or expressions by column.
    :param evolves: the frame's columns become the table's.
    """

    matched: str | Mapping[str, str] = UPDATE
    delete_when: str | None = None
    evolves: bool = False

    def __post_init__(self) -> None:
        """:raises InvalidInputError: a word that is none of its choices, no key."""
        super().__post_init__()
        for name, text in self.expressions.items():
            refuse_beyond_rows(name, text)

    def _check_matched(self, besides: str = ", or give expressions by column") -> None:
        if isinstance(self.matched, str):
            super()._check_matched(besides)

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
