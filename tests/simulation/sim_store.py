"""S3 as a value: applying a request to a store gives another store and an answer.

Stores are never changed, so that exploring can go on from each of them; equal stores have equal
digests however they came about. Time is logical: it is the number of decisions written, so that
the store's clock is as coarse against requests as a clock of seconds.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from support.memory_store import Behaviour, MemoryStore, StoredObject, StoredUpload
from zero_rename.committer.store import requests as s


@lru_cache(maxsize=1_000_000)
def _digest(kind: str, key: str, value: str) -> int:
    text = f"{kind}\0{key}\0{value}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


@lru_cache(maxsize=100_000)
def etag_of(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


#: Bodies of all heads that were ever written, by ETag.
_heads: dict[str, bytes] = {}


def body_of(etag: str) -> bytes:
    """The head that had an ETag."""
    return _heads[etag]


#: Where it is kept, beside the table, what decisions said before they were condensed.
CONDENSED = "condensed/"


class Store(MemoryStore):
    """A store that is taken for a value: only :func:`apply` makes others of it.

    :ivar digest: of all that is in it.
    :ivar ticks: decisions written so far, the store's time.
    :ivar told: what follows from decisions alone, for who checks, until one is written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.digest = self.ticks = 0
        self.told: dict[tuple[str, ...], Any] = {}

    def branch(self, behaviour: Behaviour) -> Store:
        other = Store.__new__(Store)
        other.__dict__ = {**self.__dict__, "behaviour": behaviour}
        return other

    def is_as(self, other: Store) -> bool:
        """Whether nothing was written since one was made of the other."""
        same = self.objects is other.objects and self.uploads is other.uploads
        return same and self.completed is other.completed

    def _now(self) -> float:
        return self.ticks

    def _written(self, key: str) -> float:
        # Only a decision's time matters to the protocol; other times would only tell equal stores
        # apart.
        return self.ticks if "/jobs/" in key else 0

    def _etag(self, body: bytes) -> str:
        return etag_of(body)

    def _new_upload_id(self, key: str) -> str:
        used = [*self.uploads.values(), *self.completed.values()]
        return f"{key}#{sum(upload.key == key for upload in used)}"

    def _set(self, kind: str, name: str, value: Any) -> None:
        known = dict(getattr(self, kind))
        self.digest ^= _part(kind, name, known.pop(name, None)) ^ _part(kind, name, value)
        if value is not None:
            known[name] = value
        if "/jobs/" in name:
            self.told = {}
        setattr(self, kind, known)

    def _put(self, request: s.Put) -> s.Done | s.Refused:
        old, decides = self.objects.get(request.key), "/jobs/" in request.key
        self.ticks += decides
        answer = super()._put(request)
        if isinstance(answer, s.Refused):
            self.ticks -= decides
            return answer
        if "/_zero_rename/heads/" in request.key:
            _heads[answer.etag] = request.body
        if old is not None and decides and b'"kind":"commit"' in request.body:
            self._set("objects", CONDENSED + request.key, old)
        return answer

    def _delete(self, request: s.Delete) -> s.Done | s.Refused:
        old = self.objects.get(request.key)
        answer = super()._delete(request)
        folder, jobs, name = request.key.rpartition("/jobs/")
        condensed = f"{CONDENSED}{folder}/jobs/{name.partition('.')[0]}.json"
        if old is not None and isinstance(answer, s.Done) and jobs and condensed in self.objects:
            self._set("objects", CONDENSED + request.key, old)
        return answer


EMPTY = Store()


def _part(kind: str, name: str, value: StoredObject | StoredUpload | None) -> int:
    """What a value adds to the digest."""
    if value is None:
        return 0
    if isinstance(value, StoredObject):
        return _digest(kind, name, f"{value.etag} {value.last_modified}")
    return _digest(kind, name, repr([(number, etag) for number, (etag, _) in value.parts.items()]))


def apply(store: Store, request: Any, behaviour: Behaviour) -> tuple[Store, Any]:
    """Carry out a request: the store after it, the same one where nothing is written; and the
    answer."""
    after = store.branch(behaviour)
    answer = after.apply(request)
    if isinstance(answer, s.Done) and not isinstance(request, s.Put):
        answer = s.Done(answer.etag)  # Nobody asks for the time of another write.
    return (store if after.is_as(store) else after), answer
