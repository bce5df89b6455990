"""Environment of Spark's Python workers: their log, their errors, and their application.

Spark runs a data source's methods in workers that its JVM starts. There, logging is not set up, and
an error that a method raises reaches the user as the text of a traceback.
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
from .java_classes import java_class
from .zip_archives import spare_unchanged_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark")


def in_worker() -> bool:
    """Return whether this process is one of Spark's Python workers."""
    return os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"


@dataclass
class _Reuse:
    """State of :func:`ease_reuse` in this process.

    :param freezes: whether it may freeze objects; ``None``: not checked yet. Counting the frozen
        objects visits all of them, which takes 14 ms.
    :param modules: number of modules that were imported at the last freeze.
    """

    freezes: bool | None = None
    modules: int = 0


_reuse = _Reuse()
#: Number of modules imported since the last freeze, from which on a worker is frozen again. pandas
#: has 500.
_MANY = 100


def ease_reuse() -> None:
    """Avoid work that a reused worker would repeat before and after each task.

    Before a task, Spark lets it read the zip archives on its path (:mod:`.zip_archives`). After a
    task, its daemon lets it collect garbage among all objects that were ever imported
    (``pyspark/daemon.py``), which takes 40 ms with pandas, pyarrow and boto3. So the present
    objects are frozen, and frozen again if many modules were imported since. Does nothing in other
    processes, nor in a worker of one task. Freezes nothing if other code has frozen objects.
    """
    from pyspark import TaskContext

    # Spark before 4 does not set the variable that in_worker() reads.
    if TaskContext.get() is None or not os.environ.get("SPARK_REUSE_WORKER"):
        return
    if _reuse.freezes is None:
        spare_unchanged_archives()
        _reuse.freezes = not gc.get_freeze_count()
    if _reuse.freezes and len(sys.modules) - _reuse.modules >= _MANY:
        gc.collect()  # Frozen garbage would never be collected.
        gc.freeze()
        _reuse.modules = len(sys.modules)


class _Stderr(logging.StreamHandler[TextIO]):
    """Handler that writes to the present ``sys.stderr``, which Spark swaps to capture output."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # pyrefly: ignore[bad-override]
        return sys.stderr


def set_up_logging() -> None:
    """Write this package's log to the worker's stderr, which Spark puts into the task's log.

    Does nothing in other processes, nor if a handler is set up.
    """
    package = logging.getLogger("zero_rename")
    if not in_worker() or package.handlers or logging.getLogger().handlers:
        return
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package.addHandler(handler)
    level = (os.environ.get(LOG_LEVEL) or "INFO").strip().upper()
    is_known = level in logging.getLevelNamesMapping()
    package.setLevel(level if is_known else "INFO")
    if not is_known:
        logger.warning("%s=%s is not a level of Python's logging; INFO counts", LOG_LEVEL, level)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Hide the traceback of this package's errors in the block, so that Spark shows their message.

    Spark shows the text of the worker's traceback. For our own errors it adds nothing to the
    message. All other errors keep theirs.
    """
    set_up_logging()
    try:
        yield
    except ZeroRenameError as error:
        logger.debug("what led to the error", exc_info=True)
        hide_traceback()
        raise error from None


def hide_traceback() -> None:
    """Let Spark show only the message of the error that is about to be raised.

    ``pyspark.util.handle_worker_exception`` reads this; the worker ends after an error.
    """
    if in_worker():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def application() -> str | None:
    """Return a name of this worker's Spark application that is unique over hosts and time.

    It is made of the JVM's process and start. ``None`` if the operating system does not give them.
    """
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
    """Return the name of a session's application, in the process that holds the session.

    For a classic session it is the same name as :func:`application`, that of its JVM. With Spark
    Connect, each process that holds a session counts as an application of its own.
    """
    if not hasattr(session, "_jsparkSession"):
        found = _process(os.getpid())
        return None if found is None else _name_of("client", os.getpid(), found[1])
    jvm: Any = session.sparkContext._jvm
    try:
        pid = int(java_class(jvm, "java.lang.ProcessHandle").current().pid())
    except Exception as error:
        # Platforms that share a JVM let Python call only few of its classes.
        logger.info("the application's JVM does not tell its process: %s", error)
        return None
    found = _process(pid)
    return None if found is None else _name_of("jvm", pid, found[1])


def _name_of(kind: str, pid: int, started: str) -> str:
    return f"{socket.gethostname()}-{kind}-{pid}-{started}"


def connect_session() -> str:
    """Return the id of a Spark Connect session on its server; ``""`` in a classic application.

    All sessions of a server are one application. Spark puts a session's artifacts under this id
    (``BasePythonRunner``, ``PythonPlannerRunner``).
    """
    found = os.environ.get("SPARK_JOB_ARTIFACT_UUID", "default")
    return "" if found == "default" else found


def is_over(application: str) -> bool:
    """Return whether an application of this host has ended; ``False`` also if that is not known.

    :param application: its name, from :func:`application`.
    """
    name = rf"{re.escape(socket.gethostname())}-(?:jvm|client)-(\d+)-(\d+)"
    found = re.fullmatch(name, application)
    if found is None or not Path("/proc/self/stat").exists():
        return False
    running = _stat(int(found[1]))
    return running is None or running[2] != found[2]


def _parent(pid: int) -> tuple[int, str, str] | None:
    """Return the pid, command and start of a process's parent."""
    stat = _stat(pid)
    try:
        up = int(stat[1] if stat is not None else _ps(pid, "ppid="))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    found = _process(up)
    return None if found is None else (up, *found)


def _process(pid: int) -> tuple[str, str] | None:
    """Return the command and the start of a process."""
    stat = _stat(pid)
    if stat is not None:
        return stat[0], stat[2]
    try:
        return Path(_ps(pid, "comm=")).name, _ps(pid, "lstart=").replace(" ", "_")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _stat(pid: int) -> tuple[str, str, str] | None:
    """Read the command, parent and start (ticks since boot) of a process from ``/proc``."""
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
