"""Values of the data source's options, written as texts. Every parser raises ``ValueError``."""

from __future__ import annotations

import json

from ..committer.errors import InvalidInputError
from ..committer.format.as_of import AsOf
from ..committer.format.read_base import NOTHING_READ, ReadBase
from ..committer.format.text_values import TextList, seconds, whole

_TRUE = {"true": True, "false": False}


def flag(text: str) -> bool:
    """``true`` or ``false``."""
    if text.strip().lower() not in _TRUE:
        raise ValueError("is true or false")
    return _TRUE[text.strip().lower()]


def count(text: str) -> int:
    """A whole number above zero."""
    if (number := whole(text)) <= 0:
        raise ValueError("is a whole number above zero")
    return number


def span(text: str) -> float:
    """A duration that takes any time: ``3600``, ``90min``, ``12h``, ``2d``."""
    if (found := seconds(text)) == 0:
        raise ValueError("is a number of seconds above zero, or such as 90min, 12h or 2d")
    return found


def text(value: str) -> str:
    """A text that is not empty."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def named(items: TextList, text: str) -> tuple[str, ...]:
    """One text or more. None would read nothing, or protect nothing, in silence."""
    found = items.decode(text)
    if not found:
        raise ValueError("names none")
    return found


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


def read_base(text: str) -> ReadBase:
    """``now``, or a text by :meth:`~..committer.read_base.ReadBase.encode`."""
    if text.strip().lower() == "now":
        return NOTHING_READ
    try:
        return ReadBase.decode(text)
    except ValueError as error:
        raise ValueError(f"{error} and not now") from error


def moment(text: str) -> AsOf:
    """A version, or a time with its zone."""
    try:
        return AsOf.parse(text)
    except InvalidInputError as error:
        raise ValueError(
            "is a version, or a time with its zone, such as 2026-01-31T12:00:00Z"
        ) from error
