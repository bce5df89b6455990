"""The committer's own code explored on a store in memory: interleavings, crashes, lost answers.

A scenario that is too long for every run is cut off at ``MOST`` states, spread over it: enough to
catch every broken variant (:mod:`.test_variants`). ``make proof`` explores all of them to their
end. ``SIMULATION_STATES=100000`` moves the bound; ``SIMULATION_SEEDS=1000`` walks more often
through each scenario; ``SIMULATION_SEED=7`` replays one walk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from simulation import scenarios
from simulation.catalogue import BOUNDED, EXHAUSTIVE, RANDOM, SCENARIOS, WIDER
from simulation.exploration import explore, walk
from simulation.program import Program
from simulation.scenarios import job_id

from zero_rename.committer.commit import commit
from zero_rename.committer.commit.claim import claim_all
from zero_rename.committer.errors import StoreRefusedError
from zero_rename.committer.store.requests import Put


def _seeds(name: str) -> Sequence[int]:
    chosen = os.environ.get("SIMULATION_SEED")
    if chosen is not None:
        return [int(chosen)]
    return range(int(os.environ.get("SIMULATION_SEEDS", RANDOM[name].walks)))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXHAUSTIVE | WIDER | BOUNDED)
def test_no_invariant_is_ever_broken(name: str, record_property: Any) -> None:
    """All six invariants in every state that is visited, and the outcomes that a scenario is for
    are among them."""
    most = SCENARIOS[name].most
    explored = explore(name, most)
    record_property("explored", explored.row)
    assert explored.report.complete or explored.report.states >= most
    assert explored.report.ends
    assert not explored.missing


@pytest.mark.slow
@pytest.mark.parametrize("name", RANDOM)
def test_no_invariant_is_broken_on_random_walks(name: str, record_property: Any) -> None:
    seeds = _seeds(name)
    explored = walk(name, seeds)
    record_property("explored", explored.row)
    assert explored.report.ends == len(seeds)
    assert len(seeds) == 1 or not explored.missing


def test_a_protocol_that_never_commits_misses_what_must_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(context: Any, opened: Any, requests: Any) -> Any:
        if opened.job != job_id("before0"):
            raise StoreRefusedError("No.")
        return (yield from claim_all(context, opened, requests))

    monkeypatch.setattr(commit, "claim_all", refuses)
    assert explore("two replaces of one partition", 2_000).missing
    assert walk("three writers, a reader, recovery and purge", range(20)).missing


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("one append that folds, a fault, a crash", "t/_zero_rename/manifests/"),
        ("one replace in parts, a fault, a crash", f"t/_zero_rename/jobs/{job_id('a')}."),
    ],
)
def test_small_limits_lead_to_manifests_and_parts(
    name: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the scenarios are named after happens in them."""
    written: set[str] = set()

    class Watched(Program):
        def requests(self, state: Any) -> Any:
            found = super().requests(state)
            written.update(request.key for _, request in found if isinstance(request, Put))
            return found

    monkeypatch.setattr(scenarios, "Program", Watched)
    SCENARIOS[name].explorer().exhaust(500)
    assert any(key.startswith(prefix) and not key.endswith("A.json") for key in written), written
