"""Jobs with an open record: their listing, and the records."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DamagedError
from ...format.job_spec import NOBODY, JobSpec, Owner
from ...format.layout import jobs_on_record
from ...format.records.open_record import OpenRecord
from ...store.listing import list_objects
from ...store.requests import Absent, Found, Get, Step
from .context import Context


@dataclass(frozen=True)
class OpenEntry:
    """Open record that was there, and the duration of its silence, by the store's clock.

    :param record: ``None`` if it cannot be read; ``damage`` then says why.
    """

    job: str
    record: OpenRecord | None
    silent_for: float
    last_modified: float
    damage: DamagedError | None = None

    @property
    def owner(self) -> Owner:
        """Owner of the job; nobody if the record cannot be read."""
        return NOBODY if self.record is None else self.record.owner

    @property
    def patience(self) -> float:
        """Seconds of silence after which the job counts as dead.

        If the record cannot be read, the default maximum duration of jobs.
        """
        return JobSpec.max_duration if self.record is None else self.record.patience

    @property
    def order(self) -> tuple[float, str]:
        """Sort key by the time of opening: by the store's clock; within one second, by id."""
        opened_at = None if self.record is None else self.record.opened_at
        return (self.last_modified if opened_at is None else opened_at, self.job)


def list_open(context: Context) -> Step[set[str]]:
    """List the ids of jobs with an open record: one LIST. Foreign objects are left out."""
    prefix = context.root.open_prefix
    listing = yield from list_objects(prefix)
    return set(jobs_on_record(prefix, listing.keys))


def read_open(context: Context, job: str) -> Step[OpenEntry | None]:
    """Read a job's open record; return ``None`` if there is none."""
    found = yield from Get(context.root.open_key(job))
    return None if isinstance(found, Absent) else entry_of(found, job)


def entry_of(found: Found, job: str) -> OpenEntry:
    """Return what a job's open record says.

    If the record cannot be read, the job is open all the same: its age is known, and its decision.
    The silence is the answer's Date minus the record's Last-Modified: only the store's clock
    counts.

    :param found: the record, as the store has it.
    """
    silent_for = max(0.0, found.date - found.last_modified)
    try:
        record = OpenRecord.decode(found.body, found.key)
    except DamagedError as error:
        return OpenEntry(job, None, silent_for, found.last_modified, error)
    if record.job != job:
        error = DamagedError(
            f"An open record names another job, {record.job}.",
            job=job,
            key=found.key,
            remedy="Find out who wrote it; it was left as it is.",
        )
        return OpenEntry(job, None, silent_for, found.last_modified, error)
    return OpenEntry(job, record, silent_for, found.last_modified)
