"""The committer's own code explored on a store in memory: interleavings, crashes, lost answers.

A scenario that is too long for every run is cut off at ``MOST`` states, spread over it: enough to
catch every broken variant (:mod:`.test_variants`). ``make proof`` explores all of them to their
end. ``SIMULATION_STATES=100000`` moves the bound; ``SIMULATION_SEEDS=1000`` walks more often;
``SIMULATION_SEED=7`` replays one walk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from simulation.catalogue import BOUNDED, EXHAUSTIVE, MOST, RANDOM, SCENARIOS, explore, walk
from simulation.scenarios import job_id

from zero_rename.committer.s3.requests import Put


def _seeds() -> Sequence[int]:
    chosen = os.environ.get("SIMULATION_SEED")
    if chosen is not None:
        return [int(chosen)]
    return range(int(os.environ.get("SIMULATION_SEEDS", "100")))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXHAUSTIVE | BOUNDED)
def test_no_invariant_is_ever_broken(name: str, record_property: Any) -> None:
    """All six invariants in every state that is visited."""
    explored = explore(name, MOST)
    record_property("explored", explored.row)
    assert explored.report.complete or explored.report.states >= MOST
    assert explored.report.ends


@pytest.mark.slow
@pytest.mark.parametrize("name", RANDOM)
def test_no_invariant_is_broken_on_random_walks(name: str, record_property: Any) -> None:
    explored = walk(name, _seeds())
    record_property("explored", explored.row)
    assert explored.report.ends == len(_seeds())


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("one append that folds, a fault, a crash", "t/_zero_rename/manifests/"),
        ("one replace in parts, a fault, a crash", f"t/_zero_rename/jobs/{job_id('a')}."),
    ],
)
def test_small_limits_lead_to_manifests_and_parts(name: str, prefix: str) -> None:
    """What the scenarios are named after happens in them."""
    explored = SCENARIOS[name].explorer()
    explored.exhaust(5_000)
    written = {request.key for request in explored.asked() if isinstance(request, Put)}
    assert any(key.startswith(prefix) and not key.endswith("A.json") for key in written), written
