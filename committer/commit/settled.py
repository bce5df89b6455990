"""Settled conflicts, read from the heads of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..format.records.head import Slot
from ..format.settling import SettledRuns
from ..store.requests import All, Step
from .state.context import Context
from .state.heads import read_head


@dataclass(frozen=True)
class SettledPartition:
    """A partition's version, and the last conflict over it that was settled.

    :param version: how many jobs have changed it; 0: none has.
    :param job: the last of these jobs.
    :param runs: the runs of that conflict; ``None``: there was none, or another run has replaced
        the partition since.
    """

    version: int
    job: str | None
    runs: SettledRuns | None


def read_settled(context: Context, partitions: Iterable[str]) -> Step[dict[str, SettledPartition]]:
    """Read which conflicts over partitions are settled: a request for each partition.

    :raises RecordDamagedError: a head cannot be read.
    """
    slots = [Slot.partition(context.root, name) for name in dict.fromkeys(partitions)]
    states = yield from All(tuple(read_head(context, slot) for slot in slots))
    return {
        it.slot.name: SettledPartition(it.head.version, it.head.last_job, it.head.ranks.settled)
        for it in states
    }
