"""S3 in the test's own process: what boto3's clients of its endpoint call is answered from a
:class:`.memory_store.MemoryStore` a bucket, with no connection, signature or XML in between.

For tests whose subject is neither the store nor the way to it: a request costs a thirtieth of what
it costs at moto's server, and uploads have dates, pages and conditions as S3's have. What another
process is to see needs a server.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from zero_rename.committer.store import requests as s

from .counting import RequestCounter
from .memory_store import Behaviour, MemoryStore, StoredObject
from .moto_server import S3Server

_STATUS = {
    "404": 404,
    "NoSuchKey": 404,
    "NoSuchBucket": 404,
    "NoSuchUpload": 404,
    "PreconditionFailed": 412,
}
_STATUS |= {"NoSuchLifecycleConfiguration": 404, "InvalidRange": 416, "BucketAlreadyExists": 409}


class _Calls(RequestCounter):
    """What was asked of a bucket, as of a server."""

    def __init__(self) -> None:
        self._log: list[tuple[str, str]] = []

    def add(self, operation: str, key: str) -> None:
        self._log.append((operation, key))

    def counts(self) -> dict[str, int]:
        return dict(Counter(operation for operation, _ in self._log))

    def log(self) -> list[tuple[str, str]]:
        return list(self._log)

    def reset(self) -> None:
        self._log.clear()


class _Clock:
    """The clock of all stores: the machine's, and what a test has let pass besides."""

    passed = 0.0

    def __call__(self) -> float:
        return time.time() + self.passed


_clock = _Clock()


def let_pass(seconds: float) -> None:
    """Let time pass at the stores, until they answer no more, and nobody wait for it."""
    _clock.passed += seconds


