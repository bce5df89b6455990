"""Commands about a bucket's rights and lifecycle rules: what to grant, and which uploads to
abort."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from ..committer import Table, TableRoot
from ..committer.errors import InvalidInputError
from ..committer.store.fast_root import FastRoot
from ..committer.upkeep.access_policy import Role, Service, access_policy
from ..committer.upkeep.doctor.examination import backstop
from ..committer.upkeep.log_guard import log_guard
from ..committer.upkeep.purging.upload_selection import UploadsPath
from .amounts import MaxDuration
from .output import DRY, Apply, AsJson, Url, say


class PolicyFor(StrEnum):
    """The policies that can be printed: one for each role at a table, and one for a bucket with
    Delta logs."""

    READER = Role.READER.value
    WRITER = Role.WRITER.value
    MAINTAINER = Role.MAINTAINER.value
    AIRFLOW = Role.AIRFLOW.value
    DELTA_LOG = "delta-log"


#: The defaults of ``--of`` and ``--job-role``.
_ANY, _ANY_ROLE = "*", "arn:aws:iam::*:role/*"


def policy(
    role: Annotated[
        PolicyFor,
        typer.Argument(
            help="The role that the policy is for. delta-log: a policy of the bucket, which "
            "refuses log entries of Delta tables below the URL that are put without a condition.",
            metavar="reader|writer|maintainer|airflow|delta-log",
        ),
    ],
    table: Url,
    data_root: Annotated[
        str | None, typer.Option(help="The table's data root, where its files lie first.")
    ] = None,
    operator: Annotated[
        Service | None,
        typer.Option(help="For airflow: the service on which its operator runs the application."),
    ] = None,
    of: Annotated[
        str,
        typer.Option(
            help="Id of the application, cluster or virtual cluster; name of the Glue job."
        ),
    ] = _ANY,
    job_role: Annotated[str, typer.Option(help="ARN of the role that jobs run under.")] = _ANY_ROLE,
    package_location: Annotated[
        str | None,
        typer.Option(
            help="As of the operator. Default: _zero_rename_packages/ in the table's bucket."
        ),
    ] = None,
    encryption_key: Annotated[
        str | None,
        typer.Option(help="The KMS key that the table is encrypted with, by its ARN, id or alias."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON document on one line.")
    ] = False,
) -> None:
    """Print the IAM policy with the least rights for a role at a table.

    A role is a reader, a writer, a maintainer, or an Airflow that submits loads. For delta-log,
    print the bucket policy that guards the logs of Delta tables. No request is sent.
    """
    _refuse_unused(
        role,
        {
            "--data-root": data_root,
            "--package-location": package_location,
            "--encryption-key": encryption_key,
            "--operator": operator,
        },
        {"--of": of != _ANY, "--job-role": job_role != _ANY_ROLE},
    )
    if role is PolicyFor.DELTA_LOG:
        document = log_guard(TableRoot.parse(table))
        typer.echo(json.dumps(document, indent=None if as_json else 2))
        say("Add the statement to the bucket's policy, on AWS: other stores may not know its keys.")
        return
    place = UploadsPath.parse(package_location) if package_location else None
    document = access_policy(
        Role(role.value),
        TableRoot.parse(table),
        fast=FastRoot.parse(data_root) if data_root else None,
        packages=f"{place.bucket}/{place.prefix}" if place else None,
        service=operator,
        of=of,
        job_role=job_role,
        key=encryption_key,
    )
    typer.echo(json.dumps(document, indent=None if as_json else 2))


def _refuse_unused(
    role: PolicyFor, of_tables: Mapping[str, object], of_airflow: Mapping[str, object]
) -> None:
    """Refuse options that the policy of a role does not depend on.

    :param of_tables: options that every role but delta-log has, with their values.
    :param of_airflow: options that only Airflow's role has.
    :raises InvalidInputError: one of them is given.
    """
    unused: dict[str, object] = {}
    if role is PolicyFor.DELTA_LOG:
        unused |= of_tables
    if role is not PolicyFor.AIRFLOW:
        unused |= of_airflow
    if given := [name for name, value in unused.items() if value]:
        raise InvalidInputError(
            f"{', '.join(given)} is given, and the policy {role} has nothing of it.",
            remedy="Leave it out, or choose another policy.",
        )


def lifecycle(
    table: Url,
    days: Annotated[
        int | None,
        typer.Option(
            help="Abort uploads after so many days. Default: 7, or more if jobs are longer."
        ),
    ] = None,
    max_duration: MaxDuration = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Print a lifecycle rule that aborts old uploads, or put it into the bucket.

    It is for uploads that nothing else has cleaned up. With --apply the bucket's other rules stay
    as they are.
    """
    opened = Table(table)
    rule = opened.tend(backstop(opened.root, days, max_duration, apply))
    typer.echo(json.dumps({"Rules": [rule.document()]}, indent=None if as_json else 2))
    if apply:
        say(f"The bucket {opened.root.bucket} has the rule {rule.name!r} now.")
    else:
        say(f"{DRY} A tool that puts these rules into a bucket replaces those that are there.")
