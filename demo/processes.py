"""Child processes that do not outlive the demonstration."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

#: A variable that all descendants of one demonstration share.
_MARK = "ZERO_RENAME_DEMO"
_OURS = uuid.uuid4().hex


def kill_tree(pid: int) -> int:
    """``kill -9`` a process and all it started, parents first so that none is replaced.

    PySpark's workers have process groups of their own: killing a group would miss them.

    :return: how many processes were killed.
    """
    try:
        root = psutil.Process(pid)
        return _kill([root, *root.children(recursive=True)])
    except psutil.NoSuchProcess:
        return 0


def sweep() -> int:
    """Kill what descends from this demonstration and lost its parent.

    :return: how many processes were killed.
    """
    return _kill(
        [
            process
            for process in psutil.process_iter()
            if process.pid != os.getpid() and _is_ours(process)
        ]
    )


def _is_ours(process: psutil.Process) -> bool:
    try:
        return process.environ().get(_MARK) == _OURS
    except (psutil.Error, OSError):
        return False  # another user's, or gone


def _kill(victims: Iterable[psutil.Process]) -> int:
    killed = []
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
            killed.append(victim)
    psutil.wait_procs(killed, timeout=10)
    return len(killed)


@contextlib.contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A child process with stderr in ``log``; killed with all its own when the block ends.

    :param options: more arguments of ``Popen``. Without ``stdout`` that goes to ``log`` too.
    """
    with open(log, "a") as file:
        options = {"stdout": file, "stdin": subprocess.DEVNULL, **options}
        # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
        process = subprocess.Popen(
            command,
            env={**environment, _MARK: _OURS},
            stderr=file,
            text=True,
            start_new_session=True,
            **options,
        )
    try:
        yield process
    finally:
        kill_tree(process.pid)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def end_with_parent() -> None:
    """In a child: if the parent is killed, end this process and all it started."""
    parent = os.getppid()

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        kill_tree(os.getpid())

    threading.Thread(target=follow, name="end-with-parent", daemon=True).start()


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
