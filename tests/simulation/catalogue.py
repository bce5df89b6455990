"""The scenarios of the simulation: who takes part, on which store, within which bounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from simulation.explore import Explorer
from simulation.faults import LOST_ANSWERS, Faults
from simulation.scenarios import (
    ONE,
    SCHEMA,
    TWO,
    UNMARKED,
    adopter,
    again,
    cleaner,
    collector,
    compactor,
    decided,
    early_reader,
    ender,
    evolver,
    explorer,
    first_insertions,
    firsts,
    foreign_key,
    heart,
    in_turn,
    indexer,
    inserter,
    job_id,
    loser,
    merged_before,
    merger,
    narrowed,
    outlived,
    overwriter,
    planner,
    purger,
    reader,
    rebuilder,
    recoverer,
    repairer,
    resolver,
    stranger,
    sweeper,
    twice,
    twice_reported,
    undoer,
    witness,
    writer,
)
from simulation.settled import LOSER
from simulation.world import Participant

from support.memory_store import Behaviour
from zero_rename.committer import Mode, OnConflict, OnRepeat, RunRank, SuccessMarkers
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.format.settling import SettledRuns, Settling

APPEND, REPLACE, FAIL = Mode.APPEND, Mode.REPLACE, Mode.FAIL_IF_EXISTS
RESURRECTS = Behaviour(complete_again="resurrect", conditional_delete=False)
MINIO = Behaviour(conditional_delete=False, lists_uploads=False)
MARKED: dict[str, Any] = {"success_markers": SuccessMarkers.PARTITION_AND_TABLE}
INDEXED: dict[str, Any] = {"limits": Limits(heads_besides_index=0)}
#: Whoever moves heads writes the index; of the first heads, without a look.
FIRST: dict[str, Any] = {"limits": Limits(heads_without_index=1, heads_besides_index=0)}
SMALL: dict[str, Any] = {"limits": Limits(decisions_per_head=1, files_per_object=1)}
#: No list of files is ever merged into another.
LISTS: dict[str, Any] = {"limits": Limits(decisions_per_head=1, merged_below=0)}
#: A table of two jobs, so that heads name decisions of both.
TWICE: dict[str, Any] = {"before": ((Mode.APPEND, (ONE, TWO)), (Mode.APPEND, (ONE,)))}
#: States of a scenario that `make test` explores: every broken variant is caught within.
MOST = int(os.environ.get("SIMULATION_STATES", "1000"))
#: Walks through a random scenario, of which the same holds.
WALKS = 40
OWN: dict[str, Any] = {"idempotency_key": "run", "on_repeat": OnRepeat.REPLACE_OWN}
WORST = Faults(denials=True, reads=True, deletes=True, in_flight=True)
#: What must be reached.
DONE = ("a committed",)
BOTH = ("a committed, b committed",)
ONE_OF_TWO = ("a committed, b refused", "a refused, b committed")
RIVALS = (*BOTH, *ONE_OF_TWO)
SHARED = ("first committed, second committed",)
SETTLED = ("a committed", "a JobFencedError", "recoverer done")
IN_DOUBT = (
    "a committed",
    "a StoreUnreachableError",
    "a OutcomeUnknownError",
    "a CommitStateUnknownError",
    "a UnfinishedCommitError",
)
CROWD = ("a committed, b committed", "a committed, c committed", "b repeated", "reader done")
KEEPS: dict[str, Any] = {"keep_replaced": True, **UNMARKED}
FIRST_INSERTIONS = "two first insertions of one key into two partitions"
FIRST_INSERTION_AND_APPEND = "a first insertion of a key beside an append that makes the table"
FIRSTS_EVOLVE = "first jobs with evolution, a reader, a crash"
OVERWRITE = "an overwrite of the columns and an append to a new partition"
LAST: dict[str, Any] = {"on_conflict": OnConflict.LAST_WINS}
OLD_RUN_AND_NEW = "a replace by an older run and one by a newer run"
RUNS_OF_TWO = "an append and two replaces by runs of other ranks"
REBUILT_AND_EMPTIED = "a job that empties a partition whose head is lost and rebuilt"
REBUILT_AND_REPLACED = "a replace of a partition whose head is lost and rebuilt, a crash"
NARROWED_TWICE = "a narrowed run, its next try, and a replace of what it is to make, a crash"
WHOLE_TWICE = "a run that a plan makes again whole, its next try, and a replace of it, a crash"
CLEARED_BY_HAND = "a narrowed run that is cleared by hand"
NARROWED_AND_LOADED = "a narrowed run, and a program that makes all of it"
TWO_PLANS = "two plans for one run"
PLAN_ENDED_LATE = "a plan after one that ends its word late"
NARROWED_AND_GC = "a narrowed run, gc and a compaction"
SETTLED_AND_LOSER = "a run that settles a conflict, and the one that has lost"
SETTLED_TWICE = "a run that settles a conflict and is cleared by hand, the loser, a run between"
GC_AND_CLEARED = "a narrowed run that is cleared by hand, and gc"


@dataclass(frozen=True)
class Scenario:
    """A set of participants within bounds.

    :param make: makes the explorer; with a number of preemptions where those are bounded.
    :param reaches: what participants must be told in one end or another, each a list such as
        ``a committed, b refused``: without it a protocol that never commits would pass.
    :param switches: all interleavings with at most so many preemptions; ``None``: with any.
    :param random: explored by random walks, with seeds 0…n-1.
    :param most: states that `make test` explores; ``walks``: that it takes, where they are random.
    """

    make: Callable[..., Explorer]
    reaches: tuple[str, ...]
    switches: int | None = None
    random: bool = False
    most: int = MOST
    walks: int = WALKS

    def explorer(self, more_switches: int = 0) -> Explorer:
        if self.switches is None:
            return self.make()
        return self.make(switches=self.switches + more_switches)

    def missing(self, reached: Collection[frozenset[str]]) -> tuple[str, ...]:
        """What must be reached and was not."""
        return tuple(
            wanted
            for wanted in self.reaches
            if not any(found >= set(wanted.split(", ")) for found in reached)
        )


@dataclass(frozen=True)
class Bounds:
    """How far a scenario is explored: as :class:`Scenario` and :class:`Explorer` have it."""

    switches: int | None = None
    most: int = MOST
    crashes: int = 0
    faults: int = 0
    kinds: Faults = LOST_ANSWERS


def among(
    who: Callable[[], Sequence[Participant]],
    reaches: tuple[str, ...],
    within: Bounds = Bounds(),
    on: Callable[..., Explorer] = explorer,
    **start: Any,
) -> Scenario:
    """A scenario of participants.

    :param on: makes their explorer, on a table that ``start`` describes.
    """

    def make(**more: Any) -> Explorer:
        wrong = {"crashes": within.crashes, "faults": within.faults, "kinds": within.kinds}
        return on(*who(), **wrong, **start, **more)

    return Scenario(make, reaches, within.switches, most=within.most)


def unmarked(name: str, mode: Mode, *partitions: str, **policy: Any) -> Participant:
    """A writer without ``_SUCCESS`` markers, which has fewer requests."""
    return writer(name, mode, *partitions, **UNMARKED, **policy)


def ranked(day: int) -> dict[str, Any]:
    """The policy of a run that is as new as a day."""
    return {"on_conflict": OnConflict.NEWEST_RUN, "run_rank": RunRank.of(f"2013-01-0{day}")}


def two(first: Mode, second: Mode, **bounds: Any) -> Callable[[], Explorer]:
    return lambda: explorer(writer("a", first, ONE), writer("b", second, ONE), **bounds)


def one(mode: Mode, *partitions: str, policy: dict[str, Any] | None = None, **bounds: Any):
    return lambda: explorer(writer("a", mode, *partitions, **(policy or {})), **bounds)


def crowd(**bounds: Any) -> Callable[[], Explorer]:
    """Three writers on overlapping partitions, readers, recovery and purge beside them."""
    return lambda: explorer(
        writer("a", REPLACE, ONE, TWO),
        writer("b", APPEND, ONE, idempotency_key="run"),
        writer("c", REPLACE, TWO, idempotency_key="run", **LAST),
        reader(ONE, TWO),
        recoverer(),
        purger(),
        **bounds,
    )


EXHAUSTIVE = {
    "two replaces of one partition, a fault": Scenario(two(REPLACE, REPLACE, faults=1), RIVALS),
    "one append, two faults": Scenario(one(APPEND, ONE, faults=2), DONE),
    "one replace of two partitions, a fault, a crash": Scenario(
        one(REPLACE, ONE, TWO, faults=1, crashes=1), DONE
    ),
    "two replaces of one partition": Scenario(two(REPLACE, REPLACE), RIVALS, most=3 * MOST),
    "an append and a replace of one partition": Scenario(
        two(APPEND, REPLACE), RIVALS, most=2 * MOST
    ),
    OLD_RUN_AND_NEW: among(
        lambda: (
            unmarked("a", REPLACE, ONE, **ranked(2)),
            unmarked("b", REPLACE, ONE, **ranked(3)),
        ),
        (*BOTH, "a refused, b committed"),
        Bounds(most=2 * MOST),
        before=((REPLACE, (ONE, TWO), ranked(1)),),
    ),
    RUNS_OF_TWO: among(
        lambda: (
            unmarked("a", REPLACE, ONE, **ranked(2)),
            unmarked("b", APPEND, ONE, TWO, **ranked(1)),
            unmarked("c", REPLACE, ONE, **ranked(4)),
        ),
        ("a refused, b committed", "a refused, c committed", "b refused, c committed"),
        Bounds(switches=2),
        before=((APPEND, (ONE, TWO), ranked(3)), (APPEND, (ONE,), ranked(1))),
    ),
    "two appends to one partition": Scenario(two(APPEND, APPEND), BOTH),
    "two that fail if a partition exists": among(
        lambda: (writer("a", FAIL, "day=3"), writer("b", FAIL, "day=3")), ONE_OF_TWO
    ),
    "two replaces that share one of two partitions": among(
        lambda: (unmarked("a", REPLACE, ONE, TWO), unmarked("b", REPLACE, TWO)),
        RIVALS,
        Bounds(most=4 * MOST),
    ),
    "two replaces of a partition each": among(
        lambda: (writer("a", REPLACE, ONE), writer("b", REPLACE, TWO)), BOTH
    ),
    "an append committed by two processes, a crash": Scenario(
        lambda: twice(APPEND, ONE, crashes=1), SHARED
    ),
    "an append committed by two processes": Scenario(
        lambda: twice(APPEND, ONE, owner=job_id("a")), SHARED
    ),
    "a replace committed by two processes": Scenario(lambda: twice(REPLACE, ONE), SHARED),
    "an append committed by two processes, the store full": Scenario(
        lambda **bounds: twice(
            APPEND,
            ONE,
            idempotency_key=None,
            faults=2,
            kinds=Faults(lost=False, full=True),
            **bounds,
        ),
        (*SHARED, "first StoreFullError", "second StoreFullError"),
        switches=1,
    ),
    "an append committed by two processes, lost rights": Scenario(
        lambda **bounds: twice(
            APPEND,
            ONE,
            idempotency_key=None,
            faults=2,
            kinds=Faults(lost=False, denials=True),
            **bounds,
        ),
        (*SHARED, "first StoreRefusedError", "first UnfinishedCommitError"),
        switches=1,
        most=2 * MOST,
    ),
    "one that finds its partition taken, two faults, a crash": Scenario(
        one(FAIL, ONE, policy={"idempotency_key": "run"}, faults=2, crashes=1, owner=job_id("a")),
        ("a DestinationExistsError",),
        most=2 * MOST,
    ),
    "one append, three faults, lost rights among them": Scenario(
        one(APPEND, ONE, faults=3, kinds=Faults(denials=True)), (*IN_DOUBT, "a StoreRefusedError")
    ),
    "a replace and recovery, a crash": among(
        lambda: (writer("a", REPLACE, ONE), recoverer()), SETTLED, Bounds(most=2 * MOST, crashes=1)
    ),
    "a replace and recovery, a fault": among(
        lambda: (writer("a", REPLACE, ONE), recoverer()), SETTLED, Bounds(faults=1)
    ),
    "an append and a purge, a crash": among(
        lambda: (writer("a", APPEND, ONE), purger()),
        ("a committed", "purger done"),
        Bounds(crashes=1),
    ),
    "an append and a purge of foreign uploads": among(
        lambda: (writer("a", APPEND, ONE), purger(foreign_older_than=0.0)),
        ("a committed", "purger done"),
    ),
    # A job that may be silent for no time at all is dead to whoever looks, and goes on.
    "an append and a sweep of uploads that takes it for dead": among(
        lambda: (writer("a", APPEND, ONE, max_duration=0.0), sweeper()),
        ("a committed", "a JobFencedError", "sweeper done"),
        Bounds(most=2 * MOST),
    ),
    "an append and a sweep of uploads, a fault, a crash": among(
        lambda: (writer("a", APPEND, ONE, max_duration=0.0), sweeper()),
        ("a committed", "a JobFencedError", "sweeper done"),
        Bounds(crashes=1, faults=1),
    ),
    "two appends that fold": among(
        lambda: (writer("a", APPEND, ONE, **SMALL), writer("b", APPEND, ONE, **SMALL)), BOTH
    ),
    "one append that folds, a fault, a crash": Scenario(
        one(APPEND, ONE, TWO, policy=SMALL, faults=1, crashes=1), DONE
    ),
    "one replace in parts, a fault, a crash": Scenario(
        one(REPLACE, ONE, TWO, policy=SMALL, faults=1, crashes=1), DONE
    ),
    "a replace in parts and recovery, a crash": among(
        lambda: (writer("a", REPLACE, ONE, **SMALL), recoverer(**SMALL)), SETTLED, Bounds(crashes=1)
    ),
    "a task that outlives the abort of its job": among(
        lambda: (outlived("a", ONE, commits=False),), ("a done",)
    ),
    "a task that outlives the commit of its job": among(
        lambda: (outlived("a", ONE, commits=True),), DONE
    ),
}
COLLECTED = {
    "an append that folds, and gc": among(
        lambda: (unmarked("a", APPEND, ONE, **SMALL), collector(**SMALL)),
        ("a committed", "collector done"),
        Bounds(switches=2),
        **TWICE,
    ),
    "a replace, and gc, a crash": among(
        lambda: (unmarked("a", REPLACE, ONE), collector()),
        ("a committed", "collector done"),
        Bounds(switches=1, crashes=1),
        **TWICE,
    ),
    "a replace in parts, and gc, a crash": among(
        lambda: (unmarked("a", REPLACE, ONE, TWO, **SMALL), collector(**SMALL)),
        ("a committed", "collector done"),
        Bounds(switches=1, most=6 * MOST, crashes=1),
    ),
    "gc and a reader": among(
        lambda: (collector(), reader(ONE, TWO)),
        ("collector done", "reader done"),
        Bounds(switches=3),
        **TWICE,
    ),
    "gc that dies with requests in flight, and gc again": among(
        lambda: (collector("first"), collector("second"), reader(ONE, TWO)),
        ("second done", "reader done"),
        Bounds(switches=1, most=4 * MOST, crashes=1, kinds=Faults(in_flight=True)),
        **TWICE,
    ),
    "gc beside a rival whose answers are lost": among(
        lambda: (collector(), unmarked("a", APPEND, ONE)),
        ("a committed", "collector done"),
        Bounds(switches=1, most=5 * MOST, faults=1),
        before=((APPEND, (ONE,)), (APPEND, (ONE,))),
    ),
    "a job that died before it was applied, gc and recovery": Scenario(
        lambda **bounds: decided(REPLACE, ONE, collector(), recoverer(), **bounds),
        ("collector done", "recoverer done"),
        switches=2,
    ),
    "two tries of a run, and gc, a crash": among(
        lambda: (
            collector(),
            unmarked("a", APPEND, ONE, idempotency_key="run"),
            unmarked("b", APPEND, ONE, idempotency_key="run"),
        ),
        ("a committed", "b committed", "a repeated", "b repeated", "collector done"),
        Bounds(switches=1, most=3 * MOST, crashes=1),
    ),
    "a run that replaces its own rows after gc": among(
        lambda: (collector(), unmarked("a", APPEND, ONE, **OWN)),
        ("a committed", "collector done"),
        Bounds(switches=2),
        before=((APPEND, (ONE,), {"idempotency_key": "run"}), (APPEND, (ONE,))),
    ),
    "two appends that fold into lists of their own, gc and a reader": among(
        lambda: (
            unmarked("a", APPEND, ONE, **LISTS),
            collector(**LISTS),
            unmarked("b", APPEND, ONE, **LISTS),
            reader(ONE),
        ),
        (*BOTH, "collector done", "reader done"),
        Bounds(switches=1),
        **TWICE,
    ),
    "an append committed by two processes, and gc": Scenario(
        lambda **bounds: twice(APPEND, ONE, beside=(collector(),), **bounds),
        (*SHARED, "collector done"),
        switches=2,
    ),
}
KEPT = {
    "a replace that keeps, an append and a reader": among(
        lambda: (
            writer("a", REPLACE, ONE, TWO, **KEEPS),
            unmarked("b", APPEND, ONE),
            reader(ONE, TWO),
        ),
        (*BOTH, "reader done"),
        Bounds(switches=1),
    ),
    "a replace that keeps, recovery and gc, a fault, a crash": among(
        lambda: (writer("a", REPLACE, ONE, **KEEPS), recoverer(), collector()),
        (*SETTLED, "collector done"),
        Bounds(switches=1, crashes=1, faults=1),
    ),
    "a replace that keeps, and one that does not": among(
        lambda: (writer("a", REPLACE, ONE, **KEEPS), unmarked("b", REPLACE, ONE)),
        RIVALS,
        Bounds(switches=2),
    ),
}
#: Heads that are lost and rebuilt; and recovery, a purge or a crash beside writers.
HEADS: dict[str, Scenario] = {
    REBUILT_AND_REPLACED: among(
        lambda: (unmarked("a", REPLACE, ONE, **LAST), loser(ONE, job_id("before0")), rebuilder()),
        ("a committed", "a UnfinishedCommitError", "rebuilder done"),
        Bounds(switches=2, most=4 * MOST, crashes=1),
        before=((APPEND, (ONE,), UNMARKED),),
    ),
    REBUILT_AND_EMPTIED: among(
        lambda: (
            unmarked("a", REPLACE, replace_partitions=(ONE,), **LAST),
            loser(ONE, job_id("before0")),
            rebuilder(),
        ),
        ("a committed", "rebuilder done"),
        Bounds(switches=2),
        before=((APPEND, (ONE,), UNMARKED),),
    ),
    "two appends that make a partition, and recovery": among(
        lambda: (writer("a", APPEND, "day=3"), recoverer(), writer("b", APPEND, "day=3")),
        (*BOTH, "a JobFencedError", "b JobFencedError", "recoverer done"),
        Bounds(switches=1),
    ),
    "a replace beside a purge and a reader": among(
        lambda: (unmarked("a", REPLACE, ONE), purger(), reader(ONE)),
        ("a committed", "purger done", "reader done"),
        Bounds(switches=3),
    ),
    "a job that died before it was applied, recovery and a purge": Scenario(
        lambda: decided(REPLACE, ONE, recoverer(), purger(), crashes=1),
        ("recoverer done", "purger done"),
    ),
    "two tries of a run that take back their own": among(
        lambda: (unmarked("a", APPEND, ONE, **OWN), unmarked("b", APPEND, ONE, **OWN)),
        ("a committed", "b committed"),
    ),
    "an append committed by two processes, and a purge": Scenario(
        lambda: twice(APPEND, ONE, beside=(purger(),)), SHARED
    ),
    "two replaces of one partition, a crash": Scenario(
        two(REPLACE, REPLACE, crashes=1), ONE_OF_TWO, most=2 * MOST
    ),
}
#: A partition of two runs, and of a resolution that kept the rows of the second one.
CONFLICT: dict[str, Any] = {"before": ((APPEND, (ONE,)), (APPEND, (ONE,)))}
RESOLVED: dict[str, Any] = {"before": (*CONFLICT["before"], (REPLACE, (ONE,), KEEPS))}
REWRITTEN = {
    "a resolution beside an append": among(
        lambda: (resolver(ONE, "newest"), unmarked("b", APPEND, ONE)),
        ("b committed, resolver committed", "b committed, resolver refused"),
        Bounds(switches=1),
        **CONFLICT,
    ),
    "a resolution beside a compaction": among(
        lambda: (resolver(ONE, "newest"), compactor(ONE)),
        ("compactor committed, resolver refused", "compactor refused, resolver committed"),
        Bounds(switches=1),
        **CONFLICT,
    ),
    "an undoing beside an append": among(
        lambda: (undoer(ONE, job_id("before2")), unmarked("b", APPEND, ONE)),
        ("b committed, undoer committed", "b committed, undoer refused"),
        Bounds(switches=1),
        **RESOLVED,
    ),
    "an undoing and gc": among(
        lambda: (undoer(ONE, job_id("before2")), collector()),
        ("undoer committed", "undoer refused", "collector done"),
        Bounds(switches=2),
        **RESOLVED,
    ),
    "two undoings of one job, a crash": among(
        lambda: (undoer(ONE, job_id("before2"), "first"), undoer(ONE, job_id("before2"), "second")),
        ("first committed, second refused", "first refused, second committed"),
        Bounds(switches=1, most=3 * MOST, crashes=1),
        **RESOLVED,
    ),
    "a compaction beside an append": among(
        lambda: (compactor(ONE), unmarked("b", APPEND, ONE)),
        ("b committed, compactor committed", "b committed, compactor refused"),
        Bounds(switches=1),
        **CONFLICT,
    ),
}
#: Merges of one key, which go by the state that they have read.
MERGED = {
    "two merges of one partition": among(
        lambda: (merger("a", ONE), merger("b", ONE)), (*BOTH, *ONE_OF_TWO), Bounds(switches=1)
    ),
    "two merges of one partition, a fault, a crash": among(
        lambda: (merger("a", ONE), merger("b", ONE)),
        ("a committed", "b committed"),
        Bounds(switches=1, crashes=1, faults=1),
    ),
    "two insertions of one key into two partitions": among(
        lambda: (inserter("a", ONE), inserter("b", TWO)),
        ("a committed", "b committed", *ONE_OF_TWO),
        Bounds(switches=2, most=14 * MOST),
    ),
    FIRST_INSERTIONS: Scenario(first_insertions, ("a committed", "b committed"), switches=2),
    FIRST_INSERTION_AND_APPEND: Scenario(
        lambda **bounds: first_insertions(into_one_loads=True, **bounds),
        ("a committed, b committed", "a refused, b committed"),
        switches=2,
        most=2 * MOST,
    ),
    "a merge beside an append and a compaction": among(
        lambda: (merger("a", ONE), unmarked("b", APPEND, ONE), compactor(ONE)),
        (
            "a committed, b committed, compactor committed",
            "a refused, b committed",
            "a committed, compactor refused",
        ),
        Bounds(switches=1, most=2 * MOST),
        **CONFLICT,
    ),
    "a merge that is made again beside a replace": Scenario(
        lambda **bounds: merged_before(
            "a", merger("a", ONE, TWO, attempts=2), unmarked("b", REPLACE, ONE, TWO), **bounds
        ),
        ("b committed",),
        switches=1,
    ),
}
BOUNDED = {
    **MERGED,
    **HEADS,
    **COLLECTED,
    **KEPT,
    **REWRITTEN,
    "two jobs that bring a column each": among(
        lambda: (evolver("a", ONE), evolver("b", TWO)), BOTH, Bounds(switches=2)
    ),
    "two jobs that bring a column each, a fault, a crash": among(
        lambda: (evolver("a", ONE), evolver("b", TWO)),
        BOTH,
        Bounds(switches=1, most=4 * MOST, crashes=1, faults=1),
    ),
    "a job that brings a column, an append and a reader": among(
        lambda: (evolver("a", ONE), unmarked("b", APPEND, ONE), reader(ONE, TWO)),
        (*BOTH, "reader done"),
        Bounds(switches=2),
    ),
    "a job that brings a column, recovery and another, a crash": among(
        lambda: (evolver("a", ONE), recoverer(), evolver("b", TWO)),
        (*BOTH, "a JobFencedError", "recoverer done"),
        Bounds(switches=1, most=3 * MOST, crashes=1),
    ),
    OVERWRITE: among(
        lambda: (overwriter("a", ONE), unmarked("b", APPEND, "day=3")),
        RIVALS,
        Bounds(switches=2),
        before=((APPEND, (ONE,)),),
    ),
    "an overwrite of the columns, one that brings one, a crash": among(
        lambda: (overwriter("a", ONE, **LAST), evolver("b", "day=3", **LAST)),
        (*BOTH, "a committed, b refused"),
        Bounds(switches=1, most=7 * MOST, crashes=1),
        before=((APPEND, (ONE,)),),
    ),
    "two overwrites of the columns and a reader": among(
        lambda: (overwriter("a", ONE, **LAST), overwriter("b", ONE, **LAST), reader(ONE)),
        (*BOTH, "reader done"),
        Bounds(switches=2),
        before=((APPEND, (ONE,)),),
    ),
    "an append and a replace that is slow to remove": among(
        lambda: (writer("a", APPEND, ONE), writer("b", REPLACE, ONE)),
        BOTH,
        Bounds(switches=2, most=10 * MOST),
    ),
    "two replaces of two partitions": among(
        lambda: (writer("a", REPLACE, ONE, TWO), writer("b", REPLACE, ONE, TWO)),
        RIVALS,
        Bounds(switches=1),
    ),
    "a replace of two partitions and a reader": among(
        lambda: (writer("a", REPLACE, ONE, TWO), reader(ONE, TWO)),
        ("a committed", "reader done"),
        Bounds(switches=3),
    ),
    "a replace and a reader that may not write": among(
        lambda: (writer("a", REPLACE, ONE, TWO), reader(ONE, TWO, writes=False)),
        ("a committed", "reader done", "reader OtherJobError"),
        Bounds(switches=2, most=3 * MOST),
    ),
    "a slow applier, then a replace and an append": Scenario(
        lambda **bounds: decided(
            REPLACE, ONE, reader(ONE), in_turn(ONE, REPLACE, APPEND), **bounds
        ),
        ("reader done", "turns done"),
        switches=2,
    ),
    "a slow applier where Complete resurrects, an answer lost": Scenario(
        lambda **bounds: decided(
            REPLACE,
            ONE,
            reader(ONE),
            in_turn(ONE, REPLACE),
            behaviour=RESURRECTS,
            faults=1,
            **bounds,
        ),
        ("reader done", "turns done"),
        switches=1,
        most=14 * MOST,
    ),
    "two tries of one run, a crash": among(
        lambda: (
            writer("a", APPEND, ONE, idempotency_key="run"),
            writer("b", APPEND, ONE, idempotency_key="run"),
        ),
        ("a committed", "b committed", "a repeated", "b repeated"),
        Bounds(switches=1, most=6 * MOST, crashes=1),
    ),
    "a slow applier where Complete resurrects": among(
        lambda: (writer("a", REPLACE, ONE), recoverer(), writer("b", REPLACE, ONE)),
        RIVALS,
        Bounds(switches=2),
        behaviour=RESURRECTS,
    ),
    "a replace and a reader of an index": among(
        lambda: (unmarked("a", REPLACE, ONE, TWO), reader(ONE, TWO, **INDEXED)),
        ("a committed", "reader done"),
        Bounds(switches=3),
        indexed=True,
    ),
    "a replace, and who writes the index and reads": among(
        lambda: (unmarked("a", REPLACE, ONE, TWO), indexer(ONE, TWO, **INDEXED)),
        ("a committed", "indexer done"),
        Bounds(switches=3),
    ),
    "two appends that write the index, a crash": among(
        lambda: (unmarked("a", APPEND, ONE, **INDEXED), unmarked("b", APPEND, TWO, **INDEXED)),
        BOTH,
        Bounds(switches=1, crashes=1),
    ),
    "two appends that write the first index, and a reader": among(
        lambda: (
            unmarked("a", APPEND, ONE, **FIRST),
            unmarked("b", APPEND, ONE, TWO, **FIRST),
            reader(ONE, TWO, **INDEXED),
        ),
        (*BOTH, "reader done"),
        Bounds(switches=1),
        before=(),
    ),
    "two appends that fold, a fault": among(
        lambda: (unmarked("a", APPEND, ONE, **SMALL), unmarked("b", APPEND, ONE, **SMALL)),
        BOTH,
        Bounds(switches=1, most=13 * MOST, faults=1),
    ),
    "an append that folds and a replace, a lost answer": among(
        lambda: (unmarked("a", APPEND, ONE, **SMALL), unmarked("b", REPLACE, ONE, **LAST)),
        BOTH,
        Bounds(switches=1, faults=1),
        before=((APPEND, (ONE,), {**SMALL}),),
    ),
    "a folding append, a replace and a reader": among(
        lambda: (
            writer("a", APPEND, ONE, **SMALL),
            writer("b", REPLACE, ONE, **SMALL),
            reader(ONE),
        ),
        (*RIVALS, "reader done"),
        Bounds(switches=2),
    ),
}
WIDER = {
    "one job that brings a column, two faults, a crash": among(
        lambda: (evolver("a", ONE, **MARKED),), IN_DOUBT, Bounds(crashes=1, faults=2, kinds=WORST)
    ),
    "one append, three faults, reads among them": Scenario(
        one(APPEND, ONE, faults=3, kinds=Faults(reads=True)), IN_DOUBT, most=2 * MOST
    ),
    "one replace, two faults, deletes among them, a crash": Scenario(
        one(REPLACE, ONE, faults=2, crashes=1, kinds=WORST, before=((APPEND, (ONE,)),) * 2),
        ("a committed", "a UnfinishedCommitError"),
    ),
    "a replace and recovery, requests in flight at a crash": among(
        lambda: (unmarked("a", REPLACE, ONE, TWO), recoverer()),
        SETTLED,
        Bounds(crashes=1, kinds=WORST),
    ),
    "a replace of foreign files and a stranger": among(
        lambda: (writer("a", REPLACE, ONE), stranger(foreign_key(ONE), foreign_key(ONE, "late"))),
        ("a committed", "stranger done"),
        before=(),
        foreign=(ONE,),
    ),
    "an append to foreign files, a fault, a crash": Scenario(
        one(APPEND, ONE, before=(), foreign=(ONE,), faults=1, crashes=1), DONE
    ),
    "two first appends to foreign files": among(
        lambda: (unmarked("a", APPEND, ONE), unmarked("b", APPEND, ONE)),
        BOTH,
        before=(),
        foreign=(ONE,),
    ),
    "one whose results are reported twice": among(
        lambda: (writer("a", APPEND, ONE, spoil=twice_reported),), ("a TaskResultsError",)
    ),
    "a named replace without rows, and an append": among(
        lambda: (writer("a", REPLACE, replace_partitions=(ONE,)), unmarked("b", APPEND, ONE)),
        RIVALS,
    ),
    "a job with heartbeats, and recovery": among(
        lambda: (unmarked("a", APPEND, ONE), heart("a"), recoverer()),
        ("a committed", "a JobFencedError", "heart done", "recoverer done"),
    ),
    "a replace of the table, and an append to an old and a new partition": among(
        lambda: (
            unmarked("a", REPLACE, ONE, replace_table=True, **LAST),
            unmarked("b", APPEND, TWO, "day=3"),
        ),
        BOTH,
        Bounds(switches=2),
        before=((APPEND, (ONE, TWO)),),
    ),
    "a cleared run that replaces its own, and an append": among(
        lambda: (unmarked("a", APPEND, ONE, **OWN), unmarked("b", APPEND, ONE)),
        BOTH,
        Bounds(switches=2),
        before=((APPEND, (ONE,), {"idempotency_key": "run"}),),
        foreign=(ONE,),
    ),
    "a cleared run whose rows are in a list that is folded beside it": among(
        lambda: (
            unmarked("a", APPEND, ONE, **OWN, **LISTS),
            unmarked("b", APPEND, ONE, **LISTS),
            reader(ONE),
        ),
        (*BOTH, "reader done"),
        Bounds(switches=1),
        before=((APPEND, (ONE,), {"idempotency_key": "run", **LISTS}), (APPEND, (ONE,), LISTS)),
    ),
    "a cleared run that replaces its own, and one that folds": among(
        lambda: (unmarked("a", APPEND, ONE, **OWN, **SMALL), unmarked("b", APPEND, ONE, **SMALL)),
        BOTH,
        Bounds(switches=1, faults=1),
        before=((APPEND, (ONE,), {"idempotency_key": "run"}),),
        foreign=(ONE,),
    ),
    "a job whose uploads are lost, and repair": among(
        lambda: (unmarked("a", REPLACE, ONE, TWO), cleaner(), repairer()),
        ("a committed", "a DataLostError", "repairer done"),
        Bounds(switches=2, most=2 * MOST),
        loses=True,
    ),
    "two that make the table": among(
        lambda: (writer("a", APPEND, ONE), writer("b", APPEND, ONE)),
        BOTH,
        Bounds(switches=1),
        before=None,
    ),
}
WIDER |= {
    "two first jobs, a fault": Scenario(
        lambda **bounds: firsts(ONE, TWO, faults=1, **bounds),
        (*BOTH, "a JobFencedError", "b JobFencedError"),
        switches=1,
        most=3 * MOST,
    ),
    FIRSTS_EVOLVE: Scenario(
        lambda **bounds: firsts(
            ONE,
            ONE,
            schemas=(SCHEMA.append(pa.field("more", pa.int64())), SCHEMA),
            beside=(early_reader(ONE),),
            crashes=1,
            **bounds,
        ),
        (*BOTH, "a JobFencedError", "reader done"),
        switches=2,
    ),
    "adoption beside another committer, a fault": among(
        lambda: (adopter(), witness(foreign_key(TWO))),
        ("adopter done", "witness done"),
        Bounds(switches=2, faults=1),
        before=(),
        foreign=(ONE,),
        unadopted=True,
    ),
    "adoption beside a replace, and an append": among(
        lambda: (adopter(), unmarked("a", REPLACE, ONE), unmarked("b", APPEND, TWO)),
        (*BOTH, "adopter done"),
        Bounds(switches=1),
        before=(),
        foreign=(ONE, TWO),
        unadopted=True,
    ),
    "an adoption that dies beside another committer": among(
        lambda: (adopter(), witness(foreign_key(TWO))),
        ("adopter done", "witness done"),
        Bounds(crashes=1),
        before=(),
        foreign=(ONE,),
        unadopted=True,
    ),
}
HARD: dict[str, Any] = {"crashes": 2, "faults": 3, "kinds": WORST}


def strangers(**bounds: Any) -> Callable[[], Explorer]:
    """A replace of the whole table, appends to old and new partitions, files of nobody's."""
    return lambda: explorer(
        writer("a", REPLACE, ONE, replace_table=True, **LAST),
        writer("b", APPEND, ONE, "day=3"),
        writer("c", REPLACE, replace_partitions=(TWO,)),
        stranger(foreign_key(TWO, "late"), foreign_key(ONE)),
        heart("a"),
        reader(ONE, TWO, "day=3"),
        recoverer(),
        before=((APPEND, (ONE,)),),
        foreign=(ONE, TWO),
        **bounds,
    )


