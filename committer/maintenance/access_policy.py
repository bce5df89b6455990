"""Access policies of the least rights: what readers, writers and maintainers of a table may do.

Each action is needed by some request of this package, and no other is sent
(``tests/cli/test_policy.py`` takes them away one by one). Conditions on the prefix are of the kind
*IfExists*: without it the answer about an object that is not there becomes 403, since that question
names no prefix (S3 User Guide, "Amazon S3 condition keys").
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ..layout import TableRoot


class Role(StrEnum):
    """Who works with a table. A writer can also recover, purge, verify and adopt; a maintainer
    besides asks what uploads hold, and what the bucket's lifecycle rules are."""

    READER = "reader"
    WRITER = "writer"
    MAINTAINER = "maintainer"


_READING = ("s3:GetObject",)
_WRITING = ("s3:PutObject", "s3:AbortMultipartUpload")
_MAINTAINING = ("s3:ListMultipartUploadParts",)


def access_policy(role: Role, root: TableRoot) -> dict[str, Any]:
    """A policy document, for a user, a role or a group: it names no principal."""
    bucket, inside = f"arn:aws:s3:::{root.bucket}", f"arn:aws:s3:::{root.bucket}/{root.prefix}/*"
    writes, maintains = role is not Role.READER, role is Role.MAINTAINER
    objects = (*_READING, *(_WRITING if writes else ()), *(_MAINTAINING if maintains else ()))
    listing = ("s3:ListBucket", *(("s3:ListBucketMultipartUploads",) if writes else ()))
    statements: list[dict[str, Any]] = [
        _allow("Objects", objects, inside),
        _allow("Listings", listing, bucket)
        | {"Condition": {"StringLikeIfExists": {"s3:prefix": f"{root.prefix}/*"}}},
    ]
    if writes:
        # DeleteObjects is a request to the bucket, and Ceph wants the right on its ARN, too.
        statements.append(_allow("Removals", ("s3:DeleteObject",), inside, bucket))
    if maintains:
        statements.append(_allow("Lifecycle", ("s3:GetLifecycleConfiguration",), bucket))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(name: str, actions: tuple[str, ...], *resources: str) -> dict[str, Any]:
    return {"Sid": name, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
