"""Settlement of a conflict of runs over a partition: the run that stands, and the losers."""

from __future__ import annotations

from dataclasses import dataclass

from .run_rank import RunRank


@dataclass(frozen=True)
class SettledRuns:
    """Runs whose conflict over a partition is settled in favour of one of them.

    :param stands: the idempotency key of the run that stands.
    :param losers: the keys of the others.
    """

    stands: str
    losers: tuple[str, ...]


@dataclass(frozen=True)
class Settling:
    """A conflict over a partition that a job settles.

    :param rank: the highest rank of the conflict, which the partition has afterwards; ``None``:
        none is known, so the partition has the rank of the job's run.
    """

    runs: SettledRuns
    rank: RunRank | None = None
