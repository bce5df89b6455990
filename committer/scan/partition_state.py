"""State of one partition, read from its head: its last commit, and what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.heads import read_head
from ..commit.state.open_jobs import read_open
from ..commit.state.partition_files import files_of_head
from ..format.records.data_file import DataFile, rows_of
from ..format.records.head import PartitionHead, Slot
from ..format.records.partition_decision import PartitionDecision
from ..store.requests import All, Step


@dataclass(frozen=True)
class LastCommit:
    """Job that changed a partition's rows last.

    A job that only wrote the rows again, as a compaction does, or settled a conflict over them,
    does not count.

    :param version: the partition's version after that job.
    :param decided_at: by the store's clock, Unix seconds; ``None``: the job is no longer known.
    """

    job: str | None
    version: int
    decided_at: float | None


@dataclass(frozen=True)
class PartitionState:
    """Content of a partition.

    :param etag: of the head from which it was read.
    :param version: how many jobs have moved it.
    :param last: the job that changed its rows last.
    :param files: all files, oldest first.
    :param unfinished: a job that is committed and not applied to its end, so that readers that list
        may miss files of it or see files that it replaced.
    :param claim: the job that is about to change it.
    """

    partition: str
    etag: str
    version: int
    last: LastCommit
    files: tuple[DataFile, ...]
    unfinished: str | None
    claim: str | None

    @property
    def rows(self) -> int | None:
        """Number of rows; ``None`` if it holds adopted files whose rows were not counted."""
        return rows_of(self.files)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def partition_states(
    context: Context, partitions: Iterable[str]
) -> Step[dict[str, PartitionState]]:
    """Read the present states of partitions: some five requests each.

    Partitions without a head are left out.

    :raises DamagedError: a record that names the files of one of them cannot be read.
    """
    found = yield from All(tuple(_partition_state(context, name) for name in partitions))
    return {state.partition: state for state in found if state is not None}


def _partition_state(context: Context, partition: str) -> Step[PartitionState | None]:
    state = yield from read_head(context, Slot.partition(context.root, partition))
    head = state.head
    if state.etag is None:
        return None
    jobs = [job for job in (head.last_job, head.claim) if job is not None]
    decisions = yield from All(tuple(read_decision(context, job) for job in jobs))
    decided = dict(zip(jobs, decisions, strict=True))
    last, claim = decided.get(head.last_job or ""), decided.get(head.claim or "")
    unfinished = None
    if head.last_job is not None and (yield from read_open(context, head.last_job)) is not None:
        unfinished = head.last_job
    if claim is not None and claim.decision.is_commit:
        unfinished = head.claim
    files = yield from files_of_head(context, state, [] if last is None else [last])
    return PartitionState(
        partition=partition,
        etag=state.etag,
        version=head.version,
        last=(yield from _last_commit(context, head, last, files)),
        files=files,
        unfinished=unfinished,
        claim=head.claim,
    )


def _last_commit(
    context: Context, head: PartitionHead, last: Decided | None, files: Iterable[DataFile]
) -> Step[LastCommit]:
    """Find the job that changed a partition's rows last: a request for each later job.

    :param last: the decision of the job that moved the head last; ``None``: it has been removed.
    :param files: of the partition.
    """
    job, version = head.last_job, head.version
    while last is not None and (changes := _that_leave_rows(last, head.name)):
        if (former := changes[0].former_job) is None:
            return (yield from _last_commit_by_files(context, head, last, files))
        job, version = former, changes[0].base_version
        last = yield from read_decision(context, former)
    return LastCommit(job, version, None if last is None else last.date)


def _that_leave_rows(decided: Decided, partition: str) -> Sequence[PartitionDecision]:
    """Return the changes of a partition by a job that left its rows as they were; of any other job,
    none."""
    changes = decided.changes.get(partition, ())
    return changes if all(it.leaves_rows for it in changes) else ()


def _last_commit_by_files(
    context: Context, head: PartitionHead, last: Decided, files: Iterable[DataFile]
) -> Step[LastCommit]:
    """Find the job that changed a partition's rows last, among those whose rows are there.

    Compactions of earlier versions of this package do not name the job before them. A request for
    each job whose rows are there.

    :param last: the decision of such a compaction.
    """
    asked, found = {last.decision.job}, list[LastCommit]()
    wanted = {file.job for file in files} | _rewritten(last, head.name)
    while new := sorted(job for job in wanted - asked if job):
        asked |= {*new}
        decisions = yield from All(tuple(read_decision(context, job) for job in new))
        for it in (it for it in decisions if it is not None):
            changes = it.changes.get(head.name, ())
            wanted |= _rewritten(it, head.name)
            found += [
                LastCommit(it.decision.job, change.base_version + 1, it.date)
                for change in changes
                if not change.leaves_rows
            ]
    unknown = LastCommit(head.last_job, head.version, None)
    return max(found, key=lambda it: it.version, default=unknown)


def _rewritten(decided: Decided, partition: str) -> set[str]:
    """Return the jobs whose rows a job has rewritten in a partition."""
    return {job for change in decided.changes.get(partition, ()) for job in change.merged}
