"""Live files of a checkpoint as columns, since a table may have a million of them.

When they become objects, files of one partition share one object for its values, and files with
equal tags share one object for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ..committer.errors import RecordDamagedError
from .actions import ActionReader, AddFile
from .partitions import PartitionChoice

T = TypeVar("T")
#: How many rows are held at once, and put into one row group.
ROWS = 50_000
_TEXT, _LONG = pa.string(), pa.int64()
_MAP = pa.map_(_TEXT, _TEXT)
#: A live file in a checkpoint.
ADD = pa.struct(
    {
        "path": _TEXT,
        "partitionValues": _MAP,
        "size": _LONG,
        "modificationTime": _LONG,
        "dataChange": pa.bool_(),
        "tags": _MAP,
        "stats": _TEXT,
    }
)


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Split items into lists of :data:`ROWS`, which are held at once."""
    left = iter(items)
    while chunk := list(islice(left, ROWS)):
        yield chunk


def adds_as_columns(files: Iterable[AddFile]) -> Iterator[pa.StructArray]:
    """Build columns of live files, each of some files."""
    for some in chunks(files):
        yield _add_column(
            len(some),
            path=pa.array([it.path for it in some], _TEXT),
            partitionValues=_map_array(it.values for it in some),
            size=pa.array([it.size for it in some], _LONG),
            modificationTime=pa.array([it.modified for it in some], _LONG),
            tags=_map_array(it.tags or None for it in some),
            stats=pa.array([it.statistics for it in some], _TEXT),
        )


def _add_column(rows: int, **members: pa.Array) -> pa.StructArray:
    # The format demands that no row of a checkpoint changes data.
    members["dataChange"] = pa.repeat(pa.scalar(False), rows)
    return pa.StructArray.from_arrays([members[it.name] for it in ADD], fields=list(ADD))


def _map_array(maps: Iterable[Mapping[str, str | None] | None]) -> pa.MapArray:
    """Build an array of maps; ``None`` is null."""
    ends: list[int | None] = []
    names: list[str] = []
    texts: list[str | None] = []
    for it in maps:
        ends.append(None if it is None else len(names))
        names += it or ()
        texts += (it or {}).values()
    offsets = pa.array([*ends, len(names)], pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(names, _TEXT), pa.array(texts, _TEXT))


def keep_adds(
    column: pa.StructArray, key: str, gone: frozenset[str], removed: frozenset[str]
) -> pa.StructArray:
    """Remove files that are no longer live from a batch of rows.

    :param column: as for :func:`read_adds`.
    :param gone: paths of files that are no longer live.
    :param removed: paths of other tombstones; no live file may have one of these.
    :return: the other files, with only the members of :data:`ADD`.
    :raises RecordDamagedError: a live file has a tombstone; or as :func:`read_adds`.
    """
    columns = _AddColumns.of(column, key).without(gone, removed)
    values = columns.some("partitionValues", _MAP, _MAP_WORDS)
    if values.null_count:
        values = _map_array(columns.maps("partitionValues"))
    return _add_column(
        columns.rows,
        path=columns.all("path", _TEXT, "a string"),
        partitionValues=values,
        size=columns.sizes(),
        modificationTime=columns.all("modificationTime", _LONG, "a whole number"),
        tags=columns.some("tags", _MAP, _MAP_WORDS),
        stats=columns.some("stats", _TEXT, "a string"),
    )


def read_adds(
    column: pa.StructArray, key: str, choice: PartitionChoice | None = None
) -> Iterator[AddFile]:
    """Read the live files of a batch of rows; rows of other actions are null.

    :param column: the column ``add`` of a checkpoint; it may have unknown members.
    :param key: the key of the checkpoint, for errors.
    :param choice: return only these files; ``None``: all.
    :raises RecordDamagedError: a member cannot be read; the error names it.
    """
    columns = _AddColumns.of(column, key)
    if choice is not None:
        columns = columns.chosen(choice)
    changes_data = columns.some("dataChange", pa.bool_(), "true or false").to_pylist()
    yield from map(
        AddFile,
        columns.all("path", _TEXT, "a string").to_pylist(),
        columns.maps("partitionValues"),
        columns.sizes().to_pylist(),
        columns.all("modificationTime", _LONG, "a whole number").to_pylist(),
        (it is not False for it in changes_data),
        columns.some("stats", _TEXT, "a string").to_pylist(),
        columns.maps("tags"),
    )


_MAP_WORDS = "a JSON object of strings"


