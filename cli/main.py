"""The program and its commands. Each prints a table, or one JSON document with ``--json``.

A command that deletes or decides is dry until ``--apply``. Exit codes: :class:`.output.Exit`, and
docs/commands.md by command.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from ..committer import (
    AdoptAction,
    OpenJob,
    Outcome,
    RebuildAction,
    RebuiltHead,
    RepairAction,
    Table,
)
from ..committer.errors import InvalidInputError, StoreRefusedError, ZeroRenameError, counted
from ..committer.format.job_spec import TableLayout
from ..s3a.runs.ledger_problems import ledger_problems
from ..tables import DeltaTable
from . import (
    catalog,
    conflicts,
    content,
    delta,
    encryption,
    fast_root,
    lineage,
    log_store,
    past,
    publishing,
    s3a,
    upkeep,
    uploads,
)
from .amounts import MaxDuration, age_option
from .help_page import arrange
from .output import (
    DRY,
    EXIT_CODES,
    HADOOPS,
    Apply,
    AsJson,
    Exit,
    Refusing,
    Url,
    counting,
    is_of_hadoop,
    look_where,
    plain,
    print_rows,
    say,
)
from .policy import lifecycle, policy
from .service_committers import Conf, ConfFile, OfService, OfWord, Release, print_committers
from .tables import open_table, refuse_option, table_of_directories, why_no_table


def _say_version(asked: bool) -> None:
    """Print the version and exit if it was asked for.

    :raises typer.Exit: it was asked for.
    """
    if asked:
        version = sys.modules[__name__.partition(".")[0]].__version__
        typer.echo(f"zero-rename {version}")
        raise typer.Exit


app = typer.Typer(
    cls=Refusing,
    no_args_is_help=True,
    add_completion=False,
    help="Inspect, repair and maintain zero_rename tables on S3. Credentials and endpoint come "
    "from boto3's standard chain, AWS_ENDPOINT_URL included. A command that deletes or decides "
    "only says what it would do, until you give --apply.",
    epilog=EXIT_CODES,
)

for command in (
    *(content.compact, content.copy, content.delete, fast_root.checkpoint, fast_root.data_root),
    encryption.encryption,
    publishing.publish,
    *(upkeep.purge, upkeep.maintain, past.gc, content.show),
    *(conflicts.conflicts, conflicts.resolve, conflicts.keep_rows),
    *(past.history, past.undo, past.restore, past.retention, policy, lifecycle),
    log_store.log_store,
    *(s3a.checks, s3a.s3a_check, s3a.committers, s3a.s3a_jobs, s3a.s3a_recover),
):
    app.command()(command)
app.add_typer(uploads.app, name="uploads")
app.add_typer(catalog.app, name="catalog")
app.add_typer(lineage.app, name="lineage")


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_say_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options before a command."""


#: Without this message, a path with a typing error would look like a healthy table.
_NO_TABLE = "No job is open, and there is no zero_rename table here"


def _decision(job: OpenJob) -> str:
    if job.damage:
        return "damaged"
    return "unpublished" if job.unpublished else job.decided or "undecided"


@app.command()
def jobs(table: Url, as_json: AsJson = False) -> None:
    """List the jobs that are not completely cleaned up yet."""
    opened = open_table(table)
    found = opened.open_jobs(True) if isinstance(opened, DeltaTable) else opened.open_jobs()
    is_there = found or opened.exists()
    none = "No job is open" if is_there else _NO_TABLE
    rows = [
        (
            job.job,
            _decision(job),
            f"{job.age_seconds:.0f}",
            job.owner.dag_id or job.owner.application,
            job.owner.run_id,
            job.owner.try_number,
            job.owner.host,
        )
        for job in found
    ]
    columns = ("job", "decision", "silent for, s", "DAG or application", "run", "attempt", "host")
    print_rows(as_json, columns, rows, plain(found), f"{none}.")
    for job in found:
        if job.damage:
            say(f"{job.job}: {job.damage}")
    if not is_there and is_of_hadoop(table):
        say(HADOOPS)


