"""Surroundings of Spark's Python workers: their log, their errors, whose children they are.

Spark runs a data source's methods in workers that its JVM starts: nobody has set up logging
there, and whatever a method raises reaches the user as the text of a traceback.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..committer.errors import ZeroRenameError
from ..committer.format.handoff import LOG_LEVEL
from .zip_archives import spare_unchanged_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark")


def in_worker() -> bool:
    """Whether this process is a Python worker of Spark's."""
    return os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"


@dataclass
class _Reuse:
    """What :func:`ease_reuse` has seen of this process.

    :param freezes: whether it may freeze objects; ``None``: it has not looked. Counting what is
        frozen visits all of it, 14 ms.
    :param modules: that were imported when it froze the process last.
    """

    freezes: bool | None = None
    modules: int = 0


_reuse = _Reuse()
#: Modules imported since the last freeze, from which on a worker is frozen again: pandas is 500.
_MANY = 100


def ease_reuse() -> None:
    """Spare a worker that Spark uses again what it would repeat around each task.

    Before a task, Spark has it read the zip archives on its path (:mod:`.zip_archives`). After it,
    its daemon has it collect garbage over all that was ever imported (``pyspark/daemon.py``), 40 ms
    with pandas, pyarrow and boto3: what the worker holds by now is frozen; once more where much was
    imported since. Does nothing in other processes and in a worker of one task. Freezes nothing
    where other code has frozen objects.
    """
    from pyspark import TaskContext

    # Spark before 4 does not call a worker what in_worker() goes by.
    if TaskContext.get() is None or not os.environ.get("SPARK_REUSE_WORKER"):
        return
    if _reuse.freezes is None:
        spare_unchanged_archives()
        _reuse.freezes = not gc.get_freeze_count()
    if _reuse.freezes and len(sys.modules) - _reuse.modules >= _MANY:
        gc.collect()  # What is garbage now would stay for good.
        gc.freeze()
        _reuse.modules = len(sys.modules)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever ``sys.stderr`` is now: Spark swaps it to capture a worker's output."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sys.stderr


def set_up_logging() -> None:
    """Let this package's log reach the worker's stderr, which Spark puts into the task's log.

    Does nothing elsewhere, nor where a handler is set up.
    """
    package = logging.getLogger("zero_rename")
    if not in_worker() or package.handlers or logging.getLogger().handlers:
        return
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package.addHandler(handler)
    package.setLevel(os.environ.get(LOG_LEVEL, "INFO").upper())


@contextmanager
def readable_errors() -> Iterator[None]:
    """Let errors of this package end up as their one paragraph, without a traceback.

    Spark shows the text of the worker's traceback. Those of our own errors say nothing that
    their message does not; all others keep theirs.
    """
    set_up_logging()
    try:
        yield
    except ZeroRenameError as error:
        logger.debug("what led to the error", exc_info=True)
        hide_traceback()
        raise error from None


def hide_traceback() -> None:
    """Let Spark show the message alone of the error that is about to be raised.

    Read by ``pyspark.util.handle_worker_exception``; the worker ends after an error.
    """
    if in_worker():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def application() -> str | None:
    """What tells this worker's Spark application from others on any host and at any time: the
    JVM's process and start. ``None`` where the operating system does not say."""
    pid = os.getpid()
    for _ in range(4):
        parent = _parent(pid)
        if parent is None:
            return None
        pid, command, started = parent
        if command.startswith("java"):
            return _name_of("jvm", pid, started)
    return None


def application_of(session: SparkSession) -> str | None:
    """The same name, in the process that holds a session: a classic session's is that of its JVM.
    One of Spark Connect is another application for each process that holds it."""
    if not hasattr(session, "_jsparkSession"):
        found = _process(os.getpid())
        return None if found is None else _name_of("client", os.getpid(), found[1])
    jvm: Any = session.sparkContext._jvm
    try:
        pid = int(jvm.java.lang.ProcessHandle.current().pid())
    except Exception as error:
        # Platforms that share a JVM let Python call few of its classes.
        logger.info("the application's JVM does not tell its process: %s", error)
        return None
    found = _process(pid)
    return None if found is None else _name_of("jvm", pid, found[1])


def _name_of(kind: str, pid: int, started: str) -> str:
    return f"{socket.gethostname()}-{kind}-{pid}-{started}"


def connect_session() -> str:
    """What tells a session of Spark Connect from others on its server, which is one application;
    ``""`` in a classic application.

    Spark puts a session's artifacts under this id (``BasePythonRunner``, ``PythonPlannerRunner``).
    """
    found = os.environ.get("SPARK_JOB_ARTIFACT_UUID", "default")
    return "" if found == "default" else found


def is_over(application: str) -> bool:
    """Whether an application of this host has ended, by its name from :func:`application`.

    ``False`` also where that cannot be told.
    """
    found = re.fullmatch(rf"{re.escape(socket.gethostname())}-jvm-(\d+)-(\d+)", application)
    if found is None or not Path("/proc/self/stat").exists():
        return False
    running = _stat(int(found[1]))
    return running is None or running[2] != found[2]


def _parent(pid: int) -> tuple[int, str, str] | None:
    """Pid, command and start of a process's parent."""
    stat = _stat(pid)
    try:
        up = int(stat[1] if stat is not None else _ps(pid, "ppid="))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    found = _process(up)
    return None if found is None else (up, *found)


def _process(pid: int) -> tuple[str, str] | None:
    """Command and start of a process."""
    stat = _stat(pid)
    if stat is not None:
        return stat[0], stat[2]
    try:
        return Path(_ps(pid, "comm=")).name, _ps(pid, "lstart=").replace(" ", "_")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _stat(pid: int) -> tuple[str, str, str] | None:
    """Command, parent and start (ticks since boot) from Linux's ``/proc``."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    command = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    return command, rest[1], rest[19]


def _ps(pid: int, column: str) -> str:
    answer = subprocess.run(
        ["ps", "-o", column, "-p", str(pid)], capture_output=True, text=True, timeout=5, check=True
    )
    return answer.stdout.strip()
