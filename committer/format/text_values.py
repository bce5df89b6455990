"""Values as texts: parsers for options and environment variables.

Parsers raise ``ValueError`` with the expected form, worded as the end of a sentence.
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
    """Parse a whole number of at most 15 digits, which records can hold."""
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", text.strip()):
        raise ValueError("is a whole number")
    return int(text)


def size(text: str) -> int:
    """Parse a number of bytes: ``1048576``, ``64m``, ``64MB``, ``64 MiB``.

    All units are powers of 1024, as in Spark.
    """
    found = re.fullmatch(r"([0-9]{1,15})\s*([bkmgt]?)(?:i?b)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError("is a number of bytes above zero, such as 134217728 or 128m")
    return int(found[1]) * _BYTES[found[2]]


def seconds(text: str) -> float:
    """Parse a duration into seconds: ``3600``, ``90s``, ``90min``, ``12h``, ``2d``."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(s|m|min|h|d|)", text.strip().lower())
    if found is None:
        raise ValueError("is a number of seconds, or such as 90min, 12h or 2d")
    return float(found[1]) * _SECONDS[found[2]]


def read_by(parse: Callable[[str], T], wanted: str) -> Callable[[str], T]:
    """Make a parser for texts from one for arguments: it raises ``ValueError`` instead.

    :param wanted: the expected form, for the error.
    """

    def read(text: str) -> T:
        try:
            return parse(text)
        except InvalidInputError as error:
            raise ValueError(wanted) from error

    return read


def choice(kind: type[E], text: str) -> E:
    """Parse a member of an enumeration; hyphens and underscores are equal."""
    wanted = text.strip().lower().replace("-", "_")
    for member in kind:
        if member.value.replace("-", "_") == wanted:
            return member
    raise ValueError(f"is one of {', '.join(member.value for member in kind)}")


#: Parses a mode, by any of the names in :data:`.job_spec.MODES`.
mode = read_by(Mode.parse, f"is one of {', '.join(MODES)}")
#: Parses a data root; see :class:`~.store.fast_root.FastRoot`.
fast_root = read_by(
    FastRoot.parse,
    "is a data root, s3://bucket/prefix?endpoint=https://host:port without a password",
)
#: Parses an encryption by the store.
encryption = read_by(
    Encryption.parse, f"is {', '.join(Algorithm)}, and with KMS perhaps a blank and the key"
)

#: Parses a code version; see :func:`.code_version.checked_code_version`.
code_version = read_by(checked_code_version, "is a text of 1 to 200 printable characters")


@dataclass(frozen=True)
class TextList:
    """Format of a list of texts as one text: joined by a separator, or a JSON list.

    :param separator: separator of the plain form, which people write. A text that begins with ``[``
        is JSON.
    """

    separator: str

    def decode(self, text: str) -> tuple[str, ...]:
        """Return the items of a text.

        In the plain form, blanks around items and empty items at the end are dropped.

        :raises ValueError: an empty item, or invalid JSON.
        """
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
        """Return the items as one text.

        It is in the plain form if that decodes to the same items, else in JSON.

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


#: Lists of column names, and of partitions by Hive-escaped paths (which may contain both
#: separators).
NAMES, PATHS = TextList(","), TextList(";")
