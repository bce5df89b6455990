"""Commands about a table's past: what jobs did, how to bring it back, and how to keep records
small."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from ..committer.errors import counted, escaped
from ..tables import DeltaTable
from . import delta
from .amounts import DAY, age_option
from .output import DRY, Apply, AsJson, Partitions, Url, look_where, print_rows, say
from .tables import delta_table, open_table, refuse_apply_alone, table_of_directories


def history(
    table: Url,
    most: Annotated[int, typer.Option(help="How many jobs at most.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """List the last decided jobs: who changed which partition, when, and by how much.

    Of a Delta table, list the newest entries of its log.
    """
    opened = open_table(table)
    if isinstance(opened, DeltaTable):
        delta.history(opened, most, as_json)
        return
    found = opened.history(most).to_pylist()
    rows = [
        (
            it["decided_at"] and f"{it['decided_at']:%Y-%m-%d %H:%M:%S}",
            it["job"],
            it["verdict"] if it["change"] is None else it["change"],
            it["partition"],
            it["version"],
            it["rows"],
            it["files"],
            it["files_removed"],
            _changed(it),
            it["dag_id"] or it["application"],
            it["run_id"],
        )
        for it in found
    ]
    columns = ("decided, UTC", "job", "change", "partition", "version", "rows", "files")
    columns = (*columns, "files removed", "rows changed", "DAG or application", "run")
    print_rows(as_json, columns, rows, found, "No job of this table is decided yet.")


def _changed(told: dict[str, Any]) -> str:
    if told["rows_inserted"] is None:
        return ""
    kinds = ("inserted", "updated", "deleted")
    return ", ".join(f"{told[f'rows_{it}']:,} {it}" for it in kinds if told[f"rows_{it}"])


def undo(
    table: Url,
    job: Annotated[
        str,
        typer.Option(
            help="The job's id, zr1-…. It must be the last one in each of its partitions."
        ),
    ],
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Bring back what partitions of a Delta table held before a job, in all of them or none.

    No data is written. It is possible as long as the table keeps the replaced files. To undo it,
    undo the job that did it.
    """
    opened = _with_history(table)
    delta.show_restored(opened, opened.undo(job, apply), apply, as_json)


def restore(
    table: Url,
    as_of: Annotated[
        str,
        typer.Option(
            metavar="TIME|VERSION",
            help="Bring back the state at a time, such as 2026-01-31T12:00:00Z, or at a version.",
        ),
    ],
    partition: Partitions = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Bring back what a Delta table, or some partitions of it, held at a time or version.

    One job does it, and writes no data. It is possible as long as the table keeps the replaced
    files.
    """
    opened = _with_history(table)
    found = opened.restore(as_of, partition or None, apply)
    delta.show_restored(opened, found, apply, as_json)


def _with_history(table: str) -> DeltaTable:
    """Open a table that keeps what it has replaced.

    :raises TableMismatchError: it is not a Delta table.
    """
    return delta_table(
        table,
        "only a Delta table keeps what it has replaced",
        f"Load the partitions again. zero-rename copy {table} NEW --layout delta makes a Delta "
        "table of it, which keeps its history.",
    )


def retention(
    table: Url,
    set: Annotated[
        float | None, age_option("From now on, keep replaced files so long.", least="1h")
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Show or set how long a Delta table keeps replaced files, to be read and brought back.

    The first purge after that time removes them.
    """
    opened = _with_history(table)
    if set is None:
        refuse_apply_alone(table, apply, "retention")
        before = after = opened.retention
    else:
        change = opened.set_retention(set, apply)
        before, after = change.before, change.after
    stands = after if apply else before
    document = {"retention": stands, "before": before, "after": after}
    print_rows(as_json, ("retention",), [(f"{stands / DAY:g} days",)], document, "")
    if set is None:
        return
    is_now = "is" if apply else "would be"
    say(f"The retention {is_now} {after / DAY:g} days; it was {before / DAY:g} days.")
    if after < before:
        goes = "deletes" if apply else "would delete"
        say(f"The next purge {goes} files replaced longer ago. They cannot be brought back then.")
    if not apply:
        say(DRY)


def gc(
    table: Url,
    older_than: Annotated[
        float,
        age_option(
            "How long decisions, failures of runs and lists of replaced files stay whole.",
            default="7d",
        ),
    ] = 7 * DAY,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Make old records small: fold, condense and remove them. This changes no answer."""
    opened = table_of_directories(
        table,
        "its records are entries of the log, which engines need as they are",
        f"zero-rename checkpoint {table} --apply keeps openings short; zero-rename purge {table} "
        "--apply removes files that nothing needs.",
    )
    report = opened.gc(older_than, apply)
    counts = (
        ("lists of decisions in heads", "folded", report.folded),
        ("decisions", "condensed", report.condensed),
        ("records", "removed", report.removed),
    )
    rows = [(what, done if apply else f"would be {done}", n) for what, done, n in counts if n]
    columns = ("what", "action", "how many")
    nothing = "No record is old and no longer needed: there is nothing to do."
    print_rows(as_json, columns, rows, dataclasses.asdict(report), nothing)
    if rows:
        say(f"{report.saved:,} bytes saved." if apply else DRY)
    if report.left:
        stay = counted(report.left, "old decision stays", "old decisions stay")
        say(f"{stay} whole: a job is open, or a replace may be undone.")
    for partition, damage in report.damaged.items():
        say(f"{partition} cannot be read, so its decisions stay: {damage}")
    for key, cause in report.failed.items():
        say(f"{escaped(key)} could not be removed ({cause}); run it again.")
    look_where(report.failed or report.damaged)
