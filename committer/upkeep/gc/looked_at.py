"""Note of how far gc has looked: decisions that it need not read again."""

from __future__ import annotations

from dataclasses import dataclass

from ...commit.state.context import Context
from ...errors import DamagedError
from ...format.records.codec import decode, encode
from ...format.records.head import JobId
from ...format.records.marks import Moment
from ...store.requests import LIST_BYTES, Absent, Get, Put, Step


@dataclass(frozen=True)
class LookedAt:
    """A note: without it all decisions are read again, and the same comes of it.

    :param before: decisions that were written before this are settled, or say *abort*;
    :param left: but those of these jobs.
    """

    write_id: str
    before: Moment
    left: tuple[JobId, ...]

    def encode(self) -> bytes:
        return encode("gc", self.write_id, self)


def read_note(context: Context) -> Step[LookedAt]:
    """The note; one of nothing where there is none, or it cannot be read."""
    found = yield from Get(context.root.gc_key, most=LIST_BYTES)
    if not isinstance(found, Absent):
        try:
            return decode(found.body, "gc", found.key).read(LookedAt)
        except DamagedError:
            pass
    return LookedAt("", 0.0, ())


def write_note(context: Context, before: float, left: tuple[str, ...]) -> Step[None]:
    """Write the note over the one that is there: of two either will do."""
    note = LookedAt(context.write_id(), before, left)
    yield from Put(context.root.gc_key, note.encode())
