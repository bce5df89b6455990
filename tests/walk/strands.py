"""Processes of plain Python code, each in a thread of its own, of which one runs at a time.

A strand runs until it pauses by itself; who has resumed it waits meanwhile. So a walk chooses which
process goes on, and the same choices give the same course.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from walk.world import Crash


def _at_once() -> bool:
    return True


class Strand:
    """A process.

    :param body: what it does.
    :param interrupted: the share of its requests before or after which others run.
    """

    def __init__(self, name: str, body: Callable[[], None], interrupted: float) -> None:
        self.name, self.place, self.interrupted = name, "its start", interrupted
        self.is_over = self.is_killed = False
        self.error: BaseException | None = None
        self._body = body
        self._may_go_on: Callable[[], bool] = _at_once
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_ready(self) -> bool:
        return not self.is_over and self._may_go_on()

    def resume(self) -> None:
        """Let the process go on until it pauses or ends.

        :raises BaseException: its body has.
        """
        if self._thread.ident is None:
            self._thread.start()
        self._turn.release()
        self._back.acquire()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """Let the process die where it is."""
        if not self.is_over:
            self.is_killed = True
            self.resume()

    def pause(self, place: str, may_go_on: Callable[[], bool] = _at_once) -> None:
        """Let others run, in the process itself.

        :param may_go_on: whether the process can be resumed again.
        :raises Crash: it was killed.
        """
        self.place, self._may_go_on = place, may_go_on
        self._back.release()
        self._turn.acquire()
        if self.is_killed:
            raise Crash

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.is_killed:
                self._body()
        except Crash:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._back.release()
