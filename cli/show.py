"""The command that shows what a table holds."""

from __future__ import annotations

from typing import Any

import typer

from ..committer import Table
from ..committer.format.records.data_file import rows_of
from ..committer.store.fast_root import is_fast
from ..committer.upkeep.checkpoint import not_durable
from .fast_root import told
from .output import AsJson, Exit, Url, print_rows, refusals, say

_CELLS = ("version", "files", "rows", "bytes", "kept bytes")


def show(table: Url, as_json: AsJson = False) -> None:
    """Show the table's partitions as a reader sees them, and what their history takes."""
    with refusals():
        opened = Table(table)
        found = opened.survey()
        kept = opened.kept_files()
    snapshot, damaged = found.snapshot, found.damaged
    by_partition = snapshot.by_partition()
    lying = not_durable(snapshot.files)
    temporary = bool(lying) and (root := opened.data_root) is not None and root.temporary
    lies = "temporary" if temporary else "not durable"
    document: list[dict[str, Any]] = []
    for name in sorted({*snapshot.versions, *by_partition, *damaged}):
        if name in damaged:
            cells = dict.fromkeys((*_CELLS, lies))
            document.append({"partition": name, **cells, "damage": str(damaged[name])})
            continue
        files = by_partition.get(name, [])
        document.append(
            {
                "partition": name,
                "version": snapshot.versions.get(name, 0),
                "files": len(files),
                "rows": rows_of(files),
                "bytes": sum(file.size for file in files),
                "kept bytes": sum(file.size for file in kept.get(name, ())),
                lies: sum(file.size for file in files if is_fast(file.key)),
                "damage": None,
            }
        )
    columns = ("partition", "version", "files", "rows", "bytes")
    if kept:
        columns = (*columns, "kept bytes")
    if lying:
        columns = (*columns, lies)
    rows = [tuple(entry[name] for name in columns) for entry in document]
    print_rows(as_json, columns, rows, document, "The table holds no partition.")
    if kept:
        size = sum(file.size for files in kept.values() for file in files)
        say(f"{size:,} bytes are kept for history alone: zero-rename retention {table}")
    if lying:
        size, since = sum(it.bytes for it in lying), told(min(it.since for it in lying))
        then = (
            "which is temporary"
            if temporary
            else f"since {since} UTC: zero-rename checkpoint {table}"
        )
        say(f"{size:,} bytes lie only in a fast root, {then}")
    for name, error in sorted(damaged.items()):
        say(f"{name} cannot be read: {error}")
    if damaged:
        raise typer.Exit(Exit.LOOK)
