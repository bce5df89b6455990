"""Exploring all, or many, interleavings of participants and faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from simulation.decoded import decoded_once
from simulation.faults import LOST_ANSWERS, Answer, Faults, denied, is_reading
from simulation.frontier import Move, Scattered, Thorough, Trace
from simulation.invariants import Violation
from simulation.judge import Judge
from simulation.program import Ids
from simulation.sim_store import Store, apply
from simulation.world import Merging, Participant, Seen, Turn, World

from support.memory_store import Behaviour
from zero_rename.committer.commit.state.context import Context
from zero_rename.committer.store import requests as s


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


#: What can happen next, and what carries it out.
Way = tuple[Move, Callable[[], World]]
_NOBODY = -1
#: How likely a walk goes on with whoever moved last, so that others stall for long; and how likely
#: something goes wrong, so that the few times it may fall anywhere.
_GOES_ON, _GOES_WRONG = 0.93, 0.03


def _shown(request: Any) -> str:
    name = getattr(request, "key", None) or getattr(request, "prefix", "")
    if isinstance(request, s.DeleteMany):
        name = ", ".join(key for key, _ in request.items)
    condition = " if none" if getattr(request, "if_none_match", False) else ""
    condition += " if match" if getattr(request, "if_match", None) else ""
    return f"{type(request).__name__} {name}{condition}"


class Explorer:
    """Explores what a set of participants can do to a store.

    :param start: the store at the beginning.
    :param behaviour: what the store lacks.
    :param crashes: participants that may die, at any request; ``faults``: answers that may go
        wrong.
    :param switches: explore only what needs so many preemptions (iterative context bounding:
        most errors of concurrency need few); ``None``: all interleavings.
    :param kinds: what a fault may be besides a lost answer.
    :param owner: the only job of which anybody takes part, so that nobody fences it.
    :param loses: whether a participant aborts uploads that are not its own.
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
        kinds: Faults = LOST_ANSWERS,
        owner: str | None = None,
        loses: bool = False,
    ) -> None:
        self._participants = participants
        self._kinds = kinds
        self._owner = owner
        self._behaviour = behaviour
        self._judge = Judge(participants, start, behaviour, context, kinds, loses)
        states = tuple(participant.program.start for participant in participants)
        self._start = World(start, states, crashes=crashes, faults=faults, switches=switches)
        self._merging = Merging(participants, behaviour)
        self.seen = Seen()

    @decoded_once()
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

    @property
    def reached(self) -> Collection[frozenset[str]]:
        """What participants were told, each set together: ``a committed``, ``b refused``."""
        return self._judge.reached

    @decoded_once()
    def wander(self, seed: int) -> int:
        """One random walk to the end.

        :returns: its length in requests.
        :raises Failure: an invariant does not hold; the seed replays it.
        """
        for participant in self._participants:
            participant.program.by_history = True
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
            ways = list(self._ways_of(world, current, trace, seed))
            plain = [way for way in ways if not way[0][0].startswith("!")]
            rare = [way for way in ways if way[0][0].startswith("!")]
            chosen = rare if rare and (not plain or chance.random() < _GOES_WRONG) else plain
            move, go = chance.choice(chosen)
            world, trace = go(), (trace, move)
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
            for move, go in self._ways_of(world, mover, trace, None):
                yield move, go()

    def _ways_of(self, world: World, number: int, trace: Trace, seed: int | None) -> Iterator[Way]:
        """What a participant can do next, and what leads there: a walk goes one way only."""
        if number == _NOBODY:
            for place, request in enumerate(world.late):
                move = ("  late", "", request)
                yield move, partial(self._late, world, place, (trace, move), seed)
            return
        participant = self._participants[number]
        for path, request in participant.program.requests(world.states[number]):
            turn = self._turn(world, (number, path))
            if turn is None:
                continue
            for answer in self._answers(world, participant, request):
                move = (answer[0], participant.program.name, request)
                there = (trace, move)
                yield move, partial(self._answered, turn, number, path, answer, there, seed)
        if world.crashes:
            yield from self._deaths(world, number)

    def _answered(
        self,
        world: World,
        number: int,
        path: tuple[int, ...],
        given: Answer,
        trace: Trace,
        seed: int | None,
    ) -> World:
        label, store, answer, late = given
        participant = self._participants[number]
        with _violations_told(trace, seed):
            self._judge.step(world.store, store, self._owner, participant.program.name)
        changed = participant.program.answer(world.states[number], path, answer)
        after = world._replace(
            store=store,
            states=(*world.states[:number], changed, *world.states[number + 1 :]),
            faults=world.faults - label.startswith("!"),
            late=world.late if late is None else (*world.late, late),
        )
        outcome = participant.program.outcome(changed)
        if outcome is not None:
            with _violations_told(trace, seed):
                self._judge.done(participant, outcome, store)
        return self._merging.merged(after, number)

    def _deaths(self, world: World, number: int) -> Iterator[Way]:
        program = self._participants[number].program
        waiting = tuple(request for _, request in program.requests(world.states[number]))
        for left in self._kinds.left_by_the_dead(waiting):
            after = world._replace(
                crashes=world.crashes - 1, dead=world.dead | 1 << number, late=(*world.late, *left)
            )
            label = f"! dies with {len(left)} under way" if left else "! dies"
            yield (label, program.name, None), partial(self._merging.merged, after, number)

    def _late(self, world: World, place: int, trace: Trace, seed: int | None) -> World:
        store, _ = apply(world.store, world.late[place], self._behaviour)
        with _violations_told(trace, seed):
            self._judge.step(world.store, store, None, "")
        late = (*world.late[:place], *world.late[place + 1 :])
        return self._merging.merged(world._replace(store=store, late=late), None)

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

    def _answers(self, world: World, participant: Participant, request: Any) -> Iterator[Answer]:
        """How a request can be answered: as it should, or by a fault."""
        if not participant.writes and not is_reading(request):
            yield denied(world.store)
            return
        yield from self._kinds.answers(world.store, request, self._behaviour, world.faults > 0)

    def _check_end(self, world: World, trace: Trace, seed: int | None) -> None:
        faultless = (world.crashes, world.faults) == (self._start.crashes, self._start.faults)
        with _violations_told(trace, seed):
            self._judge.end(world, self._owner is not None and faultless)


@contextmanager
def _violations_told(trace: Trace, seed: int | None) -> Iterator[None]:
    """A violation inside is told with what led to it."""
    try:
        yield
    except Violation as violation:
        lines: list[str] = []
        while trace is not None:
            trace, (label, who, request) = trace
            lines.append(f"{label} {who} {_shown(request) if request else ''}")
        raise Failure(violation, lines[::-1], seed) from violation
