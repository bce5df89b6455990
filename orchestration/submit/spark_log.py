"""Output lines of spark-submit: their levels in the task's log, and the application's error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from pathlib import PurePath
from signal import Signals
from typing import Any

from ...committer.errors import escaped

#: Spark's own layout, ``%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m`` (conf/log4j2.properties.template).
_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_LEVELS = {"WARN": "warning", "ERROR": "error", "FATAL": "error"}


class SparkLog:
    """Logger whose ``info`` takes the level from the line.

    The apache-spark provider logs each line of spark-submit by ``info``. With this logger, Spark's
    INFO lines are logged as debug, its warnings and errors as such, and the lines that the
    application prints as info.

    :param log: the logger that gets the lines.
    """

    def __init__(self, log: Any) -> None:
        self._log = log

    def info(self, event: str, *args: Any, **more: Any) -> None:
        found = _LINE.match(event)
        level = "info" if found is None else _LEVELS.get(found[1], "debug")
        getattr(self._log, level)(event, *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(.+?)", line (\d+), in (\S+)')
_OF_JAVA = re.compile(r'Exception in thread "[^"]*" (\S.*)')
#: A class by its whole name, as tracebacks write it.
_CLASS = re.compile(r"(?:\w+\.)+(\w+)(?=$|:)")
#: Parts of paths of code that is not the application's own.
_OF_OTHERS = ("/pyspark/", "/py4j/", "/zero_rename/", "-packages/", "/lib/python", "<frozen ")
_LONGEST = 1_000


class _Reads(Enum):
    """The part of a traceback that the next line belongs to."""

    NOTHING = auto()
    FRAMES = auto()
    MESSAGE = auto()


#: Classes that jobs by Hadoop's committers load before the application's own code can check them:
#: Spark refuses the settings at its first statement.
_CLASSES = re.compile(r"cloud\.(BindingParquetOutputCommitter|PathOutputCommitProtocol)\b")
_WITHOUT_JARS = (
    " Spark cannot load the classes that bind it to Hadoop's committers, so these wrote nothing. "
    "Put spark-hadoop-cloud and hadoop-aws with its SDK on the class path of Spark (docs/s3a.md "
    "lists the four jars), or give committer='zero_rename', which needs no jar."
)


class LastWords:
    """The error of an application, found in the output of spark-submit.

    It is the error of the last traceback: the last of a chain comes after its causes, and Spark
    puts a Python worker's traceback into the driver's. Without a traceback it is Java's exception.
    Without either, it is the last line that was not one of Spark's log.
    """

    def __init__(self) -> None:
        self._reads = _Reads.NOTHING
        self._frame = self._place = self._error = self._last = ""

    def noted(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines unchanged, and search each for the error."""
        for line in lines:
            self._note(line.rstrip())
            yield line

    def _note(self, line: str) -> None:
        if line.endswith(_TRACEBACK):
            ignored = self._last.startswith("Exception ignored in")
            self._reads, self._frame = (_Reads.NOTHING if ignored else _Reads.FRAMES), ""
        elif self._reads is _Reads.FRAMES:
            self._note_frame(line)
        elif self._reads is _Reads.MESSAGE and line:
            self._error += f" {line.strip()}"
            self._reads = _Reads.NOTHING
        elif found := _OF_JAVA.match(line):
            self._error, self._place = _named(found[1]), ""
        if line and _LINE.match(line) is None and not line[0].isspace():
            self._last = line

    def _note_frame(self, line: str) -> None:
        if frame := _FRAME.match(line):
            path, number, function = frame.groups()
            if not any(part in path for part in _OF_OTHERS):
                self._frame = f" ({PurePath(path).name}, line {number}, in {function})"
        elif line and not line[0].isspace():
            self._error, self._place = _named(line), self._frame
            bare = self._error.endswith(":")
            self._reads = _Reads.MESSAGE if bare else _Reads.NOTHING

    def told(self, code: int) -> str:
        """Return the error of a failed application as one line.

        :param code: the exit code of spark-submit: that of the application's process, or of the
            signal that ended one of the two.
        """
        if self._error:
            said = f"{self._error[:_LONGEST]}{self._place}."
        else:
            number = -code if code < 0 else code - 128
            killed = number in set(Signals)
            ended = f"was killed ({Signals(number).name})" if killed else "failed"
            said = f"The application {ended} without a word of why."
            if self._last:
                said += f' The last that it wrote: "{self._last[:_LONGEST]}".'
        hint = _WITHOUT_JARS if _CLASSES.search(self._error) else ""
        return escaped(f"{said} Error code is: {code}.{hint}")


def _named(error: str) -> str:
    return _CLASS.sub(r"\1", error, count=1) if _CLASS.match(error) else error
