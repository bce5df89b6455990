"""Checks of S3 URLs for an ARN, or for access keys, in the place of the bucket."""

from __future__ import annotations

import re

from ..errors import InvalidInputError

#: Beginning of S3 URLs, in any case, as a part of a pattern.
SCHEME = "(?i:s3[an]?)://"
_ARN = re.compile(f"({SCHEME})?arn:aws", re.IGNORECASE)
#: Keys in a URL, as in Hadoop's first file systems: ``s3n://KEY:SECRET@bucket``. A secret may have
#: slashes.
_KEYS = re.compile(rf"{SCHEME}[^/]*[:@]")


def refuse_arn(url: str) -> None:
    """Refuse an ARN in the place of a bucket's name.

    :raises InvalidInputError: there is an ARN. That of an access point is refused, too: records,
        manifests and other engines name files by their bucket.
    """
    if _ARN.match(url.strip()):
        raise InvalidInputError(
            f"{url!r} has an ARN where a bucket's name is; nothing was read or written.",
            remedy="Name the bucket: s3://bucket/prefix; for an access point its alias, which ends "
            "with -s3alias.",
        )


def check_bucket_part(url: str) -> None:
    """Refuse an ARN in the place of a bucket's name, and access keys before the bucket.

    :raises InvalidInputError: there is one of these. The error does not show the keys.
    """
    refuse_arn(url)
    if _KEYS.match(url.strip()):
        raise InvalidInputError(
            "A URL has something before its bucket, like an access key and its secret; it is not "
            "shown, and nothing was read or written.",
            remedy="Name the bucket alone: s3://bucket/prefix. Keys come from where boto3 finds "
            "them, from the AWS connection or from the resource.",
        )
