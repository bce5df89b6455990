"""Quick aborts of uploads, sent on botocore's connections without most of its work for a request.

Aborts come by the thousand, and that work takes most of the CPU of a sweep; only the signature is
kept. The first abort is sent by the client's own method, which shows its URL and its signature. An
abort that the store refuses is sent again by that method, since botocore reads the refusal.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from .clients import S3Clients, has_plain_signature
from .requests import AbortUpload, Done

_OPERATION = "AbortMultipartUpload"
#: The last request of a thread by the client's own method.
_sent = threading.local()


@dataclass(frozen=True)
class _BucketEndpoint:
    """The URL of a bucket's keys, and the parameters of signatures for it.

    :param prefix: the URL of a key up to the key.
    :param signing: region and service, as botocore names them.
    """

    prefix: str
    agent: str
    signing: Any

    @staticmethod
    def of(request: Any, key: str) -> _BucketEndpoint | None:
        """Take the endpoint from a request for a key; ``None``: not signed with plain keys."""
        headers, url = request.headers, request.url.partition("?")[0]
        if not has_plain_signature(request) or not url.endswith(_quoted(key)):
            return None
        prefix, agent = url.removesuffix(_quoted(key)), headers.get("User-Agent", "")
        return _BucketEndpoint(prefix, agent, request.context.get("signing", {}))

    def request(self, asked: AbortUpload) -> AWSRequest:
        """Make the HTTP request of an abort, not signed yet."""
        upload = quote(asked.upload_id, safe="-_.~")
        url = f"{self.prefix}{_quoted(asked.key)}?uploadId={upload}"
        request = AWSRequest("DELETE", url, {"User-Agent": self.agent})
        request.context["signing"] = self.signing
        return request


class QuickAborts:
    """Sender of the aborts of one bucket's uploads. May be used by many threads."""

    def __init__(self, bucket: str, clients: S3Clients) -> None:
        self._bucket = bucket
        self._clients = clients
        self._client = clients.client
        self._place: _BucketEndpoint | None = None
        events = clients.client.meta.events
        events.register_last(f"request-created.s3.{_OPERATION}", _keep, "zero-rename-abort")

    def abort(self, request: AbortUpload) -> Done:
        """Abort an upload.

        :raises ClientError: and ``BotoCoreError``, as by the client's own method.
        """
        if self._place is not None:
            status = self._send(self._place, request)
            if status in (200, 204):
                return Done()
            if status == 429 or status >= 500:
                # A store in trouble must not get the same request again at once.
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
        """Send an abort.

        :returns: the answer's status.
        """
        request = place.request(asked)
        self._clients.sign(request)
        return self._client._endpoint.http_session.send(request.prepare()).status_code


def _keep(request: Any, **_: Any) -> None:
    _sent.request = request


def _quoted(key: str) -> str:
    """Quote a key for a URL as botocore does."""
    return quote(key, safe="/-_.~")
