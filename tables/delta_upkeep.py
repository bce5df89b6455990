"""Maintenance of a Delta table: recovery of dead jobs, and purge of unneeded files and records."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import pyarrow as pa

from ..committer.commit.state.context import Context
from ..committer.commit.state.old_records import aged, find_aged
from ..committer.commit.state.tolerance import or_error
from ..committer.errors import InvalidInputError, RecordDamagedError, ZeroRenameError, first_few
from ..committer.format.job_spec import MAX_DURATION, NOBODY, Owner
from ..committer.format.layout import TableRoot, job_began, job_in_key, log_job_in_key, new_job_id
from ..committer.format.records.decision import Verdict
from ..committer.format.records.typed_json import Unfit, from_members
from ..committer.overview.rival_jobs import RivalJob, meet, stored_names
from ..committer.store.fast_root import is_fast
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Found, Get, Step
from ..committer.upkeep.purging.purge import PurgeEntry, remove_objects
from ..committer.upkeep.recovery import OpenJob, Outcome, Recovered
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.job_files import JobFiles
from ..log.job_steps import recover_job
from ..log.kept_entries import find_overwritten
from ..log.opening import LogDepth, open_log
from ..log.publishing import kept_for
from ..log.purging import plan_log_purge, purge_log
from ..log.repairing import repair_log
from ..log.replay import LogState
from ..log.searching import JobVerdict, search_since_opened
from .gone_entries import former_until, refuse_gone
from .unpublished import waiting_jobs

#: Errors of reading a record whose members are not what they are to be.
_UNREADABLE = (ValueError, RecursionError, KeyError, TypeError, AttributeError, Unfit)


def store_now(layout: DeltaLayout) -> Step[int]:
    """Return the time of the store's clock, in Unix milliseconds: one request."""
    listing = yield from list_objects(JobFiles(layout.control).opened)
    return int(listing.date * 1000)


def open_jobs(layout: DeltaLayout, decided: bool = False) -> Step[list[OpenJob]]:
    """Return the jobs with an open record, the oldest first.

    :param decided: search the log for the entry or fence of each. Jobs that the log does not tell
        of are undecided.
    """
    waiting = yield from waiting_jobs(layout)
    now, found = yield from _open_records(layout)
    jobs = [_open_job(job, record, now) for job, record in found.items()]
    jobs = [replace(it, unpublished=it.job in waiting) for it in jobs]
    return (yield from _decided(layout, jobs, found)) if decided else jobs


def _decided(
    layout: DeltaLayout, jobs: Sequence[OpenJob], records: Mapping[str, Found]
) -> Step[list[OpenJob]]:
    """Add the verdicts of jobs. If the log does not tell a job's, the error is its damage."""
    state = (yield from open_log(layout, LogDepth.BLIND)).state if jobs else LogState()
    if not state.exists:
        return [*jobs]
    seen = []
    for it in jobs:
        since = records[it.job].last_modified
        found = yield from or_error(search_since_opened(layout, state, it.job, since))
        if isinstance(found, ZeroRenameError):
            it = replace(it, damage=" ".join(filter(None, (it.damage, str(found)))))
        elif found.entry is not None or found.fenced:
            verdict = Verdict.ABORT if found.entry is None else Verdict.COMMIT
            # A job that was published or aborted does not wait any more.
            it = replace(it, decided=verdict, unpublished=False)
        seen.append(it)
    return seen


def _open_records(layout: DeltaLayout) -> Step[tuple[float, dict[str, Found]]]:
    """Read the time of the store's clock, and the open records by job. Jobs that are closed
    meanwhile are left out."""
    records = JobFiles(layout.control)
    listing = yield from list_objects(records.opened)
    found = yield from All(tuple(Get(key) for key in listing.keys))
    return listing.date, {records.job_of(it.key): it for it in found if isinstance(it, Found)}


def _age(record: Found, now: float) -> float:
    """Return the seconds since a record was written, by the store's clock. The store's nodes may
    differ: no record is from the future."""
    return max(0.0, now - record.last_modified)


