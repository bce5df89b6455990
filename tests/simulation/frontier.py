"""Orders of exploration: which of the states met, and not yet visited, is next."""

from __future__ import annotations

import random
from typing import Any

from simulation.world import World

#: A move: how it went, whose it was, and the request.
Move = tuple[str, str, Any]
#: How a state was reached: the way to the one before, and the move.
Trace = tuple[Any, Move] | None

_SAME = 0.9


class Thorough:
    """For an exploration to the end: states in which most may still go wrong first, so that the
    others are known by then (:class:`~simulation.world.Seen`); of these the newest."""

    def __init__(self) -> None:
        self._stacks: dict[int, list[tuple[World, Trace]]] = {}

    def __bool__(self) -> bool:
        return bool(self._stacks)

    def put(self, world: World, trace: Trace) -> None:
        self._stacks.setdefault(sum(world.budget), []).append((world, trace))

    def take(self) -> tuple[World, Trace]:
        most = max(self._stacks)
        found = self._stacks[most].pop()
        if not self._stacks[most]:
            del self._stacks[most]
        return found


class Scattered:
    """For an exploration that will be cut off: dives that begin anywhere and go down to a state
    that is an end, or known.

    A depth-first search that is cut off has seen the last moves in all orders after one beginning;
    a breadth-first one has seen no end. A dive goes mostly on with whoever moved last, since most
    errors of concurrency need few preemptions, at the right places.

    :param seed: of the choices, which are the same in every run.
    """

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._all: list[tuple[World, Trace]] = []
        self._new = 0
        self._mover = ""

    def __bool__(self) -> bool:
        return bool(self._all)

    def put(self, world: World, trace: Trace) -> None:
        self._all.append((world, trace))
        self._new += 1

    def take(self) -> tuple[World, Trace]:
        place = self._place()
        self._new = 0
        self._all[place], self._all[-1] = self._all[-1], self._all[place]
        found = self._all.pop()
        trace = found[1]
        self._mover = trace[1][1] if trace else ""
        return found

    def _place(self) -> int:
        if not self._new:
            return self._chance.randrange(len(self._all))
        places = range(len(self._all) - self._new, len(self._all))
        own = [place for place in places if self._moved(place) == self._mover]
        if own and self._chance.random() < _SAME:
            return self._chance.choice(own)
        return self._chance.choice(places)

    def _moved(self, place: int) -> str:
        trace = self._all[place][1]
        return trace[1][1] if trace else ""
