"""Scheduler of a step's requests: it gives a driver the requests that can be carried out now.

All drivers share it. It does no input or output: a driver takes requests, carries them out in any
way, and brings the answers back. Nested :class:`~.requests.All` needs no threads of its own, so it
cannot starve a pool.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..errors import StoreRefusedError, StoreUnreachableError
from .requests import All, Step, Work

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Ticket:
    """A running generator: the step, or a member of an ``All`` for which another one waits."""

    step: Step[Any]
    parent: Ticket | None = None
    place: int = 0
    results: list[Any] = field(default_factory=list)
    errors: dict[int, Exception] = field(default_factory=dict)
    open: int = 0


class Scheduler(Generic[T]):
    """Runner of a step's generators: each runs until it needs an answer.

    :param work: the step, or a single request; it is started at once.
    """

    def __init__(self, work: Work[T]) -> None:
        self._root = Ticket(iter(work))
        #: Running generators in the order of their start: children after their parents.
        self._alive: dict[Ticket, None] = {}
        self._waiting: deque[tuple[Ticket, Any]] = deque()
        self._result: Any = None
        self._error: Exception | None = None
        self.finished = False
        self._run(self._root, None, None)

    def take(self) -> tuple[Ticket, Any] | None:
        """Take the oldest request, with the ticket for its answer; ``None``: all are taken."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def idle(self) -> bool:
        """True if every request made so far has been taken."""
        return not self._waiting

    def answer(self, ticket: Ticket, value: Any) -> None:
        """Send the answer to a taken request, and run its generator to the next one."""
        self._run(ticket, value, None)

    def throw(self, ticket: Ticket, error: Exception) -> None:
        """Raise ``error`` at the point where the generator waits for the answer."""
        self._run(ticket, None, error)

    def result(self) -> T:
        """Return the step's result, or raise its error. Only when :attr:`finished`."""
        if self._error is not None:
            raise self._error
        return self._result

    def close(self) -> None:
        """Close the generators that still run, children before their parents. For interrupts."""
        for ticket in reversed(self._alive):
            ticket.step.close()
        self._alive.clear()
        self._waiting.clear()

    def _run(self, ticket: Ticket, value: Any, error: Exception | None) -> None:
        """Advance ``ticket``, and all generators that this starts, until all wait for answers.

        A queue is used, not recursion: members that make no request wake their parents at once.
        """
        going: deque[tuple[Ticket, Any, Exception | None]] = deque([(ticket, value, error)])
        while going:
            ticket, value, error = going.popleft()
            self._alive[ticket] = None
            try:
                request = ticket.step.throw(error) if error else ticket.step.send(value)
            except StopIteration as stop:
                self._end(ticket, stop.value, None, going)
            except Exception as raised:
                self._end(ticket, None, raised, going)
            else:
                if not isinstance(request, All):
                    self._waiting.append((ticket, request))
                elif request.members:
                    ticket.results, ticket.errors = [None] * len(request.members), {}
                    ticket.open = len(request.members)
                    for place, work in enumerate(request.members):
                        going.append((Ticket(iter(work), ticket, place), None, None))
                else:
                    going.append((ticket, (), None))

    def _end(
        self,
        ticket: Ticket,
        value: Any,
        error: Exception | None,
        going: deque[tuple[Ticket, Any, Exception | None]],
    ) -> None:
        """Record a generator's result or error; the last member of an ``All`` wakes its parent."""
        self._alive.pop(ticket, None)
        parent = ticket.parent
        if parent is None:
            self._result, self._error, self.finished = value, error, True
            return
        parent.results[ticket.place] = value
        if error is not None:
            parent.errors[ticket.place] = error
        parent.open -= 1
        if not parent.open:
            going.append((parent, tuple(parent.results), _first_of(parent.errors)))


def _first_of(errors: dict[int, Exception]) -> Exception | None:
    """Return the error of the first member, in order, that failed.

    The others' errors are its notes, each once.
    """
    if not errors:
        return None
    first, *others = (errors[place] for place in sorted(errors))
    told = {_gist(first)}
    for other in others:
        if _gist(other) not in told:
            told.add(_gist(other))
            first.add_note(f"At the same time: {type(other).__name__}: {other}")
    return first


def _gist(error: Exception) -> str:
    """Return a text that is equal for errors with the same cause.

    For errors of all requests alike (the store does not answer, the bucket does not exist, the keys
    are wrong) it is class and remedy; for others the message.
    """
    if isinstance(error, StoreUnreachableError) or (
        isinstance(error, StoreRefusedError) and (error.no_bucket or error.no_keys)
    ):
        return f"{type(error).__name__}: {error.remedy}"
    return str(error)
