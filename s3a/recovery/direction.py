"""Direction of a recovery, written into a dead job's magic tree before anything is done.

The first recoverer to write it wins (a conditional PUT); a second one, or a repeat after a crash,
reads it and goes the same way. It is deleted last of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from ...committer.errors import OutcomeUnknownError
from ...committer.layout import new_write_id
from ...committer.records.codec import decode, encode
from ...committer.records.marks import DEFAULTED
from ...committer.s3.conditional_put import NotWritten, Written, put_record
from ...committer.s3.requests import Delete, Found, Get, Put, Step, Unknown
from ..hadoop.magic_paths import DIRECTION_NAME

_KIND = "s3a-recovery"


@dataclass(frozen=True)
class _Said:
    """As much of a direction as is stored."""

    job: str
    forward: bool
    reason: Annotated[str, DEFAULTED] = ""


@dataclass(frozen=True)
class Direction(_Said):
    """A direction.

    :param reason: for people.
    :param etag: as it lies in the store.
    :param is_own: whether this recovery wrote it. Others may be acting on any other.
    """

    etag: str = ""
    is_own: bool = False


def direction_key(tree: str) -> str:
    return f"{tree}{DIRECTION_NAME}"


def read_direction(tree: str) -> Step[Direction | None]:
    """:raises RecordDamagedError: what is there cannot be read."""
    found = yield Get(direction_key(tree))
    return _decoded(found) if isinstance(found, Found) else None


def _decoded(found: Found) -> Direction:
    said = decode(found.body, _KIND, found.key).read(_Said)
    return Direction(**vars(said), etag=found.etag)


def decide(
    tree: str,
    wanted: Direction,
    before: Direction | None,
    write_id: Callable[[], str] = new_write_id,
) -> Step[Direction]:
    """Write a direction, or learn that another one stands.

    :param before: the direction this one replaces.
    :returns: the direction that stands.
    :raises OutcomeUnknownError: the store does not say whether it was written; nothing was done.
    """
    if before is not None and before.forward == wanted.forward:
        return before
    made = write_id()
    said = _Said(wanted.job, wanted.forward, wanted.reason)
    put = Put(
        direction_key(tree),
        encode(_KIND, made, said),
        if_none_match=before is None,
        if_match=before.etag if before else None,
    )
    outcome = yield from put_record(put, made)
    if isinstance(outcome, Written):
        return replace(wanted, etag=outcome.etag, is_own=True)
    if isinstance(outcome, NotWritten) and isinstance(outcome.current, Found):
        return _decoded(outcome.current)
    raise OutcomeUnknownError(
        "Whether this recovery's direction was written is not known; no file was touched.",
        job=wanted.job,
        key=put.key,
        remedy="Run the recovery again.",
    )


def withdraw(tree: str, direction: Direction) -> Step[bool]:
    """Delete a direction, unless another took its place.

    :returns: whether it is gone.
    """
    request = Delete(direction_key(tree), if_match=direction.etag)
    answer = yield request
    if isinstance(answer, Unknown):
        answer = yield request
    return not isinstance(answer, Unknown)
