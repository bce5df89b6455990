"""Control records: JSON objects with a format, a kind and a write id, read without trust.

A record that is truncated, foreign or of a newer format raises
:class:`~.errors.RecordDamagedError` naming the object and the member; nothing is guessed and
nothing is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import RecordDamagedError

FORMAT = 1
T = TypeVar("T")
_ABSENT = object()


def encode(kind: str, write_id: str, members: dict[str, Any]) -> bytes:
    """A record's bytes: compact JSON, members in the order given."""
    document = {"format": FORMAT, "kind": kind, "write_id": write_id, **members}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def decode(body: bytes, kind: str, key: str) -> Fields:
    """Read a record's bytes.

    :param kind: what the record must say it is.
    :param key: the object's key, for errors.
    :raises RecordDamagedError: not JSON, not an object, another kind, or a newer format.
    """
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(key, "", f"is not JSON ({len(body)} bytes): {error}") from error
    if not isinstance(document, dict):
        raise _damaged(key, "", "is not a JSON object")
    fields = Fields(document, key)
    if fields.string("kind") != kind:
        raise _damaged(key, "kind", f"is {document['kind']!r}, not {kind!r}")
    version = fields.integer("format")
    if version > FORMAT:
        raise RecordDamagedError(
            f"The control object is of format {version}; this version reads up to {FORMAT}. "
            "It was left as it is.",
            field="format",
            key=key,
            remedy="Upgrade airflow-provider-zero-rename here.",
        )
    return fields


def _damaged(key: str, field: str, what: str) -> RecordDamagedError:
    member = f"its member {field!r} " if field else "it "
    return RecordDamagedError(
        f"A control object cannot be read: {member}{what}. It was left as it is.",
        field=field,
        key=key,
        remedy="Restore the object from a version or backup; do not delete it.",
    )


class Fields:
    """Typed access to a JSON object's members, each failure naming object and member."""

    def __init__(self, document: dict[str, Any], key: str, path: str = "") -> None:
        self._document = document
        self._key = key
        self._path = path

    def _name(self, member: str) -> str:
        return f"{self._path}.{member}" if self._path else member

    def _typed(self, member: str, kind: type[T], what: str, default: Any) -> T:
        value = self._document.get(member, _ABSENT)
        if value is _ABSENT or value is None:
            if default is _ABSENT:
                raise self.damaged(member, "is missing")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.damaged(member, f"is not {what}")
        return value

    def damaged(self, member: str, what: str) -> RecordDamagedError:
        return _damaged(self._key, self._name(member), what)

    def has(self, member: str) -> bool:
        return self._document.get(member) is not None

    def string(self, member: str, default: Any = _ABSENT) -> str:
        return self._typed(member, str, "a string", default)

    def optional_string(self, member: str) -> str | None:
        return self._typed(member, str, "a string", None)

    def integer(self, member: str, default: Any = _ABSENT) -> int:
        value = self._typed(member, int, "an integer", default)
        if isinstance(value, int) and value < 0:
            raise self.damaged(member, "is negative")
        return value

    def signed(self, member: str) -> int | None:
        return self._typed(member, int, "an integer", None)

    def number(self, member: str, default: Any = _ABSENT) -> float:
        value = self._document.get(member, _ABSENT)
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return self._typed(member, float, "a number", default)

    def boolean(self, member: str, default: Any = _ABSENT) -> bool:
        return self._typed(member, bool, "true or false", default)

    def mapping(self, member: str, default: Any = _ABSENT) -> dict[str, Any]:
        return self._typed(member, dict, "an object", default)

    def within(self, member: str) -> Fields:
        return Fields(self.mapping(member), self._key, self._name(member))

    def optional_within(self, member: str) -> Fields | None:
        return None if self._document.get(member) is None else self.within(member)

    def strings(self, member: str, default: Any = _ABSENT) -> tuple[str, ...]:
        values = self._typed(member, list, "a list", default)
        if not all(isinstance(value, str) for value in values):
            raise self.damaged(member, "has a member that is not a string")
        return tuple(values)

    def values(self, member: str) -> list[Any]:
        """A list whose members' types the caller looks at."""
        return self._typed(member, list, "a list", _ABSENT)

    def each(self, member: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        """Read a list of objects with ``read``."""
        values = self._typed(member, list, "a list", _ABSENT)
        name = self._name(member)
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                raise self.damaged(f"{member}[{index}]", "is not an object")
        return tuple(
            read(Fields(value, self._key, f"{name}[{index}]")) for index, value in enumerate(values)
        )

    def choice(self, member: str, kind: type[T], default: Any = _ABSENT) -> T:
        """A member of an enumeration."""
        text = self.string(member, None if default is not _ABSENT else _ABSENT)
        if text is None:
            return default
        try:
            return kind(text)  # type: ignore[call-arg]
        except ValueError as error:
            raise self.damaged(member, f"is {text!r}, not a {kind.__name__}") from error
