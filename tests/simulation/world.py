"""Global states of a simulation, and which of them behave alike.

Two states behave alike when the same requests can follow and the same checks fail on the way. Only
one of them is explored. What makes states alike is argued at each rule of :class:`Merging`; a rule
may only forget what nothing looks at any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulation.invariants import has_lost_the_store, never_deleted, told
from simulation.program import Program, State
from simulation.sim_store import Store, apply

from support.memory_store import Behaviour
from zero_rename.committer.store import requests as s

_MASK = (1 << 128) - 1


@dataclass(frozen=True)
class Participant:
    """Who takes part.

    :param program: its local states.
    :param job: a writer's job id; ``None`` for readers and maintenance.
    :param reads: the partitions a reader asks for.
    :param writes: whether the store lets it write.
    :param whole: whether its job empties every partition.
    :param keeps: whether its job keeps what it replaces.
    :param alone: whether no other participant commits the same job.
    """

    program: Program
    job: str | None = None
    reads: tuple[str, ...] = ()
    writes: bool = True
    whole: bool = False
    keeps: bool = False
    alone: bool = True


#: A thread: a participant, and which of the members of its ``All``; ``None``: one that is over.
Turn = tuple[int, tuple[int, ...] | None]


class World(NamedTuple):
    """One global state.

    :param dead: participants that died.
    :param late: requests without an answer that may still reach the store.
    :param turn: which thread moved last, where that matters: under a bound of ``switches``.
    :param crashes: how many more participants may die.
    :param faults: how many more answers may go wrong.
    :param switches: how many more times another thread may go on while the last one still could;
        ``None``: any number.
    """

    store: Store
    states: tuple[State, ...]
    dead: int = 0
    late: tuple[Any, ...] = ()
    turn: Turn | None = None
    crashes: int = 0
    faults: int = 0
    switches: int | None = None

    @property
    def key(self) -> int:
        """What tells states apart, but for what may still go wrong in them: :attr:`budget`."""
        late = tuple(map(repr, self.late))
        known = (self.store.ticks, self.states, self.dead, late, self.turn)
        rest = hash(known) & ((1 << 64) - 1)
        return (self.store.digest ^ (rest * 0x9E3779B97F4A7C15)) & _MASK

    @property
    def budget(self) -> tuple[int, int, int]:
        """What may still go wrong: crashes, faults, preemptions."""
        return self.crashes, self.faults, self.switches or 0


class Merging:
    """Puts one state in the place of all that behave like it."""

    def __init__(self, participants: Sequence[Participant], behaviour: Behaviour) -> None:
        self._participants = participants
        self._behaviour = behaviour
        self._ends: dict[tuple[int, str, bool], State] = {}

    def merged(self, world: World, moved: int | None) -> World:
        """The state that stands for ``world``.

        :param moved: the participant whose state is new.
        """
        if moved is not None:
            world = self._without_history(world, moved)
        if world.late:
            world = world._replace(late=self._effective(world))
        if world.turn is not None:
            world = world._replace(turn=self._turn(world, *world.turn))
        return world

    def _without_history(self, world: World, number: int) -> World:
        """Of a participant that is done only what it was told is looked at again (its result was
        checked when it came); of one that died, nothing is."""
        participant = self._participants[number]
        state = world.states[number]
        if world.dead >> number & 1:
            last = participant.program.start
        else:
            outcome = participant.program.outcome(state)
            if outcome is None:
                return world
            said = "" if participant.job is None else told(participant.job, outcome)
            lost = has_lost_the_store(outcome)
            last = self._ends.setdefault((number, said, lost), state)
        if last == state:
            return world
        return world._replace(states=(*world.states[:number], last, *world.states[number + 1 :]))

    def _effective(self, world: World) -> tuple[Any, ...]:
        """Late requests that can still change something.

        Heads and decisions are never deleted (:func:`check_step` fails where they are). So a
        request on the condition that there is none has no effect once there is one. Nor has one
        on the ETag of a former state: bodies carry write ids, so that ETag could come back by
        this very request or its repetition only, which all carry the same condition.
        """
        return tuple(sorted((r for r in world.late if self._may_matter(world.store, r)), key=repr))

    def _may_matter(self, store: Store, request: Any) -> bool:
        if not isinstance(request, s.Put) or not never_deleted(request.key):
            return True
        if not request.if_none_match and request.if_match is None:
            return True
        return apply(store, request, self._behaviour)[0] is not store

    def _turn(self, world: World, number: int, path: tuple[int, ...] | None) -> Turn | None:
        """The thread that moved last matters while it, or its participant, could go on."""
        if world.dead >> number & 1:
            return None
        requests = self._participants[number].program.requests(world.states[number])
        if not requests:
            return None
        return (number, path if any(path == waiting for waiting, _ in requests) else None)


class Seen:
    """The states met so far.

    A state in which more may still go wrong can go every way that the same state with less can,
    and ends where that ends. So the latter needs no visit after the former.
    """

    def __init__(self) -> None:
        self._budgets: dict[int, tuple[tuple[int, int, int], ...]] = {}
        self.count = 0

    def add(self, world: World) -> bool:
        """Whether ``world`` is new."""
        key, budget = world.key, world.budget
        known = self._budgets.get(key, ())
        for other in known:
            if all(more >= less for more, less in zip(other, budget, strict=True)):
                return False
        self._budgets[key] = (*known, budget)
        self.count += 1
        return True
