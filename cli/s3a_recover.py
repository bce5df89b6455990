"""The commands about jobs that Hadoop's S3A committers left: list them, settle them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer.errors import InvalidInputError
from .ages import age_option
from .output import DRY, Apply, AsJson, Exit, Url, plain, print_rows, refusals, say

if TYPE_CHECKING:
    from ..s3a.recovery.options import RecoveryOptions
    from ..s3a.recovery.recover import RecoveredJob

Patience = Annotated[
    float | None,
    age_option(
        "The silence after which a job of which nothing else is known counts as dead. Longer than "
        "the longest task: one that writes a file is silent. Default: such a job stays unknown."
    ),
]
Dead = Annotated[
    list[str] | None,
    typer.Option(metavar="UUID", help="A job, or a run, whose application is known to have ended."),
]
Folder = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PARTITION",
        help="A partition that jobs write to as their destination, as a path below the table.",
    ),
]
Deep = Annotated[
    bool, typer.Option("--deep", help="List the whole table: a request per thousand files.")
]
Staging = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Where the directory and partitioned committers keep their pending sets: "
        "fs.s3a.committer.staging.tmp.path, as a path, an hdfs:// URL, or a copy. Without them a "
        "job of theirs that died in its commit can only be left, or given up.",
    ),
]


def s3a_jobs(
    table: Url,
    patience: Patience = None,
    dead: Dead = None,
    folder: Folder = None,
    deep: Deep = False,
    staging: Staging = None,
    as_json: AsJson = False,
) -> None:
    """List what jobs of the S3A committers left, and whether they live."""
    from ..s3a.recovery.options import RecoveryOptions

    options = RecoveryOptions(
        patience=patience,
        dead=frozenset(dead or ()),
        folders=tuple(folder or ()),
        deep=deep,
        staging=staging,
    )
    found = _run(table, options)
    columns = ("job", "left", "state", "silent for, s", "run", "tasks", "files", "written")
    columns += ("outstanding", "unsure", "other uploads", "destination", "why")
    rows = [
        (
            job.job,
            job.left,
            job.state,
            f"{job.silent_for:.0f}",
            job.owner.run_id or job.owner.application,
            job.tasks,
            job.files,
            job.written,
            job.outstanding,
            job.unsure,
            job.extra,
            job.destination,
            job.state_reason,
        )
        for job in found
    ]
    print_rows(as_json, columns, rows, plain(found), "Nothing is left of S3A jobs.")


def s3a_recover(
    table: Url,
    job: Annotated[
        list[str] | None, typer.Option(metavar="UUID", help="Only this job; may be repeated.")
    ] = None,
    apply: Apply = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Act on jobs too of which it is not known if they live."),
    ] = False,
    patience: Patience = None,
    dead: Dead = None,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Roll back, even where forward would do.")
    ] = False,
    roll_forward: Annotated[
        bool,
        typer.Option(
            "--roll-forward",
            help="Where another job committed since, or ETags cannot be compared, and only you "
            "can tell: it was no retry, the files are the job's.",
        ),
    ] = False,
    folder: Folder = None,
    deep: Deep = False,
    staging: Staging = None,
    as_json: AsJson = False,
) -> None:
    """Roll dead jobs of the S3A committers forward or back; say which, and why."""
    from ..s3a.recovery.options import Action, RecoveryOptions
    from ..s3a.recovery.recover import UNSETTLED, JobOutcome

    with refusals():
        if roll_back and roll_forward:
            raise InvalidInputError("A job cannot be rolled both back and forward.")
    forward = Action.FORWARD if roll_forward else None
    options = RecoveryOptions(
        apply=apply,
        force=force,
        patience=patience,
        dead=frozenset(dead or ()),
        direction=Action.BACK if roll_back else forward,
        jobs=frozenset(job) if job else None,
        folders=tuple(folder or ()),
        deep=deep,
        staging=staging,
    )
    found = _run(table, options)
    columns = ("job", "state", "outcome", "files", "completed", "removed", "aborted", "marker")
    rows: list[Sequence[Any]] = [
        (
            one.job,
            one.state,
            one.outcome,
            one.files,
            one.completed,
            one.removed,
            one.aborted,
            one.marker,
            f"{one.reason} ({one.state}: {one.state_reason})",
        )
        for one in found
    ]
    print_rows(as_json, (*columns, "why"), rows, plain(found), "Nothing is left of S3A jobs.")
    for one in found:
        for key in one.kept:
            say(f"{one.job}: left {key}")
    planned = (JobOutcome.WOULD_ROLL_FORWARD, JobOutcome.WOULD_ROLL_BACK)
    if any(one.outcome in planned for one in found):
        say(DRY)
    if any(one.outcome in UNSETTLED for one in found):
        raise typer.Exit(Exit.LOOK)


def _run(table: str, options: RecoveryOptions) -> tuple[RecoveredJob, ...]:
    from ..committer import Table
    from ..s3a.recovery.recover import recover_jobs

    with refusals():
        opened = Table(table)
        return opened.run(recover_jobs(opened.root, options))
