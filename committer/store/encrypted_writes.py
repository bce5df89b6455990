"""Encryption that a driver adds to writes: named by a job, on a table's record, or seen in use.

A bucket's policy may deny every object that does not name its encryption, records and markers as
much as data. No step of the protocol knows of that. A driver adds to each write that names none:

1. what a job of this process has named for its table (:meth:`.driver.Driver.encrypt`),
2. else what the table's record says, as this process read or wrote it last,
3. else what the store took here after it had refused a write without,
4. else what the process's configuration says (:meth:`.driver.Driver.encrypt_by_default`).

What lies in a data root at another endpoint, or in a directory bucket, is encrypted as that bucket
says by its own default: no key of the table's store is known there, and directory buckets refuse
every other than their own.

Where a write is refused for want of a right, the table's record is read and the write sent again by
what that says; where it says nothing, by the encryption of the object that was read last in the
bucket. So nothing is asked of a store that refuses nothing.
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

#: Requests that make an object, which S3 authorises by its encryption. Parts take their upload's.
_WRITES = (Put, PutFile, CreateUpload, CopyFile)
_CONTROL = "/_zero_rename/"
#: How the key of a table's record goes on after its root, and the member that is about encryption.
_RECORD, _MEMBER = f"{_CONTROL}table.json", "encryption"


class EncryptionsKnown:
    """What a driver knows of the encryption below the roots of its bucket's tables. May be used by
    many threads. Roots are without a slash at their end."""

    def __init__(self) -> None:
        self._named: dict[str, Encryption] = {}
        self._recorded: dict[str, Encryption] = {}
        self._demanded: dict[str, Encryption] = {}
        self._seen: Encryption | None = None
        self._configured: dict[str, Encryption] = {}
        self._default: Encryption | None = None

    def name(self, root: str, encryption: Encryption | None) -> None:
        """Note the encryption that a job names for its table; ``None``: it goes by the table's."""
        if encryption is None:
            self._named.pop(root, None)
        else:
            self._named[root] = encryption

    def configure(self, root: str | None, encryption: Encryption) -> None:
        """Note the encryption where nothing else says one; ``None``: of the whole bucket."""
        if root is None:
            self._default = encryption
        else:
            self._configured[root] = encryption

    def configured(self, key: str) -> Encryption | None:
        """The encryption at a key where nothing else says one."""
        return _nearest(self._configured, key) or self._default

    def of(self, key: str) -> Encryption | None:
        """The encryption of what is written at a key."""
        known = (_nearest(those, key) for those in (self._named, self._recorded, self._demanded))
        return next((it for it in known if it is not None), None) or self.configured(key)

    def demanded(self, key: str) -> Encryption | None:
        """The encryption by which the store took a write below the same root that it had refused,
        where neither a job nor the table's record says any."""
        return _nearest(self._demanded, key)

    def applied(self, request: Any) -> Any:
        """A request with the encryption of its place, unless it names one."""
        if isinstance(request, _WRITES) and _is_elsewhere(request.key):
            return with_encryption(request, None)
        if not names_none(request):
            return request
        known = _recorded(request) if isinstance(request, Put) else None
        known = known or self.of(request.key)
        return request if known is None else with_encryption(request, known)

    def instead(self, request: Any) -> Iterator[Encryption]:
        """The encryptions under which a refused write may be sent again, the likeliest first."""
        known = self.of(request.key)
        is_named = known is not None and known == _nearest(self._named, request.key)
        for it in (known, None if is_named else self._seen):
            if it is not None and it != encryption_of(request):
                yield it

    def took(self, request: Any, root: str) -> None:
        """Note that the store took a write that it had refused before."""
        encryption = encryption_of(request)
        if encryption is not None and encryption != self.of(request.key):
            self._demanded[root] = encryption

    def heed(self, request: Any, answer: Any) -> None:
        """Learn from an answer: of a table's record what it says, of any object what it has."""
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
            # From here on the record is heeded, which another process may change.
            del self._named[root]


def record_key(key: str) -> str | None:
    """The key of the record of the table that an object belongs to, where its own key tells."""
    root, control, _ = key.partition(_CONTROL)
    return f"{root}{_RECORD}" if control and key != f"{root}{_RECORD}" else None


def root_of(key: str) -> str:
    """The root that a key tells, or else its folder."""
    root, control, _ = key.partition(_CONTROL)
    return root if control else key.rpartition("/")[0]


def names_none(request: Any) -> bool:
    """Whether a request is a write that leaves its encryption to the driver."""
    is_write = isinstance(request, _WRITES) and not _is_elsewhere(request.key)
    return is_write and encryption_of(request) is None


def encryption_of(request: Any) -> Encryption | None:
    """The encryption that a write names."""
    return request.encryption if isinstance(request, Put) else request.settings.encryption


def with_encryption(request: Any, encryption: Encryption | None) -> Any:
    """A write that names an encryption, or none."""
    if isinstance(request, Put):
        return replace(request, encryption=encryption)
    return replace(request, settings=replace(request.settings, encryption=encryption))


def _is_elsewhere(key: str) -> bool:
    """Whether a key's object lies where the encryption of the table's store does not hold."""
    place = FastPlace.of("", key) if is_fast(key) else None
    return place is not None and place.root.encrypts_by_itself


def _recorded(request: Put) -> Encryption | None:
    """What a table's record says that is written here: it is encrypted itself as it says."""
    return _said(request.body) if request.key.endswith(_RECORD) else None


def _said(record: bytes) -> Encryption | None:
    """What a table's record says of encryption; ``None``, too, where it cannot be read: who needs
    the record says so."""
    if f'"{_MEMBER}"'.encode() not in record:
        return None
    try:
        said = json.loads(record)[_MEMBER]
        return Encryption(Algorithm(said["algorithm"]), said.get("key"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _nearest(those: dict[str, Encryption], key: str) -> Encryption | None:
    """What is known of the innermost root that a key lies below."""
    roots = [root for root in list(those) if key.startswith(f"{root}/")]
    return those.get(max(roots, key=len)) if roots else None
