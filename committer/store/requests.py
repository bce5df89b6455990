"""The few S3 calls the protocol makes, as data: requests, and the answers they get.

Protocol steps are generators (:data:`Step`). ``yield from`` a request is its answer, of the type
that the request's class names. Who carries requests out is a driver (:mod:`.driver` with boto3; the
simulator with a store in memory). :class:`All` has several steps and requests carried out at once.

Keys are whole keys in the bucket the driver is bound to. ETags are without quotes. Times are
seconds since the epoch *by the store's clock*; :class:`Clock` alone is this process's own
monotonic clock.

A request that changes nothing, or one that may be repeated blindly, is sent again by the driver
for as long as its budget lasts (:mod:`.retries`); then the driver raises
:class:`~.errors.StoreUnreachableError` into the step. Rights, credentials and missing buckets
raise :class:`~.errors.StoreRefusedError`. A conditional ``Put`` or ``Delete``, and
``CompleteUpload``, are sent again by the driver only while no connection came about, so that
nothing was sent: the answer to a retry would speak of the retry (aws-sdk-java-v2#6580). The steps
that make them read back what became of an *unknown* one, and then ask again.
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
    """What a step asks: ``yield from Get(key)`` is the answer, by its type."""

    def __iter__(self) -> Step[Answer]:
        return (yield self)


#: A protocol step: yields requests, receives answers, returns its result.
Step = Generator[Request[Any], Any, T]
#: What can be carried out, and what that gives.
Work = Step[T] | Request[T]


@dataclass(frozen=True)
class Found:
    """An object.

    :param size: bytes of the whole object, also where a part was asked for.
    :param date: the answer's Date header.
    :param body: the bytes asked for, as many as ``Get`` takes; empty for ``Head``.
    :param metadata: user metadata, by names in lower case.
    :param encryption: the store's, where it says one that can be asked for.
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
    """No such key. ``date`` is the answer's Date header."""

    date: float


def etag_of(found: Found | Absent) -> str | None:
    return found.etag if isinstance(found, Found) else None


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
    """:param storage_class: ``None``: the usual one, STANDARD."""

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
    """:param initiated: in whole seconds since the epoch, as the store's Date header tells the
    time: an upload of this second would else be younger than none."""

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
class Get(Request[Answer]):
    """Read an object. Only a part or a version may be refused.

    :param part: these bytes only, as far as they are there; ``None`` for all.
    :param if_match: only the version with this ETag.
    :param most: bytes of a body. Of a longer one so many and one more are read, which no reader
        of records takes for a record: what lies in a bucket may be of any size.
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
    """Write a small object. At most one of the conditions.

    :param if_none_match: only if the key does not exist (``If-None-Match: *``).
    :param if_match: only if the key's current ETag is this one.
    :param encryption: ``None`` leaves it to the driver, which knows that of the table.
    """

    key: str
    body: bytes
    if_none_match: bool = False
    if_match: str | None = None
    content_type: str = "application/json"
    encryption: Encryption | None = None


@dataclass(frozen=True)
class Delete(Request[Done | Refused | Unknown]):
    """Delete an object; an absent key is done, too."""

    key: str
    if_match: str | None = None


@dataclass(frozen=True)
class DeleteMany(Request[Deleted | Unknown]):
    """Delete at most 1,000 keys; with an ETag, only if it is still the current one."""

    items: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class ListObjects(Request[ObjectPage]):
    """One page. ``delimiter`` asks for direct children only. ``token`` continues a listing.

    :param after: only keys that are greater.
    """

    prefix: str
    delimiter: bool = False
    token: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class ListUploads(Request[UploadPage]):
    """One page of the multipart uploads under way. ``marker`` continues a listing."""

    prefix: str
    marker: tuple[str, str] | None = None


@dataclass(frozen=True)
class ListParts(Request[PartsPage | Refused]):
    """One page of what an upload under way holds. ``marker``: the number of the last part of the
    page before."""

    key: str
    upload_id: str
    marker: int | None = None


@dataclass(frozen=True)
class ListLifecycleRules(Request[LifecycleRules | Unknown]):
    """The own rules, which take objects and uploads by age, of the bucket in which keys below a
    prefix lie; *unknown*: the store does not tell."""

    prefix: str = ""


@dataclass(frozen=True)
class ListTieringRules(Request[tuple[TieringRule, ...] | Unknown]):
    """The configurations of the same bucket that archive objects which nobody reads; *unknown*: the
    store does not tell."""

    prefix: str = ""


@dataclass(frozen=True)
class PutLifecycleRule(Request[Done | Refused | Unknown]):
    """Add a rule to the bucket's own, in the place of one with its name."""

    rule: LifecycleRule


@dataclass(frozen=True)
class ObjectSettings:
    """What a data object is created with besides its bytes.

    :param metadata: user metadata (``x-amz-meta-…``).
    :param storage_class: such as ``STANDARD_IA``; ``None`` leaves it to the bucket.
    :param tags: object tags.
    :param encryption: ``None`` leaves it to the driver, which knows that of the table.
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    storage_class: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    encryption: Encryption | None = None


@dataclass(frozen=True)
class PutFile(Request[Done | Refused]):
    """Write a data object whole. Sent again until it is answered: its key is one writer's, who
    writes it once."""

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
    """Unconditional on purpose: a conditional one that fails with 409 destroys the upload.

    :param checksums: of the parts, where another client began the upload with some: algorithm and
        value, ``CRC32 XHxvCQ==``; empty: none.
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
    """A pause.

    :param spread: the share of it that may be left out, by chance: those that wait for the same
        thing then do not all ask again at once.
    """

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True)
class Clock(Request[float]):
    """This process's monotonic clock, seconds."""


@dataclass(frozen=True)
class ServerName(Request[str]):
    """Who the store says it is: the Server header of its last answer, ``""`` for none."""


@dataclass(frozen=True)
class DefaultEncryption(Request[Encryption | Unknown | None]):
    """The bucket's own encryption of objects that name none; *unknown*: the store does not
    tell."""


@dataclass(frozen=True)
class DemandedEncryption(Request[Encryption | None]):
    """The encryption by which the store took a write near a key that it had refused to this
    process, where nothing named one; ``None``: there was no such write. Sends nothing."""

    key: str


@dataclass(frozen=True)
class All(Request[Answer]):
    """Carry out several steps and requests at once; the answer is the tuple of what they give.

    If some raise, the others still run to their end; then the first error is raised, the
    others attached to it as notes.
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
    """Whether the answer to a second one would speak of the first (aws-sdk-java-v2#6580)."""
    if isinstance(request, Put):
        return request.if_none_match or request.if_match is not None
    if isinstance(request, Delete):
        return request.if_match is not None
    return isinstance(request, CompleteUpload)
