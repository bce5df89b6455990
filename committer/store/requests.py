"""Requests of the protocol to S3, as data, and their answers.

Protocol steps are generators (:data:`Step`). ``yield from`` a request gives its answer, of the type
that the request's class names. A driver carries requests out (:mod:`.driver` with boto3; the
simulator with a store in memory). :class:`All` carries out several steps and requests at once.

Keys are whole keys in the driver's bucket. ETags are without quotes. Times are Unix seconds *by the
store's clock*; only :class:`Clock` is this process's own monotonic clock.

The driver sends a request again, for as long as its budget lasts (:mod:`.retries`), if the request
changes nothing or may be repeated blindly. Then it raises
:class:`~.errors.StoreUnreachableError` into the step. Missing rights, wrong credentials and missing
buckets raise :class:`~.errors.StoreRefusedError`. A conditional ``Put`` or ``Delete``, and
``CompleteUpload``, are sent again by the driver only while there was no connection, so nothing was
sent. Otherwise the answer to the second request would be about that request, not about the first
(aws-sdk-java-v2#6580). If such a request is *unknown*, the step that made it reads back the
outcome, and then sends it again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .encryption import Encryption
from .lifecycle import LifecycleRule
from .tiering import TieringRule

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
Answer = TypeVar("Answer", covariant=True)


class Request(Generic[Answer]):
    """A request of a step: ``yield from Get(key)`` gives its answer, with the right type."""

    def __iter__(self) -> Step[Answer]:
        return (yield self)


#: A protocol step: yields requests, receives answers, returns its result.
Step = Generator[Request[Any], Any, T]
#: A step or a single request with a result of type T: what a driver can run.
Work = Step[T] | Request[T]


@dataclass(frozen=True)
class Found:
    """An object.

    :param size: bytes of the whole object, even if only a part was requested.
    :param date: the answer's Date header.
    :param body: the requested bytes, at most as many as ``Get`` allows; empty for ``Head``.
    :param metadata: user metadata, by names in lower case.
    :param encryption: the store's encryption, if the answer names one that a write can request.
    """

    key: str
    etag: str
    size: int
    last_modified: float
    date: float
    body: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)
    encryption: Encryption | None = None


@dataclass(frozen=True)
class Absent:
    """The key does not exist. ``date`` is the answer's Date header."""

    date: float


def etag_of(found: Found | Absent) -> str | None:
    return found.etag if isinstance(found, Found) else None


@dataclass(frozen=True)
class Done:
    """The request was carried out.

    ``etag`` is that of the object or part; it is empty for deletes and aborts.
    """

    etag: str = ""
    date: float = 0.0


@dataclass(frozen=True)
class Refused:
    """The request was not carried out.

    ``code`` is the S3 error code, such as ``PreconditionFailed`` (412),
    ``ConditionalRequestConflict`` (409), ``NoSuchKey``, ``NoSuchUpload``, ``InvalidPart``,
    ``InvalidRange`` (416).
    """

    code: str


@dataclass(frozen=True)
class Unknown:
    """The request may have been carried out: time-out, lost connection, 5xx."""

    cause: str


@dataclass(frozen=True)
class Deleted:
    """Answer to ``DeleteMany``: keys that were refused or failed, each with the S3 error code."""

    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedObject:
    """An object in a listing.

    :param storage_class: ``None``: STANDARD.
    """

    key: str
    etag: str
    size: int
    last_modified: float
    storage_class: str | None = None


@dataclass(frozen=True)
class ObjectPage:
    objects: tuple[ListedObject, ...]
    prefixes: tuple[str, ...]
    token: str | None
    date: float


@dataclass(frozen=True)
class ListedUpload:
    """A multipart upload in a listing.

    :param initiated: whole Unix seconds, as in the store's Date header: with fractions, an upload
        of the present second would have a negative age.
    """

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
    """One page of an upload's parts: their number and bytes. ``marker``: there are more pages."""

    count: int
    size: int
    marker: int | None


