"""Registration of a table in AWS Glue, or in a Hive metastore through Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..committer.errors import (
    InvalidInputError,
    TableNotFoundError,
    ZeroRenameError,
    without_secrets,
)
from ..committer.format.layout import TableRoot
from ..committer.table import Table
from ..tables import DeltaTable
from ..tables.table_at import opened_as_it_is
from .catalog_report import CatalogReport, CatalogUnsyncedError, CatalogUrl
from .described_table import DescribedTable, describe, names_of
from .glue import GlueCatalog
from .hive import HiveCatalog

logger = logging.getLogger("zero_rename.catalog.registration")


#: The most rounds of a registration during which others keep changing the table or its entry.
_ROUNDS = 8


class Catalog(Protocol):
    """The entry of a table in a catalog."""

    def look(self) -> Any:
        """Return the table's present entry."""
        ...

    def tell(self, there: Any, described: DescribedTable) -> tuple[CatalogReport, bool]:
        """Update the entry from the table's description; return the changes, and whether the entry
        was up to date already.

        :param there: the entry as it was before the table was described.
        """
        ...

    def unsynced(self, why: str) -> CatalogUnsyncedError: ...


def sync_catalog(
    table: Table | DeltaTable | str,
    catalog: str,
    *,
    exclude: Iterable[str] = (),
    spark: Any = None,
    connect: Callable[[], Any] | None = None,
) -> CatalogReport:
    """Register a table's present state in a catalog: its columns, and the partitions that hold
    files. Only the location and columns of a Delta table are registered: engines read the rest from
    its log.

    :param table: a table, or its root; a table of directories or a Delta table.
    :param catalog: ``glue://database/table``, or ``hive://database/table`` with ``spark``.
    :param exclude: columns that the catalog does not get.
    :param spark: a Spark session with Hive support on that metastore; for a Delta table also with
        Delta Lake's extensions.
    :param connect: makes a boto3 Glue client; ``None``: by boto3's standard chain.
    :raises InvalidInputError: the catalog, its database or a column to leave out does not exist; or
        the entry of that name is of another table or cannot be changed to describe this one.
    :raises UnsupportedTypeError: the catalog has no type for a column.
    :raises CatalogUnsyncedError: the catalog did not make all changes. Repeat the call to finish.
    """
    table = opened_as_it_is(Table(table)) if isinstance(table, str) else table
    url = CatalogUrl.parse(catalog).of(table.root)
    there, left_out = _catalog(url, table.root, spark, connect), names_of(exclude)
    return _register(there, lambda: describe(table, left_out))


def _register(catalog: Catalog, described: Callable[[], DescribedTable]) -> CatalogReport:
    """Update a catalog's entry until it agrees with the table.

    Each round reads the entry first and the table second. So whatever the entry has and the table
    has not was true before and no longer is: nothing is dropped that is newer than the table's
    state that was read. The next round meets what other processes commit or register after that.
    """
    done: CatalogReport | None = None
    for _ in range(_ROUNDS):
        there = catalog.look()
        report, nothing = catalog.tell(there, described())
        done = report if done is None else done.then(report)
        if nothing:
            return done
    raise catalog.unsynced("others kept changing it")


def sync_settled(table: Table | DeltaTable, catalog: str, **options: Any) -> CatalogReport | None:
    """Call :func:`sync_catalog` after recovery or maintenance. If a table's first job died, there
    may be no table yet.

    :returns: ``None``: no job has made the table yet.
    """
    try:
        return sync_catalog(table, catalog, **options)
    except TableNotFoundError:
        return None


def _catalog(
    url: CatalogUrl, root: TableRoot, spark: Any, connect: Callable[[], Any] | None
) -> Catalog:
    if url.kind == "glue":
        return GlueCatalog(url, root, connect)
    if spark is None:
        raise InvalidInputError(
            "A Hive metastore is told through a Spark session that has it; nothing was sent.",
            remedy="In a Spark application: sync_catalog(table, catalog, spark=spark).",
        )
    return HiveCatalog(url, root, spark.sql)


def sync_after_commit(
    table: Table | DeltaTable | str, catalog: str, **options: Any
) -> CatalogReport | None:
    """Call :func:`sync_catalog` after a commit, and log a failure as a warning that says what to
    do: the job has not failed. The next call that knows the catalog registers all that was missed;
    such calls are made by later commits, recovery and maintenance.

    :returns: ``None``: it failed.
    """
    try:
        return sync_catalog(table, catalog, **options)
    except Exception as error:  # Whatever it is, it must not make a commit look failed.
        ours = isinstance(error, ZeroRenameError)
        root = table if isinstance(table, str) else table.root.url
        logger.warning(
            "%s: the job is committed, and %s was not told: %s Finish it: %s",
            root,
            catalog,
            error if ours else f"{type(error).__name__}: {without_secrets(str(error))}.",
            _finished_by(root, catalog),
            exc_info=not ours,
        )
        return None


def _finished_by(root: str, catalog: str) -> str:
    if catalog.startswith("hive:"):
        return f'sync_catalog("{root}", "{catalog}", spark=spark)'
    return f"zero-rename catalog sync {root} --catalog {catalog}"
