"""Data that nobody names, of a table that is read by heads: what replaces and losers have left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from ..commit.snapshot import Snapshot, Survey, survey
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.open_jobs import list_open
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError, TableNotFoundError
from ..format.job_spec import Readers
from ..format.layout import job_in_key
from ..format.schema.lost_records import head_lost, named_by
from ..store.listing import list_objects
from ..store.requests import All, ListedObject, Step


def find_unnamed(context: Context) -> Step[list[ListedObject]]:
    """The files that no head names, and that no job which is open has written. Changes nothing but
    what a reader does.

    The data is listed first, then the open records, then the heads are read: a job has its open
    record before its first file and until its heads have moved, so a file that is listed is of a
    job that is open then, or the heads tell of it. What a lost head may have named stays; so does
    what is no job's.
    """
    if context.readers is Readers.LISTING:
        return []
    listing = yield from list_objects(context.root.data_prefix)
    still_open = yield from list_open(context)
    seen = yield from _survey(context)
    named = {file.key for file in seen.snapshot.files}
    loose = [
        item
        for item in listing.objects
        if item.key not in named and _job(context, item) not in (None, *still_open)
    ]
    jobs = sorted({job for item in loose if (job := _job(context, item)) is not None})
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    decisions = dict(zip(jobs, found, strict=True))
    unsure = {*seen.damaged, *_behind(seen.snapshot, decisions.values())}
    return [
        item
        for item in loose
        if context.root.partition_of_data_key(item.key) not in unsure
        and not isinstance(decisions[_job(context, item) or ""], DamagedError)
    ]


def _survey(context: Context) -> Step[Survey]:
    """The heads, of a table whose first job has not made it, too."""
    try:
        return (yield from survey(context))
    except TableNotFoundError:
        return Survey(Snapshot(context.root, pa.schema([]), (), (), {}))


def _job(context: Context, item: ListedObject) -> str | None:
    """The job whose file an object is, by its key."""
    named = context.root.partition_of_data_key(item.key) is not None
    return job_in_key(item.key) if named else None


def _behind(
    snapshot: Snapshot, decisions: Iterable[Decided | DamagedError | None]
) -> Iterator[str]:
    """The partitions of which decisions say more than their heads: these were lost, and the files
    may be all that is left."""
    for decided in decisions:
        if isinstance(decided, Decided) and decided.decision.is_commit:
            for change in decided.decision.partitions:
                if change.base_epoch >= snapshot.epochs.get(change.partition, 0):
                    yield change.partition


def lost_by_data(
    context: Context, seen: Survey, items: Collection[ListedObject]
) -> Step[dict[str, DamagedError]]:
    """The partitions without a head to which jobs whose files are there have committed.

    :param items: the data files of a table that is read by heads.
    """
    unheaded: dict[str, set[str]] = {}
    for item in items:
        name, job = context.root.partition_of_data_key(item.key), _job(context, item)
        if name and job and name not in seen.snapshot.epochs and name not in seen.damaged:
            unheaded.setdefault(job, set()).add(name)
    jobs = sorted(unheaded)
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    return {
        name: head_lost(context.root, name, named_by(context.root, job))
        for job, it in zip(jobs, found, strict=True)
        if isinstance(it, Decided) and it.decision.is_commit
        for name in unheaded[job].intersection(it.changes)
    }
