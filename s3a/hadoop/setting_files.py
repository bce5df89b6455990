"""Files of settings: Spark's properties, and a cluster's own in ``HADOOP_CONF_DIR``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from ...committer.errors import InvalidInputError
from .effective_settings import CORE_SITE, Layer

#: In the order in which Hadoop loads them: a later one wins.
_FILES = ("core-site.xml", "mapred-site.xml")
_SECRET = re.compile(r"(?i)secret|password|token|access\.key|encryption\.key|credential")

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
        raise _unreadable(path, error) from error
    pairs = (found.group("key", "value") for found in _LINE.finditer(text) if found["key"])
    return {_unescape(key): _unescape(value).strip() for key, value in pairs}


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), text)


def hadoop_layer(environ: Mapping[str, str] = os.environ) -> Layer:
    """The layer :data:`.CORE_SITE`, for a driver that is started with ``environ``.

    What looks like a credential is left out. A file that is not there is empty.

    :raises InvalidInputError: a file that is no XML, which Hadoop would not load either.
    """
    folder = environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")
    found: dict[str, str] = {}
    for name in _FILES if folder else ():
        path = Path(folder or "", name)
        if path.is_file():
            found |= dict(_properties(path))
    return CORE_SITE, found


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise _unreadable(path, error) from error
    for entry in root.iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value is not None and not _SECRET.search(name):
            yield name.strip(), value.strip()


def _unreadable(path: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"The file of settings {path} cannot be read ({type(error).__name__}); nothing was "
        "submitted.",
        remedy="Give one that is whole and that the worker's user can read, or point "
        "HADOOP_CONF_DIR elsewhere.",
    )
