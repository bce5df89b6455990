"""Facts about a job's surroundings: the bucket's rules, the disk of this machine."""

from __future__ import annotations

import getpass
import os
import re
import stat
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from ...committer.doctor import Complaint, lifecycle_rules
from ...committer.layout import TableRoot
from ..hadoop.effective_settings import Setting
from ..hadoop.settings import BUFFER_KEY

_VARIABLE = re.compile(r"\$\{(env\.)?([^}:]+)(?::?-((?:[^{}]|\$\{[^}]*\})*))?\}")
_DEEPEST = 10


def lifecycle_days(client: Any, root: TableRoot) -> float | None:
    """Days after which the bucket aborts uploads below ``root``; infinite: never, ``None``: the
    store does not tell.

    :param client: a boto3 S3 client.
    """
    rules = lifecycle_rules(client, root.bucket)
    if isinstance(rules, Complaint):
        return None
    return least_days(rules, root)


def least_days(rules: list[Mapping[str, Any]], root: TableRoot) -> float:
    """The least ``DaysAfterInitiation`` of the rules that touch keys below ``root``."""
    table, found = f"{root.prefix}/", []
    for rule in rules:
        narrowed = rule.get("Filter") or {}
        both = narrowed.get("And") or {}
        prefix = rule.get("Prefix") or narrowed.get("Prefix") or both.get("Prefix") or ""
        days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        if days is not None and (table.startswith(prefix) or prefix.startswith(table)):
            found.append(int(days))
    return min(found, default=inf)


def buffer_facts(
    settings: Mapping[str, Setting], environ: Mapping[str, str] = os.environ
) -> tuple[int | None, tuple[str, ...]]:
    """Free bytes of the roomiest buffer folder, and the folders that others may write to.

    For this machine, so of use in the job or where Spark runs here. A folder that is not there
    yet is judged by the nearest one above it.
    """
    free: list[int] = []
    shared: list[str] = []
    for text in _expanded(BUFFER_KEY, settings, environ).split(","):
        path = Path(text.strip().removeprefix("file:"))
        if not text.strip() or "${" in text or not path.is_absolute():
            continue
        there = path
        while not there.exists() and there != there.parent:
            there = there.parent
        status, volume = there.stat(), os.statvfs(there)
        free.append(volume.f_bavail * volume.f_frsize)
        # A sticky folder such as /tmp keeps strangers from a folder that is made below it.
        others = bool(status.st_mode & stat.S_IWOTH)
        kept = there != path and bool(status.st_mode & stat.S_ISVTX)
        foreign = there == path and status.st_uid not in (os.getuid(), 0)
        if (others and not kept) or foreign:
            shared.append(str(path))
    return max(free, default=None), tuple(shared)


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