def _open_job(job: str, record: Found, now: float) -> OpenJob:
    age = _age(record, now)
    try:
        members = json.loads(record.body)
        return OpenJob(job, _owner(members), age, None, members.get("run"))
    except _UNREADABLE as error:
        return OpenJob(job, NOBODY, age, None, None, f"Its open record cannot be read: {error}")


def _owner(members: dict[str, Any]) -> Owner:
    """Return the owner of a job from its open record."""
    of_job = ("max_duration", "writes")
    return from_members(Owner, {k: v for k, v in members["owner"].items() if k not in of_job})


def rival_jobs(
    layout: DeltaLayout, partitions: Collection[str], appends: bool, run: str | None
) -> Step[list[RivalJob]]:
    """Find the open jobs of other runs that write the same partitions, the oldest first.

    It does what :func:`.overview.rival_jobs.find_rivals` does in tables of directories. Jobs that
    wait to be published are left out: no process is working on them.

    :param partitions: the run's partitions; none: any.
    :param appends: whether the run appends: two appends are not rivals.
    :param run: the run's key; its own jobs are not rivals.
    """
    now, found = yield from _open_records(layout)
    rivals = (_rival(job, record, now, appends, run) for job, record in found.items())
    there = [it for it in rivals if it is not None]
    if not all(meet(partitions, it.partitions) for it in there):
        # The records may spell one partition in two ways.
        shape = yield from _shape(layout)
        partitions = stored_names(partitions, shape)
        there = [replace(it, partitions=stored_names(it.partitions, shape)) for it in there]
        there = [it for it in there if meet(partitions, it.partitions)]
    waiting = (yield from waiting_jobs(layout)) if there else set()
    return [it for it in there if it.job not in waiting]


def _shape(layout: DeltaLayout) -> Step[tuple[pa.Schema, tuple[str, ...]] | None]:
    """Read the table's columns and partition columns; ``None``: there is no table yet."""
    metadata = (yield from open_log(layout, LogDepth.BLIND)).state.metadata
    return None if metadata is None else (arrow_schema(metadata), metadata.partition_columns)


def _rival(job: str, record: Found, now: float, appends: bool, run: str | None) -> RivalJob | None:
    """Return a job as a rival of a run; ``None``: it is not a rival, or its record cannot be read,
    which recovery reports."""
    try:
        members = json.loads(record.body)
        owner, of_run = _owner(members), members.get("run")
        writes = members["owner"].get("writes") or {"partitions": (), "appends": False}
        names, adds = tuple(map(str, writes["partitions"])), bool(writes["appends"])
        allowed = _max_duration(record)
    except (*_UNREADABLE, RecordDamagedError):
        return None
    age, is_own = _age(record, now), run is not None and of_run == run
    if is_own or (appends and adds) or age >= allowed:
        return None
    return RivalJob(job, owner, age, names)


def recover_jobs(
    layout: DeltaLayout,
    silent_for: float | None,
    jobs: Collection[str] | None = None,
    spares_waiting: bool = True,
) -> Step[list[Recovered]]:
    """Recover the jobs whose process is taken for dead: finish the committed ones, fence and close
    the others. If one fails, the others are recovered all the same.

    :param silent_for: seconds after its opening from which on a job counts as dead; ``None``: its
        own maximum duration.
    :param jobs: only these; ``None``: all.
    :param spares_waiting: leave jobs alone that wait to be published, for the table's retention: no
        process is working on them, and none has to.
    """
    waiting = (yield from waiting_jobs(layout)) if spares_waiting else set()
    now, found = yield from _open_records(layout)
    log = yield from _log_of(layout, waiting & found.keys())
    settled: list[Recovered] = []
    for job, record in found.items():
        if jobs is not None and job not in jobs:
            continue
        try:
            if (left := (yield from _left(layout, job, record, now, silent_for, log))) is not None:
                settled.append(left)
            else:
                milliseconds = int(now * 1000)
                verdict = yield from recover_job(layout, job, new_job_id(), milliseconds)
                settled.append(_recovered(job, verdict))
        except ZeroRenameError as error:
            settled.append(Recovered.failed(job, error))
    return settled


