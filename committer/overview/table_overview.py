"""Overview of a table: every partition with its state, recent jobs, jobs under way, failures.

For a page that is looked at often, by people who may not write: nothing is changed, not even a
commit applied that is decided, which readers of rows do. The index is asked first, so that a table
of thousands of partitions takes a few dozen requests; only heads that have changed since are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..commit.close import list_uploads
from ..commit.state.context import Context
from ..commit.state.found_table import find_table
from ..errors import StoreRefusedError
from ..format.job_spec import Coordination
from ..format.layout import TableRoot
from ..store.listing import list_objects
from ..store.requests import All, ListedUpload, Step
from ..upkeep.recovery import known
from .recent_jobs import SeenJob, recent_jobs
from .run_failures import RunFailure, standing_failures
from .seen_partitions import SeenPartition, partitions_there
from .states import with_states
from .under_way import JobUnderWay, jobs_under_way


@dataclass(frozen=True)
class TableOverview:
    """A table at one look, which is not one state of it: jobs go on meanwhile.

    :param now: the store's time, seconds since the epoch.
    :param partition_by: ``None`` where its first job has not made the table yet.
    :param partitions: by name.
    :param jobs: decided last, newest first.
    :param behind_index: heads that were read because the index does not know them.
    :param notes: what could not be read, and why.
    """

    root: TableRoot
    now: float
    partition_by: tuple[str, ...] | None
    coordination: Coordination
    partitions: tuple[SeenPartition, ...]
    jobs: tuple[SeenJob, ...]
    under_way: tuple[JobUnderWay, ...]
    failures: tuple[RunFailure, ...]
    behind_index: int
    notes: tuple[str, ...] = ()


def look_over(context: Context, most_jobs: int) -> Step[TableOverview]:
    """Look at all of a table. Changes nothing.

    :param most_jobs: recent jobs that are read.
    :raises TableNotFoundError: no table, and no record of any job.
    :raises DamagedError: ``table.json`` cannot be read.
    """
    found = yield from find_table(context)
    facts, coordination = yield from known(context, found)
    context = replace(context, facts=facts)
    table = found.record if found is not None and found.counts else None
    there, opened, (uploads, refused) = yield from All(
        (
            partitions_there(context, table),
            list_objects(context.root.open_prefix),
            _uploads(context),
        )
    )
    under_way, (jobs, unread) = yield from All(
        (
            jobs_under_way(context, there.claims, uploads),
            recent_jobs(context, opened.date, most_jobs),
        )
    )
    failures = yield from standing_failures(context, opened.date, jobs)
    partitions = with_states(there.partitions, under_way, jobs, failures, opened.date)
    return TableOverview(
        context.root,
        opened.date,
        None if table is None else table.partition_by,
        coordination,
        partitions,
        tuple(jobs),
        tuple(under_way),
        tuple(failures),
        there.behind_index,
        (*refused, *(str(error) for error in unread)),
    )


def _uploads(context: Context) -> Step[tuple[list[ListedUpload], tuple[str, ...]]]:
    """Uploads under way, which tell where jobs are at work; who may not list them does without."""
    try:
        return (yield from list_uploads(context)), ()
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return [], ("Uploads under way cannot be listed with these credentials.",)
