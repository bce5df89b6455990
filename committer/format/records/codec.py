"""Control records: JSON objects with a format, a kind and a write id, read without trust.

A record is a frozen dataclass, and :mod:`.typed_json` reads and writes it. One that is truncated,
foreign or of a newer format raises :class:`~.errors.RecordDamagedError` naming the object and the
member; nothing is guessed and nothing is deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import RecordDamagedError
from ...store.requests import LIST_BYTES, RECORD_BYTES
from .marks import Count
from .typed_json import Unfit, from_members, to_members

#: What this version reads.
FORMAT = 2
#: What it writes, but for records that an older version would take for something else.
USUAL_FORMAT = 1
#: Kinds of records that name files, or all the partitions of many writes.
_LISTS = frozenset(
    {"decision", "decision-part", "gc", "index", "manifest", "s3a try", "commit", "conflicts"}
)
T = TypeVar("T")


def encode(kind: str, write_id: str, record: Any, format: int = USUAL_FORMAT) -> bytes:
    """A record's bytes: compact JSON.

    :param record: a dataclass; a field ``write_id`` of its own gives way to the one given.
    :param format: greater where versions that do not know it must refuse the record.
    """
    header = {"format": format, "kind": kind, "write_id": write_id}
    document = header | to_members(record) | header
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Document:
    """A JSON object as it lies in the store.

    :param key: the object's key, for errors.
    """

    members: dict[str, Any]
    key: str

    @staticmethod
    def parse(body: bytes, key: str, most: int = RECORD_BYTES) -> Document:
        """Read an object's bytes.

        :param most: how many they may be.
        :raises RecordDamagedError: too many, not JSON, or not an object.
        """
        if len(body) > most:
            raise damaged(key, "", f"has more than {most} bytes, so it is none of this package")
        try:
            members = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise damaged(key, "", f"is not JSON ({len(body)} bytes): {error}") from error
        if not isinstance(members, dict):
            raise damaged(key, "", "is not a JSON object")
        return Document(members, key)

    def read(self, kind: type[T]) -> T:
        """The dataclass that the object holds.

        :raises RecordDamagedError: a member that ``kind`` asks for is missing or something else.
        """
        try:
            return from_members(kind, self.members)
        except Unfit as unfit:
            raise self.damaged(unfit.path, unfit.what) from unfit

    def damaged(self, member: str, what: str) -> RecordDamagedError:
        """As :func:`damaged`, of this object."""
        return damaged(self.key, member, what)


@dataclass(frozen=True)
class _Header:
    kind: str
    format: Count


def decode(body: bytes, kind: str, key: str) -> Document:
    """Read a record's bytes as far as they are every record's.

    :param kind: what the record must say it is.
    :param key: the object's key, for errors.
    :raises RecordDamagedError: not JSON, not an object, another kind, or a newer format.
    """
    document = Document.parse(body, key, LIST_BYTES if kind in _LISTS else RECORD_BYTES)
    header = document.read(_Header)
    if header.kind != kind:
        raise document.damaged("kind", f"is {header.kind!r}, not {kind!r}")
    if header.format > FORMAT:
        raise RecordDamagedError(
            f"The control object is of format {header.format}; this version reads up to "
            f"{FORMAT}. It was left as it is.",
            field="format",
            key=key,
            remedy="Upgrade airflow-provider-zero-rename here.",
        )
    return document


def damaged(key: str, field: str, what: str) -> RecordDamagedError:
    """What is raised for a member that cannot be right.

    :param field: dotted, with indices; ``""`` for the object as a whole.
    :param what: a predicate: ``is not a job id``.
    """
    member = f"its member {field!r} " if field else "it "
    return RecordDamagedError(
        f"A control object cannot be read: {member}{what}. It was left as it is.",
        field=field,
        key=key,
        remedy="Restore the object from a version or backup; do not delete it.",
    )
