"""The package as an object that jobs of a service load, put there by whoever submits them."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ...committer.errors import InvalidInputError, OutcomeUnknownError
from ...committer.format.layout import PACKAGES

if TYPE_CHECKING:
    from ...committer import Table
    from ...committer.store.requests import Step
    from ...provider.hooks import ZeroRenameHook

_PLACE = re.compile(r"s3[an]?://([^/\s]+)(?:/(\S*))?")


def uploaded_package(
    hook: ZeroRenameHook, table: Table, location: str | None, package: Path
) -> str:
    """The URL of this package's zip or wheel, which is put there unless it is there.

    Its folder is a digest of the content, so that a job keeps the version that it began with.

    :param location: ``s3://bucket/prefix``; ``None`` for a folder of the table's bucket.
    :param package: the file.
    :raises InvalidInputError: no such location.
    :raises StoreRefusedError: the connection may not write there.
    :raises OutcomeUnknownError: the store did not say whether it is there.
    """
    # On use: DAG files are parsed by processes that submit nothing.
    from ...committer import Table

    place = _PLACE.fullmatch(location or f"s3://{table.root.bucket}/{PACKAGES}")
    if place is None:
        raise InvalidInputError(
            f"package_location={location!r} is no place on S3; nothing was submitted.",
            remedy="Give s3://bucket/prefix, or leave it out for the table's bucket.",
        )
    bucket, prefix = place[1], (place[2] or "").strip("/")
    content = package.read_bytes()
    key = f"{prefix}/{sha256(content).hexdigest()[:16]}/{package.name}".lstrip("/")
    url = f"s3://{bucket}/{key}"
    if bucket != table.root.bucket:
        # No table: whatever is below this bucket is reached by it.
        table = Table(f"s3://{bucket}/packages", client=hook.get_conn())
    if not table.run(_put_once(key, content)):
        raise OutcomeUnknownError(
            f"Whether the package is at {url} is not known; nothing was submitted.",
            remedy="Let the task be retried; or install the package where the job runs, and give "
            "ship_package=False.",
        )
    return url


def _put_once(key: str, content: bytes) -> Step[bool]:
    """Write an object unless it is there; whether it is there now."""
    from ...committer.store.requests import Done, Found, Head, Put

    if isinstance((yield from Head(key)), Found):
        return True
    return isinstance((yield from Put(key, content, content_type="application/zip")), Done)
