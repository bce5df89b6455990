"""Aborts of uploads, which come by the thousand: sent on botocore's connections, past all that it
does for a request but the signature, which is most of the CPU of a sweep.

The first one goes by the client's own method, and shows where botocore sends it and how it signs.
So does one that the store refuses: what it says is botocore's to read.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from .clients import SIGV4, S3Clients
from .requests import AbortUpload, Done

_OPERATION = "AbortMultipartUpload"
#: What a thread sent last by the client's own method.
_sent = threading.local()


@dataclass(frozen=True)
class _BucketEndpoint:
    """Where a bucket's keys are, and for what requests there are signed.

    :param prefix: of a key's URL.
    :param signing: region and service, as botocore names them.
    """

    prefix: str
    agent: str
    signing: Any

    @staticmethod
    def of(request: Any, key: str) -> _BucketEndpoint | None:
        """Of a request for a key; ``None`` where it is signed in some other way than by keys."""
        headers, url = request.headers, request.url.partition("?")[0]
        if not headers.get("Authorization", "").startswith(SIGV4):
            return None
        if "x-amz-s3session-token" in headers or not url.endswith(_quoted(key)):
            return None
        prefix, agent = url.removesuffix(_quoted(key)), headers.get("User-Agent", "")
        return _BucketEndpoint(prefix, agent, request.context.get("signing", {}))

    def request(self, asked: AbortUpload) -> AWSRequest:
        """What is sent for an abort, before it is signed."""
        upload = quote(asked.upload_id, safe="-_.~")
        url = f"{self.prefix}{_quoted(asked.key)}?uploadId={upload}"
        request = AWSRequest("DELETE", url, {"User-Agent": self.agent})
        request.context["signing"] = self.signing
        return request


class QuickAborts:
    """Carries out the aborts of one bucket's uploads. May be used by many threads."""

    def __init__(self, bucket: str, clients: S3Clients) -> None:
        self._bucket = bucket
        self._clients = clients
        self._client = clients.client
        self._place: _BucketEndpoint | None = None
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
            self._place = _BucketEndpoint.of(_sent.request, request.key)
        return Done()

    def _send(self, place: _BucketEndpoint, asked: AbortUpload) -> int:
        """:returns: the answer's status."""
        request = place.request(asked)
        self._clients.sign(request)
        return self._client._endpoint.http_session.send(request.prepare()).status_code


def _keep(request: Any, **_: Any) -> None:
    _sent.request = request


def _quoted(key: str) -> str:
    """As botocore puts a key into a URL."""
    return quote(key, safe="/-_.~")
