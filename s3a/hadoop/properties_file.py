"""Settings of a Spark properties file, such as ``spark-defaults.conf``."""

from __future__ import annotations

import re
from pathlib import Path

from ...committer.errors import InvalidInputError

#: A comment; or a key, up to the first separator that is not escaped, and its value. A line that
#: ends in a backslash goes on in the next.
_LINE = re.compile(
    r"""^[ \t\f]* (?: [#!].* |
    (?P<key> (?: \\. | [^\s=:\\] )+ ) [ \t\f]* [=:]? [ \t\f]*
    (?P<value> (?: \\\r?\n | \\. | [^\\\n] )* ) \\? )$""",
    re.MULTILINE | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(?:\r?\n[ \t\f]*|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", None: ""}


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
    pairs = (found.group("key", "value") for found in _LINE.finditer(text) if found["key"])
    return {_unescape(key): _unescape(value).strip() for key, value in pairs}


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), text)
