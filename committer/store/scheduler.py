"""Scheduler of a step's requests, those that can be carried out now: what all drivers share.

Sans-IO: a driver takes requests, carries them out however it likes, and brings the answers back.
Nested :class:`~.requests.All` needs no threads of its own, so it cannot starve a pool.
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
    """One running generator: a step, or a member of an ``All`` that another one waits for."""

    step: Step[Any]
    parent: Ticket | None = None
    place: int = 0
    results: list[Any] = field(default_factory=list)
    errors: dict[int, Exception] = field(default_factory=dict)
    open: int = 0


class Scheduler(Generic[T]):
    """Runs a step's generators as far as they go without an answer.

    :param work: the step, or a single request; it is started at once.
    """

    def __init__(self, work: Work[T]) -> None:
        self._root = Ticket(iter(work))
        #: In the order in which they were started: children after their parents.
        self._alive: dict[Ticket, None] = {}
        self._waiting: deque[tuple[Ticket, Any]] = deque()
        self._result: Any = None
        self._error: Exception | None = None
        self.finished = False
        self._run(self._root, None, None)

    def take(self) -> tuple[Ticket, Any] | None:
        """The oldest request not taken yet with the ticket to answer it under, or ``None``."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def idle(self) -> bool:
        """Whether every request made so far has been taken."""
        return not self._waiting

    def answer(self, ticket: Ticket, value: Any) -> None:
        """Send the answer to a taken request; runs its generator to the next one."""
        self._run(ticket, value, None)

    def throw(self, ticket: Ticket, error: Exception) -> None:
        """Raise ``error`` where the step waits for the answer."""
        self._run(ticket, None, error)

    def result(self) -> T:
        """What the step returned; raises what it raised. Only when :attr:`finished`."""
        if self._error is not None:
            raise self._error
        return self._result

    def close(self) -> None:
        """Close what still runs, children before their parents. For interrupts."""
        for ticket in reversed(self._alive):
            ticket.step.close()
        self._alive.clear()
        self._waiting.clear()

    def _run(self, ticket: Ticket, value: Any, error: Exception | None) -> None:
        """Advance ``ticket`` and whatever that sets going, until all wait for answers.

        A queue rather than recursion: members that make no request wake their parents at once.
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
        """Note what a generator came to; the last member of an ``All`` wakes its parent."""
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
    """The error of the first member that failed, in the order given; others as its notes, once
    each."""
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
    """Return what an error is about: the same of all requests where the store does not answer, the
    bucket is not there or the keys are wrong; else its own message."""
    if isinstance(error, StoreUnreachableError) or (
        isinstance(error, StoreRefusedError) and (error.no_bucket or error.no_keys)
    ):
        return f"{type(error).__name__}: {error.remedy}"
    return str(error)
