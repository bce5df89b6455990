"""Words of the command ``repair`` about heads that are gone."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from ..committer import RebuildAction, RebuiltHead
from .output import DRY, Exit, plain, print_rows, say


def show_rebuilt(as_json: bool, heads: Sequence[RebuiltHead], apply: bool) -> None:
    """Name partitions without a head, and what became of them.

    :raises typer.Exit: some are as they were.
    """
    rows = [
        (it.partition, it.action, it.epoch or None, it.files, it.rows, it.reason or None)
        for it in heads
    ]
    columns = ("partition without a head", "action", "epoch", "files", "rows", "why")
    print_rows(as_json, columns, rows, plain(heads), "")
    left = [it.partition for it in heads if it.action is RebuildAction.LEFT]
    if left:
        say(
            "What is left: restore its head from a version or backup, or load the partition again "
            "with mode replace."
        )
    if not apply and len(left) < len(heads):
        say(DRY)
    if left or not apply:
        raise typer.Exit(Exit.LOOK)
