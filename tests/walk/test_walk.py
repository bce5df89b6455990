"""Random operations through the public ``Table``, beside an oracle in plain Python.

A failure prints its seed, a plan cut down to what it needs, and what happened;
``PYTHONPATH=tests python -m walk SEED`` walks it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from walk.mutants import MUTANTS, Mutant, in_force
from walk.oracle import Violation
from walk.plan import make_plan
from walk.walking import WalkFailure, failure_of, walk, walk_seeds

#: Walks in a run: a minute where there is a core for them.
_WALKS = 300
_SHARES = 3
#: Walks from a broken product's own seed on within which it is caught.
_SOON = 60
#: Verbs that change rows or records, each of which must go through many times in these walks.
_CHANGE = (
    *("append", "replace", "replace named", "replace table", "evolve", "overwrite schema"),
    *("read, modify, write", "commit", "compact", "gc", "index", "adopt", "recover", "purge"),
    *("resolve", "undo", "keep symlinks", "read"),
)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(_SHARES))
def test_walks_end_where_the_oracle_says(share: int) -> None:
    each = _WALKS // _SHARES
    walks = walk_seeds(range(share * each, (share + 1) * each))
    assert walks.walks == each
    went = {
        verb: walks.outcomes[verb, "committed"] + walks.outcomes[verb, "done"] for verb in _CHANGE
    }
    assert min(went.values()) >= 3, went
    assert any(word == "Crash" for _, word in walks.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_product_is_caught(mutant: Mutant) -> None:
    seeds = range(mutant.seed, mutant.seed + _SOON)
    with in_force(mutant):
        assert any(failure_of(make_plan(seed, mutant.verbs)) for seed in seeds)


class TestWalking:
    """A walk can be walked again, and cut down."""

    def test_a_seed_is_one_walk_whatever_the_process(self) -> None:
        def walked(hashes: str) -> str:
            return subprocess.run(
                [sys.executable, "-m", "walk", "3", "7"],
                cwd=Path(__file__).resolve().parents[1],
                env={**os.environ, "PYTHONHASHSEED": hashes},
                capture_output=True,
                text=True,
                check=True,
            ).stdout

        assert walked("1") == walked("2")
        assert make_plan(3) == make_plan(3) != make_plan(4)

    def test_a_failing_plan_loses_what_it_does_not_need(self) -> None:
        drops = next(it for it in MUTANTS if it.name == "an append goes by any replace")
        with in_force(drops), pytest.raises(WalkFailure) as caught:
            walk_seeds(range(drops.seed, drops.seed + _SOON), verbs=drops.verbs)
        assert isinstance(caught.value.cause, Violation)
        assert len(caught.value.plan.operations) <= 3
        walk(caught.value.plan)  # Nothing but the slip was wrong with it.
