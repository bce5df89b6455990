"""The last failure of a run's application, for whoever submitted it: an exit code says little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from ...errors import (
    CommitConflictError,
    InvalidInputError,
    RefusedError,
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

#: Errors that the next try would meet again, or hide: a conflict under on_conflict=fail is gone in
#: a try that begins on what is there now, and that try would overwrite it. So is another writer,
#: where the store can hold one at a time.
_FINAL = (
    InvalidInputError,
    TableMismatchError,
    CommitConflictError,
    SupersededRunError,
    StoreUnfitError,
)
#: Partitions that are kept of a run; one of more is a backfill, which its owner tells.
_MOST_NAMED = 1_000


def is_final(error: ZeroRenameError, root: TableRoot | None) -> bool:
    """Whether running the same again would meet an error again, or hide it.

    So is any error that hides such a conflict (:attr:`.RefusedError.overtaken`): a job that was
    fenced while it held its claims was fenced by who wanted them.

    A conflict over the run's own idempotency key is not final: another try did the run's work,
    which the next one reports.

    :param root: of the table that the error is about; ``None``: of none.
    """
    over_run = root is not None and (error.key or "").startswith(root.runs_prefix)
    overtaken = isinstance(error, RefusedError) and error.overtaken
    return overtaken or (isinstance(error, _FINAL) and not over_run)


@dataclass(frozen=True)
class Failure:
    """Written over by the next failure of the same run.

    :param error: the class of the error.
    :param final: whether running the same again cannot mend it, or would hide it.
    :param partitions: that the run was to write; empty: any, or more than are kept.
    :param skips: the run has given way to newer ones, as it was told to: its task is skipped.
    :param gave_way: partitions in which it gave way, each with the job that was there first.
    :param ranks: how new the run is in them.
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
        """What an error says, on record."""
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
