"""Adoption of files from before the table: heads for partitions whose head has never moved.

An adoption is an append without rows: a job claims the partitions, lists them, and its decision
names their files as adopted. So it needs no rules of its own beside writers, readers and recovery.

The footer of every file is read before that. The same jobs give the table the columns that it does
not have, and the wider types. A partition is skipped if one of its files does not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa

from ..commit.commit import commit_job
from ..commit.first_job import confirm
from ..commit.index.lost_heads import files_without_heads
from ..commit.open import open_job
from ..commit.snapshot import survey
from ..commit.state.context import Context
from ..commit.state.data_listing import list_table
from ..commit.state.found_table import FoundTable, change_table, find_table
from ..commit.state.heads import list_heads, read_head
from ..commit.state.tolerance import or_damage
from ..errors import (
    DamagedError,
    HeadMovedError,
    InvalidInputError,
    SnapshotGoneError,
    TableMismatchError,
    ZeroRenameError,
)
from ..format.job_spec import Coordination, JobSpec, OnConflict, Owner, SchemaMode, SuccessMarkers
from ..format.layout import job_in_key
from ..format.parquet.foreign_columns import ForeignFile, joined
from ..format.parquet.foreign_table import ListedTable
from ..format.records.head import HeadState
from ..format.run_rank import NO_RANK
from ..format.schema.directory import canonical_name, is_data_file
from ..format.schema.evolution import evolved
from ..format.schema.hive_paths import is_decodable
from ..format.schema.other_formats import refuse_other_logs
from ..scan.current_table import current_table
from ..store.requests import All, ListedObject, Step

#: How many partitions one job adopts at most: it holds their claims while it lists them.
_AT_ONCE = 500
#: How often adoption lists again for partitions that another committer made meanwhile.
_ROUNDS = 8


class AdoptAction(StrEnum):
    """Outcome for one partition. ``LEFT``: it cannot be adopted as it is."""

    WOULD_ADOPT = "would-adopt"
    ADOPTED = "adopted"
    LEFT = "left"


@dataclass(frozen=True)
class AdoptedPartition:
    """A partition that has files but no head that names any of them.

    :param files: the number of these files; ``bytes``: their size.
    :param reason: why it cannot be adopted; empty for other actions.
    """

    partition: str
    files: int
    bytes: int
    action: AdoptAction
    reason: str = ""


@dataclass(frozen=True)
class AdoptReport:
    """Report of an adoption.

    :param partition_by: the table's partition columns, also if the table is yet to be made.
    :param readers_list: readers of the table list its files besides its heads.
    :param columns: the columns that the table takes over from files, and those that become wider;
        each with its type.
    :param unfit: by key of a file in a partition with a head, why readers do not see all of its
        columns: it was adopted by a version that did not read footers.
    """

    partition_by: tuple[str, ...]
    entries: tuple[AdoptedPartition, ...]
    readers_list: bool
    columns: tuple[str, ...] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)


def adopt(
    context: Context,
    owner: Owner,
    apply: bool,
    schema: pa.Schema | None = None,
    partition_by: tuple[str, ...] | None = None,
) -> Step[AdoptReport]:
    """Make heads for all partitions that have files but no head; then let readers use heads only.

    :param apply: ``False`` only reports what would be done.
    :param schema: with ``partition_by``: those of a table that is yet to be made.
    :raises InvalidInputError: the table has coordination *none*, and so no heads.
    """
    found = yield from find_table(context)
    spec = _spec(found, owner, schema, partition_by)
    before, columns = spec.schema, spec.partition_by or ()
    entries: dict[str, AdoptedPartition] = {}
    unfit: Mapping[str, str] = {}
    failed: ZeroRenameError | None = None
    for _ in range(_ROUNDS):
        # Before the listing: _note() writes on this state of table.json, so it must be the older.
        found = yield from find_table(context)
        listed = yield from list_table(context, columns)
        looked, _ = yield from find_unadopted(context, spec.schema, columns, listed)
        try:
            spec, looked, unfit = yield from _with_columns(context, spec, looked, listed)
        except SnapshotGoneError as error:
            # A committed job has removed a file after it was listed.
            failed = error
            continue
        failed = None
        entries |= looked
        if not apply:
            break
        wanted = [name for name, entry in looked.items() if entry.action is not AdoptAction.LEFT]
        try:
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                yield from _take(context, spec, some)
                # At once: a later portion may fail, and the next round does not find these again.
                entries |= {n: replace(looked[n], action=AdoptAction.ADOPTED) for n in some}
            if not wanted and _brings_columns(context, found, spec):
                # Files that heads name already have columns that the table does not have.
                yield from _take(context, spec, ())
        except (TableMismatchError, SnapshotGoneError) as error:
            # A file came, or changed, after the listing: the next round reads its footer.
            failed = error
            continue
        failed = None
        if (yield from _note(context, found, wanted, looked)):
            break
    if failed is not None:
        raise failed
    now = yield from find_table(context)
    if now is not None and now.record.adopting and apply:
        # Other committers added partitions in every round: put "unadopted" back.
        yield from confirm(context, now)
        now = yield from find_table(context)
    lists = now is None or not now.counts or now.record.unadopted
    ordered = tuple(entries[name] for name in sorted(entries))
    return AdoptReport(columns, ordered, lists, _changed(before, spec.schema), unfit)


def _brings_columns(context: Context, found: FoundTable | None, spec: JobSpec) -> bool:
    """Return whether the job would give an existing table new columns or wider types."""
    if found is None or not found.counts:
        return False
    own, url = found.record, context.root.url
    return evolved(own.schema, spec.schema, own.partition_by, url=url) is not own.schema


def _changed(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    return tuple(
        f"{it.name} {it.type}"
        for it in after
        if it.name not in before.names or before.field(it.name).type != it.type
    )


def _with_columns(
    context: Context,
    spec: JobSpec,
    looked: Mapping[str, AdoptedPartition],
    listed: Mapping[str, Sequence[ListedObject]],
) -> Step[tuple[JobSpec, dict[str, AdoptedPartition], dict[str, str]]]:
    """Return the job with the columns of all files, the partitions, and why files do not fit.

    The footers of all files are read that this package did not write, and that readers see or will
    see. A partition to be adopted that has a file which does not fit is returned as ``LEFT``. The
    last mapping has the reasons, by key, for files in partitions with heads.
    """
    columns = spec.partition_by or ()
    foreign = [
        ForeignFile.of(name, item)
        for name, items in listed.items()
        for item in items
        if is_data_file(item) and job_in_key(item.key) is None
    ]
    if any(file.partition not in looked for file in foreign):
        seen = yield from survey(context)
        named = {file.key for file in seen.snapshot.files}
        foreign = [it for it in foreign if it.partition in looked or it.key in named]
    found = list(zip(foreign, (yield from context.read_columns(foreign, columns)), strict=True))
    schema, unfit = joined(spec.schema, found)
    after = dict(looked)
    for file, _ in found:
        if file.key in unfit and file.partition in after:
            reason = f"{file.key} does not fit: {unfit.pop(file.key)}"
            entry = after[file.partition]
            if entry.action is not AdoptAction.LEFT:
                entry = replace(entry, action=AdoptAction.LEFT, reason=reason)
            after[file.partition] = entry
    if schema.equals(spec.schema):
        return spec, after, unfit
    return replace(spec, schema=schema, schema_mode=SchemaMode.MERGE), after, unfit


def _spec(
    found: FoundTable | None,
    owner: Owner,
    schema: pa.Schema | None,
    partition_by: tuple[str, ...] | None,
) -> JobSpec:
    if found is not None and found.counts:
        if found.record.coordination is Coordination.NONE:
            raise InvalidInputError(
                "A table of coordination=none has no heads; its readers list. Nothing was changed.",
                remedy="There is nothing to adopt.",
            )
        schema, partition_by = found.record.schema, found.record.partition_by
    assert schema is not None
    return JobSpec(
        schema,
        partition_by=partition_by,
        on_conflict=OnConflict.LAST_WINS,
        run_rank=NO_RANK,
        success_markers=SuccessMarkers.NONE,
        owner=owner,
    )


def find_unadopted(
    context: Context,
    schema: pa.Schema,
    partition_by: Sequence[str],
    listed: Mapping[str, Sequence[ListedObject]],
) -> Step[tuple[dict[str, AdoptedPartition], dict[str, DamagedError]]]:
    """Find the partitions with files that no head names, and those whose head is lost or damaged.

    :param listed: a table's data files, by partition.
    :return: the partitions, each to be adopted or ``LEFT``; and by partition the error of a head
        that is lost or cannot be read. A partition with such an error is ``LEFT``.
    """
    heads = yield from list_heads(context)
    read = yield from All(tuple(or_damage(read_head(context, it.slot)) for it in heads.values()))
    moved = {it.slot.name for it in read if isinstance(it, HeadState) and it.head.version}
    unread = {
        name: it
        for name, it in zip(heads, read, strict=True)
        if isinstance(it, DamagedError) and name in listed
    }
    names = sorted(set(listed) - moved - unread.keys())
    found, lost = yield from files_without_heads(context, {name: listed[name] for name in names})
    lost = {name: it for name, it in lost.items() if not isinstance(it, HeadMovedError)} | unread
    entries = {}
    for name in sorted({*names, *unread}):
        own = canonical_name(name, schema, partition_by)
        damage = lost.get(name)
        files = listed[name] if damage else found.get(name, ())
        if not files or (own is None and is_decodable(name)):
            continue  # No reader sees these files: verify names them.
        reason = "" if damage is None else str(damage)
        if own is None and damage is None:
            reason = "the escaped bytes of its directory's name are not UTF-8; rename the directory"
        elif own != name and damage is None:
            reason = f"rows of its values are written to {own}; rename the directory to that"
        action = AdoptAction.LEFT if reason else AdoptAction.WOULD_ADOPT
        size = sum(file.size for file in files)
        entries[name] = AdoptedPartition(name, len(files), size, action, reason)
    return entries, lost


def _take(context: Context, spec: JobSpec, partitions: Sequence[str]) -> Step[None]:
    opened = yield from open_job(context, replace(spec, adopt_partitions=tuple(partitions)))
    yield from commit_job(context, opened, [], expected_tasks=0)


def _note(
    context: Context, found: FoundTable | None, taken: Collection[str], looked: Collection[str]
) -> Step[bool]:
    """Write into ``table.json`` whether readers list files, unless it has changed since ``found``.

    Another committer may have made partitions since the listing. So *unadopted* first becomes
    *adopting*, with which readers use heads only. After one more listing *adopting* is removed. If
    the adoption dies in between, the next job or recovery that finds *adopting* puts *unadopted*
    back.

    :param looked: the partitions that were found; ``taken``: those of them that have heads now.
    :return: ``True`` if no further listing is needed.
    """
    if found is None or not found.counts:
        return not taken
    note, left = found.record, len(taken) != len(looked)
    if not (note.unadopted or note.adopting):
        return not taken
    if left and note.unadopted:
        return True
    adopting = note.unadopted
    now = yield from change_table(context, found, unadopted=left, adopting=adopting)
    return isinstance(now, FoundTable) and not adopting


def adopt_current(context: Context, owner: Owner, apply: bool) -> Step[AdoptReport]:
    """Adopt the files of a table, or of a directory without one (:meth:`.table.Table.adopt`)."""
    found = yield from current_table(context, as_spelled=True)
    if isinstance(found, ListedTable):
        return (yield from adopt(context, owner, apply, found.schema, found.partition_by))
    yield from refuse_other_logs([context.root])
    return (yield from adopt(context, owner, apply))
