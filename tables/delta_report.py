"""Report of a committed job of a Delta table, from its entry in the log."""

from __future__ import annotations

from dataclasses import replace

from ..committer.commit.state.job_state import SMALL, Committed, PartitionCommit
from ..committer.errors import CommitConflictError
from ..committer.format.layout import TableRoot
from ..committer.format.records.typed_json import Unfit, from_members
from ..committer.format.row_changes import ChangeReads, RowChanges
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import AddFile, RemoveFile
from ..log.change import RESTORE, RUN
from ..log.entries import LogEntry
from ..log.opening import LogDepth, open_log, read_entries
from ..log.replay import LogState
from ..log.searching import RunDone
from .delta_files import name_told, rows_of_add


def committed(root: TableRoot, state: LogState, entry: LogEntry) -> Committed:
    """Return the report of a committed entry.

    :param state: a state with the table's columns. If it has files, they give the partitions of
        tombstones that do not name theirs. Other such tombstones are left out.
    """
    assert state.metadata is not None
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    added: dict[str, list[AddFile]] = {}
    removed: dict[str, int] = {}
    for file in (*entry.of(AddFile), *entry.of(RemoveFile)):
        place = state.partition(file) if by else ()
        if place is None:
            continue  # A tombstone of another engine, or of a purge.
        name = name_told(place, schema, by)
        if isinstance(file, AddFile):
            if file.tags.get("job") != entry.job and entry.operation != RESTORE:
                continue  # A file of another job that comes back from a compaction.
            added.setdefault(name, []).append(file)
        else:
            removed[name] = removed.get(name, 0) + 1
    replaced = entry.ours.get("replaced")
    named = () if not isinstance(replaced, list) else (tuple(it) for it in replaced)
    names = {*added, *removed, *(name_told(it, schema, by) for it in named)}
    row_changes, reads = _changes_told(entry)
    partitions = tuple(
        PartitionCommit(
            name,
            entry.version,
            len(files := added.get(name, [])),
            sum(max(0, rows_of_add(it)) for it in files),
            sum(it.size for it in files),
            removed.get(name, 0),
            sum(it.size < SMALL for it in files),
            row_changes.get(name),
        )
        for name in sorted(names)
    )
    at = entry.stamped_at or 0.0
    superseded, left_out = entry.ours.get("superseded"), entry.ours.get("leftOut")
    narrows = entry.ours.get("narrows")
    return Committed(
        entry.job or "",
        root.url,
        partitions,
        at,
        change_reads=reads,
        narrows=narrows if isinstance(narrows, str) else None,
        superseded=superseded if isinstance(superseded, dict) else {},
        left_out=left_out if isinstance(left_out, int) else 0,
    )


def _changes_told(entry: LogEntry) -> tuple[dict[str, RowChanges], ChangeReads | None]:
    """Return the counts of rows that a job changed, by partition, and of those that it read, from
    its entry. They are only reported, so invalid ones are left out."""
    told, read = entry.ours.get("rowChanges"), entry.ours.get("changeReads")
    try:
        return (
            {name: from_members(RowChanges, it) for name, it in (told or {}).items()},
            from_members(ChangeReads, read) if read else None,
        )
    except (Unfit, AttributeError):
        return {}, None


def repeated_commit(
    root: TableRoot, layout: DeltaLayout, state: LogState, done: RunDone, run: str
) -> Step[Committed]:
    """Return the report of what an earlier attempt of the run has committed.

    :param run: the run's key.
    :raises CommitConflictError: another writer has overwritten that attempt's entry, so its rows
        are lost.
    """
    entry = done.entry
    if entry is None:
        (entry,) = yield from read_entries(layout.folder, [done.version])
    overwritten = entry is not None and entry.transaction(RUN + run) is None
    # A checkpoint from before may have the entry's rows and transaction.
    if overwritten and RUN + run not in state.transactions:
        raise CommitConflictError(
            f"This run has loaded before, and another writer has written over its entry, version "
            f"{done.version}: its rows are lost from the table. This job wrote nothing.",
            table=root.url,
            remedy=f"Commit that entry again: zero-rename repair {root.url} --apply. If that is "
            "not possible, load once more with on_repeat='append'.",
        )
    if entry is None or overwritten:
        # The entry was cleaned, or overwritten, but it is certain that the run has committed.
        return Committed("", root.url, (), 0.0, repeated=True)
    if not state.exists:
        # The other attempt has made the table.
        state = (yield from open_log(layout, LogDepth.BLIND)).state
    return replace(committed(root, state, entry), repeated=True)
