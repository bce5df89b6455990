"""Recent jobs of a table: the decisions that were written last, and their contents."""

from __future__ import annotations

from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.job_spec import Owner
from ..format.layout import job_ids_begin, job_in_key, jobs_on_record, require_job_id
from ..format.records.decision import Verdict
from ..format.records.partition_decision import PartitionDecision
from ..format.records.pending_file import PendingFile
from ..format.row_changes import ChangeReads, RowChanges
from ..store.listing import list_objects
from ..store.requests import All, Step

#: Numbers of leading digits of the time in job ids. Jobs are listed by each in turn until there are
#: enough: those of two to four weeks, of one to two years, and all.
_DIGITS = (4, 3, 0)


@dataclass(frozen=True)
class PartitionChange:
    """Change of one partition by a committed job.

    :param base_version: the partition's version before; -1 in a table without heads.
    :param replaced: whether it replaced what was there.
    :param files: number of files that it wrote, of ``rows`` and ``bytes``.
    :param adopted: number of files from before the table that it took over.
    :param removed: number of files that it removed.
    :param removed_jobs: the jobs that had written those, if the files' names show it.
    :param rewritten: its rows were there before, of other jobs: a compaction's, a resolution's.
    :param row_changes: of a merge, an update or a deletion: its changes of the rows.
    :param settles: it settled a conflict of runs there.
    """

    partition: str
    base_version: int
    replaced: bool
    files: int
    rows: int
    bytes: int
    adopted: int
    removed: int
    removed_jobs: tuple[str, ...] = ()
    rewritten: bool = False
    row_changes: RowChanges | None = None
    settles: bool = False


@dataclass(frozen=True)
class SeenJob:
    """Job with a decision.

    :param decided_at: Unix seconds, by the store's clock.
    :param changes: empty for an aborted job, whose decision has no changes.
    :param change_reads: of a merge, an update or a deletion: how much of the table was read.
    """

    job: str
    verdict: Verdict
    owner: Owner
    idempotency_key: str | None
    decided_at: float
    changes: tuple[PartitionChange, ...]
    change_reads: ChangeReads | None = None

    @property
    def rows(self) -> int:
        return sum(change.rows for change in self.changes)

    @property
    def files(self) -> int:
        return sum(change.files for change in self.changes)

    @property
    def bytes(self) -> int:
        return sum(change.bytes for change in self.changes)

    @property
    def row_changes(self) -> RowChanges | None:
        """Changes of rows by a merge, an update or a deletion; ``None`` for other jobs."""
        return RowChanges.told((it.row_changes for it in self.changes), self.change_reads)


@dataclass(frozen=True)
class JobManifest:
    """A job's decision, with all files that it names.

    :param is_condensed: it was applied long ago, and has only the number of its files, not their
        names.
    """

    job: SeenJob
    files: tuple[PendingFile, ...]
    lost: tuple[PendingFile, ...]
    is_condensed: bool = False


def read_job_manifest(context: Context, job: str) -> Step[JobManifest | None]:
    """Read the decision that :meth:`.table.Table.manifest` returns."""
    require_job_id(job)
    decided = yield from read_decision(context, job)
    if decided is None:
        return None
    lost = tuple(file for change in decided.decision.partitions for file in change.lost)
    condensed = any(change.condensed is not None for change in decided.decision.partitions)
    return JobManifest(seen_job(decided), decided.decision.files, lost, condensed)


def seen_job(decided: Decided) -> SeenJob:
    """Summarise a decision for the overview."""
    decision = decided.decision
    changes = tuple(_change(change) for change in decision.partitions)
    return SeenJob(
        decision.job,
        decision.verdict,
        decision.owner,
        decision.idempotency_key,
        decided.date,
        changes,
        decision.change_reads,
    )


def _change(change: PartitionDecision) -> PartitionChange:
    gone = {job_in_key(file.key) for file in change.removals}.union(change.dropped_jobs)
    return PartitionChange(
        change.partition,
        change.base_version,
        change.replace,
        change.sums.files,
        change.sums.rows,
        change.sums.bytes,
        len(change.adopted),
        change.sums.removed,
        tuple(sorted(job for job in gone if job)),
        bool(change.merged) and change.row_changes is None,
        change.row_changes,
        change.settles,
    )


def recent_jobs(
    context: Context, now: float, most: int
) -> Step[tuple[list[SeenJob], dict[str, DamagedError]]]:
    """Read the jobs decided last, newest first.

    Each job whose decision is damaged, or has a damaged part, has an error instead.

    One request a job, and one for each thousand decisions of the time that is listed.

    :param now: the store's time.
    :param most: so many at most.
    """
    listed: set[str] = set()
    for digits in _DIGITS:
        listed = yield from _opened_about(context, now, digits)
        if len(listed) >= most:
            break
    # By the time in their ids: a decision that was condensed has been written again since.
    newest = sorted(listed, reverse=True)[:most]
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in newest))
    seen = [seen_job(it) for it in found if isinstance(it, Decided)]
    seen.sort(key=lambda job: (job.decided_at, job.job), reverse=True)
    errors = zip(newest, found, strict=True)
    return seen, {job: it for job, it in errors if isinstance(it, DamagedError)}


def _opened_about(context: Context, now: float, digits: int) -> Step[set[str]]:
    """List recent jobs with a decision, by the first digits of the time in their ids.

    The digits are those of ``now``, and those just before: one to two of the time spans in which
    the digits stay the same.
    """
    span = 32 ** (10 - digits) / 1000
    begin = sorted({job_ids_begin(at, digits) for at in (now - span, now)})
    prefix = context.root.decisions_prefix
    listings = yield from All(tuple(list_objects(f"{prefix}{it}") for it in begin))
    keys = (key for listing in listings for key in listing.keys)
    return set(jobs_on_record(prefix, keys))
