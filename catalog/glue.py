"""AWS Glue Data Catalog: registers a table and, in batches, its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..committer.errors import InvalidInputError
from ..committer.format.layout import TableRoot
from ..committer.store.clients import Keys
from .catalog_report import CatalogReport, CatalogUnsyncedError, CatalogUrl
from .described_table import DescribedTable, ReadBy, partition_texts
from .engine_types import Engine, same_hive_type

#: The most items of one request (Glue's API: BatchCreatePartition, BatchDeletePartition).
_ADDED_AT_ONCE = 100
_DROPPED_AT_ONCE = 25
_PARQUET = {
    "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "Parameters": {"serialization.format": "1"},
}
_FORMATS = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
}
#: Parameters that mark a table as a Delta table. Athena's CREATE TABLE reads the first; Spark,
#: Trino and Athena read the second (docs/catalogs.md has the sources). The entry names neither
#: Parquet's formats nor its serialization library: an engine that does not know Delta shall fail,
#: and not read files that no longer count.
_OF_DELTA = {"table_type": "DELTA", "spark.sql.sources.provider": "delta"}
#: The end of the location that Spark registers for a table in a format that is not Hive's.
_PLACEHOLDER = "-__PLACEHOLDER__"
#: Members of a table that Glue returns, and that its UpdateTable accepts.
_TAKEN = (
    *("Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys"),
    *("TableType", "Parameters"),
)
#: Codes of a partition's error if another process changed it at the same time. The next round
#: reads its new state.
_RACES = ("AlreadyExistsException", "EntityNotFoundException", "ConcurrentModificationException")


@dataclass(frozen=True)
class GlueEntry:
    """A table's entry in Glue.

    :param table: ``None`` if Glue has no table of that name.
    :param partitions: storage descriptors by the partitions' values.
    """

    table: Mapping[str, Any] | None
    partitions: Mapping[tuple[str, ...], Mapping[str, Any]]

    @property
    def projects(self) -> bool:
        """True if the engine computes the partitions (Athena's partition projection)."""
        parameters = (self.table or {}).get("Parameters", {})
        return str(parameters.get("projection.enabled", "")).lower() == "true"


class GlueCatalog:
    """The entry of one table in Glue, to be read and updated.

    :param connect: makes a boto3 Glue client; ``None``: by boto3's standard chain.
    """

    def __init__(
        self, url: CatalogUrl, root: TableRoot, connect: Callable[[], Any] | None = None
    ) -> None:
        self._url = url
        self._root = root
        self._connect = connect or glue_client
        self._place = {"DatabaseName": url.database}
        self._names = {**self._place, "TableName": url.table}

    def look(self) -> GlueEntry:
        """Return the table's present entry.

        :raises CatalogUnsyncedError: Glue did not answer, or refused.
        """
        with self._told():
            there = GlueEntry(self._get_table(), {})
            told = there.table or {}
            if there.projects or _is_delta(told) or not told.get("PartitionKeys"):
                return there
            return replace(there, partitions=self._partitions())

    def tell(self, there: GlueEntry, described: DescribedTable) -> tuple[CatalogReport, bool]:
        """Create or update the table; add, update and drop partitions.

        :param there: the entry as it was before the table was described.
        :returns: the changes, and whether the entry was up to date already.
        :raises InvalidInputError: there is no such database, or the entry is of a table at another
            location, of another kind, or with other partition columns.
        :raises CatalogUnsyncedError: Glue did not make the changes, or not all of them.
        """
        with self._told():
            done = self._tell_table(there.table, described)
            report = CatalogReport(str(self._url), described.read_by, done or "unchanged")
            if there.projects or done is None or not described.partition_by:
                return replace(report, projected=there.projects), done == "unchanged"
            report, nothing = self._tell_partitions(report, there.partitions, described)
            return report, nothing and done == "unchanged"

    @cached_property
    def _glue(self) -> Any:
        return self._connect()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            answer = error.response.get("Error", {})
            raise self.unsynced(f"{answer.get('Code')}: {answer.get('Message')}") from error
        except BotoCoreError as error:
            raise self.unsynced(str(error)) from error

    def unsynced(self, why: str) -> CatalogUnsyncedError:
        """Build the error of a registration that failed, or was done in part."""
        remedy = f"zero-rename catalog sync {self._root.url} --catalog {self._url}"
        remedy = f", with the rights of a writer in Glue: {remedy}"
        return self._url.unsynced(why, self._root, remedy)

    # The table

    def _tell_table(self, there: Mapping[str, Any] | None, described: DescribedTable) -> str | None:
        """Create or update the table. Return ``created``, ``updated``, or ``unchanged`` if it was
        up to date; ``None`` if another process changed it first."""
        if there is None:
            return self._create(_table_input(self._url, described))
        self._check_same(described, there)
        if described.read_by is ReadBy.LOG:
            described = self._without_keys(described, there)
        wanted = _table_input(self._url, described)
        if _is_told(there, wanted):
            return "unchanged"
        changed = {name: there[name] for name in _TAKEN if name in there}
        changed["StorageDescriptor"] = _told_storage(
            there.get("StorageDescriptor", {}), wanted["StorageDescriptor"]
        )
        changed["Parameters"] = {**there.get("Parameters", {}), **wanted["Parameters"]}
        # Update only the version that was read. The next round reads a change that another process
        # has made since then.
        version = {"VersionId": there["VersionId"]} if "VersionId" in there else {}
        try:
            self._glue.update_table(**self._place, TableInput=changed, SkipArchive=True, **version)
        except self._glue.exceptions.ConcurrentModificationException:
            return None
        return "updated"

    def _create(self, wanted: Mapping[str, Any]) -> str | None:
        try:
            self._glue.create_table(**self._place, TableInput=wanted)
        except self._glue.exceptions.EntityNotFoundException as error:
            raise InvalidInputError(
                f"There is no database {self._url.database} in Glue; nothing was registered.",
                table=self._root.url,
                remedy="Create it, or name another one.",
            ) from error
        except self._glue.exceptions.AlreadyExistsException:
            return None
        return "created"

    def _get_table(self) -> dict[str, Any] | None:
        try:
            return self._glue.get_table(**self._place, Name=self._url.table)["Table"]
        except self._glue.exceptions.EntityNotFoundException:
            return None

    def _check_same(self, described: DescribedTable, there: Mapping[str, Any]) -> None:
        place = _place(there)
        if _plain(place) != described.root.url:
            raise InvalidInputError(
                f"{self._url} is a table at {place or 'no place'}; nothing was changed.",
                table=described.root.url,
                remedy="Name another table, or drop that one.",
            )
        by_log = described.read_by is ReadBy.LOG
        if _is_delta(there) is not by_log:
            kinds = ("a table of directories", "a Delta table")
            raise InvalidInputError(
                f"{self._url} is registered as {kinds[not by_log]}, and at its place is "
                f"{kinds[by_log]}; nothing was changed.",
                table=described.root.url,
                remedy="Name another table, or drop that one in Glue: its files stay. Then repeat "
                "this.",
            )
        if not by_log and not _same_columns(_keys(there), described.partition_types(Engine.HIVE)):
            raise self._other_keys()

    def _without_keys(self, described: DescribedTable, there: Mapping[str, Any]) -> DescribedTable:
        """Leave out the columns that another program has registered as a Delta table's partition
        columns: Glue accepts a column's name only once."""
        keys = {name.lower(): kind for name, kind in _keys(there)}
        kinds = {name.lower(): kind for name, kind in described.types(Engine.HIVE)}
        if not all(name in kinds and same_hive_type(kinds[name], it) for name, it in keys.items()):
            raise self._other_keys()
        columns = tuple(it for it in described.columns if it.name.lower() not in keys)
        return replace(described, columns=columns)

    def _other_keys(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self._url} has other partition columns than the table, and Glue cannot change "
            "them; nothing was changed.",
            table=self._root.url,
            remedy="Drop the table in Glue; its files stay. Then repeat this.",
        )

    # Partitions

    def _tell_partitions(
        self,
        report: CatalogReport,
        there: Mapping[tuple[str, ...], Mapping[str, Any]],
        described: DescribedTable,
    ) -> tuple[CatalogReport, bool]:
        """Return the report with how many partitions were added, updated and dropped, and whether
        all were up to date already."""
        wanted = {
            tuple(partition_texts(name)): _storage(described, described.partition_location(name))
            for name in described.partitions
        }
        missing = [_partition(v, wanted[v]) for v in wanted if v not in there]
        stale = [
            {"PartitionValueList": list(v), "PartitionInput": _partition(v, wanted[v])}
            for v in wanted
            if v in there and not _same_storage(there[v], wanted[v])
        ]
        gone = [{"Values": list(v)} for v in there if v not in wanted]
        create, update = self._glue.batch_create_partition, self._glue.batch_update_partition
        delete = self._glue.batch_delete_partition
        report = replace(
            report,
            added=self._send(create, "PartitionInputList", missing, _ADDED_AT_ONCE),
            updated=self._send(update, "Entries", stale, _ADDED_AT_ONCE),
            dropped=self._send(delete, "PartitionsToDelete", gone, _DROPPED_AT_ONCE),
        )
        return report, not (missing or stale or gone)

    def _partitions(self) -> dict[tuple[str, ...], Mapping[str, Any]]:
        pages = self._glue.get_paginator("get_partitions").paginate(**self._names)
        return {
            tuple(partition["Values"]): partition.get("StorageDescriptor", {})
            for page in pages
            for partition in page["Partitions"]
        }

    def _send(self, call: Callable[..., Any], name: str, items: Sequence[Any], at_once: int) -> int:
        """Send the items in batches and return how many Glue accepted.

        :raises ClientError: an item was refused, and not because another process changed it first.
        """
        taken = 0
        for start in range(0, len(items), at_once):
            batch = items[start : start + at_once]
            errors = call(**self._names, **{name: batch}).get("Errors") or []
            for error in errors:
                detail = error.get("ErrorDetail", {})
                code = detail.get("ErrorCode")
                if code not in _RACES:
                    answer: Any = {"Code": code, "Message": detail.get("ErrorMessage")}
                    raise ClientError({"Error": answer}, call.__name__)
            taken += len(batch) - len(errors)
        return taken


