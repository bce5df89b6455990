"""Messages of this package's other folders in the log of a Dagster step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dagster._core.log_manager import DagsterLogHandler

#: The loggers of all folders, and those of loads, whose messages say what a step waits for and what
#: it has cleaned up.
_ALL, _LOADS = "zero_rename", "zero_rename.orchestration"


class _Forwarding(logging.Handler):
    """Handler that hands records on to a step's log: all of loads, and warnings of others."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        of_loads = record.name == _LOADS or record.name.startswith(f"{_LOADS}.")
        if of_loads or record.levelno >= logging.WARNING:
            self._log.log(record.levelno, record.getMessage())


@contextmanager
def told_in(log: logging.Logger) -> Iterator[None]:
    """Show in a step's log what this package logs in the block. Without it these messages are lost,
    unless the instance's ``managed_python_loggers`` name this package.

    :param log: of the step.
    """
    everything, loads = logging.getLogger(_ALL), logging.getLogger(_LOADS)
    ours = (DagsterLogHandler, _Forwarding)
    known = [*logging.getLogger().handlers, *everything.handlers, *loads.handlers]
    if any(isinstance(it, ours) for it in known):
        yield
        return
    handler, level = _Forwarding(log), loads.level
    everything.addHandler(handler)
    if loads.getEffectiveLevel() > logging.INFO:
        loads.setLevel(logging.INFO)
    try:
        yield
    finally:
        loads.setLevel(level)
        everything.removeHandler(handler)
