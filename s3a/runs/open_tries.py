"""Open tries of a table: those of which it is not known what came of them.

Their operators renew them by heartbeats; recovery reads them, to tell a dead job from one at work,
and notes in them what it has committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...committer.errors import OutcomeUnknownError, RecordDamagedError
from ...committer.layout import TableRoot
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import Absent, All, Done, Found, Get, Put, Step
from .ledger import OPEN, TryRecord, close_try, keys_of_tries, open_key, runs_prefix

_CHANGES = 3


@dataclass(frozen=True)
class OpenTry:
    """An open try's record as recovery found it.

    :param record: ``None`` for one that cannot be read; ``damage`` says why.
    :param silent_for: seconds since it was last renewed, by the store's clock.
    """

    record: TryRecord | None
    silent_for: float
    damage: str = ""

    @property
    def is_renewed(self) -> bool:
        """Whether the try's operator sent a heartbeat lately."""
        return self.record is None or self.silent_for < self.record.patience


def open_tries(root: TableRoot) -> Step[tuple[OpenTry, ...]]:
    """All tries of a table of which it is not known what came of them."""
    listing = yield from list_objects(runs_prefix(root))
    keys = [key for key in keys_of_tries(listing.keys) if key.endswith(OPEN)]
    found = yield All(tuple(_read_open(key) for key in keys))
    return tuple(one for one in found if one is not None)


def _read_open(key: str) -> Step[OpenTry | None]:
    found = yield Get(key)
    if isinstance(found, Absent):
        return None  # Closed since the listing.
    silent_for = max(0.0, found.date - found.last_modified)
    try:
        return OpenTry(_opened(found), silent_for)
    except RecordDamagedError as error:
        return OpenTry(None, silent_for, str(error))


def renew_try(root: TableRoot, record: TryRecord, **changes: Any) -> Step[bool]:
    """Change an open try's record, as for a heartbeat; one that was closed stays so.

    :returns: whether it is changed. A heartbeat that is not sent is made good by the next.
    """
    key = open_key(root, record.once, record.uuid)
    found = yield Get(key)
    if isinstance(found, Absent):
        return False
    new = replace(_opened(found), **changes)
    return isinstance((yield Put(key, new.encode(), if_match=found.etag)), Done)


def note_recovered(root: TableRoot, record: TryRecord, job: str) -> Step[None]:
    """Say in an open try's record that recovery committed a job of it, for its retry to read.

    :raises OutcomeUnknownError: the store does not say whether it was written.
    """
    key = open_key(root, record.once, record.uuid)
    for _ in range(_CHANGES):
        found = yield Get(key)
        if isinstance(found, Absent):
            return
        current = _opened(found)
        if job in current.recovered:
            return
        new = replace(current, recovered=(*current.recovered, job))
        if isinstance((yield Put(key, new.encode(), if_match=found.etag)), Done):
            return
    raise OutcomeUnknownError(
        f"Whether the record of try {record.uuid} says that its job was committed is not known.",
        table=root.url,
        key=key,
        remedy="Run the recovery again.",
    )


def forget_try(root: TableRoot, record: TryRecord) -> Step[None]:
    """Close an open try of which nothing stays, in the state that it has: its run's next try says
    what came of it."""
    found = yield Get(open_key(root, record.once, record.uuid))
    if isinstance(found, Found):
        yield from close_try(root, _opened(found))


def _opened(found: Found) -> TryRecord:
    record = TryRecord.decode(found.body, found.key)
    return record if record.opened_at else replace(record, opened_at=found.last_modified)
