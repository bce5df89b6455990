"""What goes wrong at chosen requests to a store in memory: see ``MemoryDriver.fault``."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

from support.memory_store import Fault


class Crash(BaseException):
    """The process dies."""


def on(
    kind: type | tuple[type, ...],
    answer: Any,
    part: str = "",
    *,
    applied: bool = False,
    times: float = math.inf,
) -> Fault:
    """Requests of a kind get this answer; every other one is carried out.

    :param answer: instead of the store's; an exception is raised.
    :param part: of their keys; of all keys by default.
    :param applied: the store carries them out all the same.
    :param times: how many of them do, the first ones.
    """
    numbers = count(1)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if not _is_one(request, kind, part) or next(numbers) > times:
            return apply(request)
        if applied:
            apply(request)
        if isinstance(answer, BaseException) or answer in (Crash, KeyboardInterrupt):
            raise answer
        return answer

    return fault


def beside(
    kind: type | tuple[type, ...],
    happens: Callable[[], object],
    part: str = "",
    *,
    applied: bool = False,
    times: float = math.inf,
) -> Fault:
    """Something happens before requests of a kind, or after; all are carried out.

    :param part, applied, times: as of :func:`on`; ``applied``: the store has carried them out.
    """
    numbers = count(1)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if not _is_one(request, kind, part) or next(numbers) > times:
            return apply(request)
        answer = apply(request) if applied else None
        happens()
        return answer if applied else apply(request)

    return fault


def _is_one(request: Any, kind: type | tuple[type, ...], part: str) -> bool:
    return isinstance(request, kind) and part in getattr(request, "key", "")


def at(
    number: int, happens: type[BaseException] | Callable[[], object], *, applied: bool = False
) -> Fault:
    """Something happens at one request of all, which are numbered from 1.

    :param happens: an exception's class is raised.
    :param applied: the store has carried the request out before; else it does so after.
    """
    numbers = count(1)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if next(numbers) != number:
            return apply(request)
        answer = apply(request) if applied else None
        if isinstance(happens, type) and issubclass(happens, BaseException):
            raise happens
        happens()
        return answer if applied else apply(request)

    return fault
