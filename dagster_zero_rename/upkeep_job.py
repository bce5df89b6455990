"""Maintenance of tables as a job that reports on its run."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from zero_rename.committer.errors import counted
from zero_rename.lineage import risks_of
from zero_rename.orchestration.table_names import check_catalog_of
from zero_rename.orchestration.upkeep import Upkeep, as_markdown, look_after

from .failures import final_failures
from .watch.asset_reference import RESOURCE


def maintenance_job(
    *,
    tables: Sequence[str] | None = None,
    apply: bool = False,
    foreign_older_than: timedelta | None = None,
    patience: timedelta | None = None,
    catalog: str | None = None,
    name: str = "zero_rename_maintenance",
    resource_key: str = RESOURCE,
) -> dg.JobDefinition:
    """A job that looks after tables: settles interrupted jobs, aborts uploads that nobody will
    complete, and compares what the tables name with what is there.

    Its report is Markdown on the run. It fails where only a person can help; what the store's
    weather kept from being done, the next run tries. Where the resource has ``max_recompute``, it
    notes what is not durable and would take longer to be made again.

    :param name: the job's.
    :param tables: names; ``None``: all tables below the resource's ``table_root``.
    :param apply: act; ``False`` only reports what would be done.
    :param foreign_older_than: abort uploads of other tools that are older, too.
    :param patience: for how long an undecided job may be silent before it counts as dead; ``None``
        takes each job's own.
    :param catalog: where tables are registered once their jobs are settled, ``glue://database``;
        ``None``: the resource's; empty: none.
    :param resource_key: under which the :class:`~dagster_zero_rename.ZeroRenameResource` is.
    :raises InvalidInputError: no catalog.
    """
    if catalog:
        check_catalog_of(catalog, len(tables or ()))

    @dg.op(name=f"{name}_of_tables", required_resource_keys={resource_key})
    def maintain(context) -> None:
        resource = getattr(context.resources, resource_key)
        with final_failures(context):
            found = resource.tables() if tables is None else [resource.table(it) for it in tables]
            registration = resource.registration(catalog)
            if registration is not None:
                check_catalog_of(registration.catalog, len(found))
        register = registration.sync if registration is not None and apply else None
        age, silence = _seconds(foreign_older_than), _seconds(patience)
        done = []
        for table in found:
            try:
                it = look_after(
                    table, apply=apply, foreign_age=age, patience=silence, register=register
                )
                with it.step():
                    most = resource.max_recompute
                    it.notes += [] if most is None else risks_of(table, most, resource.client())
            except Exception as error:
                # The other tables are looked after; this one is for who mends the program.
                context.log.exception(table.root.url)
                it = Upkeep(table.root.url, person=[f"{type(error).__name__}: {error}"])
            done.append(it)
            for title in ("person", "again", "notes"):
                for line in getattr(it, title):
                    context.log.info(f"{it.table}, {title}: {line}")
        page = dg.MetadataValue.md(as_markdown(done, apply))
        needed = [f"{it.table}: {it.person[0]}" for it in done if it.person]
        if needed:
            more = f" And {counted(len(needed) - 1, 'more table')}." if len(needed) > 1 else ""
            raise dg.Failure(
                f"A person is needed. {needed[0]}{more}",
                metadata={"report": page},
                allow_retries=False,
            )
        context.add_output_metadata(
            {
                "report": page,
                "tables": len(done),
                "again": sum(len(it.again) for it in done),
            }
        )

    @dg.job(name=name, description="Looks after tables on S3: recover, purge, gc, verify.")
    def maintenance() -> None:
        maintain()

    return maintenance


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()
