"""Lifecycle rules of a bucket: the keys that they concern, and their aborts, deletions, moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Error codes for a bucket without lifecycle rules, or a store that does not support them.
_NO_RULES = {
    "NoSuchLifecycleConfiguration",
    "NotImplemented",
    "MethodNotAllowed",
    "501",
    "405",
    "404",
}


#: Members of a bucket's configuration, besides the rules themselves, that a write must repeat.
_OF_ALL_RULES = ("TransitionDefaultMinimumObjectSize",)
#: Storage classes whose objects must be restored before they can be read.
ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})


@dataclass(frozen=True)
class LifecycleRule:
    """An enabled lifecycle rule.

    :param name: its ID; without one, a description by its prefix.
    :param prefix: the rule concerns only keys that begin with it.
    :param abort_days: whole days after which it aborts an upload that is not completed; ``None``:
        it aborts none.
    :param expires: it deletes objects by age or date.
    :param archives: the archive class to which it moves objects by age or date, where they cannot
        be read at once; ``None``: it moves none there.
    :param tags: it concerns only objects with all of these tags.
    :param larger: it concerns only objects of more bytes; ``smaller``: only objects of fewer bytes,
        if given.
    :param expire_days: the age in days at which it deletes objects; ``None``: it deletes none, or
        by date.
    """

    name: str
    prefix: str
    abort_days: int | None = None
    expires: bool = False
    archives: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    larger: int = 0
    smaller: int | None = None
    expire_days: int | None = None

    @staticmethod
    def of(rule: Mapping[str, Any]) -> LifecycleRule:
        """Read a rule from S3's description of it."""
        where = rule.get("Filter") or {}
        where = {**where, **(where.get("And") or {})}
        prefix = str(rule.get("Prefix") or where.get("Prefix") or "")
        days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        tags = [*where.get("Tags", ()), *([where["Tag"]] if where.get("Tag") else [])]
        expiration = rule.get("Expiration", {})
        classes = [it.get("StorageClass") for it in rule.get("Transitions", ())]
        smaller = where.get("ObjectSizeLessThan")
        return LifecycleRule(
            str(rule.get("ID") or f"rule for {prefix!r}"),
            prefix,
            None if days is None else int(days),
            bool({"Days", "Date"} & set(expiration)),
            next((it for it in classes if it in ARCHIVES), None),
            {str(tag["Key"]): str(tag["Value"]) for tag in tags},
            int(where.get("ObjectSizeGreaterThan") or 0),
            None if smaller is None else int(smaller),
            None if expiration.get("Days") is None else int(expiration["Days"]),
        )

    def document(self) -> dict[str, Any]:
        """Return S3's description of this rule, which aborts uploads."""
        return {
            "ID": self.name,
            "Status": "Enabled",
            "Filter": {"Prefix": self.prefix},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": self.abort_days},
        }

    def concerns(self, folder: str, tags: Mapping[str, str] | None = None) -> bool:
        """Return whether the rule may concern objects below a folder, of any size above zero.

        :param folder: the folder's prefix, which ends with a slash.
        :param tags: the objects' tags; ``None``: they have none, like records and most files.
        """
        sizes = self.smaller is None or self.larger + 1 < self.smaller
        below = folder.startswith(self.prefix) or self.prefix.startswith(folder)
        return below and sizes and self.tags.items() <= (tags or {}).items()


def in_older_form(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of rules that have their prefix outside of a filter.

    This is the form of S3's first API. S3 refuses a list with rules of both forms.
    """
    return [LifecycleRule.of(rule).name for rule in rules if "Prefix" in rule]


@dataclass(frozen=True)
class LifecycleConfiguration:
    """A bucket's lifecycle rules in the store's form, enabled or not.

    :param defaults: what the store says of all rules together. S3 falls back to its present default
        for a list that is written without it.
    """

    rules: Sequence[dict[str, Any]] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


def configuration_of(client: Any, bucket: str) -> LifecycleConfiguration:
    """Return a bucket's rules.

    :param client: a client of boto3.
    """
    # Not at the top: the requests import these rules, and a DAG file must not load boto.
    from botocore.exceptions import ClientError

    from .error_translation import code_of

    try:
        answer = client.get_bucket_lifecycle_configuration(Bucket=bucket)
    except ClientError as error:
        if code_of(error) in _NO_RULES:
            return LifecycleConfiguration()
        raise
    said = {name: answer[name] for name in _OF_ALL_RULES if answer.get(name)}
    return LifecycleConfiguration(answer.get("Rules", []), said)
