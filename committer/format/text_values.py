"""Values written as texts, as options and environment variables carry them.

Parsers raise ``ValueError`` with what the text should have been, as the end of a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ..errors import InvalidInputError
from .job_spec import MODES, Mode

E = TypeVar("E", bound=StrEnum)


def whole(text: str) -> int:
    """A whole number, as far as records hold them."""
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", text.strip()):
        raise ValueError("is a whole number")
    return int(text)


def choice(kind: type[E], text: str) -> E:
    """A member of an enumeration, hyphens and underscores alike."""
    wanted = text.strip().lower().replace("-", "_")
    for member in kind:
        if member.value.replace("-", "_") == wanted:
            return member
    raise ValueError(f"is one of {', '.join(member.value for member in kind)}")


def mode(text: str) -> Mode:
    """A mode, by any of the names in :data:`.job_spec.MODES`."""
    try:
        return Mode.parse(text)
    except InvalidInputError as error:
        raise ValueError(f"is one of {', '.join(MODES)}") from error


@dataclass(frozen=True)
class TextList:
    """Several texts written as one: joined by a separator, or as a JSON list.

    :param separator: of the plain form, which people write. What begins with ``[`` is JSON.
    """

    separator: str

    def decode(self, text: str) -> tuple[str, ...]:
        """The items; blanks around those of the plain form do not count, nor do empty ones at
        its end."""
        if text.lstrip().startswith("["):
            items = _json_list(text)
        else:
            items = [item.strip() for item in text.split(self.separator)]
            while items and not items[-1]:
                items.pop()
        if any(not item for item in items):
            raise ValueError("has an empty item")
        return tuple(items)

    def encode(self, items: Iterable[str]) -> str:
        """The plain form where it comes back as the same items, else JSON.

        :raises ValueError: an empty item.
        """
        wanted = tuple(items)
        if any(not item for item in wanted):
            raise ValueError("has an empty item")
        comes_back = not (wanted and wanted[0].startswith("[")) and all(
            self.separator not in item and item == item.strip() for item in wanted
        )
        return self.separator.join(wanted) if comes_back else json.dumps(wanted)


def _json_list(text: str) -> list[str]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise ValueError("begins like a JSON list and is none") from error
    if not all(isinstance(item, str) for item in items):
        raise ValueError("is a JSON list of something else than texts")
    return items


#: Column names, and partitions by their Hive-escaped paths, which escape neither separator.
NAMES, PATHS = TextList(","), TextList(";")
