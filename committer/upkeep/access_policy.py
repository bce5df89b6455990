"""Access policies with the least rights: for readers, writers and maintainers of a table, and for
Airflow when it submits jobs to a service.

Each action is needed by some request of this package, and the package needs no other actions
(``tests/cli/test_policy.py`` takes them away one by one; ``tests/operators/test_services.py``
compares a service's actions with the calls that were made). Conditions on the prefix are of the
kind *IfExists*. Without it the answer about a missing object becomes 403, since that request names
no prefix (S3 User Guide, "Amazon S3 condition keys"). The Service Authorization Reference says
which resources a service's actions apply to, and in which form.
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
    """A role of a program that works with a table.

    A writer can also recover, purge, verify and adopt, and downloads the package that a submitter
    has put beside the table. A maintainer can also list the parts of uploads and read the bucket's
    lifecycle rules. Airflow is a writer that uploads the package and starts the application on a
    service."""

    READER = "reader"
    WRITER = "writer"
    MAINTAINER = "maintainer"
    AIRFLOW = "airflow"


class Service(StrEnum):
    """A service that runs the application of one of Airflow's operators. The services outside AWS
    have rights of their own, which this module does not know."""

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
#: The calls of each service's operator, by the resource that they apply to. The braces stand for
#: the id of the application, cluster or virtual cluster, or for the name of the job.
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
        # For a cluster that is given by its name, job_flow_name.
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
#: The services that receive a job's role when the job is started.
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
    """Return the policy document of a role. It can be attached to a user, a role or a group, since
    it names no principal.

    :param fast: the fast root where jobs' files lie first. Credentials that are used there only
        need only the statements about its bucket.
    :param packages: where submitters put the package, ``bucket/prefix/``; ``None`` for the folder
        of the table's bucket that they choose by default.
    :param service: the service of Airflow's operator; for :attr:`Role.AIRFLOW` only.
    :param of: the id of the service's application, cluster or virtual cluster, or its job's name.
    :param job_role: the ARN of the role that jobs run under.
    :param key: the KMS key that the table is encrypted with: its ARN, id or alias; ``None``:
        the table has no key, or the key's own policy grants its use.
    :raises InvalidInputError: a service is missing for Airflow, or given for another role; or the
        KMS key is invalid.
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
        # DeleteObjects is a request to the bucket, and Ceph demands the right on its ARN, too.
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
    """Allow listing the ledger of runs by Hadoop's committers (:mod:`~.s3a.runs.ledger`).

    It lies beside the table. Loads, maintenance and searches for conflicts list it to see whether
    runs have written by one of these committers. Writing by them needs more rights."""
    parent, _, name = root.prefix.rpartition("/")
    ledger = "/".join(filter(None, (parent, CONTROL, "s3a-runs", name)))
    condition = {"StringLikeIfExists": {"s3:prefix": f"{ledger}/*"}}
    return _allow("Tries", ("s3:ListBucket",), bucket) | {"Condition": condition}


def _of_fast_root(place: FastPlace, listing: tuple[str, ...], writes: bool) -> list[dict[str, Any]]:
    """Allow requests to the bucket of a fast root, like those to the table's own bucket. Uploads
    are listed there without a prefix."""
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
    """Allow the store to use a KMS key: to read, which multipart uploads need too, and to write.

    An alias cannot be the resource of a policy, so it is a condition (AWS KMS Developer Guide,
    "Using aliases to control access")."""
    Encryption.named(Algorithm.SSE_KMS, key)
    actions = ("kms:Decrypt", *(("kms:GenerateDataKey",) if writes else ()))
    alias = key if key.startswith("alias/") else "".join(key.partition(":alias/")[1:])[1:]
    if alias:
        condition = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}}
        return _allow("Key", actions, "arn:aws:kms:*:*:key/*") | {"Condition": condition}
    return _allow("Key", actions, key if key.startswith("arn:") else f"arn:aws:kms:*:*:key/{key}")


def _of_package(place: str, known: str, puts: bool) -> list[dict[str, Any]]:
    """Allow downloading the package and, for a submitter, checking for it and uploading it.

    :param puts: whether the role uploads the package.
    :param known: the bucket that the role may list already.
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
