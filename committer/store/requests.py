"""The few S3 calls the protocol makes, as data: requests, and the answers they get.

Protocol steps are generators (:data:`Step`). A step yields a request and is sent its answer.
Who carries requests out is a driver (:mod:`.driver` with boto3; the simulator with a store in
memory). A step may yield :class:`All` to have several steps and requests carried out at once;
:func:`as_step` makes a step of a single request where one is needed.

Keys are whole keys in the bucket the driver is bound to. ETags are without quotes. Times are
seconds since the epoch *by the store's clock*; :class:`Clock` alone is this process's own
monotonic clock.

Which answers a request can get:

=====================  ====================================================================
``Get``                :class:`Found` | :class:`Absent`; of a part or a version, also
                       :class:`Refused` (``PreconditionFailed``, ``InvalidRange``)
``Head``               :class:`Found` | :class:`Absent`
``Put``                :class:`Done` | :class:`Refused` | :class:`Unknown`
``Delete``             :class:`Done` (an absent key too) | :class:`Refused` | :class:`Unknown`
``DeleteMany``         :class:`Deleted` | :class:`Unknown`
``ListObjects``        :class:`ObjectPage`
``ListUploads``        :class:`UploadPage`
``ListParts``          :class:`PartsPage` | :class:`Refused` (NoSuchUpload)
``ListLifecycleRules`` :class:`LifecycleRules` | :class:`Unknown` (the store does not tell)
``PutLifecycleRule``   :class:`Done` | :class:`Refused` | :class:`Unknown`
``CreateUpload``       :class:`Created`
``UploadPart``         :class:`Done` | :class:`Refused`
``CompleteUpload``     :class:`Done` | :class:`Refused` | :class:`Unknown`
``AbortUpload``        :class:`Done` | :class:`Refused` (NoSuchUpload) | :class:`Unknown`
``Wait``               ``None``
``Clock``              ``float``
``ServerName``         ``str``
``All``                ``list`` of its members' results and answers, in order
=====================  ====================================================================

A request that changes nothing, or one that may be repeated blindly, is sent again by the driver
for as long as its patience lasts (:mod:`..weather.weather`); then the driver raises
:class:`~.errors.StoreUnreachableError` into the step. Rights, credentials and missing buckets
raise :class:`~.errors.StoreRefusedError`. A conditional ``Put`` or ``Delete``, and
``CompleteUpload``, are sent again by the driver only while no connection came about, so that
nothing was sent: the answer to a retry would speak of the retry (aws-sdk-java-v2#6580). The steps
that make them read back what became of an *unknown* one, and then ask again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .lifecycle import LifecycleRule

T = TypeVar("T")

#: A protocol step: yields requests, receives answers, returns its result.
Step = Generator["Request", Any, T]


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``first`` to ``last`` of an object, both included, as HTTP counts them."""

    first: int
    last: int


#: Bytes that a control object may have, but for those that name files. The largest that this
#: package writes have a few hundred thousand.
RECORD_BYTES = 8 * 1024 * 1024
#: Bytes that one that names files may have: 10,000 of them with all their parts, or a hundred
#: thousand of a partition.
LIST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Get:
    """Read an object.

    :param part: these bytes only, as far as they are there; ``None`` for all.
    :param if_match: only the version with this ETag.
    :param most: bytes of a body. Of a longer one so many and one more are read, which no reader
        of records takes for a record: what lies in a bucket may be of any size.
    """

    key: str
    part: ByteRange | None = None
    if_match: str | None = None
    most: int = RECORD_BYTES


@dataclass(frozen=True)
class Head:
    key: str


@dataclass(frozen=True)
class Put:
    """Write a small object. At most one of the conditions.

    :param if_none_match: only if the key does not exist (``If-None-Match: *``).
    :param if_match: only if the key's current ETag is this one.
    """

    key: str
    body: bytes
    if_none_match: bool = False
    if_match: str | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Delete:
    key: str
    if_match: str | None = None


@dataclass(frozen=True)
class DeleteMany:
    """Delete at most 1,000 keys; with an ETag, only if it is still the current one."""

    items: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class ListObjects:
    """One page. ``delimiter`` asks for direct children only. ``token`` continues a listing."""

    prefix: str
    delimiter: bool = False
    token: str | None = None


@dataclass(frozen=True)
class ListUploads:
    """One page of the multipart uploads under way. ``marker`` continues a listing."""

    prefix: str
    marker: tuple[str, str] | None = None


@dataclass(frozen=True)
class ListParts:
    """One page of what an upload under way holds. ``marker``: the number of the last part of the
    page before."""

    key: str
    upload_id: str
    marker: int | None = None


@dataclass(frozen=True)
class ListLifecycleRules:
    """The bucket's own rules, which take objects and uploads by age."""


@dataclass(frozen=True)
class PutLifecycleRule:
    """Add a rule to the bucket's own, in the place of one with its name."""

    rule: LifecycleRule


