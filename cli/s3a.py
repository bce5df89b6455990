"""The commands about Hadoop's S3A committers that ask no store: what is checked, what is set."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..committer.errors import InvalidInputError
from .output import AsJson, print_rows, refusals


def checks(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Only these checks.")
    ] = None,
    committer: Annotated[
        str | None, typer.Option(help="Only what concerns this committer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what is checked of S3A settings before a job is submitted; docs/s3a.md says why."""
    from ..s3a.checks.run import CHECKS
    from ..s3a.checks.table import ALL

    known = {check.id: check for check in CHECKS}
    with refusals():
        if unknown := sorted(set(ids or ()) - set(known)):
            raise InvalidInputError(
                f"There is no check {unknown[0]!r}.", remedy="zero-rename checks lists them."
            )
        check_word(committer, ALL)
    chosen = [known[id] for id in ids] if ids else list(CHECKS)
    chosen = [check for check in chosen if committer is None or committer in check.committers]
    columns = ("check", "severity", "committers", "what is wrong", "what to do")
    rows = [(c.id, c.severity, ", ".join(c.committers), c.title, c.remedy) for c in chosen]
    shown = ("id", "severity", "committers", "title", "remedy")
    documents = [{name: getattr(check, name) for name in shown} for check in chosen]
    print_rows(as_json, columns, rows, documents, "No check concerns this committer.")


def committers(
    conf: Annotated[
        str | None,
        typer.Option(metavar="COMMITTER", help="Print its Spark settings, one per line."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the committers, or the settings of one of Hadoop's."""
    from ..s3a.hadoop.settings import COMMITTERS, S3ASettings

    if conf is None:
        rows = [(word, _ABOUT[word]) for word in COMMITTERS]
        documents = [dict(zip(("committer", "about"), row, strict=True)) for row in rows]
        print_rows(as_json, ("committer", "what it does"), rows, documents, "")
        return
    with refusals():
        settings = S3ASettings(conf).spark_conf()  # pyright: ignore[reportArgumentType]
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    for key, value in settings.items():
        typer.echo(f"{key} {value}")


def check_word(committer: str | None, words: tuple[str, ...]) -> None:
    """:raises InvalidInputError: a committer that is none of these."""
    if committer is not None and committer not in words:
        raise InvalidInputError(
            f"There is no committer {committer!r}.", remedy=f"Choose one of {', '.join(words)}."
        )


_ABOUT = {
    "zero_rename": "this package's own: atomic by partition, recovers by itself",
    "magic": "Hadoop's: tasks write uploads, the job completes them; for large files",
    "directory": "Hadoop's: by local disk and a shared file system; for many small files",
    "partitioned": "the same, and replaces the partitions that rows arrived for",
}
