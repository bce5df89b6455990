"""AWS Glue Data Catalog: a table and its partitions, told in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..committer.errors import InvalidInputError
from ..committer.s3.clients import Keys
from .catalog_report import CatalogReport, CatalogUnsyncedError, CatalogUrl
from .described_table import DescribedTable, ReadBy, partition_texts
from .engine_types import Engine, hive_type

#: What one request takes (Glue's API: BatchCreatePartition, BatchDeletePartition).
_ADDED_AT_ONCE = 100
_DROPPED_AT_ONCE = 25
_ROUNDS = 5
_PARQUET = {
    "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "Parameters": {"serialization.format": "1"},
}
_FORMATS = {
    ReadBy.SYMLINKS: (
        "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
        "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    ),
    ReadBy.FOLDERS: (
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    ),
}
#: Members of a table that Glue returns and takes back.
_TAKEN = (
    *("Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys"),
    *("TableType", "Parameters"),
)
#: Of an error of one partition: somebody else was at it; the next round sees what is there.
_RACES = ("AlreadyExistsException", "EntityNotFoundException", "ConcurrentModificationException")


class GlueCatalog:
    """One table's place in Glue.

    :param connect: makes a boto3 Glue client; ``None``: by boto3's standard chain.
    """

    def __init__(self, url: CatalogUrl, connect: Callable[[], Any] | None = None) -> None:
        self._url = url
        self._connect = connect or glue_client
        self._place = {"DatabaseName": url.database}
        self._names = {**self._place, "TableName": url.table}

    def register(self, described: DescribedTable) -> CatalogReport:
        """Create or update the table; add, update and drop partitions.

        :raises InvalidInputError: no such database, or another table has that name.
        :raises CatalogUnsyncedError: Glue did not do it, or not all of it.
        """
        with self._told(described):
            self._glue = self._connect()
            there, done = self._register_table(described)
            parameters = there.get("Parameters", {})
            if str(parameters.get("projection.enabled", "")).lower() == "true":
                return CatalogReport(str(self._url), described.read_by, done, projected=True)
            added, updated, dropped = self._register_partitions(described)
        return CatalogReport(str(self._url), described.read_by, done, added, updated, dropped)

    @contextmanager
    def _told(self, described: DescribedTable) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            answer = error.response.get("Error", {})
            why = f"{answer.get('Code')}: {answer.get('Message')}"
            raise self._unsynced(described, why) from error
        except BotoCoreError as error:
            raise self._unsynced(described, str(error)) from error

    def _unsynced(self, described: DescribedTable, why: str) -> CatalogUnsyncedError:
        return CatalogUnsyncedError(
            f"{self._url} was not told, or not wholly, what the table holds: {why}. The table is "
            "as its jobs committed it.",
            table=described.root.url,
            remedy="Repeat it, with the rights of a writer in Glue: zero-rename catalog sync "
            f"{described.root.url} --catalog {self._url}",
        )

    # The table

    def _register_table(self, described: DescribedTable) -> tuple[Mapping[str, Any], str]:
        wanted = _table_input(self._url, described)
        there = self._get_table()
        if there is None:
            try:
                self._glue.create_table(**self._place, TableInput=wanted)
                return wanted, "created"
            except self._glue.exceptions.EntityNotFoundException as error:
                raise InvalidInputError(
                    f"There is no database {self._url.database} in Glue; nothing was registered.",
                    table=described.root.url,
                    remedy="Create it, or name another one.",
                ) from error
            except self._glue.exceptions.AlreadyExistsException:
                there = self._get_table() or wanted  # Another process was quicker.
        self._check_same(described, there)
        if _is_told(there, wanted):
            return there, "unchanged"
        taken = {name: there[name] for name in _TAKEN if name in there}
        parameters = {**there.get("Parameters", {}), **wanted["Parameters"]}
        changed = {**taken, "StorageDescriptor": wanted["StorageDescriptor"]}
        changed["Parameters"] = parameters
        self._glue.update_table(**self._place, TableInput=changed, SkipArchive=True)
        return changed, "updated"

    def _get_table(self) -> dict[str, Any] | None:
        try:
            return self._glue.get_table(**self._place, Name=self._url.table)["Table"]
        except self._glue.exceptions.EntityNotFoundException:
            return None

    def _check_same(self, described: DescribedTable, there: Mapping[str, Any]) -> None:
        place = there.get("StorageDescriptor", {}).get("Location", "").rstrip("/")
        inside = place.replace("s3a://", "s3://", 1)
        if inside not in (
            described.root.url,
            f"s3://{described.root.bucket}/{described.root.symlinks_prefix}".rstrip("/"),
        ):
            raise InvalidInputError(
                f"{self._url} is a table at {place or 'no place'}; nothing was changed.",
                table=described.root.url,
                remedy="Name another table, or drop that one.",
            )
        keys = [(key["Name"], key.get("Type", "")) for key in there.get("PartitionKeys", ())]
        if not _same_columns(keys, described.partition_types(Engine.HIVE)):
            raise InvalidInputError(
                f"{self._url} has other partition columns than the table, and Glue cannot change "
                "them; nothing was changed.",
                table=described.root.url,
                remedy="Drop the table in Glue; its files stay. Then repeat this.",
            )

    # Partitions

    def _register_partitions(self, described: DescribedTable) -> tuple[int, int, int]:
        if not described.partition_by:
            return 0, 0, 0
        wanted = {
            tuple(partition_texts(name)): _storage(described, described.partition_location(name))
            for name in described.partitions
        }
        told = [0, 0, 0]
        for _ in range(_ROUNDS):
            there = self._partitions()
            missing = [_partition(v, wanted[v]) for v in wanted if v not in there]
            stale = [
                {"PartitionValueList": list(v), "PartitionInput": _partition(v, wanted[v])}
                for v in wanted
                if v in there and not _same_storage(there[v], wanted[v])
            ]
            gone = [{"Values": list(v)} for v in there if v not in wanted]
            if not (missing or stale or gone):
                return told[0], told[1], told[2]
            create, update = self._glue.batch_create_partition, self._glue.batch_update_partition
            told[0] += self._send(create, "PartitionInputList", missing, _ADDED_AT_ONCE)
            told[1] += self._send(update, "Entries", stale, _ADDED_AT_ONCE)
            delete = self._glue.batch_delete_partition
            told[2] += self._send(delete, "PartitionsToDelete", gone, _DROPPED_AT_ONCE)
        raise self._unsynced(described, "others kept changing its partitions")

    def _partitions(self) -> dict[tuple[str, ...], Mapping[str, Any]]:
        pages = self._glue.get_paginator("get_partitions").paginate(**self._names)
        return {
            tuple(partition["Values"]): partition.get("StorageDescriptor", {})
            for page in pages
            for partition in page["Partitions"]
        }

    def _send(self, call: Callable[..., Any], name: str, items: Sequence[Any], at_once: int) -> int:
        """How many of the items were taken.

        :raises ClientError: one was refused, for another reason than a race.
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
    """A boto3 client by the standard chain, but for what is given."""
    signing = {} if keys is None else keys.signing
    config = Config(retries={"mode": "standard", "max_attempts": 8})
    return boto3.client("glue", region_name=region, config=config, **signing)


