"""Pauses of runs that wait for others, in which something happens in the place of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zero_rename.committer import rival_wait

Pauses = Callable[[Callable[[], object]], list[float]]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """Lets something happen in a run's first pause; returns the seconds of all."""

    def install(happens: Callable[[], object]) -> list[float]:
        seen: list[float] = []

        def pause(seconds: float) -> None:
            seen.append(seconds)
            if len(seen) == 1:
                happens()

        made = rival_wait.RivalWait.__init__

        def init(self: Any, longest: float, since: Any = None, *more: Any, **named: Any) -> None:
            made(self, longest, since, pause, **named)

        monkeypatch.setattr(rival_wait.RivalWait, "__init__", init)
        return seen

    return install
