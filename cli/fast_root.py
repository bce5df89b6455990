"""Commands about a Delta table's data root: what lies only there, and where new files will lie."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ..committer.errors import InvalidInputError, counted
from ..committer.upkeep.checkpoint import CheckpointAction, CheckpointOrder
from . import delta
from .output import DRY, Apply, AsJson, Partitions, Url, look_where, plain, print_rows, say
from .tables import delta_table, refuse_apply_alone

_WHY = "the files of a table of directories lie in it"
_REMEDY = "Name a Delta table; zero-rename copy --layout delta makes one of a table of directories."


def told(since: float) -> str:
    """Return a time as text."""
    return f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S}"


def checkpoint(
    table: Url,
    partition: Partitions = None,
    order: Annotated[
        CheckpointOrder | None,
        typer.Option(help="Copy the oldest or the latest files first. Default: the oldest."),
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Copy files that lie only in a Delta table's data root into the table, by jobs of their own.

    In a table without a data root, write a checkpoint of its log, from which later openings read.
    """
    opened = delta_table(table, _WHY, _REMEDY)
    if not opened.has_data_roots:
        if partition or order is not None:
            raise InvalidInputError(
                "--partition and --order choose files to copy from a data root, and the table has "
                "none: a checkpoint of its log covers all partitions. Nothing was written.",
                table=table,
                remedy="Leave both out.",
            )
        delta.checkpoint(opened, apply, as_json)
        return
    found = opened.checkpoint(partition or None, order or CheckpointOrder.CREATION, apply)
    rows = [(e.partition, e.action, e.files, e.bytes, told(e.since), e.job) for e in found]
    columns = ("partition", "action", "files", "bytes", "since, UTC", "job")
    print_rows(as_json, columns, rows, plain(found), "All of the table is durable.")
    actions = {entry.action for entry in found}
    if CheckpointAction.WOULD_COPY in actions:
        say(DRY)
    if CheckpointAction.CHANGED_MEANWHILE in actions:
        say("Partitions that another job changed meanwhile were left for the next checkpoint.")
    if CheckpointAction.LOST in actions:
        say(f"Files are missing. The jobs that make them again: zero-rename lineage plan {table}")
    look_where(actions & {CheckpointAction.CHANGED_MEANWHILE, CheckpointAction.LOST})


def data_root(
    table: Url,
    root: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROOT|none]",
            help="The data root from now on: s3://bucket/prefix, with ?endpoint=… for another "
            "store, and likewise with a profile of ~/.aws/config. none: files lie in the table. "
            "Without it, only show the data root.",
        ),
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Show or change the data root of a Delta table, where new files lie first.

    It also shows which partitions have files that lie only in a data root.
    """
    found = delta_table(table, _WHY, _REMEDY)
    if root is None:
        refuse_apply_alone(table, apply, "data root")
        now, lying = found.data_root, found.not_durable()
        before = after = now
    else:
        change = found.set_data_root(None if root == "none" else root, apply)
        before, after, lying = change.before, change.after, list(change.not_durable)
    rows = [(it.partition, it.files, it.bytes, told(it.since)) for it in lying]
    columns = ("not durable", "files", "bytes", "since, UTC")
    document: dict[str, Any] = {"before": before and before.url, "after": after and after.url}
    document |= {"not_durable": plain(lying)}
    print_rows(as_json, columns, rows, document, "All of the table is durable.")
    if root is None:
        say(f"The data root is {before.url if before else 'none: files lie in the table'}.")
        return
    say(
        f"The data root {'is' if apply else 'would be'} {after.url if after else 'none'}; it was "
        f"{before.url if before else 'none'}."
    )
    if lying:
        say(
            f"Files of {counted(len(lying), 'partition')} stay where they are until copied "
            f"(zero-rename checkpoint {table} --apply) or replaced."
        )
    if not apply:
        say(DRY)