def _columns(types: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in types]


def _storage(described: DescribedTable, location: str) -> dict[str, Any]:
    reads, writes = _FORMATS[described.read_by]
    return {
        "Columns": _columns(described.types(Engine.HIVE)),
        "Location": location,
        "InputFormat": reads,
        "OutputFormat": writes,
        "SerdeInfo": _PARQUET,
    }


def _table_input(url: CatalogUrl, described: DescribedTable) -> dict[str, Any]:
    return {
        "Name": url.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
        "PartitionKeys": _columns(described.partition_types(Engine.HIVE)),
        "StorageDescriptor": _storage(described, described.location),
    }


def _partition(values: tuple[str, ...], storage: Mapping[str, Any]) -> dict[str, Any]:
    return {"Values": list(values), "StorageDescriptor": dict(storage)}


def _is_told(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return _same_storage(there.get("StorageDescriptor", {}), wanted["StorageDescriptor"])


def _same_storage(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a place is described alike; a slash at its end does not count."""
    names = ("InputFormat", "OutputFormat")
    there_types, types = (
        [(c["Name"], c.get("Type", "")) for c in s.get("Columns", ())] for s in (there, wanted)
    )
    return (
        there.get("Location", "").rstrip("/") == wanted["Location"].rstrip("/")
        and all(there.get(name) == wanted[name] for name in names)
        and _same_columns(there_types, types)
    )


def _same_columns(there: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]) -> bool:
    """Names and types, whatever their spelling: Glue keeps what it was given."""
    if [name.lower() for name, _ in there] != [name.lower() for name, _ in wanted]:
        return False
    try:
        pairs = zip(there, wanted, strict=True)
        return all(hive_type(a) == hive_type(b) for (_, a), (_, b) in pairs)
    except InvalidInputError:
        return False
