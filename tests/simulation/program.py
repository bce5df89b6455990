"""Participants whose every local state can be gone on from, although generators cannot be copied.

A protocol step is a deterministic function from the answers it got to its next request. So a
local state can always be reached again: by running a fresh generator through the answers that led
to it once. States are told apart by what the generator holds (:mod:`.freeze`), not by how it came
there, and each is made once and kept as a node with its request. Members of an ``All`` have
nodes of their own, so that the order in which they were answered does not tell equal states apart.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from simulation.freeze import Moment, frozen

from zero_rename.committer.store import requests as s

#: Generators kept where they stand; others are made again from their history.
_KEPT = 20_000


class Ids:
    """Write ids that never repeat within a history, and are equal in equal ones: they count."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"{self.prefix}.{self.count}"


Factory = Callable[[Ids], Generator[Any, Any, Any]]


@dataclass
class Node:
    """A generator stopped at what it does next.

    :param origin: one history that leads here: the node before, and what came then.
    :param kind: ``request``, ``all``, ``returned`` or ``raised``.
    :param value: the request, how many members the ``All`` has, the result, or the error.
    :param clock: the participant's own monotonic clock, seconds.
    :param timed: whether somebody further up, who waits for this ``All``, holds a time.
    :param prefix: what its write ids begin with; ``minted``: how many it made.
    :param holds_time: whether its generator holds a time that the clock gave.
    """

    number: int
    origin: tuple[Any, ...]
    kind: str = ""
    value: Any = None
    clock: float = 0.0
    timed: bool = False
    prefix: str = ""
    minted: int = 0
    holds_time: bool = False
    live: Generator[Any, Any, Any] | None = field(default=None, repr=False)
    steps: list[Generator[Any, Any, Any] | None] = field(default_factory=list, repr=False)


#: A participant's local state: a node, and while that is an ``All`` the states of its members.
State = tuple[int, tuple["State", ...]]


