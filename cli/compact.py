"""The command that writes small files anew, as fewer."""

from __future__ import annotations

from typing import Annotated

import typer

from ..committer import Table
from ..committer.upkeep.compaction import TARGET_BYTES, CompactAction
from .amounts import size_option
from .output import DRY, Apply, AsJson, Exit, Url, plain, print_rows, refusals, say


def compact(
    table: Url,
    partition: Annotated[
        list[str] | None, typer.Option(help="Only this one, such as day=1; may be repeated.")
    ] = None,
    target_size: Annotated[
        int,
        size_option("About the size of a file: 256MB, 1GB.", f"{TARGET_BYTES // 1024**2}MB"),
    ] = TARGET_BYTES,
    sort_by: Annotated[
        list[str] | None, typer.Option(help="A column to sort rows by; may be repeated.")
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Write the files of partitions that have too many of them, or are not sorted as asked, anew: a
    job for each."""
    with refusals():
        found = Table(table).compact(partition or None, target_size, apply, sort_by or ())
    rows = [(e.partition, e.action, e.files, e.files_after, e.bytes, e.job) for e in found]
    columns = ("partition", "action", "files", "files after", "bytes", "job")
    nothing = "No partition has twice as many files as its bytes need: nothing is to be compacted."
    if sort_by:
        nothing = "Every partition is sorted so, and has no file too many: nothing is to be done."
    print_rows(as_json, columns, rows, plain(found), nothing)
    if any(entry.action is CompactAction.WOULD_COMPACT for entry in found):
        say(DRY)
    if any(entry.action is CompactAction.CHANGED_MEANWHILE for entry in found):
        say(
            "Partitions that another job changed meanwhile are as that job left them; run it again."
        )
        raise typer.Exit(Exit.LOOK)
