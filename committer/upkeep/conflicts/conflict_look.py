"""New records for a search for conflicts: those that came since the last search.

Job ids begin with the time at which the job began, by its driver's clock, so a listing can be
bounded in time. The next search asks again for jobs that began within the last hour by that clock,
and for jobs that had not decided. A driver's clock is off by less than an hour, since S3 refuses
its requests otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...commit.state.context import Context
from ...commit.state.decide import Decided, read_decision
from ...commit.state.tolerance import or_damage
from ...errors import DamagedError
from ...format.layout import TableRoot, job_began, jobs_between, jobs_on_record
from ...format.records.failure import Failure
from ...format.records.run_conflict import ConflictingRun, ConflictRecord
from ...store.listing import Listing, list_objects
from ...store.requests import Absent, All, Get, Step

#: Seconds by which the clock of a driver may be wrong.
_SKEW = 3600.0
#: Seconds that the first search goes back: for so long failures are kept, and decisions still name
#: the files that a replace removed.
FIRST = 7 * 24 * 3600.0
#: By how many prefixes a search lists decisions, at most.
_PREFIXES = 4
#: Errors that say that a run gave way to another.
GAVE_WAY = (
    "CommitConflictError",
    "SupersededRunError",
    "DestinationExistsError",
    "JobFencedError",
    "OtherJobError",
)


@dataclass(frozen=True)
class StoredFailure:
    """The recorded failure of a run, and when it was recorded, by the store's clock."""

    said: Failure
    at: float

    def run_in(self, partition: str) -> ConflictingRun:
        """Return the failed run as one that gave way in a partition."""
        said = self.said
        rank = said.ranks.rank(partition) if said.ranks else None
        return ConflictingRun(
            said.idempotency_key,
            said.job or "",
            self.at,
            said.owner,
            rank,
            gave_way=True,
            message=said.message,
        )


@dataclass(frozen=True)
class NewRecords:
    """Records that a search has found.

    :param began: when the search began, by the store's clock; ``since``: the time from which on it
        searched.
    :param decided: decisions that no search had read before.
    :param failures: failures of runs that gave way.
    :param unread: errors of decisions that cannot be read; their jobs are in ``waiting``.
    :param damaged: errors of failures that cannot be read.
    :param known: open jobs and jobs of the last hour whose decisions have been read.
    :param waiting: jobs that the next search must read again.
    """

    began: float
    since: float
    decided: tuple[Decided, ...]
    failures: tuple[StoredFailure, ...]
    unread: tuple[str, ...]
    known: tuple[str, ...]
    waiting: tuple[str, ...]
    damaged: tuple[str, ...] = ()

    @property
    def mark(self) -> float:
        """The time from which on the next search asks for jobs."""
        return self.began - _SKEW


def look_since(context: Context, record: ConflictRecord) -> Step[NewRecords]:
    """Read the decisions and failures that came since the last search.

    Sends a LIST of the open jobs, at most four of decisions for each thousand of them, one of
    failures, and a GET for each new record."""
    root = context.root
    # Before the decisions: if a job is closed in between, its decision is listed.
    opened = yield from list_objects(root.open_prefix)
    began = opened.since
    at_work = set(jobs_on_record(root.open_prefix, opened.keys))
    mark = record.mark or began - FIRST
    since = record.looked_at or began - FIRST
    first = min([mark, *map(job_began, record.waiting)])
    listed, failed = yield from All(
        (_list_jobs(root, first, began + _SKEW), list_objects(root.failures_prefix))
    )
    wanted = {job for job in listed if job_began(job) >= mark}
    wanted = (wanted | (listed & set(record.waiting))) - set(record.known)
    jobs = sorted(wanted)
    found, failures = yield from All(
        (
            All(tuple(or_damage(read_decision(context, job)) for job in jobs)),
            failures_since(failed, since),
        )
    )
    damaged = {job for job, it in zip(jobs, found, strict=True) if isinstance(it, DamagedError)}
    until = began - _SKEW
    known = (*record.known, *(job for job in jobs if job not in damaged))
    # A job that is decided but not completely applied is still open.
    undecided = (at_work - listed - set(known)) | damaged
    return NewRecords(
        began,
        since,
        tuple(it for it in found if isinstance(it, Decided)),
        failures[0],
        tuple(str(it) for it in found if isinstance(it, DamagedError)),
        tuple(sorted(job for job in known if job_began(job) >= until or job in at_work)),
        tuple(sorted(job for job in undecided if job_began(job) < until or job in damaged)),
        failures[1],
    )


def look_back(context: Context, seconds: float) -> Step[NewRecords]:
    """Read the decisions and failures of so many seconds before now, by the store's clock."""
    root = context.root
    opened = yield from list_objects(root.open_prefix)
    since = opened.since - seconds
    # A job that began before may have been decided since.
    listed, failed = yield from All(
        (list_objects(root.decisions_prefix), list_objects(root.failures_prefix))
    )
    recent = (it.key for it in listed.objects if it.last_modified >= since)
    jobs = sorted(jobs_on_record(root.decisions_prefix, recent))
    found, failures = yield from All(
        (
            All(tuple(or_damage(read_decision(context, job)) for job in jobs)),
            failures_since(failed, since),
        )
    )
    # A decision that was rewritten since keeps its date.
    decided = (it for it in found if isinstance(it, Decided) and it.date >= since)
    unread = tuple(str(it) for it in found if isinstance(it, DamagedError))
    return NewRecords(opened.since, since, tuple(decided), failures[0], unread, (), (), failures[1])


def read_failure(key: str) -> Step[Failure | None]:
    """Read the failure of a run; ``None``: it is not on record any more."""
    found = yield from Get(key)
    return None if isinstance(found, Absent) else Failure.decode(found.body, key)


def head_met(root: TableRoot, failure: Failure) -> str | None:
    """Return the partition whose head a failure names; ``None``: it names no head."""
    return None if failure.key is None else root.partition_of_head_key(failure.key)


def _list_jobs(root: TableRoot, first: float, last: float) -> Step[set[str]]:
    """List the jobs with a decision that began between two times, and some before and after."""
    prefixes = jobs_between(first, last, _PREFIXES)
    listings = yield from All(
        tuple(list_objects(f"{root.decisions_prefix}{prefix}") for prefix in prefixes)
    )
    keys = (key for listing in listings for key in listing.keys)
    return set(jobs_on_record(root.decisions_prefix, keys))


def failures_since(
    listing: Listing, since: float
) -> Step[tuple[tuple[StoredFailure, ...], tuple[str, ...]]]:
    """Read the failures of runs that gave way since a time, and the errors of damaged records."""
    items = [it for it in listing.objects if it.last_modified >= int(since)]
    read = yield from All(tuple(or_damage(read_failure(it.key)) for it in items))
    found = [
        StoredFailure(it, item.last_modified)
        for item, it in zip(items, read, strict=True)
        if isinstance(it, Failure) and it.error in GAVE_WAY
    ]
    return tuple(found), tuple(_damages(read))


def _damages(read: Iterable[Failure | DamagedError | None]) -> Iterable[str]:
    return (str(it) for it in read if isinstance(it, DamagedError))
