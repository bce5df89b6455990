"""Lifecycle rules of a bucket: what they abort and delete, and below which keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: A bucket without lifecycle rules, or a store that has no such thing.
_NO_RULES = {
    "NoSuchLifecycleConfiguration",
    "NotImplemented",
    "MethodNotAllowed",
    "501",
    "405",
    "404",
}


#: Storage classes whose objects are read only after they were restored.
ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})


@dataclass(frozen=True)
class LifecycleRule:
    """An enabled rule.

    :param name: its ID, or what it is for where it has none.
    :param prefix: the keys that it concerns begin with it.
    :param abort_days: whole days after which it aborts an upload that is not completed.
    :param expires: it deletes objects by age or date.
    :param archives: the class to which it moves objects by age or date, where they cannot be read
        at once.
    :param tags: it concerns objects that have all of these only.
    :param larger: it concerns objects of more bytes only; ``smaller``: of fewer, if that is said.
    """

    name: str
    prefix: str
    abort_days: int | None = None
    expires: bool = False
    archives: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    larger: int = 0
    smaller: int | None = None

    @staticmethod
    def of(rule: Mapping[str, Any]) -> LifecycleRule:
        """A rule as S3 describes it."""
        where = rule.get("Filter") or {}
        where = {**where, **(where.get("And") or {})}
        prefix = str(rule.get("Prefix") or where.get("Prefix") or "")
        days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        tags = [*where.get("Tags", ()), *([where["Tag"]] if where.get("Tag") else [])]
        classes = [it.get("StorageClass") for it in rule.get("Transitions", ())]
        smaller = where.get("ObjectSizeLessThan")
        return LifecycleRule(
            str(rule.get("ID") or f"rule for {prefix!r}"),
            prefix,
            None if days is None else int(days),
            bool({"Days", "Date"} & set(rule.get("Expiration", {}))),
            next((it for it in classes if it in ARCHIVES), None),
            {str(tag["Key"]): str(tag["Value"]) for tag in tags},
            int(where.get("ObjectSizeGreaterThan") or 0),
            None if smaller is None else int(smaller),
        )

    def document(self) -> dict[str, Any]:
        """A rule that aborts uploads, as S3 takes it."""
        return {
            "ID": self.name,
            "Status": "Enabled",
            "Filter": {"Prefix": self.prefix},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": self.abort_days},
        }

    def concerns(self, folder: str, tags: Mapping[str, str] | None = None) -> bool:
        """Whether objects below ``folder``, which ends with a slash, may be among the rule's: of
        any size but none.

        :param tags: theirs; ``None``: they have none, as records and most files.
        """
        sizes = self.smaller is None or self.larger + 1 < self.smaller
        below = folder.startswith(self.prefix) or self.prefix.startswith(folder)
        return below and sizes and self.tags.items() <= (tags or {}).items()


def in_older_form(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of rules that have their prefix beside a filter's place, as S3's first API had it:
    S3 takes them in no list with others."""
    return [LifecycleRule.of(rule).name for rule in rules if "Prefix" in rule]


def rules_of(client: Any, bucket: str) -> list[dict[str, Any]]:
    """A bucket's rules as the store keeps them, enabled or not; none where it has no such thing.

    :param client: boto3's.
    """
    # Not above: the requests name these rules, and a DAG file is to load no boto.
    from botocore.exceptions import ClientError

    from .error_translation import code_of

    try:
        return client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", [])
    except ClientError as error:
        if code_of(error) in _NO_RULES:
            return []
        raise
