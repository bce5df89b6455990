"""Access policies of the least rights: what readers, writers and maintainers of a table may do, and
what submits their jobs to a service.

Each action is needed by some request of this package, and no other is sent
(``tests/cli/test_policy.py`` takes them away one by one, ``tests/operators/test_services.py`` holds
a service's against what was called). Conditions on the prefix are of the kind *IfExists*: without
it the answer about an object that is not there becomes 403, since that question names no prefix (S3
User Guide, "Amazon S3 condition keys"). What a service's actions are on, and in which form, is said
by the Service Authorization Reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from ..errors import InvalidInputError
from ..format.layout import CONTROL, PACKAGES, TableRoot
from ..store.encryption import Algorithm, Encryption
from ..store.fast_root import FastPlace, FastRoot


class Role(StrEnum):
    """Who works with a table. A writer can also recover, purge, verify and adopt, and loads the
    package that a submitter has put beside the table; a maintainer besides asks what uploads hold,
    and what the bucket's lifecycle rules are. Airflow is a writer that puts the package there, and
    has a service run the application."""

    READER = "reader"
    WRITER = "writer"
    MAINTAINER = "maintainer"
    AIRFLOW = "airflow"


class Service(StrEnum):
    """What runs an application for one of Airflow's operators. Those that are none of AWS know
    their own rights."""

    EMR_SERVERLESS = "emr-serverless"
    EMR_STEPS = "emr-steps"
    EMR_CONTAINERS = "emr-containers"
    GLUE = "glue"
    KUBERNETES = "kubernetes"
    DATABRICKS = "databricks"


def _calls(service: str, *operations: str) -> tuple[str, ...]:
    return tuple(f"{service}:{operation}" for operation in operations)


_SERVERLESS = "arn:aws:emr-serverless:*:*:/applications/{}"
_CONTAINERS = "arn:aws:emr-containers:*:*:/virtualclusters/{}"
#: By service, what its operator calls on which resource; the braces are for the id of the
#: application, cluster or virtual cluster, or the name of the job.
_CALLS: Mapping[Service, Mapping[str, tuple[str, ...]]] = {
    Service.EMR_SERVERLESS: {
        _SERVERLESS: _calls(
            "emr-serverless", "GetApplication", "StartApplication", "StartJobRun", "ListJobRuns"
        ),
        f"{_SERVERLESS}/jobruns/*": _calls("emr-serverless", "GetJobRun", "CancelJobRun"),
    },
    Service.EMR_STEPS: {
        "arn:aws:elasticmapreduce:*:*:cluster/{}": _calls(
            "elasticmapreduce",
            *("AddJobFlowSteps", "ListSteps", "DescribeStep", "CancelSteps", "DescribeCluster"),
        ),
        # For a cluster that is named by job_flow_name.
        "*": _calls("elasticmapreduce", "ListClusters"),
    },
    Service.EMR_CONTAINERS: {
        _CONTAINERS: _calls("emr-containers", "StartJobRun", "ListJobRuns"),
        f"{_CONTAINERS}/jobruns/*": _calls("emr-containers", "DescribeJobRun", "CancelJobRun"),
    },
    Service.GLUE: {
        "arn:aws:glue:*:*:job/{}": _calls(
            "glue", "GetJob", "StartJobRun", "GetJobRun", "GetJobRuns", "BatchStopJobRun"
        )
    },
}
#: The services that a job's role is passed to when it is started.
_PASSED_TO = {Service.EMR_SERVERLESS: "emr-serverless.amazonaws.com"}
_READING = ("s3:GetObject",)
_WRITING = ("s3:PutObject", "s3:AbortMultipartUpload")
_MAINTAINING = ("s3:ListMultipartUploadParts",)


def access_policy(
    role: Role,
    root: TableRoot,
    *,
    fast: FastRoot | None = None,
    packages: str | None = None,
    service: Service | None = None,
    of: str = "*",
    job_role: str = "arn:aws:iam::*:role/*",
    key: str | None = None,
) -> dict[str, Any]:
    """A policy document, for a user, a role or a group: it names no principal.

    :param fast: where jobs' files lie first; of the keys that are used there only what is about its
        bucket is needed.
    :param packages: where submitters put the package, ``bucket/prefix/``; ``None`` for the folder
        of the table's bucket that they choose themselves.
    :param service: of Airflow's operator; for :attr:`Role.AIRFLOW` alone.
    :param of: the id of the service's application, cluster or virtual cluster, or its job's name.
    :param job_role: the ARN of the role that jobs run under.
    :param key: the KMS key that the table is encrypted with, by its ARN, id or alias; ``None``:
        none, or one whose own policy grants its use.
    :raises InvalidInputError: no service for Airflow, or one for another role; or no KMS key.
    """
    if (role is Role.AIRFLOW) != (service is not None):
        raise InvalidInputError(
            f"The role {role} {'wants --operator' if service is None else 'has no --operator'}.",
            remedy=f"Give --operator for {Role.AIRFLOW} only: {', '.join(Service)}. Where Airflow "
            f"starts spark-submit itself, it has the role {Role.WRITER}.",
        )
    bucket, inside = f"arn:aws:s3:::{root.bucket}", f"arn:aws:s3:::{root.bucket}/{root.prefix}/*"
    writes, maintains = role is not Role.READER, role is Role.MAINTAINER
    objects = (*_READING, *(_WRITING if writes else ()), *(_MAINTAINING if maintains else ()))
    listing = ("s3:ListBucket", *(("s3:ListBucketMultipartUploads",) if writes else ()))
    statements: list[dict[str, Any]] = [
        _allow("Objects", objects, inside),
        _allow("Listings", listing, bucket)
        | {"Condition": {"StringLikeIfExists": {"s3:prefix": f"{root.prefix}/*"}}},
    ]
    if writes:
        # DeleteObjects is a request to the bucket, and Ceph wants the right on its ARN, too.
        statements.append(_allow("Removals", ("s3:DeleteObject",), inside, bucket))
        package = packages or f"{root.bucket}/{PACKAGES}/"
        statements += _of_package(package, root.bucket, puts=role is Role.AIRFLOW)
        statements.append(_of_tries(root, bucket))
    place = fast and FastPlace.of(root.bucket, root.fast_data_prefix(fast))
    if place:
        statements += _of_fast_root(place, listing, writes)
    if maintains:
        buckets = (bucket, *([f"arn:aws:s3:::{place.root.bucket}"] if place else []))
        statements.append(_allow("Lifecycle", ("s3:GetLifecycleConfiguration",), *buckets))
    if key is not None:
        statements.append(_of_key(key, writes))
    if service is not None:
        statements += _of_service(service, of, job_role)
    return {"Version": "2012-10-17", "Statement": statements}


def _of_tries(root: TableRoot, bucket: str) -> dict[str, Any]:
    """Looking whether runs have written by one of Hadoop's committers, whose ledger lies beside the
    table (:mod:`~.s3a.runs.ledger`): before a load, in maintenance and for conflicts. To write by
    them needs more."""
    parent, _, name = root.prefix.rpartition("/")
    ledger = "/".join(filter(None, (parent, CONTROL, "s3a-runs", name)))
    condition = {"StringLikeIfExists": {"s3:prefix": f"{ledger}/*"}}
    return _allow("Tries", ("s3:ListBucket",), bucket) | {"Condition": condition}


def _of_fast_root(place: FastPlace, listing: tuple[str, ...], writes: bool) -> list[dict[str, Any]]:
    """What the table's own bucket needs for its objects, where some of them lie first. Uploads are
    listed there without a prefix."""
    bucket = f"arn:aws:s3:::{place.root.bucket}"
    inside = f"{bucket}/{place.there}*"
    condition = {"StringLikeIfExists": {"s3:prefix": f"{place.there}*"}}
    statements = [
        _allow("FastObjects", (*_READING, *(_WRITING if writes else ())), inside),
        _allow("FastListings", listing, bucket) | {"Condition": condition},
    ]
    if writes:
        statements.append(_allow("FastRemovals", ("s3:DeleteObject",), inside, bucket))
    return statements


def _of_key(key: str, writes: bool) -> dict[str, Any]:
    """The use of a KMS key by the store: to read, which uploads in parts do, too, and to write. A
    policy names no alias as a resource (AWS KMS Developer Guide, "Using aliases to control
    access")."""
    Encryption.named(Algorithm.SSE_KMS, key)
    actions = ("kms:Decrypt", *(("kms:GenerateDataKey",) if writes else ()))
    alias = key if key.startswith("alias/") else "".join(key.partition(":alias/")[1:])[1:]
    if alias:
        condition = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}}
        return _allow("Key", actions, "arn:aws:kms:*:*:key/*") | {"Condition": condition}
    return _allow("Key", actions, key if key.startswith("arn:") else f"arn:aws:kms:*:*:key/{key}")


