"""Nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from demo.processes import kill_tree, started, sweep

ROOT = Path(__file__).resolve().parents[2]
#: Starts a child in a session of its own, as PySpark's daemon does, prints its pid and waits.
FAMILY = (
    "import subprocess, sys, time; "
    "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " start_new_session=True); "
    "print(c.pid, flush=True); "
)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does within ten seconds."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(120)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def test_a_tree_is_killed_with_those_who_left_the_group() -> None:
    command = [sys.executable, "-c", FAMILY + "time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert kill_tree(process.pid) == 2
    assert is_gone(child)


def test_the_sweep_finds_orphans(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAMILY]
    with started(command, os.environ, tmp_path / "log", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        process.wait(120)
        assert psutil.pid_exists(orphan)
    assert sweep() == 1
    assert is_gone(orphan)
    assert sweep() == 0


def test_a_child_ends_with_its_parent() -> None:
    child = "from demo.processes import end_with_parent; import time; end_with_parent(); "
    child += "print('up', flush=True); time.sleep(600)"
    parent = (
        "import subprocess, sys; "
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE); "
        "c.stdout.readline(); print(c.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert is_gone(pid)
