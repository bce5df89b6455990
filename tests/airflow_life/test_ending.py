"""What the scenes of a whole Airflow, or Dagster, have started ends with them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

TESTS = Path(__file__).parents[1]
#: Scenes whose world is a server, the number of which is said. Its end meets another signal.
PROGRAM = """
import os, signal, subprocess, sys
from contextlib import contextmanager
from support.scenes import play

def reached(place):
    if os.environ["REACHED"] == place:
        print(server.pid, flush=True)
        signal.pause()

@contextmanager
def world():
    global server
    idle = [sys.executable, "-c", "import signal; signal.pause()"]
    server = subprocess.Popen(idle, start_new_session=True)
    try:
        reached("start")
        yield server
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        server.kill()
        server.wait()

def scene(world):
    reached("scene")
    return ""

sys.exit(play("life", "", [scene], world))
"""


@contextlib.contextmanager
def scenes(reached: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """The scenes' program, at a place, and its server. It ignores SIGINT at first, as a shell lets
    what it starts in the background do."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "REACHED": reached}
    command = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, PROGRAM]
    program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    server = psutil.Process(int(program.stdout.readline()))
    try:
        yield program, server
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            server.kill()
        program.kill()
        program.communicate()


@pytest.mark.parametrize("reached", ["start", "scene"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_scenes_that_a_signal_ends_end_what_they_have_started(
    number: signal.Signals, reached: str
) -> None:
    with scenes(reached) as (program, server):
        program.send_signal(number)
        assert program.wait(60) == 128 + number
        assert not server.is_running()
