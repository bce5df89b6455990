"""Multipart uploads under way below a folder, but those of this package's own committer."""

from __future__ import annotations

from ...committer.store import listing
from ...committer.store.requests import ListedUpload, ServerName, Step
from .magic_paths import is_native

#: A store that lists uploads by prefix as it should; others may show none, as MinIO does.
_LISTS_BY_PREFIX = "AmazonS3"


def uploads_below(prefix: str) -> Step[list[ListedUpload]]:
    """The uploads below a folder, with a slash at its end; ``""`` for the whole bucket.

    A store may show none for a prefix and all for the bucket: where the first shows none, the
    second is asked, unless the store is known to do as it should.
    """
    found = yield from listing.list_uploads(prefix)
    if not found and prefix and (yield from ServerName()) != _LISTS_BY_PREFIX:
        found = yield from listing.list_uploads("")
    # A store that pages badly lists an upload twice.
    unique = {(u.key, u.upload_id): u for u in found if u.key.startswith(prefix)}
    return [u for u in unique.values() if not is_native(u.key)]
