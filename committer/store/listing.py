"""Listings of any length: S3 lists at most a thousand entries at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, unquote_plus

from .requests import ListedObject, ListedUpload, ListObjects, ListUploads, Step

#: Form of a key that Ceph has encoded. Ceph leaves more characters as they are than other stores do
#: (rgw_common.cc, char_needs_url_encoding).
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~/*!$'()|-]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True)
class Listing:
    """All objects below a prefix.

    :param date: when the last page was made, by the store's clock; ``since``: the first page.
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
    """List the objects below a prefix: one request for each thousand keys.

    :param direct: direct children only.
    :param wanted: chooses the objects to keep; ``None``: all.
    :param after: only keys that are greater than this one.
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
    """Find the first wanted object below a prefix, by name; the pages after it are not requested.

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
    """The direct children of a folder: the names of its folders, and of some files."""

    folders: tuple[str, ...]
    files: frozenset[str]


def list_children(prefix: str, files: Collection[str] = ()) -> Step[Children]:
    """List a folder: one request for each thousand files or folders in it.

    :param prefix: the folder's prefix, which ends with a slash or is empty.
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
    """List the names of the folders directly below a prefix that ends with a slash or is empty."""
    return (yield from list_children(prefix)).folders


def list_uploads(prefix: str) -> Step[list[ListedUpload]]:
    """List multipart uploads under way: one request for each thousand.

    Some stores show no uploads for a prefix, and all for the bucket. The caller must know this, and
    then give ``""`` as the prefix.
    """
    found: list[ListedUpload] = []
    marker = None
    while True:
        page = yield from ListUploads(prefix, marker)
        found += page.uploads
        marker = page.marker
        if marker is None:
            return found


def decoded_keys(answer: dict[str, Any], prefix: str) -> tuple[list[str], str]:
    """Decode the keys in a listing of uploads that was requested with ``encoding-type=url``.

    A store says in its answer whether it encoded them. Ceph encodes them without saying so; other
    stores do neither. If the answer says nothing, the keys are taken as not encoded if one of them
    has a character that would have been encoded, or would no longer begin with ``prefix`` once
    decoded.

    :param answer: the answer from boto3.
    :param prefix: the prefix of the request.
    :returns: the keys, and the key after which the next page begins, as they are in the bucket.
    """
    keys = [entry["Key"] for entry in answer.get("Uploads", ())]
    following = answer.get("NextKeyMarker") or ""
    if answer.get("EncodingType") == "url":
        return [unquote_plus(key) for key in keys], unquote_plus(following)
    if all(_ENCODED.fullmatch(key) and unquote(key).startswith(prefix) for key in keys):
        return [unquote(key) for key in keys], unquote(following)
    return keys, following
