"""Loads by rank (``on_conflict="newest_run"``), and how new the runs are that loaded a partition.

What the oracle knows is what a user may rely on: no run takes the place of a newer one's rows, or
adds to what a newer one has replaced, and none gives way without such a run. Where other engines,
changes of rows and undoings have written a partition, it says nothing until the next replace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from walk.oracle import Oracle, State, Violation, Write

from zero_rename.committer.format.layout import job_began


@dataclass(frozen=True)
class Ranks:
    """The times of the runs that loaded a partition, in seconds since the epoch.

    :param newest: of all whose rows are there; ``None``: none has loaded it.
    :param replaced: of the one that replaced it last.
    :param sure: whether they are known.
    """

    newest: float | None = None
    replaced: float | None = None
    sure: bool = True

    def after(self, rank: float, replaces: bool) -> Ranks:
        """The ranks once a run of a rank has replaced the partition, or added to it."""
        if replaces:
            return Ranks(rank, rank)
        return replace(self, newest=rank if self.newest is None else max(rank, self.newest))

    def supersede(self, rank: float, replaces: bool) -> bool:
        """Whether a run of a rank gives way here: to a newer one whose rows it would replace, or
        which has replaced what it would add to."""
        theirs = self.newest if replaces else self.replaced
        return theirs is not None and theirs > rank


#: By partition; one that is not there was loaded by none.
RanksOf = Mapping[str, Ranks]
NONE = Ranks()


@dataclass
class Ranked(Write):
    """Rows that give way to those of newer runs.

    :param skips: leaves out the partitions of newer runs; else it is refused.
    :param ranks: of the partitions, as the entry meets them.
    :param lost: partitions over which a conflict was settled against it.
    :param superseded: partitions that the entry says it has left out.
    """

    skips: bool = False
    ranks: RanksOf = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()

    def apply(self, oracle: Oracle, state: State) -> State:
        if self.superseded and not self.skips:
            raise Violation(f"{self.job} leaves {sorted(self.superseded)} out, and nobody asked it")
        for name in sorted({*self.rows, *self.named, *self.superseded}):
            self._check_rank(name)
        self.rows = {name: rows for name, rows in self.rows.items() if self._stands(name)}
        self.named = tuple(filter(self._stands, self.named))
        for name in {*self.rows, *self.named}:
            self._check_equals(oracle, name)
        return super().apply(oracle, state)

    def _stands(self, name: str) -> bool:
        return name not in self.superseded

    def _replaces(self, name: str) -> bool:
        return self.mode == "replace" and name in {*self.rows, *self.named}

    def _check_rank(self, name: str) -> None:
        ranks = self.ranks.get(name, NONE)
        if name in self.lost and self._stands(name):
            raise Violation(f"{self.job} commits to {name}, which was settled against its run")
        if name in self.lost or not ranks.sure:
            return
        newer = ranks.supersede(self.rank or 0.0, self._replaces(name))
        if newer and self._stands(name):
            raise Violation(f"{self.job} of rank {self.rank} commits to {name}, which has {ranks}")
        if not newer and not self._stands(name):
            raise Violation(f"{self.job} of rank {self.rank} leaves {name} out, which has {ranks}")

    def _check_equals(self, oracle: Oracle, name: str) -> None:
        """No run of its own rank came since it opened, unless both of them add."""
        for job in oracle.commits[self.opened :]:
            other = oracle.effects.get(job)
            if not isinstance(other, Ranked) or other.rank != self.rank:
                continue
            if name in {*other.rows, *other.named} and (
                self._replaces(name) or other._replaces(name)
            ):
                raise Violation(f"{self.job} commits to {name} beside {job}, which is as new")

    def _taken_back(self, oracle: Oracle) -> dict[str, set[int]]:
        gone = super()._taken_back(oracle)
        return {name: numbers for name, numbers in gone.items() if self._stands(name)}


def ranks_after_write(effect: Write, ranks: RanksOf, touched: Collection[str]) -> RanksOf:
    """The ranks after a load: one without a rank is as new as its job.

    :param touched: the partitions in which it added files, or removed some.
    """
    rank = job_began(effect.job) if effect.rank is None else effect.rank
    if effect.whole:
        ranks = {}
    places = {*effect.rows, *effect.named}
    # What it took back of its own elsewhere may have been the newest.
    ranks = unsure(ranks, set(touched) - places)
    if effect.on_repeat == "replace_own" and effect.mode != "replace":
        ranks = unsure(ranks, touched)
    replaces = effect.mode == "replace"
    return {**ranks, **{it: ranks.get(it, NONE).after(rank, replaces) for it in places}}


def unsure(ranks: RanksOf, places: Iterable[str]) -> RanksOf:
    """The ranks once nobody knows those of some partitions."""
    return {**ranks, **{it: replace(ranks.get(it, NONE), sure=False) for it in places}}
