"""Former states that a partition's head keeps, so that they can be read and taken back.

The versions from one move that stops naming files to the next are one *line*: each of them names
what the one before it did and the files of one job more. So a line is kept by what its last version
names and by the jobs that led there, and every version of it can be told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from .marks import LEFT_OUT, Count, JobId, Moment
from .partition_ranks import NO_RANKS, PartitionRanks

#: Lines that a head keeps beside the one that it is in.
MOST_KEPT = 64
#: Versions that can be told within the line that a head is in, and within those before it; of older
#: lines the last one only.
_MOST_VERSIONS = 64


@dataclass(frozen=True)
class NamedManifest:
    """A manifest, named by key and ETag.

    :param files: how many it lists; 0: not known.
    """

    key: str
    etag: str
    files: Annotated[Count, LEFT_OUT] = 0


@dataclass(frozen=True)
class Move:
    """One version of a line.

    :param job: which moved the head to it.
    :param since: from when it counts, by the store's clock.
    :param ranks: how new the runs are whose rows it has.
    """

    version: Count
    job: JobId
    since: Moment
    ranks: Annotated[PartitionRanks, LEFT_OUT] = NO_RANKS


@dataclass(frozen=True)
class KeptState:
    """A line that is over, as its last version left it.

    :param until: when the next one began to count.
    :param moves: its versions, oldest first, the last among them; older ones may be forgotten.
    :param decisions: as in the head; so too ``manifests``, ``dropped`` and ``schema_version``.
    """

    until: float
    moves: tuple[Move, ...]
    decisions: Annotated[tuple[JobId, ...], LEFT_OUT] = ()
    manifests: Annotated[tuple[NamedManifest, ...], LEFT_OUT] = ()
    dropped: Annotated[tuple[JobId, ...], LEFT_OUT] = ()
    schema_version: Annotated[Count, LEFT_OUT] = 0

    def as_of(self, version: int) -> KeptState | None:
        """What a version of this line named; ``None``: it is none of those that are known."""
        known = [move.version for move in self.moves]
        if version not in known:
            return None
        moves = self.moves[: known.index(version) + 1]
        later = [move.job for move in self.moves[len(moves) :]]
        # Decisions that were folded since lie in manifests, whose files say whose they are.
        folded = [job for job in later if job not in self.decisions]
        return replace(
            self,
            moves=moves,
            decisions=tuple(job for job in self.decisions if job not in later),
            dropped=(*self.dropped, *folded) if self.manifests else (),
        )


#: What a partition held before its first job.
NOTHING = KeptState(0.0, ())


def as_of(lines: Sequence[KeptState], version: int) -> KeptState | None:
    """What a head named at a version; ``None``: it is not kept, or never was.

    :param lines: of the head, oldest first, the one that it is in among them.
    """
    if version == 0:
        return NOTHING if _from_the_first(lines) else None
    found = (line.as_of(version) for line in lines)
    return next((it for it in found if it is not None), None)


def version_at(lines: Sequence[KeptState], at: float) -> int | None:
    """The version that counted at a time; ``None``: it is not known any more.

    :param lines: as in :func:`as_of`.
    """
    for line in reversed(lines):
        if at >= line.until:
            return None  # The first versions of the next line are forgotten.
        for move in reversed(line.moves):
            if move.since <= at:
                return move.version
    return 0 if _from_the_first(lines) else None


def _from_the_first(lines: Sequence[KeptState]) -> bool:
    oldest = next((line.moves for line in lines if line.moves), ())
    return not oldest or oldest[0].version == 1


def bounded(kept: Iterable[KeptState], moves: Sequence[Move]) -> tuple[KeptState, ...]:
    """As much of what is kept as a head may carry.

    :param moves: those of the line that the head is in, which count too.
    """
    result: list[KeptState] = []
    left = _MOST_VERSIONS - len(moves)
    for line in reversed(tuple(kept)[-MOST_KEPT:]):
        number = max(1, min(left, len(line.moves)))
        left -= number
        result.append(replace(line, moves=line.moves[-number:]))
    return tuple(reversed(result))


def line_of(moves: Sequence[Move]) -> tuple[Move, ...]:
    """As many of a line's versions as a head may carry while it is in it."""
    return tuple(moves[-_MOST_VERSIONS:])


#: The end of a line that is not over.
STILL = math.inf
