"""Aborts of uploads, which come by the thousand: signed here and sent on botocore's connections,
past all else that it does for a request, which is most of the CPU of a sweep.

The first one goes by the client's own method, and shows where botocore sends it and how it signs.
So does one that the store refuses: what it says is botocore's to read.
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from botocore.auth import SIGV4_TIMESTAMP
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError

from .clients import SIGV4, S3Clients
from .requests import AbortUpload, Done

_OPERATION = "AbortMultipartUpload"
_NO_BODY = sha256().hexdigest()
#: What a thread sent last by the client's own method.
_sent = threading.local()


@dataclass(frozen=True)
class _Place:
    """Where a bucket's keys are, and for what requests there are signed.

    :param prefix: of a key's URL; ``path``: the same from the bucket on.
    :param scope: region and service.
    """

    prefix: str
    host: str
    path: str
    agent: str
    scope: tuple[str, str]

    @staticmethod
    def of(request: Any, key: str, region: str) -> _Place | None:
        """Of a request for a key; ``None`` where it is signed in some other way than by keys.

        :param region: the client's.
        """
        headers, url = request.headers, request.url.partition("?")[0]
        if not headers.get("Authorization", "").startswith(SIGV4):
            return None
        if "x-amz-s3session-token" in headers or not url.endswith(_quoted(key)):
            return None
        signing, prefix = request.context.get("signing", {}), url.removesuffix(_quoted(key))
        parts = urlsplit(prefix)
        # As HTTP names a host: without the port that its scheme has.
        plain = f"{parts.hostname}:{443 if parts.scheme == 'https' else 80}"
        host = str(parts.hostname) if parts.netloc == plain else parts.netloc
        scope = (signing.get("region") or region, signing.get("signing_name", "s3"))
        return _Place(prefix, host, parts.path, headers.get("User-Agent", ""), scope)

    def signed(self, request: AbortUpload, keys: Any, now: datetime) -> AWSPreparedRequest:
        """A request as Signature Version 4 wants it (Amazon S3 API Reference, *Authenticating
        Requests*).

        :param keys: botocore's frozen credentials.
        """
        key, query = _quoted(request.key), f"uploadId={quote(request.upload_id, safe='-_.~')}"
        date = now.strftime(SIGV4_TIMESTAMP)
        headers: Any = {"host": self.host, "x-amz-content-sha256": _NO_BODY, "x-amz-date": date}
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        names = ";".join(headers)
        lines = [f"{name}:{value}" for name, value in headers.items()]
        canonical = "\n".join(("DELETE", self.path + key, query, *lines, "", names, _NO_BODY))
        scope = (date[:8], *self.scope, "aws4_request")
        digest = sha256(canonical.encode()).hexdigest()
        text = "\n".join((SIGV4, date, "/".join(scope), digest))
        secret = reduce(_hmac, scope, f"AWS4{keys.secret_key}".encode())
        proof = {
            "Credential": "/".join((keys.access_key, *scope)),
            "SignedHeaders": names,
            "Signature": _hmac(secret, text).hex(),
        }
        proven = ", ".join(f"{name}={value}" for name, value in proof.items())
        headers["Authorization"] = f"{SIGV4} {proven}"
        headers["User-Agent"] = self.agent
        return AWSPreparedRequest("DELETE", f"{self.prefix}{key}?{query}", headers, None, False)


class QuickAborts:
    """Carries out the aborts of one bucket's uploads. May be used by many threads."""

    def __init__(self, bucket: str, clients: S3Clients) -> None:
        self._bucket = bucket
        self._client = clients.client
        self._clock = clients.clock
        self._place: _Place | None = None
        events = clients.client.meta.events
        events.register_last(f"request-created.s3.{_OPERATION}", _keep, "zero-rename-abort")

    def abort(self, request: AbortUpload) -> Done:
        """:raises ClientError: and ``BotoCoreError``, as the client's own method does."""
        if self._place is not None:
            status = self._send(self._place, request)
            if status in (200, 204):
                return Done()
            if status == 429 or status >= 500:
                # Of a store in trouble nothing is asked twice at once.
                told: Any = {"ResponseMetadata": {"HTTPStatusCode": status}}
                raise ClientError(told, _OPERATION)
        _sent.request = None
        self._client.abort_multipart_upload(
            Bucket=self._bucket, Key=request.key, UploadId=request.upload_id
        )
        if self._place is None and _sent.request is not None:
            region = self._client.meta.region_name
            self._place = _Place.of(_sent.request, request.key, region)
        return Done()

    def _send(self, place: _Place, request: AbortUpload) -> int:
        """:returns: the answer's status."""
        keys = self._client._get_credentials().get_frozen_credentials()
        signed = place.signed(request, keys, datetime.fromtimestamp(self._clock.now(), UTC))
        return self._client._endpoint.http_session.send(signed).status_code


def _keep(request: Any, **_: Any) -> None:
    _sent.request = request


def _quoted(key: str) -> str:
    """As botocore puts a key into a URL."""
    return quote(key, safe="/-_.~")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
