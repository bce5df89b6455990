"""The simulation can fail: every broken variant of the protocol is caught by name, in a scenario
and within a bound in which the right protocol is explored too."""

from __future__ import annotations

import pytest
from simulation import broken, broken_gc, broken_narrowed
from simulation.catalogue import SCENARIOS, Scenario
from simulation.explore import Failure
from simulation.variants import VARIANTS, Variant

#: Each notes its variants as it is imported.
_MODULES = (broken, broken_gc, broken_narrowed)


def _explore(scenario: Scenario) -> None:
    explorer = scenario.explorer()
    if scenario.random:
        for seed in range(scenario.walks):
            explorer.wander(seed)
    else:
        explorer.exhaust(scenario.most)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_is_caught(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, instead in variant.patches:
        monkeypatch.setattr(module, name, instead)
    scenario = SCENARIOS[variant.scenario]
    with pytest.raises(Failure) as caught:
        _explore(scenario)
    assert caught.value.invariant in variant.caught_as, caught.value
