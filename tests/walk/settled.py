"""Conflicts of runs over partitions, settled for one of them.

What the oracle knows is what a user may rely on: a settlement brings back what a partition held
once the run that stands had written it, takes away no rows but those of runs in the conflict, and
until another run replaces the partition the runs that lost commit nothing there, unless the last
one is to win.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from walk.oracle import Effect, Oracle, State, Violation, Write, ids
from walk.readers import Seen, expected


@dataclass(frozen=True)
class Settled:
    """A settlement of a partition.

    :param stands: the key of the run that stands; ``losers``: those of the others.
    :param sure: nobody has done anything since of which the oracle does not know whether it ends.
    """

    stands: str
    losers: frozenset[str]
    sure: bool = True

    def doubted(self) -> Settled:
        """The same, once it may have ended."""
        return replace(self, sure=False)


#: By partition, the settlements that stand.
SettledIn = Mapping[str, Settled]


def key_of(oracle: Oracle, job: str) -> str:
    """The key of a run: a job without one is known by itself, an engine's by its entry."""
    if job.startswith("engine-"):
        return f"version {[*oracle.commits, job].index(job)}"
    return getattr(oracle.effects.get(job), "idempotency_key", None) or job


def writers(oracle: Oracle, name: str) -> dict[int, set[str]]:
    """The runs by which each row has come to a partition, at any time, by its id."""
    found: dict[int, set[str]] = {}
    for number, job in enumerate(oracle.commits):
        new = ids(oracle.states[number + 1], name) - ids(oracle.states[number], name)
        for row in new:
            found.setdefault(row, set()).add(key_of(oracle, job))
    return found


@dataclass
class SettleConflict(Effect):
    """A partition is to hold what it held when the rows of one run were there last.

    :param runs: the keys of the runs in the conflict.
    :param job_of_winner: that has written the rows which are to stand.
    :param lying: what it brings back, once that is known; ``None``: nothing.
    """

    partition: str = ""
    runs: frozenset[str] = frozenset()
    job_of_winner: str = ""
    lying: Seen | None = None

    def apply(self, oracle: Oracle, state: State) -> State:
        """Find the last state that had what the entry brings back, at or after the winner's."""
        if self.lying is None:
            return state
        first = self._first(oracle)
        for then in reversed(oracle.states[first + 1 :]):
            there = then.get(self.partition, {})
            if expected(oracle, {self.partition: there}, oracle.columns or ()) == self.lying:
                self._check_gone(oracle, state, then)
                return {**state, self.partition: there}
        raise Violation(
            f"{self.job} makes {self.partition} what it never was since {self.job_of_winner}"
        )

    def _first(self, oracle: Oracle) -> int:
        if self.job_of_winner.startswith("version "):
            return int(self.job_of_winner.removeprefix("version "))
        if self.job_of_winner not in oracle.commits:
            raise Violation(f"{self.job} settles for {self.job_of_winner}, which has no entry")
        return oracle.commits.index(self.job_of_winner)

    def _check_gone(self, oracle: Oracle, now: State, then: State) -> None:
        came = writers(oracle, self.partition)
        for number in ids(now, self.partition) - ids(then, self.partition):
            if not came[number] & self.runs:
                raise Violation(f"{self.job} removes row {number} of {came[number]} from the table")


def check_settled(oracle: Oracle, job: str, made: SettledIn) -> None:
    """See that those runs have lost whose rows are not in the partitions that a job has settled,
    and whose state is the last one.

    Rows that were written again, here or by other engines, lie in files of more runs than theirs.
    """
    effect = oracle.effects.get(job)
    for name, it in made.items():
        others = [by for by in oracle.touches(name) if by != job]
        plain = [isinstance(oracle.effects.get(by), Write) for by in others]
        if not all(plain) or any(by.startswith("engine-") for by in others):
            continue
        came = writers(oracle, name)
        there = set[str]().union(*(came.get(number, ()) for number in ids(oracle.state, name)))
        runs = effect.runs if isinstance(effect, SettleConflict) else frozenset()
        if it.losers != runs - there - {it.stands}:
            raise Violation(f"{job} settles {name} for {it}; it has rows of {there}")


def lost(settled: SettledIn, key: str | None, surely: bool = False) -> frozenset[str]:
    """The partitions that were settled against a run.

    :param surely: only those of which nobody knows better.
    """
    return frozenset(
        name for name, it in settled.items() if key in it.losers and (it.sure or not surely)
    )


def after_entry(
    before: SettledIn, made: SettledIn, effect: Effect | None, restored: Collection[str]
) -> SettledIn:
    """The settlements that stand after a job: another run's replace ends them, and a restore.

    :param made: those that it makes.
    :param restored: partitions that are by it what they were before.
    """
    replaced: set[str] = set()
    if isinstance(effect, Write) and not effect.job.startswith("engine-"):
        replaced = {*effect.named, *(effect.rows if effect.mode == "replace" else ())}
        replaced |= {*before} if effect.whole else set()
    by = getattr(effect, "idempotency_key", None)
    left = {
        name: it
        for name, it in before.items()
        if name not in restored and not (name in replaced and it.stands != by)
    }
    return {**left, **made}
