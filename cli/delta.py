"""Output of commands about Delta tables, in which one log has the history of the whole table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import typer

from ..committer.errors import counted
from ..committer.format.records.data_file import rows_of
from ..committer.store.fast_root import is_fast
from ..tables import RepairOutcome
from .output import DRY, Exit, look_where, print_rows, say

if TYPE_CHECKING:
    from ..tables import DeltaTable, RestoredVersion


def show(table: DeltaTable, as_json: bool) -> None:
    """Show the partitions of a Delta table, at one version."""
    state = table.state()
    lying = any(is_fast(file.key) for file in state.files)
    root = table.data_root if lying else None
    lies = "temporary" if root is not None and root.temporary else "not durable"
    document = [
        {
            "partition": name,
            "version": state.log_version,
            "files": len(files),
            "rows": rows_of(files),
            "bytes": sum(file.size for file in files),
            lies: sum(file.size for file in files if is_fast(file.key)),
            "kept bytes": None,
            "damage": None,
        }
        for name, files in sorted(state.by_partition().items())
    ]
    columns = ("partition", "version", "files", "rows", "bytes", *([lies] if lying else []))
    rows = [tuple(entry[name] for name in columns) for entry in document]
    print_rows(as_json, columns, rows, document, "The table holds no row.")
    if lying and lies == "not durable":
        say(f"Copy what lies only in a data root: zero-rename checkpoint {table.root.url} --apply")


def history(table: DeltaTable, most: int, as_json: bool) -> None:
    """Show the entries of a log, newest first."""
    found = table.history(most)
    rows = [
        (
            it.version,
            it.at and f"{it.at:%Y-%m-%d %H:%M:%S}",
            it.operation,
            it.job,
            it.added,
            it.removed,
            it.owner.get("dag_id") or it.owner.get("application"),
            it.owner.get("run_id"),
        )
        for it in found
    ]
    columns = ("version", "written, UTC", "operation", "job", "files added", "files removed")
    columns = (*columns, "DAG or application", "run")
    document = [dataclasses.asdict(it) for it in found]
    print_rows(as_json, columns, rows, document, "The log has no entry.")


def show_restored(table: DeltaTable, found: RestoredVersion, apply: bool, as_json: bool) -> None:
    """Show what was brought back to a Delta table, or would be."""
    nothing = "It holds what it held then: there is nothing to bring back."
    if found.job is not None:
        nothing = f"{found.job} has undone it already: there is nothing to bring back."
    changes = bool(found.partitions or found.lost)
    counts = (len(found.partitions), found.returned, found.removed, len(found.lost))
    source = found.version if found.version >= 0 else "no version: it was empty"
    rows = [(source, found.present, *counts)] if changes else []
    columns = ("gets what it held at", "is at version", "partitions")
    columns = (*columns, "files that come back", "files that go", "lost")
    print_rows(as_json, columns, rows, dataclasses.asdict(found), nothing)
    for path in found.lost[:10]:
        say(f"cannot be brought back: {path}")
    if not changes:
        return
    if apply:
        say(f"To undo it: zero-rename undo {table.root.url} --job {found.job} --apply")
    elif found.lost:
        raise typer.Exit(Exit.LOOK)
    else:
        say(DRY)


def checkpoint(table: DeltaTable, apply: bool, as_json: bool) -> None:
    """Write a checkpoint of a log, from which later openings read."""
    version = table.checkpoint_log() if apply else None
    is_due = table.is_checkpoint_due()
    document = {"version": version, "due": is_due}
    said = "written" if version is not None else "due" if is_due else "not due"
    print_rows(as_json, ("checkpoint", "of version"), [(said, version)], document, "")
    if not apply:
        say(f"A checkpoint of the newest version would be written. {DRY}")
    elif version is None:
        say("It is unknown whether it was written. No answer depends on it. Run it again.")
        raise typer.Exit(Exit.LOOK)


def repair(table: DeltaTable, apply: bool, accept_loss: bool, as_json: bool) -> None:
    """Commit again the entries of a Delta table's log that were overwritten, or say what would be
    done."""
    found = table.repair(apply, accept_loss)
    rows = [
        (it.version, it.job, it.by, it.outcome, it.committed, it.files, it.removed, it.reason)
        for it in found
    ]
    columns = ("version", "of job", "overwritten by", "outcome", "version now")
    columns = (*columns, "files added", "files removed", "why")
    document = [dataclasses.asdict(it) for it in found]
    reports = table.repair_reports(apply)
    nothing = "No entry of the log was overwritten: there is nothing to repair."
    if reports:
        nothing = "No entry of the log was overwritten."
    print_rows(as_json, columns, rows, document, nothing)
    if reports:
        number = counted(reports, "report of a run", "reports of runs")
        say(
            f"{'Written' if apply else 'To be written'} again, since another program has deleted "
            f"what was there: {number}."
        )
    planned = (RepairOutcome.WOULD_COMMIT, RepairOutcome.WOULD_ACCEPT)
    if any(it.outcome in planned for it in found) or (reports and not apply):
        say(DRY)
    if any(it.outcome is RepairOutcome.LEFT for it in found):
        say(
            "For each entry that was left: load again what it had loaded, then accept its loss: "
            f"zero-rename repair {table.root.url} --accept-loss --apply"
        )
    look_where(any(it.outcome.is_lost for it in found))
