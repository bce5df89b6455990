"""Exploring all, or many, interleavings of participants and faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulation.invariants import (
    Violation,
    check_outcome,
    check_reader,
    check_recovered,
    check_step,
)
from simulation.program import Ids, Program, State
from simulation.sim_store import Behaviour, Store, apply

from support.memory_store import flatten
from zero_rename.committer import (
    OutcomeUnknownError,
    RefusedError,
    SnapshotGoneError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from zero_rename.committer.maintenance.purge import purge
from zero_rename.committer.protocol.snapshot import Snapshot
from zero_rename.committer.s3 import requests as s
from zero_rename.committer.state.context import Context

_MASK = (1 << 128) - 1
_CONDITIONAL = (s.Put, s.CompleteUpload, s.Delete)


@dataclass(frozen=True)
class Participant:
    """Who takes part.

    :param program: its local states.
    :param job: a writer's job id; ``None`` for readers and maintenance.
    :param reads: the partitions a reader asks for.
    """

    program: Program
    job: str | None = None
    reads: tuple[str, ...] = ()


#: A thread: a participant, and which of the members of its ``All``.
Turn = tuple[int, tuple[int, ...]]


class World(NamedTuple):
    """One global state.

    :param crashes: how many more participants may die.
    :param faults: how many more answers may go wrong.
    :param dead: participants that died.
    :param late: requests without an answer that may still reach the store.
    :param turn: which thread moved last, where that matters: under a bound of ``switches``, the
        times that another may go on while the last one still could.
    """

    store: Store
    states: tuple[State, ...]
    crashes: int
    faults: int
    dead: int = 0
    late: tuple[Any, ...] = ()
    turn: Turn | None = None
    switches: int | None = None

    @property
    def key(self) -> int:
        rest = hash(self[1:])
        return (self.store.digest ^ ((rest & ((1 << 64) - 1)) * 0x9E3779B97F4A7C15)) & _MASK


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


#: A move: how it went, whose it was, and the request.
Move = tuple[str, str, Any]
Trace = tuple[Any, Move] | None

#: How a participant may end besides returning.
_EXPECTED = (
    RefusedError,
    OutcomeUnknownError,
    UnfinishedCommitError,
    SnapshotGoneError,
)


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
    ) -> None:
        self._participants = participants
        self._behaviour = behaviour
        self._context = context
        states = tuple(participant.program.start for participant in participants)
        self._start = World(start, states, crashes, faults, switches=switches)
        self._recovered: dict[int, Store] = {}
        self.seen: set[int] = set()

    def exhaust(self, most: int | None = None) -> Report:
        """Visit every state, or ``most`` of them.

        :raises Failure: an invariant does not hold.
        """
        report = Report()
        stack: list[tuple[World, Trace]] = [(self._start, None)]
        self.seen.add(self._start.key)
        while stack:
            if most is not None and len(self.seen) >= most:
                report.complete = False
                break
            world, trace = stack.pop()
            moved = False
            for label, after in self._moves(world, trace):
                moved = True
                report.steps += 1
                key = after.key
                if key not in self.seen:
                    self.seen.add(key)
                    stack.append((after, (trace, label)))
            if not moved:
                report.ends += 1
                self._check_end(world, trace, None)
        report.states = len(self.seen)
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
        current = ""
        while True:
            moves = list(self._moves(world, trace, seed))
            if not moves:
                self._check_end(world, trace, seed)
                return steps
            move, world = self._choose(chance, moves, current)
            current = move[1]
            trace = (trace, move)
            self.seen.add(world.key)
            steps += 1

    @staticmethod
    def _choose(
        chance: random.Random, moves: list[tuple[Move, World]], current: str
    ) -> tuple[Move, World]:
        """Mostly the participant that moved last, so that others stall for long; seldom a fault,
        so that the few there are fall anywhere."""
        plain = [move for move in moves if not move[0][0].startswith("!")]
        rare = [move for move in moves if move[0][0].startswith("!")]
        if rare and (not plain or chance.random() < 0.03):
            return chance.choice(rare)
        own = [move for move in plain if move[0][1] == current]
        if own and chance.random() < 0.93:
            return chance.choice(own)
        who = chance.choice(sorted({move[0][1] for move in plain}))
        return chance.choice([move for move in plain if move[0][1] == who])

    def _moves(
        self, world: World, trace: Trace, seed: int | None = None
    ) -> Iterator[tuple[Move, World]]:
        """Everything that can happen next."""
        for number, participant in enumerate(self._participants):
            state = world.states[number]
            if world.dead >> number & 1:
                continue
            requests = participant.program.requests(state)
            for path, request in requests:
                turn = self._turn(world, (number, path))
                if turn is None:
                    continue
                for label, store, answer, late in self._answers(world, request):
                    try:
                        check_step(world.store, store)
                    except Violation as violation:
                        move = (label, participant.program.name, request)
                        raise self._failure(violation, (trace, move), seed) from violation
                    changed = participant.program.answer(state, path, answer)
                    after = turn._replace(
                        store=store,
                        states=(*world.states[:number], changed, *world.states[number + 1 :]),
                        faults=world.faults - label.startswith("!"),
                        late=world.late if late is None else (*world.late, late),
                    )
                    move = (label, participant.program.name, request)
                    self._check_done(participant, changed, after, (trace, move), seed)
                    yield move, after
            if requests and world.crashes:
                dead = world.dead | 1 << number
                yield (
                    ("! dies", participant.program.name, None),
                    world._replace(crashes=world.crashes - 1, dead=dead),
                )
        for place, request in enumerate(world.late):
            store, _ = apply(world.store, request, self._behaviour)
            late = (*world.late[:place], *world.late[place + 1 :])
            yield ("  late", "", request), world._replace(store=store, late=late)

    def _turn(self, world: World, who: Turn) -> World | None:
        """The world in which it is a thread's turn; ``None`` if that is beyond the bound."""
        if world.switches is None or world.turn == who:
            return world
        preempts = world.turn is not None and self._preempts(world, world.turn, who)
        if preempts and not world.switches:
            return None
        return world._replace(turn=who, switches=world.switches - preempts)

    def _preempts(self, world: World, last: Turn, who: Turn) -> bool:
        """Whether ``last`` could go on: the participant, or within it the thread."""
        number, path = last
        if world.dead >> number & 1:
            return False
        requests = self._participants[number].program.requests(world.states[number])
        if number != who[0]:
            return bool(requests)
        return any(path == waiting for waiting, _ in requests)

    def _answers(self, world: World, request: Any) -> Iterator[tuple[str, Store, Any, Any]]:
        """How a request can be answered: as it should, or by a fault."""
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
        if isinstance(request, s.CompleteUpload) and store is not world.store:
            yield "! applied, NoSuchUpload:", store, s.Refused("NoSuchUpload"), None

    def _check_done(
        self, participant: Participant, state: State, world: World, trace: Trace, seed: int | None
    ) -> None:
        outcome = participant.program.outcome(state)
        if outcome is None:
            return
        try:
            if participant.job is not None:
                check_outcome(world.store, participant.job, outcome)
            if isinstance(outcome.value, Snapshot):
                check_reader(world.store, outcome.value, participant.reads)
            if outcome.kind == "raised" and not isinstance(outcome.value, _EXPECTED):
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
