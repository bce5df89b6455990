"""An S3 bucket in memory, and a driver that runs steps on it in one thread.

Strongly consistent, conditions checked atomically. Used by unit tests and by the simulation of
the protocol, so it is deterministic: no threads, no randomness, time from a clock that is passed.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.copies import CopyFile, CopyPart
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.store.scheduler import Scheduler

T = TypeVar("T")
#: Called with a request and what carries it out; returns the answer. May answer without
#: applying, apply and answer ``Unknown``, apply twice, or raise.
Fault = Callable[[Any, Callable[[Any], Any]], Any]


class ManualClock:
    """Time that passes only when told. The default is a plausible version time."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class StoredObject:
    body: bytes
    etag: str
    last_modified: float
    metadata: dict[str, str] = field(default_factory=dict)
    content_type: str = "binary/octet-stream"
    storage_class: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    upload_id: str | None = None


@dataclass(frozen=True)
class StoredUpload:
    key: str
    initiated: float
    settings: s.ObjectSettings
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class Behaviour:
    """What S3 stores differ in.

    :param complete_again: what a repeated ``CompleteUpload`` does: ``no_such_upload`` refuses;
        ``repeats`` answers as the first time while the object is there, then refuses (AWS);
        ``resurrect`` writes the object again, even a deleted one.
    :param conditional_delete: whether ``If-Match`` of deletes is honoured; MinIO and Ceph do
        not, nor moto in ``DeleteObjects``.
    :param conditional_put: whether conditions of puts are honoured.
    :param versioned: If-None-Match is ignored and every If-Match of puts refused, as Ceph does once
        the bucket is versioned.
    :param lists_uploads: whether ``ListUploads`` with a prefix shows anything; MinIO does not.
    :param removes_on_abort: whether an abort removes the object of the key too; S3Mock does.
    :param smallest_part: bytes of any part but the last; S3 has 5 MiB.
    :param page: entries per page of a listing.
    :param server_name: what the Server header says.
    """

    complete_again: str = "no_such_upload"
    conditional_delete: bool = True
    conditional_put: bool = True
    versioned: bool = False
    lists_uploads: bool = True
    removes_on_abort: bool = False
    smallest_part: int = 0
    page: int = 1000
    server_name: str = "MemoryStore"

    @property
    def facts(self) -> StoreFacts:
        """What a probe finds."""
        return StoreFacts(
            server=self.server_name,
            complete_resurrects=self.complete_again == "resurrect",
            conditional_delete=self.conditional_delete,
            uploads_by_prefix=self.lists_uploads,
        )


