"""Listings of any length: S3 answers a thousand entries at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, unquote_plus

from .requests import ListedObject, ListedUpload, ListObjects, ListUploads, Step

#: What a key can be once Ceph has encoded it, which leaves more than others do (rgw_common.cc,
#: char_needs_url_encoding).
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~/*!$'()|-]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True)
class Listing:
    """All objects below a prefix.

    :param date: when the last page was made, by the store's clock; ``since``: the first one.
    """

    objects: tuple[ListedObject, ...]
    date: float
    since: float

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(item.key for item in self.objects)


def list_objects(
    prefix: str,
    direct: bool = False,
    wanted: Callable[[ListedObject], bool] | None = None,
    after: str | None = None,
) -> Step[Listing]:
    """One request per thousand keys.

    :param direct: direct children only.
    :param wanted: which to keep; all, if left out.
    :param after: only keys that are greater.
    """
    found: list[ListedObject] = []
    token = since = None
    while True:
        page = yield from ListObjects(prefix, direct, token, after)
        found += filter(wanted, page.objects) if wanted else page.objects
        since = page.date if since is None else since
        token = page.token
        if token is None:
            return Listing(tuple(found), page.date, since)


def first_object(
    prefix: str, wanted: Callable[[ListedObject], bool], direct: bool = False
) -> Step[ListedObject | None]:
    """The first by name that is wanted; the pages after it are not asked for.

    :param direct: direct children only.
    """
    token = None
    while True:
        page = yield from ListObjects(prefix, direct, token)
        found = next(filter(wanted, page.objects), None)
        token = page.token
        if found is not None or token is None:
            return found


@dataclass(frozen=True)
class Children:
    """What lies directly in a folder: the names of the folders in it, and of some files."""

    folders: tuple[str, ...]
    files: frozenset[str]


def list_children(prefix: str, files: Collection[str] = ()) -> Step[Children]:
    """List a folder: one request for each thousand files or folders in it.

    :param prefix: ending with a slash, or empty.
    :param files: names of files to look for in it.
    """
    folders: list[str] = []
    found: set[str] = set()
    token = None
    while True:
        page = yield from ListObjects(prefix, delimiter=True, token=token)
        folders += (child.removeprefix(prefix).rstrip("/") for child in page.prefixes)
        found.update(item.key.removeprefix(prefix) for item in page.objects)
        found.intersection_update(files)
        token = page.token
        if token is None:
            return Children(tuple(name for name in folders if name), frozenset(found))


def list_folders(prefix: str) -> Step[tuple[str, ...]]:
    """The names of the folders right below a prefix that ends with a slash, or is empty."""
    return (yield from list_children(prefix)).folders


def list_uploads(prefix: str) -> Step[list[ListedUpload]]:
    """Multipart uploads under way, one request per thousand. A store may show none for a prefix
    and all for the bucket: whether to ask for ``""`` instead is the caller's to know."""
    found: list[ListedUpload] = []
    marker = None
    while True:
        page = yield from ListUploads(prefix, marker)
        found += page.uploads
        marker = page.marker
        if marker is None:
            return found


def decoded_keys(answer: dict[str, Any], prefix: str) -> tuple[list[str], str]:
    """Of a listing of uploads that was asked for with ``encoding-type=url``, the keys and the key
    that the next page begins after, as they are in the bucket.

    A store says in its answer whether it encoded them; Ceph encodes without saying so, others
    neither do nor say so. A key with a character that would have been encoded then tells that none
    is, and so does one that would no longer begin with the prefix that was asked for.

    :param answer: boto3's.
    """
    keys = [entry["Key"] for entry in answer.get("Uploads", ())]
    following = answer.get("NextKeyMarker") or ""
    if answer.get("EncodingType") == "url":
        return [unquote_plus(key) for key in keys], unquote_plus(following)
    if all(_ENCODED.fullmatch(key) and unquote(key).startswith(prefix) for key in keys):
        return [unquote(key) for key in keys], unquote(following)
    return keys, following
