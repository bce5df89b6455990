"""The command about jobs of a Delta table that are written but not visible yet."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer.errors import InvalidInputError
from .output import DRY, Apply, AsJson, Url, plain, print_rows, say
from .tables import delta_table

if TYPE_CHECKING:
    from ..committer import UnpublishedJob
    from ..tables import DeltaTable

_COLUMNS = ("job", "rows", "files", "partitions", "opened, UTC", "kept until", "DAG", "run")


def publish(
    table: Url,
    job: Annotated[
        str,
        typer.Argument(metavar="[JOB]", help="The job's id. Without it, all that wait are listed."),
    ] = "",
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort the job instead, and delete its files.")
    ] = False,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Publish a job of a Delta table, written with publish=False; or list the jobs that wait."""
    why = "a job of a table of directories is visible once it commits"
    opened = delta_table(table, why, "Write a Delta table, by layout='delta'.")
    if (abort or apply) and not job:
        raise InvalidInputError(
            f"{'--abort' if abort else '--apply'} is given without a job. Nothing was changed.",
            table=table,
            remedy=f"Give the job's id: zero-rename publish {table} lists the jobs that wait.",
        )
    if apply:
        _decide(opened, job, abort, as_json)
        return
    waiting = [it for it in opened.unpublished() if job in ("", it.job)]
    rows = [_row(it) for it in waiting]
    none = f"Job {job} does not wait to be published." if job else "No job waits to be published."
    document = [{**dataclasses.asdict(it), "rows": it.rows, "files": it.files} for it in waiting]
    print_rows(as_json, _COLUMNS, rows, document, none)
    if job and waiting:
        say(DRY)


def _row(job: UnpublishedJob) -> tuple[Any, ...]:
    times = (datetime.fromtimestamp(it, UTC) for it in (job.opened_at, job.kept_until))
    opened, until = (f"{it:%Y-%m-%d %H:%M:%S}" for it in times)
    by, run = job.owner.dag_id or job.owner.application, job.owner.run_id
    return (job.job, job.rows, job.files, len(job.partitions), opened, until, by, run)


def _decide(opened: DeltaTable, job: str, abort: bool, as_json: bool) -> None:
    """Publish a job, or abort it."""
    if abort:
        done = opened.abort(job)
        print_rows(as_json, ("job", "outcome"), [(job, "aborted")], plain([done])[0], "")
        return
    committed = opened.publish(job)
    outcome = "published before" if committed.repeated else "published"
    row = (job, outcome, committed.version, committed.rows, len(committed.partitions))
    columns = ("job", "outcome", "version", "rows", "partitions")
    print_rows(as_json, columns, [row], plain([committed])[0], "")
