"""Verification of a table: the files that heads name are compared with those in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..commit.index.lost_heads import files_without_heads
from ..commit.snapshot import Snapshot, Survey, survey
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import read_table
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError, HeadMovedError, InvalidInputError, counted
from ..format.job_spec import Coordination
from ..format.layout import UNPARTITIONED
from ..format.parquet.foreign_columns import ForeignFile, problems_of
from ..format.parquet.foreign_table import ListedTable
from ..format.records.data_file import DataFile
from ..format.records.success_marker import SuccessMarker
from ..format.schema.directory import canonical_name, is_parquet, visible_files
from ..format.schema.hive_paths import is_decodable
from ..format.schema.other_formats import find_log
from ..scan.current_table import current_table
from ..store.listing import list_objects
from ..store.requests import Absent, All, Get, ListedObject, Step
from .lost_partitions import lost_partitions
from .put_back import put_back_by_files

#: Explanation for a file that readers skip because of its name.
_NO_PARQUET = ", no Parquet by its name: Spark's own reader stops at it; move it or remove it"


class FindingKind(StrEnum):
    """Kind of a difference between a table and the store.

    Unnamed: readers that list see the file, readers through the heads, or a log, do not. It is a
    foreign file that came after the partition got a head, or that no entry of the log names, or
    lies in no partition, or is not Parquet; or its removal is outstanding.
    Other format: the folder has the log of another table format, which counts other files.
    Other columns: a file that another program wrote has columns that the table does not show.
    Damaged: a record that says which files the partition holds is missing or cannot be read.
    """

    MISSING = "missing"
    WRONG_SIZE = "wrong size"
    UNNAMED = "unnamed"
    DAMAGED = "damaged"
    FORMAT = "other format"
    COLUMNS = "other columns"


@dataclass(frozen=True)
class Finding:
    """One difference between a head and the store."""

    partition: str
    key: str
    kind: FindingKind
    detail: str


def verify(context: Context) -> Step[list[Finding]]:
    """Compare the files that readers see with a listing of all objects below the table.

    Commits of other jobs meanwhile are not reported. A file counts as missing only if the state
    before the listing and the state after it name it, and as unnamed only if neither does.

    :raises InvalidInputError: the table has coordination *none*.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "A table of coordination=none has no heads that a listing could be compared with."
        )
    context = context.of(table)
    before = yield from survey(context)
    listing = yield from list_objects(f"{context.root.prefix}/")
    after = yield from survey(context)
    there = {item.key: item for item in visible_files(context.root, listing.objects)}
    states = before.snapshot, after.snapshot
    damaged = yield from lost_partitions(context, listing.objects)
    damaged |= yield from _lost_by_files(context, after, there.values())
    found = [*_lost(*states, there), *_unnamed(context, *states, there)]
    strays = [it.key for it in found if it.kind is FindingKind.UNNAMED]
    damaged |= yield from put_back_by_files(context, strays, after.snapshot.versions)
    damaged |= yield from _of_former_columns(context, after.snapshot)
    damaged |= {**before.damaged, **after.damaged}
    if (log := find_log(context.root, listing.keys)) is not None:
        detail = f"{log[0].name} does not count the same files: keep one of the two here"
        found.append(Finding(UNPARTITIONED, log[1], FindingKind.FORMAT, detail))
    found += yield from _other_columns(context, after.snapshot, there)
    return [
        *(
            Finding(partition, error.key or "", FindingKind.DAMAGED, str(error))
            for partition, error in sorted(damaged.items())
        ),
        *(finding for finding in found if finding.partition not in damaged),
    ]


def _of_former_columns(context: Context, state: Snapshot) -> Step[dict[str, DamagedError]]:
    """Find the partitions with files whose columns have been overwritten since.

    Sends one request if the table's columns were never overwritten; otherwise also a GET for each
    job that wrote one of the files. Files of condensed decisions are not found.
    """
    overwritten = (yield from read_table(context)).overwritten
    if not overwritten:
        return {}
    jobs = sorted({file.job for file in state.files if file.job})
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    former = {
        job
        for job, it in zip(jobs, found, strict=True)
        if isinstance(it, Decided)
        and not it.decision.condensed
        and it.decision.schema_version < overwritten
    }
    return {
        file.partition: DamagedError(
            f"{file.partition or 'The table'} has files of former columns, which were overwritten "
            "since: no reader can read them.",
            job=file.job,
            key=file.key,
            remedy="Load the partition again with mode replace; or take back the job that brought "
            f"it back: zero-rename history {context.root.url}",
        )
        for file in state.files
        if file.job in former
    }


def _other_columns(
    context: Context, state: Snapshot, there: Mapping[str, ListedObject]
) -> Step[list[Finding]]:
    """Find foreign files with columns that the table does not show, or that cannot be read. It
    reads the footer of each."""
    files = [
        ForeignFile.of(file.partition, there[file.key])
        for file in state.files
        if file.is_foreign and file.key in there and there[file.key].size == file.size
    ]
    found = yield from context.read_columns(files, state.partition_by)
    findings = []
    for file, columns in zip(files, found, strict=True):
        if isinstance(columns, DamagedError):
            findings.append(Finding(file.partition, file.key, FindingKind.DAMAGED, str(columns)))
        elif problems := problems_of(state.schema, columns):
            detail = f"{'; '.join(problems)}: zero-rename adopt {context.root.url}"
            findings.append(Finding(file.partition, file.key, FindingKind.COLUMNS, detail))
    return findings


