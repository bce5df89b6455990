"""Fast roots (data roots): another bucket or store in which a table's data files may lie first.

The protocol knows one bucket only. A file in a fast root has a key in that bucket all the same,
``<table>/_zero_rename/fast/<root>/<job>/…``, and this key contains the file's place. The driver
sends a request for such a key to ``<root>/<the table's bucket>/<table>/<job>/…``. So any process
finds a file by its key alone, even after the table's data root was changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ..errors import FastRootGoneError, InvalidInputError, ZeroRenameError, without_secrets
from .requests import Deleted, DeleteMany, Found, ListUploads, ObjectPage, UploadPage
from .s3_urls import SCHEME, refuse_arn

#: The part of a key before the name of the fast root.
FAST = "/_zero_rename/fast/"
_ROOT = re.compile(rf"{SCHEME}([A-Za-z0-9][A-Za-z0-9.\-_]{{1,253}}[A-Za-z0-9])/([^?#]+?)/*")
_REMEDY = (
    "Name a data root as s3://bucket/prefix, with ?endpoint=https://host:port for another store, "
    "and a profile of ~/.aws/config likewise: keys are never part of it."
)


@dataclass(frozen=True)
class FastRoot:
    """A place for data files, which holds nothing else.

    :param endpoint: URL of its store; ``None``: the table's store.
    :param profile: the profile of ``~/.aws/config`` whose keys are used there; ``None``: the
        table's keys.
    :param temporary: its tables need never become durable.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    profile: str | None = None
    temporary: bool = False

    @staticmethod
    @lru_cache(maxsize=64)
    def parse(text: FastRoot | str) -> FastRoot:
        """Parse ``s3://bucket/prefix?endpoint=…&profile=…&temporary=true``.

        :raises InvalidInputError: another form of URL, or a password in it.
        """
        if isinstance(text, FastRoot):
            return text
        place, _, query = text.partition("?") if isinstance(text, str) else ("", "", "")
        refuse_arn(place)
        match = _ROOT.fullmatch(place)
        given = dict(parse_qsl(query, keep_blank_values=True))
        endpoint = given.pop("endpoint", None)
        profile = given.pop("profile", None)
        temporary = given.pop("temporary", "false")
        if match is None or given or not _is_path(match[2]) or temporary not in ("true", "false"):
            raise InvalidInputError(
                f"{without_secrets(str(text))!r} is no data root; nothing was read or written.",
                remedy=_REMEDY,
            )
        if profile == "" or (endpoint is not None and not _is_endpoint(endpoint)):
            raise InvalidInputError(
                "The endpoint of a data root is a URL such as https://host:port, without user or "
                "password, and its profile a name; nothing was read or written.",
                remedy=_REMEDY,
            )
        endpoint = endpoint and endpoint.rstrip("/")
        return FastRoot(match[1], match[2], endpoint, profile, temporary == "true")

    @property
    def place(self) -> FastRoot:
        """Its location alone: the same root with ``temporary`` unset."""
        return replace(self, temporary=False)

    @property
    def encrypts_by_itself(self) -> bool:
        """True if all its files are encrypted by the default of its own bucket.

        So it is at another store, and in a directory bucket of AWS, which accepts no other
        encryption (S3 User Guide, "Specifying server-side encryption with AWS KMS for new object
        uploads in directory buckets").
        """
        return self.endpoint is not None or self.bucket.endswith("--x-s3")

    @property
    def url(self) -> str:
        """URL of the root, which :meth:`parse` reads."""
        said = {"endpoint": self.endpoint, "profile": self.profile}
        said["temporary"] = "true" if self.temporary else None
        query = urlencode({name: it for name, it in said.items() if it}, safe=":/")
        return f"s3://{self.bucket}/{self.prefix}" + (f"?{query}" if query else "")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """Name of the root in keys: one folder."""
        return quote(self.place.url, safe="")


