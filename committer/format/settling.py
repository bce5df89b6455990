"""Settlement of a conflict of runs over a partition: which run stands, and which gave way."""

from __future__ import annotations

from dataclasses import dataclass

from .run_rank import RunRank


@dataclass(frozen=True)
class SettledRuns:
    """Runs whose conflict over a partition is settled for one of them.

    :param stands: the idempotency key of that one.
    :param losers: the keys of the others.
    """

    stands: str
    losers: tuple[str, ...]


@dataclass(frozen=True)
class Settling:
    """What a job settles in a partition.

    :param rank: the highest of the conflict, which the partition then has; ``None``: none is known,
        so it has the job's own.
    """

    runs: SettledRuns
    rank: RunRank | None = None
