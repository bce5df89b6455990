"""Checkpoints: the whole state after a version, as rows of Parquet in Delta's classic form.

A checkpoint adds no truth: entries before it may go once it is there. It is made of the checkpoint
before and the entries since, never of an ``N.crc``, which has no tombstones and may lack
transactions. Written whole under a name that tells its version; a cut one is not believed, and the
one before is taken. ``_last_checkpoint`` is a hint: a wrong one costs a listing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..committer.errors import RecordDamagedError
from .actions import FORGOTTEN, Action, AddFile, RemoveFile, action_members, read_action
from .file_columns import read_adds
from .partitions import PartitionChoice
from .replay import LogState

T = TypeVar("T")
#: Rows that are held as Python objects at once, and those of a row group.
_ROWS = 50_000
_KINDS = ("protocol", "metaData", "txn", "domainMetadata", "remove", "add")
_MAPS = ("partitionValues", "tags", "configuration", "options")
_TEXT, _LONG, _BOOL = pa.string(), pa.int64(), pa.bool_()
_MAP, _TEXTS = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())


def _struct(**members: pa.DataType) -> pa.StructType:
    return pa.struct(list(members.items()))


SCHEMA = pa.schema(
    {
        "txn": _struct(appId=_TEXT, version=_LONG, lastUpdated=_LONG),
        "add": _struct(
            path=_TEXT,
            partitionValues=_MAP,
            size=_LONG,
            modificationTime=_LONG,
            dataChange=_BOOL,
            tags=_MAP,
            stats=_TEXT,
        ),
        "remove": _struct(
            path=_TEXT,
            deletionTimestamp=_LONG,
            dataChange=_BOOL,
            extendedFileMetadata=_BOOL,
            partitionValues=_MAP,
            size=_LONG,
            tags=_MAP,
        ),
        "metaData": _struct(
            id=_TEXT,
            name=_TEXT,
            description=_TEXT,
            format=_struct(provider=_TEXT, options=_MAP),
            schemaString=_TEXT,
            partitionColumns=_TEXTS,
            createdTime=_LONG,
            configuration=_MAP,
        ),
        "protocol": _struct(
            minReaderVersion=pa.int32(),
            minWriterVersion=pa.int32(),
            readerFeatures=_TEXTS,
            writerFeatures=_TEXTS,
        ),
        "domainMetadata": _struct(domain=_TEXT, configuration=_TEXT, removed=_BOOL),
    }
)


def _few_rows(state: LogState, kept_since: int) -> Iterator[Action]:
    """The actions of a checkpoint but its live files; tombstones that nothing brings back any more
    are left out."""
    if state.files is None or state.removed is None or not state.all_transactions:
        raise ValueError("a checkpoint needs the whole state")
    assert state.protocol is not None
    assert state.metadata is not None
    yield state.protocol
    yield state.metadata
    yield from state.transactions.values()
    yield from state.domains.values()
    for file in state.removed.values():
        if file.removed_at >= kept_since and file.removed_at != FORGOTTEN:
            yield file


def _as_row(action: Action) -> dict[str, Any]:
    name, members = action_members(action)
    if isinstance(action, RemoveFile):
        members["dataChange"] = False  # As the format wants it.
    return {name: _with_pairs(members)}


def _with_pairs(members: dict[str, Any]) -> dict[str, Any]:
    """Members with maps as pairs, which Arrow takes."""
    changed = {}
    for name, value in members.items():
        if name in _MAPS:
            changed[name] = list(value.items())
        else:
            changed[name] = _with_pairs(value) if name == "format" else value
    return changed


def _add_rows(files: Sequence[AddFile]) -> pa.Table:
    """Rows of live files, a column at a time: a table may have a million of them."""
    members = {
        "path": pa.array([it.path for it in files], _TEXT),
        "partitionValues": _map_array(it.values for it in files),
        "size": pa.array([it.size for it in files], _LONG),
        "modificationTime": pa.array([it.modified for it in files], _LONG),
        "dataChange": pa.repeat(pa.scalar(False), len(files)),  # As the format wants it.
        "tags": _map_array(it.tags or None for it in files),
        "stats": pa.array([it.statistics for it in files], _TEXT),
    }
    kind = SCHEMA.field("add").type
    adds = pa.StructArray.from_arrays([members[it.name] for it in kind], fields=list(kind))
    columns = [adds if it.name == "add" else pa.nulls(len(files), it.type) for it in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _map_array(maps: Iterable[Mapping[str, str | None] | None]) -> pa.MapArray:
    """An array of maps; ``None`` is null."""
    ends: list[int | None] = []
    names: list[str] = []
    texts: list[str | None] = []
    for it in maps:
        ends.append(None if it is None else len(names))
        names += it or ()
        texts += (it or {}).values()
    offsets = pa.array([*ends, len(names)], pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(names, _TEXT), pa.array(texts, _TEXT))


def write_checkpoint(state: LogState, kept_since: int) -> tuple[bytes, bytes]:
    """The Parquet of a whole state, and the body of the ``_last_checkpoint`` that names it.

    :param kept_since: milliseconds; tombstones that are older are left out.
    """
    out, written = io.BytesIO(), 0
    with pq.ParquetWriter(out, SCHEMA, compression="snappy") as writer:
        for some in _chunks(_few_rows(state, kept_since)):
            writer.write_table(pa.Table.from_pylist([_as_row(it) for it in some], schema=SCHEMA))
            written += len(some)
        for files in _chunks(state.live.values()):
            writer.write_table(_add_rows(files))
            written += len(files)
    body = out.getvalue()
    hint = {
        "version": state.version,
        "size": written,
        "sizeInBytes": len(body),
        "numOfAddFiles": state.count,
    }
    return body, json.dumps(hint, separators=(",", ":")).encode()


def _chunks(actions: Iterable[T]) -> Iterator[list[T]]:
    left = iter(actions)
    while chunk := list(islice(left, _ROWS)):
        yield chunk


def read_checkpoint(
    body: bytes, key: str, choice: PartitionChoice | None = None
) -> Iterator[Action]:
    """The actions of one part of a checkpoint, tombstones before files.

    :param choice: only these files are read, and no tombstones; ``None``: all.
    :raises RecordDamagedError: it is cut, or not Parquet, or a row cannot be read.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(body))
        if "sidecar" in file.schema_arrow.names:
            raise _damaged(key, "has sidecars, the feature v2Checkpoint")
        known = [name for name in _KINDS if name in file.schema_arrow.names]
        few = [name for name in known if name != "add" and (name != "remove" or choice is None)]
        for batch in file.iter_batches(_ROWS, columns=few) if few else ():
            for kind, column in zip(batch.schema.names, batch.columns, strict=True):
                for members in column.drop_null().to_pylist():
                    yield from _read(kind, members, key)
        for batch in file.iter_batches(_ROWS, columns=["add"]) if "add" in known else ():
            yield from read_adds(batch.column("add"), key, choice)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(key, "is not whole Parquet") from error


def _damaged(key: str, problem: str) -> RecordDamagedError:
    return RecordDamagedError(
        f"The checkpoint {problem}. It was not used.",
        key=key,
        remedy="Delete it if the log's entries before it are there; else restore the object.",
    )


def _read(kind: str, members: dict[str, Any], key: str) -> Iterator[Action]:
    action = read_action(kind, _with_dicts(members), key)
    if action is not None:
        yield action


def _with_dicts(members: dict[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, value in members.items():
        if name in _MAPS and isinstance(value, list):
            changed[name] = dict(value)
        else:
            changed[name] = _with_dicts(value) if name == "format" else value
    return {name: value for name, value in changed.items() if value is not None}


def read_hint(body: bytes) -> int:
    """The version that ``_last_checkpoint`` names; 0, the log's beginning, where it tells none."""
    try:
        version = json.loads(body)["version"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return 0
    right = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 10**18
    return version if right else 0
