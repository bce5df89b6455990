"""Policy of a bucket that keeps writers without conditions out of the logs of Delta tables.

An entry of a log is one writer's only where each PUT of one says ``If-None-Match``. Delta on Spark
as it is does not; a bucket's policy refuses such a PUT, so that it fails where it would have
destroyed a commit. The condition keys are AWS's (S3 User Guide, "Enforce conditional writes on
Amazon S3 buckets"): a store that does not know them takes each request for one without a condition.
"""

from __future__ import annotations

from typing import Any

from ..format.layout import TableRoot
from ..format.schema.other_formats import DELTA_LOG

#: Names of entries: twenty digits. A checkpoint's begin like these, and are longer.
_ENTRY = f"{DELTA_LOG}/{'?' * 20}.json"


def log_guard(root: TableRoot) -> dict[str, Any]:
    """A bucket policy that refuses entries without a condition, of the table at a root and of all
    tables below it.

    Parts of multipart uploads carry no condition: the request that completes one has to.
    """
    place = f"arn:aws:s3:::{root.bucket}/{root.prefix}"
    statement = {
        "Sid": "DeltaLogEntriesOnce",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:PutObject",
        "Resource": [f"{place}/{_ENTRY}", f"{place}/*/{_ENTRY}"],
        "Condition": {
            "Null": {"s3:if-none-match": "true"},
            "Bool": {"s3:ObjectCreationOperation": "true"},
        },
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