@app.command()
def recover(
    table: Url,
    patience: upkeep.Patience = None,
    registered: catalog.Registered = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Recover every open job: finish committed ones, clean up aborted ones, fence dead ones."""
    catalog.check_registered(registered)
    opened = open_table(table)
    outcomes = opened.recover(patience) if apply else opened.plan_recovery(patience)
    rows = [(outcome.job, outcome.outcome, outcome.detail) for outcome in outcomes]
    columns = ("job", "outcome", "detail")
    print_rows(
        as_json, columns, rows, plain(outcomes), "No job is open: there is nothing to recover."
    )
    if any(outcome.outcome in upkeep.PLANNED for outcome in outcomes):
        say(DRY)
    unsynced = registered and apply and not catalog.register_settled(opened, registered)
    look_where(unsynced or any(outcome.outcome is Outcome.FAILED for outcome in outcomes))


@app.command()
def verify(table: Url, as_json: AsJson = False) -> None:
    """Compare the files that the heads, or a Delta table's log, name with those in the store.

    For heads it also compares the table's columns with those of files from other programs.
    """
    opened = open_table(table)
    with counting("footers read") as progress:
        findings = opened.verify(progress) if isinstance(opened, Table) else opened.verify()
    rows = [(finding.partition, finding.kind, finding.key, finding.detail) for finding in findings]
    columns = ("partition", "finding", "key", "detail")
    print_rows(as_json, columns, rows, plain(findings), "Nothing differs.")
    look_where(findings)


@app.command()
def adopt(
    table: Url,
    layout: Annotated[
        TableLayout | None,
        typer.Option(help="delta: make a Delta table of a directory; its files stay."),
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Make heads for partitions whose files are older than the table.

    It reads the footers of all their files: columns that the table does not have become the
    table's. With --layout delta, it makes a Delta table of a directory without a table, all of it
    or nothing.
    """
    opened = (
        DeltaTable(table)
        if layout is TableLayout.DELTA
        else table_of_directories(
            table,
            "its log names its files, so it has none to adopt",
            "Append the rows of other files by a job: save(…, layout='delta').",
        )
    )
    from ..s3a.recovery.recover import refuse_left_jobs

    opened.run(refuse_left_jobs(opened.root))
    with counting("footers read") as progress:
        report = opened.adopt(apply, progress)
    rows = [(e.partition, e.files, e.bytes, e.action, e.reason) for e in report.entries]
    columns = ("partition", "files", "bytes", "action", "why")
    nothing = "No partition has files without a head: there is nothing to adopt."
    print_rows(as_json, columns, rows, dataclasses.asdict(report), nothing)
    if report.columns and not as_json:
        say(f"The table {'gets' if apply else 'would get'} columns: {', '.join(report.columns)}.")
    for key, why in report.unfit.items():
        shown = "is not in the table" if layout is TableLayout.DELTA else "is not shown whole"
        say(f"{key} {shown}: {why}.")
    if any(entry.action is AdoptAction.WOULD_ADOPT for entry in report.entries):
        say(DRY)
    left = any(entry.action is AdoptAction.LEFT for entry in report.entries)
    look_where(left or bool(report.unfit))


@app.command()
def index(table: Url, as_json: AsJson = False) -> None:
    """Write the index. With it, readers open a table of many partitions in a few requests."""
    opened = table_of_directories(
        table,
        "its log has checkpoints instead of an index",
        f"zero-rename checkpoint {table} --apply",
    )
    written = opened.write_index()
    print_rows(as_json, ("index",), [("written",)] if written else [], {"written": written}, "")
    if not written:
        say("Another process wrote the index meanwhile, or the store refused; run it again.")
        raise typer.Exit(Exit.LOOK)


@app.command()
def repair(
    table: Url,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Apply the jobs without their lost files.")
    ] = False,
    job: Annotated[str | None, typer.Option(help="Only this job, zr1-….")] = None,
    apply: Apply = False,
    patience: Annotated[
        float | None,
        age_option(
            "How long the job's owner must have been silent: until then it may still complete the "
            "files. Give 0 if its process has ended. Default: the job's own, as for recover."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List lost files, missing heads and overwritten log entries; options repair them.

    Committed files with neither upload nor object: with --accept-loss, go on without them.
    Partitions whose heads are missing: with --apply, rebuild the heads from the decisions. Entries
    of a Delta table's log that another writer has overwritten: with --apply, commit them again, and
    with --accept-loss as well, accept the loss of those that cannot be committed again.
    """
    opened = open_table(table)
    if isinstance(opened, DeltaTable):
        refuse_option(opened, "repair of one job", job, "Leave --job out.")
        refuse_option(opened, "waiting for an owner", patience, "Leave --patience out.")
        delta.repair(opened, apply, accept_loss, as_json)
        return
    heads = [] if job is not None or accept_loss else opened.rebuild_heads(apply)
    if heads:
        _show_rebuilt(as_json, heads, apply)
        return
    found = opened.repair(accept_loss, job, patience)
    rows = [
        (job.job, job.action, file.partition, file.key, file.rows, file.size)
        for job in found
        for file in job.lost
    ]
    rows += [
        (job.job, job.action, None, "nothing is lost" if job.certain else "unknown", 0, 0)
        for job in found
        if not job.lost
    ]
    columns = ("job", "action", "partition", "lost file", "rows", "bytes")
    nothing = "No committed job is open: nothing can be lost."
    print_rows(as_json, columns, rows, plain(found), nothing)
    reported = [job for job in found if job.lost and job.action is RepairAction.REPORTED]
    for entry in reported:
        removes = (
            f"; its replace removes {counted(entry.removes, 'older file')} there"
            if entry.removes
            else ""
        )
        say(
            f"{entry.job} lost {counted(len(entry.lost), 'file')} with "
            f"{counted(entry.rows, 'row')}{removes}. Nothing was changed; "
            "--accept-loss applies the job without them."
        )
    left = [job for job in found if job.action is RepairAction.LEFT]
    for entry in left:
        say(
            f"{entry.job}: neither upload nor object exists of "
            f"{counted(len(entry.lost), 'file')} with {counted(entry.rows, 'row')}, but the job's "
            f"owner gave a sign of life {entry.silent_for:.0f} s ago and may still complete them. "
            "Nothing was changed. If its process has ended, give --patience 0."
        )
    unknown = [job for job in found if not job.certain]
    for entry in unknown:
        say(
            f"{entry.job}: the store does not list uploads (see zero-rename doctor), so it is "
            "unknown whether the job lost files. To finish the job: zero-rename recover "
            f"{table} --apply"
        )
    look_where(reported or left or unknown)


def _show_rebuilt(as_json: bool, heads: Sequence[RebuiltHead], apply: bool) -> None:
    """List partitions without a head, and what was done with each.

    :raises typer.Exit: some were not rebuilt.
    """
    rows = [
        (it.partition, it.action, it.version or None, it.files, it.rows, it.reason or None)
        for it in heads
    ]
    columns = ("partition without a head", "action", "version", "files", "rows", "why")
    print_rows(as_json, columns, rows, plain(heads), "")
    left = [it.partition for it in heads if it.action is RebuildAction.LEFT]
    if left:
        say(
            "Not rebuilt: restore these heads from a version or backup, or load these partitions "
            "again with mode replace."
        )
    if not apply and len(left) < len(heads):
        say(DRY)
    unfinished = [it.partition for it in heads if it.reason and it.partition not in left]
    look_where(left or unfinished or not apply)


@app.command()
def doctor(
    table: Annotated[
        str, typer.Argument(metavar="[TABLE]", help="The table's root, s3://bucket/prefix.")
    ] = "",
    max_duration: MaxDuration = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Record which guarantees the store no longer keeps.")
    ] = False,
    service: OfService = None,
    release: Release = "",
    conf: Conf = None,
    conf_file: ConfFile = None,
    committer: OfWord = None,
    as_json: AsJson = False,
) -> None:
    """Check rights, the store, lifecycle rules, jobs and uploads; list what is or will be wrong.

    With --service, say which committer a job of that service would use, and why. That sends no
    request.
    """
    of_table = {"TABLE": table, "--max-duration": max_duration, "--apply": apply}
    if service is not None:
        if given := [name for name, value in of_table.items() if value]:
            raise InvalidInputError(
                f"{', '.join(given)} is given with --service, which tells of a job's settings and "
                "sends no request. Nothing was checked.",
                remedy="Check the table by a call of its own, without --service.",
            )
        print_committers(service, release, conf or (), conf_file, committer, as_json)
        return
    of_service = {
        "--release": release,
        "--conf": conf,
        "--conf-file": conf_file,
        "--committer": committer,
    }
    if given := [name for name, value in of_service.items() if value]:
        raise InvalidInputError(
            f"{', '.join(given)} is given without --service, whose job it would be about.",
            remedy="Give --service, too, or leave it out.",
        )
    if not table:
        raise InvalidInputError("There is nothing to check.", remedy="Give a table, or --service.")
    opened = open_table(table)
    remedy = "Leave --apply out: what its store keeps was found by its first job."
    refuse_option(opened, "record of its store's facts", apply, remedy)
    if apply and isinstance(opened, Table):
        opened.renew_facts()
    found = opened.doctor(max_duration)
    if isinstance(opened, Table):
        with suppress(StoreRefusedError):  # Without the right to list beside the table.
            found += opened.run(ledger_problems(opened.root))
    exists = opened.exists()
    rows = [(c.what, c.subject, c.detail, c.remedy) for c in found]
    columns = ("problem", "about", "found", "what to do")
    print_rows(as_json, columns, rows, plain(found), "Nothing is wrong.")
    if not exists and not any(it.what == "damaged" for it in found):
        why = why_no_table(opened) or "There is no table here yet."
        say(f"{why} Only the store and the rights were checked.")
        with suppress(ZeroRenameError):  # The advice alone is missing then.
            if is_of_hadoop(table):
                say(HADOOPS)
    look_where(found)


arrange(app)


def main() -> None:
    """Run the console script."""
    app()
