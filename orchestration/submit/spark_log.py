"""Levels of the lines that Spark writes, in the log of its task."""

from __future__ import annotations

import re
from typing import Any

#: Spark's own layout, ``%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m`` (conf/log4j2.properties.template).
_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_LEVELS = {"WARN": "warning", "ERROR": "error", "FATAL": "error"}


class SparkLog:
    """A logger whose ``info``, with which the apache-spark provider logs whatever spark-submit
    writes, takes the level from the line: Spark's information is for debugging, its warnings and
    errors are what they are, and what the application prints is information.

    :param log: the logger that is written to.
    """

    def __init__(self, log: Any) -> None:
        self._log = log

    def info(self, event: str, *args: Any, **more: Any) -> None:
        found = _LINE.match(event)
        level = "info" if found is None else _LEVELS.get(found[1], "debug")
        getattr(self._log, level)(event, *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