@dataclass(frozen=True)
class LifecycleRules:
    """The enabled lifecycle rules of a bucket."""

    rules: tuple[LifecycleRule, ...] = ()


@dataclass(frozen=True)
class Created:
    upload_id: str


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``first`` to ``last`` of an object, both included, as HTTP counts them."""

    first: int
    last: int


#: Most bytes of a control object that lists no files. The largest that this package writes have a
#: few hundred thousand.
RECORD_BYTES = 8 * 1024 * 1024
#: Most bytes of a control object that lists files: 10,000 with all their parts, or a hundred
#: thousand of a partition.
LIST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Get(Request[Answer]):
    """Read an object. Only a request for a part or for a version can be refused.

    :param part: read these bytes only, as far as the object has them; ``None``: all.
    :param if_match: read only the version with this ETag.
    :param most: most bytes of a body. Of a longer object ``most`` and one more are read, and
        readers of records refuse it then: an object in a bucket may be of any size.
    """

    key: str
    part: ByteRange | None = None
    if_match: str | None = None
    most: int = RECORD_BYTES

    if TYPE_CHECKING:

        @overload
        def __init__(self: Get[Found | Absent], key: str, *, most: int = ...) -> None: ...
        @overload
        def __init__(
            self: Get[Found | Absent | Refused],
            key: str,
            part: ByteRange | None = ...,
            if_match: str | None = ...,
            most: int = ...,
        ) -> None: ...
        def __init__(self, *of_it: Any, **named: Any) -> None: ...


@dataclass(frozen=True)
class Head(Request[Found | Absent]):
    key: str


@dataclass(frozen=True)
class Put(Request[Done | Refused | Unknown]):
    """Write a small object, with at most one of the conditions.

    :param if_none_match: only if the key does not exist (``If-None-Match: *``).
    :param if_match: only if the key's current ETag is this one.
    :param encryption: ``None``: the driver adds the table's.
    """

    key: str
    body: bytes
    if_none_match: bool = False
    if_match: str | None = None
    content_type: str = "application/json"
    encryption: Encryption | None = None


@dataclass(frozen=True)
class Delete(Request[Done | Refused | Unknown]):
    """Delete an object; the answer is *done* even if the key does not exist."""

    key: str
    if_match: str | None = None


@dataclass(frozen=True)
class DeleteMany(Request[Deleted | Unknown]):
    """Delete at most 1,000 keys; with an ETag, only if it is still the current one."""

    items: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class ListObjects(Request[ObjectPage]):
    """List one page of objects.

    :param delimiter: direct children only.
    :param token: continues a listing.
    :param after: only keys that are greater than this one.
    """

    prefix: str
    delimiter: bool = False
    token: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class ListUploads(Request[UploadPage]):
    """List one page of the multipart uploads under way. ``marker`` continues a listing."""

    prefix: str
    marker: tuple[str, str] | None = None


@dataclass(frozen=True)
class ListParts(Request[PartsPage | Refused]):
    """List one page of the parts of an upload under way.

    :param marker: the number of the last part of the page before.
    """

    key: str
    upload_id: str
    marker: int | None = None


@dataclass(frozen=True)
class ListLifecycleRules(Request[LifecycleRules | Unknown]):
    """List the lifecycle rules of the bucket that holds the keys below a prefix.

    These rules delete or move objects, and abort uploads, by age. *Unknown*: the store does not
    answer such requests.
    """

    prefix: str = ""


@dataclass(frozen=True)
class ListTieringRules(Request[tuple[TieringRule, ...] | Unknown]):
    """List the configurations of a bucket that archive objects without recent reads.

    The bucket is the one that holds the keys below a prefix. *Unknown*: the store does not answer
    such requests.
    """

    prefix: str = ""


@dataclass(frozen=True)
class PutLifecycleRule(Request[Done | Refused | Unknown]):
    """Add a rule to the bucket's lifecycle rules; it replaces a rule of the same name."""

    rule: LifecycleRule


