"""A Hive metastore, told through Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..committer.errors import InvalidInputError, ZeroRenameError, first_few
from ..committer.format.layout import TableRoot
from .catalog_report import CatalogReport, CatalogUnsyncedError, CatalogUrl
from .ddl import add_columns, add_partitions, ddl, drop_partitions
from .described_table import DescribedTable, ReadBy, partition_texts
from .engine_types import Engine, same_hive_type

#: What Spark shows of a table that has partitions, before their columns.
_PARTITIONED = "# Partition Information"
#: The provider of a Delta table, whose log tells its partitions.
_DELTA = "delta"


@dataclass(frozen=True)
class HiveEntry:
    """What a metastore says of a table.

    :param facts: what ``DESCRIBE TABLE EXTENDED`` shows; ``None`` where there is no such table.
    :param partitions: names by values.
    """

    facts: Mapping[str, str] | None
    partitions: Mapping[tuple[str, ...], str]


class HiveCatalog:
    """One table's place in the metastore of a Spark session.

    :param sql: runs a statement of Spark's, as ``spark.sql``; its result has ``collect()``.
    """

    def __init__(self, url: CatalogUrl, root: TableRoot, sql: Callable[[str], Any]) -> None:
        self._url = url
        self._root = root
        self._sql = sql
        self._name = f"{url.database}.{url.table}"

    def look(self) -> HiveEntry:
        """What it says now.

        :raises CatalogUnsyncedError: Spark or its metastore did not answer.
        """
        with self._told():
            database, table = self._url.database, self._url.table
            shown = self._sql(f"SHOW TABLES IN `{database}` LIKE '{table}'").collect()
            if not [row for row in shown if row["tableName"].lower() == table.lower()]:
                return HiveEntry(None, {})
            rows = self._sql(f"DESCRIBE TABLE EXTENDED {self._name}").collect()
            facts = {row["col_name"]: row["data_type"] for row in rows}
            if _PARTITIONED not in facts or facts.get("Provider", "").lower() == _DELTA:
                return HiveEntry(facts, {})
            return HiveEntry(facts, self._partitions())

    def tell(self, there: HiveEntry, described: DescribedTable) -> tuple[CatalogReport, bool]:
        """Create the table, or add what columns it lacks; add and drop partitions.

        :param there: what it said before the table was described.
        :returns: what was done, and whether nothing had to be.
        :raises InvalidInputError: another table has that name, or it is registered otherwise.
        :raises CatalogUnsyncedError: Spark or its metastore did not do it.
        """
        with self._told():
            done = self._tell_table(there.facts, described)
            wanted = {tuple(partition_texts(name)): name for name in described.partitions}
            missing = [name for values, name in wanted.items() if values not in there.partitions]
            gone = [name for values, name in there.partitions.items() if values not in wanted]
            for statement in add_partitions(described, Engine.HIVE, self._name, missing):
                self._sql(statement)
            for statement in drop_partitions(described, Engine.HIVE, self._name, gone):
                self._sql(statement)
        report = CatalogReport(
            str(self._url), described.read_by, done, added=len(missing), dropped=len(gone)
        )
        return report, done == "unchanged" and not (missing or gone)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except ZeroRenameError:
            raise
        except Exception as error:  # Py4J's, Connect's, Spark's: none is a base of the others.
            raise self.unsynced(str(error).splitlines()[0][:300]) from error

    def unsynced(self, why: str) -> CatalogUnsyncedError:
        """The error of a registration that was not done, or not wholly."""
        remedy = ": sync_catalog(table, catalog, spark=spark)."
        return self._url.unsynced(why, self._root, remedy)

    def _tell_table(self, facts: Mapping[str, str] | None, described: DescribedTable) -> str:
        by_log = described.read_by is ReadBy.LOG
        if facts is None:
            # Spark writes what it, Trino and others look at; Hive itself reads no Delta table.
            engine = Engine.SPARK if by_log else Engine.HIVE
            self._sql(ddl(described, engine, self._name)[0])
            return "created"
        self._check_same(described, facts)
        if by_log:
            return "unchanged"  # All who read a Delta table take its columns from its log.
        keys = {field.name.lower() for field in described.partition_by}
        there = {name.lower(): kind for name, kind in facts.items() if name.lower() not in keys}
        self._check_types(described, there)
        new = [pair for pair in described.types(Engine.HIVE) if pair[0].lower() not in there]
        if not new:
            return "unchanged"
        self._sql(add_columns(Engine.HIVE, self._name, new))
        return "updated"

    def _check_same(self, described: DescribedTable, facts: Mapping[str, str]) -> None:
        place = facts.get("Location", "").replace("s3a://", "s3://", 1).rstrip("/")
        is_delta = facts.get("Provider", "").lower() == _DELTA
        by = ReadBy.LOG if is_delta else ReadBy.FOLDERS
        if place != described.location.rstrip("/") or by is not described.read_by:
            raise InvalidInputError(
                f"{self._url} is a table at {place or 'no place'}, read by {by}; nothing was "
                "changed.",
                table=described.root.url,
                remedy="Name another table, or drop that one: its files stay.",
            )

    def _check_types(self, described: DescribedTable, there: Mapping[str, str]) -> None:
        """Spark's SQL changes no type of a column, so a table whose column has another type since
        is made anew."""
        other = [
            f"{name} {there[name.lower()]} (now {kind})"
            for name, kind in described.types(Engine.HIVE)
            if name.lower() in there and not same_hive_type(there[name.lower()], kind)
        ]
        if other:
            raise InvalidInputError(
                f"{self._url} has columns of other types than the table by now: "
                f"{first_few(other)}. Nothing was changed.",
                table=described.root.url,
                remedy=f"DROP TABLE {self._name}, whose files stay, since it is external; then "
                "repeat this: it is created as the table is now.",
            )

    def _partitions(self) -> dict[tuple[str, ...], str]:
        rows = self._sql(f"SHOW PARTITIONS {self._name}").collect()
        names = [row["partition"] for row in rows]
        return {tuple(partition_texts(name)): name for name in names}