class Program:
    """One participant: a protocol step, as a graph of the states it can be in.

    :param factory: makes a fresh generator, given where its write ids come from.
    """

    def __init__(self, name: str, factory: Factory) -> None:
        self.name = name
        self._factory = factory
        self._nodes: list[Node] = []
        self._edges: dict[tuple[Any, ...], int] = {}
        self._known: dict[Any, int] = {}
        self._requests: dict[State, tuple[tuple[tuple[int, ...], Any], ...]] = {}
        self._kept: deque[Node] = deque()
        self._ids = Ids()
        #: Whether states are told apart by how they came about: for who goes one way only it is
        #: faster to come to an equal one again than to tell.
        self.by_history = False
        self.start: State = self._settle(self._node(("root",)))

    @property
    def size(self) -> int:
        """Local states seen so far."""
        return len(self._nodes)

    def outcome(self, state: State) -> Node | None:
        """The last node of a participant that is done; ``None`` while it runs."""
        node = self._nodes[state[0]]
        return node if node.kind in ("returned", "raised") else None

    def requests(self, state: State) -> tuple[tuple[tuple[int, ...], Any], ...]:
        """The requests that wait for an answer, each with the path to whom it belongs."""
        known = self._requests.get(state)
        if known is None:
            known = tuple(self._outstanding(state, ()))
            self._requests[state] = known
        return known

    def _outstanding(self, state: State, path: tuple[int, ...]):
        number, members = state
        node = self._nodes[number]
        if node.kind == "request":
            yield path, node.value
        for place, member in enumerate(members):
            yield from self._outstanding(member, (*path, place))

    def answer(self, state: State, path: tuple[int, ...], answer: Any) -> State:
        """The state after the request at ``path`` was answered; an error is raised there."""
        number, members = state
        if not path:
            return self._settle(self._node((number, "answer", _key(answer), answer)))
        place, *rest = path
        changed = self.answer(members[place], tuple(rest), answer)
        return self._join(number, (*members[:place], changed, *members[place + 1 :]))

    def _settle(self, number: int) -> State:
        node = self._nodes[number]
        if node.kind != "all":
            return (number, ())
        members = tuple(
            self._settle(self._node((number, "member", place))) for place in range(node.value)
        )
        return self._join(number, members)

    def _join(self, number: int, members: tuple[State, ...]) -> State:
        """An ``All`` whose members are all done gives its parent their results."""
        if all(self.outcome(member) for member in members):
            last = tuple(member[0] for member in members)
            return self._settle(self._node((number, "joined", last)))
        return (number, members)

    def _node(self, origin: tuple[Any, ...]) -> int:
        """The node that ``origin`` leads to: a known one where the state is equal."""
        edge = origin[:3]
        number = self._edges.get(edge)
        if number is None:
            node = Node(len(self._nodes), origin)
            generator = self._reach(node)
            key = node.number if self.by_history else self._told_apart(node, generator)
            number = self._known.setdefault(key, node.number)
            self._edges[edge] = number
            if number == node.number:
                self._nodes.append(node)
                self._keep(node, generator)
        return number

    @staticmethod
    def _told_apart(node: Node, generator: Generator[Any, Any, Any]) -> Any:
        """What tells a state from others, whichever way leads there."""
        finished = node.kind in ("returned", "raised")
        held, node.holds_time = frozen(node.value if finished else generator)
        return _state_key(node, held)

    def _keep(self, node: Node, generator: Generator[Any, Any, Any]) -> None:
        """Keep a generator where it stands, for whoever goes on from there first."""
        if node.kind in ("returned", "raised"):
            return
        node.live = generator
        self._kept.append(node)
        if len(self._kept) > _KEPT:
            old = self._kept.popleft()
            old.live, old.steps = None, []

    def _reach(self, node: Node) -> Generator[Any, Any, Any]:
        """A generator that has lived through the node's history; sets what the node does next."""
        origin = node.origin
        if origin[0] == "root":
            node.clock, node.prefix, node.minted = 0.0, self.name, 0
            generator = self._factory(self._ids)
            self._run(node, generator, None, None)
            return generator
        before = self._nodes[origin[0]]
        node.clock, node.prefix, node.minted = before.clock, before.prefix, before.minted
        node.timed = before.timed
        if origin[1] == "member":
            generator = self._member(before, origin[2])
            node.timed = before.timed or before.holds_time
            node.prefix, node.minted = f"{before.prefix}.{before.minted}.{origin[2]}", 0
            self._run(node, generator, None, None)
            return generator
        generator = self._materialise(before)
        if origin[1] == "answer":
            error = copy.copy(origin[3]) if isinstance(origin[3], Exception) else None
            self._run(node, generator, origin[3], error)
            return generator
        members = [self._nodes[number] for number in origin[2]]
        node.clock = max([before.clock, *(member.clock for member in members)])
        node.minted += sum(member.minted for member in members)
        errors = [member.value for member in members if member.kind == "raised"]
        if errors:
            self._run(node, generator, None, copy.copy(errors[0]))
        else:
            self._run(node, generator, tuple(_copied(member.value) for member in members), None)
        return generator

    def _member(self, parent: Node, place: int) -> Generator[Any, Any, Any]:
        if not parent.steps or parent.steps[place] is None:
            self._keep(parent, self._reach(parent))
        generator = parent.steps[place]
        assert generator is not None
        parent.steps[place] = None
        return generator

    def _materialise(self, node: Node) -> Generator[Any, Any, Any]:
        """A generator that stands at ``node``: the one left there, or another through its
        history."""
        live, node.live = node.live, None
        return live if live is not None else self._reach(node)

    def _run(self, node: Node, generator: Any, answer: Any, error: Exception | None) -> None:
        """Go on to the next request to the store. The clock and waits are the participant's."""
        self._ids.prefix, self._ids.count = node.prefix, node.minted
        try:
            node.kind, node.value = self._advance(node, generator, answer, error)
        except StopIteration as stop:
            node.kind, node.value = "returned", stop.value
        except Exception as raised:
            node.kind, node.value = "raised", raised.with_traceback(None)
        node.minted = self._ids.count

    def _advance(self, node: Node, generator: Any, answer: Any, error: Exception | None):
        while True:
            request = generator.throw(error) if error else generator.send(answer)
            error = None
            if isinstance(request, s.Clock):
                answer = Moment(node.clock)
            elif isinstance(request, s.ServerName):
                answer = "simulation"
            elif isinstance(request, s.Wait):
                node.clock += request.seconds
                answer = None
            elif not isinstance(request, s.All):
                return "request", request
            elif request.members:
                node.steps = [iter(work) for work in request.members]
                return "all", len(request.members)
            else:
                answer = ()


def _state_key(node: Node, held: Any) -> Any:
    """What tells local states apart.

    Nobody compares a monotonic clock but with times it gave before: what it says now matters
    only to who holds such a time.
    """
    clock = node.clock if node.timed or node.holds_time else None
    return (node.kind, held, clock, node.timed, node.prefix, node.minted)


def _copied(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, set | dict | list) else value


def _key(answer: Any) -> Any:
    """What tells answers apart. Bodies are named by their ETags."""
    match answer:
        case s.Found():
            return ("found", answer.key, answer.etag, answer.date, bool(answer.body))
        case s.ObjectPage():
            listed = tuple((o.key, o.etag, o.last_modified) for o in answer.objects)
            return ("objects", listed, answer.date)
        case s.Deleted():
            return ("deleted", tuple(sorted(answer.errors.items())))
        case Exception():
            return ("raised", type(answer).__name__)
    return answer
