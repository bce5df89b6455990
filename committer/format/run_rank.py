"""Rank of a run: how new it is beside others that load the same partition.

Under ``on_conflict=newest_run`` a late run does not replace rows of a newer one. The program that
submits the job says how new the run is: by an orchestrator's data interval, or a number of the
user's own. Otherwise the time at which the job opened counts.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from ..errors import InvalidInputError
from .given_numbers import finite_number
from .layout import UNPARTITIONED, job_began

#: From here on, not every whole number has a float of its own.
_GREATEST = 2**53
_NUMBER = re.compile(r"[+-]?[0-9]{1,16}(\.[0-9]{1,9})?")
#: Length in characters from which the text of ranks is compressed: a variable of a process holds
#: 128 KiB, and the names of the partitions, in a variable of their own, are half as long.
_LONG = 64 * 1024
#: Beginning of a compressed text; and the longest text that is decompressed.
_COMPRESSED, _LONGEST = "zlib:", 64 * 1024 * 1024
_WANTED = "a number below 2^53, or a date or time as 2013-01-02 or 2013-01-02T06:00:00+00:00"


class RankKind(StrEnum):
    """Kind of a rank's value. Ranks of two kinds cannot be compared."""

    #: A time, in Unix seconds.
    TIME = "time"
    #: A number of the user's own.
    NUMBER = "number"


@dataclass(frozen=True)
class RunRank:
    """The rank of a run: a greater rank is newer.

    :param value: Unix seconds, or a number.
    :param then: the time at which the run was made, in Unix seconds; it decides between runs of
        equal ``value``.
    :param kind: the kind of ``value``.
    """

    value: float
    then: float = 0.0
    kind: RankKind = RankKind.TIME

    def __post_init__(self) -> None:
        """Refuse a rank that no record can hold: a head with such a rank could not be read.

        :raises InvalidInputError: a number that is not finite, or another kind.
        """
        for name in ("value", "then"):
            object.__setattr__(self, name, _finite(name, getattr(self, name)))
        try:
            object.__setattr__(self, "kind", RankKind(self.kind))
        except ValueError as error:
            raise InvalidInputError(
                f"The kind of a RunRank is {self.kind!r}; nothing was sent.",
                remedy=f"Choose one of {', '.join(RankKind)}.",
            ) from error

    @staticmethod
    def of(given: object, then: datetime | None = None) -> RunRank:
        """Parse a rank that a user gives.

        :param given: a number, a date or time (UTC if it has no zone), or a text of one of these.
        :param then: when the run was made.
        :raises InvalidInputError: ``given`` is none of these.
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
        """Refuse a comparison with a rank of another kind.

        :param other: the other rank; any rank compares with ``None``.
        :param where: the place of the rows of the other rank, for the error.
        :raises InvalidInputError: the two ranks are of different kinds.
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
        """Return whether a run of this rank is newer than a run of another rank.

        :param other: the other rank; ``None``: the other run has none, and this run is newer.
        :raises InvalidInputError: the two ranks are of different kinds.
        """
        if other is None:
            return True
        self.check_kind(other)
        return (self.value, self.then) > (other.value, other.then)

    def __str__(self) -> str:
        if self.kind is RankKind.NUMBER:
            return f"{self.value:g}" if self.value != int(self.value) else f"{int(self.value)}"
        try:
            return datetime.fromtimestamp(self.value, UTC).isoformat()
        except (OverflowError, ValueError, OSError):  # It is read from a variable, too.
            return f"{self.value:g} s"


def _finite(name: str, given: object) -> float:
    """Return a number of a rank.

    :param name: the field's name, for the error.
    :raises InvalidInputError: it is not a finite number.
    """
    number = finite_number(given)
    if number is None:
        raise InvalidInputError(
            f"{name}={given!r:.100} of a RunRank is not a finite number; nothing was sent.",
            remedy=f"Give {_WANTED}, by RunRank.of.",
        )
    return number


def _number(given: object) -> float | None:
    """Parse a number that a user gives; ``None``: not a number, or too large for an exact float."""
    if isinstance(given, bool | date):
        return None
    text = str(given).strip()
    if not isinstance(given, float) and not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) < _GREATEST else None


