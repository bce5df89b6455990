"""Registration of the data source with a session, and services that need the user's own process.

One of these is Ctrl-C: it ends the running write, and the next write still finds the session.
Spark's own handler asks the JVM to cancel all jobs, but over the connection of the interrupted
thread (``PYSPARK_PIN_THREAD``, the default). This connection still waits for the call that should
end: the request fails, ``KeyboardInterrupt`` hides the failure, and the write continues and
commits. The thread then gets a new connection, with a new thread in the JVM that has no active
session, where Spark finds no Python data source to write with.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..committer.format.handoff import HANDOFF, OPEN_JOBS
from .heartbeat import Heartbeat
from .java_classes import java_class
from .startup.preflight import check_data_source_versions, check_worker_python, warn_of_overwrites
from .write_target import take_handoff

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark.registration")
#: Spark's class that warns if a name is registered twice.
_REGISTRY = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_LOG4J = "org.apache.logging.log4j"
#: Seconds that the cancelling may take before Spark's own handler runs.
_PATIENCE = 10.0
_lock = threading.Lock()
_registering = threading.Lock()
_heartbeats: dict[int, Heartbeat] = {}


def register(spark: SparkSession) -> None:
    """Register ``format("zero_rename")`` with a session, with heartbeats and Ctrl-C.

    If the package is installed for the workers' Python, Spark finds the format by itself. This call
    is also for a package that came by ``--py-files``, for heartbeats of the jobs that this
    application opens (see :mod:`.heartbeat`), and for Ctrl-C. It may be called again, and for
    several sessions. It must be called in every thread that writes, and after Ctrl-C, if Spark
    would not find the format.

    :param spark: a session. One of Spark Connect is registered without heartbeats.
    :raises InvalidInputError: the workers' Python on this machine cannot run this package.
    """
    check_data_source_versions()
    warn_of_overwrites(spark)
    take_handoff(spark)
    from .data_source import ZeroRenameDataSource

    if getattr(spark, "_jsparkSession", None) is None:
        spark.dataSource.register(ZeroRenameDataSource)
        return
    _check_workers(spark)
    _activate(spark)
    cancel_on_interrupt(spark.sparkContext)
    heartbeat = _heartbeat(spark.sparkContext)
    known = {OPEN_JOBS: str(heartbeat.folder), HANDOFF: os.environ.get(HANDOFF)}
    with _environment(spark.sparkContext, known), _without_warning(spark.sparkContext):
        # The environment at this moment is kept with the registered class.
        spark.dataSource.register(ZeroRenameDataSource)


@contextlib.contextmanager
def _without_warning(context: Any) -> Iterator[None]:
    """Suppress Spark's warning in the block that a registered data source is replaced.

    Spark may have found the data source by itself; it is replaced by the same one with heartbeats.
    """
    jvm: Any = context._jvm
    level = java_class(jvm, f"{_LOG4J}.Level")
    configurator = java_class(jvm, f"{_LOG4J}.core.config.Configurator")
    before = java_class(jvm, f"{_LOG4J}.LogManager").getLogger(_REGISTRY).getLevel()
    configurator.setLevel(_REGISTRY, level.ERROR)
    try:
        yield
    finally:
        configurator.setLevel(_REGISTRY, before)


def _check_workers(spark: SparkSession) -> None:
    """Check the workers' interpreter on this host, unless Spark sends files to the workers."""
    context = spark.sparkContext
    shipped = context._python_includes or context.getConf().get("spark.submit.pyFiles", "")
    if not shipped:
        check_worker_python({**os.environ, "PYSPARK_PYTHON": context.pythonExec})


def _heartbeat(context: Any) -> Heartbeat:
    with _lock:
        known = _heartbeats.get(id(context))
        if known is not None and known.is_alive():
            return known
        folder = Path(tempfile.mkdtemp(prefix="zero-rename-"))  # for its owner alone, 0700
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        # SparkContext.stop() removes its JVM context.
        heartbeat = Heartbeat(folder, alive=lambda: context._jsc is not None)
        heartbeat.start()
        _heartbeats[id(context)] = heartbeat
        return heartbeat


@contextlib.contextmanager
def _environment(context: Any, known: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables of the workers in the block, which one thread enters at a time.

    Variables with the value ``None`` stay as they are. Other threads may be reading the mapping, so
    it is replaced, not changed.
    """
    with _registering:
        before = context.environment
        given = {name: value for name, value in known.items() if value is not None}
        context.environment = before | given
        try:
            yield
        finally:
            context.environment = before


def cancel_on_interrupt(context: SparkContext) -> None:
    """Let Ctrl-C cancel the application's jobs over a connection of its own.

    Only in the main thread, and if Spark's own handler is installed, which runs afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    before: Any = signal.getsignal(signal.SIGINT)
    if not getattr(before, "__qualname__", "").startswith("SparkContext."):
        return

    def handler(number: int, frame: Any) -> None:
        cancelling = threading.Thread(target=context.cancelAllJobs, daemon=True)
        cancelling.start()
        cancelling.join(_PATIENCE)
        before(number, frame)

    signal.signal(signal.SIGINT, handler)


def _activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, since its thread in the JVM may be new."""
    jvm: Any = spark.sparkContext._jvm
    sessions = java_class(jvm, "org.apache.spark.sql.classic.SparkSession")
    sessions.setActiveSession(spark._jsparkSession)
