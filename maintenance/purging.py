"""Purge of any destination: recovers its jobs, then aborts uploads that no job needs.

Uploads that live jobs need stay, however old they are. Records show those of this package; the
ledger, heartbeats and pending files show those of Hadoop. Uploads also stay if recovery does not
know, or may not choose, what to do with their job: they may be the only copy of its rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..committer.commit.state.old_records import KEPT_FOR
from ..committer.errors import FastRootGoneError, InvalidInputError, printable
from ..committer.store.fast_root import is_fast
from ..committer.store.requests import Head, ListedUpload, Step
from ..committer.upkeep.purging.purge import PurgeAction, PurgeEntry
from ..committer.upkeep.purging.upload_selection import (
    Name,
    NeededBy,
    Selection,
    UploadsPath,
    name_of,
)
from ..committer.upkeep.purging.upload_sweep import SeenUpload, UploadSweep
from ..committer.upkeep.recovery import Outcome, Recovered
from ..committer.upkeep.unfinished import unfinished_where_failed
from ..s3a.recovery.leftovers import LeftoverJob
from ..s3a.recovery.liveness import JobLiveness, RecoveryOptions
from ..s3a.recovery.living import LivingJobs
from ..s3a.recovery.recover import UNSETTLED, JobOutcome, RecoveredJob, settle_jobs
from ..s3a.runs.try_record import TryRecord
from ..tables.files_in_log import files_in_log
from ..tables.table_at import delta_at
from .delta import data_root_prefixes, purge_delta, settle_delta

if TYPE_CHECKING:
    from ..committer import Table
    from .destinations import Destination

logger = logging.getLogger("zero_rename.maintenance.purging")
#: The most entries of a report; the counts have all.
MOST_ENTRIES = 100
#: The order of actions in a report: failed entries come first.
ORDER = (
    PurgeAction.FAILED,
    PurgeAction.ABORTED,
    PurgeAction.WOULD_ABORT,
    PurgeAction.REMOVED,
    PurgeAction.WOULD_REMOVE,
    PurgeAction.KEPT,
)
#: A purge's action on the uploads of a job, by the outcome of its recovery; else they are kept.
_OF_JOB = {
    # Only the uploads that no task committed: recovery completed the others.
    JobOutcome.ROLLED_FORWARD: PurgeAction.ABORTED,
    JobOutcome.ROLLED_BACK: PurgeAction.ABORTED,
    JobOutcome.FILES_LEFT: PurgeAction.ABORTED,
    JobOutcome.WOULD_ROLL_BACK: PurgeAction.WOULD_ABORT,
}
#: The action on uploads that no task committed, if it differs.
_OF_UNCOMMITTED = {JobOutcome.WOULD_ROLL_FORWARD: PurgeAction.WOULD_ABORT}
#: Outcomes of jobs of any committer after which something may have changed.
_TOUCHED = frozenset(
    {
        *(Outcome.COMMITTED, Outcome.ABORTED, Outcome.FAILED),
        *(JobOutcome.ROLLED_FORWARD, JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT),
        *(JobOutcome.FAILED, JobOutcome.UNKNOWN),
    }
)
#: Outcomes that may change if maintenance is repeated.
_REPEATED = (JobOutcome.FAILED, JobOutcome.UNKNOWN)
#: An upload or record as the purge of a table reports it; an upload as a sweep reports it.
_Entry = PurgeEntry | SeenUpload
_NOT_ASKED = "foreign: left unless foreign uploads are asked for, by age"


@dataclass(frozen=True)
class PurgeOrder:
    """The limits of a purge.

    :param foreign_age: seconds after which uploads of no known job are aborted; ``None`` leaves
        them.
    :param patience: seconds that an undecided job of this package may be silent; ``None`` takes
        each job's own. Jobs in Delta tables send no heartbeats: there only 0 counts, which says
        that no job is at work; else each has its own maximum duration.
    :param s3a_patience: seconds of silence after which a job of Hadoop's committers of which
        nothing else is known counts as dead; ``None``: it stays unknown, and is left.
    :param staging: where the directory and partitioned committers keep their pending sets.
    :param ask: returns what is known about an S3A attempt.
    :param jobs: as for :meth:`.committer.table.Table.purge`: only for tables of this package. So is
        ``records_older_than``.
    """

    apply: bool = False
    foreign_age: float | None = None
    patience: float | None = None
    s3a_patience: float | None = None
    staging: str | None = None
    ask: Callable[[TryRecord], JobLiveness | None] = lambda _: None
    jobs: Collection[str] = ()
    records_older_than: float = KEPT_FOR

    @property
    def recovery(self) -> RecoveryOptions:
        """The same limits, for the recovery of S3A jobs."""
        return RecoveryOptions(
            apply=self.apply,
            patience=self.s3a_patience,
            strangers=False,
            staging=self.staging,
            ask=self.ask,
            in_log=files_in_log,
        )


@dataclass(frozen=True)
class PurgedEntry:
    """An upload, or a record below ``_zero_rename/``, and what became of it.

    :param upload_id: ``""`` for a record.
    :param job: its owner: a job id of this package, or an S3A job's UUID; ``""`` if it is not
        known.
    :param initiated: when it was started or written, in Unix seconds. ``age``: in seconds, when the
        purge began. Both by the store's clock.
    :param bytes: the size of an upload; ``None`` if it was not asked for.
    :param is_denied: the store refused the action for want of a right: repeating does not help.
    """

    key: str
    upload_id: str
    job: str
    initiated: float
    age: float
    bytes: int | None
    action: PurgeAction
    reason: str
    is_denied: bool = False


@dataclass(frozen=True)
class SettledJob:
    """A job of any committer, and the outcome of its recovery.

    :param committer: ``zero_rename``, ``magic``, ``staging``, or ``uploads``: a job of Hadoop's
        committers that left only uploads.
    :param is_unsettled: it could not be recovered, or a person must choose; ``is_lasting``:
        repeating does not help.
    """

    job: str
    committer: str
    outcome: str
    detail: str
    is_unsettled: bool = False
    is_lasting: bool = False


@dataclass
class PurgedDestination:
    """The report of a purge of one destination.

    :param counts: number of entries by action; ``entries``: a limited number of them for each
        action.
    """

    kind: str
    jobs: list[SettledJob] = field(default_factory=list)
    entries: list[PurgedEntry] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def reported(self) -> list[PurgedEntry]:
        """At most a hundred of the entries: failed ones first, kept ones last."""
        return sorted(self.entries, key=lambda it: ORDER.index(it.action))[:MOST_ENTRIES]

    @property
    def has_begun(self) -> bool:
        """True if a job was settled, or that was tried; or an upload or object is gone."""
        acts = {PurgeAction.ABORTED, PurgeAction.REMOVED}
        return any(it.outcome in _TOUCHED for it in self.jobs) or not acts.isdisjoint(self.counts)

    def add(self, some: Sequence[PurgedEntry]) -> None:
        for it in some:
            if self.counts[it.action] < MOST_ENTRIES:
                self.entries.append(it)
            self.counts[it.action] += 1


def purge_destination(
    table: Table,
    place: Destination,
    order: PurgeOrder,
    emit: Callable[[Sequence[PurgedEntry]], None] = lambda _: None,
) -> PurgedDestination:
    """Recover the jobs of a destination, then abort the uploads that no job will complete.

    In a table of this package also remove what :meth:`.committer.table.Table.purge` removes; in a
    Delta table that this package has made, also the files that nothing needs.

    :param table: opened at the destination's root; the kind does not matter.
    :param emit: called with the entries, some at a time.
    :raises InvalidInputError: ``jobs`` are given, and there is no table of this package.
    :raises ZeroRenameError: the store refused a listing, or did not answer.
    """
    if order.jobs and not (place.is_table or place.is_delta):
        raise InvalidInputError(
            "Jobs named as dead are of tables of this package, and none is here. Nothing was "
            "changed.",
            table=table.root.url,
            remedy="Leave them out; dead jobs of Hadoop's committers are named by `zero-rename "
            "s3a-recover --dead`.",
        )
    if order.jobs and order.apply and place.is_s3a:
        # A mistyped job is refused before a job of Hadoop's committers is recovered.
        if place.is_delta:
            delta_at(table).plan_give_up(order.jobs)
        else:
            table.purge(patience=order.patience, jobs=order.jobs)
    done = PurgedDestination(place.kind)
    now = table.run(Head(table.root.table_key)).date

    def seen(some: Iterable[_Entry]) -> None:
        made = [_purged(it, now) for it in some]
        done.add(made)
        emit(made)

    with unfinished_where_failed(lambda: order.apply and done.has_begun):
        _purge(table, place, order, done, now, seen)
    return done


def _purge(
    table: Table,
    place: Destination,
    order: PurgeOrder,
    done: PurgedDestination,
    now: float,
    seen: Callable[[Iterable[_Entry]], None],
) -> None:
    """Recover the jobs of a destination, then abort uploads, and remove what nothing needs.

    :param done: gets the outcomes of jobs and the counts.
    :param now: the time by the store's clock.
    :param seen: called with what became of uploads and records.
    """
    told: dict[Name, NeededBy] = {}
    left_alone: list[LeftoverJob] = []
    # Uploads may be all that shows a job of a staging committer.
    options = replace(order.recovery, without=place.others)
    for left, result in table.tend(settle_jobs(table.root, options)):
        done.jobs.append(_of_s3a(result))
        told |= {name_of(it): NeededBy(result.job, result.reason) for it in left.uploads}
        left_alone += [left] if result.outcome not in _OF_JOB else []
        seen(_entries_of(left, result))
    spared = _Spared(place, order, told, left_alone, now)
    if place.is_table:
        report = table.purge(
            older_than=order.foreign_age,
            foreign=order.foreign_age is not None,
            apply=order.apply,
            patience=order.patience,
            jobs=order.jobs,
            records_older_than=order.records_older_than,
            spared=spared,
        )
        done.jobs += map(_of_ours, report.recovered)
        seen(it for it in report.entries if (it.key, it.upload_id) not in told)
        return
    if place.is_delta:
        delta = delta_at(table)
        settled = settle_delta(delta, order.patience, order.jobs, order.apply)
        done.jobs += map(_of_ours, settled)
        seen(purge_delta(delta, order.records_older_than, order.apply))

    # Dead jobs of a Delta table are recovered before the sweep lists their uploads. Without apply
    # they are not, so mark the uploads that would be aborted with them.
    would = {it.job: it.detail for it in done.jobs if it.outcome == Outcome.WOULD_ABORT}

    def swept(page: Sequence[SeenUpload]) -> None:
        page = [_doomed(it, would) for it in page]
        mine = (it for it in page if not it.key.startswith(place.others))
        seen(it for it in mine if (it.key, it.upload_id) not in told)

    def sweep(prefix: str) -> None:
        path = UploadsPath(table.root.bucket, prefix)
        found = UploadSweep(path, Selection(), swept, apply=order.apply, spared=spared)
        done.jobs.extend(map(_of_ours, table.tend(found.run())))

    sweep(f"{table.root.prefix}/")
    for prefix in data_root_prefixes(delta_at(table)) if place.is_delta else ():
        try:
            sweep(prefix)
        except FastRootGoneError as error:
            logger.warning("Uploads there were not purged: %s", error)


def _doomed(it: SeenUpload, would: Mapping[str, str]) -> SeenUpload:
    """Mark an upload whose job would be aborted: the upload would be aborted, too.

    :param would: the reasons, by job.
    """
    if it.action is not PurgeAction.KEPT or it.job is None or it.job not in would:
        return it
    reason = f"of a job that would be aborted: {would[it.job]}"
    return replace(it, action=PurgeAction.WOULD_ABORT, reason=reason)


class _Spared:
    """Selection of the uploads that a sweep must keep, with the reasons. These belong to live jobs,
    to jobs that recovery has reported, to other destinations or tables; or they are too young."""

    def __init__(
        self,
        place: Destination,
        order: PurgeOrder,
        told: Mapping[Name, NeededBy],
        left_alone: Sequence[LeftoverJob],
        now: float,
    ) -> None:
        self._others = place.others
        self._order = order
        self._told = told
        self._left_alone = left_alone
        self._now = now
        self._living = LivingJobs(place.root.bucket, order.recovery, place.root.prefix)

    def __call__(self, uploads: Sequence[ListedUpload]) -> Step[Mapping[Name, NeededBy]]:
        needed: dict[Name, NeededBy] = {}
        for upload in uploads:
            name = name_of(upload)
            if name in self._told:
                needed[name] = self._told[name]
            elif upload.key.startswith(self._others):
                needed[name] = NeededBy("", "of a destination that is looked after by itself")
            elif is_fast(upload.key):
                # The files of a table below this one lie below the same folder of the data root.
                needed[name] = NeededBy("", "in the data root, and of no job of this table")
        left = [upload for upload in uploads if name_of(upload) not in needed]
        needed |= yield from self._living(left)
        for upload in left:
            name = name_of(upload)
            if name in needed:
                continue
            if why := self._too_young(self._now - upload.initiated):
                needed[name] = NeededBy("", why)
            elif job := next((it for it in self._left_alone if it.may_write(upload)), None):
                why = f"it may be of the S3A job {printable(job.uuid)}, which is left"
                needed[name] = NeededBy(job.uuid, why)
        return needed

    def _too_young(self, age: float) -> str:
        """Return why an upload of no known job is kept, by its age; ``""``: it may be aborted."""
        least = self._order.foreign_age
        if least is None:
            return _NOT_ASKED
        return "" if age >= least else f"foreign and {age:.0f} s old, younger than {least:.0f} s"


def _of_s3a(job: RecoveredJob) -> SettledJob:
    is_unsettled = job.outcome in UNSETTLED
    return SettledJob(
        job.job,
        str(job.left),
        str(job.outcome),
        f"{job.reason} ({job.state}: {job.state_reason})",
        is_unsettled=is_unsettled,
        is_lasting=is_unsettled and (job.lasting or job.outcome not in _REPEATED),
    )


def _of_ours(job: Recovered) -> SettledJob:
    return SettledJob(
        job.job,
        "zero_rename",
        str(job.outcome),
        job.detail,
        is_unsettled=job.outcome is Outcome.FAILED,
        is_lasting=job.lasting,
    )


def _entries_of(left: LeftoverJob, result: RecoveredJob) -> Iterator[PurgeEntry]:
    """Yield what became of the uploads of an S3A job. Those that recovery completed are left
    out."""
    action = _OF_JOB.get(result.outcome, PurgeAction.KEPT)
    of_extra = _OF_UNCOMMITTED.get(result.outcome, action)
    sizes = {(commit.key, commit.upload_id): commit.length for commit in left.commits}
    uploads = left.extra if result.outcome is JobOutcome.ROLLED_FORWARD else left.uploads
    reason = f"of an S3A job, {result.outcome}: {result.reason}"
    extra = {name_of(it) for it in left.extra}
    for it in uploads:
        became = of_extra if name_of(it) in extra else action
        size = sizes.get(name_of(it))
        yield PurgeEntry(it.key, it.upload_id, result.job, it.initiated, became, reason, size)


def _purged(it: _Entry, now: float) -> PurgedEntry:
    age = max(0.0, now - it.initiated)
    return PurgedEntry(
        *(it.key, it.upload_id, it.job or "", it.initiated, age, it.bytes, it.action, it.reason),
        is_denied=it.is_denied,
    )
