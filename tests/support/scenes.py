"""Scenes that a whole scheduler goes through one after the other, as a program."""

from __future__ import annotations

import argparse
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

#: Plays in a world, looks at the rows afterwards, and says what came of it; its docstring says what
#: it is.
Scene = Callable[[Any], str]
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def play(
    program: str,
    about: str | None,
    scenes: Sequence[Scene],
    world: Callable[[], AbstractContextManager[Any]],
) -> int:
    """Play the scenes that the command line names, or all. Returns 0 only if the rows were right
    after every one. A signal that ends the program ends the world first."""
    names = [scene.__name__ for scene in scenes]
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help=f"of: {', '.join(names)}; or all"
    )
    asked = parser.parse_args().scenes
    unknown = set(asked) - set(names)
    if unknown:
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    with _ended_by_signals(), world() as made:
        good = [_shown(it, made) for it in scenes if not asked or it.__name__ in asked]
    print(f"{sum(good)} of {len(good)} scenes: the rows are right", flush=True)
    return 0 if all(good) else 1


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a signal end the block as an exception does; a further one changes nothing about that."""

    def end(number: int, frame: object) -> None:
        for it in _ENDING:
            signal.signal(it, lambda *_: None)
        raise SystemExit(128 + number)

    # SIGINT too: a shell lets what it starts in the background ignore it.
    before = {it: signal.signal(it, end) for it in _ENDING}
    try:
        yield
    finally:
        for it, handler in before.items():
            signal.signal(it, handler)


def _shown(scene: Scene, world: Any) -> bool:
    """Play a scene, and say what came of it in one line."""
    begun = time.monotonic()
    try:
        came, good = scene(world), True
    except Exception as error:
        traceback.print_exc()
        came, good = f"{type(error).__name__}: {error}", False
    what, seconds = (scene.__doc__ or "").strip(), time.monotonic() - begun
    print(f"{'right' if good else 'WRONG':5} {seconds:4.0f} s  {what}: {came}", flush=True)
    return good
