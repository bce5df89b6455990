"""Faults at one request of many: the store's, and those of the process that asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.faults import Crash
from zero_rename.committer.errors import StoreUnreachableError
from zero_rename.committer.store import requests as s

#: Requests whose answer may be that nobody knows whether they were carried out.
UNSURE = (s.Put, s.PutFile, s.Delete, s.DeleteMany)


def at(number: int, then: Callable[[Any, Callable[[Any], Any]], Any]) -> Any:
    """A fault at one request; before and after it the store works, unless the process dies: its
    requests end there, whatever it still tries."""
    left, dies = number, then is dying_before

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal left
        left -= 1
        return then(request, apply) if left == -1 or (dies and left < 0) else apply(request)

    return fault


def unsent(request: Any, apply: Callable[[Any], Any]) -> Any:
    if isinstance(request, UNSURE):
        return s.Unknown("no answer")
    raise StoreUnreachableError("The store is gone.")


def unanswered(request: Any, apply: Callable[[Any], Any]) -> Any:
    apply(request)
    return unsent(request, apply)


def interrupted_before(request: Any, apply: Callable[[Any], Any]) -> Any:
    raise KeyboardInterrupt


def interrupted_after(request: Any, apply: Callable[[Any], Any]) -> Any:
    apply(request)
    raise KeyboardInterrupt


def dying_before(request: Any, apply: Callable[[Any], Any]) -> Any:
    raise Crash


FAULTS = {
    it.__name__: it
    for it in (unsent, unanswered, interrupted_before, interrupted_after, dying_before)
}
