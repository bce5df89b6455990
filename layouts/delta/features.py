"""Delta's table features: an allow-list of those that this package reads and writes.

===============================  =======  ===========================================
in the protocol                  read     write
===============================  =======  ===========================================
versions 1, 2                    yes      yes, if no feature that binds writers is on
``timestampNtz``                 yes      yes
``appendOnly``                   yes      only adds, if the property is on
``invariants``                   yes      only ``NOT NULL`` of top-level plain columns
``vacuumProtocolCheck``          yes      yes
any other                        refused  refused
===============================  =======  ===========================================

Writer versions below 7 imply features without a list. A table with such a version is refused if its
columns or properties show that an unsupported feature is in use. If a feature is switched on during
a job, this is an action in an entry, which the job must judge before it writes its own.
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
#: Properties that demand nothing of a writer, or only what this package does.
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
#: The beginning of a property with a constraint.
_CONSTRAINT = "delta.constraints."
#: Values that switch any other property off.
_OFF = frozenset({"", "false", "none", "classic"})
#: Keys, or beginnings of keys, of column metadata that bind writers, each with its feature.
_BINDING = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.": "identityColumns",
    "delta.columnMapping.": "columnMapping",
}
#: Properties, or beginnings of properties, that switch a feature on. Any other property that may
#: bind writers is refused by its own name.
_SWITCHES = {
    "delta.checkpointPolicy": "v2Checkpoint",
    "delta.columnMapping.": "columnMapping",
    _CONSTRAINT: "checkConstraints",
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
    """Refuse a table with a feature that this package cannot read.

    :raises TableMismatchError: it has such a feature.
    """
    found: dict[str, str] = {}
    if state.protocol is not None:
        found = dict.fromkeys(_unread(state.protocol), "")
    mode = state.property_of("delta.columnMapping.mode", "none")
    if mode != "none":
        found["columnMapping"] = f"mode {mode}"
    if state.vectors:
        found["deletionVectors"] = min(state.vectors)
    _refuse("read", found)


def check_writable(state: LogState, removes_rows: bool) -> None:
    """Refuse a table that a commit could break.

    :param removes_rows: the commit removes rows, which an append-only table forbids.
    :raises TableMismatchError: the table has a feature that is not supported, or forbids removals.
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
    # Reader version 2 means column mapping; its property shows whether it is in use.
    if not 1 <= protocol.reader <= 3:
        yield f"reader version {protocol.reader}"
    yield from (protocol.reader_features or frozenset()) - READ


def _unwritten(protocol: LogProtocol) -> Iterator[str]:
    if not 1 <= protocol.writer <= 7:
        yield f"writer version {protocol.writer}"
    yield from (protocol.writer_features or frozenset()) - WRITE


def _in_use(metadata: LogMetadata) -> Iterator[tuple[str, str]]:
    """Yield the features that a table uses by its properties or columns, each with the property or
    column that shows it."""
    for name, value in metadata.properties.items():
        binds = name.startswith("delta.") and name not in _HARMLESS
        # A constraint's value is a condition, which may be `false` or the name of a column.
        if binds and (value.lower() not in _OFF or name.startswith(_CONSTRAINT)):
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
    """Return the columns of a table as Delta's JSON.

    :raises RecordDamagedError: the columns cannot be read.
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
    """Return whether a nested type has a part that must not be null.

    Such a part cannot be checked: nulls of a job's files are counted by their statistics, which
    only plain top-level columns have.
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
    """Yield all fields of a type, including nested ones."""
    if isinstance(kind, dict):
        for field in kind.get("fields") or ():
            yield field
            yield from _fields(field.get("type"))
        for name in ("elementType", "keyType", "valueType"):
            yield from _fields(kind.get(name))


def _refuse(verb: str, features: Mapping[str, str]) -> None:
    """Refuse a table if there are features that are not supported.

    :param features: these features, each with what shows that it is in use, or ``""``.
    """
    if features:
        named = [f"{name} ({use})" if use else name for name, use in sorted(features.items())]
        raise TableMismatchError(
            f"The table cannot be {verb} here: {', '.join(named)} not supported. Nothing was "
            "changed.",
            remedy="Use the engine that made the table, or drop the feature there.",
        )
