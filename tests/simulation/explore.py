"""Exploring all, or many, interleavings of participants and faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simulation.frontier import Move, Scattered, Thorough, Trace
from simulation.invariants import (
    Violation,
    check_applied,
    check_outcome,
    check_owner,
    check_reader,
    check_recovered,
    check_step,
)
from simulation.program import Ids, State
from simulation.sim_store import Behaviour, Store, apply
from simulation.world import Merging, Participant, Seen, Turn, World

from support.memory_store import flatten
from zero_rename.committer import (
    Committed,
    OutcomeUnknownError,
    RefusedError,
    SnapshotGoneError,
    StoreRefusedError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from zero_rename.committer.maintenance.purge import purge
from zero_rename.committer.protocol.snapshot import Snapshot
from zero_rename.committer.s3 import requests as s
from zero_rename.committer.state.context import Context

_CONDITIONAL = (s.Put, s.CompleteUpload, s.Delete)
_READING = (s.Get, s.Head, s.ListObjects, s.ListUploads)


@dataclass
class Report:
    """What an exploration saw.

    :param states: distinct global states; ``ends`` those in which everybody is done.
    :param complete: whether nothing within the bounds was left out.
    """

    states: int = 0
    ends: int = 0
    steps: int = 0
    complete: bool = True


class Failure(AssertionError):
    """A violation, with the requests that led to it."""

    def __init__(self, violation: Violation, trace: Sequence[str], seed: int | None) -> None:
        where = "" if seed is None else f" (seed {seed})"
        super().__init__("\n".join([f"{violation}{where}", *trace]))
        self.invariant = violation.invariant
        self._made_of = violation, trace, seed

    def __reduce__(self) -> Any:
        """Pickled by what it was made of: scenarios are explored in processes of their own."""
        return Failure, self._made_of


#: How a writer, and a reader or maintenance, may end besides returning.
_EXPECTED_OF_OTHERS = (OutcomeUnknownError, UnfinishedCommitError, SnapshotGoneError)
_EXPECTED = (RefusedError, *_EXPECTED_OF_OTHERS)
_NOBODY = -1
#: How likely a walk goes on with whoever moved last, so that others stall for long; and how likely
#: something goes wrong, so that the few times it may fall anywhere.
_GOES_ON, _GOES_WRONG = 0.93, 0.03
_DENIED = StoreRefusedError("The store denies it.")


def _shown(request: Any) -> str:
    name = getattr(request, "key", None) or getattr(request, "prefix", "")
    if isinstance(request, s.DeleteMany):
        name = ", ".join(key for key, _ in request.items)
    condition = " if none" if getattr(request, "if_none_match", False) else ""
    condition += " if match" if getattr(request, "if_match", None) else ""
    return f"{type(request).__name__} {name}{condition}"


def run_to_end(store: Store, step: s.Step[Any], behaviour: Behaviour) -> Store:
    """Carry out a step alone and without faults.

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
        elif not isinstance(request, s.Wait):
            before = store
            store, answer = apply(store, request, behaviour)
            check_step(before, store)


