"""Outcome of a run in its table: its committed job, or the reason why there is none.

The reason may be a failure that the run's application reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...committer.errors import (
    CommitConflictError,
    JobFencedError,
    OutcomeUnknownError,
    RefusedError,
    TableNotFoundError,
    TaskResultsError,
    ZeroRenameError,
    first_few,
    printable,
)
from ...committer.format.layout import UNPARTITIONED

if TYPE_CHECKING:
    from ...committer import Committed, UnpublishedJob
    from ...committer.commit.settled import SettledPartition
    from ...committer.format.layout import TableRoot
    from ...committer.format.records.failure import Failure
    from ...committer.format.records.narrowing import Narrowing
    from ...committer.upkeep.recovery import OpenJob
    from .heartbeat import LoadRun, RepeatableRun
    from .loaded_table import LoadedTable

_log = logging.getLogger(__name__)
#: Errors of a job that another one has overtaken in a partition.
_OVERTAKEN = (CommitConflictError.__name__, JobFencedError.__name__)
_NOT_SETTLED = (
    "What the application left could not be settled now: %s The next attempt does it, or "
    "maintenance."
)


class UnendedJobError(Exception):
    """The wait for a service's job has ended before the job did."""


def settled(table: LoadedTable, job: str) -> Committed:
    """Return what a committed job did; apply it to its end first if its application did not.

    :raises OutcomeUnknownError: the job could not be applied to its end just now.
    """
    if not table.is_closed(job):
        _log.info("%s is committed and not yet listable: applying it", job)
        for found in table.recover():
            _log.info("%s: %s, %s", found.job, found.outcome, found.detail)
    committed = table.result(job)
    if committed is None or not table.is_closed(job):
        raise OutcomeUnknownError(
            "The job is decided, and could not be applied to its end just now.",
            table=table.root.url,
            job=job,
            remedy="Let the task be retried, or run `zero-rename recover --apply`.",
        )
    return committed


def check_partitions(
    table: LoadedTable, committed: Committed, allowed: Collection[str], earlier: str | None = None
) -> None:
    """Check that a job changed only the partitions of its run.

    It may also remove the rows that an earlier job of the run had loaded into other partitions.

    :param allowed: the partitions of the run; empty: all are allowed.
    :param earlier: the run's job before, whose files this one replaces in any partition.
    :raises TaskResultsError: the job changed other partitions. Its rows are visible, so this needs
        action.
    """
    others = sorted(p.partition for p in committed.partitions if p.partition not in allowed)
    if allowed and others and earlier is not None:
        mine = {p.partition for it in jobs_of_run(table, earlier) for p in it.partitions}
        mine -= {p.partition for p in committed.partitions if p.files}
        others = [name for name in others if name not in mine]
    if allowed and others:
        raise TaskResultsError(
            f"The job is committed, and it also changed partitions that its task does not name: "
            f"{first_few(others)}.",
            table=committed.table,
            job=committed.job,
            remedy="Mend the application's filter or the task's partition, then load those "
            "partitions again.",
        )


def check_waiting(waits: UnpublishedJob, allowed: Collection[str]) -> None:
    """Check that a job waiting to be published would change only the partitions of its run.

    :param allowed: the partitions of the run; empty: all are allowed.
    :raises TaskResultsError: it would change others. Its rows are not visible yet.
    """
    others = sorted(p.partition for p in waits.partitions if p.partition not in allowed)
    if allowed and others:
        raise TaskResultsError(
            "The job waits to be published, and it would also change partitions that its task does "
            f"not name: {first_few(others)}. Nobody sees its rows.",
            table=waits.table,
            job=waits.job,
            remedy="Mend the application's filter or the task's partition, then clear the task: "
            "what it loads then waits in the place of this job. Or abort it: zero-rename publish "
            f"{waits.table} {waits.job} --abort --apply",
        )


def jobs_of_run(table: LoadedTable, last: str) -> Iterator[Committed]:
    """Yield the jobs that hold a run's rows, the last one first.

    If a plan let a job make only some partitions again, the job before it holds the others.
    """
    job: str | None = last
    while job is not None and (done := table.result(job)) is not None:
        yield done
        job = done.narrows


def makes_no_other(table: LoadedTable, idempotency_key: str, partitions: Collection[str]) -> bool:
    """Return whether a run has made only partitions among those given.

    True also if the run has committed nothing, or if the table has no partitions. False if it is
    not known what the run has committed.
    """
    if UNPARTITIONED in partitions:
        return True
    job = table.job_of_key(idempotency_key)
    if job is None:
        return not table.has_done(idempotency_key)
    made = {it.partition for done in jobs_of_run(table, job) for it in done.partitions}
    return made <= {*partitions}


