"""Delta's table features: the few that are read and written here. An allow-list, never the rest.

===============================  =======  ===========================================
in the protocol                  read     write
===============================  =======  ===========================================
versions 1, 2                    yes      yes, where nothing that binds writers is on
``timestampNtz``                 yes      yes
``appendOnly``                   yes      adds only, where the property is on
``invariants``                   yes      ``NOT NULL`` of plain columns, no other
``vacuumProtocolCheck``          yes      yes
any other                        refused  refused
===============================  =======  ===========================================

Versions below 7 imply features without a list; those are refused where the columns or properties
show that one is in use. A feature that is switched on meanwhile is an action in an entry that a
job must judge before its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...committer.errors import RecordDamagedError, TableMismatchError
from ...log.actions import LogMetadata, LogProtocol
from ...log.replay import LogState

READ = frozenset({"timestampNtz", "vacuumProtocolCheck"})
WRITE = READ | {"appendOnly", "invariants"}
#: Properties that bind no writer, or only in a way that is heeded here.
_HARMLESS = frozenset(
    {
        "delta.appendOnly",
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.checkpointRetentionDuration",
        "delta.compatibility.symlinkFormatManifest.enabled",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.enableFullRetentionRollback",
        "delta.feature.appendOnly",
        "delta.feature.invariants",
        "delta.feature.timestampNtz",
        "delta.feature.vacuumProtocolCheck",
        "delta.isolationLevel",
        "delta.logRetentionDuration",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.parquet.compression.codec",
        "delta.randomizeFilePrefixes",
        "delta.randomPrefixLength",
        "delta.sampleRetentionDuration",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)
#: Values that switch a property off, whichever it is.
_OFF = frozenset({"", "false", "none", "classic"})
#: Keys of a column's metadata that bind writers, with the feature that each is of.
_BINDING = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.": "identityColumns",
    "delta.columnMapping.": "columnMapping",
}
#: Beginnings of properties that switch a feature on. Any other that binds writers is refused, too,
#: by its own name.
_SWITCHES = {
    "delta.checkpointPolicy": "v2Checkpoint",
    "delta.columnMapping.": "columnMapping",
    "delta.constraints.": "checkConstraints",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.inCommitTimestamp": "inCommitTimestamp",
    "delta.rowTracking.": "rowTracking",
}


def check_readable(state: LogState) -> None:
    """Refuse a table that needs a feature for reading that is not implemented."""
    found: dict[str, str] = {}
    if state.protocol is not None:
        found = dict.fromkeys(_unread(state.protocol), "")
    mode = state.property_of("delta.columnMapping.mode", "none")
    if mode != "none":
        found["columnMapping"] = f"mode {mode}"
    _refuse("read", found)


def check_writable(state: LogState, removes_rows: bool) -> None:
    """Refuse a table that a commit could break.

    :param removes_rows: the commit removes rows, which an append-only table forbids.
    """
    check_readable(state)
    if state.protocol is None or state.metadata is None:
        return
    found = dict.fromkeys(_unwritten(state.protocol), "")
    for feature, use in _in_use(state.metadata):
        found[feature] = found.get(feature) or use
    for name in state.domains:
        found.setdefault("domainMetadata", name)
    _refuse("written", found)
    if removes_rows and state.property_of("delta.appendOnly").lower() == "true":
        raise TableMismatchError(
            "The table has delta.appendOnly=true, and this job removes rows. Nothing was written.",
            remedy="Append, or set the property to false.",
        )


def _unread(protocol: LogProtocol) -> Iterator[str]:
    # Version 2 is column mapping, and its property tells whether it is in use.
    if not 1 <= protocol.reader <= 3:
        yield f"reader version {protocol.reader}"
    yield from (protocol.reader_features or frozenset()) - READ


def _unwritten(protocol: LogProtocol) -> Iterator[str]:
    if not 1 <= protocol.writer <= 7:
        yield f"writer version {protocol.writer}"
    yield from (protocol.writer_features or frozenset()) - WRITE


def _in_use(metadata: LogMetadata) -> Iterator[tuple[str, str]]:
    """Features that the properties and columns of a table show to be on, and what shows it."""
    for name, value in metadata.properties.items():
        binds = name.startswith("delta.") and name not in _HARMLESS
        if binds and value.lower() not in _OFF:
            feature = _begun_by(_SWITCHES, name) or f"property {name}"
            yield feature, f"{name}={value}"
    schema = schema_of(metadata)
    for field in schema["fields"]:
        nested = isinstance(field["type"], dict)
        if nested and (field.get("nullable") is False or _never_null(field["type"])):
            yield "NOT NULL in nested columns", str(field["name"])
    for field in _fields(schema):
        for key in field.get("metadata") or {}:
            if feature := _begun_by(_BINDING, key):
                yield feature, f"{key} of column {field.get('name')}"


def _begun_by(beginnings: Mapping[str, str], name: str) -> str | None:
    return next((it for begin, it in beginnings.items() if name.startswith(begin)), None)


def schema_of(metadata: LogMetadata) -> dict[str, Any]:
    """The columns of a table, as Delta's JSON.

    :raises RecordDamagedError: they cannot be read.
    """
    try:
        found = json.loads(metadata.schema)
        right = found["type"] == "struct" and isinstance(found["fields"], list)
        if not right or not all({"name", "type"} <= field.keys() for field in found["fields"]):
            raise ValueError
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise RecordDamagedError(
            "metaData.schemaString of the log is not a struct of columns. Nothing was changed.",
            field="metaData.schemaString",
        ) from error
    return found


def _never_null(kind: Any) -> bool:
    """Tell whether a nested type has a part that must not be null.

    A job's files are held against that by their statistics, which only plain columns at the top
    have.
    """
    if not isinstance(kind, dict):
        return False
    if kind.get("containsNull") is False or kind.get("valueContainsNull") is False:
        return True
    fields = kind.get("fields") or ()
    if any(field.get("nullable") is False for field in fields):
        return True
    inner = [field.get("type") for field in fields]
    inner += [kind.get(name) for name in ("elementType", "keyType", "valueType")]
    return any(map(_never_null, inner))


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
    """All fields of a type, nested ones included."""
    if isinstance(kind, dict):
        for field in kind.get("fields") or ():
            yield field
            yield from _fields(field.get("type"))
        for name in ("elementType", "keyType", "valueType"):
            yield from _fields(kind.get(name))


def _refuse(verb: str, features: Mapping[str, str]) -> None:
    """Refuse features, each with what shows that it is in use, if anything does."""
    if features:
        named = [f"{name} ({use})" if use else name for name, use in sorted(features.items())]
        raise TableMismatchError(
            f"The table cannot be {verb} here: {', '.join(named)} not supported. Nothing was "
            "changed.",
            remedy="Use the engine that made the table, or drop the feature there.",
        )