def _is_path(prefix: str) -> bool:
    named = all(part not in ("", ".", "..") for part in prefix.split("/"))
    return named and prefix.isprintable()


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    whole = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    return whole and "@" not in parts.netloc and not parts.query and not parts.fragment


@dataclass(frozen=True)
class FastPlace:
    """The place of a table's files in a fast root.

    :param keys: the prefix of their keys in the protocol; ``there``: that in the root's bucket.
    """

    root: FastRoot
    keys: str
    there: str

    @staticmethod
    def of(bucket: str, key: str) -> FastPlace | None:
        """Return the fast place of a key or prefix; ``None``: it lies in the table's bucket.

        :raises InvalidInputError: the name of the fast root in the key is invalid.
        """
        table, mark, rest = key.partition(FAST)
        name, slash, _ = rest.partition("/")
        if not mark or not slash:
            return None
        root = FastRoot.parse(unquote(name))
        return FastPlace(root, f"{table}{FAST}{name}/", f"{root.prefix}/{bucket}/{table}/")

    def real(self, key: str) -> str:
        """Return the key in the root's bucket for a key of the protocol."""
        return self.there + key.removeprefix(self.keys)

    def _back(self, key: str) -> str:
        return self.keys + key.removeprefix(self.there)

    def sent(self, request: Any) -> Any:
        """Convert a request of the protocol to one for the root's store."""
        if isinstance(request, DeleteMany):
            return DeleteMany(tuple((self.real(key), etag) for key, etag in request.items))
        if isinstance(request, ListUploads):
            # This store was not probed: it may be one that lists no uploads by prefix.
            return replace(request, prefix="")
        name = "key" if hasattr(request, "key") else "prefix"
        return replace(request, **{name: self.real(getattr(request, name))})

    def gone(
        self, bucket: str, request: Any, why: ZeroRenameError, first: str | None = None
    ) -> FastRootGoneError:
        """Build the error for a root that a request did not reach.

        :param first: the first part of the remedy, if this host cannot reach the root at all.
        """
        table = f"s3://{bucket}/{self.keys.partition(FAST)[0]}"
        return FastRootGoneError(
            f"The table's fast root {self.root.url} cannot be reached. What lies only there can be "
            "neither read nor written now; all records, and all files that a checkpoint has "
            f"copied, are safe in the table's own bucket. {why.message}",
            table=table,
            key=getattr(request, "key", None),
            remedy=f"{first} "
            * bool(first)
            + "If it comes back nothing is lost: try again. If it is gone for good, go on "
            f"without it: zero-rename data-root {table} none --apply; then see what is to be made "
            f"again: zero-rename lineage plan {table}",
        )

    def answered(self, request: Any, answer: Any) -> Any:
        """Convert the answer of the root's store to one with keys of the protocol."""
        match answer:
            case Found():
                return replace(answer, key=self._back(answer.key))
            case Deleted():
                return Deleted({self._back(key): code for key, code in answer.errors.items()})
            case ObjectPage():
                objects = tuple(replace(it, key=self._back(it.key)) for it in answer.objects)
                return replace(
                    answer, objects=objects, prefixes=tuple(map(self._back, answer.prefixes))
                )
            case UploadPage():
                below = self.real(request.prefix)
                its = (upload for upload in answer.uploads if upload.key.startswith(below))
                uploads = tuple(replace(upload, key=self._back(upload.key)) for upload in its)
                return replace(answer, uploads=uploads)
        return answer


def is_fast(key: str) -> bool:
    """Return whether a data file lies only in a fast root."""
    return FAST in key


def by_place(bucket: str, request: DeleteMany) -> dict[FastPlace | None, DeleteMany]:
    """Split a deletion into one for each place of its keys."""
    items: dict[FastPlace | None, list[tuple[str, str | None]]] = {}
    for key, etag in request.items:
        items.setdefault(FastPlace.of(bucket, key), []).append((key, etag))
    return {place: DeleteMany(tuple(its)) for place, its in items.items()}
