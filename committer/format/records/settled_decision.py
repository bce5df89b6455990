"""Settled decisions: what is left of a commit decision that was applied long ago. There is one for
each job, for good, so it is small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Annotated

from ..job_spec import Mode
from .codec import decode, encode
from .marks import LEFT_OUT, Count, Moment
from .partition_decision import PartitionDecision, Sums

_KIND = "settled"
_FORMAT = 2
_SAYS_SO = re.compile(rb'"kind"\s*:\s*"settled"')
#: The base epoch, the sums, and whether it replaced what was there.
_NUMBERS = 6


@dataclass(frozen=True)
class SettledDecision:
    """The record. Whoever writes it for a job writes the same bytes.

    :param write_id: the job's id, which no other record has for one.
    :param changes: by partition: the base epoch, files, their rows and bytes, removed files, and 1
        for a replace, else 0.
    :param dropped: by partition: the earlier job of the run whose files went.
    :param merged: by partition: jobs whose rows were written again.
    """

    write_id: str
    decided_at: Moment
    changes: Mapping[str, tuple[Count, ...]]
    mode: Annotated[Mode, LEFT_OUT] = Mode.APPEND
    once: Annotated[str | None, LEFT_OUT] = None
    once_epoch: Annotated[Count, LEFT_OUT] = 0
    dropped: Annotated[Mapping[str, str] | None, LEFT_OUT] = None
    merged: Annotated[Mapping[str, tuple[str, ...]] | None, LEFT_OUT] = None

    @staticmethod
    def of(
        job: str,
        at: float,
        partitions: Iterable[PartitionDecision],
        mode: Mode,
        once: str | None,
        once_epoch: int,
    ) -> SettledDecision:
        """:param at: when it was decided."""
        partitions = tuple(partitions)
        return SettledDecision(
            job,
            at,
            {it.partition: _numbers(it) for it in partitions},
            mode,
            once,
            once_epoch,
            {it.partition: it.dropped_job for it in partitions if it.dropped_job} or None,
            {it.partition: it.merged for it in partitions if it.merged} or None,
        )

    @property
    def partitions(self) -> tuple[PartitionDecision, ...]:
        dropped, merged = self.dropped or {}, self.merged or {}
        return tuple(
            PartitionDecision(
                name,
                epoch,
                bool(replace),
                dropped_job=dropped.get(name),
                merged=merged.get(name, ()),
                settled=Sums(*sums),
            )
            for name, (epoch, *sums, replace) in self.changes.items()
        )

    def encode(self) -> bytes:
        return encode(_KIND, self.write_id, self, _FORMAT)

    @staticmethod
    def is_one(body: bytes) -> bool:
        """Whether a decision's bytes are those of a settled one."""
        return _SAYS_SO.search(body[:80]) is not None

    @staticmethod
    def decode(body: bytes, key: str) -> SettledDecision:
        """:raises RecordDamagedError: it cannot be read."""
        document = decode(body, _KIND, key)
        settled = document.read(SettledDecision)
        if any(len(numbers) != _NUMBERS for numbers in settled.changes.values()):
            raise document.damaged("changes", f"has a list of other than {_NUMBERS} numbers")
        return settled


def _numbers(change: PartitionDecision) -> tuple[int, ...]:
    return (change.base_epoch, *astuple(change.sums), int(change.replace))
