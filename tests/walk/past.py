"""The past, as the oracle has it: what each partition held at each of its versions, since when, and
how much of it must still be there; and jobs that bring it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from walk.oracle import Effect, Oracle, Row, State, Violation, rows_of

#: Seconds for which a table keeps what was replaced, where nobody has said it.
RETENTION = 7 * 24 * 3600.0


@dataclass
class Past:
    """Versions are counted by partition: how many decisions have named it.

    :param kept_from: by partition, the version from which on all must be there; 0: all.
    :param retentions: what the retention may be: that of a job that said it and died is not known.
    :param forgot: how often somebody may have let the table forget.
    :param looks: times of which the state was read, and the partitions.
    """

    oracle: Oracle
    kept_from: dict[str, int] = field(default_factory=dict)
    retentions: set[float] = field(default_factory=lambda: {RETENTION})
    forgot: int = 0
    looks: list[tuple[float, Collection[str] | None]] = field(default_factory=list)

    def numbers(self, partition: str) -> list[int]:
        """The numbers of the decisions that name a partition."""
        return [n for n, named in enumerate(self.oracle.named) if partition in named]

    def version(self, partition: str) -> int:
        """The one that it is at."""
        return len(self.numbers(partition))

    def state_of(self, partition: str, version: int) -> int:
        """The number of the state in which it came to a version."""
        return self.numbers(partition)[version - 1] + 1 if version else 0

    def held(self, partition: str, version: int) -> Mapping[str, tuple[Row, ...]]:
        """What it held at a version, by job."""
        return self.oracle.states[self.state_of(partition, version)].get(partition, {})

    def version_at(self, partition: str, time: float) -> int:
        """The one that counted at a time."""
        since = [self.oracle.since[number] for number in self.numbers(partition)]
        return sum(it <= time for it in since)

    def at(self, time: float) -> dict[str, int]:
        """The versions that counted at a time."""
        return {name: self.version_at(name, time) for name in self.names()}

    def names(self) -> list[str]:
        """All partitions that a decision names."""
        return sorted({name for named in self.oracle.named for name in named})

    def is_of_former_columns(self, partition: str, version: int, others: bool = True) -> bool:
        """Whether its files have columns that were overwritten since.

        :param others: by others; ``False``: or by those that were there.
        """
        by = self.oracle.overwritten
        last = by[True] if others else max(by.values())
        return version > 0 and self.state_of(partition, version) < last

    def must_be_told(self, partition: str, version: int) -> bool:
        """Whether a reader of it must not be refused."""
        if version > self.version(partition):
            return False
        if self.is_of_former_columns(partition, version, others=False):
            return False
        return version >= self.kept_from.get(partition, 0)

    def why_not_undone(self, job: str) -> str:
        """Why a job cannot be undone; ``""``: it can, and nobody may be refused it."""
        oracle = self.oracle
        if job not in oracle.commits:
            return "it has not committed"
        for name in oracle.named[oracle.commits.index(job)]:
            if oracle.touches(name)[-1] != job:
                return f"{oracle.touches(name)[-1]} has built on it in {name}"
            if not self.must_be_told(name, self.version(name) - 1):
                return f"what {name} held before may be forgotten"
        return ""

    # What is forgotten

    def may_forget(self, now: float, keep: int | None) -> None:
        """Somebody lets the table forget what is kept for longer than its retention, or beyond so
        many states that were replaced."""
        self.forgot += 1
        before = now - min(self.retentions)
        for name in self.names():
            lines = self._lines(name)
            left = [first for first, until in lines[:-1] if until >= before]
            left = left[max(0, len(left) - (64 if keep is None else keep)) :]
            if len(left) < len(lines) - 1:
                first = (*left, lines[-1][0])[0]
                self.kept_from[name] = max(first, self.kept_from.get(name, 0))

    def _lines(self, partition: str) -> list[tuple[int, float]]:
        """The first version of each run of versions that only added, and until when it lasted."""
        numbers = self.numbers(partition)
        first = [
            version
            for version, number in enumerate(numbers, 1)
            if version == 1 or partition in self.oracle.breaks[number]
        ]
        begun = [self.oracle.since[numbers[version - 1]] for version in first]
        return list(zip(first, (*begun[1:], float("inf")), strict=True))

    # What was read of a time stays so

    def looked(self, time: float, partitions: Collection[str] | None) -> None:
        """A reader was given what counted at a time."""
        self.looks.append((time, partitions))

    def decided(self) -> None:
        """A decision has come.

        :raises Violation: it counts from a time that somebody has read without it.
        """
        oracle = self.oracle
        if not oracle.commits:
            return
        job, since, named = oracle.commits[-1], oracle.since[-1], oracle.named[-1]
        before, after = oracle.states[-2:]
        changed = [name for name in named if _rows(before, name) != _rows(after, name)]
        for time, asked in self.looks:
            if since <= time and any(asked is None or name in asked for name in changed):
                raise Violation(f"{job} counts from {since} on, and {time} was read without it")


@dataclass
class TakeBack(Effect):
    """Partitions are to hold what they held before a job, or at a moment.

    :param undone: the job; else ``versions`` are given, or all at a ``time``.
    :param asked: the partitions that it is about; ``None``: all.
    :param begun: how many decisions there were when it was asked for.
    """

    past: Past = field(kw_only=True)
    undone: str = ""
    versions: Mapping[str, int] = field(default_factory=dict)
    time: float | None = None
    asked: Collection[str] | None = None
    begun: int = 0

    def apply(self, oracle: Oracle, state: State) -> State:
        wanted = self._before(oracle) if self.undone else self._then(oracle, state)
        held = {name: dict(self.past.held(name, wanted[name])) for name in self.partitions}
        for name in held:
            if held[name] and self.past.is_of_former_columns(name, wanted[name]):
                raise Violation(f"{self.job} brings rows of former columns back in {name}")
        return {**state, **held}

    def _before(self, oracle: Oracle) -> Mapping[str, int]:
        last = oracle.commits.index(self.undone)
        if {*self.partitions} != {*oracle.named[last]}:
            raise Violation(f"{self.job} undoes {self.undone} in {self.partitions} alone")
        for name in self.partitions:
            if oracle.touches(name)[-1] != self.undone:
                raise Violation(f"{self.undone} is undone over {oracle.touches(name)[-1]}")
        return {name: self.past.version(name) - 1 for name in self.partitions}

    def _then(self, oracle: Oracle, state: State) -> Mapping[str, int]:
        wanted = self.versions if self.time is None else self.past.at(self.time)
        names = set(wanted) if self.asked is None else set(wanted) & set(self.asked)
        if {*self.partitions} - names:
            raise Violation(f"{self.job} brings back what nobody asked for: {self.partitions}")

        def is_left(before: State) -> bool:
            """Whether those that it leaves were then as they are to be, and the others as now."""
            for name in names:
                if name in self.partitions:
                    if before.get(name, {}) != state.get(name, {}):
                        return False
                elif _rows(before, name) != Counter(_flat(self.past.held(name, wanted[name]))):
                    return False
            return True

        if not any(map(is_left, oracle.states[self.begun :])):
            raise Violation(f"{self.job} leaves {names - {*self.partitions}} as they are")
        return wanted


def _rows(state: State, partition: str) -> Counter[Row]:
    return Counter(rows_of(state, partition))


def _flat(held: Mapping[str, tuple[Row, ...]]) -> Iterator[Row]:
    return (row for rows in held.values() for row in rows)
