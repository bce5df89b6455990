"""Texts of options and environment variables as values. Every parser raises ``ValueError``."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TypeVar

E = TypeVar("E", bound=StrEnum)

_BYTES = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_TRUE = {"true": True, "false": False}


def flag(text: str) -> bool:
    """``true`` or ``false``."""
    if text.strip().lower() not in _TRUE:
        raise ValueError("is true or false")
    return _TRUE[text.strip().lower()]


def whole(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
        raise ValueError("is a whole number")
    return int(text)


def count(text: str) -> int:
    """A whole number above zero."""
    if (number := whole(text)) <= 0:
        raise ValueError("is a whole number above zero")
    return number


def size(text: str) -> int:
    """Bytes: ``1048576``, ``64m``, ``64MB``, ``64 MiB`` (all in powers of 1024, as in Spark)."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([bkmgt]?)(?:i?b)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError("is a number of bytes above zero, such as 134217728 or 128m")
    return int(found[1]) * _BYTES[found[2]]


def seconds(text: str) -> float:
    """A duration: ``3600``, ``90min``, ``12h``, ``2d``."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(s|m|min|h|d|)", text.strip().lower())
    if found is None or float(found[1]) == 0:
        raise ValueError("is a number of seconds above zero, or such as 90min, 12h or 2d")
    return float(found[1]) * _SECONDS[found[2]]


def text(value: str) -> str:
    """A text that is not empty."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def names(value: str) -> tuple[str, ...]:
    """Column names separated by commas, or a JSON list of them."""
    return _listed(value, ",")


def paths(value: str) -> tuple[str, ...]:
    """Partition paths separated by semicolons, or a JSON list of them."""
    return _listed(value, ";")


def _listed(value: str, separator: str) -> tuple[str, ...]:
    if value.lstrip().startswith("["):
        try:
            items = json.loads(value)
        except ValueError as error:
            raise ValueError("begins like a JSON list and is none") from error
        if not all(isinstance(item, str) for item in items):
            raise ValueError("is a JSON list of something else than texts")
    else:
        items = [item.strip() for item in value.split(separator)]
        while items and not items[-1]:
            items.pop()
    if any(not item for item in items):
        raise ValueError("has an empty item")
    return tuple(items)


def pairs(value: str) -> dict[str, str]:
    """``a=b,c=d``, or a JSON object of texts."""
    if value.lstrip().startswith("{"):
        try:
            items = json.loads(value)
        except ValueError as error:
            raise ValueError("begins like a JSON object and is none") from error
        if not all(isinstance(item, str) for item in items.values()):
            raise ValueError("is a JSON object of something else than texts")
        return items
    found: dict[str, str] = {}
    for item in value.split(","):
        name, equals, content = item.partition("=")
        if not equals or not name.strip():
            raise ValueError("is written a=b,c=d")
        found[name.strip()] = content.strip()
    return found


def choice(kind: type[E], value: str) -> E:
    """A member of an enumeration, hyphens and underscores alike."""
    wanted = value.strip().lower().replace("-", "_")
    for member in kind:
        if member.value.replace("-", "_") == wanted:
            return member
    raise ValueError(f"is one of {', '.join(member.value for member in kind)}")
