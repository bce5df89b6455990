"""Records of the jobs whose rows a state of a Delta table holds, read from the entries of its log.

==============================  ================================================================
a file                          the jobs of its rows
==============================  ================================================================
of a job of this package        that job; the file's tags name it and the version of its entry
of an entry that rewrote rows   the jobs of the files that the entry removed there; for a merge,
                                an update or a deletion also its own job
of another engine               unknown: the job ``""``
==============================  ================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from ..committer.commit.snapshot import Snapshot
from ..committer.format.job_spec import Mode
from ..committer.overview.job_record import JobRecord, with_runs
from ..committer.store.requests import Step
from ..log.actions import AddFile, AppTransaction, RemoveFile
from ..log.change import RUN
from ..log.entries import LogEntry, LogFolder
from ..log.opening import read_entries
from ..log.scope import read_scope
from .delta_files import name_told, version_of_job
from .delta_inputs import inputs_told
from .delta_runs import owner_of, rewrites

#: How many entries are read at once.
_AT_ONCE = 64


def job_records(
    folder: LogFolder, state: Snapshot, jobs: Iterable[str]
) -> Step[dict[str, JobRecord]]:
    """Read the records of jobs with files in a state: one request for each.

    This includes jobs whose rows these jobs rewrote, and earlier jobs of their runs that they
    repeated in part. Jobs whose entries were cleaned are left out."""
    found: dict[str, LogEntry] = {}
    wanted = {state.entries[job] for job in jobs if job in state.entries}
    seen: set[int] = set()
    while wanted:
        entries = yield from _read(folder, sorted(wanted))
        seen |= wanted
        found |= {it.job: it for it in entries if it.job}
        wanted = {at for it in entries if rewrites(it) for at in _removed_by_entry(it)}
        wanted |= {at for it in entries if (at := _narrowed_by_entry(it)) is not None}
        wanted -= seen
    records: dict[str, JobRecord] = {}
    for job, entry in sorted(found.items(), key=lambda it: it[1].version):
        # An entry removes files of earlier entries, whose records are in ``records`` by now.
        records[job] = _record(entry, state, records)
    return with_runs(records)


def _read(folder: LogFolder, versions: list[int]) -> Step[list[LogEntry]]:
    found: list[LogEntry] = []
    for start in range(0, len(versions), _AT_ONCE):
        entries = yield from read_entries(folder, versions[start : start + _AT_ONCE])
        found += [it for it in entries if it is not None]
    return found


def _removed_by_entry(entry: LogEntry) -> set[int]:
    """Return the versions of the entries whose files this entry removed."""
    return {at for it in entry.of(RemoveFile) if (at := version_of_job(it)) is not None}


def _narrowed_by_entry(entry: LogEntry) -> int | None:
    """Return the version of the run's earlier entry that this one repeats in part, by a plan;
    ``None``: it does not."""
    former = entry.ours.get("former")
    is_narrowed = entry.ours.get("narrows") is not None and isinstance(former, int)
    return former if is_narrowed else None


def _record(entry: LogEntry, state: Snapshot, before: Mapping[str, JobRecord]) -> JobRecord:
    """Return the record of an entry's job.

    :param before: the records of earlier entries.
    """
    job = entry.job or ""
    own = [it for it in entry.of(AddFile) if it.tags.get("job") == job]
    wrote = frozenset(_name(it.values, state) for it in own)
    keys = [it.app for it in entry.of(AppTransaction) if it.app.startswith(RUN)]
    narrows = entry.ours.get("narrows")
    return JobRecord(
        job,
        owner_of(entry),
        keys[0].removeprefix(RUN) if keys else None,
        entry.written_at,
        Mode.APPEND if entry.ours.get("replaced") in (None, []) else Mode.REPLACE,
        entry.ours.get("changeReads") is not None,
        inputs_told(entry),
        wrote,
        _origins(entry, state, wrote, before) if rewrites(entry) else {},
        narrows if isinstance(narrows, str) else None,
        dict.fromkeys(_replaced(entry, state) - wrote),
    )


def _replaced(entry: LogEntry, state: Snapshot) -> set[str]:
    """Return the names of the partitions that an entry replaced. If it replaced the whole table,
    these are the partitions that held files."""
    scope = read_scope(entry.ours.get("replaced"))
    named = {name_told(it, state.schema, state.partition_by) for it in scope.partitions}
    gone = entry.of(RemoveFile) if scope.all else ()
    return named | {_name(it.values, state) for it in gone if it.values is not None}


def _origins(
    entry: LogEntry, state: Snapshot, wrote: Collection[str], before: Mapping[str, JobRecord]
) -> dict[str, tuple[str, ...]]:
    """Return the jobs whose rows an entry has rewritten, by partition."""
    found: dict[str, list[str]] = defaultdict(list)
    for it in entry.of(RemoveFile):
        name, job = _name(it.values or {}, state), it.tags.get("job") or ""
        origins = before[job].origins if job in before else {}
        found[name] += origins.get(name, (job,))
    if any(it.changes_data for it in entry.of(AddFile)):
        for name in wrote:
            found[name].append(entry.job or "")
    return {name: tuple(dict.fromkeys(found[name])) for name in sorted(wrote)}


def _name(values: Mapping[str, str | None], state: Snapshot) -> str:
    partition = tuple(values.get(column) for column in state.partition_by)
    return name_told(partition, state.schema, state.partition_by)
