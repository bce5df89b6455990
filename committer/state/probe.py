"""What a store can hold: probed before a table's first write, kept in ``table.json``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import StoreUnfitError
from ..layout import TableRoot
from ..records.codec import Fields
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
#: Server header they send. A race can refute atomicity, never prove it.
_NOT_ATOMIC = {"werkzeug": "moto", "versitygw": "versitygw (posix)"}
_RACERS = 8


@dataclass(frozen=True)
class StoreFacts:
    """What the probe found.

    :param server: the store's Server header.
    :param atomic: conditional writes are not known to be checked and written in two steps.
    :param conditional_put: If-None-Match and If-Match of PUT are kept.
    :param conditional_delete: the ETag of a DELETE is kept.
    :param uploads_by_prefix: a listing of uploads by prefix shows them.
    :param uploads_listed: a listing of the whole bucket's uploads shows them.
    :param complete_resurrects: a second Complete of an upload writes a deleted object again.
    """

    server: str = ""
    atomic: bool = True
    conditional_put: bool = True
    conditional_delete: bool = True
    uploads_by_prefix: bool = True
    uploads_listed: bool = True
    complete_resurrects: bool = False

    @staticmethod
    def read(fields: Fields) -> StoreFacts:
        return StoreFacts(
            server=fields.string("server"),
            atomic=fields.boolean("atomic"),
            conditional_put=fields.boolean("conditional_put"),
            conditional_delete=fields.boolean("conditional_delete"),
            uploads_by_prefix=fields.boolean("uploads_by_prefix"),
            uploads_listed=fields.boolean("uploads_listed"),
            complete_resurrects=fields.boolean("complete_resurrects"),
        )

    def require_listing(self, root: TableRoot) -> None:
        """Refuse a store on which left-over uploads could never be found.

        :raises StoreUnfitError: uploads under way cannot be listed.
        """
        if not self.uploads_listed:
            raise StoreUnfitError(
                f"The store ({self.server or 'unnamed'}) does not list multipart uploads under "
                "way, so what a killed task leaves could never be found. Only probe objects were "
                "written, and they were removed.",
                table=root.url,
                remedy="Grant s3:ListBucketMultipartUploads, or use a store that lists uploads.",
            )

    def require_coordination(self, root: TableRoot) -> None:
        """Refuse a store that cannot coordinate writers at all.

        :raises StoreUnfitError: conditional writes are not kept.
        """
        if not self.conditional_put:
            raise StoreUnfitError(
                f"The store ({self.server or 'unnamed'}) does not keep If-None-Match and If-Match "
                "conditions on PUT, so writers of one table could not notice each other. No data "
                "was written.",
                table=root.url,
                remedy="Use a store with conditional writes: AWS S3, Cloudflare R2, MinIO, "
                "SeaweedFS, Apache Ozone 2.2, Ceph. Or write with coordination=none, which gives "
                "what Hadoop's S3A committers give: one writer at a time, no conflict detection, "
                "no recovery by others.",
            )


def probe(root: TableRoot, ids: Callable[[], str]) -> Step[StoreFacts]:
    """Find out what the store keeps, with small objects under ``_zero_rename/probe/``.

    All objects and uploads of the probe are gone afterwards.
    """
    unique = ids()
    keys = [root.probe_key(f"{unique}-{name}") for name in ("create", "swap", "delete", "upload")]
    created, swapped, deleted, upload = yield All(
        (
            _probe_create(keys[0]),
            _probe_swap(keys[1]),
            _probe_delete(keys[2]),
            _probe_upload(keys[3]),
        )
    )
    yield DeleteMany(tuple((key, None) for key in keys))
    server = yield ServerName()
    by_prefix, listed, resurrects = upload
    return StoreFacts(
        server=server,
        atomic=not any(name in server.lower() for name in _NOT_ATOMIC),
        conditional_put=created and swapped,
        conditional_delete=deleted,
        uploads_by_prefix=by_prefix,
        uploads_listed=listed,
        complete_resurrects=resurrects,
    )


def _probe_create(key: str) -> Step[bool]:
    """Racing creators of one key: exactly one may win. Then a late one must lose."""
    racers = [Put(key, f"racer {n}".encode(), if_none_match=True) for n in range(_RACERS)]
    answers = yield All(tuple(racers))
    late = yield Put(key, b"late", if_none_match=True)
    wins = sum(isinstance(answer, Done) for answer in answers)
    return wins == 1 and isinstance(late, Refused)


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