@dataclass
class _Bucket:
    store: MemoryStore
    calls: _Calls = field(default_factory=_Calls)
    rules: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class MemoryS3(S3Server):
    """A store of many buckets; thread-safe.

    :param endpoint: where clients believe it to be. Nobody connects to it.
    """

    buckets: dict[str, _Bucket] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def ran_on(self) -> str:
        return "S3 in the test's own process"

    def counter(self, bucket: str | None = None) -> RequestCounter:
        assert bucket is not None, "counts are kept by bucket"
        return self.buckets[bucket].calls

    def call(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """What a boto3 client answers.

        :param operation: as S3 names it: ``PutObject``.
        :raises ClientError: as the client's.
        """
        with self._lock:
            return self._call(operation, given)

    def _call(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("Bucket", "")
        if operation == "CreateBucket":
            self.buckets[name] = _Bucket(MemoryStore(_clock, Behaviour(page=100)))
            return _answer()
        if operation == "ListBuckets":
            return _answer(Buckets=[{"Name": each} for each in self.buckets])
        if operation == "DeleteBucket":
            del self.buckets[name]
            return _answer()
        bucket = self.buckets.get(name)
        if bucket is None:
            raise _error("NoSuchBucket", operation)
        bucket.calls.add(_COUNTED_AS.get(operation, operation), given.get("Key", ""))
        source = given.get("CopySource")
        if source is not None:
            given = {**given, "Body": self._source(operation, source)}
        return _OPERATIONS[operation](bucket, operation, given)

    def _source(self, operation: str, named: Any) -> StoredObject:
        if isinstance(named, str):
            bucket, _, key = named.partition("/")
            named = {"Bucket": bucket, "Key": key}
        found = self.buckets[named["Bucket"]].store.objects.get(named["Key"])
        if found is None:
            raise _error("NoSuchKey", operation)
        return found


def is_wanted(request: pytest.FixtureRequest) -> bool:
    """Whether a test is marked to have its store here, and asks for no server by name."""
    marked = request.node.get_closest_marker("memory_s3") is not None
    return marked and "s3_server" not in request.fixturenames


@contextlib.contextmanager
def answering(*servers: MemoryS3) -> Iterator[None]:
    """Clients of these endpoints, made before or after, are answered here."""
    by_endpoint = {server.endpoint: server for server in servers}
    send = BaseClient._make_api_call  # pyrefly: ignore[missing-attribute]

    def call(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        server = by_endpoint.get(self.meta.endpoint_url)
        if server is None or self.meta.service_model.service_name != "s3":
            return send(self, operation_name, api_params)
        return server.call(operation_name, api_params)

    with (
        mock.patch.object(BaseClient, "_make_api_call", call),
        mock.patch.object(_clock, "passed", _clock.passed),
    ):
        yield


def _answer(**fields: Any) -> dict[str, Any]:
    headers = {"date": formatdate(_clock(), usegmt=True)}
    return {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers}, **fields}


def _error(code: str, operation: str) -> ClientError:
    answer: Any = _answer(Error={"Code": code, "Message": code})
    answer["ResponseMetadata"]["HTTPStatusCode"] = _STATUS.get(code, 400)
    return ClientError(answer, operation)


def _taken(answer: Any, operation: str) -> Any:
    """An answer that is no refusal."""
    if isinstance(answer, s.Refused):
        raise _error(answer.code, operation)
    return answer


def _bytes(body: Any) -> bytes:
    if isinstance(body, StoredObject):
        return body.body
    return bytes(body.read() if hasattr(body, "read") else body)


def _when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _range(text: str) -> s.ByteRange:
    first, _, last = text.removeprefix("bytes=").partition("-")
    return s.ByteRange(int(first), int(last) if last else 2**62)


def _get(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    part = _range(given["Range"]) if "Range" in given else None
    if_match = given.get("IfMatch")
    request = s.Get(given["Key"], part, if_match and if_match.strip('"'), most=2**62)
    found = _taken(bucket.store.apply(request), operation)
    if isinstance(found, s.Absent):
        raise _error("NoSuchKey", operation)
    whole = bucket.store.objects[found.key]
    fields: dict[str, Any] = {"Body": io.BytesIO(found.body), "ContentLength": len(found.body)}
    if part is not None:
        last = part.first + len(found.body) - 1
        fields["ContentRange"] = f"bytes {part.first}-{last}/{found.size}"
    return _described(whole) | fields


def _head(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    found = bucket.store.objects.get(given["Key"])
    if found is None:
        raise _error("404", operation)  # An answer to HEAD has no body that names more.
    return _described(found) | {"ContentLength": len(found.body)}


def _described(stored: StoredObject) -> dict[str, Any]:
    return _answer(
        ETag=f'"{stored.etag}"',
        LastModified=_when(stored.last_modified),
        Metadata=dict(stored.metadata),
        ContentType=stored.content_type,
        **({"StorageClass": stored.storage_class} if stored.storage_class else {}),
    )


def _settings(given: dict[str, Any]) -> s.ObjectSettings:
    return s.ObjectSettings(
        metadata=given.get("Metadata", {}),
        storage_class=given.get("StorageClass"),
        tags=dict(parse_qsl(given.get("Tagging", ""))),
    )


def _put(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    key, body = given["Key"], _bytes(given.get("Body", b""))
    if given.keys() & {"Metadata", "StorageClass", "Tagging"}:
        done = bucket.store.apply(s.PutFile(key, body, _settings(given)))
    else:
        if_match, idempotency_key = given.get("IfMatch"), given.get("IfNoneMatch") == "*"
        kind = given.get("ContentType", "binary/octet-stream")
        done = bucket.store.apply(
            s.Put(key, body, idempotency_key, if_match and if_match.strip('"'), kind)
        )
    return _answer(ETag=f'"{_taken(done, operation).etag}"')


def _copy(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    source: StoredObject = given["Body"]
    settings = _settings(given)
    if given.get("MetadataDirective") != "REPLACE":
        settings = s.ObjectSettings(metadata=source.metadata)
    done = bucket.store.apply(s.PutFile(given["Key"], source.body, settings))
    return _answer(CopyObjectResult={"ETag": f'"{done.etag}"'})


def _delete(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    if_match = given.get("IfMatch")
    request = s.Delete(given["Key"], if_match and if_match.strip('"'))
    _taken(bucket.store.apply(request), operation)
    return _answer()


def _delete_many(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    named = given["Delete"]["Objects"]
    items = tuple((it["Key"], (it.get("ETag") or "").strip('"') or None) for it in named)
    errors = bucket.store.apply(s.DeleteMany(items)).errors
    return _answer(Errors=[{"Key": key, "Code": code} for key, code in errors.items()])


def _list(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    token = given.get("ContinuationToken") or given.get("StartAfter")
    request = s.ListObjects(given.get("Prefix", ""), given.get("Delimiter") == "/", token)
    page = bucket.store.apply(request)
    contents = [
        {
            "Key": it.key,
            "ETag": f'"{it.etag}"',
            "Size": it.size,
            "LastModified": _when(it.last_modified),
        }
        for it in page.objects
    ]
    prefixes = [{"Prefix": prefix} for prefix in page.prefixes]
    fields: dict[str, Any] = {"Contents": contents} if contents else {}
    fields |= {"CommonPrefixes": prefixes} if prefixes else {}
    fields |= {"NextContinuationToken": page.token} if page.token else {}
    count = len(contents) + len(prefixes)
    return _answer(KeyCount=count, IsTruncated=page.token is not None, **fields)


def _list_uploads(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    after = (given["KeyMarker"], given.get("UploadIdMarker", "")) if "KeyMarker" in given else None
    page = bucket.store.apply(s.ListUploads(given.get("Prefix", ""), after))
    uploads = [
        {"Key": it.key, "UploadId": it.upload_id, "Initiated": _when(it.initiated)}
        for it in page.uploads
    ]
    key, upload_id = page.marker or ("", "")
    following = {"NextKeyMarker": key, "NextUploadIdMarker": upload_id} if page.marker else {}
    return _answer(Uploads=uploads, IsTruncated=page.marker is not None, **following)


def _list_parts(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    upload = bucket.store.uploads.get(given["UploadId"])
    if upload is None or upload.key != given["Key"]:
        raise _error("NoSuchUpload", operation)
    parts = [
        {"PartNumber": number, "ETag": f'"{etag}"', "Size": len(body)}
        for number, (etag, body) in sorted(upload.parts.items())
    ]
    return _answer(Parts=parts, IsTruncated=False)


def _create_upload(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    made = bucket.store.apply(s.CreateUpload(given["Key"], _settings(given)))
    return _answer(UploadId=made.upload_id, Key=given["Key"])


def _upload_part(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    body = _bytes(given["Body"])
    if "CopySourceRange" in given:
        part = _range(given["CopySourceRange"])
        body = body[part.first : part.last + 1]
    number = given["PartNumber"]
    done = bucket.store.apply(s.UploadPart(given["Key"], given["UploadId"], number, body))
    etag = f'"{_taken(done, operation).etag}"'
    copied = operation == "UploadPartCopy"
    return _answer(**({"CopyPartResult": {"ETag": etag}} if copied else {"ETag": etag}))


def _complete(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    etags = tuple(part["ETag"].strip('"') for part in given["MultipartUpload"]["Parts"])
    done = bucket.store.apply(s.CompleteUpload(given["Key"], given["UploadId"], etags))
    return _answer(ETag=f'"{_taken(done, operation).etag}"')


def _abort(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    _taken(bucket.store.apply(s.AbortUpload(given["Key"], given["UploadId"])), operation)
    return _answer()


def _rules(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    if not bucket.rules:
        raise _error("NoSuchLifecycleConfiguration", operation)
    return _answer(Rules=bucket.rules)


def _put_rules(bucket: _Bucket, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    bucket.rules[:] = given["LifecycleConfiguration"]["Rules"]
    return _answer()


_OPERATIONS: dict[str, Callable[[_Bucket, str, dict[str, Any]], dict[str, Any]]] = {
    "GetObject": _get,
    "HeadObject": _head,
    "PutObject": _put,
    "CopyObject": _copy,
    "DeleteObject": _delete,
    "DeleteObjects": _delete_many,
    "ListObjectsV2": _list,
    "ListMultipartUploads": _list_uploads,
    "ListParts": _list_parts,
    "CreateMultipartUpload": _create_upload,
    "UploadPart": _upload_part,
    "UploadPartCopy": _upload_part,
    "CompleteMultipartUpload": _complete,
    "AbortMultipartUpload": _abort,
    "GetBucketLifecycleConfiguration": _rules,
    "PutBucketLifecycleConfiguration": _put_rules,
    "ListBucketIntelligentTieringConfigurations": lambda bucket, operation, given: _answer(),
    "HeadBucket": lambda bucket, operation, given: _answer(),
}
#: As :func:`.counting.operation` names what it sees of a request.
_COUNTED_AS = {
    "ListObjectsV2": "ListObjects",
    "UploadPartCopy": "UploadPart",
    "GetBucketLifecycleConfiguration": "GET bucket",
    "PutBucketLifecycleConfiguration": "PUT bucket",
    "ListBucketIntelligentTieringConfigurations": "GET bucket",
    "HeadBucket": "HEAD bucket",
}
