"""The world of a walk through a table of directories: its oracle hears each decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from walk.runs_oracle import HeadOracle
from walk.settled import Settled
from walk.world import ROOT, World

from zero_rename.committer.commit.state.context import Context
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.format.layout import jobs_on_record
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.requests import Request


@dataclass
class DirectoryWorld(World):
    """Everything that a walk through a table of directories has."""

    oracle: HeadOracle = field(default_factory=HeadOracle)

    def hear(self, request: Request[object], answer: object) -> None:
        """The oracle hears of a decision."""
        if isinstance(request, s.Put) and request.if_none_match and isinstance(answer, s.Done):
            jobs = jobs_on_record(ROOT.decisions_prefix, [request.key])
            if request.key.startswith(ROOT.decisions_prefix) and request.key.endswith(".json"):
                self._decided(jobs[0])

    def _decided(self, job: str) -> None:
        decided = self.bare.run(read_decision(Context(ROOT), job))
        assert decided is not None
        said = decided.decision
        names = tuple(change.partition for change in said.partitions)
        if not said.is_commit:
            self.oracle.decided(job, False, names)
            return
        settled = {
            it.partition: Settled(it.ranks.settled.stands, frozenset(it.ranks.settled.losers))
            for it in said.partitions
            if it.settles and it.ranks.settled is not None
        }
        self.oracle.decided_about(job, names, said.superseded or (), settled)