class MemoryStore:
    """The bucket. ``apply`` carries out one request and answers as S3 would.

    :param clock: the store's own clock, in seconds since the epoch.
    """

    def __init__(
        self, clock: Callable[[], float] | None = None, behaviour: Behaviour | None = None
    ) -> None:
        self.clock: Any = clock or ManualClock()
        self.behaviour = behaviour or Behaviour()
        self.objects: dict[str, StoredObject] = {}
        self.uploads: dict[str, StoredUpload] = {}
        self.rules: tuple[LifecycleRule, ...] = ()
        #: Completed uploads, for a store that completes them again.
        self.completed: dict[str, StoredUpload] = {}
        self._count = 0

    def apply(self, request: Any) -> Any:
        return getattr(self, _CALLS[type(request)])(request)

    def copy(self) -> MemoryStore:
        """An independent store of the same content, sharing the clock."""
        other = MemoryStore(self.clock, self.behaviour)
        # The values are never changed in place.
        other.objects = dict(self.objects)
        other.rules = self.rules
        other.uploads = dict(self.uploads)
        other.completed = dict(self.completed)
        other._count = self._count
        return other

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    def upload_keys(self, prefix: str = "") -> list[str]:
        return sorted(u.key for u in self.uploads.values() if u.key.startswith(prefix))

    # What a subclass does in another way.

    def _now(self) -> float:
        # HTTP dates have whole seconds.
        return float(int(self.clock()))

    def _written(self, key: str) -> float:
        """When what is written now will have been."""
        return self._now()

    def _etag(self, body: bytes) -> str:
        return hashlib.md5(body, usedforsecurity=False).hexdigest()

    def _new_upload_id(self, key: str) -> str:
        self._count += 1
        return f"upload-{self._count:06d}"

    def _set(self, kind: str, name: str, value: Any) -> None:
        """Put a value in the place of what is under a name, or with ``None`` take that away.

        :param kind: ``objects``, ``uploads`` or ``completed``.
        """
        known = getattr(self, kind)
        known.pop(name, None)
        if value is not None:
            known[name] = value

    # The requests.

    def _get(self, request: s.Get) -> s.Found | s.Absent | s.Refused:
        stored = self.objects.get(request.key)
        if stored is None:
            return s.Absent(self._now())
        if request.if_match is not None and request.if_match != stored.etag:
            return s.Refused("PreconditionFailed")
        body = stored.body
        if request.part is not None:
            if request.part.first >= len(body):
                return s.Refused("InvalidRange")
            body = body[request.part.first : request.part.last + 1]
        elif len(body) > request.most:
            body = body[: request.most + 1]
        return self._found(request.key, stored, body)

    def _head(self, request: s.Head) -> s.Found | s.Absent:
        stored = self.objects.get(request.key)
        return s.Absent(self._now()) if stored is None else self._found(request.key, stored, b"")

    def _found(self, key: str, stored: StoredObject, body: bytes) -> s.Found:
        size, since = len(stored.body), stored.last_modified
        return s.Found(key, stored.etag, size, since, self._now(), body, stored.metadata)

    def _refused(self, key: str, if_match: str | None, if_none_match: bool) -> s.Refused | None:
        found = self.objects.get(key)
        if if_none_match and found is not None:
            return s.Refused("PreconditionFailed")
        if if_match is not None and found is None:
            return s.Refused("NoSuchKey")
        if if_match is not None and found is not None and found.etag != if_match:
            return s.Refused("PreconditionFailed")
        return None

    def _put(self, request: s.Put) -> s.Done | s.Refused:
        if self.behaviour.versioned and request.if_match is not None:
            return s.Refused("PreconditionFailed")
        if self.behaviour.conditional_put and not self.behaviour.versioned:
            refused = self._refused(request.key, request.if_match, request.if_none_match)
            if refused is not None:
                return refused
        body, key = bytes(request.body), request.key
        etag = self._etag(body)
        made = StoredObject(body, etag, self._written(key), content_type=request.content_type)
        self._set("objects", key, made)
        return s.Done(etag, self._now())

    def _delete(self, request: s.Delete) -> s.Done | s.Refused:
        if self.behaviour.conditional_delete:
            refused = self._refused(request.key, request.if_match, False)
            if refused is not None and refused.code != "NoSuchKey":
                return refused
        if request.key in self.objects:
            self._set("objects", request.key, None)
        return s.Done(date=self._now())

    def _delete_many(self, request: s.DeleteMany) -> s.Deleted:
        errors = {}
        for key, etag in request.items:
            answer = self._delete(s.Delete(key, etag))
            if isinstance(answer, s.Refused):
                errors[key] = answer.code
        return s.Deleted(errors)

    def _list_objects(self, request: s.ListObjects) -> s.ObjectPage:
        objects: list[s.ListedObject] = []
        prefixes: list[str] = []
        last = ""
        for key in self.keys(request.prefix):
            if request.after is not None and key <= request.after:
                continue
            entry = key
            in_folder = request.delimiter and "/" in key[len(request.prefix) :]
            if in_folder:
                entry = key[: key.index("/", len(request.prefix)) + 1]
            if entry == last or (request.token is not None and entry <= request.token):
                continue
            if len(objects) + len(prefixes) == self.behaviour.page:
                return s.ObjectPage(tuple(objects), tuple(prefixes), last, self._now())
            last = entry
            if not in_folder:
                found = self.objects[key]
                objects.append(
                    s.ListedObject(key, found.etag, len(found.body), found.last_modified)
                )
            else:
                prefixes.append(entry)
        return s.ObjectPage(tuple(objects), tuple(prefixes), None, self._now())

    def _list_uploads(self, request: s.ListUploads) -> s.UploadPage:
        if request.prefix and not self.behaviour.lists_uploads:
            return s.UploadPage((), None, self._now())
        listed = sorted(
            (upload.key, upload_id, upload.initiated)
            for upload_id, upload in self.uploads.items()
            if upload.key.startswith(request.prefix)
            and (request.marker is None or (upload.key, upload_id) > request.marker)
        )
        page = tuple(s.ListedUpload(*entry) for entry in listed[: self.behaviour.page])
        more = len(listed) > len(page)
        marker = (page[-1].key, page[-1].upload_id) if more else None
        return s.UploadPage(page, marker, self._now())

    def _list_parts(self, request: s.ListParts) -> s.PartsPage | s.Refused:
        upload = self._upload_of(request.key, request.upload_id)
        if upload is None:
            return s.Refused("NoSuchUpload")
        numbers = [number for number in sorted(upload.parts) if number > (request.marker or 0)]
        page = numbers[: self.behaviour.page]
        more = len(numbers) > len(page)
        sizes = [len(upload.parts[number][1]) for number in page]
        return s.PartsPage(len(page), sum(sizes), page[-1] if more else None)

    def _list_lifecycle_rules(self, _: s.ListLifecycleRules) -> s.LifecycleRules:
        return s.LifecycleRules(self.rules)

    def _list_tiering_rules(self, _: s.ListTieringRules) -> tuple[()]:
        return ()

    def _put_lifecycle_rule(self, request: s.PutLifecycleRule) -> s.Done:
        others = (rule for rule in self.rules if rule.name != request.rule.name)
        self.rules = (*others, request.rule)
        return s.Done(date=self._now())

    def _put_file(self, request: s.PutFile) -> s.Done:
        body, settings = bytes(request.body), request.settings
        made = StoredObject(
            body,
            self._etag(body),
            self._written(request.key),
            dict(settings.metadata),
            storage_class=settings.storage_class,
            tags=dict(settings.tags),
        )
        self._set("objects", request.key, made)
        return s.Done(made.etag, self._now())

    def _copy_file(self, request: CopyFile) -> s.Done | s.Refused:
        there = self.objects.get(request.source.key)
        if there is None:
            return s.Refused("NoSuchKey")
        return self._put_file(s.PutFile(request.key, there.body, request.settings))

    def _copy_part(self, request: CopyPart) -> s.Done | s.Refused:
        there = self.objects.get(request.source.key)
        if there is None:
            return s.Refused("NoSuchKey")
        part = request.part or s.ByteRange(0, len(there.body) - 1)
        body = there.body[part.first : part.last + 1]
        return self._upload_part(s.UploadPart(request.key, request.upload_id, request.number, body))

    def _create_upload(self, request: s.CreateUpload) -> s.Created:
        upload_id = self._new_upload_id(request.key)
        upload = StoredUpload(request.key, self._written(request.key), request.settings)
        self._set("uploads", upload_id, upload)
        return s.Created(upload_id)

    def _upload_of(self, key: str, upload_id: str) -> StoredUpload | None:
        upload = self.uploads.get(upload_id)
        return upload if upload is not None and upload.key == key else None

    def _upload_part(self, request: s.UploadPart) -> s.Done | s.Refused:
        upload = self._upload_of(request.key, request.upload_id)
        if upload is None:
            return s.Refused("NoSuchUpload")
        body = bytes(request.body)
        etag = self._etag(body)
        parts = {**upload.parts, request.number: (etag, body)}
        self._set("uploads", request.upload_id, replace(upload, parts=parts))
        return s.Done(etag, self._now())

    def _complete_upload(self, request: s.CompleteUpload) -> s.Done | s.Refused:
        upload = self._upload_of(request.key, request.upload_id)
        if upload is None:
            there = self.objects.get(request.key)
            again = self.behaviour.complete_again
            if again == "repeats" and there is not None:
                if there.upload_id == request.upload_id:
                    return s.Done(there.etag, self._now())
            elif again == "resurrect":
                upload = self.completed.get(request.upload_id)
        if upload is None:
            return s.Refused("NoSuchUpload")
        if not request.etags:
            return s.Refused("MalformedXML")
        bodies = []
        for number, etag in enumerate(request.etags, start=1):
            known, body = upload.parts.get(number, ("", b""))
            if known != etag:
                return s.Refused("InvalidPart")
            bodies.append(body)
        if any(len(body) < self.behaviour.smallest_part for body in bodies[:-1]):
            return s.Refused("EntityTooSmall")
        digests = b"".join(bytes.fromhex(etag) for etag in request.etags)
        settings = upload.settings
        made = StoredObject(
            b"".join(bodies),
            f"{self._etag(digests)}-{len(bodies)}",
            self._written(request.key),
            dict(settings.metadata),
            storage_class=settings.storage_class,
            tags=dict(settings.tags),
            upload_id=request.upload_id,
        )
        self._set("objects", request.key, made)
        if request.upload_id in self.uploads:
            self._set("uploads", request.upload_id, None)
            self._set("completed", request.upload_id, upload)
        return s.Done(made.etag, self._now())

    def _abort_upload(self, request: s.AbortUpload) -> s.Done | s.Refused:
        if self._upload_of(request.key, request.upload_id) is None:
            return s.Refused("NoSuchUpload")
        self._set("uploads", request.upload_id, None)
        if self.behaviour.removes_on_abort:
            self._set("objects", request.key, None)
        return s.Done(date=self._now())


