"""Failure record: the last failure of a run's application, for the program that submitted it.

An exit code alone says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from ...errors import (
    CommitConflictError,
    InvalidInputError,
    RefusedError,
    StoreRefusedError,
    StoreUnfitError,
    SupersededRunError,
    TableMismatchError,
    ZeroRenameError,
)
from ..job_spec import Owner
from ..layout import TableRoot
from ..run_rank import RunRanks
from .codec import decode, encode
from .marks import LEFT_OUT
from .partition_ranks import Ranks

#: Errors that the next attempt would meet again, or hide. It would hide a conflict under
#: on_conflict=fail: it begins on the present state, finds no conflict, and overwrites the other
#: job's rows. It would also hide a second writer on a store that allows only one at a time.
_FINAL = (
    InvalidInputError,
    TableMismatchError,
    CommitConflictError,
    SupersededRunError,
    StoreUnfitError,
)
#: Most partitions of a run that are recorded. A run of more is a backfill, as its owner shows.
_MOST_NAMED = 1_000


def is_final(error: ZeroRenameError, root: TableRoot | None) -> bool:
    """Return whether another attempt would meet the same error again, or hide it.

    An error that hides a conflict (:attr:`.RefusedError.overtaken`) is final, too: a job that was
    fenced while it held its claims was fenced by a job that wanted to claim the same heads.

    Nor does another attempt find a bucket that is missing.

    A conflict over the run's own idempotency key is not final: another attempt did the run's work,
    and the next one reports it.

    :param root: root of the table that the error is about; ``None``: it is about no table.
    """
    over_run = root is not None and (error.key or "").startswith(root.runs_prefix)
    overtaken = isinstance(error, RefusedError) and error.overtaken
    no_bucket = isinstance(error, StoreRefusedError) and error.no_bucket
    return overtaken or no_bucket or (isinstance(error, _FINAL) and not over_run)


@dataclass(frozen=True)
class Failure:
    """The last failure of a run's application. The run's next failure overwrites it.

    :param error: the name of the error's class.
    :param final: another attempt would meet the error again, or hide it.
    :param partitions: the partitions that the run was to write; empty: any partitions, or more than
        are recorded.
    :param skips: the run gave way to newer runs under ``on_superseded=skip``, so its task is
        skipped.
    :param gave_way: partitions in which the run gave way, each with the job that was there first.
    :param ranks: the ranks of the run in them.
    """

    write_id: str
    idempotency_key: str
    owner: Owner
    error: str
    message: str
    remedy: str | None
    job: str | None
    key: str | None
    final: bool
    partitions: Annotated[tuple[str, ...], LEFT_OUT] = ()
    skips: Annotated[bool, LEFT_OUT] = False
    gave_way: Annotated[Mapping[str, str] | None, LEFT_OUT] = None
    ranks: Ranks = None

    @staticmethod
    def of(
        error: ZeroRenameError,
        root: TableRoot,
        idempotency_key: str,
        owner: Owner,
        write_id: str,
        partitions: Iterable[str] = (),
    ) -> Failure:
        """Make the failure record of an error."""
        named = tuple(sorted(partitions))
        refused = error if isinstance(error, RefusedError) else RefusedError("")
        gave_way = dict(sorted(refused.gave_way.items())[:_MOST_NAMED])
        return Failure(
            write_id,
            idempotency_key,
            owner,
            type(error).__name__,
            error.message,
            error.remedy,
            error.job,
            error.key,
            is_final(error, root),
            named if len(named) <= _MOST_NAMED else (),
            isinstance(error, SupersededRunError) and error.skips,
            gave_way or None,
            RunRanks.parse(refused.run_ranks) if refused.run_ranks else None,
        )

    def encode(self) -> bytes:
        return encode("failure", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> Failure:
        return decode(body, "failure", key).read(Failure)
