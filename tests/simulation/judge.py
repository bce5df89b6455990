"""Whether what happened was right: at each request, at each participant's end, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simulation.columns import check_columns, check_read_columns
from simulation.faults import Faults
from simulation.histories import (
    check_claims_released,
    check_new_decision,
    check_not_reborn,
    check_serial,
)
from simulation.invariants import (
    LOST,
    ROOT,
    Violation,
    check_applied,
    check_nothing_left,
    check_outcome,
    check_owner,
    check_reader,
    check_recovered,
    check_step,
    has_lost_the_store,
    told,
)
from simulation.kept import check_kept, keepers_before, kept_files
from simulation.merged import check_merged, check_one_key
from simulation.narrowed import check_narrowed
from simulation.program import Ids, Node
from simulation.rewritten import check_rewritten
from simulation.settled import check_settled
from simulation.sim_store import Store, apply
from simulation.visible import check_visible
from simulation.world import Participant, World

from support.memory_store import Behaviour, flatten
from zero_rename.committer import (
    Committed,
    DataLostError,
    OtherJobError,
    OutcomeUnknownError,
    RefusedError,
    SnapshotGoneError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from zero_rename.committer.commit.snapshot import Snapshot, take_snapshot
from zero_rename.committer.commit.state.context import Context
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.store import requests as s
from zero_rename.committer.upkeep.purging.purge import purge
from zero_rename.committer.upkeep.rebuilt_heads import rebuild_heads
from zero_rename.committer.upkeep.recovery import recover
from zero_rename.committer.upkeep.repair import repair

#: Where it is noted which files of others must stay in sight: beside the table.
PROMISED = "promised/"
#: How a writer, and a reader or maintenance, may end besides returning.
_OF_OTHERS = (OtherJobError, OutcomeUnknownError, UnfinishedCommitError, SnapshotGoneError)
_OF_WRITERS = (RefusedError, *_OF_OTHERS)


def run_to_end(
    store: Store, step: s.Step[Any], behaviour: Behaviour, last: str | None = None
) -> Store:
    """Carry out a step alone and without faults.

    :param last: the key whose Put is the last request: its process dies then.
    :returns: the store after it.
    """
    single = flatten(step)
    answer: Any = None
    while True:
        try:
            request = single.send(answer)
        except StopIteration:
            return store
        answer = None
        if isinstance(request, s.Clock):
            answer = 0.0
        elif isinstance(request, s.ServerName):
            answer = "simulation"
        elif not isinstance(request, s.Wait):
            before = store
            store, answer = apply(store, request, behaviour)
            check_step(before, store)
            if isinstance(request, s.Put) and request.key == last:
                return store


class Judge:
    """Checks of one exploration.

    :param start: the store at the beginning.
    :param loses: whether uploads of committed jobs can be lost to a foreign tool.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        start: Store,
        behaviour: Behaviour,
        context: Callable[[Ids], Context],
        kinds: Faults,
        loses: bool,
    ) -> None:
        self._participants = participants
        self._start = start
        self._behaviour = behaviour
        self._context = context
        self._loses = loses
        self._kinds = kinds
        more = (DataLostError,) if loses else ()
        self._of_writers = (*_OF_WRITERS, *more)
        # Maintenance gives up where the store does not answer, or says no.
        gives_up = kinds.reads or kinds.denials
        self._of_others = (*(_OF_WRITERS if gives_up else _OF_OTHERS), *more)
        self._whole = {p.job for p in participants if p.whole and p.job is not None}
        self._keepers = {p.job for p in participants if p.keeps and p.job is not None}
        self._keepers |= keepers_before(start)
        self._recovered: dict[int, Store] = {}
        #: What participants were told, each set at one time.
        self.reached: set[frozenset[str]] = set()

    def step(self, before: Store, after: Store, owner: str | None, process: str) -> None:
        """One request.

        :param owner: the only job of which anybody takes part; ``process``: who of it sent this.
        :raises Violation: it did what no request may do.
        """
        if before.objects is after.objects:
            return
        check_step(before, after)
        check_not_reborn(before, after)
        check_columns(before, after)
        check_visible(before, after, self._behaviour.conditional_delete)
        check_kept(before, after, self._keepers)
        if owner is not None:
            check_owner(before, after, owner, process)
        if after.ticks != before.ticks:
            prefix = ROOT.decisions_prefix
            for key in after.objects.keys() - before.objects.keys():
                if key.startswith(prefix) and key.endswith(".json"):
                    job = key.removeprefix(prefix).removesuffix(".json")
                    check_new_decision(after, job)
                    check_rewritten(after, job)
                    check_merged(after, job)
                    check_one_key(after, job)
                    check_narrowed(after, job)
                    check_settled(after, job)

    def done(self, participant: Participant, outcome: Node, store: Store) -> None:
        """A participant's end.

        :raises Violation: what it was told is not true, or not what it may be told.
        """
        self.reached.add(frozenset({f"{participant.program.name} {_word(participant, outcome)}"}))
        # Who cannot read does not know what another process does with its job.
        if participant.alone or not (self._kinds.reads and has_lost_the_store(outcome)):
            self._check_told(participant, outcome, store)
        if isinstance(outcome.value, Committed):
            check_applied(store, outcome.value.job)
        if isinstance(outcome.value, Snapshot):
            check_reader(store, outcome.value, participant.reads)
            check_read_columns(outcome.value)
        expected = self._of_writers if participant.job is not None else self._of_others
        if outcome.kind == "raised" and not isinstance(outcome.value, expected):
            raise Violation("ability to abort", f"{outcome.value!r}")

    def end(self, world: World, settled: bool) -> None:
        """Recover as a maintenance task would, and check what is then.

        :param settled: whether all that took part must have left nothing to recover.
        :raises Violation: it is not as it must be.
        """
        if settled:
            check_nothing_left(world.store)
        store = self._recovered.get(world.store.digest)
        if store is None:
            store = self._recover(world.store)
            check_recovered(store, self._start, kept_files(store, self._keepers))
            check_serial(store, self._whole)
            self._check_facts(store)
            self._check_promised(store)
            self._recovered[world.store.digest] = store
        said = set()
        for participant, state in zip(self._participants, world.states, strict=True):
            outcome = participant.program.outcome(state)
            if participant.job is not None and outcome is not None:
                # Nor can it keep the other one from committing after it was told.
                if participant.alone or not has_lost_the_store(outcome):
                    self._check_told(participant, outcome, store)
                said.add(f"{participant.program.name} {told(participant.job, outcome)}")
        self.reached.add(frozenset(said))

    @staticmethod
    def _check_told(participant: Participant, outcome: Node, store: Store) -> None:
        if participant.job is not None:
            check_outcome(store, participant.job, outcome)

    def _recover(self, store: Store) -> Store:
        """Recovery and purge, alone and without faults."""
        context = self._context(Ids("maintenance"))
        try:
            if self._loses:
                store = run_to_end(
                    store, repair(context, accept_loss=True, patience=0.0), self._behaviour
                )
            after = run_to_end(store, recover(context, patience=0.0), self._behaviour)
            check_claims_released(store, after)
            if any(key.startswith(LOST) for key in store.objects):
                after = run_to_end(after, rebuild_heads(context, apply=True), self._behaviour)
            for _ in range(2):  # What the first one frees, the second one finds.
                after = run_to_end(after, purge(context, patience=0.0, apply=True), self._behaviour)
            return after
        except ZeroRenameError as error:
            raise Violation("ability to abort", f"recovery failed: {error}") from error

    def _check_promised(self, store: Store) -> None:
        """What another committer wrote while readers listed stays in sight."""
        promised = {key.removeprefix(PROMISED) for key in store.objects if key.startswith(PROMISED)}
        if not promised:
            return
        seen: list[Snapshot] = []

        def look() -> s.Step[None]:
            seen.append((yield from take_snapshot(self._context(Ids()))))

        run_to_end(store, look(), self._behaviour)
        hidden = promised - {file.key for file in seen[0].files}
        if hidden:
            raise Violation("completeness", f"{sorted(hidden)} were seen by readers and are not")

    def _check_facts(self, store: Store) -> None:
        """A table that was made meanwhile knows its store."""
        if ROOT.table_key in self._start.objects or ROOT.table_key not in store.objects:
            return
        facts = TableRecord.decode(store.objects[ROOT.table_key].body, ROOT.table_key).facts
        true = self._behaviour.facts
        if replace(facts, server=true.server) != true:
            raise Violation("completeness", f"table.json says {facts} of a store that is {true}")


def _word(participant: Participant, outcome: Node) -> str:
    """How a participant ended, in a word."""
    value = outcome.value
    if outcome.kind == "raised":
        return type(value).__name__
    if isinstance(value, Committed):
        return "committed" if value.job == participant.job else "repeated"
    return value if isinstance(value, str) else "done"
