"""The envelope of control records, and how an error names what is wrong in one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from zero_rename.committer import RecordDamagedError
from zero_rename.committer.format.records.codec import FORMAT, decode, encode


@dataclass(frozen=True)
class Note:
    write_id: str
    text: str
    sizes: tuple[int, ...]


def body(**changes: Any) -> bytes:
    return json.dumps(json.loads(encode("note", "w1", Note("", "ü", (1, 2)))) | changes).encode()


def refused(given: bytes) -> RecordDamagedError:
    with pytest.raises(RecordDamagedError) as caught:
        decode(given, "note", "flights/_zero_rename/note.json").read(Note)
    assert caught.value.key == "flights/_zero_rename/note.json"
    return caught.value


def test_the_write_id_given_is_the_one_written_and_read() -> None:
    assert decode(body(), "note", "k").read(Note) == Note("w1", "ü", (1, 2))
    assert encode("note", "w1", Note("", "ü", ())).startswith(
        b'{"format":1,"kind":"note","write_id":"w1"'
    )


@pytest.mark.parametrize(
    ("given", "field", "what"),
    [
        (b"", "", "is not JSON (0 bytes)"),
        (b"\xff", "", "is not JSON"),
        (b"[" * 200_000, "", "is not JSON (200000 bytes)"),
        (b"[]", "", "is not a JSON object"),
        (body(kind="other"), "kind", "is 'other', not 'note'"),
        (body(kind=None), "kind", "is missing"),
        (body(format=None), "format", "is missing"),
        (body(format=-1), "format", "is negative"),
        (body(format=True), "format", "is not an integer"),
        (body(text="\ud800"), "text", "surrogate"),
        (body(sizes=[1, True]), "sizes[1]", "is not an integer"),
        (body(sizes=[1, 2.0]), "sizes[1]", "is not an integer"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value,
)
def test_what_is_damaged_is_named(given: bytes, field: str, what: str) -> None:
    error = refused(given)
    assert error.field == field
    assert what in error.message
    assert "do not delete it" in str(error)


def test_a_newer_format_asks_for_an_upgrade() -> None:
    error = refused(body(format=FORMAT + 1, text=7))
    assert (error.field, "Upgrade" in str(error)) == ("format", True)
