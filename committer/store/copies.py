"""Copies of objects on the store's side, as requests and as boto3's calls."""

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
        """Where a key of a fast root lies."""
        fast = FastPlace.of(self.bucket, self.key)
        return self if fast is None else Place(fast.root.bucket, fast.real(self.key))


@dataclass(frozen=True)
class CopyFile(Request[Done | Refused]):
    """Write a data object that holds what another one does, on the store's side: at most 5 GiB.
    Sent again until it is answered, as :class:`PutFile`; refused with ``NoSuchKey`` where the other
    one is gone."""

    source: Place
    key: str
    settings: ObjectSettings


@dataclass(frozen=True)
class CopyPart(Request[Done | Refused]):
    """Upload a part that is bytes of an object, as :class:`CopyFile`.

    :param part: ``None`` for all of its bytes.
    """

    source: Place
    key: str
    upload_id: str
    number: int
    part: ByteRange | None = None


def copy(client: Any, bucket: str, request: CopyFile | CopyPart) -> Done:
    """Have a store copy into a bucket.

    :param client: boto3's.
    """
    source = {"Bucket": request.source.bucket, "Key": request.source.key}
    to: dict[str, Any] = {"Bucket": bucket, "Key": request.key, "CopySource": source}
    if isinstance(request, CopyFile):
        # Else the other object's own would come along: another job's id, tags.
        instead = {"MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE"}
        answer = client.copy_object(**to, **instead, **object_options(request.settings))
        return Done(answer["CopyObjectResult"]["ETag"].strip('"'), date_of(answer))
    part = request.part
    if part is not None:
        to["CopySourceRange"] = f"bytes={part.first}-{part.last}"
    answer = client.upload_part_copy(UploadId=request.upload_id, PartNumber=request.number, **to)
    return Done(answer["CopyPartResult"]["ETag"].strip('"'), date_of(answer))


def object_options(settings: ObjectSettings) -> dict[str, Any]:
    """What an object is created with, as arguments of boto3."""
    options = {
        "Metadata": dict(settings.metadata),
        "StorageClass": settings.storage_class,
        "Tagging": urlencode(settings.tags),
    }
    asked = {} if settings.encryption is None else settings.encryption.arguments
    return {name: value for name, value in options.items() if value} | asked
