"""Probe of a store: which promises it keeps, found out before a table's first write."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import StoreUnfitError
from ..layout import TableRoot
from ..records.store_facts import StoreFacts
from ..s3.listing import list_uploads
from ..s3.requests import (
    AbortUpload,
    All,
    CompleteUpload,
    Created,
    CreateUpload,
    Delete,
    Deleted,
    DeleteMany,
    Done,
    Found,
    Head,
    Put,
    Refused,
    ServerName,
    Step,
    UploadPart,
)

#: Stores whose conditional writes are known to be checked and carried out in two steps, by the
#: name they give themselves: moto, versitygw on posix, S3Mock. Others show it when racing creators
#: have two winners; a race can refute atomicity, never prove it.
_NOT_ATOMIC = ("werkzeug", "versitygw", "s3-mock-file-store")
_RACERS = 8


def probe(root: TableRoot, ids: Callable[[], str]) -> Step[StoreFacts]:
    """Find out what the store keeps, with small objects under ``_zero_rename/probe/``.

    All objects and uploads of the probe are gone afterwards.

    :raises StoreUnfitError: the store removes objects that were never asked to go.
    """
    unique = ids()
    names = ("create", "race", "swap", "delete", "abort", "upload")
    keys = [root.probe_key(f"{unique}-{name}") for name in names]
    created, raced, swapped, deleted, kept, upload = yield All(
        (
            _probe_create(keys[0]),
            _probe_race(keys[1]),
            _probe_swap(keys[2]),
            _probe_delete(keys[3]),
            _probe_abort(keys[4]),
            _probe_upload(keys[5]),
        )
    )
    yield DeleteMany(tuple((key, None) for key in keys))
    server = yield ServerName()
    if not kept:
        raise _removes_on_abort(root, server)
    by_prefix, listed, resurrects = upload
    return StoreFacts(
        server=server,
        atomic=raced and not any(name in server.lower() for name in _NOT_ATOMIC),
        conditional_put=created and swapped,
        conditional_delete=deleted,
        uploads_by_prefix=by_prefix,
        uploads_listed=listed,
        complete_resurrects=resurrects,
    )


def _probe_create(key: str) -> Step[bool]:
    """Of two creators of one key, one after the other, the second must lose."""
    first = yield Put(key, b"first", if_none_match=True)
    late = yield Put(key, b"late", if_none_match=True)
    return isinstance(first, Done) and isinstance(late, Refused)


def _probe_race(key: str) -> Step[bool]:
    """Of racing creators of one key no two may win."""
    racers = [Put(key, f"racer {n}".encode(), if_none_match=True) for n in range(_RACERS)]
    answers = yield All(tuple(racers))
    return sum(isinstance(answer, Done) for answer in answers) <= 1


def _probe_swap(key: str) -> Step[bool]:
    first = yield Put(key, b"first")
    if not isinstance(first, Done):
        return False
    second = yield Put(key, b"second", if_match=first.etag)
    stale = yield Put(key, b"third", if_match=first.etag)
    now = yield Head(key)
    return (
        isinstance(second, Done)
        and isinstance(stale, Refused)
        and isinstance(now, Found)
        and now.etag == second.etag
    )


def _probe_delete(key: str) -> Step[bool]:
    first = yield Put(key, b"first")
    second = yield Put(key, b"second")
    if not (isinstance(first, Done) and isinstance(second, Done)):
        return False
    answer = yield DeleteMany(((key, first.etag),))
    survivor = yield Head(key)
    if not isinstance(survivor, Found):
        return False
    answer = yield DeleteMany(((key, second.etag),))
    gone = yield Head(key)
    return isinstance(answer, Deleted) and not answer.errors and not isinstance(gone, Found)


def _probe_abort(key: str) -> Step[bool]:
    """Whether an object stays when an upload of its key is aborted, as attempts of a killed task
    are: they share the keys of the attempt that was committed."""
    yield Put(key, b"object")
    created: Created = yield CreateUpload(key)
    yield AbortUpload(key, created.upload_id)
    after = yield Head(key)
    return isinstance(after, Found)


def _removes_on_abort(root: TableRoot, server: str) -> StoreUnfitError:
    return StoreUnfitError(
        f"On this store ({server or 'unnamed'}) aborting an upload removes the object of its key: "
        "tidying up after a killed task would remove rows that are committed. Only probe objects "
        "were written, and they were removed.",
        table=root.url,
        remedy="Use AWS S3, Cloudflare R2, MinIO, Ceph, SeaweedFS or Apache Ozone; for tests, "
        "moto. S3Mock 4 is a store that does this.",
    )


def _probe_upload(key: str) -> Step[tuple[bool, bool, bool]]:
    """Whether listings show an upload, by prefix and at all; whether a second Complete brings
    a deleted object back."""
    created: Created = yield CreateUpload(key)
    # By a folder, as sweeps ask: MinIO shows an upload for its exact key and no other prefix.
    by_prefix = yield from _lists(f"{key.rsplit('/', 1)[0]}/", key, created.upload_id)
    listed = by_prefix or (yield from _lists("", key, created.upload_id))
    part = yield UploadPart(key, created.upload_id, 1, b"probe")
    if not isinstance(part, Done):
        yield AbortUpload(key, created.upload_id)
        return by_prefix, listed, True
    complete = CompleteUpload(key, created.upload_id, (part.etag,))
    yield complete
    yield Delete(key)
    yield complete
    after = yield Head(key)
    return by_prefix, listed, isinstance(after, Found)


def _lists(prefix: str, key: str, upload_id: str) -> Step[bool]:
    found = yield from list_uploads(prefix)
    return any(upload.key == key and upload.upload_id == upload_id for upload in found)
