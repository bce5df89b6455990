"""Settings of a Spark properties file, such as ``spark-defaults.conf``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...committer.errors import InvalidInputError

#: A key, up to the first separator that is not escaped, and its value.
_PAIR = re.compile(r"((?:\\.|[^\s=:\\])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a properties file, as ``java.util.Properties`` reads it.

    :raises InvalidInputError: the file cannot be read.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"The properties file {path} cannot be read ({type(error).__name__}); nothing was "
            "submitted.",
            remedy="Give a file that the worker's user can read.",
        ) from error
    found: dict[str, str] = {}
    for line in _lines(text):
        match = _PAIR.match(line)
        if match:
            found[_unescape(match[1])] = _unescape(match[2]).strip()
    return found


def _lines(text: str) -> Iterator[str]:
    """Logical lines: without comments, those that end in a backslash joined with the next."""
    rest = ""
    for line in text.splitlines():
        line = rest + line.lstrip()
        rest = ""
        if line.startswith(("#", "!")):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            rest = line[:-1]
            continue
        yield line
    yield rest


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), text)
