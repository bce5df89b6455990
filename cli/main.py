"""The commands. Each prints a table, or one JSON document with ``--json``.

Exit codes: 0 done; 1 something needs a look (a job could not be settled, files differ); 2 the
command was refused.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Sheet

from ..committer import Outcome, RepairAction, Table, ZeroRenameError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Look after zero_rename tables on S3. Credentials and endpoint come from boto3's standard "
    "chain, AWS_ENDPOINT_URL included.",
)

Url = Annotated[str, typer.Argument(metavar="TABLE", help="The table's root, s3://bucket/prefix.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Patience = Annotated[
    float | None,
    typer.Option(
        help="Seconds an undecided job may be silent before it is declared dead. Default: ten of "
        "the job's own intervals, or its maximum duration where nobody gives signs of life.",
        min=0.0,
    ),
]


@contextmanager
def _refusals() -> Iterator[None]:
    """Errors of this package as one paragraph on standard error, exit code 2."""
    try:
        yield
    except ZeroRenameError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise typer.Exit(2) from error


def _print(as_json: bool, columns: Sequence[str], rows: Sequence[Sequence[Any]], document: Any):
    if as_json:
        typer.echo(json.dumps(document, indent=2, default=str))
        return
    sheet = Sheet(*columns)
    for row in rows:
        sheet.add_row(*("" if cell is None else str(cell) for cell in row))
    # Cells are keys and ids: to wrap them would break them for who copies one.
    console = Console(width=None if sys.stdout.isatty() else 240, markup=False, highlight=False)
    console.print(sheet)


def _plain(records: Sequence[Any]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(record) for record in records]


@app.command()
def jobs(table: Url, as_json: AsJson = False) -> None:
    """List the jobs that are not wholly cleaned up yet."""
    with _refusals():
        found = Table(table).open_jobs()
    rows = [
        (
            job.job,
            job.decided or "undecided",
            f"{job.age_seconds:.0f}",
            job.owner.dag_id or job.owner.application,
            job.owner.run_id,
            job.owner.try_number,
            job.owner.host,
        )
        for job in found
    ]
    columns = ("job", "decision", "silent for, s", "DAG or application", "run", "try", "host")
    _print(as_json, columns, rows, _plain(found))


@app.command()
def recover(table: Url, patience: Patience = None, as_json: AsJson = False) -> None:
    """Settle every open job: finish committed ones, clean up aborted ones, fence dead ones."""
    with _refusals():
        outcomes = Table(table).recover(patience)
    rows = [(outcome.job, outcome.outcome, outcome.detail) for outcome in outcomes]
    _print(as_json, ("job", "outcome", "detail"), rows, _plain(outcomes))
    if any(outcome.outcome is Outcome.FAILED for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def purge(
    table: Url,
    patience: Patience = None,
    foreign: Annotated[
        bool, typer.Option(help="Abort uploads that no job of this package made, too, by age.")
    ] = False,
    older_than: Annotated[
        float | None, typer.Option(help="With --foreign: their least age, in seconds.", min=3600.0)
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recover, then abort the uploads that nobody will complete."""
    if foreign and older_than is None:
        raise typer.BadParameter("--foreign needs --older-than SECONDS")
    with _refusals():
        report = Table(table).purge(older_than, foreign, dry_run, patience)
    rows = [(entry.key, entry.action, entry.reason) for entry in report.entries]
    rows += [(outcome.job, outcome.outcome, outcome.detail) for outcome in report.recovered]
    _print(as_json, ("upload or job", "action", "why"), rows, dataclasses.asdict(report))
    if any(outcome.outcome is Outcome.FAILED for outcome in report.recovered):
        raise typer.Exit(1)


@app.command()
def show(table: Url, as_json: AsJson = False) -> None:
    """Show the table's partitions as a reader sees them."""
    with _refusals():
        snapshot = Table(table).snapshot()
    names = sorted({*snapshot.epochs, *(file.partition for file in snapshot.files)})
    document = []
    for name in names:
        files = [file for file in snapshot.files if file.partition == name]
        counted = all(not file.is_foreign for file in files)
        document.append(
            {
                "partition": name,
                "epoch": snapshot.epochs.get(name, 0),
                "files": len(files),
                "rows": sum(file.rows for file in files) if counted else None,
                "bytes": sum(file.size for file in files),
            }
        )
    columns = ("partition", "epoch", "files", "rows", "bytes")
    _print(as_json, columns, [tuple(entry.values()) for entry in document], document)


@app.command()
def verify(table: Url, as_json: AsJson = False) -> None:
    """Compare what the heads name with what is in the store."""
    with _refusals():
        findings = Table(table).verify()
    rows = [(finding.partition, finding.kind, finding.key, finding.detail) for finding in findings]
    _print(as_json, ("partition", "finding", "key", "detail"), rows, _plain(findings))
    if findings:
        raise typer.Exit(1)


@app.command()
def repair(
    table: Url,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Apply the jobs without the files they lost.")
    ] = False,
    job: Annotated[str | None, typer.Option(help="Only this job, zr1-….")] = None,
    as_json: AsJson = False,
) -> None:
    """Name committed files whose uploads are gone; with --accept-loss, go on without them."""
    with _refusals():
        found = Table(table).repair(accept_loss, job)
    rows = [
        (job.job, job.action, file.partition, file.key, file.rows, file.size)
        for job in found
        for file in job.lost
    ]
    rows += [(job.job, job.action, None, "nothing is lost", 0, 0) for job in found if not job.lost]
    columns = ("job", "action", "partition", "lost file", "rows", "bytes")
    _print(as_json, columns, rows, _plain(found))
    reported = [job for job in found if job.lost and job.action is RepairAction.REPORTED]
    for entry in reported:
        typer.echo(
            f"{entry.job}: {len(entry.lost)} files with {entry.rows} rows are lost"
            + (f"; its replace removes {entry.removes} older files there" if entry.removes else "")
            + ". Nothing was changed; --accept-loss applies the job without them.",
            err=True,
        )
    if reported:
        raise typer.Exit(1)


@app.command()
def doctor(
    table: Url,
    max_duration: Annotated[
        float | None,
        typer.Option(help="Seconds the longest job may run. Default: 24 h, or an open job's own."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look for what is or will be wrong: lifecycle rules, dead jobs, left-over uploads."""
    with _refusals():
        found = Table(table).doctor(max_duration)
    rows = [(c.what, c.subject, c.detail, c.remedy) for c in found]
    _print(as_json, ("complaint", "about", "found", "what to do"), rows, _plain(found))
    if found:
        raise typer.Exit(1)


def main() -> None:
    """The console script."""
    app()