def glue_client(region: str | None = None, keys: Keys | None = None) -> Any:
    """Make a boto3 Glue client. Values that are not given come from boto3's standard chain."""
    import boto3  # On use: every command loads this module.

    signing = {} if keys is None else keys.signing
    config = Config(retries={"mode": "standard", "max_attempts": 8})
    return boto3.client("glue", region_name=region, config=config, **signing)


def _keys(there: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the partition columns of a table in Glue, with their types."""
    return [(key["Name"], key.get("Type", "")) for key in there.get("PartitionKeys", ())]


def _columns(types: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in types]


def _storage(described: DescribedTable, location: str) -> dict[str, Any]:
    place = {"Columns": _columns(described.types(Engine.HIVE)), "Location": location}
    if described.read_by is ReadBy.LOG:
        by_path = {"serialization.format": "1", "path": location}
        return {**place, "SerdeInfo": {"Parameters": by_path}}
    return {**place, **_FORMATS, "SerdeInfo": _PARQUET}


def _told_storage(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wanted storage descriptor, with the comments and parameters that others have set:
    on the descriptor itself, and on columns that stay. A path of the same place stays, too: a Spark
    that knows the scheme s3a may not know s3."""
    noted = {column["Name"].lower(): column for column in there.get("Columns", ())}
    columns = [{**noted.get(it["Name"].lower(), {}), **it} for it in wanted["Columns"]]
    parameters = {name: there[name] for name in ("Parameters",) if name in there}
    storage = {**parameters, **wanted, "Columns": columns}
    path = _path(there)
    if path is not None and _plain(path) == _plain(_path(wanted) or ""):
        serde = wanted["SerdeInfo"]
        storage["SerdeInfo"] = {**serde, "Parameters": {**serde["Parameters"], "path": path}}
    return storage


def _table_input(url: CatalogUrl, described: DescribedTable) -> dict[str, Any]:
    of_format = _OF_DELTA if described.read_by is ReadBy.LOG else {"classification": "parquet"}
    return {
        "Name": url.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", **of_format},
        "PartitionKeys": _columns(described.partition_types(Engine.HIVE)),
        "StorageDescriptor": _storage(described, described.location),
    }


def _partition(values: tuple[str, ...], storage: Mapping[str, Any]) -> dict[str, Any]:
    return {"Values": list(values), "StorageDescriptor": dict(storage)}


def _place(there: Mapping[str, Any]) -> str:
    """Return the URL of a table's files, without a slash at its end.

    Spark keeps that of a Delta table in the SerDe's parameters. As the location it registers a
    folder that does not exist (SPARK-15269)."""
    storage = there.get("StorageDescriptor", {})
    place = storage.get("Location", "").rstrip("/")
    if _is_delta(there) and (not place or place.endswith(_PLACEHOLDER)):
        place = (_path(storage) or place).rstrip("/")
    return place


def _path(storage: Mapping[str, Any]) -> str | None:
    """Return the URL of a Delta table in the parameters of a storage descriptor's SerDe."""
    return storage.get("SerdeInfo", {}).get("Parameters", {}).get("path")


def _plain(url: str) -> str:
    """Return a URL in the form in which two URLs of one place are equal."""
    return url.replace("s3a://", "s3://", 1).rstrip("/")


def _is_delta(there: Mapping[str, Any]) -> bool:
    """Return whether a table is registered as a Delta table, by this package or another program."""
    given = {name.lower(): str(it).lower() for name, it in there.get("Parameters", {}).items()}
    return any(given.get(name) == value.lower() for name, value in _OF_DELTA.items())


def _is_told(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if _is_delta(wanted) and not _OF_DELTA.items() <= there.get("Parameters", {}).items():
        return False
    return _same_storage(there.get("StorageDescriptor", {}), wanted["StorageDescriptor"])


def _same_storage(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a storage descriptor says what is wanted. A slash at the end of a URL does not
    count."""
    names = [name for name in ("InputFormat", "OutputFormat") if name in wanted]
    path = _path(wanted)
    there_types, types = (
        [(c["Name"], c.get("Type", "")) for c in s.get("Columns", ())] for s in (there, wanted)
    )
    return (
        there.get("Location", "").rstrip("/") == wanted["Location"].rstrip("/")
        and all(there.get(name) == wanted[name] for name in names)
        and (path is None or _plain(_path(there) or "") == _plain(path))
        and _same_columns(there_types, types)
    )


def _same_columns(there: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]) -> bool:
    """Return whether names and types are the same in any spelling: Glue keeps the spelling that it
    was given."""
    return len(there) == len(wanted) and all(
        name.lower() == other.lower() and same_hive_type(kind, another)
        for (name, kind), (other, another) in zip(there, wanted, strict=True)
    )
