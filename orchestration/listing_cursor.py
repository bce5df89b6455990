"""Cursor through objects by the dates of their listing, for who asks again what is new."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..committer.store.requests import ListedObject

#: Seconds by which a store may show what it was sent late, or date it early.
OVERLAP = 300.0


@dataclass(frozen=True)
class ListingCursor:
    """How far somebody has read objects, as their listing dates them.

    :param at: the last date of an object that was read, by the store's clock.
    :param seen: digests of the states read that are not older than :data:`OVERLAP` before.
    """

    at: float = 0.0
    seen: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def decode(text: str | None) -> ListingCursor:
        """Of a text by :meth:`encode`; the beginning, where it is none."""
        try:
            found = json.loads(text or "{}")
            return ListingCursor(float(found.get("at", 0.0)), frozenset(found.get("seen", ())))
        except (AttributeError, TypeError, ValueError):
            return ListingCursor()

    def encode(self) -> str:
        return json.dumps({"at": self.at, "seen": sorted(self.seen)}, separators=(",", ":"))

    def unread(self, listed: Sequence[ListedObject]) -> list[ListedObject]:
        """The states that were not read yet, oldest first."""
        new = [
            item
            for item in listed
            if item.last_modified >= self.at - OVERLAP and _digest(item) not in self.seen
        ]
        return sorted(new, key=lambda item: (item.last_modified, item.key))

    def after(
        self,
        read: Sequence[ListedObject],
        listed: Sequence[ListedObject],
        left: Sequence[ListedObject] = (),
    ) -> ListingCursor:
        """The cursor once some of the unread are read.

        :param listed: the whole listing: what is no longer in it need not be remembered.
        :param left: unread ones that are to be read later, however late.
        """
        at = max((self.at, *(item.last_modified for item in read)))
        at = min((at, *(item.last_modified for item in left)))
        seen = self.seen | {_digest(item) for item in read}
        recent = {_digest(item) for item in listed if item.last_modified >= at - OVERLAP}
        return ListingCursor(at, seen & recent)


def _digest(item: ListedObject) -> str:
    return hashlib.sha256(f"{item.key} {item.etag}".encode()).hexdigest()[:12]
