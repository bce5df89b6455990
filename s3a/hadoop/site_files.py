"""A cluster's own Hadoop settings, from the files in ``HADOOP_CONF_DIR``."""

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
        raise InvalidInputError(
            f"{path} cannot be read ({type(error).__name__}); nothing was submitted.",
            remedy="Mend it, or point HADOOP_CONF_DIR elsewhere.",
        ) from error
    for entry in root.iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value is not None and not _SECRET.search(name):
            yield name.strip(), value.strip()
