"""Commands about conflicts of runs over partitions: find them, settle them, or choose rows by
hand."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ..committer import InvalidInputError, Table
from ..committer.errors import counted
from .amounts import DAY, age_option
from .output import DRY, Apply, AsJson, Partitions, Url, look_where, print_rows, say
from .tables import table_of_directories

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..committer.format.records.run_conflict import RunConflict

_COLUMNS = ("partition", "run", "rank", "attempt", "job", "rows", "its rows", "conflict")
_NOTHING = "No runs conflict."


def conflicts(
    table: Url,
    since: Annotated[
        float | None,
        age_option(
            "How far to look back, instead of to the last search. The result is not recorded then."
        ),
    ] = None,
    partition: Partitions = None,
    as_json: AsJson = False,
) -> None:
    """Find runs that conflict over partitions, since the last search.

    It shows which run removed the rows of another or gave way to it, and whose rows are visible. A
    record of runs that cannot be read counts as a conflict that is not settled.
    """
    from ..maintenance.conflicts import as_members, find_here, how_to_settle, stored_names

    opened = Table(table)
    names = stored_names(opened, partition) if partition else None
    found = find_here(opened, since)
    if not found:
        raise InvalidInputError(
            "There is no table, and no destination of Hadoop's committers. Nothing was searched.",
            table=opened.root.url,
            remedy="Check the root; zero-rename maintain FOLDER lists the tables below a folder.",
        )
    named = [
        (one.committer, it)
        for one in found
        for it in one.conflicts
        if names is None or it.partition in names
    ]
    every = [it for _, it in named]
    unread = [why for one in found for why in one.unread]
    notes = [why for one in found for why in one.notes]
    document = {
        "conflicts": [{"committer": word, **as_members(it)} for word, it in named],
        "since": min(it.since for it in found),
        "unread": unread,
        "notes": notes,
    }
    nothing = (
        "No conflict was found, but some records of runs could not be read." if unread else _NOTHING
    )
    print_rows(as_json, _COLUMNS, _rows(every), document, nothing)
    _say_errors(every)
    if any(not it.is_settled for it in every):
        say(how_to_settle(opened.root.url))
    for why in unread:
        say(f"cannot be read, and counts as a conflict that is not settled: {why}")
    for why in notes:
        say(why)
    look_where(unread or [it for it in every if not it.is_settled])


def resolve(
    table: Url,
    policy: Annotated[
        str,
        typer.Option(
            metavar="newest_run|prefer=A,B|keep=JOB",
            help="Whose rows are to stay: those of the newest run; of the first in a list of DAGs, "
            "tasks, applications or assets; or of the run of a job.",
        ),
    ],
    partition: Partitions = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Settle the conflicts that `conflicts` has found: say for each which run's rows stay.

    In a Delta table this brings back the rows of that run. In any table it can keep rows that are
    visible already.
    """
    from ..maintenance.conflicts import as_members, resolve_by_restore

    done = resolve_by_restore(Table(table), policy, partition, apply)
    document = {"conflicts": [as_members(it) for it in done]}
    print_rows(as_json, _COLUMNS, _rows(done, not apply), document, "No conflict is on record.")
    _say_errors(done)
    if done and not apply:
        say(DRY)
    look_where([it for it in done if not it.is_settled])


def _rows(conflicts: Iterable[RunConflict], planned: bool = False) -> list[tuple[object, ...]]:
    from ..maintenance.conflicts import became, outcome

    return [
        (it.name, run, run.rank, run.attempt, run.job, run.rows, became(run), outcome(it, planned))
        for it in conflicts
        for run in it.runs
    ]


def _say_errors(conflicts: Iterable[RunConflict]) -> None:
    for it in conflicts:
        if it.settlement is not None and it.settlement.error:
            say(f"{it.name}: {it.settlement.error}")


def keep_rows(
    table: Url,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Such as day=1.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="newest|all|JOB",
            help="Whose rows stay, of the jobs that changed the partition shortly after each "
            "other; may be repeated with ids of jobs. Rows of other jobs always stay.",
        ),
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="Instead: bring back what the partition held before this job, its last one.",
        ),
    ] = None,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard",
            help="Remove the replaced files, for readers that list the directory. Without it they "
            "stay, readers through the heads do not see them, and the command can be undone.",
        ),
    ] = False,
    window: Annotated[
        float, age_option("Decisions at most this far apart belong together.", default="1h")
    ] = 3600.0,
    since: Annotated[float, age_option("How far to look back.", default="7d")] = 7 * DAY,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Keep the rows of some of the jobs that changed a partition, and drop those of the others.

    A new job rewrites the partition.
    """
    if (keep is None) == (undo is None):
        raise InvalidInputError(
            "It is not said whose rows are to stay. Nothing was changed.",
            remedy="Give one of --keep and --undo.",
        )
    opened = table_of_directories(
        table,
        "a job there is refused if another one has changed its partitions",
        f"zero-rename restore {table} --as-of VERSION brings back a version; or load the partition "
        "again, by a job that replaces it.",
    )
    found = opened.keep_rows(
        partition, keep or (), undo, apply=apply, discard=discard, window=window, since=since
    )
    rows = [(job, "stay") for job in found.kept]
    rows += [(job, "are dropped") for job in found.dropped]
    nothing = f"{found.partition} is to hold no rows."
    print_rows(as_json, ("job", "its rows"), rows, dataclasses.asdict(found), nothing)
    count = "an unknown number of rows" if found.rows is None else counted(found.rows, "row")
    if found.job is None:
        say(f"{found.partition} would hold {count} of {counted(found.files, 'file')}. {DRY}")
        return
    say(f"{found.partition} holds {count} since {found.job}.")
    if not discard:
        say(f"To undo it: zero-rename keep-rows {table} {partition} --undo {found.job} --apply")
