"""What must hold, at every request and at the end, of files that heads alone tell of.

And broken variants of what takes care of them.
"""

from __future__ import annotations

from simulation.invariants import ROOT, Violation, changes, content_after, decision_of
from simulation.sim_store import Store

from zero_rename.committer import Mode, StoreUnreachableError
from zero_rename.committer.commit import close
from zero_rename.committer.commit.snapshot import survey
from zero_rename.committer.commit.state.data_listing import list_data
from zero_rename.committer.commit.state.decide import decide_abort
from zero_rename.committer.commit.state.open_jobs import list_open
from zero_rename.committer.commit.state.task_results import destination_exists
from zero_rename.committer.format.layout import job_in_key
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Done, PutFile


def check_data(before: Store, after: Store) -> None:
    """What one request may do to files that heads name, or may come to name.

    :raises Violation: it did something else.
    """
    prefix = ROOT.data_prefix
    for key in before.objects:
        if not key.startswith(prefix):
            continue
        found = after.objects.get(key)
        if found is not None and found.etag != before.objects[key].etag:
            raise Violation("continuity of correctness", f"{key} was written over")
        job = job_in_key(key) or ""
        undecided = decision_of(after, job) is None and ROOT.open_key(job) in before.objects
        if found is None and undecided:
            raise Violation("completeness", f"{key} of a job that may commit was removed")
    if after.ticks != before.ticks:
        _check_exclusive(before, after)


def _check_exclusive(before: Store, after: Store) -> None:
    """A job of mode fail-if-exists commits into partitions that hold nothing."""
    for partition, log in changes(after).items():
        for job, change in log:
            decision = decision_of(after, job)
            fails = decision is not None and decision.mode is Mode.FAIL_IF_EXISTS
            new = ROOT.decision_key(job) not in before.objects
            if fails and new and change.files and content_after(log, change.base_epoch):
                raise Violation("concurrent", f"{job} found files in {partition}")


def check_named_alone(store: Store) -> None:
    """After recovery and a purge nothing is there that no head names, and all that one names.

    :raises Violation: it is not so.
    """
    named = {key for log in changes(store).values() for key in content_after(log, len(log))}
    there = {key for key in store.objects if key.startswith(ROOT.data_prefix)}
    if there - named:
        raise Violation("ability to abort", f"nobody names {sorted(there - named)}")


def names_no_attempt(root, partition, attempt, job, number):
    return _attempt_key(root, partition, "0", job, number)


_attempt_key = type(ROOT).attempt_key


def sweeps_files_before_it_decides(context, job):
    yield from close.sweep_data(context, job)
    return (yield from decide_abort(context, job))


def sweeps_what_the_decision_names(context, decision, sole=False):
    yield from close.sweep_data(context, decision.job)


def lists_open_records_before_data(context):
    still_open = yield from list_open(context)
    listing = yield from list_objects(ROOT.data_prefix)
    seen = yield from survey(context)
    return _left(listing, still_open, seen)


def reads_heads_before_open_records(context):
    listing = yield from list_objects(ROOT.data_prefix)
    seen = yield from survey(context)
    still_open = yield from list_open(context)
    return _left(listing, still_open, seen)


def asks_no_open_records(context):
    listing = yield from list_objects(ROOT.data_prefix)
    seen = yield from survey(context)
    return _left(listing, (), seen)


def _left(listing, still_open, seen):
    named = {file.key for file in seen.snapshot.files}
    mine = [item for item in listing.objects if item.key not in named]
    return [item for item in mine if job_in_key(item.key) not in still_open]


def asks_a_listing_what_exists(context, opened, target, state, exclusive):
    there = yield from list_data(context.root, target.partition)
    if exclusive and there:
        raise destination_exists(opened, target.partition, [item.key for item in there])


def reports_before_its_file_is_there(key, body, settings):
    try:
        return (yield from PutFile(key, body, settings))
    except StoreUnreachableError:
        return Done("sent")