class Explorer:
    """Explores what a set of participants can do to a store.

    :param start: the store at the beginning.
    :param behaviour: what the store lacks.
    :param crashes: participants that may die, at any request; ``faults``: answers that may go
        wrong.
    :param switches: explore only what needs so many preemptions (iterative context bounding:
        most errors of concurrency need few); ``None``: all interleavings.
    :param denials: whether a fault may also be that rights or credentials are gone.
    :param owner: the only job of which anybody takes part, so that nobody fences it.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        start: Store,
        behaviour: Behaviour,
        context: Callable[[Ids], Context],
        *,
        crashes: int = 0,
        faults: int = 0,
        switches: int | None = None,
        denials: bool = False,
        owner: str | None = None,
    ) -> None:
        self._participants = participants
        self._denials = denials
        self._owner = owner
        self._behaviour = behaviour
        self._context = context
        states = tuple(participant.program.start for participant in participants)
        self._start = World(start, states, crashes=crashes, faults=faults, switches=switches)
        self._merging = Merging(participants, behaviour)
        self._recovered: dict[int, Store] = {}
        self.seen = Seen()

    def exhaust(self, most: int | None = None) -> Report:
        """Visit every state, or ``most`` of them.

        :raises Failure: an invariant does not hold.
        """
        report = Report()
        waiting = Thorough() if most is None else Scattered()
        waiting.put(self._start, None)
        self.seen.add(self._start)
        while waiting:
            if most is not None and self.seen.count >= most:
                report.complete = False
                break
            world, trace = waiting.take()
            moved = False
            for label, after in self._moves(world, trace):
                moved = True
                report.steps += 1
                if self.seen.add(after):
                    waiting.put(after, (trace, label))
            if not moved:
                report.ends += 1
                self._check_end(world, trace, None)
        report.states = self.seen.count
        return report

    def asked(self) -> Iterator[Any]:
        """Every request that some participant made, in whatever state."""
        for participant in self._participants:
            yield from participant.program.asked()

    def wander(self, seed: int) -> int:
        """One random walk to the end.

        :returns: its length in requests.
        :raises Failure: an invariant does not hold; the seed replays it.
        """
        chance = random.Random(seed)
        world, trace, steps = self._start, None, 0
        current = _NOBODY
        while True:
            movers = self._movers(world)
            if not movers:
                self._check_end(world, trace, seed)
                return steps
            if current not in movers or chance.random() >= _GOES_ON:
                current = chance.choice(movers)
            moves = list(self._moves_of(world, current, trace, seed))
            plain = [move for move in moves if not move[0][0].startswith("!")]
            rare = [move for move in moves if move[0][0].startswith("!")]
            chosen = rare if rare and (not plain or chance.random() < _GOES_WRONG) else plain
            move, world = chance.choice(chosen)
            trace = (trace, move)
            self.seen.add(world)
            steps += 1

    def _movers(self, world: World) -> list[int]:
        """Who can go on; ``_NOBODY`` stands for requests under way of which nobody waits."""
        movers = [_NOBODY] if world.late else []
        for number, participant in enumerate(self._participants):
            if not world.dead >> number & 1 and participant.program.requests(world.states[number]):
                movers.append(number)
        return movers

    def _moves(self, world: World, trace: Trace) -> Iterator[tuple[Move, World]]:
        """Everything that can happen next."""
        for mover in self._movers(world):
            yield from self._moves_of(world, mover, trace, None)

    def _moves_of(
        self, world: World, number: int, trace: Trace, seed: int | None
    ) -> Iterator[tuple[Move, World]]:
        if number == _NOBODY:
            yield from self._late_moves(world, trace, seed)
            return
        participant = self._participants[number]
        state = world.states[number]
        for path, request in participant.program.requests(state):
            turn = self._turn(world, (number, path))
            if turn is None:
                continue
            for label, store, answer, late in self._answers(world, participant, request):
                move = (label, participant.program.name, request)
                self._check_step(world, store, self._owner, (trace, move), seed)
                changed = participant.program.answer(state, path, answer)
                after = turn._replace(
                    store=store,
                    states=(*world.states[:number], changed, *world.states[number + 1 :]),
                    faults=world.faults - label.startswith("!"),
                    late=world.late if late is None else (*world.late, late),
                )
                self._check_done(participant, changed, after, (trace, move), seed)
                yield move, self._merging.merged(after, number)
        if world.crashes:
            after = world._replace(crashes=world.crashes - 1, dead=world.dead | 1 << number)
            yield ("! dies", participant.program.name, None), self._merging.merged(after, number)

    def _late_moves(
        self, world: World, trace: Trace, seed: int | None
    ) -> Iterator[tuple[Move, World]]:
        for place, request in enumerate(world.late):
            store, _ = apply(world.store, request, self._behaviour)
            move = ("  late", "", request)
            self._check_step(world, store, None, (trace, move), seed)
            late = (*world.late[:place], *world.late[place + 1 :])
            yield move, self._merging.merged(world._replace(store=store, late=late), None)

    def _turn(self, world: World, who: Turn) -> World | None:
        """The world in which it is a thread's turn; ``None`` if that is beyond the bound."""
        if world.switches is None or world.turn == who:
            return world
        preempts = world.turn is not None and self._preempts(world.turn, who)
        if preempts and not world.switches:
            return None
        return world._replace(turn=who, switches=world.switches - preempts)

    @staticmethod
    def _preempts(last: Turn, who: Turn) -> bool:
        """Whether ``last`` could go on: the participant, or within it the thread."""
        # A turn of somebody who cannot go on is never kept (:meth:`.Merging.merged`).
        return last[0] != who[0] or last[1] is not None

    def _answers(
        self, world: World, participant: Participant, request: Any
    ) -> Iterator[tuple[str, Store, Any, Any]]:
        """How a request can be answered: as it should, or by a fault."""
        if not participant.writes and not isinstance(request, _READING):
            yield " ", world.store, _DENIED, None
            return
        store, answer = apply(world.store, request, self._behaviour)
        yield " ", store, answer, None
        if not world.faults or not isinstance(request, (*_CONDITIONAL, s.AbortUpload)):
            return
        if store is not world.store:
            yield "! applied, answer lost:", store, s.Unknown("lost"), None
        yield "! not applied, answer lost:", world.store, s.Unknown("lost"), None
        if isinstance(request, s.Put):
            yield "! 409:", world.store, s.Refused("ConditionalRequestConflict"), None
            yield "! answer lost, applied late:", world.store, s.Unknown("lost"), request
        if self._denials:
            yield "! denied:", world.store, _DENIED, None
        if isinstance(request, s.CompleteUpload) and store is not world.store:
            yield "! applied, NoSuchUpload:", store, s.Refused("NoSuchUpload"), None

    def _check_step(
        self, world: World, store: Store, owner: str | None, trace: Trace, seed: int | None
    ) -> None:
        try:
            check_step(world.store, store)
            if owner is not None:
                check_owner(world.store, store, owner)
        except Violation as violation:
            raise self._failure(violation, trace, seed) from violation

    def _check_done(
        self, participant: Participant, state: State, world: World, trace: Trace, seed: int | None
    ) -> None:
        outcome = participant.program.outcome(state)
        if outcome is None:
            return
        try:
            if participant.job is not None:
                check_outcome(world.store, participant.job, outcome)
            if isinstance(outcome.value, Committed):
                check_applied(world.store, outcome.value.job)
            if isinstance(outcome.value, Snapshot):
                check_reader(world.store, outcome.value, participant.reads)
            expected = _EXPECTED if participant.job is not None else _EXPECTED_OF_OTHERS
            if outcome.kind == "raised" and not isinstance(outcome.value, expected):
                raise Violation("ability to abort", f"{outcome.value!r}")
        except Violation as violation:
            raise self._failure(violation, trace, seed) from violation

    def _check_end(self, world: World, trace: Trace, seed: int | None) -> None:
        """Recover as a maintenance task would, and check what is then."""
        try:
            store = self._recovered.get(world.store.digest)
            if store is None:
                store = self._recover(world.store)
                check_recovered(store)
                self._recovered[world.store.digest] = store
            for participant, state in zip(self._participants, world.states, strict=True):
                outcome = participant.program.outcome(state)
                if participant.job is not None and outcome is not None:
                    check_outcome(store, participant.job, outcome)
        except Violation as violation:
            raise self._failure(violation, trace, seed) from violation

    def _recover(self, store: Store) -> Store:
        """Recovery and purge, alone and without faults."""
        ids = Ids()
        ids.prefix = "maintenance"
        try:
            return run_to_end(store, purge(self._context(ids), patience=0.0), self._behaviour)
        except ZeroRenameError as error:
            raise Violation("ability to abort", f"recovery failed: {error}") from error

    @staticmethod
    def _failure(violation: Violation, trace: Trace, seed: int | None) -> Failure:
        lines: list[str] = []
        while trace is not None:
            trace, (label, who, request) = trace
            lines.append(f"{label} {who} {_shown(request) if request else ''}")
        return Failure(violation, lines[::-1], seed)