#: By request, the method that carries it out: of ``DeleteMany`` it is ``_delete_many``.
_CALLS = {
    kind: re.sub("([A-Z])", r"_\1", kind.__name__).lower()
    for kind in (
        *(s.Get, s.Head, s.Put, s.PutFile, s.Delete, s.DeleteMany, CopyFile, CopyPart),
        *(s.ListObjects, s.ListUploads, s.ListParts, s.ListLifecycleRules, s.PutLifecycleRule),
        s.ListTieringRules,
        *(s.CreateUpload, s.UploadPart, s.CompleteUpload, s.AbortUpload),
    )
}


def flatten(work: s.Work[T]) -> s.Step[T]:
    """The same step as single requests one after the other, members of ``All`` in turns.

    For a simulator: it sees every request of the step and chooses what happens between them.
    """
    scheduler: Scheduler[T] = Scheduler(work)
    try:
        while not scheduler.finished:
            taken = scheduler.take()
            assert taken is not None, "a step waits for nothing"
            ticket, request = taken
            try:
                answer = yield request
            except Exception as error:
                scheduler.throw(ticket, error)
            else:
                scheduler.answer(ticket, answer)
    finally:
        if not scheduler.finished:
            scheduler.close()
    return scheduler.result()


#: Of all drivers: one of its own could not be copied with what refers to the driver.
_ONE_BY_ONE = threading.RLock()


