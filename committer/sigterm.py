"""SIGTERM while a job of plain Python is open: the job is aborted, then the process ends as usual.

Schedulers end a process with SIGTERM and, after a grace period, with SIGKILL (Docker after 10
seconds, Kubernetes after 30). Python's own reaction to SIGTERM runs no ``finally`` and no
``__exit__``.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, NoReturn

#: Seconds after the first SIGTERM until the clean-up is given up. Recovery then finishes it.
GRACE = 8.0


class JobTerminated(SystemExit):
    """SIGTERM while a job was open. The job is aborted as this exception passes.

    A ``SystemExit`` with the code that a shell shows for SIGTERM, 143: ``except Exception`` does
    not catch it, ``finally`` blocks outside the job run, and if it is not caught it ends the
    process quietly.
    """

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Termination:
    """Handler that turns SIGTERM into :class:`JobTerminated` while installed; main thread only.

    It does nothing in another thread, or if SIGTERM is ignored, or if its handler is one that
    Python cannot restore. A process forked meanwhile reacts as if this handler were not there.

    :param grace: seconds after the first signal until a second :class:`JobTerminated` interrupts
        the clean-up at any point.
    """

    def __init__(self, grace: float = GRACE) -> None:
        self._grace = grace
        self._pid = 0
        self._before: Any = None
        self._installed = False
        self._interrupts = False
        self._raised = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self.came = False
        self.expired = False

    def install(self) -> None:
        """Handle SIGTERM from now on. Until :meth:`interrupt` a signal is only recorded."""
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGTERM)
        if before is None or before == signal.SIG_IGN:
            return
        self._pid, self._before, self._installed = os.getpid(), before, True
        signal.signal(signal.SIGTERM, self._on_signal)

    def interrupt(self) -> None:
        """Let a signal interrupt the main thread from now on.

        :raises JobTerminated: a signal came already.
        """
        self._interrupts = True
        if self.came:
            self._raise()

    def defer(self) -> None:
        """Only record a signal from now on, until its grace period is over."""
        self._interrupts = False

    def release(self) -> None:
        """Restore the earlier handler, and pass it a signal that came meanwhile.

        :raises JobTerminated: a signal came and has not interrupted anything.
        :raises BaseException: what the earlier handler raises.
        """
        with self._lock:
            installed, self._installed = self._installed, False
        if self._timer is not None:
            self._timer.cancel()
        if not installed:
            return
        # A handler that the program installed inside the block stays.
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._before)
        if self.came and callable(self._before):
            self._before(signal.SIGTERM, None)
        if self.came and not self._raised:
            self._raise()

    def _raise(self) -> NoReturn:
        self._raised = True
        raise JobTerminated

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid or not self._installed:
            # This is a child forked inside the block: the job belongs to its parent. Or the block
            # has ended before another one that began in it, which then restored this handler.
            signal.signal(number, self._before)
            os.kill(os.getpid(), number)
        elif self.expired:
            self._raise()
        elif not self.came:  # Else the clean-up is under way already.
            self.came = True
            self._timer = threading.Timer(self._grace, self._expire)
            self._timer.daemon = True
            self._timer.start()
            if self._interrupts:
                self._raise()

    def _expire(self) -> None:
        """Interrupt the main thread once more, whatever it waits for. Called in a thread."""
        with self._lock:
            if self._installed:
                self.expired = True
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGTERM)
