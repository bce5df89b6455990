"""Interrupt from the keyboard: Ctrl-C ends the write that runs, and the next one finds the session.

Spark's own handler asks the JVM to cancel all jobs over the connection of the thread that was
interrupted (``PYSPARK_PIN_THREAD``, the default), which waits for the very call that is to end:
the request fails, ``KeyboardInterrupt`` hides that, and the write goes on and commits. The thread
then gets a new connection, and so a thread of the JVM that has no active session, where Spark
finds no Python data source to write with.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Seconds that the cancelling may take before the interrupt goes on.
_PATIENCE = 10.0


def cancel_on_interrupt(context: SparkContext) -> None:
    """Let Ctrl-C cancel the application's jobs over a connection of its own.

    Only where Spark's own handler is in charge, in the main thread; it has its turn afterwards.
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


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, whose thread of the JVM may be new."""
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
