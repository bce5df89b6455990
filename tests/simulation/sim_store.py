"""S3 as a value: applying a request to a store gives another store and an answer.

Stores are never changed, so that exploring can go on from each of them; equal stores have equal
digests however they came about. Time is logical: it is the number of decisions written, so that
the store's clock is as coarse against requests as a clock of seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.store import requests as s


@dataclass(frozen=True)
class Behaviour:
    """What a store lacks.

    :param resurrects: a repeated Complete writes the object again, also after a delete.
    :param delete_conditions: whether the ETags of deletes are kept.
    :param lists_by_prefix: whether a listing of uploads by prefix shows them.
    """

    resurrects: bool = False
    delete_conditions: bool = True
    lists_by_prefix: bool = True

    @property
    def facts(self) -> StoreFacts:
        """What a probe finds."""
        return StoreFacts(
            server="simulation",
            complete_resurrects=self.resurrects,
            conditional_delete=self.delete_conditions,
            uploads_by_prefix=self.lists_by_prefix,
        )


class Object(NamedTuple):
    body: bytes
    etag: str
    size: int
    modified: int
    metadata: Mapping[str, str]


class Upload(NamedTuple):
    key: str
    metadata: Mapping[str, str]
    parts: tuple[tuple[int, str, int], ...]


class Store(NamedTuple):
    """Objects by key; uploads under way, and completed ones, by UploadId."""

    objects: dict[str, Object]
    uploads: dict[str, Upload]
    completed: dict[str, Upload]
    digest: int
    clock: int


EMPTY = Store({}, {}, {}, 0, 0)


@lru_cache(maxsize=1_000_000)
def _digest(kind: str, key: str, value: str) -> int:
    text = f"{kind}\0{key}\0{value}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


@lru_cache(maxsize=100_000)
def etag_of(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


#: Bodies of all heads that were ever written, by ETag.
_heads: dict[str, bytes] = {}


def body_of(etag: str) -> bytes:
    """The head that had an ETag."""
    return _heads[etag]


#: Where it is kept what decisions said before they were settled, for who checks: beside the table.
SETTLED = "settled/"


def _object_digest(key: str, found: Object | None) -> int:
    return 0 if found is None else _digest("object", key, f"{found.etag} {found.modified}")


def _upload_digest(kind: str, name: str, upload: Upload | None) -> int:
    return 0 if upload is None else _digest(kind, name, repr(upload.parts))


def _with_object(store: Store, key: str, new: Object | None, clock: int | None = None) -> Store:
    objects = dict(store.objects)
    old = objects.pop(key, None)
    if new is not None:
        objects[key] = new
    digest = store.digest ^ _object_digest(key, old) ^ _object_digest(key, new)
    return store._replace(
        objects=objects, digest=digest, clock=store.clock if clock is None else clock
    )


def _with_upload(store: Store, name: str, new: Upload | None) -> Store:
    uploads = dict(store.uploads)
    old = uploads.pop(name, None)
    if new is not None:
        uploads[name] = new
    digest = store.digest ^ _upload_digest("upload", name, old)
    return store._replace(uploads=uploads, digest=digest ^ _upload_digest("upload", name, new))


def apply(store: Store, request: Any, behaviour: Behaviour) -> tuple[Store, Any]:
    """Carry out a request: the store after it, and the answer."""
    return _APPLY[type(request)](store, request, behaviour)


def _found(store: Store, key: str, with_body: bool) -> s.Found | s.Absent:
    found = store.objects.get(key)
    if found is None:
        return s.Absent(store.clock)
    body = found.body if with_body else b""
    return s.Found(key, found.etag, found.size, found.modified, store.clock, body, found.metadata)


def _get(store: Store, request: s.Get, behaviour: Behaviour) -> tuple[Store, Any]:
    return store, _found(store, request.key, True)


def _head(store: Store, request: s.Head, behaviour: Behaviour) -> tuple[Store, Any]:
    return store, _found(store, request.key, False)


def _put(store: Store, request: s.Put, behaviour: Behaviour) -> tuple[Store, Any]:
    old = store.objects.get(request.key)
    if request.if_none_match and old is not None:
        return store, s.Refused("PreconditionFailed")
    if request.if_match is not None:
        if old is None:
            return store, s.Refused("NoSuchKey")
        if old.etag != request.if_match:
            return store, s.Refused("PreconditionFailed")
    clock = store.clock + ("/jobs/" in request.key)
    etag = etag_of(request.body)
    if "/_zero_rename/heads/" in request.key:
        _heads[etag] = request.body
    # Only a decision's time matters to the protocol; other times would only tell equal stores
    # apart.
    modified = clock if "/jobs/" in request.key else 0
    new = Object(request.body, etag, len(request.body), modified, {})
    if old is not None and "/jobs/" in request.key and b'"kind":"settled"' in request.body:
        store = _with_object(store, SETTLED + request.key, old)
    return _with_object(store, request.key, new, clock), s.Done(etag, clock)


def _delete(store: Store, request: s.Delete, behaviour: Behaviour) -> tuple[Store, Any]:
    old = store.objects.get(request.key)
    if old is None:
        return store, s.Done()
    conditional = request.if_match is not None and behaviour.delete_conditions
    if conditional and old.etag != request.if_match:
        return store, s.Refused("PreconditionFailed")
    folder, jobs, name = request.key.rpartition("/jobs/")
    if jobs and f"{SETTLED}{folder}/jobs/{name.partition('.')[0]}.json" in store.objects:
        store = _with_object(store, SETTLED + request.key, old)
    return _with_object(store, request.key, None), s.Done()


def _delete_many(store: Store, request: s.DeleteMany, behaviour: Behaviour) -> tuple[Store, Any]:
    errors = {}
    for key, etag in request.items:
        store, answer = _delete(store, s.Delete(key, etag), behaviour)
        if isinstance(answer, s.Refused):
            errors[key] = answer.code
    return store, s.Deleted(errors)


def _list_objects(store: Store, request: s.ListObjects, behaviour: Behaviour) -> tuple[Store, Any]:
    prefix = request.prefix
    listed = []
    folders = dict[str, None]()
    for key in sorted(store.objects):
        if not key.startswith(prefix):
            continue
        child, slash, _ = key[len(prefix) :].partition("/")
        if request.delimiter and slash:
            folders[f"{prefix}{child}/"] = None
            continue
        found = store.objects[key]
        listed.append(s.ListedObject(key, found.etag, found.size, found.modified))
    return store, s.ObjectPage(tuple(listed), tuple(folders), None, store.clock)


def _list_uploads(store: Store, request: s.ListUploads, behaviour: Behaviour) -> tuple[Store, Any]:
    if request.prefix and not behaviour.lists_by_prefix:
        return store, s.UploadPage((), None, store.clock)
    listed = tuple(
        s.ListedUpload(upload.key, name, 0)
        for name, upload in sorted(store.uploads.items())
        if upload.key.startswith(request.prefix)
    )
    return store, s.UploadPage(listed, None, store.clock)


def _create_upload(
    store: Store, request: s.CreateUpload, behaviour: Behaviour
) -> tuple[Store, Any]:
    used = [*store.uploads.values(), *store.completed.values()]
    number = sum(upload.key == request.key for upload in used)
    name = f"{request.key}#{number}"
    return _with_upload(store, name, Upload(request.key, request.settings.metadata, ())), s.Created(
        name
    )


def _upload_part(store: Store, request: s.UploadPart, behaviour: Behaviour) -> tuple[Store, Any]:
    upload = store.uploads.get(request.upload_id)
    if upload is None:
        return store, s.Refused("NoSuchUpload")
    body = bytes(request.body)
    parts = (*upload.parts, (request.number, etag_of(body), len(body)))
    return _with_upload(store, request.upload_id, upload._replace(parts=parts)), s.Done(
        etag_of(body)
    )


def _complete(store: Store, request: s.CompleteUpload, behaviour: Behaviour) -> tuple[Store, Any]:
    upload = store.uploads.get(request.upload_id)
    if upload is None and behaviour.resurrects:
        upload = store.completed.get(request.upload_id)
    if upload is None:
        return store, s.Refused("NoSuchUpload")
    if tuple(etag for _, etag, _ in upload.parts) != request.etags:
        return store, s.Refused("InvalidPart")
    etag = "-".join(request.etags)
    size = sum(size for *_, size in upload.parts)
    if request.upload_id in store.uploads:
        store = _with_upload(store, request.upload_id, None)
        completed = {**store.completed, request.upload_id: upload}
        digest = store.digest ^ _upload_digest("completed", request.upload_id, upload)
        store = store._replace(completed=completed, digest=digest)
    new = Object(b"", etag, size, 0, upload.metadata)
    return _with_object(store, request.key, new), s.Done(etag)


def _abort_upload(store: Store, request: s.AbortUpload, behaviour: Behaviour) -> tuple[Store, Any]:
    if request.upload_id not in store.uploads:
        return store, s.Refused("NoSuchUpload")
    return _with_upload(store, request.upload_id, None), s.Done()


_APPLY = {
    s.Get: _get,
    s.Head: _head,
    s.Put: _put,
    s.Delete: _delete,
    s.DeleteMany: _delete_many,
    s.ListObjects: _list_objects,
    s.ListUploads: _list_uploads,
    s.CreateUpload: _create_upload,
    s.UploadPart: _upload_part,
    s.CompleteUpload: _complete,
    s.AbortUpload: _abort_upload,
}