def plan_recovery(
    layout: DeltaLayout,
    silent_for: float | None,
    jobs: Collection[str] | None = None,
    spares_waiting: bool = True,
) -> Step[list[Recovered]]:
    """Return what :func:`recover_jobs` would do, by the same judgement. Changes nothing."""
    waiting = (yield from waiting_jobs(layout)) if spares_waiting else set()
    now, found = yield from _open_records(layout)
    log = yield from _log_of(layout, waiting & found.keys())
    planned: list[Recovered] = []
    for job, record in found.items():
        if jobs is not None and job not in jobs:
            continue
        try:
            left = yield from _left(layout, job, record, now, silent_for, log)
            planned.append(left or (yield from _plan(layout, job, record)))
        except ZeroRenameError as error:
            planned.append(Recovered.failed(job, error))
    return planned


def _plan(layout: DeltaLayout, job: str, record: Found) -> Step[Recovered]:
    opened = yield from open_log(layout, LogDepth.BLIND)
    if not opened.state.exists:
        return Recovered(job, Outcome.FAILED, "It would make the table, so nothing can fence it.")
    verdict = yield from search_since_opened(layout, opened.state, job, record.last_modified)
    if verdict.entry is not None:
        why = f"it is version {verdict.entry.version}, and not finished"
        return Recovered(job, Outcome.WOULD_FINISH, why)
    if verdict.fenced:
        return Recovered(job, Outcome.WOULD_ABORT, "it is fenced")
    layout.check_writable(opened.state, removes_rows=False)  # The fence is an entry.
    return Recovered(job, Outcome.WOULD_ABORT, "it has not committed")


def _log_of(layout: DeltaLayout, waiting: Collection[str]) -> Step[dict[str, LogState]]:
    """Return the log's state for each of the jobs that wait to be published. It is read once."""
    if not waiting:
        return {}
    opened = yield from open_log(layout, LogDepth.BLIND)
    return dict.fromkeys(waiting, opened.state)


def _left(
    layout: DeltaLayout,
    job: str,
    record: Found,
    now: float,
    silent_for: float | None,
    log: Mapping[str, LogState],
) -> Step[Recovered | None]:
    """Report a job as left alone if it may be alive, or waits to be published; ``None``: it is to
    be recovered.

    :param log: the state of the log, by the jobs that wait to be published.
    """
    age, allowed = _age(record, now), silent_for
    if (state := log.get(job)) is not None and age < (kept := kept_for(layout, state)):
        verdict = yield from search_since_opened(layout, state, job, record.last_modified)
        if verdict.entry is not None or verdict.fenced:
            return None
        days = (kept - age) / 86400
        why = f"it waits to be published; it is kept for {days:.1f} days more"
        return Recovered(job, Outcome.LEFT, why)
    if allowed is None:
        allowed = _max_duration(record)
    if age >= allowed:
        return None
    why = f"undecided, opened {age:.0f} s ago; it may take {allowed:.0f} s"
    return Recovered(job, Outcome.LEFT, why)


def refuse_unknown(layout: DeltaLayout, jobs: Collection[str]) -> Step[None]:
    """Refuse ids of jobs that are not open: a mistyped id must not look like a job that has been
    recovered.

    :raises InvalidInputError: one of the jobs is not open.
    """
    _, found = yield from _open_records(layout)
    unknown = sorted(set(jobs) - found.keys())
    if unknown:
        raise InvalidInputError(
            f"No such job is open in the table: {first_few(unknown)}. Nothing was changed.",
            remedy="`zero-rename jobs` lists those that are open; uploads and files of others are "
            "purged without a name.",
        )


