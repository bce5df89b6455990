"""Facts about a store, found by a probe and kept in ``table.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ...errors import StoreUnfitError
from ..layout import TableRoot

#: By fact: what follows if the store had it when the table was made, and no longer has it.
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
#: Stores that check and carry out conditional writes in one step, by a word of their Server header.
_COORDINATING = {
    "amazons3": "AWS S3",
    "cloudflare": "Cloudflare R2",
    "minio": "MinIO",
    "ceph": "Ceph",
    "seaweedfs": "SeaweedFS",
    "ozone": "Apache Ozone 2.2",
}


def other_stores(server: str) -> str:
    """Name stores on which writers notice each other, for an error's remedy.

    :param server: the name of the store at hand, which is not among them.
    """
    *names, last = (name for word, name in _COORDINATING.items() if word not in server.lower())
    return f"{', '.join(names)} or {last}"


@dataclass(frozen=True)
class StoreFacts:
    """The facts about a store that the probe found.

    :param server: the name the store gives itself.
    :param atomic: the store is not known to check and carry out a conditional write in two steps.
    :param conditional_put: PUT obeys If-None-Match and If-Match, at least without a race.
    :param conditional_delete: DELETE obeys the ETag given with it: an object with another stays.
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
        """Combine two probes of one store: a fact counts if both of them found it."""
        kept = {
            field.name: getattr(self, field.name) and getattr(other, field.name)
            for field in fields(self)
            if field.name not in ("server", "complete_resurrects")
        }
        resurrects = self.complete_resurrects or other.complete_resurrects
        return replace(other, complete_resurrects=resurrects, **kept)

    def lost(self, now: StoreFacts) -> Mapping[str, str]:
        """Return the facts that the store had and no longer has, each with its consequence.

        :param now: the facts that a later probe found.
        """
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

        :raises StoreUnfitError: PUT does not obey conditions.
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