def _of_package(place: str, known: str, puts: bool) -> list[dict[str, Any]]:
    """Loading the package; and looking whether it is there, and putting it there.

    :param known: the bucket that may be listed already.
    """
    bucket, _, prefix = place.partition("/")
    actions = (*_READING, *(("s3:PutObject",) if puts else ()))
    statements = [_allow("Package", actions, f"arn:aws:s3:::{place}*")]
    if puts and bucket != known:
        listing = _allow("Packages", ("s3:ListBucket",), f"arn:aws:s3:::{bucket}")
        condition = {"StringLikeIfExists": {"s3:prefix": f"{prefix}*"}}
        statements.append(listing | {"Condition": condition})
    return statements


def _of_service(service: Service, of: str, job_role: str) -> list[dict[str, Any]]:
    calls = _CALLS.get(service, {})
    statements = [
        _allow(f"Service{number}", actions, resource.format(of))
        for number, (resource, actions) in enumerate(calls.items(), 1)
    ]
    if service in _PASSED_TO:
        condition = {"StringEquals": {"iam:PassedToService": _PASSED_TO[service]}}
        passing = _allow("JobRole", ("iam:PassRole",), job_role)
        statements.append(passing | {"Condition": condition})
    return statements


def _allow(name: str, actions: tuple[str, ...], *resources: str) -> dict[str, Any]:
    return {"Sid": name, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
