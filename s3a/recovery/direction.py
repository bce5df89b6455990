"""Direction of a recovery, written into a dead job's magic tree before anything is done.

The first recoverer to write it wins (a conditional PUT); a second one, or a repeat after a crash,
reads it and goes the same way. It is deleted last of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from ...committer.errors import OutcomeUnknownError
from ...committer.format.layout import new_write_id
from ...committer.format.records.codec import decode, encode
from ...committer.format.records.marks import DEFAULTED
from ...committer.store.conditional_put import NotWritten, Written, put_record
from ...committer.store.requests import Delete, Found, Get, Put, Step, Unknown
from ..hadoop.magic_paths import DIRECTION_NAME

_KIND = "s3a-recovery"


@dataclass(frozen=True)
class Direction:
    """A direction, as it is stored; ``reason`` is for people."""

    job: str
    forward: bool
    reason: Annotated[str, DEFAULTED] = ""


@dataclass(frozen=True)
class StandingDirection:
    """One that stands. ``is_own``: this recovery wrote it; on any other, others may be acting."""

    said: Direction
    etag: str
    is_own: bool = False


def direction_key(tree: str) -> str:
    return f"{tree}{DIRECTION_NAME}"


def read_direction(tree: str) -> Step[StandingDirection | None]:
    """:raises RecordDamagedError: what is there cannot be read."""
    found = yield from Get(direction_key(tree))
    return _decoded(found) if isinstance(found, Found) else None


def _decoded(found: Found) -> StandingDirection:
    return StandingDirection(decode(found.body, _KIND, found.key).read(Direction), found.etag)


def decide(
    tree: str,
    wanted: Direction,
    before: StandingDirection | None,
    write_id: Callable[[], str] = new_write_id,
) -> Step[StandingDirection]:
    """Write a direction in the place of the one before, or learn which other one stands.

    :raises OutcomeUnknownError: the store does not say whether it was written; nothing was done.
    """
    if before is not None and before.said.forward == wanted.forward:
        return before
    made = write_id()
    body, etag = encode(_KIND, made, wanted), before.etag if before else None
    put = Put(direction_key(tree), body, if_none_match=etag is None, if_match=etag)
    outcome = yield from put_record(put, made)
    if isinstance(outcome, Written):
        return StandingDirection(wanted, outcome.etag, is_own=True)
    if isinstance(outcome, NotWritten) and isinstance(outcome.current, Found):
        return _decoded(outcome.current)
    raise OutcomeUnknownError(
        "Whether this recovery's direction was written is not known; no file was touched.",
        job=wanted.job,
        key=put.key,
        remedy="Run the recovery again.",
    )


def withdraw(tree: str, direction: StandingDirection) -> Step[bool]:
    """Delete a direction, unless another took its place. Returns whether it is gone."""
    request = Delete(direction_key(tree), if_match=direction.etag)
    answer = yield from request
    if isinstance(answer, Unknown):
        answer = yield from request
    return not isinstance(answer, Unknown)
