"""The simulation can fail: every broken variant of the protocol is caught by name."""

from __future__ import annotations

import pytest
from simulation.explore import Explorer, Failure
from simulation.variants import VARIANTS, Variant

_MOST = 150_000


def _search(explorer: Explorer, walks: int) -> None:
    for seed in range(walks):
        explorer.wander(seed)
    if not walks:
        explorer.exhaust(_MOST)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_is_caught(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, broken in variant.patches:
        monkeypatch.setattr(module, name, broken)
    explorer = variant.scenario()
    with pytest.raises(Failure) as caught:
        _search(explorer, variant.walks)
    assert caught.value.invariant in variant.caught_as, caught.value
