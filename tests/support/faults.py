"""What goes wrong at chosen requests to a store in memory: see ``MemoryDriver.fault``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.memory_store import Fault


class Crash(BaseException):
    """The process dies."""


def on(
    kind: type | tuple[type, ...], answer: Any, part: str = "", *, applied: bool = False
) -> Fault:
    """Requests of a kind get this answer; every other one is carried out.

    :param answer: instead of the store's; an exception is raised.
    :param part: of their keys; of all keys by default.
    :param applied: the store carries them out all the same.
    """

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if not isinstance(request, kind) or part not in getattr(request, "key", ""):
            return apply(request)
        if applied:
            apply(request)
        if isinstance(answer, BaseException) or answer in (Crash, KeyboardInterrupt):
            raise answer
        return answer

    return fault
