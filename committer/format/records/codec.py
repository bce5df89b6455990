"""Control records: JSON objects with a format, a kind and a write id, read without trust.

A record is a frozen dataclass, and :mod:`.typed_json` reads and writes it. A record that is
truncated, foreign or of a newer format raises :class:`~.errors.RecordDamagedError`, which names the
object and the member; nothing is guessed and nothing is deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import RecordDamagedError
from ...store.requests import LIST_BYTES, RECORD_BYTES
from ..layout import TableRoot
from .marks import Count
from .typed_json import Unfit, from_members, to_members

#: The newest format that this version reads.
FORMAT = 2
#: The format that this version writes. Records that an older version would misunderstand have a
#: greater one.
USUAL_FORMAT = 1
#: Kinds of records that list files, or the partitions of many writes: they may be larger.
_LISTS = frozenset(
    {"decision", "decision-part", "gc", "index", "manifest", "s3a try", "commit", "conflicts"}
)
T = TypeVar("T")


def encode(kind: str, write_id: str, record: Any, format: int = USUAL_FORMAT) -> bytes:
    """Return a record's bytes: compact JSON.

    :param record: a dataclass; ``write_id`` replaces a field of that name.
    :param format: a greater number makes versions that do not know it refuse the record.
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
        """Parse an object's bytes.

        :param most: the largest number of bytes.
        :raises RecordDamagedError: too many bytes, not JSON, or not a JSON object.
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
        """Return the dataclass that the object holds.

        :raises RecordDamagedError: a member that ``kind`` requires is missing, or its value is not
            of the field's type.
        """
        try:
            return from_members(kind, self.members)
        except Unfit as unfit:
            raise self.damaged(unfit.path, unfit.what) from unfit

    def damaged(self, member: str, what: str) -> RecordDamagedError:
        """Build the error for a member of this object, as :func:`damaged` does."""
        return damaged(self.key, member, what)

    def check_place(self, member: str, key: str, root: TableRoot) -> None:
        """Refuse a key of another root: the table's objects were copied or moved to this one.

        :raises RecordDamagedError: it does not begin with the table's prefix.
        """
        if not key.startswith(f"{root.prefix}/"):
            raise moved(self.key, member, key)


@dataclass(frozen=True)
class _Header:
    kind: str
    format: Count


def decode(body: bytes, kind: str, key: str) -> Document:
    """Parse a record's bytes and check the members that every record has.

    :param kind: the kind that the record must have.
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


def moved(key: str, field: str, there: str) -> RecordDamagedError:
    """Build the error for a table whose objects were moved or copied to another root.

    :param key: of the record that names another place.
    :param there: a key or prefix of that place.
    """
    return RecordDamagedError(
        "The table was moved or copied object by object: its records name objects of another "
        f"place, like {there!r}.",
        field=field,
        key=key,
        remedy="Move the objects back if they are no longer there, and copy the table from there "
        "to an empty place by 'zero-rename copy OLD NEW'.",
    )


def damaged(key: str, field: str, what: str) -> RecordDamagedError:
    """Build the error for an invalid member of a control object.

    :param field: the member, dotted and with indices; ``""`` for the object as a whole.
    :param what: a predicate: ``is not a job id``.
    """
    member = f"its member {field!r} " if field else "it "
    return RecordDamagedError(
        f"A control object cannot be read: {member}{what}. It was left as it is.",
        field=field,
        key=key,
        remedy="Restore the object from a version or backup; do not delete it.",
    )