def why_not_settled(
    found: SettledPartition, stands: str, losers: Collection[str], version: int
) -> str:
    """Explain why a run that ended well has not settled a conflict over a partition.

    :param stands: the key of the run that the plan lets stand.
    :param losers: the keys of the runs that give way.
    :param version: the partition's version that the plan had seen.
    :return: ``""`` if the run has settled the conflict.
    """
    runs = found.runs
    if runs is not None and runs.stands == stands and {*losers} <= {*runs.losers}:
        return ""
    if found.version == version:
        why = (
            "as before: it has loaded nothing there, as with on_repeat='skip', or holds it back "
            "until it is published"
        )
    else:
        why = f"of job {found.job}, which settles nothing: another run has loaded since"
    return f"The run ended well, and the rows are {why}"


def tell_narrowing(
    table: LoadedTable,
    idempotency_key: str,
    earlier: str | None,
    is_retried: bool,
    cleared: str | None,
) -> Narrowing | None:
    """Read a run's plan: make only some of its partitions again, or settle a conflict.

    The plan is also logged here: the application obeys it, and not every service shows the
    application's log. It is read only if the run has a job already or its task had an earlier
    attempt.

    :param earlier: the run's last job; ``None``: it has committed none.
    :param cleared: the clear of its task to which the attempt belongs (:attr:`.Owner.cleared`).
    :return: the plan; ``None`` if there is none or it is over. It is over for the run's job, too
        (:func:`.narrowed_run.as_planned`), if it was for another clear, or the run has committed
        since.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ...committer.commit.narrowed_run import read_narrowing

    asks = cleared is not None and (earlier is not None or is_retried)
    left = table.run(read_narrowing(table.root, idempotency_key)) if asks else None
    if left is None or left.said.over:
        return None
    said, planner = left.said, left.said.planner
    if said.taken != cleared and (said.taken is not None or said.job != earlier):
        return None
    if not said.whole:
        _log.warning(
            "%s of DAG %s, run %s, has planned that this run makes only these partitions again: %s",
            *(planner.task_id, planner.dag_id, planner.run_id, ", ".join(sorted(said.partitions))),
        )
    if said.settles:
        _log.warning(
            "%s of DAG %s, run %s, lets this run settle the conflict over %s",
            *(planner.task_id, planner.dag_id, planner.run_id, ", ".join(sorted(said.settles))),
        )
    return said


def nothing_committed(
    table: LoadedTable, run: LoadRun, earlier: str | None, held: str | None = None
) -> RefusedError:
    """Build the error for an application that ended well, but committed nothing for its run.

    :param earlier: the run's job that had committed before.
    :param held: the run's job that waited to be published before.
    """
    stands = f" What an earlier attempt committed, {earlier}, stands." if earlier else ""
    if held is not None:
        stands += f" What an earlier attempt left to be published, {held}, still waits."
    return RefusedError(
        f"The application ended well, but committed no job of {run} to this table.{stands}",
        table=table.root.url,
        remedy="It has to write this table by save() or df.write.format('zero_rename') in the "
        "driver that spark-submit starts, and may not set the option idempotencyKey itself. The "
        "batches of a stream() are no jobs of its run.",
    )


def unknown_rows(table: LoadedTable, idempotency_key: str, remedy: str) -> CommitConflictError:
    """Build the error for a run that would replace the rows of its earlier job, which is not known.

    The commit would be refused, too.
    """
    return CommitConflictError(
        f"The run {idempotency_key} has committed before, and its entry was cleaned from the "
        "table's log: the rows that it has loaded cannot be found and replaced. Nothing was "
        "written.",
        table=table.root.url,
        remedy=remedy,
    )


def settle_killed(table: LoadedTable, run: LoadRun) -> None:
    """Abort an attempt's jobs after its application was killed, or finish those it had decided.

    Failures are only logged: the next attempt or maintenance does the rest.
    """
    _settle(table, lambda it: run.owns(it.owner) and run.made(it.owner))


def settle_former(table: LoadedTable, run: RepeatableRun) -> None:
    """Abort the jobs that earlier attempts have left open, after a commit of their run.

    They cannot commit any more under the run's key. This is for Delta tables: jobs there send no
    heartbeats, so other runs would take them for living for as long as a job may take. In a table
    of directories the next job of the run does it as it opens.

    Failures are only logged, and nothing is sent in the run's first attempt.
    """
    if run.is_first:
        return

    def is_former(it: OpenJob) -> bool:
        # An application may write the table once more, under a key of that write.
        return it.idempotency_key == run.idempotency_key and run.comes_after(it.owner)

    _settle(table, is_former)


def _settle(table: LoadedTable, is_meant: Callable[[OpenJob], bool]) -> None:
    """Settle some of the open jobs; jobs that wait to be published are left alone."""
    from ...committer import Outcome

    try:
        own = [it.job for it in table.open_jobs() if is_meant(it) and not it.unpublished]
        found = table.settle(own) if own else []
    except TableNotFoundError:
        return  # The table's first job has removed the table meanwhile: nothing is left to do.
    except ZeroRenameError as error:
        _log.warning(_NOT_SETTLED, error)
        return
    for job in found:
        if job.outcome is Outcome.FAILED:
            _log.warning(_NOT_SETTLED, job.detail)
        else:
            _log.info("%s: %s, %s", job.job, job.outcome, job.detail)


def log_what_is_left(table: LoadedTable, run: LoadRun) -> None:
    """Log the run's jobs that are open after a failed submission, whose application may go on.

    An error of the store is only logged: it must not hide why the submission failed.
    """
    try:
        left = [job for job in table.open_jobs() if run.owns(job.owner)]
    except ZeroRenameError as error:
        _log.warning("Whether a job of this run is left could not be read: %s", error)
        return
    for job in left:
        state = f"decided ({job.decided})" if job.decided else "undecided"
        _log.info("%s is left %s; the next attempt finishes or aborts it", job.job, state)


def committed_before(table: LoadedTable, run: LoadRun) -> str:
    """Return a sentence about the job that a failed attempt had committed.

    :return: empty if it had committed none, or if that cannot be read.
    """
    try:
        job = table.job_of_key(run.idempotency_key)
        owner = None if job is None else table.owner_of(job)
    except ZeroRenameError as error:
        _log.warning("Whether this attempt has committed a job could not be read: %s", error)
        return ""
    if owner is None or not run.made(owner):
        return ""
    return f"Before it failed it had committed job {job}: these rows are in the table."


def told_failure(table: LoadedTable, run: LoadRun) -> Failure | None:
    """Read the failure that this attempt's application reported.

    A failure from before a commit of this attempt is left out: the application has mended it, and
    ended for another reason.

    :return: ``None`` if it reported none, or if that cannot be read.
    """
    found = _dated_failure(table, run)
    if found is None or not run.made(found[0].owner):
        return None
    told, at = found
    return None if _has_committed_since(table, run, at) else told


def last_failure(table: LoadedTable, run: LoadRun) -> Failure | None:
    """Read the last failure that an application of a run reported, in any attempt.

    :return: ``None`` if none was reported, or if that cannot be read.
    """
    found = _dated_failure(table, run)
    return None if found is None else found[0]


def _dated_failure(table: LoadedTable, run: LoadRun) -> tuple[Failure, float] | None:
    # Imported on use: processes that only parse DAG files need not load it.
    from ...committer.commit.failures import read_dated_failure

    try:
        return table.run(read_dated_failure(table.root, run.idempotency_key))
    except ZeroRenameError as error:
        _log.warning("Whether the application said why it failed could not be read: %s", error)
        return None


def _has_committed_since(table: LoadedTable, run: LoadRun, moment: float) -> bool:
    """Return whether this attempt has committed after a moment.

    :param moment: Unix seconds, by the store's clock. Its times have whole seconds: a commit in the
        same second counts as one before.
    """
    try:
        job = table.job_of_key(run.idempotency_key)
        owner = None if job is None else table.owner_of(job)
        if job is None or owner is None or not run.made(owner):
            return False
        done = table.result(job)
    except ZeroRenameError as error:
        _log.warning("Whether this attempt has committed a job could not be read: %s", error)
        return False
    return done is not None and int(done.decided_at) > int(moment)


def was_overtaken(told: Failure, table: LoadedTable) -> bool:
    """Return whether a run failed because another job has changed one of its partitions."""
    return names_overtaken(told.error, told.key, told.gave_way or (), table.root)


def names_overtaken(
    error: str, key: str | None, gave_way: Collection[str], root: TableRoot
) -> bool:
    """Return whether an error says that another job has changed a partition.

    Its class must be that of such an error. It must also name a head or, in a Delta table, which
    has no heads, partitions.

    :param error: the name of the error's class.
    :param gave_way: partitions in which the run gave way to others.
    """
    if error not in _OVERTAKEN:
        return False
    is_of_head = key is not None and root.partition_of_head_key(key) is not None
    return is_of_head or bool(gave_way)


def in_words(told: Failure, table: LoadedTable, after_conflict: str | None = None) -> str:
    """Return a failure as one line that begins with the application's own message.

    :param after_conflict: the scheduler's remedy if another job has changed a partition. The
        application's own remedy could only say to run it again, which is the scheduler's work.
    """
    if was_overtaken(told, table):
        told = replace(told, remedy=after_conflict or told.remedy)
    named = (("table", table.root.url), ("job", told.job), ("key", told.key))
    context = ", ".join(f"{name} {value}" for name, value in named if value)
    return printable(f"{told.message} [{context}] {told.remedy or ''} ({told.error})")
