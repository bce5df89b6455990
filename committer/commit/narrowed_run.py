"""Narrowing: a plan lets a run load its partitions again, all of them or some.

The planner writes a :class:`.Narrowing` under the run's key, and clears the run's task. The job
that then opens under the key finds the record and binds it to its own clear of the task. It leaves
out rows of other partitions, and leaves those partitions alone, unless the record lets the run load
all of them. If the record is about a conflict, the run settles it. In either case, changes by
others since the plan are a conflict. Only jobs that repeat a run read the record; and, if it
settles a conflict, also the first job of a run.
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
    """Narrowing record as it was read.

    :param age: seconds since it was written, by the store's clock.
    """

    said: Narrowing
    etag: str
    age: float


@dataclass(frozen=True)
class RunsLastJob:
    """Last committed job of a run.

    :param cleared: the clear of its task to which the job belonged (:attr:`.Owner.cleared`).
    :param versions: by partition that it changed, the version since then.
    """

    job: str
    cleared: str | None
    versions: Mapping[str, int]


def read_narrowing(root: TableRoot, idempotency_key: str) -> Step[Left | None]:
    """Read the record that a plan has left for a run; return ``None`` without one.

    :raises RecordDamagedError: it cannot be read.
    """
    return (yield from _read(recompute_key(root, idempotency_key)))


def pending_narrowings(root: TableRoot) -> Step[list[Left]]:
    """Read the records that plans have left for runs of a table: a listing, and a GET for each."""
    listing = yield from list_objects(recompute_prefix(root))
    found = yield from All(tuple(_read(key) for key in listing.keys))
    return [left for left in found if left is not None]


def leave_narrowing(root: TableRoot, said: Narrowing, instead_of: Left | None) -> Step[bool]:
    """Write a plan's record, as a new one or over one that was read.

    :param instead_of: the record to overwrite; ``None``: there must be none yet.
    :returns: ``False``: another plan was faster.
    :raises OutcomeUnknownError: the store does not say whether the record is there.
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
    """Mark a record as over, unless another record has replaced it by now.

    It is not deleted, since not every store has conditional deletes.
    """
    over = replace(left.said, write_id=write_id, over=True)
    yield from leave_narrowing(root, over, left)


def as_planned(
    opened: OpenedJob, earlier: RunsLastJob | None, write_id: Callable[[], str]
) -> Step[OpenedJob]:
    """Return a job that repeats its run, changed as a plan's record for the run says.

    Requests: none unless a task of Airflow runs the job, then one; one more if there is a record.

    :param earlier: the run's last committed job; ``None``: there is none. Then the record is read
        only if the task was tried before.
    :param write_id: makes the ids of what is written.
    :raises InvalidInputError: a plan has narrowed the run, and a job of this kind cannot be
        narrowed; or the job may not write what it is to load again; or it comes too late, so that
        it is unknown whether that plan has cleared it.
    """
    root, spec = opened.root, opened.spec
    mine = spec.owner.cleared
    if spec.idempotency_key is None or mine is None:
        return opened  # Not run by a task of Airflow, so no plan has cleared it.
    if earlier is None and (spec.owner.try_number or 0) < 2:
        return opened  # A first attempt of the task, so no plan has cleared it.
    while True:
        left = yield from read_narrowing(root, spec.idempotency_key)
        if left is None or left.said.over:
            return opened
        said = left.said
        # True for a retry after this clear's own commit, which is then the run's last job. (A
        # decision that gc of an earlier version has condensed may not say to which clear it
        # belonged.)
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
    """Refuse a job if no clear of the task has begun by the plan, and the plan's time is over."""
    said = left.said
    if said.taken is not None or left.age <= said.seconds:
        return
    yield from end_narrowing(opened.root, left, write_id())
    raise too_late(said, opened.job)


def too_late(said: Narrowing, job: str | None) -> InvalidInputError:
    """Build the error of a job that comes after the time of a plan for its run."""
    named = first_few(sorted(said.partitions))
    what = f"make only {named} again" if not said.settles else f"settle a conflict over {named}"
    return InvalidInputError(
        f"A plan was to let this run {what}, and its time, {said.seconds:,} s, is over. Whether "
        "its clear or another one has started this attempt nobody knows. Nothing was written, and "
        "the plan is void.",
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
    """Refuse a job that would settle a conflict and keep the losing runs' rows."""
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
    """Refuse a job that may not write all partitions to be loaded again.

    The rows that the run has there would be removed, and none would come. A mapped task whose list
    has changed loads another partition under the same index.
    """
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
