"""Stores that refuse for good what a bucket's settings do not allow, in front of a real one."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from support.faulty_server import Answer, Received, Reply

#: What S3 says of a write without a checksum into a bucket whose objects are retained.
OBJECT_LOCK = (
    "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object "
    "Lock parameters"
)
SSE, _KEY = "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id"


def denial(status: int, code: str, message: str) -> Reply:
    """An S3 error document."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Reply(status, body.encode(), {"Content-Type": "application/xml"})


def refusing(refused: Callable[[Received], bool], reply: Reply) -> Answer:
    """A store that answers some requests by a refusal."""
    return lambda got, pass_on: reply if refused(got) else pass_on()


def makes_an_object(got: Received) -> bool:
    """Whether a request is a PUT, a copy or the begin of an upload: what S3 authorises by its
    encryption. Parts take theirs from their upload."""
    asked = parse_qs(urlsplit(got.path).query, keep_blank_values=True)
    if got.method == "POST":
        return "uploads" in asked
    below = urlsplit(got.path).path.strip("/").partition("/")[2]
    return got.method == "PUT" and bool(below) and "uploadId" not in asked


def names_encryption(got: Received, algorithm: str, key: str | None = None) -> bool:
    """Whether a request asks for an encryption."""
    return (got.headers.get(SSE), got.headers.get(_KEY)) == (algorithm, key)


def carries_bytes(got: Received) -> bool:
    """Whether a request is a PUT of an object's or a part's bytes: no copy."""
    below = urlsplit(got.path).path.strip("/").partition("/")[2]
    return got.method == "PUT" and bool(below) and "x-amz-copy-source" not in got.headers


def has_checksum(got: Received) -> bool:
    """Whether a request has a checksum of its body that S3 knows, before the body or after it."""
    named = {"content-md5", "x-amz-sdk-checksum-algorithm"}
    return any(it in named or it.startswith("x-amz-checksum-") for it in got.headers)


#: A bucket whose objects are retained by Object Lock, which takes none without a checksum.
RETAINING = refusing(
    lambda got: carries_bytes(got) and not has_checksum(got),
    denial(400, "InvalidRequest", OBJECT_LOCK),
)


def demanding_encryption(algorithm: str, key: str | None = None) -> Answer:
    """A store whose bucket policy denies every object that is not encrypted so, as the policies in
    AWS's guide do, by its headers alone.

    :param algorithm: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``.
    :param key: the KMS key that it wants named.
    """

    def refused(got: Received) -> bool:
        return makes_an_object(got) and not names_encryption(got, algorithm, key)

    return refusing(refused, denial(403, "AccessDenied", "Access Denied"))
