"""Facts about a job's surroundings: the bucket's rules, the disk of this machine."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ...committer.layout import TableRoot
from ...committer.s3.lifecycle import least_abort_days
from ...committer.s3.requests import ListLifecycleRules, Step, Unknown
from ..hadoop.effective_settings import Setting
from ..hadoop.settings import BUFFER_KEY

_VARIABLE = re.compile(r"\$\{(env\.)?([^}:]+)(?::?-((?:[^{}]|\$\{[^}]*\})*))?\}")
_DEEPEST = 10


def lifecycle_days(root: TableRoot) -> Step[float | None]:
    """Days after which the bucket aborts uploads below ``root``; infinite: never, ``None``: the
    store does not tell."""
    found = yield ListLifecycleRules()
    if isinstance(found, Unknown):
        return None
    return least_abort_days(found.rules, f"{root.prefix}/")


def buffer_free_bytes(
    settings: Mapping[str, Setting], environ: Mapping[str, str] = os.environ
) -> int | None:
    """Free bytes of the roomiest buffer folder; ``None`` where none is known.

    For this machine, so of use in the job or where Spark runs here. A folder that is not there
    yet is judged by the nearest one above it.
    """
    free: list[int] = []
    for text in _expanded(BUFFER_KEY, settings, environ).split(","):
        path = Path(text.strip().removeprefix("file:"))
        if not text.strip() or "${" in text or not path.is_absolute():
            continue
        while not path.exists() and path != path.parent:
            path = path.parent
        volume = os.statvfs(path)
        free.append(volume.f_bavail * volume.f_frsize)
    return max(free, default=None)


def _expanded(key: str, settings: Mapping[str, Setting], environ: Mapping[str, str]) -> str:
    """A setting with its variables, as Hadoop's ``Configuration`` puts them in."""

    def value(match: re.Match[str]) -> str:
        env, name, default = match.groups()
        if env:
            found = environ.get(name)
        elif name == "user.name":
            found = getpass.getuser()
        else:
            found = settings[name].value if name in settings else None
        return match.group() if found is None and default is None else found or default or ""

    text = settings[key].value if key in settings else ""
    for _ in range(_DEEPEST):
        if (again := _VARIABLE.sub(value, text)) == text:
            break
        text = again
    return text
