"""A Hive metastore: registers a table and its partitions through Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..committer.errors import InvalidInputError, ZeroRenameError, first_few
from ..committer.format.layout import TableRoot
from ..committer.format.schema.hive_paths import is_utc, is_zoned
from .catalog_report import CatalogReport, CatalogUnsyncedError, CatalogUrl
from .ddl import add_columns, add_partitions, ddl, drop_partitions, quoted_name
from .described_table import DescribedTable, ReadBy, partition_texts
from .engine_types import Engine, same_hive_type

#: Headings in Spark's description of a table, after its columns. The first stands before the
#: partition columns, if the table has any.
_PARTITIONED, _FACTS = "# Partition Information", "# Detailed Table Information"
#: Spark's text in place of the members of a type from the 26th on.
_SHORTENED = re.compile(r"\.\.\. \d+ more fields")
#: The provider of a Delta table, whose partitions are in its log.
_DELTA = "delta"
_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class HiveEntry:
    """A table's entry in a metastore.

    :param facts: location, provider and other facts by name; ``None`` if there is no such table.
    :param columns: the types of all columns, by their names in lower case.
    :param partition_by: the names of the partition columns, in lower case.
    :param partitions: the partitions' names by their values.
    """

    facts: Mapping[str, str] | None
    columns: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    partitions: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def is_delta(self) -> bool:
        """True if the entry is of a Delta table."""
        return (self.facts or {}).get("Provider", "").lower() == _DELTA


class HiveCatalog:
    """The entry of one table in the metastore of a Spark session, to be read and updated.

    :param sql: runs a statement in Spark's SQL, like ``spark.sql``; its result has ``collect()``.
    """

    def __init__(self, url: CatalogUrl, root: TableRoot, sql: Callable[[str], Any]) -> None:
        self._url = url
        self._root = root
        self._sql = sql
        self._name = quoted_name(Engine.HIVE, f"{url.database}.{url.table}")

    def look(self) -> HiveEntry:
        """Return the table's present entry.

        :raises CatalogUnsyncedError: Spark or its metastore did not answer.
        """
        with self._told():
            database, table = self._url.database, self._url.table
            shown = self._sql(f"SHOW TABLES IN `{database}` LIKE '{table}'").collect()
            # Spark also shows a temporary view of that name, for any database.
            stored = [row["tableName"].lower() for row in shown if not row["isTemporary"]]
            if table.lower() not in stored:
                return HiveEntry(None)
            there = self._described()
            if not there.partition_by or there.is_delta:
                return there
            return replace(there, partitions=self._partitions())

    def tell(self, there: HiveEntry, described: DescribedTable) -> tuple[CatalogReport, bool]:
        """Create the table, or add the columns that it lacks; add and drop partitions.

        :param there: the entry as it was before the table was described.
        :returns: the changes, and whether the entry was up to date already.
        :raises InvalidInputError: the entry is of another table, or cannot be changed to describe
            this one.
        :raises CatalogUnsyncedError: Spark or its metastore did not make the changes, or not all of
            them.
        """
        with self._told():
            self._check_zone(described)
            done = self._tell_table(there, described)
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
            raise self.unsynced(str(error).strip().partition("\n")[0][:300]) from error

    def unsynced(self, why: str) -> CatalogUnsyncedError:
        """Build the error of a registration that failed, or was done in part."""
        remedy = ": sync_catalog(table, catalog, spark=spark)."
        return self._url.unsynced(why, self._root, remedy)

    def _tell_table(self, there: HiveEntry, described: DescribedTable) -> str:
        by_log = described.read_by is ReadBy.LOG
        if there.facts is None:
            # Spark writes the properties that Spark, Trino and others read. Hive cannot read Delta.
            engine = Engine.SPARK if by_log else Engine.HIVE
            self._sql(ddl(described, engine, f"{self._url.database}.{self._url.table}")[0])
            return "created"
        self._check_same(described, there, there.facts)
        if by_log:
            return "unchanged"  # Every reader of a Delta table takes its columns from the log.
        self._check_types(described, there.columns)
        self._check_names(described, there.columns)
        types = described.types(Engine.HIVE)
        new = [pair for pair in types if pair[0].lower() not in there.columns]
        if not new:
            return "unchanged"
        self._sql(add_columns(Engine.HIVE, self._name, new))
        return "updated"

    def _check_same(
        self, described: DescribedTable, there: HiveEntry, facts: Mapping[str, str]
    ) -> None:
        place = facts.get("Location", "").replace("s3a://", "s3://", 1).rstrip("/")
        by = ReadBy.LOG if there.is_delta else ReadBy.FOLDERS
        if place != described.location.rstrip("/") or by is not described.read_by:
            raise InvalidInputError(
                f"{self._url} is a table at {place or 'no place'}, read by {by}; nothing was "
                "changed.",
                table=described.root.url,
                remedy="Name another table. Or drop that one, if it is external: its files stay; "
                "those of a managed table are deleted.",
            )
        if described.read_by is ReadBy.LOG:
            return
        if facts.get("Type", "").upper() == "MANAGED":
            raise InvalidInputError(
                f"{self._url} is a managed table: Spark would delete the files of a partition that "
                "it drops, also those that a job has added meanwhile. Nothing was changed.",
                table=described.root.url,
                remedy="Name another table. To drop this one by SQL would delete all its files.",
            )
        keys = tuple(it.name.lower() for it in described.partition_by)
        if there.partition_by != keys:
            raise InvalidInputError(
                f"{self._url} has the partition columns {list(there.partition_by)}, and the table "
                f"has {list(keys)}, which Spark's SQL cannot change. Nothing was changed.",
                table=described.root.url,
                remedy=self._made_anew,
            )

    @property
    def _made_anew(self) -> str:
        return (
            f"DROP TABLE {self._name}, whose files stay, since it is external; then repeat this: "
            "it is created as the table is now."
        )

    def _check_types(self, described: DescribedTable, there: Mapping[str, str]) -> None:
        """Refuse a table if a column's type has changed. Spark's SQL cannot change it in the entry,
        so the entry must be dropped and created again.

        A partition column may be a string in the entry: it then holds the text of any value."""
        other = [
            f"{name} {there[name.lower()]} (now {kind})"
            for name, kind in described.types(Engine.HIVE)
            if name.lower() in there and not same_hive_type(there[name.lower()], kind)
        ]
        other += [
            f"{name} {held} (now {kind})"
            for name, kind in described.partition_types(Engine.HIVE)
            if (held := there[name.lower()]) != "string" and not same_hive_type(held, kind)
        ]
        if other:
            raise InvalidInputError(
                f"{self._url} has columns of other types than the table by now: "
                f"{first_few(other)}. Nothing was changed.",
                table=described.root.url,
                remedy=self._made_anew,
            )

    def _check_zone(self, described: DescribedTable) -> None:
        """Refuse instants as partition values if the session is not in UTC. Spark would take their
        texts, which are in UTC, for times in its own zone, and write those that its clock leaves
        out otherwise."""
        instants = [it.name for it in described.partition_by if is_zoned(it.type)]
        if not instants:
            return
        rows = self._sql(f"SET {_ZONE}").collect()
        zone = next((row["value"] for row in rows), "")
        if not is_utc(zone):
            raise InvalidInputError(
                f"The partition column {instants[0]} has points in time, whose directories are "
                f"named in UTC, and the session's time zone is {zone or 'unknown'}: Spark would "
                "read them as other times. Nothing was changed.",
                table=described.root.url,
                remedy=f"Set {_ZONE}=UTC, here and in the sessions that query the table; or "
                "partition by a date or a string.",
            )

    def _check_names(self, described: DescribedTable, there: Mapping[str, str]) -> None:
        """Refuse a table that has dropped or renamed a column. Spark's SQL cannot drop it from the
        entry: readers would find nulls in it, and no error."""
        columns = (*described.columns, *described.partition_by)
        known = {it.lower() for it in (*(it.name for it in columns), *described.left_out)}
        if gone := [name for name in there if name not in known]:
            raise InvalidInputError(
                f"{self._url} has columns that the table does not have: {first_few(gone)}. Nothing "
                "was changed.",
                table=described.root.url,
                remedy=self._made_anew,
            )

    def _described(self) -> HiveEntry:
        """Return the entry that Spark describes. A column may have the name of a fact, such as
        ``location``, ``type`` or ``owner``, so each section is read by itself."""
        sections: dict[str, list[tuple[str, str]]] = {"": []}
        shown = sections[""]
        for row in self._sql(f"DESCRIBE TABLE EXTENDED {self._name}").collect():
            name, text = row["col_name"], row["data_type"]
            if name in (_PARTITIONED, _FACTS):
                shown = sections.setdefault(name, [])
            elif name and text != "data_type":  # Not a heading.
                shown.append((name, text))
        columns = {name.lower(): self._whole(name, kind) for name, kind in sections[""]}
        keys = tuple(name.lower() for name, _ in sections.get(_PARTITIONED, ()))
        return HiveEntry(dict(sections.get(_FACTS, ())), columns, keys)

    def _whole(self, column: str, kind: str) -> str:
        """Return the type of a column in full: Spark's description of a table shows only 25 members
        of a struct."""
        if not _SHORTENED.search(kind):
            return kind
        rows = self._sql(f"DESCRIBE TABLE {self._name} {quoted_name(Engine.HIVE, column)}")
        return {row["info_name"]: row["info_value"] for row in rows.collect()}["data_type"]

    def _partitions(self) -> dict[tuple[str, ...], str]:
        rows = self._sql(f"SHOW PARTITIONS {self._name}").collect()
        names = [row["partition"] for row in rows]
        return {tuple(partition_texts(name)): name for name in names}