class _AddColumns:
    """The members of live files, each as a column."""

    def __init__(self, adds: pa.StructArray, key: str) -> None:
        self._adds, self.rows = adds, len(adds)
        names = [field.name for field in adds.type]
        self._members = dict(zip(names, adds.flatten(), strict=True))
        self._key = key

    @classmethod
    def of(cls, column: pa.StructArray, key: str) -> _AddColumns:
        """Return the columns of the rows that are not null: null rows are of other actions."""
        columns = cls(column.drop_null(), key)
        # Refused for any partition: the table cannot be read correctly as a whole.
        if columns._has("deletionVector"):
            raise ActionReader("add", {}, key).unread("deletionVector", "deletionVectors")
        return columns

    def without(self, gone: frozenset[str], removed: frozenset[str]) -> _AddColumns:
        """Return the files whose paths are not in ``gone``.

        :param removed: paths that no file may have; ``gone`` contains none of them.
        """
        # Not by Arrow: it would build a hash table of all these paths for each batch, and there may
        # be a million of them.
        found = self.all("path", _TEXT, "a string").to_pylist()
        if both := removed.intersection(found):
            raise self._damage("path", f"{min(both)} is the path of a removed file, too")
        if gone.isdisjoint(found):
            return self
        mask = pa.array([path not in gone for path in found], pa.bool_())
        return _AddColumns(self._adds.filter(mask), self._key)

    def chosen(self, choice: PartitionChoice) -> _AddColumns:
        """Return the files of the chosen partitions."""
        values = self._cast("partitionValues", _MAP, _MAP_WORDS)
        if values is None or not choice.columns:
            keeps = self.rows > 0 and choice.has({})
            return self if keeps else _AddColumns(self._adds.slice(0, 0), self._key)
        codes, known = _distinct(values, choice.columns)
        wanted = [code for code, of_it in known if choice.has(of_it)]
        if len(wanted) == len(known):
            return self
        mask = pc.is_in(codes, value_set=pa.array(wanted, _LONG))
        return _AddColumns(self._adds.filter(mask), self._key)

    def sizes(self) -> pa.Array:
        """Return the size of each file in bytes."""
        sizes = self.all("size", _LONG, "a whole number")
        least = pc.min(sizes).as_py()
        if least is not None and least < 0:
            raise self._damage("size", "must not be negative")
        return sizes

    def all(self, name: str, kind: pa.DataType, words: str) -> pa.Array:
        """Return a member that every file must have."""
        member = self.some(name, kind, words)
        if member.null_count:
            raise self._damage(name, f"must be {words}")
        return member

    def some(self, name: str, kind: pa.DataType, words: str) -> pa.Array:
        """Return a member that files may lack; it is null there."""
        member = self._cast(name, kind, words)
        return pa.nulls(self.rows, kind) if member is None else member

    def maps(self, name: str) -> Iterator[Mapping[str, str | None]]:
        """Yield a map that files may lack; it is empty there. Equal maps are one object."""
        member = self._cast(name, _MAP, _MAP_WORDS)
        if member is None:
            yield from ({} for _ in range(self.rows))
            return
        known: dict[tuple[str | None, ...], Mapping[str, str | None]] = {(): {}}
        keys, texts = member.keys.to_pylist(), member.items.to_pylist()
        offsets = member.offsets.to_pylist()
        for start, end in pairwise(offsets):
            pairs = (*keys[start:end], *texts[start:end])
            found = known.get(pairs)
            if found is None:
                found = known[pairs] = dict(zip(keys[start:end], texts[start:end], strict=True))
            yield found

    def _damage(self, name: str, problem: str) -> RecordDamagedError:
        return ActionReader("add", {}, self._key).damage(name, problem)

    def _has(self, name: str) -> bool:
        """Return whether any file has a member."""
        member = self._members.get(name)
        return member is not None and member.null_count < len(member)

    def _cast(self, name: str, kind: pa.DataType, words: str) -> Any:
        member = self._members.get(name)
        if member is None or member.null_count == len(member):
            return None
        try:
            return member if member.type == kind else member.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._damage(name, f"must be {words}") from error


def _distinct(
    maps: pa.MapArray, names: Sequence[str]
) -> tuple[pa.Array, list[tuple[int, dict[str, str | None]]]]:
    """Return a number for each map that identifies its values of some names, and the values of each
    number."""
    texts = [pc.map_lookup(maps, pa.scalar(name), "first") for name in names]
    codes = pa.repeat(pa.scalar(0, _LONG), len(maps))
    for it in texts:
        encoded = it.dictionary_encode(null_encoding="encode")
        codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(_LONG))
    columns = [str(at) for at in range(len(names))]
    table = pa.table([codes, *texts], names=["code", *columns])
    rows = table.group_by(["code", *columns]).aggregate([]).to_pylist()
    return codes, [
        (row["code"], {name: row[at] for at, name in zip(columns, names, strict=True)})
        for row in rows
    ]
