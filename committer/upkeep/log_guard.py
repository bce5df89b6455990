"""Bucket policy that refuses unconditional writes to the logs of Delta tables.

Two writers cannot both write an entry of a log if each PUT of one has ``If-None-Match``. Delta on
Spark does not send it by default. The policy refuses such a PUT, so that it fails instead of
destroying a commit. The condition keys are those of AWS (S3 User Guide, "Enforce conditional writes
on Amazon S3 buckets"). To a store that does not know them every request looks unconditional.
"""

from __future__ import annotations

from typing import Any

from ..format.layout import TableRoot
from ..format.schema.other_formats import DELTA_LOG

#: Names of entries have twenty digits. Those of checkpoints begin in the same way, and are longer.
_ENTRY = f"{DELTA_LOG}/{'?' * 20}.json"


def log_guard(root: TableRoot) -> dict[str, Any]:
    """Return a bucket policy that refuses log entries written without a condition. It covers the
    table at a root and all tables below it.

    Parts of a multipart upload carry no condition; the request that completes it must.
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
