"""Narrowing: a plan lets a run make its partitions again, or only some of them, as they were then.
Where these are in conflict, the run settles that.

Who plans leaves a :class:`.Narrowing` below the run's key, and clears the run's task. The job that
then opens under the key finds it, takes it for its clear of the task, and leaves out, and leaves
alone, what it does not name, unless the run is made whole. What others have changed since the plan
is a conflict either way. Nobody reads it but who repeats a run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..errors import InvalidInputError, OutcomeUnknownError, first_few
from ..format.job_spec import Mode, OnRepeat, SchemaMode
from ..format.layout import TableRoot
from ..format.records.narrowing import Narrowing, recompute_key, recompute_prefix
from ..store.conditional_put import NotWritten, Uncertain, put_record
from ..store.listing import list_objects
from ..store.requests import All, Found, Get, Put, Step
from .state.job_state import OpenedJob

logger = logging.getLogger("zero_rename.committer.commit.narrowed_run")


@dataclass(frozen=True)
class Left:
    """A record as it lies there.

    :param age: seconds since it was written, by the store's clock.
    """

    said: Narrowing
    etag: str
    age: float


@dataclass(frozen=True)
class RunsLastJob:
    """The last job of a run.

    :param cleared: in which clear of its task it ran (:attr:`.Owner.cleared`).
    :param versions: of the partitions that it changed, since then.
    """

    job: str
    cleared: str | None
    versions: Mapping[str, int]


def read_narrowing(root: TableRoot, idempotency_key: str) -> Step[Left | None]:
    """What a plan has left for a run; ``None``: nothing.

    :raises RecordDamagedError: it cannot be read.
    """
    return (yield from _read(recompute_key(root, idempotency_key)))


def pending_narrowings(root: TableRoot) -> Step[list[Left]]:
    """What plans have left for all runs of a table: a listing, and a request for each."""
    listing = yield from list_objects(recompute_prefix(root))
    found = yield from All(tuple(_read(key) for key in listing.keys))
    return [left for left in found if left is not None]


def leave_narrowing(root: TableRoot, said: Narrowing, instead_of: Left | None) -> Step[bool]:
    """Leave a record where there is none, or in the place of one that was read.

    :returns: ``False``: another plan was faster.
    :raises OutcomeUnknownError: the store does not say whether it is there.
    """
    key, etag = recompute_key(root, said.idempotency_key), instead_of.etag if instead_of else None
    put = Put(key, said.encode(), if_none_match=etag is None, if_match=etag)
    outcome = yield from put_record(put, said.write_id)
    if isinstance(outcome, Uncertain):
        raise OutcomeUnknownError(
            f"The store did not confirm what a plan leaves for a run ({outcome.cause}).",
            job=said.job,
            key=key,
            remedy="Try again when the store answers.",
        )
    return not isinstance(outcome, NotWritten)


def end_narrowing(root: TableRoot, left: Left, write_id: str) -> Step[None]:
    """Let a record say that it is over, unless another one is in its place by now. It is not
    deleted: not every store deletes on a condition."""
    over = replace(left.said, write_id=write_id, over=True)
    yield from leave_narrowing(root, over, left)


def as_planned(
    opened: OpenedJob, earlier: RunsLastJob | None, write_id: Callable[[], str]
) -> Step[OpenedJob]:
    """A job that repeats its run, with what a plan has left for that. Requests: none but for a task
    of Airflow's, then one; one more where there is something.

    :param earlier: ``None``: none has committed. Then only a task that has been tried before asks.
    :param write_id: makes the ids of what is written.
    :raises InvalidInputError: a plan has narrowed the run, and the job is none that can be; or it
        may not write what it is to make again; or it comes too late, and nobody knows whether it
        was cleared by that plan.
    """
    root, spec = opened.root, opened.spec
    mine = spec.owner.cleared
    if spec.idempotency_key is None or mine is None:
        return opened  # No task does this, which somebody could have cleared.
    if earlier is None and (spec.owner.try_number or 0) < 2:
        return opened  # Nor this one.
    while True:
        left = yield from read_narrowing(root, spec.idempotency_key)
        if left is None or left.said.over:
            return opened
        said = left.said
        # A retry after its own commit, which the run's last job is then. (One that gc has condensed
        # does not tell of which clear it was.)
        own = earlier is not None and said.taken == mine == earlier.cleared
        moved = said.job != (None if earlier is None else earlier.job)
        if (moved and not own) or said.taken not in (None, mine):
            yield from end_narrowing(root, left, write_id())
            logger.info("%s: a plan for the run %s is over", root.url, said.idempotency_key)
            return opened
        _refuse_elsewhere(opened, said)
        if not said.whole:
            _refuse_other_kinds(opened, said)
            yield from _check_in_time(opened, left, write_id)
        elif said.settles:
            _refuse_additions(opened, said)
            yield from _check_in_time(opened, left, write_id)
        if said.taken == mine:
            break
        taken = replace(said, write_id=write_id(), taken=mine)
        if (yield from leave_narrowing(root, taken, left)):
            break
    again = earlier.versions if earlier is not None and own else {}
    planned = {name: again.get(name, version) for name, version in said.partitions.items()}
    opened = replace(opened, planned=planned, settles={**opened.settles, **said.settles})
    if said.whole:
        return opened
    logger.warning(
        "%s: job %s makes only %s again: %s has narrowed this run. Rows of other partitions are "
        "left out; what the run wrote there before stays",
        root.url,
        opened.job,
        first_few(sorted(planned)),
        said.planner.task_id or "a plan",
    )
    return replace(opened, narrowed=frozenset(planned))


def _check_in_time(opened: OpenedJob, left: Left, write_id: Callable[[], str]) -> Step[None]:
    """See that a clear of the task has begun by a plan in time, or still may."""
    said = left.said
    if said.taken is not None or left.age <= said.seconds:
        return
    yield from end_narrowing(opened.root, left, write_id())
    raise too_late(said, opened.job)


def too_late(said: Narrowing, job: str | None) -> InvalidInputError:
    """Build the error of a job for which a plan has left something, whose time is over."""
    named = first_few(sorted(said.partitions))
    what = f"make only {named} again" if not said.settles else f"settle a conflict over {named}"
    return InvalidInputError(
        f"A plan was to let this run {what}, and its time, {said.seconds:,} s, is over. Whether "
        "its clear or another one has started this try nobody knows. Nothing was written, and the "
        "plan is void.",
        job=job,
        remedy="Clear the task again: it then loads all partitions of its run. To make only "
        "those again that are stale, let RecomputeOperator clear it; to settle a conflict, "
        "ResolveConflictsOperator.",
    )


def _read(key: str) -> Step[Left | None]:
    found = yield from Get(key)
    if not isinstance(found, Found):
        return None
    age = found.date - found.last_modified
    return Left(Narrowing.decode(found.body, key), found.etag, age)


def _refuse_additions(opened: OpenedJob, said: Narrowing) -> None:
    """Refuse a job that would settle a conflict and leave the rows of the runs that lost it."""
    spec = opened.spec
    changes = bool(spec.row_changes or spec.merges)
    if spec.mode is Mode.REPLACE and not changes:
        return
    what = "merges, updates or deletes rows" if changes else f"has mode {spec.mode}"
    raise InvalidInputError(
        f"A plan lets this run settle a conflict over {first_few(sorted(said.partitions))}, and "
        f"its job {what}: the rows of the runs that lost it would stay beside its own. Nothing was "
        "written.",
        job=opened.job,
        key=recompute_key(opened.root, said.idempotency_key),
        remedy="To add its rows all the same, remove that object and clear the task by hand; or "
        "resolve the conflict for the run that replaced the partition.",
    )


def _refuse_elsewhere(opened: OpenedJob, said: Narrowing) -> None:
    """Refuse a job that may not write what the run is to make again: what the run has there would
    go, and nothing come. A mapped task whose list has changed loads another partition by its
    index."""
    may_write = opened.spec.allowed_partitions
    left = [] if may_write is None else sorted(it for it in said.partitions if it not in may_write)
    if not left:
        return
    only = first_few(sorted(may_write)) if isinstance(may_write, frozenset) else "what fits"
    raise InvalidInputError(
        f"A plan lets this run make {first_few(left)} again, and its job may write {only} only: "
        "the rows that the run has loaded there would go, and none come. Nothing was written.",
        job=opened.job,
        key=recompute_key(opened.root, said.idempotency_key),
        remedy="See which partitions the task loads now; one that is mapped over a list loads "
        "others once that has changed. To let it load these, remove that object and clear the "
        "task.",
    )


def _refuse_other_kinds(opened: OpenedJob, said: Narrowing) -> None:
    spec = opened.spec
    what = None
    if spec.mode is not Mode.REPLACE or spec.on_repeat is not OnRepeat.REPLACE_OWN:
        what = f"mode {spec.mode} and on_repeat={spec.on_repeat}, or a merge"
    elif spec.schema_mode is SchemaMode.OVERWRITE:
        what = "schema_mode=overwrite, which is about all partitions"
    elif not opened.partition_by:
        what = "no partitions"
    if what is not None:
        raise InvalidInputError(
            f"A plan lets this run make only {first_few(sorted(said.partitions))} again, and its "
            f"job has {what}: it would change the others too. Nothing was written.",
            job=opened.job,
            key=recompute_key(opened.root, said.idempotency_key),
            remedy="To load all partitions of the run, remove that object and clear the task.",
        )
