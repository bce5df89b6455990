"""The scenarios of the simulation: who takes part, on which store, within which bounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from simulation.explore import Explorer
from simulation.faults import Faults
from simulation.scenarios import (
    ONE,
    SCHEMA,
    TWO,
    adopter,
    again,
    checkpointer,
    cleaner,
    collector,
    compactor,
    decided,
    early_reader,
    ender,
    evolver,
    explorer,
    firsts,
    foreign_key,
    forgetter,
    heart,
    in_turn,
    indexer,
    inserter,
    job_id,
    merged_before,
    merger,
    narrowed,
    outlived,
    overwriter,
    past_reader,
    planner,
    purger,
    reader,
    recoverer,
    repairer,
    resolver,
    stranger,
    sweeper,
    taker_back,
    twice,
    twice_reported,
    undoer,
    witness,
    writer,
)

from support.memory_store import Behaviour
from zero_rename.committer import Mode, OnConflict, OnRepeat, Readers, SuccessMarkers
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.store.fast_root import FastRoot

APPEND, REPLACE, FAIL = Mode.APPEND, Mode.REPLACE, Mode.FAIL_IF_EXISTS
RESURRECTS = Behaviour(complete_again="resurrect", conditional_delete=False)
MINIO = Behaviour(conditional_delete=False, lists_uploads=False)
UNMARKED: dict[str, Any] = {"success_markers": SuccessMarkers.NONE}
INDEXED: dict[str, Any] = {"limits": Limits(heads_besides_index=0)}
#: Whoever moves heads writes the index; of the first heads, without a look.
FIRST: dict[str, Any] = {"limits": Limits(heads_without_index=1, heads_besides_index=0)}
SMALL: dict[str, Any] = {"limits": Limits(decisions_per_head=1, files_per_object=1)}
#: No list of files is ever merged into another.
LISTS: dict[str, Any] = {"limits": Limits(decisions_per_head=1, merged_below=0)}
#: A table of two jobs, so that heads name decisions of both.
TWICE: dict[str, Any] = {"before": ((Mode.APPEND, (ONE, TWO)), (Mode.APPEND, (ONE,)))}
#: States of a scenario that `make test` explores: every broken variant is caught within.
MOST = int(os.environ.get("SIMULATION_STATES", "3000"))
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
FIRSTS_EVOLVE = "first jobs with evolution, a reader, a crash"
OVERWRITE = "an overwrite of the columns and an append to a new partition"
FOLD_AND_REPLACE = "by heads: an append that folds and a replace, a lost answer"
UNDO_AND_PURGE = "an undoing and a purge that forgets, a crash"
REPLACE_AND_PURGE = "a replace and a purge that forgets, a crash"
CHECKPOINT_AND_REPLACE = "a checkpoint beside a replace"
CHECKPOINT_AND_PURGE = "a checkpoint and a purge that forgets, a crash"
PAST_AND_GC = "a reader of the past, gc, an append and an undoing"
LAST: dict[str, Any] = {"on_conflict": OnConflict.LAST_WINS}
NARROWED_TWICE = "a narrowed run, its next try, and a replace of what it is to make, a crash"
WHOLE_TWICE = "a run that a plan makes again whole, its next try, and a replace of it, a crash"
CLEARED_BY_HAND = "a narrowed run that is cleared by hand"
NARROWED_AND_LOADED = "a narrowed run, and a program that makes all of it"
TWO_PLANS = "two plans for one run"
PLAN_ENDED_LATE = "a plan after one that ends its word late"
NARROWED_AND_GC = "a narrowed run, gc and a compaction"
GC_AND_CLEARED = "a narrowed run that is cleared by hand, and gc"


@dataclass(frozen=True)
class Scenario:
    """A set of participants within bounds.

    :param make: makes the explorer; with a number of preemptions where those are bounded.
    :param reaches: what participants must be told in one end or another, each a list such as
        ``a committed, b refused``: without it a protocol that never commits would pass.
    :param switches: all interleavings with at most so many preemptions; ``None``: with any.
    :param random: explored by random walks, with seeds 0…n-1.
    :param most: states that `make test` explores.
    """

    make: Callable[..., Explorer]
    reaches: tuple[str, ...]
    switches: int | None = None
    random: bool = False
    most: int = MOST

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
    "two replaces of one partition": Scenario(two(REPLACE, REPLACE), RIVALS, most=8 * MOST),
    "an append and a replace of one partition": Scenario(two(APPEND, REPLACE), RIVALS),
    "two appends to one partition": Scenario(two(APPEND, APPEND), BOTH),
    "two that fail if a partition exists": Scenario(
        lambda: explorer(writer("a", FAIL, "day=3"), writer("b", FAIL, "day=3")), ONE_OF_TWO
    ),
    "two replaces that share one of two partitions": Scenario(
        lambda: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED), writer("b", REPLACE, TWO, **UNMARKED)
        ),
        RIVALS,
        most=4 * MOST,
    ),
    "two replaces of a partition each": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), writer("b", REPLACE, TWO)), BOTH
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
    ),
    "one that finds its partition taken, two faults, a crash": Scenario(
        one(FAIL, ONE, policy={"idempotency_key": "run"}, faults=2, crashes=1, owner=job_id("a")),
        ("a DestinationExistsError",),
    ),
    "one append, three faults, lost rights among them": Scenario(
        one(APPEND, ONE, faults=3, kinds=Faults(denials=True)), (*IN_DOUBT, "a StoreRefusedError")
    ),
    "a replace and recovery, a crash": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), crashes=1), SETTLED
    ),
    "a replace and recovery, a fault": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), faults=1), SETTLED
    ),
    "an append and a purge, a crash": Scenario(
        lambda: explorer(writer("a", APPEND, ONE), purger(), crashes=1),
        ("a committed", "purger done"),
    ),
    "an append and a purge of foreign uploads": Scenario(
        lambda: explorer(writer("a", APPEND, ONE), purger(foreign_older_than=0.0)),
        ("a committed", "purger done"),
    ),
    # A job that may be silent for no time at all is dead to whoever looks, and goes on.
    "an append and a sweep of uploads that takes it for dead": Scenario(
        lambda: explorer(writer("a", APPEND, ONE, max_duration=0.0), sweeper()),
        ("a committed", "a JobFencedError", "sweeper done"),
    ),
    "an append and a sweep of uploads, a fault, a crash": Scenario(
        lambda: explorer(
            writer("a", APPEND, ONE, max_duration=0.0), sweeper(), faults=1, crashes=1
        ),
        ("a committed", "a JobFencedError", "sweeper done"),
    ),
    "two appends that fold": Scenario(
        lambda: explorer(writer("a", APPEND, ONE, **SMALL), writer("b", APPEND, ONE, **SMALL)), BOTH
    ),
    "one append that folds, a fault, a crash": Scenario(
        one(APPEND, ONE, TWO, policy=SMALL, faults=1, crashes=1), DONE
    ),
    "one replace in parts, a fault, a crash": Scenario(
        one(REPLACE, ONE, TWO, policy=SMALL, faults=1, crashes=1), DONE
    ),
    "a replace in parts and recovery, a crash": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE, **SMALL), recoverer(**SMALL), crashes=1), SETTLED
    ),
    "a task that outlives the abort of its job": Scenario(
        lambda: explorer(outlived("a", ONE, commits=False)), ("a done",)
    ),
    "a task that outlives the commit of its job": Scenario(
        lambda: explorer(outlived("a", ONE, commits=True)), DONE
    ),
}
COLLECTED = {
    "an append that folds, and gc": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **SMALL, **UNMARKED), collector(**SMALL), **TWICE, **bounds
        ),
        ("a committed", "collector done"),
        switches=2,
    ),
    "a replace, and gc, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, **UNMARKED), collector(), crashes=1, **TWICE, **bounds
        ),
        ("a committed", "collector done"),
        switches=1,
    ),
    "a replace in parts, and gc, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO, **SMALL, **UNMARKED),
            collector(**SMALL),
            crashes=1,
            **bounds,
        ),
        ("a committed", "collector done"),
        switches=1,
        most=2 * MOST,
    ),
    "gc and a reader": Scenario(
        lambda **bounds: explorer(collector(), reader(ONE, TWO), **TWICE, **bounds),
        ("collector done", "reader done"),
        switches=3,
    ),
    "gc that dies with requests in flight, and gc again": Scenario(
        lambda **bounds: explorer(
            collector("first"),
            collector("second"),
            reader(ONE, TWO),
            crashes=1,
            kinds=Faults(in_flight=True),
            **TWICE,
            **bounds,
        ),
        ("second done", "reader done"),
        switches=1,
        most=2 * MOST,
    ),
    "gc beside a rival whose answers are lost": Scenario(
        lambda **bounds: explorer(
            collector(),
            writer("a", APPEND, ONE, **UNMARKED),
            before=((APPEND, (ONE,)), (APPEND, (ONE,))),
            faults=1,
            **bounds,
        ),
        ("a committed", "collector done"),
        switches=1,
        most=4 * MOST,
    ),
    "a job that died before it was applied, gc and recovery": Scenario(
        lambda **bounds: decided(REPLACE, ONE, collector(), recoverer(), **bounds),
        ("collector done", "recoverer done"),
        switches=2,
    ),
    "two tries of a run, and gc, a crash": Scenario(
        lambda **bounds: explorer(
            collector(),
            writer("a", APPEND, ONE, idempotency_key="run", **UNMARKED),
            writer("b", APPEND, ONE, idempotency_key="run", **UNMARKED),
            crashes=1,
            **bounds,
        ),
        ("a committed", "b committed", "a repeated", "b repeated", "collector done"),
        switches=1,
        most=2 * MOST,
    ),
    "a run that replaces its own rows after gc": Scenario(
        lambda **bounds: explorer(
            collector(),
            writer("a", APPEND, ONE, **OWN, **UNMARKED),
            before=((APPEND, (ONE,), {"idempotency_key": "run"}), (APPEND, (ONE,))),
            **bounds,
        ),
        ("a committed", "collector done"),
        switches=2,
    ),
    "two appends that fold into lists of their own, gc and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **LISTS, **UNMARKED),
            collector(**LISTS),
            writer("b", APPEND, ONE, **LISTS, **UNMARKED),
            reader(ONE),
            **TWICE,
            **bounds,
        ),
        (*BOTH, "collector done", "reader done"),
        switches=1,
    ),
    "an append committed by two processes, and gc": Scenario(
        lambda **bounds: twice(APPEND, ONE, beside=(collector(),), **bounds),
        (*SHARED, "collector done"),
        switches=2,
    ),
}
KEPT = {
    "a replace that keeps, an append and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO, **KEEPS),
            writer("b", APPEND, ONE, **UNMARKED),
            reader(ONE, TWO),
            **bounds,
        ),
        (*BOTH, "reader done"),
        switches=1,
    ),
    "a replace that keeps, recovery and gc, a fault, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, **KEEPS),
            recoverer(),
            collector(),
            faults=1,
            crashes=1,
            **bounds,
        ),
        (*SETTLED, "collector done"),
        switches=1,
    ),
    "a replace that keeps, and one that does not": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, **KEEPS), writer("b", REPLACE, ONE, **UNMARKED), **bounds
        ),
        RIVALS,
        switches=2,
    ),
}
#: A partition of two runs, and of a resolution that kept the rows of the second one.
BY_HEADS: dict[str, Any] = {"readers": Readers.HEADS}
#: Of files that heads alone tell of.
HEADS_ALONE: dict[str, Scenario] = {
    "by heads: one replace of two partitions, faults, a crash": Scenario(
        one(REPLACE, ONE, TWO, policy=UNMARKED, faults=2, crashes=1, kinds=WORST, **BY_HEADS),
        (*DONE, "a StoreUnreachableError"),
        most=12000,
    ),
    "by heads: two replaces of one partition, a crash": Scenario(
        two(REPLACE, REPLACE, crashes=1, **BY_HEADS), ONE_OF_TWO
    ),
    "by heads: a task that outlives the abort of its job": Scenario(
        lambda: explorer(outlived("a", ONE, commits=False), purger(), **BY_HEADS), ("purger done",)
    ),
    "by heads: a task that outlives the commit of its job": Scenario(
        lambda: explorer(outlived("a", ONE, commits=True), purger(), **BY_HEADS),
        ("a committed", "purger done"),
    ),
    "by heads: a replace beside a purge and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, **UNMARKED), purger(), reader(ONE), **BY_HEADS, **bounds
        ),
        ("a committed", "purger done", "reader done"),
        switches=3,
        most=9000,
    ),
    "by heads: an append beside a purge": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **UNMARKED), purger(), **BY_HEADS, **bounds
        ),
        ("a committed", "purger done"),
        switches=3,
        most=9000,
    ),
    "by heads: a job that died before it was applied, recovery and a purge": Scenario(
        lambda: decided(REPLACE, ONE, recoverer(), purger(), crashes=1, **BY_HEADS),
        ("recoverer done", "purger done"),
    ),
    "by heads: two that fail where files are": Scenario(
        two(FAIL, FAIL, **BY_HEADS), ("a refused",)
    ),
    "by heads: two tries of a run that take back their own": Scenario(
        lambda: explorer(
            writer("a", APPEND, ONE, **OWN, **UNMARKED),
            writer("b", APPEND, ONE, **OWN, **UNMARKED),
            **BY_HEADS,
        ),
        ("a committed", "b committed"),
    ),
    "by heads: an append committed by two processes, and a purge": Scenario(
        lambda: twice(APPEND, ONE, beside=(purger(),), **BY_HEADS), SHARED
    ),
}
CONFLICT: dict[str, Any] = {"before": ((APPEND, (ONE,)), (APPEND, (ONE,)))}
RESOLVED: dict[str, Any] = {"before": (*CONFLICT["before"], (REPLACE, (ONE,), KEEPS))}
REWRITTEN = {
    "a resolution beside an append": Scenario(
        lambda **bounds: explorer(
            resolver(ONE, "newest"), writer("b", APPEND, ONE, **UNMARKED), **CONFLICT, **bounds
        ),
        ("b committed, resolver committed", "b committed, resolver refused"),
        switches=1,
    ),
    "a resolution beside a compaction": Scenario(
        lambda **bounds: explorer(resolver(ONE, "newest"), compactor(ONE), **CONFLICT, **bounds),
        (
            "compactor committed, resolver refused",
            "compactor refused, resolver committed",
        ),
        switches=1,
    ),
    "an undoing beside an append": Scenario(
        lambda **bounds: explorer(
            undoer(ONE, job_id("before2")),
            writer("b", APPEND, ONE, **UNMARKED),
            **RESOLVED,
            **bounds,
        ),
        ("b committed, undoer committed", "b committed, undoer refused"),
        switches=1,
    ),
    "an undoing and gc": Scenario(
        lambda **bounds: explorer(
            undoer(ONE, job_id("before2")), collector(), **RESOLVED, **bounds
        ),
        ("undoer committed", "undoer refused", "collector done"),
        switches=2,
    ),
    "two undoings of one job, a crash": Scenario(
        lambda **bounds: explorer(
            undoer(ONE, job_id("before2"), "first"),
            undoer(ONE, job_id("before2"), "second"),
            crashes=1,
            **RESOLVED,
            **bounds,
        ),
        ("first committed, second refused", "first refused, second committed"),
        switches=1,
    ),
    "a compaction beside an append": Scenario(
        lambda **bounds: explorer(
            compactor(ONE), writer("b", APPEND, ONE, **UNMARKED), **CONFLICT, **bounds
        ),
        ("b committed, compactor committed", "b committed, compactor refused"),
        switches=1,
    ),
}
#: Merges of one key, which go by the state that they have read.
MERGED = {
    "two merges of one partition": Scenario(
        lambda **bounds: explorer(merger("a", ONE), merger("b", ONE), **bounds),
        (*BOTH, *ONE_OF_TWO),
        switches=1,
    ),
    "two merges of one partition, a fault, a crash": Scenario(
        lambda **bounds: explorer(
            merger("a", ONE), merger("b", ONE), faults=1, crashes=1, **bounds
        ),
        ("a committed", "b committed"),
        switches=1,
    ),
    "two insertions of one key into two partitions": Scenario(
        lambda **bounds: explorer(inserter("a", ONE), inserter("b", TWO), **bounds),
        ("a committed", "b committed", *ONE_OF_TWO),
        switches=2,
        most=6 * MOST,
    ),
    "a merge beside an append and a compaction": Scenario(
        lambda **bounds: explorer(
            merger("a", ONE),
            writer("b", APPEND, ONE, **UNMARKED),
            compactor(ONE),
            **CONFLICT,
            **bounds,
        ),
        (
            "a committed, b committed, compactor committed",
            "a refused, b committed",
            "a committed, compactor refused",
        ),
        switches=1,
    ),
    "by heads: two merges of one partition": Scenario(
        lambda **bounds: explorer(merger("a", ONE), merger("b", ONE), **BY_HEADS, **bounds),
        (*BOTH, *ONE_OF_TWO),
        switches=1,
    ),
    "a merge that is made again beside a replace": Scenario(
        lambda **bounds: merged_before(
            "a",
            merger("a", ONE, TWO, attempts=2),
            writer("b", REPLACE, ONE, TWO, **UNMARKED),
            **bounds,
        ),
        ("b committed",),
        switches=1,
    ),
}
BOUNDED = {
    **MERGED,
    **HEADS_ALONE,
    **COLLECTED,
    **KEPT,
    **REWRITTEN,
    "two jobs that bring a column each": Scenario(
        lambda **bounds: explorer(
            evolver("a", ONE, **UNMARKED), evolver("b", TWO, **UNMARKED), **bounds
        ),
        BOTH,
        switches=2,
    ),
    "two jobs that bring a column each, a fault, a crash": Scenario(
        lambda **bounds: explorer(
            evolver("a", ONE, **UNMARKED),
            evolver("b", TWO, **UNMARKED),
            faults=1,
            crashes=1,
            **bounds,
        ),
        BOTH,
        switches=1,
        most=3 * MOST,
    ),
    "a job that brings a column, an append and a reader": Scenario(
        lambda **bounds: explorer(
            evolver("a", ONE, **UNMARKED),
            writer("b", APPEND, ONE, **UNMARKED),
            reader(ONE, TWO),
            **bounds,
        ),
        (*BOTH, "reader done"),
        switches=2,
    ),
    "a job that brings a column, recovery and another, a crash": Scenario(
        lambda **bounds: explorer(
            evolver("a", ONE, **UNMARKED),
            recoverer(),
            evolver("b", TWO, **UNMARKED),
            crashes=1,
            **bounds,
        ),
        (*BOTH, "a JobFencedError", "recoverer done"),
        switches=1,
        most=2 * MOST,
    ),
    OVERWRITE: Scenario(
        lambda **bounds: explorer(
            overwriter("a", ONE, **UNMARKED),
            writer("b", APPEND, "day=3", **UNMARKED),
            before=((APPEND, (ONE,)),),
            **bounds,
        ),
        RIVALS,
        switches=2,
        most=2 * MOST,
    ),
    "an overwrite of the columns, one that brings one, a crash": Scenario(
        lambda **bounds: explorer(
            overwriter("a", ONE, **LAST, **UNMARKED),
            evolver("b", "day=3", **LAST, **UNMARKED),
            before=((APPEND, (ONE,)),),
            crashes=1,
            **bounds,
        ),
        (*BOTH, "a committed, b refused"),
        switches=1,
        most=2 * MOST,
    ),
    "two overwrites of the columns and a reader": Scenario(
        lambda **bounds: explorer(
            overwriter("a", ONE, **LAST, **UNMARKED),
            overwriter("b", ONE, **LAST, **UNMARKED),
            reader(ONE),
            before=((APPEND, (ONE,)),),
            **bounds,
        ),
        (*BOTH, "reader done"),
        switches=2,
        most=MOST // 2,
    ),
    "an append and a replace that is slow to remove": Scenario(
        lambda **bounds: explorer(writer("a", APPEND, ONE), writer("b", REPLACE, ONE), **bounds),
        BOTH,
        switches=2,
        most=4 * MOST,
    ),
    "two replaces of two partitions": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO), writer("b", REPLACE, ONE, TWO), **bounds
        ),
        RIVALS,
        switches=1,
    ),
    "a replace of two partitions and a reader": Scenario(
        lambda **bounds: explorer(writer("a", REPLACE, ONE, TWO), reader(ONE, TWO), **bounds),
        ("a committed", "reader done"),
        switches=3,
    ),
    "a replace and a reader that may not write": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO), reader(ONE, TWO, writes=False), **bounds
        ),
        ("a committed", "reader done", "reader UnfinishedCommitError"),
        switches=2,
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
        most=10 * MOST,
    ),
    "two tries of one run, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, idempotency_key="run"),
            writer("b", APPEND, ONE, idempotency_key="run"),
            crashes=1,
            **bounds,
        ),
        ("a committed", "b committed", "a repeated", "b repeated"),
        switches=1,
        most=2 * MOST,
    ),
    "a slow applier where Complete resurrects": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE),
            recoverer(),
            writer("b", REPLACE, ONE),
            behaviour=RESURRECTS,
            **bounds,
        ),
        RIVALS,
        switches=2,
        most=16 * MOST,
    ),
    "a replace and a reader of an index": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED),
            reader(ONE, TWO, **INDEXED),
            indexed=True,
            **bounds,
        ),
        ("a committed", "reader done"),
        switches=3,
    ),
    "a replace, and who writes the index and reads": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED), indexer(ONE, TWO, **INDEXED), **bounds
        ),
        ("a committed", "indexer done"),
        switches=3,
    ),
    "two appends that write the index, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **INDEXED, **UNMARKED),
            writer("b", APPEND, TWO, **INDEXED, **UNMARKED),
            crashes=1,
            **bounds,
        ),
        BOTH,
        switches=1,
    ),
    "two appends that write the first index, and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **FIRST, **UNMARKED),
            writer("b", APPEND, ONE, TWO, **FIRST, **UNMARKED),
            reader(ONE, TWO, **INDEXED),
            before=(),
            **bounds,
        ),
        (*BOTH, "reader done"),
        switches=1,
    ),
    "two appends that fold, a fault": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **SMALL, **UNMARKED),
            writer("b", APPEND, ONE, **SMALL, **UNMARKED),
            faults=1,
            **bounds,
        ),
        BOTH,
        switches=1,
        most=6 * MOST,
    ),
    "a folding append, a replace and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **SMALL),
            writer("b", REPLACE, ONE, **SMALL),
            reader(ONE),
            **bounds,
        ),
        (*RIVALS, "reader done"),
        switches=2,
    ),
}
WIDER = {
    "one job that brings a column, two faults, a crash": Scenario(
        lambda: explorer(evolver("a", ONE), faults=2, crashes=1, kinds=WORST), IN_DOUBT
    ),
    "one append, three faults, reads among them": Scenario(
        one(APPEND, ONE, faults=3, kinds=Faults(reads=True)), IN_DOUBT
    ),
    "one replace, two faults, deletes among them, a crash": Scenario(
        one(REPLACE, ONE, faults=2, crashes=1, kinds=WORST, before=((APPEND, (ONE,)),) * 2),
        ("a committed", "a UnfinishedCommitError"),
    ),
    "a replace and recovery, requests in flight at a crash": Scenario(
        lambda: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED), recoverer(), crashes=1, kinds=WORST
        ),
        SETTLED,
    ),
    "a replace of foreign files and a stranger": Scenario(
        lambda: explorer(
            writer("a", REPLACE, ONE),
            stranger(foreign_key(ONE), foreign_key(ONE, "late")),
            before=(),
            foreign=(ONE,),
        ),
        ("a committed", "stranger done"),
    ),
    "an append to foreign files, a fault, a crash": Scenario(
        one(APPEND, ONE, before=(), foreign=(ONE,), faults=1, crashes=1), DONE
    ),
    "two first appends to foreign files": Scenario(
        lambda: explorer(
            writer("a", APPEND, ONE, **UNMARKED),
            writer("b", APPEND, ONE, **UNMARKED),
            before=(),
            foreign=(ONE,),
        ),
        BOTH,
    ),
    "one whose results are reported twice": Scenario(
        lambda: explorer(writer("a", APPEND, ONE, spoil=twice_reported)), ("a TaskResultsError",)
    ),
    "a named replace without rows, and an append": Scenario(
        lambda: explorer(
            writer("a", REPLACE, replace_partitions=(ONE,)), writer("b", APPEND, ONE, **UNMARKED)
        ),
        RIVALS,
    ),
    "a job with heartbeats, and recovery": Scenario(
        lambda: explorer(writer("a", APPEND, ONE, **UNMARKED), heart("a"), recoverer()),
        ("a committed", "a JobFencedError", "heart done", "recoverer done"),
    ),
    "a replace of the table, and an append to an old and a new partition": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, replace_table=True, **LAST, **UNMARKED),
            writer("b", APPEND, TWO, "day=3", **UNMARKED),
            before=((APPEND, (ONE, TWO)),),
            **bounds,
        ),
        BOTH,
        switches=2,
        most=4 * MOST,
    ),
    "a cleared run that replaces its own, and an append": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **OWN, **UNMARKED),
            writer("b", APPEND, ONE, **UNMARKED),
            before=((APPEND, (ONE,), {"idempotency_key": "run"}),),
            foreign=(ONE,),
            **bounds,
        ),
        BOTH,
        switches=2,
    ),
    "a cleared run whose rows are in a list that is folded beside it": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **OWN, **UNMARKED, **LISTS),
            writer("b", APPEND, ONE, **UNMARKED, **LISTS),
            reader(ONE),
            before=((APPEND, (ONE,), {"idempotency_key": "run", **LISTS}), (APPEND, (ONE,), LISTS)),
            **bounds,
        ),
        (*BOTH, "reader done"),
        switches=1,
    ),
    "a cleared run that replaces its own, and one that folds": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **OWN, **UNMARKED, **SMALL),
            writer("b", APPEND, ONE, **UNMARKED, **SMALL),
            before=((APPEND, (ONE,), {"idempotency_key": "run"}),),
            foreign=(ONE,),
            faults=1,
            **bounds,
        ),
        BOTH,
        switches=1,
    ),
    "a job whose uploads are lost, and repair": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED),
            cleaner(),
            repairer(),
            loses=True,
            **bounds,
        ),
        ("a committed", "a DataLostError", "repairer done"),
        switches=2,
    ),
    "two that make the table": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE), writer("b", APPEND, ONE), before=None, **bounds
        ),
        BOTH,
        switches=1,
    ),
}
WIDER |= {
    "two first jobs, a fault": Scenario(
        lambda **bounds: firsts(ONE, TWO, faults=1, **bounds),
        (*BOTH, "a JobFencedError", "b JobFencedError"),
        switches=1,
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
    "adoption beside another committer, a fault": Scenario(
        lambda **bounds: explorer(
            adopter(),
            witness(foreign_key(TWO)),
            before=(),
            foreign=(ONE,),
            unadopted=True,
            faults=1,
            **bounds,
        ),
        ("adopter done", "witness done"),
        switches=2,
    ),
    "adoption beside a replace, and an append": Scenario(
        lambda **bounds: explorer(
            adopter(),
            writer("a", REPLACE, ONE, **UNMARKED),
            writer("b", APPEND, TWO, **UNMARKED),
            before=(),
            foreign=(ONE, TWO),
            unadopted=True,
            **bounds,
        ),
        (*BOTH, "adopter done"),
        switches=1,
    ),
    "an adoption that dies beside another committer": Scenario(
        lambda: explorer(
            adopter(),
            witness(foreign_key(TWO)),
            before=(),
            foreign=(ONE,),
            unadopted=True,
            crashes=1,
        ),
        ("adopter done", "witness done"),
    ),
}
WIDER |= {
    "two replaces of one partition, symlink manifests": Scenario(
        two(REPLACE, REPLACE, symlinks=True), RIVALS, most=6 * MOST
    ),
    "a replace and recovery, symlink manifests, a crash": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), symlinks=True, crashes=1), SETTLED
    ),
    "a slow applier, then a replace and an append, symlink manifests": Scenario(
        lambda **bounds: decided(
            REPLACE, ONE, reader(ONE), in_turn(ONE, REPLACE, APPEND), symlinks=True, **bounds
        ),
        ("reader done", "turns done"),
        switches=2,
    ),
    "a slow applier, then a partition emptied twice, symlink manifests": Scenario(
        lambda **bounds: decided(
            APPEND,
            ONE,
            reader(ONE),
            in_turn(ONE, None),
            before=(REPLACE, (), {"replace_partitions": (ONE,)}),
            symlinks=True,
            **bounds,
        ),
        ("reader done", "turns done"),
        switches=2,
    ),
    "an append that folds, symlink manifests, a fault": Scenario(
        one(APPEND, ONE, policy={**SMALL, **UNMARKED}, symlinks=True, faults=1), DONE
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


#: A partition that was replaced, in a table that is read by heads.
KEEPING: dict[str, Any] = {
    "readers": Readers.HEADS,
    "before": ((APPEND, (ONE,)), (REPLACE, (ONE,))),
}
FAST = FastRoot.parse("s3://fast/scratch")
#: A partition whose files lie in a fast root.
FAST_FIRST: dict[str, Any] = {
    "readers": Readers.HEADS,
    "data_root": FAST,
    "before": ((APPEND, (ONE,)),),
}
CHECKPOINTS = {
    CHECKPOINT_AND_REPLACE: Scenario(
        lambda **bounds: explorer(
            checkpointer(ONE), writer("b", REPLACE, ONE, **UNMARKED), **FAST_FIRST, **bounds
        ),
        ("b committed, checkpointer committed", "b committed, checkpointer refused"),
        switches=1,
    ),
    CHECKPOINT_AND_PURGE: Scenario(
        lambda **bounds: explorer(
            checkpointer(ONE), forgetter(data_root=FAST), crashes=1, **FAST_FIRST, **bounds
        ),
        ("checkpointer committed", "forgetter done"),
        switches=2,
    ),
    "a checkpoint and an append, a lost answer": Scenario(
        lambda **bounds: explorer(
            checkpointer(ONE),
            writer("b", APPEND, ONE, **UNMARKED),
            faults=1,
            **FAST_FIRST,
            **bounds,
        ),
        ("b committed, checkpointer committed", "b committed, checkpointer refused"),
        switches=1,
    ),
    "a checkpoint that died before it was applied, recovery and a purge": Scenario(
        lambda **bounds: explorer(
            checkpointer(ONE),
            recoverer(),
            forgetter(data_root=FAST),
            crashes=1,
            **FAST_FIRST,
            **bounds,
        ),
        ("recoverer done",),
        switches=1,
    ),
}
PAST = {
    FOLD_AND_REPLACE: Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **UNMARKED, **SMALL),
            writer("b", REPLACE, ONE, **UNMARKED, **LAST),
            faults=1,
            readers=Readers.HEADS,
            before=((APPEND, (ONE,), {**SMALL}),),
            **bounds,
        ),
        ("a committed, b committed",),
        switches=1,
        most=5 * MOST,
    ),
    UNDO_AND_PURGE: Scenario(
        lambda **bounds: explorer(
            taker_back(job_id("before1")), forgetter(), crashes=1, **KEEPING, **bounds
        ),
        ("taker committed", "taker refused", "forgetter done"),
        switches=2,
    ),
    REPLACE_AND_PURGE: Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, **UNMARKED), forgetter(), crashes=1, **KEEPING, **bounds
        ),
        ("a committed", "forgetter done"),
        switches=3,
    ),
    "a replace and a purge that keeps, lost answers": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED),
            forgetter(keep=64),
            faults=1,
            **KEEPING,
            **bounds,
        ),
        ("a committed", "forgetter done"),
        switches=2,
    ),
    "two jobs and an undoing": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **UNMARKED),
            writer("b", REPLACE, ONE, **UNMARKED),
            taker_back(job_id("before1")),
            **KEEPING,
            **bounds,
        ),
        ("taker committed", "taker refused", "a committed, b committed"),
        switches=2,
        most=2 * MOST,
    ),
    "two undoings of one job": Scenario(
        lambda **bounds: explorer(
            taker_back(job_id("before1")),
            taker_back(job_id("before1"), name="other"),
            recoverer(),
            **KEEPING,
            **bounds,
        ),
        ("other refused, taker committed", "other committed, taker refused"),
        switches=2,
        most=2 * MOST,
    ),
    PAST_AND_GC: Scenario(
        lambda **bounds: explorer(
            past_reader(ONE, 2),
            collector(**SMALL),
            writer("a", APPEND, ONE, **UNMARKED, **SMALL),
            taker_back(job_id("before2")),
            readers=Readers.HEADS,
            before=(
                (APPEND, (ONE,), {**SMALL}),
                (APPEND, (ONE,), {**SMALL}),
                (REPLACE, (ONE,), {**SMALL}),
            ),
            **bounds,
        ),
        ("a committed", "taker committed", "reader done", "collector done"),
        switches=1,
        most=2 * MOST,
    ),
}
PLANNED: dict[str, Any] = {"named": (ONE,)}
MENDED: dict[str, Any] = {"before": ((REPLACE, (TWO,), UNMARKED),)}
NARROWED = {
    NARROWED_TWICE: Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, **PLANNED),
            again("b", ONE, TWO, **PLANNED),
            writer("c", REPLACE, ONE, **UNMARKED),
            crashes=1,
            **MENDED,
            **bounds,
        ),
        ("a committed, b committed", "a committed, c committed", "a refused, c committed"),
        switches=1,
        most=2 * MOST,
    ),
    "by heads: a narrowed run, its next try, and a replace, a lost answer": Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, **PLANNED),
            again("b", ONE, TWO, **PLANNED),
            writer("c", REPLACE, ONE, **UNMARKED),
            faults=1,
            **MENDED,
            **BY_HEADS,
            **bounds,
        ),
        ("a committed, b committed", "a committed, c committed", "a refused, c committed"),
        switches=1,
    ),
    WHOLE_TWICE: Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, named=(ONE, TWO)),
            again("b", ONE, named=(ONE, TWO)),
            writer("c", REPLACE, ONE, **UNMARKED),
            crashes=1,
            named=(ONE, TWO),
            whole=True,
            **bounds,
        ),
        ("a committed, b committed", "a committed, c committed", "a refused, c committed"),
        switches=1,
        most=2 * MOST,
    ),
    CLEARED_BY_HAND: Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, **PLANNED), again("b", ONE, after="a"), **bounds
        ),
        ("a committed, b committed",),
        switches=2,
        most=2 * MOST,
    ),
    "a narrowed run that is cleared by hand, a crash": Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, **PLANNED), again("b", ONE, after="a"), crashes=1, **bounds
        ),
        ("a committed", "b committed"),
        switches=1,
    ),
    NARROWED_AND_LOADED: Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, **PLANNED, **LAST),
            writer("b", REPLACE, ONE, TWO, **OWN, **LAST, **UNMARKED),
            **bounds,
        ),
        ("a committed, b committed",),
        switches=1,
    ),
    TWO_PLANS: Scenario(
        lambda **bounds: narrowed(
            planner("a", ONE, makes=(ONE, TWO)),
            planner("b", TWO, makes=(ONE, TWO)),
            named=(),
            **bounds,
        ),
        ("a committed, b committed",),
        switches=2,
        most=2 * MOST,
    ),
    "a plan after one that has ended, and a clear by hand": Scenario(
        lambda **bounds: narrowed(
            planner("a", TWO, makes=(ONE, TWO), ended=("plan",)),
            again("b", ONE, TWO),
            begun=(ONE, TWO),
            **bounds,
        ),
        ("a committed, b committed",),
        switches=2,
    ),
    PLAN_ENDED_LATE: Scenario(
        lambda **bounds: narrowed(
            planner("a", TWO, makes=(ONE, TWO), ended=("plan",)),
            ender("plan"),
            begun=(ONE, TWO),
            **bounds,
        ),
        ("a committed", "ender done"),
        switches=2,
    ),
    NARROWED_AND_GC: Scenario(
        lambda **bounds: narrowed(
            again("a", ONE, TWO, **PLANNED),
            collector(),
            compactor(TWO),
            before=((APPEND, (TWO,), UNMARKED),),
            **bounds,
        ),
        ("a committed, compactor committed", "collector done"),
        switches=1,
    ),
    GC_AND_CLEARED: Scenario(
        lambda **bounds: narrowed(
            again("a", ONE),
            collector(),
            before=((REPLACE, (TWO,), UNMARKED), (REPLACE, (TWO,), UNMARKED)),
            begun=(ONE, TWO),
            **bounds,
        ),
        ("a committed", "collector done"),
        switches=2,
    ),
}
BOUNDED |= PAST | CHECKPOINTS | NARROWED
RANDOM = {
    "three writers, a reader, recovery and purge": Scenario(crowd(**HARD), CROWD, random=True),
    "by heads: three writers, a reader, recovery and purge": Scenario(
        crowd(**HARD, **BY_HEADS), CROWD, random=True
    ),
    "by heads: the same where Complete resurrects": Scenario(
        crowd(behaviour=RESURRECTS, **BY_HEADS), CROWD, random=True
    ),
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
    ),
    "a commit in two processes, writers, recovery": Scenario(
        doubled(**HARD),
        ("c committed, first committed, second committed", "first refused, second refused"),
        random=True,
    ),
}
SCENARIOS = {**EXHAUSTIVE, **WIDER, **BOUNDED, **RANDOM}