def runs(**bounds: Any) -> Callable[[], Explorer]:
    """Tries of a run that replace their own, folds, uploads that are lost and repair."""
    return lambda: explorer(
        writer("a", APPEND, ONE, TWO, **OWN, **SMALL),
        writer("b", APPEND, ONE, **OWN, **SMALL),
        writer("c", APPEND, ONE, **SMALL),
        cleaner(),
        repairer(),
        reader(ONE, TWO),
        before=((APPEND, (ONE,), {"idempotency_key": "run"}),),
        foreign=(ONE,),
        loses=True,
        **bounds,
    )


def doubled(**bounds: Any) -> Callable[[], Explorer]:
    """A commit that is called in two processes, beside writers and recovery."""
    beside = (writer("c", APPEND, ONE, TWO), writer("d", REPLACE, TWO, **LAST), recoverer(1.0))
    return lambda: twice(APPEND, ONE, TWO, beside=beside, **bounds)


PLANNED: dict[str, Any] = {"named": (ONE,)}
MENDED: dict[str, Any] = {"before": ((REPLACE, (TWO,), UNMARKED),)}
#: The run that loses a conflict has replaced what the narrowed one had made.
LOSES: dict[str, Any] = {
    "idempotency_key": LOSER,
    "on_repeat": OnRepeat.REPLACE_OWN,
    "run_rank": RunRank.of("2013-01-05"),
}
WINS: dict[str, Any] = {"run_rank": RunRank.of("2013-01-01")}
IN_CONFLICT: dict[str, Any] = {
    "before": ((REPLACE, (ONE,), {**UNMARKED, **LOSES}),),
    "settles": {ONE: Settling(SettledRuns("run", (LOSER,)), RunRank.of("2013-01-05"))},
}
NARROWED = {
    NARROWED_TWICE: among(
        lambda: (
            again("a", ONE, TWO, **PLANNED),
            again("b", ONE, TWO, **PLANNED),
            unmarked("c", REPLACE, ONE),
        ),
        ("a committed, b committed", "a committed, c committed", "a refused, c committed"),
        Bounds(switches=1, most=6 * MOST, crashes=1),
        on=narrowed,
        **MENDED,
    ),
    "a narrowed run, its next try, and a replace, a lost answer": among(
        lambda: (
            again("a", ONE, TWO, **PLANNED),
            again("b", ONE, TWO, **PLANNED),
            unmarked("c", REPLACE, ONE),
        ),
        ("a committed, b committed", "a committed, c committed", "a refused, c committed"),
        Bounds(switches=1, faults=1),
        on=narrowed,
        **MENDED,
    ),
    WHOLE_TWICE: among(
        lambda: (
            again("a", ONE, TWO, named=(ONE, TWO)),
            again("b", ONE, named=(ONE, TWO)),
            unmarked("c", REPLACE, ONE),
        ),
        ("a committed, b committed", "a committed, c committed", "a refused, c committed"),
        Bounds(switches=1, most=7 * MOST, crashes=1),
        on=narrowed,
        named=(ONE, TWO),
        whole=True,
    ),
    CLEARED_BY_HAND: among(
        lambda: (again("a", ONE, TWO, **PLANNED), again("b", ONE, after="a")),
        ("a committed, b committed",),
        Bounds(switches=2),
        on=narrowed,
    ),
    "a narrowed run that is cleared by hand, a crash": among(
        lambda: (again("a", ONE, TWO, **PLANNED), again("b", ONE, after="a")),
        ("a committed", "b committed"),
        Bounds(switches=1, crashes=1),
        on=narrowed,
    ),
    NARROWED_AND_LOADED: among(
        lambda: (
            again("a", ONE, TWO, **PLANNED, **LAST),
            unmarked("b", REPLACE, ONE, TWO, **OWN, **LAST),
        ),
        ("a committed, b committed",),
        Bounds(switches=1, most=2 * MOST),
        on=narrowed,
    ),
    TWO_PLANS: among(
        lambda: (planner("a", ONE, makes=(ONE, TWO)), planner("b", TWO, makes=(ONE, TWO))),
        ("a committed, b committed",),
        Bounds(switches=2, most=2 * MOST),
        on=narrowed,
        named=(),
    ),
    "a plan after one that has ended, and a clear by hand": among(
        lambda: (planner("a", TWO, makes=(ONE, TWO), ended=("plan",)), again("b", ONE, TWO)),
        ("a committed, b committed",),
        Bounds(switches=2),
        on=narrowed,
        begun=(ONE, TWO),
    ),
    PLAN_ENDED_LATE: among(
        lambda: (planner("a", TWO, makes=(ONE, TWO), ended=("plan",)), ender("plan")),
        ("a committed", "ender done"),
        Bounds(switches=2),
        on=narrowed,
        begun=(ONE, TWO),
    ),
    NARROWED_AND_GC: among(
        lambda: (again("a", ONE, TWO, **PLANNED), collector(), compactor(TWO)),
        ("a committed, compactor committed", "collector done"),
        Bounds(switches=1),
        on=narrowed,
        before=((APPEND, (TWO,), UNMARKED),),
    ),
    SETTLED_AND_LOSER: among(
        lambda: (
            again("a", ONE, TWO, **PLANNED, **WINS, **LAST),
            unmarked("b", REPLACE, ONE, **LOSES),
            unmarked("c", APPEND, ONE, **ranked(6)),
        ),
        ("a committed, b refused", "a refused, b committed", "a committed, c committed"),
        Bounds(switches=1, crashes=1),
        on=narrowed,
        **IN_CONFLICT,
    ),
    "a run that settles a conflict, and the one that has lost, a lost answer": among(
        lambda: (
            again("a", ONE, TWO, **PLANNED, **WINS, **LAST),
            unmarked("b", REPLACE, ONE, **LOSES),
        ),
        ("a committed, b refused", "a refused, b committed"),
        Bounds(switches=1, faults=1),
        on=narrowed,
        **IN_CONFLICT,
    ),
    SETTLED_TWICE: among(
        lambda: (
            again("a", ONE, **PLANNED, **WINS),
            # As new as the loser: by hand it also loads where no conflict could be settled.
            again("b", ONE, after="a", run_rank=RunRank.of("2013-01-05")),
            unmarked("c", REPLACE, ONE, **ranked(3)),
            unmarked("d", REPLACE, ONE, **LOSES),
        ),
        ("a committed, b committed", "a committed, c refused", "b committed, d refused"),
        Bounds(switches=1, most=3 * MOST),
        on=narrowed,
        **IN_CONFLICT,
    ),
    GC_AND_CLEARED: among(
        lambda: (again("a", ONE), collector()),
        ("a committed", "collector done"),
        Bounds(switches=2, most=2 * MOST),
        on=narrowed,
        before=((REPLACE, (TWO,), UNMARKED), (REPLACE, (TWO,), UNMARKED)),
        begun=(ONE, TWO),
    ),
}
BOUNDED |= NARROWED
RANDOM = {
    "three writers, a reader, recovery and purge": Scenario(crowd(**HARD), CROWD, random=True),
    "the same on a store like MinIO": Scenario(crowd(**HARD, behaviour=MINIO), CROWD, random=True),
    "the same where Complete resurrects": Scenario(crowd(behaviour=RESURRECTS), CROWD, random=True),
    "a replace of the table, strangers, heartbeats": Scenario(
        strangers(**HARD), ("a committed, b committed, c committed", "reader done"), random=True
    ),
    "tries of a run, lost uploads and repair": Scenario(
        runs(**HARD),
        ("a committed, c committed", "b committed, c committed", "reader done", "repairer done"),
        random=True,
    ),
    "a commit in two processes and a third writer": Scenario(
        lambda: twice(APPEND, ONE, TWO, beside=(writer("c", APPEND, ONE, TWO),)),
        ("c committed, first committed, second committed",),
        random=True,
        walks=290,
    ),
    "a commit in two processes, writers, recovery": Scenario(
        doubled(**HARD),
        ("c committed, first committed, second committed", "first refused, second refused"),
        random=True,
    ),
}
SCENARIOS = {**EXHAUSTIVE, **WIDER, **BOUNDED, **RANDOM}