def _seconds(given: date) -> float:
    """Return a date or time in Unix seconds; without a zone it is UTC."""
    if not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day, tzinfo=UTC)
    # A library's subclass of datetime may do arithmetic of its own.
    given = datetime.fromisoformat(given.isoformat())
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True)
class RunRanks:
    """The ranks of a job's run by partition.

    :param by_partition: the rank under :data:`.layout.UNPARTITIONED` holds for all partitions that
        are not named.
    """

    by_partition: Mapping[str, RunRank]

    def __post_init__(self) -> None:
        """Refuse ranks that are not of class :class:`RunRank`.

        :raises InvalidInputError: there are such ranks.
        """
        for name, rank in self.by_partition.items():
            if not isinstance(rank, RunRank):
                raise InvalidInputError(
                    f"The rank of {name!r} in RunRanks is {rank!r:.100}, not a RunRank; nothing "
                    "was sent.",
                    remedy=f"Give RunRank.of(…), of {_WANTED}.",
                )

    @staticmethod
    def of(given: object) -> RunRanks:
        """Make ranks that are the same in all partitions.

        :param given: a rank, or what :meth:`RunRank.of` accepts.
        :raises InvalidInputError: ``given`` is not a valid rank.
        """
        rank = given if isinstance(given, RunRank) else RunRank.of(given)
        return RunRanks({UNPARTITIONED: rank})

    @staticmethod
    def parse(text: str) -> RunRanks:
        """Parse ranks from a text by :meth:`__str__`, or from the one rank that a user gives.

        :raises ValueError: the text is neither; the message says what a rank looks like.
        """
        try:
            if text.startswith(_COMPRESSED):
                text = _decompressed(text)
            if not text.lstrip().startswith("{"):
                return RunRanks.of(text)
            return RunRanks({name: rank_from_json(it) for name, it in json.loads(text).items()})
        except (ValueError, TypeError, RecursionError, zlib.error) as error:
            raise ValueError(f"is {_WANTED}") from error

    def rank(self, partition: str) -> RunRank | None:
        """Return the run's rank in a partition; ``None``: not ranked there."""
        return self.by_partition.get(partition, self.by_partition.get(UNPARTITIONED))

    def spelled(self, spell: Callable[[str], str]) -> RunRanks:
        """Return the ranks by the names that the table gives its partitions.

        If two names mean one partition, the newer rank counts.

        :param spell: returns a partition's name as the table stores it.
        :raises InvalidInputError: the table cannot have a partition of such a name, or two ranks of
            one partition do not compare.
        """
        found: dict[str, RunRank] = {}
        for name, rank in self.by_partition.items():
            stored = name if name == UNPARTITIONED else spell(name)
            if rank.is_newer_than(found.get(stored)):
                found[stored] = rank
        return RunRanks(found)

    def __str__(self) -> str:
        said = {name: rank_to_json(it) for name, it in self.by_partition.items()}
        text = json.dumps(said, separators=(",", ":"), sort_keys=True)
        if len(text) < _LONG:
            return text
        packed = base64.urlsafe_b64encode(zlib.compress(text.encode(), 9))
        return f"{_COMPRESSED}{packed.decode()}"


def _decompressed(text: str) -> str:
    """Return the JSON of a compressed text.

    :raises ValueError: the text is not compressed, or too long.
    :raises zlib.error: the same.
    """
    packed = base64.urlsafe_b64decode(text.removeprefix(_COMPRESSED))
    inflating = zlib.decompressobj()
    found = inflating.decompress(packed, _LONGEST)
    if not inflating.eof:
        raise ValueError("is longer than any ranks")
    return found.decode()


def rank_in(ranks: RunRanks | None, partition: str, job: str) -> RunRank | None:
    """Return the rank of a job's run in a partition; ``None``: it only rewrites existing rows.

    :param ranks: the ranks that the job was given; ``None``: the time at which the job began is its
        rank.
    """
    return RunRank(job_began(job)) if ranks is None else ranks.rank(partition)


def newest_of(rank: RunRank, *others: RunRank | None) -> RunRank:
    """Return the newest of ranks; those of another kind than the first one are ignored."""
    alike = [it for it in others if it is not None and it.kind is rank.kind]
    return max((rank, *alike), key=lambda it: (it.value, it.then))


#: Ranks of a job that only rewrites existing rows: the partitions keep their ranks.
NO_RANK = RunRanks({})


def rank_to_json(rank: RunRank) -> list[Any]:
    """Return a rank as a list of its members, without defaults at the end."""
    if rank.kind is not RankKind.TIME:
        return [rank.value, rank.then, rank.kind.value]
    return [rank.value, rank.then] if rank.then else [rank.value]


def rank_from_json(said: Any) -> RunRank:
    """Parse a rank from a list by :func:`rank_to_json`.

    :raises ValueError: the list is not a valid rank.
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
