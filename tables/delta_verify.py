"""Verification of a Delta table: the files in the store are compared with those in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..committer.commit.state.tolerance import unless_gone
from ..committer.errors import RecordDamagedError, TableNotFoundError
from ..committer.format.layout import UNPARTITIONED, TableRoot, log_job_in_key
from ..committer.format.schema.directory import is_parquet, visible_files
from ..committer.store.fast_root import is_fast
from ..committer.store.listing import list_objects
from ..committer.store.requests import ListedObject, ListObjects, Step
from ..committer.upkeep.verify import Finding, FindingKind, rows_missing
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.opening import LogDepth, list_log, open_log
from ..log.repairing import RepairedEntry, RepairOutcome, repair_log
from ..log.replay import LogState
from .delta_files import ADOPTED, partition_name, rows_of_add
from .files_in_log import known_keys
from .gone_entries import about_gone, entries_gone, find_lost_log


def verify_table(layout: DeltaLayout) -> Step[list[Finding]]:
    """Compare the live files of a table with a listing of its objects, and find overwritten
    entries.

    The listing covers the table and its data roots. A job may remove files meanwhile, so a file
    counts as missing only if the state before the listing and the state after it name it, and as
    unnamed only if neither does.

    :raises TableNotFoundError: there is no table, and nothing shows that there was one.
    """
    before = yield from open_log(layout, LogDepth.FILES)
    if not before.state.exists:
        return (yield from _about_lost_log(layout))
    objects, date = yield from _list_all(layout, before.state)
    after = yield from open_log(layout, LogDepth.WHOLE)
    sizes = {item.key: item.size for item in objects}
    now = int(date * 1000)
    repairs = yield from repair_log(layout, now, apply=False, accept_loss=False, fencer="")
    known = {it.version: it for it in repairs}
    overwritten = {*before.overwritten, *after.overwritten} - known.keys()
    overwritten |= {version for version, it in known.items() if it.outcome.is_lost}
    found = [_overwritten(layout, it, known.get(it)) for it in sorted(overwritten)]
    gone = [] if after.listed is None else entries_gone(after.listed)
    found += [
        Finding(UNPARTITIONED, layout.folder.entry(it), FindingKind.DAMAGED, about_gone(it))
        for it in gone
    ]
    found += _lost(layout, before.state, after.state, sizes)
    return [*found, *_unnamed(layout, before.state, after.state, objects, date)]


def _about_lost_log(layout: DeltaLayout) -> Step[list[Finding]]:
    """Find what shows that a root without a table had one.

    :raises TableNotFoundError: nothing does.
    """
    listed = yield from list_log(layout.folder)
    lost = yield from find_lost_log(layout, listed)
    if lost is not None:
        detail = f"{lost.detail} {lost.restore}"
        return [Finding(UNPARTITIONED, lost.key, FindingKind.DAMAGED, detail)]
    if listed.entries:  # Its first job has committed meanwhile.
        return (yield from verify_table(layout))
    there = yield from ListObjects(layout.folder.prefix)
    what, remedy = "no job has committed", "Check the root; zero-rename recover names open jobs."
    if there.objects:
        name = there.objects[0].key.removeprefix(layout.folder.prefix)
        what = f"its log folder has {name!r}, and no entry or checkpoint that can be read"
        remedy = (
            f"If there was a table, restore what lay below {layout.folder.prefix} from versions, a "
            "backup or the bucket that this one was copied from."
        )
    raise TableNotFoundError(f"There is no Delta table here: {what}.", remedy=remedy)


def keys_there(layout: DeltaLayout) -> Step[set[str]]:
    """Return the keys of all objects below a table and in its data roots."""
    opened = yield from open_log(layout, LogDepth.BLIND)
    objects, _ = yield from _list_all(layout, opened.state)
    return {it.key for it in objects}


def _list_all(layout: DeltaLayout, state: LogState) -> Step[tuple[list[ListedObject], float]]:
    """List all objects below a table and in its data roots; also return the time by the store's
    clock. A root that cannot be reached counts as empty."""
    listing = yield from list_objects(layout.root.prefix)
    objects = [*listing.objects]
    for folder in filter(is_fast, layout.data_folders(state)):
        there = yield from unless_gone(list_objects(folder), None)
        objects += () if there is None else there.objects
    return objects, listing.date


def _overwritten(layout: DeltaLayout, version: int, repair: RepairedEntry | None) -> Finding:
    detail = (
        f"version {version} is not the entry that was committed: a writer without conditional "
        "writes has written over it; zero-rename repair commits it again"
    )
    if repair is not None and repair.outcome is RepairOutcome.LEFT:
        detail = f"{detail}, or says why not: {repair.reason}"
    return Finding(UNPARTITIONED, layout.folder.entry(version), FindingKind.DAMAGED, detail)


def _lost(
    layout: DeltaLayout, before: LogState, after: LogState, sizes: Mapping[str, int]
) -> Iterator[Finding]:
    metadata = after.metadata
    if metadata is None:
        return
    schema, by = arrow_schema(metadata), metadata.partition_columns
    for path, add in before.live.items():
        key = layout.key_of(path, before)
        if path not in after.live or sizes.get(key) == add.size:
            continue
        name = partition_name(after.partition(add) or (), schema, by)
        if key not in sizes:
            detail = rows_missing(rows_of_add(add), add.tags.get("job"))
            yield Finding(name, key, FindingKind.MISSING, detail)
        else:
            detail = f"{sizes[key]} bytes, committed were {add.size}"
            yield Finding(name, key, FindingKind.WRONG_SIZE, detail)


def _unnamed(
    layout: DeltaLayout,
    before: LogState,
    after: LogState,
    objects: Sequence[ListedObject],
    date: float,
) -> Iterator[Finding]:
    """Find the data files of other programs that no entry names, in an adopted table.

    An older file may have been removed: tombstones are kept for the retention alone. In a table
    that was always Delta's, such a file is what a failed job of another engine has left.

    :param after: a state with its tombstones.
    :param date: when the objects were listed, by the store's clock.
    """
    try:
        since = date - layout.retention(after)
    except RecordDamagedError:
        return  # Examination names a retention that cannot be read.
    named = (*after.live.values(), *(after.removed or {}).values())
    if not any(ADOPTED in it.tags for it in named):
        return
    root = TableRoot(layout.root.bucket, layout.root.prefix.rstrip("/"))
    known = {*known_keys(layout, before), *known_keys(layout, after)}
    for item in filter(is_parquet, visible_files(root, objects)):
        if item.key in known or item.last_modified < since or log_job_in_key(item.key):
            continue
        detail = (
            "no entry of the log names it, so no reader of the table sees its rows: a job that "
            "does not know the log wrote it, such as one of Hadoop's committers that was at work "
            "during the adoption; or a job of another engine is at work, or has failed"
        )
        name = root.partition_of_data_key(item.key) or UNPARTITIONED
        yield Finding(name, item.key, FindingKind.UNNAMED, detail)
