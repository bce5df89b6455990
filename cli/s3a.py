"""The commands about Hadoop's S3A committers that ask no store: what is checked, who can what."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer.errors import InvalidInputError
from .output import AsJson, print_rows, refusals

if TYPE_CHECKING:
    from ..s3a.checks.run import Check


def checks(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Print these checks in full, with their sources."),
    ] = None,
    committer: Annotated[
        str | None, typer.Option(help="Only what concerns this committer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what is checked of S3A settings before a job is submitted."""
    from ..s3a.checks.check import ALL
    from ..s3a.checks.run import CHECKS

    with refusals():
        known = {check.id: check for check in CHECKS}
        for id in ids or ():
            if id not in known:
                raise InvalidInputError(
                    f"There is no check {id!r}.", remedy="zero-rename checks lists them."
                )
        if committer is not None and committer not in ALL:
            raise InvalidInputError(
                f"There is no committer {committer!r}.", remedy=f"Choose one of {', '.join(ALL)}."
            )
    chosen = [known[id] for id in ids] if ids else list(CHECKS)
    chosen = [check for check in chosen if committer is None or committer in check.committers]
    if ids and not as_json:
        typer.echo("\n\n".join(map(_in_full, chosen)))
        return
    rows = [(c.id, c.severity, c.stage, _about(c.committers), c.title) for c in chosen]
    columns = ("check", "severity", "looked at", "committers", "what is wrong")
    print_rows(
        as_json,
        columns,
        rows,
        [dataclasses.asdict(check) for check in chosen],
        "No check concerns this committer.",
    )


def committers(
    conf: Annotated[
        str | None,
        typer.Option(metavar="COMMITTER", help="Print its Spark settings, one per line."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what each committer can do, by the nine attributes of the paper's Table V."""
    from ..s3a.hadoop.attributes import ATTRIBUTES, NAMES, TITLES

    if conf is not None:
        _settings(conf, as_json)
        return
    rows = [
        (TITLES[name], *(_answer(a.rows()[name], name in a.notes) for a in ATTRIBUTES.values()))
        for name in NAMES
    ]
    document: list[dict[str, Any]] = [
        {
            "committer": committer,
            "attributes": attributes.rows(),
            "notes": dict(attributes.notes),
            "source": attributes.source,
        }
        for committer, attributes in ATTRIBUTES.items()
    ]
    print_rows(as_json, ("attribute", *ATTRIBUTES), rows, document, "No committer is known.")
    if not as_json:
        for committer, attributes in ATTRIBUTES.items():
            for name, note in attributes.notes.items():
                typer.echo(f"* {committer}, {TITLES[name]}: {note}")


def _settings(committer: str, as_json: bool) -> None:
    from ..s3a.hadoop.settings import S3ASettings

    with refusals():
        settings = S3ASettings(committer).spark_conf()  # pyright: ignore[reportArgumentType]
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    for key, value in settings.items():
        typer.echo(f"{key} {value}")


def _answer(value: bool, has_note: bool) -> str:
    return ("yes" if value else "no") + (" *" if has_note else "")


def _about(committers: tuple[str, ...]) -> str:
    from ..s3a.checks.check import ALL, S3A

    return {ALL: "all", S3A: "all of S3A"}.get(committers) or ", ".join(committers)


def _in_full(check: Check) -> str:
    parts = (
        ("", f"{check.title}."),
        ("Why: ", check.reason),
        ("Source: ", f"{check.source}."),
        ("Remedy: ", check.remedy),
        ("Committers: ", f"{_about(check.committers)}."),
    )
    lines = [f"{check.id} ({check.severity}, {check.stage})"]
    for label, text in parts:
        lines += textwrap.wrap(label + text, 96, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
