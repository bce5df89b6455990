"""Rights that a job needs after its commit, checked before it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import StoreRefusedError
from ...store.requests import (
    AbortUpload,
    All,
    Delete,
    Deleted,
    DeleteMany,
    Get,
    ListObjects,
    ListUploads,
    ObjectSettings,
    PutFile,
    Request,
    Step,
)


@dataclass(frozen=True)
class Right:
    """Action of S3, and a request that shows whether it is granted and changes nothing.

    :param action: as policies call it.
    :param of: the resource, if it is not the obvious one.
    :param need: what cannot be done without it, a predicate.
    :param ask: a request that needs it, for a folder and a key there that no object has.
    """

    action: str
    need: str
    ask: Callable[[str, str], Request[Any]]
    of: str = ""

    def __str__(self) -> str:
        return f"{self.action}{self.of}"


READING = (
    Right("s3:ListBucket", "read the table", lambda folder, _: ListObjects(folder)),
    Right("s3:GetObject", "read the table", lambda _, key: Get(key)),
)
#: All rights to finish a job except s3:PutObject, which a job's first request needs.
FINISHING = (
    Right("s3:DeleteObject", "close a job", lambda _, key: Delete(key)),
    Right(
        "s3:DeleteObject",
        "remove what a replace replaces",
        lambda _, key: DeleteMany(((key, None),)),
        of=" by DeleteObjects, which some stores (Ceph) grant on the bucket's ARN only",
    ),
    Right(
        "s3:ListBucketMultipartUploads",
        "find what a job's killed tasks left",
        lambda folder, _: ListUploads(folder),
    ),
    Right(
        "s3:AbortMultipartUpload",
        "remove what a job's killed tasks left",
        lambda _, key: AbortUpload(key, "rights"),
    ),
)

#: Rights for a place to which only data is written.
WRITING = (
    Right("s3:PutObject", "write", lambda _, key: PutFile(key, memoryview(b""), ObjectSettings())),
)


def missing_rights(
    folder: str, name: str, rights: tuple[Right, ...] = FINISHING
) -> Step[list[Right]]:
    """Find the rights that these credentials lack below a folder: one request each, at once.

    Changes nothing but what may lie at the key.

    :param folder: of a table's probes, or of its files in a fast root.
    :param name: of a key that no other process uses.
    :raises StoreUnreachableError: no answer.
    """
    key = f"{folder}{name}-rights"
    granted = yield from All(tuple(_is_granted(right.ask(folder, key)) for right in rights))
    return [right for right, has in zip(rights, granted, strict=True) if not has]


def _is_granted(request: Request[Any]) -> Step[bool]:
    try:
        answer = yield from request
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return False
    return not (isinstance(answer, Deleted) and "AccessDenied" in answer.errors.values())
