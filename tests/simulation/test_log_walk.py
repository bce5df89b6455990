"""Random walks over the log: the product holds in each world, each broken variant is caught."""

from __future__ import annotations

import pytest
from simulation.log_variants import VARIANTS, LogVariant
from simulation.log_walk import WORLDS, Broken, walk

#: Walks of a world. Those of a variant begin with its seed and end with the first that breaks.
WALKS, MOST = 30, 600


@pytest.mark.parametrize("world", WORLDS)
def test_invariants_hold_in_every_walk(world: str) -> None:
    committed = sum(len(walk(world, seed).committed) for seed in range(WALKS))
    assert committed > WALKS


def breaks(variant: LogVariant) -> bool:
    for seed in range(variant.seed, variant.seed + MOST):
        try:
            walk(variant.world, seed)
        except Broken:
            return True
    return False


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda it: it.name)
def test_variant_without_a_rule_is_caught(variant: LogVariant) -> None:
    with variant.in_force():
        assert breaks(variant)
