"""Files of a submission that have to be on the worker."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...committer.errors import InvalidInputError

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def check_files(**given: str | None) -> None:
    """See that the files of spark-submit's arguments exist, as far as this machine can know.

    A path without a scheme is one of the machine that submits
    (``org.apache.spark.util.Utils.resolveURI``), whatever the master and the deploy mode.

    :param given: by the operator's argument, paths separated by commas, each perhaps with a
        ``#name`` or a wildcard.
    :raises InvalidInputError: names the first that is missing.
    """
    for argument, paths in given.items():
        for named in (paths or "").split(","):
            here = _on_this_machine(named.strip())
            if here is not None and not glob.glob(here) and not Path(here).exists():
                raise InvalidInputError(
                    f"The file {here} of {argument} does not exist on this worker; nothing was "
                    "submitted.",
                    remedy="Give a path that every worker has (relative ones begin at the "
                    "worker's own folder), or a URL such as s3a://bucket/job.py.",
                )


def _on_this_machine(named: str) -> str | None:
    """A path's file on this machine; ``None`` where it is elsewhere, or no path at all."""
    if not named:
        return None
    if _SCHEME.match(named) is None:
        return named if Path(named).exists() else named.partition("#")[0]
    parts = urlsplit(named)
    return unquote(parts.path) if parts.scheme == "file" else None
