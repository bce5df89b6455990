"""A look for conflicts: what of the records has come since the last one.

Job ids begin with the time at which their job began, by its driver's clock, so one listing is
bounded in time. What begins within the last hour by that clock is looked at again, and so is what
had not decided: no clock of a driver is off by more, as S3 refuses its requests then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.layout import TableRoot, job_began, jobs_between, jobs_on_record
from ..format.records.failure import Failure
from ..format.records.run_conflict import ConflictingRun, ConflictRecord
from ..store.listing import Listing, list_objects
from ..store.requests import Absent, All, Get, Step

#: Seconds by which the clock of a driver may be wrong.
_SKEW = 3600.0
#: Seconds that the first look goes back: as long as failures, and the decisions that tell of what a
#: replace removed, are kept.
FIRST = 7 * 24 * 3600.0
#: Prefixes that a look lists decisions by.
_PREFIXES = 4
#: Errors of a run that gave way to another.
GAVE_WAY = (
    "CommitConflictError",
    "SupersededRunError",
    "DestinationExistsError",
    "JobFencedError",
    "OtherJobError",
)


@dataclass(frozen=True)
class StoredFailure:
    """A run's failure, and when it was put on record, by the store's clock."""

    said: Failure
    at: float

    def run_in(self, partition: str) -> ConflictingRun:
        """Return the run as one that gave way in a partition."""
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
    """Records that a look has found.

    :param began: when it began, by the store's clock; ``since``: from when on it looked.
    :param decided: decisions that no look had read.
    :param failures: failures of runs that gave way.
    :param unread: why decisions cannot be read, which are ``waiting``.
    :param damaged: why failures cannot be read.
    :param known: jobs of the last hour whose decisions were read, now or before.
    :param waiting: jobs to be looked at again.
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
        """The time from which on the next look asks for jobs."""
        return self.began - _SKEW


def look_since(context: Context, record: ConflictRecord) -> Step[NewRecords]:
    """Read what has come since the last look: a LIST of the open jobs, at most four of decisions
    for each thousand, one of failures, and a GET for each that is new."""
    root = context.root
    # Before the decisions: of a job that is closed between the two the decision is listed.
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
    # One that is decided and not wholly applied yet is open still.
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
    """Read what was decided, and failed, in so many seconds before now, by the store's clock."""
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
    # One that was written again since keeps its date.
    decided = (it for it in found if isinstance(it, Decided) and it.date >= since)
    unread = tuple(str(it) for it in found if isinstance(it, DamagedError))
    return NewRecords(opened.since, since, tuple(decided), failures[0], unread, (), (), failures[1])


def read_failure(key: str) -> Step[Failure | None]:
    """Read a run's failure; ``None``: it is no longer on record."""
    found = yield from Get(key)
    return None if isinstance(found, Absent) else Failure.decode(found.body, key)


def head_met(root: TableRoot, failure: Failure) -> str | None:
    """Name the partition whose head was in a run's way; ``None``: not that."""
    return None if failure.key is None else root.partition_of_head_key(failure.key)


def _list_jobs(root: TableRoot, first: float, last: float) -> Step[set[str]]:
    """List the jobs with a decision that began between two times, and some around."""
    prefixes = jobs_between(first, last, _PREFIXES)
    listings = yield from All(
        tuple(list_objects(f"{root.decisions_prefix}{prefix}") for prefix in prefixes)
    )
    keys = (key for listing in listings for key in listing.keys)
    return set(jobs_on_record(root.decisions_prefix, keys))


def failures_since(
    listing: Listing, since: float
) -> Step[tuple[tuple[StoredFailure, ...], tuple[str, ...]]]:
    """Read the failures of runs that gave way since a time; and why some cannot be read."""
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
