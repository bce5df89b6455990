"""Configurations of S3 Intelligent-Tiering: which objects they archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The storage class whose objects a bucket's configurations are about.
INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
#: Where there are no such configurations. Stores that do not know the question list objects.
_NONE = {"NoSuchConfiguration", "NotImplemented", "MethodNotAllowed", "501", "405", "404"}


@dataclass(frozen=True)
class TieringRule:
    """An enabled configuration that moves objects of that class, when nobody has read them for some
    days, to a tier where they cannot be read at once. Each has such a tier: the others need none.

    :param prefix: the keys that it concerns begin with it.
    :param tier: ``ARCHIVE_ACCESS`` or ``DEEP_ARCHIVE_ACCESS``, the first that it has.
    :param tags: it concerns objects that have all of these only.
    """

    name: str
    prefix: str
    days: int
    tier: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(document: Mapping[str, Any]) -> TieringRule:
        """A configuration as S3 describes it."""
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
        """Whether objects below ``folder``, which ends with a slash, may be among the rule's. Tags
        narrow it, and jobs may give any."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)


def tierings_of(client: Any, bucket: str) -> Iterator[TieringRule]:
    """A bucket's enabled configurations; none where the store has no such thing.

    :param client: boto3's.
    """
    # Not above: the requests name these rules, and a DAG file is to load no boto.
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
            return  # A list of objects may be cut off, too.
        token = {"ContinuationToken": following}