class MemoryDriver:
    """Runs steps on a :class:`MemoryStore`, deterministically, members of ``All`` in turns; those
    of several threads request by request.

    :param store: the store; several drivers may share one, as processes do.
    :param fault: what happens to requests instead of just being applied.
    :param clock: this process's monotonic clock; ``Wait`` advances it, and the store's where
        both are the same :class:`ManualClock`.
    """

    parallel = 4
    retries = 0

    def __init__(
        self,
        store: MemoryStore | None = None,
        fault: Fault | None = None,
        clock: Callable[[], float] | None = None,
        bucket: str = "bucket",
    ) -> None:
        self.store = store or MemoryStore()
        self.fault = fault
        self.clock = clock or self.store.clock
        self.bucket = bucket
        #: As the real driver's, by which it is known that two reach one store as the same user.
        self.clients = self.store
        #: Every request to the store, in order.
        self.requests: list[Any] = []

    def perform(self, request: Any) -> Any:
        if isinstance(request, s.Clock):
            return self.clock()
        if isinstance(request, s.ServerName):
            return self.store.behaviour.server_name
        if isinstance(request, s.DemandedEncryption):
            return None
        if isinstance(request, s.DefaultEncryption):
            return s.Unknown("a store in memory has none")
        if isinstance(request, s.Wait):
            advance = getattr(self.clock, "advance", None)
            if advance is not None:
                advance(request.seconds)
            return None
        self.requests.append(request)
        return self._apply(request) if self.fault is None else self.fault(request, self._apply)

    def _apply(self, request: Any) -> Any:
        with _ONE_BY_ONE:  # Not a fault: one may wait for another thread's request.
            return self.store.apply(request)

    def reach(self, keys: Any) -> set[Any]:
        return {self.clients for _ in keys}

    def encrypt(self, root: str, encryption: Any) -> None:
        """Ignore it: this store refuses nothing for want of one."""

    def encrypt_by_default(self, encryption: Any, root: str | None = None) -> None:
        """Ignore it likewise."""

    def default_encryption(self, root: str) -> None:
        return None

    def encryption_below(self, root: str) -> None:
        return None

    def submit(self, request: Any, over: Any = None) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(self.perform(request))
        except Exception as error:
            future.set_exception(error)
        return future

    def run(self, work: s.Work[T]) -> T:
        single = flatten(work)
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                request = single.throw(error) if error else single.send(answer)
            except StopIteration as stop:
                return stop.value
            try:
                answer, error = self.perform(request), None
            except Exception as raised:
                error = raised

    def close(self) -> None:
        """As the real driver's; nothing to end."""

    def counts(self) -> dict[str, int]:
        """Requests so far by kind."""
        counts: dict[str, int] = {}
        for request in self.requests:
            name = type(request).__name__
            counts[name] = counts.get(name, 0) + 1
        return counts
