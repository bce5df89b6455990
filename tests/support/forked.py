"""Work in a forked child."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

#: For tests that fork: Python warns of it in a process with threads.
quietly = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
_LONGEST = 60.0


def in_a_child(work: Callable[[], int]) -> int:
    """What ``work`` comes to in a forked process: 0 to 254; 255 where it raised."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            code = work()
        finally:
            os._exit(code)
    deadline = time.monotonic() + _LONGEST
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    return os.waitstatus_to_exitcode(ended[1])
