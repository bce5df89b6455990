"""Rank of a run: how new it is beside others that load the same partition.

Under ``on_conflict=newest_run`` a late run does not take the place of rows of a newer one. What the
user calls newer comes from whoever runs the job: an orchestrator's data interval, a number of the
user's own; of a program that nobody runs, the time at which its job opened.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from ..errors import InvalidInputError
from .layout import UNPARTITIONED, job_began

#: Beyond this not every whole number is a float of its own.
_GREATEST = 2**53
_NUMBER = re.compile(r"[+-]?[0-9]{1,16}(\.[0-9]{1,9})?")
_WANTED = "a number below 2^53, or a date or time as 2013-01-02 or 2013-01-02T06:00:00+00:00"


class RankKind(StrEnum):
    """What ranks are measured in."""

    #: Seconds since the epoch.
    TIME = "time"
    #: A user's own count.
    NUMBER = "number"


@dataclass(frozen=True)
class RunRank:
    """How new a run is.

    :param value: the greater, the newer: seconds since the epoch, or a number.
    :param then: of two runs of one value, seconds since the epoch by which the later one is newer.
    :param kind: what ``value`` is.
    """

    value: float
    then: float = 0.0
    kind: RankKind = RankKind.TIME

    @staticmethod
    def of(given: object, then: datetime | None = None) -> RunRank:
        """Read a rank that a user gives.

        :param given: a number, a date or time (UTC where it has no zone), or a text of one.
        :param then: when the run was made.
        :raises InvalidInputError: it is none of these.
        """
        later = 0.0 if then is None else _seconds(then)
        number = _number(given)
        if number is not None:
            return RunRank(number, later, RankKind.NUMBER)
        try:
            moment = (
                given if isinstance(given, date) else datetime.fromisoformat(str(given).strip())
            )
            return RunRank(_seconds(moment), later)
        except ValueError as error:
            raise InvalidInputError(
                f"run_rank is {given!r}; nothing was sent.", remedy=f"Give {_WANTED}."
            ) from error

    def check_kind(self, other: RunRank | None, where: str = "that are there") -> None:
        """Refuse to compare a rank with one that is measured in another thing.

        :param where: says which rows have the other one, for the error.
        :raises InvalidInputError: the two are.
        """
        if other is not None and other.kind is not self.kind:
            raise InvalidInputError(
                f"The run's rank is {self}, and the rank of the rows {where} is {other}: a "
                f"{self.kind} and a {other.kind} do not say which run is newer. Nothing of this "
                "job is visible.",
                remedy="Give all runs of a table ranks of one kind, by run_rank. To begin with "
                "another kind, load the partition once with on_conflict='last_wins'.",
            )

    def is_newer_than(self, other: RunRank | None) -> bool:
        """Tell whether a run of this rank is newer than one of another. Any is newer than one
        without a rank.

        :raises InvalidInputError: the two are measured in different things.
        """
        if other is None:
            return True
        self.check_kind(other)
        return (self.value, self.then) > (other.value, other.then)

    def __str__(self) -> str:
        if self.kind is RankKind.NUMBER:
            return f"{self.value:g}" if self.value != int(self.value) else f"{int(self.value)}"
        return datetime.fromtimestamp(self.value, UTC).isoformat()


def _number(given: object) -> float | None:
    """Read a number that a user gives; ``None``: it is none, or no float is exactly it."""
    if isinstance(given, bool | date):
        return None
    text = str(given).strip()
    if not isinstance(given, float) and not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) < _GREATEST else None


def _seconds(given: date) -> float:
    """Return a date or time in seconds since the epoch; without a zone it is UTC."""
    if not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day, tzinfo=UTC)
    # Not the datetime of a library, which may do arithmetic of its own.
    given = datetime.fromisoformat(given.isoformat())
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True)
class RunRanks:
    """How new a job's run is, in each partition.

    :param by_partition: under :data:`.layout.UNPARTITIONED`, in all others.
    """

    by_partition: Mapping[str, RunRank]

    @staticmethod
    def of(given: object) -> RunRanks:
        """Give a run the same rank in all partitions.

        :param given: as for :meth:`RunRank.of`, or a rank.
        :raises InvalidInputError: it is no rank.
        """
        rank = given if isinstance(given, RunRank) else RunRank.of(given)
        return RunRanks({UNPARTITIONED: rank})

    @staticmethod
    def parse(text: str) -> RunRanks:
        """Read ranks from a text: of :meth:`__str__`, or the one rank that a user gives.

        :raises ValueError: with what it should have been.
        """
        try:
            if not text.lstrip().startswith("{"):
                return RunRanks.of(text)
            return RunRanks({name: rank_from_json(it) for name, it in json.loads(text).items()})
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"is {_WANTED}") from error

    def rank(self, partition: str) -> RunRank | None:
        """Return the run's rank in a partition; ``None``: it has none there."""
        return self.by_partition.get(partition, self.by_partition.get(UNPARTITIONED))

    def spelled(self, spell: Callable[[str], str]) -> RunRanks:
        """Return the ranks by the names that a table gives its partitions. Of two for one partition
        the newer one counts.

        :param spell: returns a partition's name as the table stores it.
        :raises InvalidInputError: the table cannot have one of them, or two do not compare.
        """
        found: dict[str, RunRank] = {}
        for name, rank in self.by_partition.items():
            stored = name if name == UNPARTITIONED else spell(name)
            if rank.is_newer_than(found.get(stored)):
                found[stored] = rank
        return RunRanks(found)

    def __str__(self) -> str:
        said = {name: rank_to_json(it) for name, it in self.by_partition.items()}
        return json.dumps(said, separators=(",", ":"), sort_keys=True)


def rank_in(ranks: RunRanks | None, partition: str, job: str) -> RunRank | None:
    """Return the rank of a job's run in a partition; ``None``: it only writes again what is there.

    :param ranks: as the job was given them; ``None``: it is as new as the job.
    """
    return RunRank(job_began(job)) if ranks is None else ranks.rank(partition)


def newest_of(rank: RunRank, *others: RunRank | None) -> RunRank:
    """Return the newest of ranks; those of another kind than the first do not count."""
    alike = [it for it in others if it is not None and it.kind is rank.kind]
    return max((rank, *alike), key=lambda it: (it.value, it.then))


#: Of a job that writes again what is there: the partitions keep their ranks.
NO_RANK = RunRanks({})


def rank_to_json(rank: RunRank) -> list[Any]:
    """Write a rank as a list of its members, without those at the end that have their default."""
    if rank.kind is not RankKind.TIME:
        return [rank.value, rank.then, rank.kind.value]
    return [rank.value, rank.then] if rank.then else [rank.value]


def rank_from_json(said: Any) -> RunRank:
    """Read a rank from a list of :func:`rank_to_json`.

    :raises ValueError: it is no rank.
    """
    if type(said) is not list or not 0 < len(said) <= 3:
        raise ValueError("is no list of one to three")
    try:
        numbers = [float(it) for it in said[:2] if type(it) in (int, float)]
    except OverflowError as error:
        raise ValueError("has a number that is no float") from error
    if len(numbers) != len(said[:2]) or not all(map(math.isfinite, numbers)):
        raise ValueError("has no number")
    value, then = (*numbers, 0.0)[:2]
    return RunRank(value, then, RankKind(said[2]) if len(said) > 2 else RankKind.TIME)
