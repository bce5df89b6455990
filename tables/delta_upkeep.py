"""Upkeep of a Delta table: jobs whose process is dead, and files that nothing needs."""

from __future__ import annotations

import json

from ..committer.errors import RecordDamagedError
from ..committer.format.job_spec import MAX_DURATION
from ..committer.format.layout import new_job_id
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Found, Get, Step
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.job_files import JobFiles
from ..log.job_steps import recover_job
from ..log.purging import plan_log_purge, purge_log


def store_now(layout: DeltaLayout) -> Step[int]:
    """The time by the store's clock, in milliseconds: one request."""
    listing = yield from list_objects(JobFiles(layout.control).opened)
    return int(listing.date * 1000)


def recover_jobs(layout: DeltaLayout, silent_for: float | None) -> Step[list[str]]:
    """Settle the jobs whose process is taken for dead; return their ids.

    :param silent_for: seconds since a job opened; ``None``: its own maximum duration.
    :raises RecordDamagedError: an open record cannot be read; the others are settled.
    """
    records = JobFiles(layout.control)
    listing = yield from list_objects(records.opened)
    found = yield from All(tuple(Get(key) for key in listing.keys))
    settled: list[str] = []
    damaged: RecordDamagedError | None = None
    for record in found:
        if not isinstance(record, Found):
            continue  # It was closed meanwhile.
        try:
            patience = _max_duration(record) if silent_for is None else silent_for
        except RecordDamagedError as error:
            damaged = error
            continue
        if listing.date - record.last_modified >= patience:
            job = records.job_of(record.key)
            now = int(listing.date * 1000)
            yield from recover_job(layout, job, new_job_id(), now)
            settled.append(job)
    if damaged is not None:
        raise damaged
    return settled


def _max_duration(record: Found) -> float:
    """The seconds that the job of an open record may take."""
    try:
        found = json.loads(record.body)["owner"].get("max_duration", MAX_DURATION)
        return float(found)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise RecordDamagedError(
            "An open record does not say how long its job may take. The job was left alone.",
            key=record.key,
            remedy="Delete the record by hand, if no job of that name is at work.",
        ) from error


def purgeable(layout: DeltaLayout) -> Step[list[str]]:
    """The keys of files that no state within the retention names and no open job may name."""
    now = yield from store_now(layout)
    plan = yield from plan_log_purge(layout, now)
    return sorted(plan.forgets)


def purge_table(layout: DeltaLayout) -> Step[list[str]]:
    """Delete the files that :func:`purgeable` finds; return their keys.

    :raises CommitConflictError: a restore brought one back meanwhile. Nothing was deleted.
    """
    now = yield from store_now(layout)
    return sorted((yield from purge_log(layout, new_job_id(), now)))