@dataclass(frozen=True)
class ObjectSettings:
    """The settings with which a data object is created.

    :param metadata: user metadata (``x-amz-meta-…``).
    :param storage_class: such as ``STANDARD_IA``; ``None``: the bucket's default.
    :param tags: object tags.
    :param encryption: ``None``: the driver adds the table's.
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    storage_class: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    encryption: Encryption | None = None


@dataclass(frozen=True)
class PutFile(Request[Done | Refused]):
    """Write a whole data object.

    The request is sent again until it is answered: only one writer uses this key, and only once.
    """

    key: str
    body: bytes | memoryview
    settings: ObjectSettings = ObjectSettings()


@dataclass(frozen=True)
class CreateUpload(Request[Created]):
    key: str
    settings: ObjectSettings = ObjectSettings()


@dataclass(frozen=True)
class UploadPart(Request[Done | Refused]):
    key: str
    upload_id: str
    number: int
    body: bytes | memoryview


@dataclass(frozen=True)
class CompleteUpload(Request[Done | Refused | Unknown]):
    """Complete an upload.

    It has no condition on purpose: a conditional request that fails with 409 destroys the upload.

    :param checksums: checksums of the parts, if another client began the upload with checksums:
        algorithm and value, ``CRC32 XHxvCQ==``; empty: none.
    """

    key: str
    upload_id: str
    etags: tuple[str, ...]
    checksums: tuple[str, ...] = ()


@dataclass(frozen=True)
class AbortUpload(Request[Done | Refused | Unknown]):
    key: str
    upload_id: str


@dataclass(frozen=True)
class Wait(Request[None]):
    """Wait for a time.

    :param spread: a random part of the pause, up to this share, is left out. So processes that wait
        for the same thing do not all ask again at once.
    """

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True)
class Clock(Request[float]):
    """Read this process's monotonic clock, in seconds."""


@dataclass(frozen=True)
class ServerName(Request[str]):
    """Read the store's name: the Server header of its last answer; ``""``: it had none."""


@dataclass(frozen=True)
class DefaultEncryption(Request[Encryption | Unknown | None]):
    """Read the bucket's default encryption; *unknown*: the store does not answer such requests."""


@dataclass(frozen=True)
class DemandedEncryption(Request[Encryption | None]):
    """Read the encryption with which the store accepted a write after a refusal without one.

    The write was this process's, below the same table's root as ``key``; neither a job nor the
    table's record named an encryption. ``None``: there was no such write. Sends nothing.
    """

    key: str


@dataclass(frozen=True)
class All(Request[Answer]):
    """Carry out several steps and requests at once; the answer is the tuple of their results.

    If some raise, the others still run to their end. Then the first error is raised, with the
    others as its notes.
    """

    members: tuple[Work[Any], ...]

    if TYPE_CHECKING:

        @overload
        def __init__(self: All[tuple[T1, T2]], members: tuple[Work[T1], Work[T2]]) -> None: ...
        @overload
        def __init__(
            self: All[tuple[T1, T2, T3]], members: tuple[Work[T1], Work[T2], Work[T3]]
        ) -> None: ...
        @overload
        def __init__(
            self: All[tuple[T1, T2, T3, T4]], members: tuple[Work[T1], Work[T2], Work[T3], Work[T4]]
        ) -> None: ...
        @overload
        def __init__(self: All[tuple[T, ...]], members: tuple[Work[T], ...]) -> None: ...
        def __init__(self, members: Any) -> None: ...


def is_sent_once(request: Any) -> bool:
    """Return whether a request must be sent only once.

    The answer to a second request would not say what became of the first (aws-sdk-java-v2#6580).
    """
    if isinstance(request, Put):
        return request.if_none_match or request.if_match is not None
    if isinstance(request, Delete):
        return request.if_match is not None
    return isinstance(request, CompleteUpload)
