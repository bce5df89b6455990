"""Calls of botocore, and whether a policy allows them: of S3 and the services that run Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pytest
from botocore.client import BaseClient

#: By operation of S3, the right that it wants; on keys, unless on the bucket by a prefix.
_RIGHTS = {
    **dict.fromkeys(("HeadObject", "GetObject"), "s3:GetObject"),
    **dict.fromkeys(
        ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"),
        "s3:PutObject",
    ),
    **dict.fromkeys(("DeleteObject", "DeleteObjects"), "s3:DeleteObject"),
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
#: By service, how IAM writes what is called upon.
_RESOURCES = {
    "emr-serverless": "emr-serverless:us-east-1:1:/applications/{applicationId}",
    "elasticmapreduce": "elasticmapreduce:us-east-1:1:cluster/{ClusterId}{JobFlowId}",
    "emr-containers": "emr-containers:us-east-1:1:/virtualclusters/{virtualClusterId}",
    "glue": "glue:us-east-1:1:job/{JobName}",
}


@dataclass(frozen=True)
class Call:
    """One call, by the name that its service signs with and the operation."""

    action: str
    given: dict[str, Any]

    def wants(self) -> Iterator[tuple[str, str, str | None]]:
        """Rights, each with the ARN of what it is on, and with the prefix of a listing."""
        service, _, operation = self.action.partition(":")
        if service != "s3":
            known = _Known(self.given)
            run = known["jobRunId"] or known["id"]
            arn = "arn:aws:" + _RESOURCES[service].format_map(known)
            yield self.action, f"{arn}/jobruns/{run}" if run else arn, None
            return
        right, bucket = _RIGHTS[operation], f"arn:aws:s3:::{self.given['Bucket']}"
        if operation.startswith("List"):
            yield right, bucket, self.given.get("Prefix", "")
            return
        keys = [it["Key"] for it in self.given.get("Delete", {}).get("Objects", ())]
        for key in keys or [self.given["Key"]]:
            yield right, f"{bucket}/{key}", None


class _Known(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return ""


@contextmanager
def recorded_calls(monkeypatch: pytest.MonkeyPatch, calls: list[Call]) -> Iterator[None]:
    """Note in the block what botocore is really asked."""
    original = BaseClient._make_api_call  # pyrefly: ignore[missing-attribute]

    def call(client: Any, operation: str, given: dict[str, Any]) -> Any:
        calls.append(Call(f"{client.meta.service_model.signing_name}:{operation}", given))
        return original(client, operation, given)

    with monkeypatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", call)
        yield


def refused(policy: dict[str, Any], calls: Sequence[Call]) -> list[tuple[str, str, str | None]]:
    """What a policy does not allow of some calls."""
    wanted = dict.fromkeys(right for call in calls for right in call.wants())
    return [it for it in wanted if not any(_allows(one, *it) for one in policy["Statement"])]


def _allows(statement: dict[str, Any], action: str, arn: str, prefix: str | None) -> bool:
    pattern = statement.get("Condition", {}).get("StringLikeIfExists", {}).get("s3:prefix", "*")
    return (
        action in statement["Action"]
        and any(fnmatchcase(arn, resource) for resource in statement["Resource"])
        and (prefix is None or fnmatchcase(prefix, pattern))
    )
