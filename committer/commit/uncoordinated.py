"""Jobs into tables of coordination *none*: they give what the S3A committers give, on any S3 store.

Nothing is visible before the commit, and that is the only guarantee. There are no heads, so writers
of one partition do not notice each other. Only the owner finishes a commit, since nothing
distinguishes the files of an old job from those of a later one. Readers list. These tables are for
stores that keep no conditional writes, or are known not to carry them out in one step.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ..errors import (
    CommitStateUnknownError,
    InvalidInputError,
    JobFencedError,
    RefusedError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from ..format.job_spec import JobSpec, Mode, OnConflict, SchemaMode
from ..format.layout import UNPARTITIONED, TableRoot
from ..format.records.data_file import DataFile
from ..format.records.decision import Decision
from ..format.records.partition_decision import PartitionDecision
from ..format.records.pending_file import PendingFile, TaskResult
from ..format.records.success_marker import marker_write_id
from ..format.schema.directory import is_data_file
from ..store.conditional_put import Written, put_record
from ..store.requests import Absent, All, Found, Put, Refused, Step, Unknown
from .abort import abort_after, close_aborted, take_off
from .apply import committed, wants_marker, wants_table_marker
from .changes import compose_decision, targets_of
from .close import delete_open_record, sweep_losers
from .complete import MissingFilePolicy, complete_file, lost
from .first_job import confirm, establish
from .markers import marker_bytes
from .removal import remove_listed
from .state.context import Context, Count
from .state.data_listing import foreign_file, list_partitions, list_table
from .state.decide import Decided, decide, decide_abort, read_decision
from .state.job_state import Aborted, Committed, OpenedJob
from .state.task_results import check_results

logger = logging.getLogger("zero_rename.committer.commit.uncoordinated")


def check_uncoordinated(root: TableRoot, spec: JobSpec) -> None:
    """Refuse a job whose policies need heads.

    :raises InvalidInputError: an idempotency key, a base, ``on_conflict=newest_run`` or a change of
        the columns. Nothing was sent.
    """
    if spec.base is not None:
        raise InvalidInputError(
            "A base is versions of heads, and a table of coordination=none has none. Nothing was "
            "sent.",
            remedy="Leave base out, and let one job write at a time.",
        )
    if spec.on_conflict is OnConflict.NEWEST_RUN:
        raise InvalidInputError(
            "on_conflict=newest_run asks heads which run has loaded a partition, and a table of "
            "coordination=none has none. Nothing was sent.",
            remedy="Leave on_conflict out, and let one job write at a time.",
        )
    if spec.schema_mode is not SchemaMode.KEEP:
        raise InvalidInputError(
            "The columns of a table of coordination=none cannot change: its writers do not notice "
            "each other. Nothing was sent.",
            remedy="Leave schema_mode out, or write to another table.",
        )
    if spec.idempotency_key is not None:
        raise InvalidInputError(
            "An idempotency key needs a head, and a table of coordination=none has none. Nothing "
            "was sent.",
            remedy="Leave the key out and replace partitions, so that a repeated run does not "
            "double rows; or write to a table of coordination=store. Airflow's operator gives "
            "every run a key: it loads the latter only.",
        )


def warn_uncoordinated(root: TableRoot) -> None:
    """Log a warning of what a table of coordination *none* does not guarantee."""
    logger.warning(
        "%s: coordination=none: writers of one partition do not notice each other, a commit whose "
        "owner dies stays half visible and nobody else finishes it, and readers that list while "
        "a job commits may see a part of it. Let one job write at a time.",
        root.url,
    )


def commit_uncoordinated(
    context: Context,
    opened: OpenedJob,
    results: Sequence[TaskResult],
    expected_tasks: int | None = None,
) -> Step[Committed]:
    """List, write the decision, complete, remove, mark, close.

    After an error that leaves the job committed and unfinished, its owner may call this again.

    :raises TaskResultsError: the results do not add up. The job is aborted.
    :raises DestinationExistsError: mode fail-if-exists met files. The job is aborted.
    :raises CommitStateUnknownError: the decision may stand; nothing was cleaned up.
    :raises UnfinishedCommitError: the job *is* committed, and not all of it is visible.
    """
    try:
        check_results(opened, results, expected_tasks)
        # Without conditions a second decision would take the place of the first one.
        keeps = context.facts.conditional_put
        decided = None if keeps else (yield from read_decision(context, opened.job))
        made = None
        if decided is None:
            decision = yield from _decision(context, opened, results)
            made = yield from establish(context, opened, ())
            decided = yield from decide(context, decision)
    except CommitStateUnknownError:
        raise
    except ZeroRenameError as error:
        error.job = error.job or opened.job
        outcome = yield from abort_after(error, abort_uncoordinated(context, opened))
        if outcome is None:
            raise
        return outcome
    if not decided.decision.is_commit:
        raise JobFencedError(
            "This job was aborted before; nothing of it is visible.",
            job=opened.job,
            remedy="Run the job again.",
        )
    # A single task leaves no uploads but those that it reports. With more tasks, an attempt that
    # was killed may have left uploads.
    report = yield from _finish(context, decided, swept=len(results) < 2)
    yield from confirm(context, made)
    return report


def abort_uncoordinated(context: Context, opened: OpenedJob) -> Step[Aborted | Committed]:
    """Abort an open job, or find it committed, and then finish it as its owner."""
    decided = yield from decide_abort(context, opened.job, owner=opened.spec.owner)
    if decided.decision.is_commit:
        return (yield from _finish(context, decided, swept=False))
    yield from take_off(context, opened.job, ())
    return (yield from close_aborted(context, opened.job))


def _decision(context: Context, opened: OpenedJob, results: Sequence[TaskResult]) -> Step[Decision]:
    every: set[str] = set()
    if opened.spec.empties_unnamed:
        listed = yield from list_table(context, opened.partition_by)
        every = opened.spec.emptied(listed)
        if not opened.partition_by:
            every.add(UNPARTITIONED)
    targets = targets_of(opened, results, every)
    return (yield from compose_decision(context, opened, tuple(targets.values()), {}))


def _finish(context: Context, decided: Decided, swept: bool) -> Step[Committed]:
    """Carry out the decision, and close the job.

    :param swept: only the files that the decision names were uploaded, so no listing of uploads is
        needed.
    """
    decision = decided.decision
    count = Count(context, decision.job, len(decision.files))
    try:
        yield from All(tuple(_carry_out(context, decided, c, count) for c in decision.partitions))
        if wants_table_marker(decided):
            yield from _mark(context, decided, UNPARTITIONED, decision.partitions)
        if not swept:
            yield from sweep_losers(context, decision)
        yield from delete_open_record(context, decision.job)
    except (RefusedError, UnfinishedCommitError) as error:
        raise UnfinishedCommitError(
            f"The job is committed, and not all of it is carried out: {error.message}",
            job=decision.job,
            key=error.key,
            remedy="Nobody else finishes it (coordination=none). Commit the same job again from "
            f"this process; or {_way_out(decision)}.",
        ) from error
    return committed(context, decided)


def _carry_out(
    context: Context, decided: Decided, change: PartitionDecision, count: Count
) -> Step[None]:
    yield from All(tuple(_complete(context, decided, f, count) for f in change.files))
    yield from remove_listed(context, change.removals)
    if wants_marker(decided, change.partition):
        yield from _mark(context, decided, change.partition, (change,))


def _way_out(decision: Decision) -> str:
    """Describe how to mend a commit that no other process finishes.

    Replacing the partitions of an append with its rows alone would remove the rows of all other
    jobs.
    """
    if decision.mode is Mode.REPLACE:
        return "load the same partitions again with mode replace"
    return (
        f"delete the data files with {decision.job} in their names and "
        f"_zero_rename/open/{decision.job}.json, then run it again"
    )


def _complete(context: Context, decided: Decided, file: PendingFile, count: Count) -> Step[None]:
    """Complete one pending file.

    No other process applies the job, so a file is lost if neither its upload nor its object is
    there.
    """
    job = decided.decision.job

    def is_seen_to(answer: Refused | Unknown, found: Found | Absent) -> Step[bool]:
        yield from ()
        if isinstance(answer, Refused):
            raise failure(answer, found)
        return False

    def failure(answer: Refused | Unknown, found: Found | Absent) -> ZeroRenameError:
        if isinstance(answer, Refused):
            meanwhile = "The job's other files may be visible."
            remedy = f"; {_way_out(decided.decision)}."
            return lost(job, file, answer, found, meanwhile, remedy)
        return UnfinishedCommitError(
            f"the store did not say whether a file's upload was completed ({answer.cause}).",
            key=file.key,
        )

    yield from complete_file(context, job, file, MissingFilePolicy(is_seen_to, failure))
    count.one_more()


def _mark(
    context: Context, decided: Decided, partition: str, changes: tuple[PartitionDecision, ...]
) -> Step[None]:
    """Write a marker over whatever is there: without heads nothing shows which job came last."""
    write_id = context.write_id()
    key = context.root.marker_key(partition)
    put = Put(key, marker_bytes(context.root, decided, changes, write_id))
    outcome = yield from put_record(put, write_id, marker_write_id)
    if not isinstance(outcome, Written):
        raise UnfinishedCommitError("a _SUCCESS marker could not be written.", key=key)


def list_files(
    context: Context, partition_by: tuple[str, ...], partitions: Collection[str] | None
) -> Step[tuple[DataFile, ...]]:
    """List the data files that are there: readers of a table without heads see all of them.

    :param partitions: as in :func:`.data_listing.list_partitions`.
    """
    listed = yield from list_partitions(context, partition_by, partitions)
    return tuple(
        foreign_file(name, item) for name in listed for item in filter(is_data_file, listed[name])
    )
