"""Conflicts of runs over tables' partitions: a job that settles them by bringing back rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from zero_rename.committer.errors import counted
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.upkeep.conflicts.conflict_search import ConflictReport
from zero_rename.committer.upkeep.conflicts.settlement_policy import SettlementPolicy
from zero_rename.maintenance.conflicts import (
    conflicts_as_markdown,
    find_at,
    find_below,
    not_settled,
    resolve_found,
)

from .failures import final_failures
from .resource import ZeroRenameResource
from .watch.asset_reference import RESOURCE


def resolve_conflicts_job(
    *,
    policy: str | Mapping[str, Any],
    tables: Sequence[str] | None = None,
    apply: bool = False,
    name: str = "zero_rename_conflicts",
    resource_key: str = RESOURCE,
) -> dg.JobDefinition:
    """Make a job that finds runs in conflict over partitions and settles the conflicts.

    In a Delta table it brings back the rows of the run that is to stand. In any table it can keep
    rows that are visible already.

    Its report is Markdown on the run. It fails if a conflict could not be settled, or a record of
    runs could not be read, after all others were settled.

    :param policy: ``newest_run``; ``{"prefer": ["corrections", "flights_daily"]}``, jobs or assets
        in order; or ``{"keep": [job]}``.
    :param tables: names of tables; ``None``: all below the resource's ``table_root``.
    :param apply: act; ``False`` only reports what would be done.
    :param name: the job's.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :raises InvalidInputError: the policy is invalid.
    """
    chosen = SettlementPolicy.parse(policy)

    @dg.op(name=f"{name}_of_tables", required_resource_keys={resource_key})
    def resolve(context) -> None:
        resource = getattr(context.resources, resource_key)
        owner = owner_of(context)
        done: list[ConflictReport] = []
        failed: list[str] = []
        with final_failures(context):
            looks = _looks(resource, tables)
        if not apply:
            context.log.warning("Nothing is changed, only reported: apply=True acts.")
        for url, look in looks.items():
            try:
                for found in look():
                    here = resource.table(found.table)
                    done.append(resolve_found(here, found, chosen, apply, owner))
            except Exception as error:
                # Go on with the conflicts of the other tables.
                context.log.exception(url)
                failed.append(f"{url}: {type(error).__name__}: {error}")
        left = [f"{it.table}: {one}" for it in done for one in it.unresolved]
        settled = sum(len(it.conflicts) for it in done) - len(left)
        report = {
            "report": dg.MetadataValue.md(conflicts_as_markdown(done, planned=not apply)),
            "settled" if apply else "would_settle": settled,
            "unresolved": len(left),
            "unread": sum(len(it.unread) for it in done),
        }
        if failed:
            raise dg.Failure(
                f"{counted(len(failed), 'table')} could not be searched. {failed[0]}",
                metadata=report,
            )
        if left:
            raise dg.Failure(
                f"{counted(len(left), 'conflict')} could not be settled. {left[0]}", metadata=report
            )
        if said := not_settled(done):
            raise dg.Failure(said, metadata=report)
        context.add_output_metadata(report)

    @dg.job(
        name=name,
        description="Settles conflicts of runs over partitions of tables on S3: keeps one run's "
        "rows.",
    )
    def conflicts() -> None:
        resolve()

    return conflicts


def owner_of(context: Any) -> Owner:
    """Return an op's run as the owner of a decision."""
    return Owner(context.job_name, context.run_id, context.op.name, application="dagster")


def _looks(
    resource: ZeroRenameResource, tables: Sequence[str] | None
) -> dict[str, Callable[[], list[ConflictReport]]]:
    """Return a function for each table, by its URL, that finds the table's conflicts."""
    if tables is None:
        places = [it for it in resource.destinations() if not it.is_directory]
        return {it.root.url: partial(find_at, resource.table(it.root.url), it) for it in places}
    named = [resource.table(it) for it in tables]
    return {it.root.url: partial(find_below, it, resource.table) for it in named}
