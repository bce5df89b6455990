"""Checkpoints of a log: the whole state after a version, as Parquet in Delta's classic form.

A checkpoint says nothing new, but entries before it may be deleted once it is there. It is made of
the checkpoint before it and the entries since, never of an ``N.crc``, which has no tombstones and
may lack transactions. It is written in one piece, under a name with its version. If it is
truncated, it is ignored, and the one before is used. ``_last_checkpoint`` is a hint: a wrong hint
costs one listing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from ..committer.errors import RecordDamagedError
from .actions import FORGOTTEN, Action, RemoveFile, action_members, read_action
from .file_columns import ADD, ROWS, chunks, read_adds
from .partitions import PartitionChoice
from .replay import LogState

#: Kinds of actions that have few rows, unlike ``add``.
_FEW = ("protocol", "metaData", "txn", "domainMetadata", "remove")
_MAPS = ("partitionValues", "tags", "configuration", "options")
_TEXT, _LONG, _BOOL = pa.string(), pa.int64(), pa.bool_()
_MAP, _TEXTS = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())


def _struct(**members: pa.DataType) -> pa.StructType:
    return pa.struct(list(members.items()))


SCHEMA = pa.schema(
    {
        "txn": _struct(appId=_TEXT, version=_LONG, lastUpdated=_LONG),
        "add": ADD,
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
    """Yield the actions of a checkpoint except its live files. Tombstones whose files cannot be
    brought back any more are left out."""
    if state.removed is None or not state.all_transactions:
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
        members["dataChange"] = False  # The format demands this of tombstones in checkpoints.
    return {name: _with_pairs(members)}


def _with_pairs(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members with maps as lists of pairs, the form that Arrow accepts."""
    changed: dict[str, Any] = {}
    for name, value in members.items():
        if name in _MAPS:
            changed[name] = list(value.items())
        else:
            changed[name] = _with_pairs(value) if name == "format" else value
    return changed


def write_checkpoint(
    state: LogState, kept_since: int, files: Iterable[pa.StructArray]
) -> tuple[bytes, bytes]:
    """Return the Parquet of a whole state, and the body of the ``_last_checkpoint`` that names it.

    :param state: the state; its live files are not used.
    :param kept_since: Unix milliseconds; older tombstones are left out.
    :param files: the live files, as columns of the member ``add``.
    """
    out, rows, adds = io.BytesIO(), 0, 0
    with pq.ParquetWriter(out, SCHEMA, compression="snappy") as writer:
        for some in chunks(_few_rows(state, kept_since)):
            writer.write_table(pa.Table.from_pylist([_as_row(it) for it in some], schema=SCHEMA))
            rows += len(some)
        for column in files:
            others = {it.name: pa.nulls(len(column), it.type) for it in SCHEMA}
            writer.write_table(pa.table({**others, "add": column}, schema=SCHEMA))
            adds += len(column)
    body = out.getvalue()
    hint = {
        "version": state.version,
        "size": rows + adds,
        "sizeInBytes": len(body),
        "numOfAddFiles": adds,
    }
    return body, json.dumps(hint, separators=(",", ":")).encode()


def read_checkpoint(
    body: bytes, key: str, choice: PartitionChoice | None = None
) -> Iterator[Action]:
    """Yield the actions of one part of a checkpoint, tombstones before files.

    :param choice: read only these files, and no tombstones; ``None``: all.
    :raises RecordDamagedError: it is truncated or not Parquet, or a row cannot be read.
    """
    with damage_named(key):
        file = _parquet(body, key)
        yield from _few(file, key, [it for it in _FEW if it != "remove" or choice is None])
        for column in _add_columns(file):
            yield from read_adds(column, key, choice)


def read_all_but_files(body: bytes, key: str) -> Iterator[Action]:
    """Yield the actions of one part of a checkpoint except its live files.

    :raises RecordDamagedError: as :func:`read_checkpoint`.
    """
    with damage_named(key):
        yield from _few(_parquet(body, key), key, _FEW)


def read_add_columns(body: bytes, key: str) -> Iterator[pa.StructArray]:
    """Yield the live files of one part of a checkpoint, as columns of some rows each. Rows of other
    actions are null.

    :raises RecordDamagedError: as :func:`read_checkpoint`.
    """
    with damage_named(key):
        yield from _add_columns(_parquet(body, key))


def _add_columns(file: pq.ParquetFile) -> Iterator[pa.StructArray]:
    if "add" in file.schema_arrow.names:
        for batch in file.iter_batches(ROWS, columns=["add"]):
            yield _without_views(batch.column("add"))


def _few(file: pq.ParquetFile, key: str, kinds: Collection[str]) -> Iterator[Action]:
    known = [name for name in kinds if name in file.schema_arrow.names]
    for batch in file.iter_batches(ROWS, columns=known) if known else ():
        for kind, column in zip(batch.schema.names, batch.columns, strict=True):
            for members in _without_views(column).drop_null().to_pylist():
                yield from _read(kind, members, key)


def _parquet(body: bytes, key: str) -> pq.ParquetFile:
    file = pq.ParquetFile(pa.BufferReader(body))
    if "sidecar" in file.schema_arrow.names:
        raise _damaged(key, "has sidecars, the feature v2Checkpoint")
    return file


def _without_views(column: Any) -> Any:
    """Cast members of Arrow's view types to plain types: few of its functions accept views."""
    plain = _plain(column.type)
    return column if plain == column.type else column.cast(plain)


def _plain(kind: Any) -> Any:
    if kind == pa.string_view():
        return _TEXT
    if pt.is_struct(kind):
        return pa.struct([it.with_type(_plain(it.type)) for it in kind])
    if pt.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pt.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


@contextmanager
def damage_named(key: str) -> Iterator[None]:
    """Turn Arrow's errors in the block into one that names the checkpoint.

    :raises RecordDamagedError: Arrow cannot read the checkpoint.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise _damaged(key, "is not whole Parquet") from error
    except UnicodeDecodeError as error:
        raise _damaged(key, "has texts that are not UTF-8") from error


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
    changed: dict[str, Any] = {}
    for name, value in members.items():
        if name in _MAPS and isinstance(value, list):
            changed[name] = dict(value)
        else:
            changed[name] = _with_dicts(value) if name == "format" else value
    return {name: value for name, value in changed.items() if value is not None}


def read_hint(body: bytes) -> int:
    """Return the version that ``_last_checkpoint`` names; 0, the log's start, if it is invalid."""
    try:
        version = json.loads(body)["version"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return 0
    right = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 10**18
    return version if right else 0
