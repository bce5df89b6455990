"""Encryption that a driver adds to writes: named by a job, on a table's record, or seen in use.

A bucket's policy may deny every object that does not name its encryption: records and markers as
well as data. No step of the protocol knows of that. A driver adds to each write without one

1. the encryption that a job of this process has named for its table
   (:meth:`.driver.Driver.encrypt`),
2. else that of the table's record, as this process read or wrote it last,
3. else the one with which the store accepted a write here after it had refused one without,
4. else that of the process's configuration (:meth:`.driver.Driver.encrypt_by_default`).

Objects in a data root at another endpoint, or in a directory bucket, are encrypted by the default
of their own bucket: the keys of the table's store are not known there, and directory buckets refuse
all but their own.

If a write is refused for lack of a right, the table's record is read, and the write is sent again
with the record's encryption. If the record has none, it is sent with the encryption of the object
that was read last in the bucket. So a store that refuses nothing gets no further requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .copies import CopyFile
from .encryption import Algorithm, Encryption
from .fast_root import FastPlace, is_fast
from .requests import CreateUpload, Done, Found, Get, Put, PutFile

#: Requests that make an object, which S3 authorises by its encryption. Parts have their upload's.
_WRITES = (Put, PutFile, CreateUpload, CopyFile)
_CONTROL = "/_zero_rename/"
#: Ending of the key of a table's record after the root, and the record's member for encryption.
_RECORD, _MEMBER = f"{_CONTROL}table.json", "encryption"


class EncryptionsKnown:
    """A driver's knowledge of the encryption below the roots of its bucket's tables.

    It may be used by many threads. Roots have no slash at their end.
    """

    def __init__(self) -> None:
        self._named: dict[str, Encryption] = {}
        self._recorded: dict[str, Encryption] = {}
        self._demanded: dict[str, Encryption] = {}
        self._seen: Encryption | None = None
        self._configured: dict[str, Encryption] = {}
        self._default: Encryption | None = None

    def name(self, root: str, encryption: Encryption | None) -> None:
        """Record the encryption that a job names for its table; ``None``: it uses the table's."""
        if encryption is None:
            self._named.pop(root, None)
        else:
            self._named[root] = encryption

    def configure(self, root: str | None, encryption: Encryption) -> None:
        """Record the configured encryption, which counts if nothing else names one.

        :param root: root of a table; ``None``: the whole bucket.
        """
        if root is None:
            self._default = encryption
        else:
            self._configured[root] = encryption

    def configured(self, key: str) -> Encryption | None:
        """Return the configured encryption at a key, which counts if nothing else names one."""
        return _nearest(self._configured, key) or self._default

    def of(self, key: str) -> Encryption | None:
        """Return the encryption for a write at a key."""
        known = (_nearest(those, key) for those in (self._named, self._recorded, self._demanded))
        return next((it for it in known if it is not None), None) or self.configured(key)

    def demanded(self, key: str) -> Encryption | None:
        """Return the encryption with which the store accepted a refused write below the same root.

        It is recorded only if neither a job nor the table's record named one.
        """
        return _nearest(self._demanded, key)

    def applied(self, request: Any) -> Any:
        """Return a request with the encryption for its key, unless it names one.

        If the key's place is encrypted by its own bucket, an encryption that it names is removed.
        """
        if isinstance(request, _WRITES) and _is_elsewhere(request.key):
            return with_encryption(request, None)
        if not names_none(request):
            return request
        known = _recorded(request) if isinstance(request, Put) else None
        known = known or self.of(request.key)
        return request if known is None else with_encryption(request, known)

    def instead(self, request: Any) -> Iterator[Encryption]:
        """Yield the encryptions with which to send a refused write again, the likeliest first."""
        known = self.of(request.key)
        is_named = known is not None and known == _nearest(self._named, request.key)
        for it in (known, None if is_named else self._seen):
            if it is not None and it != encryption_of(request):
                yield it

    def took(self, request: Any, root: str) -> None:
        """Record the encryption of a write that the store accepted after a refusal."""
        encryption = encryption_of(request)
        if encryption is not None and encryption != self.of(request.key):
            self._demanded[root] = encryption

    def heed(self, request: Any, answer: Any) -> None:
        """Learn from an answer: an object's own encryption, and the one that a record names."""
        if isinstance(answer, Found) and answer.encryption and not is_fast(answer.key):
            self._seen = answer.encryption
        if not isinstance(request, Get | Put) or not request.key.endswith(_RECORD):
            return
        root = request.key.removesuffix(_RECORD)
        if isinstance(answer, Found) and isinstance(request, Get):
            self._record(root, _said(answer.body))
        elif isinstance(answer, Done) and isinstance(request, Put):
            self._record(root, _said(request.body))

    def _record(self, root: str, encryption: Encryption | None) -> None:
        if encryption is None:
            self._recorded.pop(root, None)
            return
        self._recorded[root] = encryption
        self._demanded.pop(root, None)
        if self._named.get(root) == encryption:
            # From now on the record counts, which another process may change.
            del self._named[root]


def record_key(key: str) -> str | None:
    """Return the key of the record of an object's table.

    ``None``: the object's key does not show the table, or is the record's own.
    """
    root, control, _ = key.partition(_CONTROL)
    return f"{root}{_RECORD}" if control and key != f"{root}{_RECORD}" else None


def root_of(key: str) -> str:
    """Return the table's root in a key of a control object; for other keys, their folder."""
    root, control, _ = key.partition(_CONTROL)
    return root if control else key.rpartition("/")[0]


def names_none(request: Any) -> bool:
    """Return whether a request is a write that leaves its encryption to the driver."""
    is_write = isinstance(request, _WRITES) and not _is_elsewhere(request.key)
    return is_write and encryption_of(request) is None


def encryption_of(request: Any) -> Encryption | None:
    """Return the encryption that a write names."""
    return request.encryption if isinstance(request, Put) else request.settings.encryption


def with_encryption(request: Any, encryption: Encryption | None) -> Any:
    """Return a write with this encryption; ``None``: with none."""
    if isinstance(request, Put):
        return replace(request, encryption=encryption)
    return replace(request, settings=replace(request.settings, encryption=encryption))


def _is_elsewhere(key: str) -> bool:
    """Return whether a key's object lies at a place that encrypts by its own bucket's default."""
    place = FastPlace.of("", key) if is_fast(key) else None
    return place is not None and place.root.encrypts_by_itself


def _recorded(request: Put) -> Encryption | None:
    """Return the encryption that a table's record names, for the write of this very record."""
    return _said(request.body) if request.key.endswith(_RECORD) else None


def _said(record: bytes) -> Encryption | None:
    """Return the encryption that a table's record names; ``None``: none, or it cannot be read.

    A process that needs the record reports that it cannot be read.
    """
    if f'"{_MEMBER}"'.encode() not in record:
        return None
    try:
        said = json.loads(record)[_MEMBER]
        return Encryption(Algorithm(said["algorithm"]), said.get("key"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _nearest(those: dict[str, Encryption], key: str) -> Encryption | None:
    """Return the encryption of the innermost root above a key; ``None``: not known."""
    roots = [root for root in list(those) if key.startswith(f"{root}/")]
    return those.get(max(roots, key=len)) if roots else None