@dataclass(frozen=True)
class ObjectSettings:
    """What a data object is created with besides its bytes.

    :param metadata: user metadata (``x-amz-meta-…``).
    :param storage_class: such as ``STANDARD_IA``; ``None`` leaves it to the bucket.
    :param tags: object tags.
    :param encryption: ``SSE-S3``, ``SSE-KMS`` or ``DSSE-KMS``; ``None`` leaves it to the bucket.
    :param encryption_key: the KMS key.
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    storage_class: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    encryption: str | None = None
    encryption_key: str | None = None


@dataclass(frozen=True)
class CreateUpload:
    key: str
    settings: ObjectSettings = ObjectSettings()


@dataclass(frozen=True)
class UploadPart:
    key: str
    upload_id: str
    number: int
    body: bytes | memoryview


@dataclass(frozen=True)
class CompleteUpload:
    """Unconditional on purpose: a conditional one that fails with 409 destroys the upload."""

    key: str
    upload_id: str
    etags: tuple[str, ...]


@dataclass(frozen=True)
class AbortUpload:
    key: str
    upload_id: str


@dataclass(frozen=True)
class Wait:
    """A pause.

    :param spread: the share of it that may be left out, by chance: those that wait for the same
        thing then do not all ask again at once.
    """

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True)
class Clock:
    """This process's monotonic clock, seconds."""


@dataclass(frozen=True)
class ServerName:
    """Who the store says it is: the Server header of its last answer, ``""`` for none."""


@dataclass(frozen=True)
class All:
    """Carry out several steps and requests at once; the answer is the list of what they give.

    If some raise, the others still run to their end; then the first error is raised, the
    others attached to it as notes.
    """

    members: tuple[Step[Any] | Request, ...]


Request = (
    Get
    | Head
    | Put
    | Delete
    | DeleteMany
    | ListObjects
    | ListUploads
    | ListParts
    | ListLifecycleRules
    | PutLifecycleRule
    | CreateUpload
    | UploadPart
    | CompleteUpload
    | AbortUpload
    | Wait
    | Clock
    | ServerName
    | All
)


def is_sent_once(request: Any) -> bool:
    """Whether the answer to a second one would speak of the first (aws-sdk-java-v2#6580)."""
    if isinstance(request, Put):
        return request.if_none_match or request.if_match is not None
    if isinstance(request, Delete):
        return request.if_match is not None
    return isinstance(request, CompleteUpload)


def as_step(work: Step[Any] | Request) -> Step[Any]:
    """A step as it is; a request as the step that makes it and returns its answer."""
    return work if isinstance(work, Generator) else _ask(work)


def _ask(request: Request) -> Step[Any]:
    return (yield request)


@dataclass(frozen=True)
class Found:
    """An object.

    :param size: bytes of the whole object, also where a part was asked for.
    :param date: the answer's Date header.
    :param body: the bytes asked for, as many as ``Get`` takes; empty for ``Head``.
    :param metadata: user metadata, by names in lower case.
    """

    key: str
    etag: str
    size: int
    last_modified: float
    date: float
    body: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Absent:
    """No such key. ``date`` is the answer's Date header."""

    date: float


@dataclass(frozen=True)
class Done:
    """It happened. ``etag`` of what was written (empty for deletes and aborts)."""

    etag: str = ""
    date: float = 0.0


@dataclass(frozen=True)
class Refused:
    """It did not happen. ``code`` is the S3 error code, such as ``PreconditionFailed`` (412),
    ``ConditionalRequestConflict`` (409), ``NoSuchKey``, ``NoSuchUpload``, ``InvalidPart``,
    ``InvalidRange`` (416)."""

    code: str


@dataclass(frozen=True)
class Unknown:
    """It may have happened: time-out, lost connection, 5xx."""

    cause: str


@dataclass(frozen=True)
class Deleted:
    """Answer to ``DeleteMany``: the keys that were refused or failed, with the S3 error code."""

    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedObject:
    key: str
    etag: str
    size: int
    last_modified: float


@dataclass(frozen=True)
class ObjectPage:
    objects: tuple[ListedObject, ...]
    prefixes: tuple[str, ...]
    token: str | None
    date: float


@dataclass(frozen=True)
class ListedUpload:
    key: str
    upload_id: str
    initiated: float


@dataclass(frozen=True)
class UploadPage:
    uploads: tuple[ListedUpload, ...]
    marker: tuple[str, str] | None
    date: float


@dataclass(frozen=True)
class PartsPage:
    """Parts of an upload: how many, and their bytes. ``marker``: there are more."""

    count: int
    size: int
    marker: int | None


@dataclass(frozen=True)
class LifecycleRules:
    """The rules that are enabled."""

    rules: tuple[LifecycleRule, ...] = ()


@dataclass(frozen=True)
class Created:
    upload_id: str
