"""Configurations of S3 Intelligent-Tiering, and the objects that they archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The storage class of the objects that such configurations concern.
INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
#: Error codes for a bucket without such configurations. Stores that do not know this request list
#: objects instead.
_NONE = {"NoSuchConfiguration", "NotImplemented", "MethodNotAllowed", "501", "405", "404"}


@dataclass(frozen=True)
class TieringRule:
    """An enabled configuration of S3 Intelligent-Tiering with an archive tier.

    It moves objects of :data:`INTELLIGENT_TIERING` that were not read for some days; in that tier
    they cannot be read at once. Each configuration has such a tier: other tiers need none.

    :param prefix: the configuration concerns only keys that begin with it.
    :param days: days without a read, after which objects are moved.
    :param tier: ``ARCHIVE_ACCESS`` or ``DEEP_ARCHIVE_ACCESS``, the first to which it moves objects.
    :param tags: it concerns only objects with all of these tags.
    """

    name: str
    prefix: str
    days: int
    tier: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(document: Mapping[str, Any]) -> TieringRule:
        """Read a configuration from S3's description of it."""
        where = document.get("Filter") or {}
        where = {**where, **(where.get("And") or {})}
        tags = [*where.get("Tags", ()), *([where["Tag"]] if where.get("Tag") else [])]
        first = min(document["Tierings"], key=lambda tiering: tiering["Days"])
        return TieringRule(
            str(document["Id"]),
            str(where.get("Prefix") or ""),
            int(first["Days"]),
            str(first["AccessTier"]),
            {str(tag["Key"]): str(tag["Value"]) for tag in tags},
        )

    def concerns(self, folder: str) -> bool:
        """Return whether the configuration may concern objects below a folder.

        Its tags do not count here, since a job may give its objects any tags.

        :param folder: the folder's prefix, which ends with a slash.
        """
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)


def tierings_of(client: Any, bucket: str) -> Iterator[TieringRule]:
    """Yield a bucket's enabled configurations; none if the store does not support them.

    :param client: a client of boto3.
    """
    # Not at the top: the requests import these rules, and a DAG file must not load boto.
    from botocore.exceptions import ClientError

    from .error_translation import code_of

    token: dict[str, str] = {}
    while True:
        try:
            answer = client.list_bucket_intelligent_tiering_configurations(Bucket=bucket, **token)
        except ClientError as error:
            if code_of(error) in _NONE:
                return
            raise
        found = answer.get("IntelligentTieringConfigurationList", ())
        for document in found:
            if document.get("Status") == "Enabled" and document.get("Tierings"):
                yield TieringRule.of(document)
        following = answer.get("NextContinuationToken")
        if not (found and following and answer.get("IsTruncated")):
            return  # A list of objects may be truncated, too.
        token = {"ContinuationToken": following}
