"""The commands about rights and rules of a bucket: what to grant, and what to let expire."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..committer import Table, TableRoot
from ..committer.doctor import backstop
from ..committer.maintenance.access_policy import Role, access_policy
from .ages import age_option
from .output import DRY, Apply, AsJson, Url, refusals, say


def policy(
    role: Annotated[
        Role, typer.Argument(help="Who it is for.", metavar="reader|writer|maintainer")
    ],
    table: Url,
    as_json: Annotated[
        bool, typer.Option("--json", help="What is printed is a JSON document in any case.")
    ] = False,
) -> None:
    """Print the IAM policy of the least rights on a table. Asks no store."""
    with refusals():
        root = TableRoot.parse(table)
    typer.echo(json.dumps(access_policy(role, root), indent=None if as_json else 2))


def lifecycle(
    table: Url,
    days: Annotated[
        int | None,
        typer.Option(help="Abort uploads after so many. Default: 7, more where jobs are longer."),
    ] = None,
    max_duration: Annotated[
        float | None,
        age_option("How long the longest job may run. Default: 24h, or an open job's own."),
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Print a lifecycle rule that aborts uploads nobody cleaned up, or put it into the bucket.

    With --apply the bucket's other rules stay as they are."""
    with refusals():
        opened = Table(table)
        rule = opened.run(backstop(opened.root, days, max_duration, apply))
    typer.echo(json.dumps({"Rules": [rule.document()]}, indent=None if as_json else 2))
    if apply:
        say(f"The bucket {opened.root.bucket} has the rule {rule.name!r} now.")
    else:
        say(f"{DRY} A tool that puts these rules into a bucket replaces those that are there.")
