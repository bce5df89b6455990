"""Values written as texts, as options and environment variables carry them.

Parsers raise ``ValueError`` with what the text should have been, as the end of a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ..errors import InvalidInputError
from ..store.encryption import Algorithm, Encryption
from ..store.fast_root import FastRoot
from .code_version import checked_code_version
from .job_spec import MODES, Mode

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
_BYTES = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def whole(text: str) -> int:
    """A whole number, as far as records hold them."""
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", text.strip()):
        raise ValueError("is a whole number")
    return int(text)


def size(text: str) -> int:
    """Bytes: ``1048576``, ``64m``, ``64MB``, ``64 MiB`` (all in powers of 1024, as in Spark)."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([bkmgt]?)(?:i?b)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError("is a number of bytes above zero, such as 134217728 or 128m")
    return int(found[1]) * _BYTES[found[2]]


def seconds(text: str) -> float:
    """A span of time: ``3600``, ``90s``, ``90min``, ``12h``, ``2d``."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(s|m|min|h|d|)", text.strip().lower())
    if found is None:
        raise ValueError("is a number of seconds, or such as 90min, 12h or 2d")
    return float(found[1]) * _SECONDS[found[2]]


def read_by(parse: Callable[[str], T], wanted: str) -> Callable[[str], T]:
    """A parser of the texts that another one takes, which refuses them as those of a user's call.

    :param wanted: what the text should have been.
    """

    def read(text: str) -> T:
        try:
            return parse(text)
        except InvalidInputError as error:
            raise ValueError(wanted) from error

    return read


def choice(kind: type[E], text: str) -> E:
    """A member of an enumeration, hyphens and underscores alike."""
    wanted = text.strip().lower().replace("-", "_")
    for member in kind:
        if member.value.replace("-", "_") == wanted:
            return member
    raise ValueError(f"is one of {', '.join(member.value for member in kind)}")


#: A mode, by any of the names in :data:`.job_spec.MODES`.
mode = read_by(Mode.parse, f"is one of {', '.join(MODES)}")
#: Where files lie first, as of :class:`~.store.fast_root.FastRoot`.
fast_root = read_by(
    FastRoot.parse,
    "is a data root, s3://bucket/prefix?endpoint=https://host:port without a password",
)
#: An encryption by the store.
encryption = read_by(
    Encryption.parse, f"is {', '.join(Algorithm)}, and with KMS perhaps a blank and the key"
)

#: See :func:`.code_version.checked_code_version`.
code_version = read_by(checked_code_version, "is a text of 1 to 200 printable characters")


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
