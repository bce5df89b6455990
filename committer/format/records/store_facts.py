"""Facts about a store, found by a probe and kept in ``table.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ...errors import StoreUnfitError
from ..layout import TableRoot

#: A fact that a store kept when the table was made, and what follows where it does not any more.
_LOST = {
    "atomic": "conditional writes are carried out in two steps: two writers may both win",
    "conditional_put": "conditions of PUT are not kept, as on some stores once the bucket is "
    "versioned: writers overwrite each other unseen",
    "conditional_delete": "the ETag of a DELETE is not heeded: a file that somebody wrote again "
    "may be removed as the old one",
    "uploads_by_prefix": "listings of uploads by prefix are empty: what killed tasks left is not "
    "found, and jobs close over it",
    "uploads_listed": "listings do not show uploads: what killed tasks left cannot be found",
}
_RESURRECTS = "a second Complete brings a removed file back: appliers that do not look may do so"
#: Stores that keep conditional writes in one step, by a word of their Server header.
_COORDINATING = {
    "amazons3": "AWS S3",
    "cloudflare": "Cloudflare R2",
    "minio": "MinIO",
    "ceph": "Ceph",
    "seaweedfs": "SeaweedFS",
    "ozone": "Apache Ozone 2.2",
}


def other_stores(server: str) -> str:
    """Stores by which writers notice each other, for a remedy: none is the one at hand.

    :param server: what that one calls itself.
    """
    *names, last = (name for word, name in _COORDINATING.items() if word not in server.lower())
    return f"{', '.join(names)} or {last}"


@dataclass(frozen=True)
class StoreFacts:
    """What the probe found.

    :param server: the name the store gives itself.
    :param atomic: conditional writes are not known to be checked and written in two steps.
    :param conditional_put: If-None-Match and If-Match of PUT are kept, at least where nobody races.
    :param conditional_delete: the ETag of a DELETE is kept.
    :param uploads_by_prefix: a listing of uploads by prefix shows them.
    :param uploads_listed: a listing of the whole bucket's uploads shows them.
    :param complete_resurrects: a second Complete of an upload writes a deleted object again.
    """

    server: str = ""
    atomic: bool = True
    conditional_put: bool = True
    conditional_delete: bool = True
    uploads_by_prefix: bool = True
    uploads_listed: bool = True
    complete_resurrects: bool = False

    def weaker(self, other: StoreFacts) -> StoreFacts:
        """What is promised by both: of a store that was looked at twice."""
        kept = {
            field.name: getattr(self, field.name) and getattr(other, field.name)
            for field in fields(self)
            if field.name not in ("server", "complete_resurrects")
        }
        resurrects = self.complete_resurrects or other.complete_resurrects
        return replace(other, complete_resurrects=resurrects, **kept)

    def lost(self, now: StoreFacts) -> Mapping[str, str]:
        """What was promised and is not any more: by fact, what follows."""
        changed = {
            name: follows
            for name, follows in _LOST.items()
            if getattr(self, name) and not getattr(now, name)
        }
        if now.complete_resurrects and not self.complete_resurrects:
            changed["complete_resurrects"] = _RESURRECTS
        return changed

    def require_listing(self, root: TableRoot) -> None:
        """Refuse a store on which orphaned uploads could never be found.

        :raises StoreUnfitError: uploads under way cannot be listed.
        """
        if not self.uploads_listed:
            raise StoreUnfitError(
                f"The store ({self.server or 'unnamed'}) does not list multipart uploads under "
                "way, so what a killed task leaves could never be found. Only probe objects were "
                "written, and they were removed.",
                table=root.url,
                remedy="Grant s3:ListBucketMultipartUploads, or use a store that lists uploads.",
            )

    def require_coordination(self, root: TableRoot) -> None:
        """Refuse a store that cannot coordinate writers at all.

        :raises StoreUnfitError: conditional writes are not kept.
        """
        if not self.conditional_put:
            raise StoreUnfitError(
                f"The store ({self.server or 'unnamed'}) does not keep If-None-Match and If-Match "
                "conditions on PUT, so writers of one table could not notice each other. No data "
                "was written.",
                table=root.url,
                remedy=f"Use a store with conditional writes: {other_stores(self.server)}. Or "
                "write with coordination=none, which gives what Hadoop's S3A committers give: one "
                "writer at a time, no conflict detection, no recovery by others.",
            )
