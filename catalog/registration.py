"""Registration of a table where people query: in AWS Glue, or a Hive metastore through Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
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
from .described_table import DescribedTable, describe
from .glue import GlueCatalog
from .hive import HiveCatalog

logger = logging.getLogger("zero_rename.catalog.registration")


#: How often a table is looked at that others change while it is registered.
_ROUNDS = 8


class Catalog(Protocol):
    """Where tables are registered."""

    def look(self) -> Any:
        """What it says of the table now."""
        ...

    def tell(self, there: Any, described: DescribedTable) -> tuple[CatalogReport, bool]:
        """Make it say what the table is; returns what was done, and whether nothing had to be.

        :param there: what it said before the table was described.
        """
        ...

    def unsynced(self, why: str) -> CatalogUnsyncedError: ...


def sync_catalog(
    table: Table | DeltaTable | str,
    catalog: str,
    *,
    exclude: Collection[str] = (),
    spark: Any = None,
    connect: Callable[[], Any] | None = None,
) -> CatalogReport:
    """Make a catalog say what a table is now: its columns, and the partitions that hold files; of a
    Delta table, whose log tells the rest to each engine, its place and columns.

    :param table: a table, or its root, at which either kind may lie.
    :param catalog: ``glue://database/table``, or ``hive://database/table`` with ``spark``.
    :param exclude: columns that the catalog is not told of.
    :param spark: a Spark session with Hive support, whose metastore it is; for a Delta table with
        Delta Lake's extensions.
    :param connect: makes a boto3 Glue client; ``None``: by boto3's standard chain.
    :raises InvalidInputError: no such catalog, or another table has that name there.
    :raises UnsupportedTypeError: a column has no type there.
    :raises CatalogUnsyncedError: the catalog did not do it. Repeating it finishes it.
    """
    table = opened_as_it_is(Table(table)) if isinstance(table, str) else table
    url = CatalogUrl.parse(catalog).of(table.root)
    there = _catalog(url, table.root, spark, connect)
    return _register(there, lambda: describe(table, exclude))


def _register(catalog: Catalog, described: Callable[[], DescribedTable]) -> CatalogReport:
    """Tell a catalog until it says what the table is.

    Each time the catalog is looked at first and the table after that. So what the catalog says and
    the table is not was true before, and is no more: nothing is dropped that is newer than what
    was looked at. What others commit, or tell the catalog, after that look is met by the next one.
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
    """As :func:`sync_catalog`, of a table whose jobs were settled: a first job that died has made
    none.

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
    """As :func:`sync_catalog`, after a commit: a failure is no failure of the job, so it is a
    warning with what to do. The next commit's call, recovery and maintenance that know the catalog
    tell it all that it has missed.

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
