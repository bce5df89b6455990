"""Delta's table features: the few that are read and written here. An allow-list, never the rest.

===============================  =======  ===========================================
in the protocol                  read     write
===============================  =======  ===========================================
versions 1, 2                    yes      yes, where nothing that binds writers is on
``timestampNtz``                 yes      yes
``appendOnly``                   yes      adds only, where the property is on
``invariants``                   yes      where no column has one
``vacuumProtocolCheck``          yes      yes
any other                        refused  refused
===============================  =======  ===========================================

Versions below 7 imply features without a list; those are refused where the columns or properties
show that one is in use. A feature that is switched on meanwhile is an action in an entry that a
job must judge before its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
#: Keys of a column's metadata that bind writers.
_BINDING = (
    "delta.invariants",
    "delta.generationExpression",
    "delta.identity.",
    "delta.columnMapping.",
)


def check_readable(state: LogState) -> None:
    """Refuse a table that needs a feature for reading that is not implemented."""
    if state.protocol is not None:
        _refuse("read", sorted(_unread(state.protocol)))
    mode = state.property_of("delta.columnMapping.mode", "none")
    _refuse("read", [f"columnMapping (mode {mode})"] if mode != "none" else [])


def check_writable(state: LogState, removes_rows: bool) -> None:
    """Refuse a table that a commit could break.

    :param removes_rows: the commit removes rows, which an append-only table forbids.
    """
    check_readable(state)
    if state.protocol is None or state.metadata is None:
        return
    if not state.protocol.writer >= 1:
        _refuse("write", [f"writer version {state.protocol.writer}"])
    _refuse("write", sorted({*_unwritten(state.protocol), *_in_use(state.metadata)}))
    if state.domains:
        _refuse("write", [f"domain metadata {name}" for name in sorted(state.domains)])
    if removes_rows and state.property_of("delta.appendOnly").lower() == "true":
        raise TableMismatchError(
            "The table has delta.appendOnly=true, and this job removes rows. Nothing was written.",
            remedy="Append, or set the property to false.",
        )


def _unread(protocol: LogProtocol) -> Iterator[str]:
    # Version 2 is column mapping, and its property tells whether it is in use.
    if protocol.reader > 3:
        yield f"reader version {protocol.reader}"
    yield from (protocol.reader_features or frozenset()) - READ


def _unwritten(protocol: LogProtocol) -> Iterator[str]:
    if protocol.writer > 7:
        yield f"writer version {protocol.writer}"
    yield from (protocol.writer_features or frozenset()) - WRITE


def _in_use(metadata: LogMetadata) -> Iterator[str]:
    for name, value in metadata.properties.items():
        binds = name.startswith("delta.") and name not in _HARMLESS
        if binds and value.lower() not in _OFF:
            yield f"property {name}={value}"
    for field in _fields(schema_of(metadata)):
        for key in field.get("metadata") or {}:
            if key.startswith(_BINDING):
                yield f"{key} of column {field.get('name')}"


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


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
    """All fields of a type, nested ones included."""
    if isinstance(kind, dict):
        for field in kind.get("fields") or ():
            yield field
            yield from _fields(field.get("type"))
        for name in ("elementType", "keyType", "valueType"):
            yield from _fields(kind.get(name))


def _refuse(what: str, names: list[str]) -> None:
    if names:
        raise TableMismatchError(
            f"The table cannot be {'written' if what == 'write' else 'read'} here: "
            f"{', '.join(names)} not supported. Nothing was changed.",
            remedy="Use the engine that made the table, or drop the feature there.",
        )
