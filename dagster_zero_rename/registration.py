"""Registration of an asset's table in a catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from zero_rename.catalog import sync_after_commit, sync_settled
from zero_rename.orchestration.table_names import check_catalog

if TYPE_CHECKING:
    from zero_rename.committer import Table
    from zero_rename.tables import DeltaTable

    from .asset_step import AssetStep


@dataclass(frozen=True)
class Registration:
    """The catalog in which a table is registered after a commit.

    :param catalog: ``glue://database/table``, or without the table's name.
    :param connect: makes a boto3 Glue client.
    """

    catalog: str
    connect: Callable[[], Any] = field(repr=False)

    def __post_init__(self) -> None:
        """Check the catalog's URL.

        :raises InvalidInputError: it is invalid.
        """
        check_catalog(self.catalog)

    def sync(self, table: Table | DeltaTable) -> dict[str, Any]:
        """Register the table's present state in the catalog, after maintenance.

        :return: the catalog's report; empty if no job has made the table yet.
        :raises InvalidInputError: another table has that name there.
        :raises UnsupportedTypeError: the catalog has no type for a column.
        :raises CatalogUnsyncedError: the catalog did not make all changes. Repeat the call to
            finish.
        """
        report = sync_settled(table, self.catalog, connect=self.connect)
        return {} if report is None else asdict(report)

    def tell(self, step: AssetStep, table: Table | DeltaTable) -> dict[str, Any]:
        """Register the table's present state in the catalog, after a load. If that fails, it is a
        warning and never a failure of the step: the next load, retry or ``zero-rename catalog
        sync`` registers all that was missed.

        :return: metadata of the asset's events.
        """
        report = sync_after_commit(table, self.catalog, connect=self.connect)
        if report is None:
            step.step.log.warning(
                f"{table.root.url} is committed, and {self.catalog} was not told of it. The next "
                "load tells it all that it has missed; or now: "
                f"zero-rename catalog sync {table.root.url} --catalog {self.catalog}"
            )
            return {}
        changes = f"{report.added} added, {report.updated} updated, {report.dropped} dropped"
        told = "computed" if report.projected else changes
        return {
            "zero_rename/catalog": report.catalog,
            "zero_rename/catalog_told": f"table {report.table}; partitions {told}",
        }
