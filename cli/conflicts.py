"""The commands about runs that touched one partition: name them, and choose whose rows stay."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer import InvalidInputError, Table
from ..committer.errors import counted, first_few
from .amounts import DAY, age_option
from .output import DRY, Apply, AsJson, Url, look_where, print_rows, say

if TYPE_CHECKING:
    from ..committer.format.job_spec import Owner
    from ..committer.upkeep.conflicts import ConflictReport, PartitionConflict

Window = Annotated[
    float, age_option("How near two decisions are that belong together.", default="1h")
]
Since = Annotated[float, age_option("How far to look back.", default="7d")]


def conflicts(
    table: Url,
    window: Window = 3600.0,
    since: Since = 7 * DAY,
    partition: Annotated[str | None, typer.Option(help="Only this one, such as day=1.")] = None,
    as_json: AsJson = False,
) -> None:
    """Runs that touched one partition: what each wrote, what is visible, who gave way."""
    report = Table(table).conflicts(window, since, partition)
    rows = [row for conflict in report.conflicts for row in _rows(conflict)]
    columns = ("partition", "job or run", "decided", "did", "files", "rows", "visible", "hidden")
    nothing = "No two runs touched one partition so near to each other in that time."
    print_rows(as_json, (*columns, "whose"), rows, dataclasses.asdict(report), nothing)
    _say_rest(report)
    look_where(report.conflicts or report.unread)


def _rows(conflict: PartitionConflict) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for it in conflict.touches:
        decided = datetime.fromtimestamp(it.decided_at, UTC).isoformat(timespec="seconds")
        numbers = (it.files, it.rows, it.visible, it.hidden)
        did = "replaced" if it.replaced else "appended"
        rows.append((it.job, decided, did, *numbers, _named(it.owner)))
    for it in conflict.gave_way:
        rows.append((it.job or it.idempotency_key, "", "gave way", 0, 0, 0, 0, _named(it.owner)))
    if conflict.claimed_by:
        rows.append((conflict.claimed_by, "", "undecided", None, None, 0, None, ""))
    return [(conflict.partition, *row) for row in rows]


def _named(owner: Owner) -> str:
    words = (owner.dag_id or owner.application, owner.task_id, owner.run_id)
    return " ".join(str(word) for word in words if word)


def _say_rest(report: ConflictReport) -> None:
    """What the table does not show, and what nobody knows any more."""
    for it in report.gave_way:
        say(
            f"{it.job or it.idempotency_key} gave way; of which partition is not on record: "
            f"{it.message}"
        )
    if report.aborted:
        say(
            f"{counted(len(report.aborted), 'job was', 'jobs were')} aborted in that time; which "
            f"partitions were wanted, and why it ended, is no longer known: "
            f"{first_few(report.aborted)}"
        )
    for unread in report.unread:
        say(f"cannot be read: {unread}")
    if any(it.files > it.visible + it.hidden for c in report.conflicts for it in c.touches):
        say("Files neither visible nor hidden were removed by a replace; their rows are gone.")


def resolve(
    table: Url,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Such as day=1.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="newest|all|JOB",
            help="Whose rows stay, of the runs that conflict; a job's id may be repeated. Rows of "
            "other runs always stay.",
        ),
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Instead: what it held before this job, the last there."),
    ] = None,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard",
            help="Remove what is replaced, for readers that list. Else it stays, unseen by readers "
            "through the heads, and the resolution can be undone.",
        ),
    ] = False,
    window: Window = 3600.0,
    since: Since = 7 * DAY,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Make a partition hold the rows of some of the runs that conflict over it, by a new job."""
    if (keep is None) == (undo is None):
        raise InvalidInputError(
            "Say whose rows are to stay; nothing was changed.",
            remedy="Give one of --keep and --undo.",
        )
    found = Table(table).resolve(
        partition, keep or (), undo, apply=apply, discard=discard, window=window, since=since
    )
    rows = [(job, "keeps its rows") for job in found.kept]
    rows += [(job, "loses its rows") for job in found.dropped]
    nothing = f"{found.partition} is to hold no rows."
    print_rows(as_json, ("job", "what becomes of it"), rows, dataclasses.asdict(found), nothing)
    count = "an unknown number of rows" if found.rows is None else counted(found.rows, "row")
    if found.job is None:
        say(f"{found.partition} would hold {count} of {counted(found.files, 'file')}. {DRY}")
        return
    say(f"{found.partition} holds {count} since {found.job}.")
    if not discard:
        say(f"To undo it: zero-rename resolve {table} {partition} --undo {found.job} --apply")