def _recovered(job: str, verdict: JobVerdict | None) -> Recovered:
    if verdict is None:
        return Recovered(job, Outcome.LEFT, "It was closed meanwhile.")
    if verdict.entry is not None:
        return Recovered(job, Outcome.COMMITTED, f"It is version {verdict.entry.version}.")
    return Recovered(job, Outcome.ABORTED, "It is fenced: it cannot commit any more.")


def _max_duration(record: Found) -> float:
    """Return the seconds that the job of an open record may take.

    :raises RecordDamagedError: the record does not have them.
    """
    try:
        found = json.loads(record.body)["owner"].get("max_duration", MAX_DURATION)
        return float(found)
    except _UNREADABLE as error:
        raise RecordDamagedError(
            "An open record does not say how long its job may take. The job was left alone.",
            key=record.key,
            remedy="Delete the record by hand, if no job of that name is at work.",
        ) from error


def purgeable(layout: DeltaLayout) -> Step[list[str]]:
    """Return the keys of files that no state within the retention names and that no open job can
    need.

    :raises DamagedError: entries of the log are gone, and their files would look like these.
    :raises TableMismatchError: the table cannot be written here, so the purge would be refused.
    """
    listed = yield from refuse_gone(layout)
    now = yield from store_now(layout)
    since = yield from former_until(layout, listed, now / 1000)
    of_jobs = partial(_is_of_job, layout, since)
    plan = yield from plan_log_purge(layout, now, of_jobs)
    if plan.forgets:
        layout.check_writable(plan.state, removes_rows=False)
    return sorted(plan.forgets)


def purge_table(layout: DeltaLayout) -> Step[list[str]]:
    """Delete the files that :func:`purgeable` finds; return their keys.

    :raises CommitConflictError: a restore brought a file back meanwhile. Nothing was deleted.
    :raises DamagedError: entries of the log are gone. Nothing was deleted.
    """
    listed = yield from refuse_gone(layout)
    now = yield from store_now(layout)
    since = yield from former_until(layout, listed, now / 1000)
    of_jobs = partial(_is_of_job, layout, since)
    return sorted((yield from purge_log(layout, new_job_id(), now, of_jobs)))


def purge_records(
    root: TableRoot, layout: DeltaLayout, older_than: float, apply: bool
) -> Step[list[PurgeEntry]]:
    """Remove old records: failures of runs, leavings of probes, and kept entries. A kept entry that
    was overwritten stays until it is repaired, or its loss is accepted.

    :param older_than: their least age in seconds, by the store's clock.
    :param apply: ``False`` only reports which would be removed.
    """
    records = JobFiles(layout.control)
    old = yield from find_aged(Context(root), older_than)
    listing = yield from list_objects(records.kept)
    kept = aged("an entry kept beside the log", listing.objects, listing.date, older_than)
    needed = (yield from _lost_jobs(layout, int(listing.date * 1000))) if kept else set()
    old += [it for it in kept if records.job_of(it.item.key) not in needed]
    found = {it.item: it.reason for it in old}
    return (yield from remove_objects(found, apply, {it: it.etag for it in found}))


def _lost_jobs(layout: DeltaLayout, now: int) -> Step[set[str]]:
    """Find the jobs with a kept entry that was overwritten, and that was neither repaired nor given
    up since."""
    if not (yield from find_overwritten(layout, since=inf)):  # Reads kept entries alone.
        return set()
    found = yield from repair_log(layout, now, apply=False, accept_loss=False, fencer="")
    return {it.job for it in found if it.outcome.is_lost}


def _is_of_job(layout: DeltaLayout, since: float, key: str) -> bool:
    """Return whether a job of this table wrote a file. A file of another table may have a similar
    key, as another table may lie below this one.

    :param since: when the job has to have begun, Unix seconds.
    """
    if is_fast(key):  # The key lies in the table's own folder in a data root.
        job = job_in_key(key)
        return job is not None and job_began(job) >= since
    found = log_job_in_key(key)
    if found is None or f"{found[0]}/data/" != layout.data:
        return False
    return job_began(found[1]) >= since
