"""Copies of objects within a store: requests, and boto3's calls for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from .error_translation import date_of
from .fast_root import FastPlace
from .requests import ByteRange, Done, ObjectSettings, Refused, Request


@dataclass(frozen=True)
class Place:
    """An object in a bucket of the same store, which may be another than the driver's."""

    bucket: str
    key: str

    @property
    def real(self) -> Place:
        """The place itself; for a key of a fast root, the place in the root's bucket."""
        fast = FastPlace.of(self.bucket, self.key)
        return self if fast is None else Place(fast.root.bucket, fast.real(self.key))


@dataclass(frozen=True)
class CopyFile(Request[Done | Refused]):
    """Write a data object as a copy of another one, within the store; at most 5 GiB.

    The request is sent again until it is answered, like :class:`PutFile`. It is refused with
    ``NoSuchKey`` if the source is missing.
    """

    source: Place
    key: str
    settings: ObjectSettings


@dataclass(frozen=True)
class CopyPart(Request[Done | Refused]):
    """Upload a part as a copy of bytes of an object, like :class:`CopyFile`.

    :param part: the bytes; ``None``: all.
    """

    source: Place
    key: str
    upload_id: str
    number: int
    part: ByteRange | None = None


def copy(client: Any, bucket: str, request: CopyFile | CopyPart) -> Done:
    """Copy an object, or bytes of one, into a bucket, within the store.

    :param client: a client of boto3.
    """
    source = {"Bucket": request.source.bucket, "Key": request.source.key}
    to: dict[str, Any] = {"Bucket": bucket, "Key": request.key, "CopySource": source}
    if isinstance(request, CopyFile):
        # Otherwise the source's metadata and tags would be copied: another job's id.
        instead = {"MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE"}
        answer = client.copy_object(**to, **instead, **object_options(request.settings))
        return Done(answer["CopyObjectResult"]["ETag"].strip('"'), date_of(answer))
    part = request.part
    if part is not None:
        to["CopySourceRange"] = f"bytes={part.first}-{part.last}"
    answer = client.upload_part_copy(UploadId=request.upload_id, PartNumber=request.number, **to)
    return Done(answer["CopyPartResult"]["ETag"].strip('"'), date_of(answer))


def object_options(settings: ObjectSettings) -> dict[str, Any]:
    """Return the settings with which an object is created, as arguments of boto3."""
    options = {
        "Metadata": dict(settings.metadata),
        "StorageClass": settings.storage_class,
        "Tagging": urlencode(settings.tags),
    }
    asked = {} if settings.encryption is None else settings.encryption.arguments
    return {name: value for name, value in options.items() if value} | asked
