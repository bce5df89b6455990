"""Features of Delta tables: how Delta on Spark makes one with each, and what is done with it here.

``docs/guides/delta.md`` has the same rows for users, and a test compares both with the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Of a table that Spark makes by Delta's builder: type of each column, and the way it is filled.
Columns = Mapping[str, list[str]]
_INSERT = "insert into {table} (id, p) values (1, 1), (2, 2)"
_ID_AND_P: Columns = {"id": ["bigint"], "p": ["int"]}


@dataclass(frozen=True)
class FeatureTable:
    """A table with one feature.

    :param name: as the protocol calls it.
    :param made: statements about ``{table}``, or columns of a table that SQL cannot make.
    :param binds_readers: the protocol lists it for readers, too.
    :param read: whether it is read here.
    :param written: ``yes``, ``no``, or ``appends``.
    """

    name: str
    made: tuple[str | Columns, ...]
    binds_readers: bool = False
    read: bool = True
    written: str = "no"

    @property
    def cells(self) -> tuple[str, str]:
        """What the guide says: whether it is read, and written."""
        return "yes" if self.read else "no", self.written


def _with(properties: str, *more: str) -> tuple[str, ...]:
    made = "create table {table} (id bigint, p int) using delta"
    return (f"{made} tblproperties ({properties})", _INSERT, *more)


def _column(kind: str, properties: str = "") -> tuple[str, ...]:
    said = f" tblproperties ({properties})" if properties else ""
    return (f"create table {{table}} (id bigint, p int, v {kind}) using delta{said}", _INSERT)


def _built(name: str, *column: str) -> tuple[str | Columns, ...]:
    return ({**_ID_AND_P, name: list(column)}, _INSERT)


_MAPPED = "'delta.columnMapping.mode' = 'name'"
FEATURES = (
    FeatureTable("appendOnly", _with("'delta.appendOnly' = 'true'"), written="appends"),
    FeatureTable("timestampNtz", _column("timestamp_ntz"), True, written="yes"),
    FeatureTable(
        "vacuumProtocolCheck",
        _with("'delta.feature.vacuumProtocolCheck' = 'supported'"),
        True,
        written="yes",
    ),
    FeatureTable(
        "allowColumnDefaults",
        (
            "create table {table} (id bigint, p int default 5) using delta "
            "tblproperties ('delta.feature.allowColumnDefaults' = 'supported')",
            _INSERT,
        ),
    ),
    FeatureTable("changeDataFeed", _with("'delta.enableChangeDataFeed' = 'true'")),
    FeatureTable(
        "checkConstraints",
        _with("'a' = 'b'", "alter table {table} add constraint positive check (id > 0)"),
    ),
    FeatureTable(
        "checkpointProtection", _with("'delta.feature.checkpointProtection' = 'supported'")
    ),
    FeatureTable(
        "clustering",
        ("create table {table} (id bigint, p int) using delta cluster by (id)", _INSERT),
    ),
    FeatureTable(
        "coordinatedCommits-preview",
        _with("'delta.feature.coordinatedCommits-preview' = 'supported'"),
    ),
    FeatureTable("generatedColumns", _built("g", "bigint", "generatedAlwaysAs", "id + 1")),
    FeatureTable("identityColumns", _built("i", "bigint", "generatedAlwaysAsIdentity")),
    FeatureTable("inCommitTimestamp", _with("'delta.enableInCommitTimestamps' = 'true'")),
    FeatureTable(
        "materializePartitionColumns",
        _with("'delta.feature.materializePartitionColumns' = 'supported'"),
    ),
    FeatureTable("rowTracking", _with("'delta.enableRowTracking' = 'true'")),
    FeatureTable("columnMapping", _with(_MAPPED), read=False),
    FeatureTable(
        "deletionVectors",
        _with("'delta.enableDeletionVectors' = 'true'", "delete from {table} where id = 1"),
        True,
        read=False,
    ),
    FeatureTable(
        "icebergCompatV1", _with(f"'delta.enableIcebergCompatV1' = 'true', {_MAPPED}"), read=False
    ),
    FeatureTable(
        "icebergCompatV2", _with(f"'delta.enableIcebergCompatV2' = 'true', {_MAPPED}"), read=False
    ),
    FeatureTable(
        "typeWidening",
        _with("'delta.enableTypeWidening' = 'true'", "alter table {table} alter p type bigint"),
        True,
        read=False,
    ),
    FeatureTable(
        "v2Checkpoint",
        _with(
            "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'", _INSERT, _INSERT
        ),
        True,
        read=False,
    ),
    FeatureTable(
        "variantShredding-preview",
        _column("variant", "'delta.enableVariantShredding' = 'true'"),
        True,
        read=False,
    ),
    FeatureTable("variantType", _column("variant"), True, read=False),
)


def protocol_of(feature: FeatureTable) -> dict[str, Any]:
    """The protocol of a table that has one feature, as its log says it."""
    listed: dict[str, Any] = {"writerFeatures": [feature.name]}
    if feature.binds_readers:
        listed["readerFeatures"] = [feature.name]
    return {"minReaderVersion": 3 if feature.binds_readers else 1, "minWriterVersion": 7, **listed}