def _lost_by_files(
    context: Context, seen: Survey, there: Iterable[ListedObject]
) -> Step[dict[str, DamagedError]]:
    """Find the partitions that have lost their heads: they contain files of jobs that changed
    them, but have no head."""
    unheaded: dict[str, list[ListedObject]] = {}
    for item in there:
        name = context.root.partition_of_data_key(item.key) or ""
        if name not in seen.snapshot.versions and name not in seen.damaged:
            unheaded.setdefault(name, []).append(item)
    _, lost = yield from files_without_heads(context, unheaded)
    return {name: it for name, it in lost.items() if not isinstance(it, HeadMovedError)}


def _lost(
    before: Snapshot, after: Snapshot, there: Mapping[str, ListedObject]
) -> Iterator[Finding]:
    still = {file.key: file for file in after.files}
    for file in before.files:
        item = there.get(file.key)
        if still.get(file.key) != file:
            continue
        if item is None:
            detail = rows_missing(file.rows, file.job)
            yield Finding(file.partition, file.key, FindingKind.MISSING, detail)
        elif item.size != file.size:
            detail = f"{item.size} bytes, decided were {file.size}"
            yield Finding(file.partition, file.key, FindingKind.WRONG_SIZE, detail)


def rows_missing(rows: int, job: str | None) -> str:
    """Return a phrase for the rows of a missing file and the job that wrote them.

    :param rows: how many; below 0: they were never counted.
    :param job: the job that wrote the file; ``None`` or ``""``: another program wrote it.
    """
    many = counted(rows, "row") if rows >= 0 else "rows that nobody has counted"
    return f"{many} of job {job}" if job else f"{many}, of another program"


def _unnamed(
    context: Context, before: Snapshot, after: Snapshot, there: Mapping[str, ListedObject]
) -> Iterator[Finding]:
    named = {file.key for state in (before, after) for file in state.files}
    for key, item in sorted(there.items()):
        partition = context.root.partition_of_data_key(key) or ""
        can_be_read = is_decodable(partition)
        if key in named and can_be_read:
            continue
        detail = f"{item.size} bytes"
        if not is_parquet(item):
            detail += _NO_PARQUET
        elif not can_be_read:
            detail += ", in a directory whose escaped bytes are not UTF-8: rename it"
        elif canonical_name(partition, after.schema, after.partition_by) is None:
            detail += ", in no partition of this table: move it or remove it"
        elif partition not in after.versions:
            detail += f", in a partition without a head: zero-rename adopt {context.root.url}"
        yield Finding(partition, key, FindingKind.UNNAMED, detail)


def verify_listed(
    context: Context, files: Sequence[DataFile], strays: Sequence[ListedObject]
) -> Step[list[Finding]]:
    """Compare the markers of another committer with the files that are there.

    :param files: all files that a listing shows in partitions.
    :param strays: the other files that it shows, which readers skip.
    """
    there = {file.key for file in files}
    places = dict.fromkeys((UNPARTITIONED, *sorted({file.partition for file in files})))
    found = yield from All(tuple(_marker(context, place) for place in places))
    markers = {place: marker for place, marker in zip(places, found, strict=True) if marker}
    findings = [
        Finding(
            context.root.partition_of_data_key(item.key) or "",
            item.key,
            FindingKind.UNNAMED,
            f"{item.size} bytes"
            + (", in no partition: move it or remove it" if is_parquet(item) else _NO_PARQUET),
        )
        for item in strays
    ]
    for place, marker in markers.items():
        for name in marker.filenames:
            key = name.removeprefix("/")
            partition = context.root.partition_of_data_key(key) or place
            # A later job may have replaced what an earlier marker names.
            others = (markers.get(partition), markers.get(UNPARTITIONED))
            latest = max(other.timestamp_ms for other in (marker, *others) if other)
            if key not in there and marker.timestamp_ms == latest:
                detail = f"named by the _SUCCESS of job {marker.job or 'unknown'}"
                findings.append(Finding(partition, key, FindingKind.MISSING, detail))
    return findings


def _marker(context: Context, partition: str) -> Step[SuccessMarker | None]:
    found = yield from Get(context.root.marker_key(partition))
    return None if isinstance(found, Absent) else SuccessMarker.parse_or_none(found.body)


def verify_current(context: Context) -> Step[list[Finding]]:
    """Verify a table, or a directory without one (:meth:`.table.Table.verify`). Lost records of the
    table are a finding, too."""
    found = yield from or_damage(current_table(context))
    if isinstance(found, DamagedError):
        return [Finding("", found.key or "", FindingKind.DAMAGED, str(found))]
    if isinstance(found, ListedTable):
        return (yield from verify_listed(context, found.files, found.directory.strays))
    return (yield from verify(context))
