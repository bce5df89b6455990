"""Jobs that maintain or checkpoint tables, and report on their runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from zero_rename.committer.errors import ZeroRenameError, counted, escaped
from zero_rename.committer.format.job_spec import choice
from zero_rename.committer.table import Table
from zero_rename.committer.upkeep.checkpoint import CheckpointAction, Checkpointed, CheckpointOrder
from zero_rename.lineage import risks_of
from zero_rename.maintenance.conflicts import ConflictOrder
from zero_rename.maintenance.delta import why_left
from zero_rename.maintenance.destinations import NOTHING, Destination, destinations_in
from zero_rename.maintenance.purging import PurgeOrder
from zero_rename.maintenance.residue import find_residue
from zero_rename.maintenance.upkeep import Upkeep, as_markdown, look_after
from zero_rename.orchestration.runs.arguments import read_seconds
from zero_rename.orchestration.table_names import check_catalog_of
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import delta_alone, delta_at

from .asset_step import step_of
from .conflict_job import owner_of
from .failures import final_failures, forbid_retries, restore_retries
from .resource import ZeroRenameResource
from .run_states import run_states
from .watch.asset_reference import RESOURCE

#: The most partitions that a report lists.
_LINES = 100


def maintenance_job(
    *,
    tables: Sequence[str] | None = None,
    apply: bool = False,
    foreign_older_than: timedelta | None = None,
    patience: timedelta | None = None,
    s3a_patience: timedelta | None = None,
    staging: str | None = None,
    buffer_dir: str | None = None,
    catalog: str | None = None,
    conflicts: str | Mapping[str, Any] | None = None,
    name: str = "zero_rename_maintenance",
    resource_key: str = RESOURCE,
) -> dg.JobDefinition:
    """Make a job that maintains tables of any committer: recover, purge, gc, verify.

    It recovers interrupted jobs, aborts uploads that no job will complete, and compares the files
    that are named with those in the store. In a Delta table that this package has made it also
    removes files that nothing needs, and writes a checkpoint that is due. Another engine's table is
    named, and left to that engine. A job of Hadoop's committers is left while its run in Dagster is
    at work, waits for a retry, or is executed again.

    Its report is Markdown on the run. It fails if only a person can help; if the store's failures
    kept it from something, the next run tries again. If the resource has ``max_recompute``, the
    report notes what is not durable and would take longer to be made again.

    :param name: the job's.
    :param tables: names of tables of this package; of destinations of Hadoop's committers, with or
        without a record of their runs; and of directories, in which all destinations below are
        maintained. ``None``: all below the resource's ``table_root``.
    :param apply: act; ``False`` only reports what would be done.
    :param foreign_older_than: also abort uploads of other tools that are older than this.
    :param patience: how long an undecided job may be silent before it counts as dead; ``None``
        takes each job's own. For Delta tables only zero counts, which says that no job is at work.
    :param s3a_patience: silence after which a job of Hadoop's committers that no run's record names
        counts as dead. Longer than the longest task: one that writes a file is silent. ``None``:
        such a job stays unknown, and is left.
    :param staging: where the directory and partitioned committers keep their pending sets
        (``fs.s3a.committer.staging.tmp.path``), as a path or an ``hdfs://`` URL.
    :param buffer_dir: folders of the run's machine in which S3A buffers files
        (``fs.s3a.buffer.dir``), separated by commas. What dead drivers left there is reported, and
        folders of tasks whose job this run has recovered are removed with ``apply=True``.
    :param catalog: where tables are registered once their jobs are recovered, ``glue://database``;
        ``None``: the resource's; empty: none.
    :param conflicts: what to do about runs that conflict over partitions. The search for them comes
        before anything is removed. ``report`` notes them; ``fail`` fails the run while one is not
        settled; a policy of :func:`.resolve_conflicts_job` settles them, in a Delta table also by
        bringing back rows. ``None``: no search.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :raises InvalidInputError: ``catalog``, ``conflicts`` or a duration is invalid.
    """
    if catalog:
        check_catalog_of(catalog, len(tables or ()))
    order = PurgeOrder(
        apply=apply,
        foreign_age=_seconds("foreign_older_than", foreign_older_than),
        patience=_seconds("patience", patience),
        s3a_patience=_seconds("s3a_patience", s3a_patience),
        staging=staging,
    )

    about_conflicts = ConflictOrder.parse(conflicts)

    @dg.op(name=f"{name}_of_tables", required_resource_keys={resource_key})
    def maintain(context) -> None:
        restore_retries(step_of(context))
        resource = getattr(context.resources, resource_key)
        done: list[Upkeep] = []
        asking = replace(order, ask=run_states(context.instance))
        with final_failures(context):
            found = _destinations(resource, tables, done)
            registration = resource.registration(catalog)
            if registration is not None:
                check_catalog_of(registration.catalog, sum(map(_is_registered, found)))
        register = registration.sync if registration is not None and apply else None
        decided = about_conflicts and replace(about_conflicts, owner=owner_of(context))
        for place in found:
            table = resource.table(place.root.url)
            try:
                it = look_after(table, place, asking, register, decided)
                if (most := resource.max_recompute) is not None and place.is_delta:
                    with it.step():
                        it.notes += risks_of(delta_at(table), most, resource.client())
            except Exception as error:
                # Go on with the others. This one is a fault of the program, so log its traceback.
                context.log.exception(table.root.url)
                it = Upkeep(table.root.url, person=[f"{type(error).__name__}: {error}"])
            if not it.is_empty_rest:
                done.append(it)
        for name, slip in _slips(resource, tables, done).items():
            done.append(Upkeep(slip, kind="directory", notes=[NOTHING]))
            context.log.warning(f"{name}: {NOTHING}")
        for it in done:
            for title in ("person", "again", "notes"):
                for line in getattr(it, title):
                    context.log.info(f"{it.table}, {title}: {line}")
        jobs = [job for it in done for job in it.settled]
        residue = find_residue(staging, buffer_dir, jobs, apply)
        page = dg.MetadataValue.md(as_markdown(done, apply, residue))
        needed = [f"{it.table}: {it.person[0]}" for it in done if it.person]
        if needed:
            more = f" And {counted(len(needed) - 1, 'more table')}." if len(needed) > 1 else ""
            forbid_retries(context)
            raise dg.Failure(
                f"Action is needed. {needed[0]}{more}",
                metadata={"report": page},
                allow_retries=False,
            )
        context.add_output_metadata(
            {"report": page, "tables": len(done), "again": sum(len(it.again) for it in done)}
        )

    @dg.job(
        name=name,
        description="Maintains tables on S3: recovers jobs, purges, makes records small, verifies.",
    )
    def maintenance() -> None:
        maintain()

    return maintenance


def checkpoint_job(
    *,
    tables: Sequence[str] | None = None,
    order: CheckpointOrder | str = CheckpointOrder.CREATION,
    apply: bool = False,
    name: str = "zero_rename_checkpoint",
    resource_key: str = RESOURCE,
) -> dg.JobDefinition:
    """Make a job that copies files from the data roots of Delta tables into the tables.

    It copies what lies only there, with the same rows, by jobs of its own. If another job changes a
    partition at the same time, that job wins. Its report is Markdown on the run. It fails if files
    are lost, or a table cannot be checkpointed, after all that can be copied is copied.

    :param tables: names; ``None``: all Delta tables below the resource's ``table_root`` that this
        package has made, except those whose data root is temporary. A table of directories that is
        named fails the run.
    :param order: which partitions of a table are copied first: ``creation``, the oldest, or
        ``latest``.
    :param apply: act; ``False`` only reports what would be done.
    :param name: the job's.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :raises InvalidInputError: ``order`` is invalid.
    """
    first = choice("order", CheckpointOrder, order)

    @dg.op(name=f"{name}_of_tables", required_resource_keys={resource_key})
    def copy(context) -> None:
        restore_retries(step_of(context))
        resource = getattr(context.resources, resource_key)
        with final_failures(context):
            found = _opened(resource, tables)
        done: list[tuple[str, Checkpointed]] = []
        failed: list[str] = []
        for table in found:
            try:
                why = "the files of a table of directories lie in it"
                opened = delta_alone(table, why, "Leave it out of tables.", undone="copied")
                if tables is None and _is_left(opened):
                    continue
                done += [(table.root.url, it) for it in opened.checkpoint(order=first, apply=apply)]
            except Exception as error:
                # Go on with the other tables.
                context.log.exception(table.root.url)
                failed.append(f"`{table.root.url}`: {type(error).__name__}: {error}")
        lost = [(url, it) for url, it in done if it.action is CheckpointAction.LOST]
        failed += [
            f"`{url}`: files of {it.partition} are missing in the fast root. To make them "
            f"again: zero-rename lineage plan {url}"
            for url, it in lost
        ]
        actions = Counter(str(it.action).replace(" ", "_") for _, it in done)
        report = {"report": dg.MetadataValue.md(_of_checkpoint(done, failed)), **actions}
        if lost:
            forbid_retries(context)
        if failed:
            raise dg.Failure(failed[0], metadata=report, allow_retries=not lost)
        context.add_output_metadata(report)

    @dg.job(name=name, description="Copies files that lie only in fast roots into the tables.")
    def checkpoint() -> None:
        copy()

    return checkpoint


def _is_left(table: DeltaTable) -> bool:
    """Return whether to leave out a table that was found by listing: it is another engine's, or its
    data root is temporary."""
    if why_left(table):
        return True
    return (root := table.data_root) is not None and root.temporary


def _of_checkpoint(done: Sequence[tuple[str, Checkpointed]], failed: Sequence[str]) -> str:
    """Return a page about partitions. What needs action comes first."""
    lines = ["# Checkpoint", "", *(f"* {line}" for line in failed[:_LINES])]
    if not done:
        return "\n".join([*lines, "", "Nothing lies only in a fast root."])
    lines += [
        "",
        "| table | partition | | files | bytes | since, UTC |",
        "|---|---|---|---|---|---|",
    ]
    for url, it in done[:_LINES]:
        since = datetime.fromtimestamp(it.since, UTC).strftime("%Y-%m-%d %H:%M:%S")
        said = f"{it.action} | {it.files:,} | {it.bytes:,} | {since}"
        lines.append(f"| `{url}` | `{escaped(it.partition)}` | {said} |")
    more = len(done) - _LINES
    return "\n".join([*lines, *(["", f"and {more:,} more"] if more > 0 else [])])


def _opened(resource: ZeroRenameResource, tables: Sequence[str] | None) -> list[Table]:
    if tables is None:
        tables = [it.root.url for it in resource.destinations() if it.is_delta]
    return [resource.table(it) for it in tables]


def _destinations(
    resource: ZeroRenameResource, tables: Sequence[str] | None, failed: list[Upkeep]
) -> list[Destination]:
    """Return the destinations to maintain.

    :param failed: gets the report of each table that cannot be read, so that the others are
        maintained.
    """
    if tables is None:
        return resource.destinations()
    found: list[Destination] = []
    for table in [resource.table(it) for it in tables]:
        try:
            found += table.run(destinations_in(table.root))
        except ZeroRenameError as error:
            failed.append(Upkeep.of_unseen(table.root.url, error))
    return found


def _slips(
    resource: ZeroRenameResource, tables: Sequence[str] | None, done: Sequence[Upkeep]
) -> dict[str, str]:
    """Return the names, with URLs, at which nothing was found. A name may be a typing error, and
    the table that was meant would never be maintained."""
    urls = {name: resource.table(name).root.url for name in tables or ()}
    return {
        name: url
        for name, url in urls.items()
        if not any(f"{it.table}/".startswith(f"{url}/") for it in done)
    }


def _is_registered(place: Destination) -> bool:
    """Return whether a destination is registered in a catalog."""
    return place.is_table or place.is_delta


def _seconds(name: str, time: timedelta | None) -> float | None:
    return None if time is None else read_seconds(name, time)
