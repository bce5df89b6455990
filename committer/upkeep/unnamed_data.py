"""Data that nobody names, of a table that is read by heads: what was forgotten, and losers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..commit.past import HeldFiles, held_files
from ..commit.snapshot import Survey
from ..commit.state.context import Context
from ..commit.state.data_listing import list_fast
from ..commit.state.decide import Decided, read_decision
from ..commit.state.old_records import read_heads
from ..commit.state.open_jobs import list_open
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.layout import job_in_key
from ..format.records.head import HeadState
from ..format.schema.lost_records import head_lost, named_by
from ..store.listing import list_objects
from ..store.requests import All, ListedObject, Step


@dataclass(frozen=True)
class UnnamedFile:
    """A file that no head names or keeps.

    :param stays: why it is left nevertheless; ``""``: it may go.
    """

    item: ListedObject
    job: str | None
    stays: str = ""


def find_unnamed(
    context: Context, instead: Mapping[str, HeadState] | None = None
) -> Step[list[UnnamedFile]]:
    """The files that no head names or keeps, and that no job which is open has written. Changes
    nothing.

    The data is listed first, then the open records, then the heads are read: a job has its open
    record before its first file and until its heads have moved, so a file that is listed is of a
    job that is open then, or aborted, or the heads tell of it. What a lost head may have named
    stays; so does what is no job's.

    :param instead: by partition, heads to be taken for what they would be.
    """
    listing = yield from list_objects(context.root.data_prefix)
    files = listing.objects + (yield from list_fast(context))
    if not files:
        return []
    still_open = yield from list_open(context)
    heads = yield from read_heads(context)
    states = {**heads.states, **(instead or {})}
    held = yield from held_files(context, list(states.values()))
    named = {
        file.key
        for it in held.values()
        if isinstance(it, HeldFiles)
        for file in (*it.now, *it.kept)
    }
    busy = still_open | {it.head.claim for it in states.values() if it.head.claim is not None}
    loose = [it for it in files if it.key not in named and job_in_key(it.key) not in busy]
    jobs = sorted({job for item in loose if (job := _job(context, item)) is not None})
    read = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    decided = dict(zip(jobs, read, strict=True))
    unknown = {name for name, it in held.items() if isinstance(it, DamagedError)}
    reasons = dict.fromkeys(_behind(states, decided.values()), "its partition's head is behind")
    reasons |= dict.fromkeys({*heads.damaged, *unknown}, "what its head names cannot be read")
    return [_judged(context, item, reasons, decided) for item in loose]


def _judged(
    context: Context,
    item: ListedObject,
    reasons: Mapping[str, str],
    decided: Mapping[str, Decided | DamagedError | None],
) -> UnnamedFile:
    job, partition = _job(context, item), context.root.partition_of_data_key(item.key)
    if job is None or partition is None:
        return UnnamedFile(item, None, "no file of this package's, by its name")
    match decided[job]:
        case None:
            return UnnamedFile(item, job, "of a job that this table has no record of")
        case DamagedError():
            return UnnamedFile(item, job, "its job's decision cannot be read")
        case _:
            return UnnamedFile(item, job, reasons.get(partition, ""))


def _job(context: Context, item: ListedObject) -> str | None:
    """The job whose file an object is, by its key."""
    named = context.root.partition_of_data_key(item.key) is not None
    return job_in_key(item.key) if named else None


def _behind(
    states: Mapping[str, HeadState], decisions: Iterable[Decided | DamagedError | None]
) -> Iterator[str]:
    """The partitions of which decisions say more than their heads: these were lost, and the files
    may be all that is left."""
    for decided in decisions:
        if isinstance(decided, Decided) and decided.decision.is_commit:
            for change in decided.decision.partitions:
                state = states.get(change.partition)
                if change.base_version >= (0 if state is None else state.head.version):
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
        if name and job and name not in seen.snapshot.versions and name not in seen.damaged:
            unheaded.setdefault(job, set()).add(name)
    jobs = sorted(unheaded)
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    return {
        name: head_lost(context.root, name, named_by(context.root, job))
        for job, it in zip(jobs, found, strict=True)
        if isinstance(it, Decided) and it.decision.is_commit
        for name in unheaded[job].intersection(it.changes)
    }
