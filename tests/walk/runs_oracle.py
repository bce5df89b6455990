"""An oracle that knows of the runs which loaded each partition: how new they are, and which of them
have lost by the settlement of a conflict."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from walk.change import Change
from walk.oracle import Effect, Oracle, Resolve, Undo, Violation, Write
from walk.ranked import Ranked, RanksOf, ranks_after_write, unsure
from walk.settled import SettledIn, after_entry, check_settled, key_of, lost


@dataclass
class RunsOracle(Oracle):
    """Besides all states, what users may rely on of runs.

    :param ranks: of the partitions in each state.
    :param settled: conflicts over partitions, as they are settled now.
    """

    ranks: list[RanksOf] = field(default_factory=lambda: [{}])
    settled: SettledIn = field(default_factory=dict)

    def meet(
        self, job: str, effect: Effect | None, named: Collection[str], superseded: Collection[str]
    ) -> None:
        """See that a job's run may write what it writes.

        :param superseded: partitions that it says it has left out.
        :raises Violation: it has lost there.
        """
        gives_way = lost(self.settled, key_of(self, job), surely=True)
        if isinstance(effect, Ranked):
            effect.ranks, effect.superseded = self.ranks[-1], frozenset(superseded)
            effect.lost = gives_way
        elif isinstance(effect, Write | Change) and not getattr(effect, "last_wins", False):
            written = {*named, *getattr(effect, "named", ())}
            if isinstance(effect, Write) and not effect.whole:
                # Rows of its run it may take out anywhere.
                written &= {*effect.rows, *effect.named}
            if written := written & gives_way:
                raise Violation(f"{job} commits to {written}, which was settled against its run")

    def note(
        self,
        job: str,
        effect: Effect | None,
        made: SettledIn,
        ranks: RanksOf,
        restored: Collection[str] = (),
    ) -> None:
        """Note what is settled and how new the partitions are after a job, whose state was added.

        :param made: settlements that it makes.
        :param ranks: after it, but for what was settled.
        :param restored: partitions that are by it what they were before.
        """
        check_settled(self, job, made)
        self.settled = after_entry(self.settled, made, effect, restored)
        # A partition that is settled is as new as the newest run of the conflict.
        self.ranks.append(unsure(ranks, self.settled))


@dataclass
class HeadOracle(RunsOracle):
    """The oracle of tables of directories, which hears of each decision."""

    def decided_about(
        self, job: str, partitions: tuple[str, ...], superseded: Collection[str], made: SettledIn
    ) -> None:
        """A decision to commit came into the store.

        :param superseded: partitions that it says it has left out.
        :param made: settlements that it makes.
        """
        effect = self.effects.get(job)
        self.meet(job, effect, partitions, superseded)
        self.decided(job, True, partitions)
        self.note(job, effect, made, self._ranks_after(effect, partitions))
        if isinstance(effect, Resolve | Undo):
            self.settled = {
                name: it.doubted() if name in partitions else it
                for name, it in self.settled.items()
            }

    def _ranks_after(self, effect: Effect | None, partitions: Collection[str]) -> RanksOf:
        now = self.ranks[-1]
        if isinstance(effect, Write):
            touched = {*partitions, *self.touched(len(self.commits) - 1)}
            return ranks_after_write(effect, now, touched)
        if isinstance(effect, Change | Resolve | Undo):
            return unsure(now, partitions)
        return now
