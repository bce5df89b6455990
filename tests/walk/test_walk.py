"""Random operations through the public tables of both layouts, beside an oracle in plain Python;
and random runs by Hadoop's committers.

A failure prints its seed, a plan cut down to what it needs, and what happened;
``PYTHONPATH=tests python -m walk SEED``, with ``--layout delta`` or ``hadoop``, walks it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from walk.hadoop_walking import walk_hadoop_seed
from walk.mutants import (
    AGAIN,
    CARELESS,
    CHANGES,
    DELTA,
    HADOOP,
    LEAVING,
    MUTANTS,
    RUNS,
    Mutant,
    in_force,
)
from walk.oracle import Violation
from walk.plan import DELTA as DELTA_LAYOUT
from walk.plan import DIRECTORIES, Beside, Operation, Plan, Trouble, make_plan
from walk.plan import HADOOP as HADOOP_LAYOUT
from walk.walking import failure_of, walk, walk_seeds
from walk.walks import WalkFailure

from support.memory_store import Behaviour

#: Walks of a layout in a run, in which each verb goes through. `make proof` walks for as long as it
#: is given.
_WALKS = {DIRECTORIES: 50, DELTA_LAYOUT: 50, HADOOP_LAYOUT: 30}
#: Walks from a broken product's own seed on within which it is caught.
_SOON = 60
#: The same by Hadoop's committers, of which a walk has fewer commits.
_LATER = 300
#: Verbs that change rows or records, each of which must go through a few times in these walks.
_OF_BOTH = (
    *("append", "replace", "replace named", "replace table", "evolve", "overwrite schema"),
    *("read, modify, write", "commit", "compact", "recover", "purge", "read", "merge", "update"),
    *("delete", "append by rank", "replace by rank", "replace named by rank", "replace late"),
    "settle conflict",
)
_CHANGE = {
    DIRECTORIES: (*_OF_BOTH, "gc", "index", "adopt", "resolve", "undo", "make again"),
    DELTA_LAYOUT: (
        *(*_OF_BOTH, "hold back", "publish", "write checkpoint", "copy", "restore"),
        *("restore some", "undo job", "append elsewhere", "compact elsewhere"),
        *("write over", "repair"),
    ),
    HADOOP_LAYOUT: (
        *("load by magic", "load by directory", "load by partitioned", "clear", "mark by hand"),
        *("kill application", "kill worker", "kill worker and application"),
        *("recover", "search conflicts", "settle conflicts", "purge", "ask sensors"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", _CHANGE)
def test_walks_end_where_the_oracle_says(layout: str) -> None:
    walks = walk_seeds(range(_WALKS[layout]), layout=layout)
    assert walks.walks == _WALKS[layout]
    went = {
        verb: walks.outcomes[verb, "committed"] + walks.outcomes[verb, "done"]
        for verb in _CHANGE[layout]
    }
    assert min(went.values()) >= 3, went
    assert any(word == "Crash" for _, word in walks.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [*MUTANTS, *AGAIN, *CHANGES, *RUNS, *DELTA, *CARELESS], ids=lambda mutant: mutant.name
)
def test_a_broken_product_is_caught(mutant: Mutant) -> None:
    seeds = range(mutant.seed, mutant.seed + _SOON)
    layout = DELTA_LAYOUT if mutant in (*DELTA, *CARELESS) else DIRECTORIES
    plans = (make_plan(seed, mutant.verbs, layout) for seed in seeds)
    with in_force(mutant):
        caught = next((plan for plan in plans if failure_of(plan)), None)
    assert caught is not None
    walk(caught)  # By the slip, and nothing else.


@pytest.mark.slow
@pytest.mark.parametrize("mutant", HADOOP, ids=lambda mutant: mutant.name)
def test_a_broken_product_is_caught_by_runs_of_hadoops_committers(mutant: Mutant) -> None:
    seeds = range(mutant.seed, mutant.seed + _LATER)
    with in_force(mutant):
        caught = next((seed for seed in seeds if _breaks(seed, mutant.verbs)), None)
    assert caught is not None
    walk_hadoop_seed(caught, mutant.verbs)  # By the slip, and nothing else.


def _breaks(seed: int, words: tuple[str, ...]) -> bool:
    try:
        walk_hadoop_seed(seed, words)
    except WalkFailure as failure:
        return isinstance(failure.cause, Violation)
    return False


class TestWalking:
    """A walk can be walked again, and cut down."""

    def test_a_seed_is_one_walk_whatever_the_process(self) -> None:
        program = (
            "from walk.walking import walk_seeds\n"
            f"for layout in {[*_CHANGE]}:\n"
            "    print(walk_seeds(range(3, 7), layout=layout))"
        )
        elsewhere = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "PYTHONHASHSEED": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        here = [walk_seeds(range(3, 7), layout=layout) for layout in _CHANGE]
        assert elsewhere.splitlines() == [str(walks) for walks in here]
        assert make_plan(3) == make_plan(3) != make_plan(4)


def _overtaken(after: int, *troubles: Trouble) -> Plan:
    """A run is overtaken by its next try, which replaces its files, where a second Complete brings
    them back.

    :param after: the write of the first try after which the next one comes.
    """
    words = {"idempotency_key": "run", "on_repeat": "replace_own", "rows_per_file": 1}
    days = (2, 3)
    other = Operation(9, "append", process=2, days=days, options=words)
    beside = (Beside(after, other, after_write=True),)
    overtaken = Operation(8, "append", 1, 0.0, days, 0, words, troubles, beside, look=True)
    behaviour = Behaviour(complete_again="resurrect", conditional_delete=False)
    first = Operation(1, "append", days=(1,))
    return Plan(0, False, (), False, behaviour, (first, overtaken))


class TestCameBack:
    """A file that came back stays only where whoever brought it back could not remove it again:
    "Not guaranteed" in the protocol."""

    def test_a_process_that_lives_removes_it(self) -> None:
        assert [walk(_overtaken(after)).left for after in range(4, 12)] == [0] * 8

    def test_one_that_dies_may_leave_it(self) -> None:
        crashes = [Trouble(at, "dies after", writes=True) for at in range(6, 20)]
        left = [walk(_overtaken(7, it)).left for it in crashes]
        assert (left[0], max(left), left[-1]) == (0, 3, 0)

    @pytest.mark.parametrize("kind", ["denied", "dropped"])
    def test_one_whose_look_or_removal_fails_may_leave_it_and_says_so(self, kind: str) -> None:
        left = [walk(_overtaken(9, Trouble(at, kind, 99))).left for at in range(14, 40)]
        assert (left[0], left[-1]) == (0, 1)

    @pytest.mark.parametrize("mutant", LEAVING, ids=lambda mutant: mutant.name)
    def test_a_broken_product_is_caught(self, mutant: Mutant) -> None:
        plan = _overtaken(7, Trouble(9, "lost", writes=True))
        assert walk(plan).left == 0
        with in_force(mutant), pytest.raises(WalkFailure, match="back and left it"):
            walk(plan)


def test_adoption_goes_on_where_the_end_of_a_job_removes_what_it_has_listed() -> None:
    everything = {"on_conflict": "last_wins", "success_markers": "none", "rows_per_file": 1}
    left = Trouble(14, "denied", 6, writes=True)
    operations = (
        Operation(2, "append", process=1, days=(2,), choice=2),
        Operation(3, "replace", days=(1, 2, 3), choice=1, options=everything, troubles=(left,)),
        Operation(10, "adopt", days=(1,)),
    )
    behaviour = Behaviour(conditional_delete=False)
    walked = walk(Plan(0, True, (1, 2, 3), True, behaviour, operations))
    assert walked.outcomes["replace", "UnfinishedCommitError"] == 1
    assert walked.outcomes["adopt", "done"] == 1
