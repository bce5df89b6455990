"""Options of the operator's ``s3a_options``: what a DAG file may say of Hadoop's committers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...committer.errors import InvalidInputError
from ...s3a.hadoop.settings import S3ASettings

#: Members of :class:`S3ASettings` that the operator sets itself.
_OURS = frozenset({"committer", "uuid", "endpoint", "region", "path_style"})
#: What ``s3a_options`` may have.
OPTIONS = tuple(f.name for f in fields(S3ASettings) if f.name not in _OURS)


def check_options(given: Mapping[str, Any]) -> None:
    """:raises InvalidInputError: an option that does not exist."""
    for name in given:
        if name not in OPTIONS:
            why = " is said otherwise" if name in _OURS else " does not exist"
            raise InvalidInputError(
                f"s3a_options[{name!r}]{why}; nothing was submitted.",
                remedy=f"There are {', '.join(OPTIONS)}. Endpoint and region come from the AWS "
                "connection, the rest of Hadoop's options by conf.",
            )
