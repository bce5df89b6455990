"""Upkeep of a Delta table: jobs whose process is dead, and files that nothing needs."""

from __future__ import annotations

import json
from collections.abc import Collection

from ..committer.errors import RecordDamagedError, ZeroRenameError
from ..committer.format.job_spec import MAX_DURATION, NOBODY, Owner
from ..committer.format.layout import new_job_id
from ..committer.format.records.typed_json import Unfit, from_members
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Found, Get, Step
from ..committer.upkeep.recovery import OpenJob, Outcome, Recovered
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.job_files import JobFiles
from ..log.job_steps import recover_job
from ..log.purging import plan_log_purge, purge_log
from ..log.searching import JobVerdict


def store_now(layout: DeltaLayout) -> Step[int]:
    """The time by the store's clock, in milliseconds: one request."""
    listing = yield from list_objects(JobFiles(layout.control).opened)
    return int(listing.date * 1000)


def open_jobs(layout: DeltaLayout) -> Step[list[OpenJob]]:
    """The jobs with an open record, oldest first."""
    now, found = yield from _open_records(layout)
    return [_open_job(job, record, now) for job, record in found.items()]


def _open_records(layout: DeltaLayout) -> Step[tuple[float, dict[str, Found]]]:
    """The time by the store's clock, and the open records by job; those that were closed meanwhile
    are not among them."""
    records = JobFiles(layout.control)
    listing = yield from list_objects(records.opened)
    found = yield from All(tuple(Get(key) for key in listing.keys))
    return listing.date, {records.job_of(it.key): it for it in found if isinstance(it, Found)}


def _open_job(job: str, record: Found, now: float) -> OpenJob:
    age = now - record.last_modified
    try:
        members = json.loads(record.body)
        owner = {**members["owner"]}
        owner.pop("max_duration", None)
        return OpenJob(job, from_members(Owner, owner), age, None, members.get("run"))
    except (ValueError, RecursionError, KeyError, TypeError, Unfit) as error:
        return OpenJob(job, NOBODY, age, None, None, f"Its open record cannot be read: {error}")


def recover_jobs(
    layout: DeltaLayout, silent_for: float | None, jobs: Collection[str] | None = None
) -> Step[list[Recovered]]:
    """Settle the jobs whose process is taken for dead: finish those that are committed, fence and
    close the others. One that cannot be settled does not keep the others from being.

    :param silent_for: seconds since a job opened; ``None``: its own maximum duration.
    :param jobs: these only; ``None``: any.
    """
    now, found = yield from _open_records(layout)
    settled: list[Recovered] = []
    for job, record in found.items():
        if jobs is not None and job not in jobs:
            continue
        try:
            patience = _max_duration(record) if silent_for is None else silent_for
            if now - record.last_modified >= patience:
                milliseconds = int(now * 1000)
                verdict = yield from recover_job(layout, job, new_job_id(), milliseconds)
                settled.append(_recovered(job, verdict))
        except ZeroRenameError as error:
            settled.append(Recovered.failed(job, error))
    return settled


def _recovered(job: str, verdict: JobVerdict | None) -> Recovered:
    if verdict is None:
        return Recovered(job, Outcome.LEFT, "It was closed meanwhile.")
    if verdict.entry is not None:
        return Recovered(job, Outcome.COMMITTED, f"It is version {verdict.entry.version}.")
    return Recovered(job, Outcome.ABORTED, "It is fenced: it cannot commit any more.")


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
