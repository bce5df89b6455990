"""Live files in the columns of a checkpoint, read a column at a time: a table may have a million.

Files of one partition share its values, and files of one entry their tags, as one object each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..committer.errors import RecordDamagedError
from .actions import ActionReader, AddFile
from .partitions import PartitionChoice

_TEXT, _LONG = pa.string(), pa.int64()
_MAP = pa.map_(_TEXT, _TEXT)


def read_adds(
    column: pa.StructArray, key: str, choice: PartitionChoice | None = None
) -> Iterator[AddFile]:
    """The live files of a batch of rows; rows of other actions are null.

    :param column: ``add``, as Delta's checkpoints have it, with members that are not known here.
    :param key: the object's, for errors.
    :param choice: only these are made objects of; ``None``: all.
    :raises RecordDamagedError: names the member that cannot be read.
    """
    columns = _AddColumns(column.drop_null(), key)
    if columns.has("deletionVector"):  # In any partition: what the table has is not understood.
        raise columns.damage("deletionVector", "is the feature deletionVectors, not supported here")
    if choice is not None:
        columns = columns.chosen(choice)
    sizes = columns.all("size", _LONG, "a whole number")
    if any(size < 0 for size in sizes):
        raise columns.damage("size", "must not be negative")
    yield from map(
        AddFile,
        columns.all("path", _TEXT, "a string"),
        columns.maps("partitionValues"),
        sizes,
        columns.all("modificationTime", _LONG, "a whole number"),
        (it is not False for it in columns.some("dataChange", pa.bool_(), "true or false")),
        columns.some("stats", _TEXT, "a string"),
        columns.maps("tags"),
    )


class _AddColumns:
    """The members of live files, each a column."""

    def __init__(self, adds: pa.StructArray, key: str) -> None:
        self._adds, self._rows = adds, len(adds)
        names = [field.name for field in adds.type]
        self._members = dict(zip(names, adds.flatten(), strict=True))
        self._key = key

    def chosen(self, choice: PartitionChoice) -> _AddColumns:
        """Those of some partitions."""
        values = self._cast("partitionValues", _MAP, "a JSON object of strings")
        if values is None or not choice.columns:
            keeps = self._rows > 0 and choice.has({})
            return self if keeps else _AddColumns(self._adds.slice(0, 0), self._key)
        codes, known = _distinct(values, choice.columns)
        wanted = [code for code, of_it in known if choice.has(of_it)]
        if len(wanted) == len(known):
            return self
        mask = pc.is_in(codes, value_set=pa.array(wanted, _LONG))  # pyright: ignore[reportAttributeAccessIssue]
        return _AddColumns(self._adds.filter(mask), self._key)

    def damage(self, name: str, problem: str) -> RecordDamagedError:
        return ActionReader("add", {}, self._key).damage(name, problem)

    def has(self, name: str) -> bool:
        """Whether a member is there, and not null in each file."""
        member = self._members.get(name)
        return member is not None and member.null_count < len(member)

    def all(self, name: str, kind: pa.DataType, words: str) -> list[Any]:
        """A member that each file has."""
        member = self._cast(name, kind, words)
        if member is None or member.null_count:
            if self._rows:
                raise self.damage(name, f"must be {words}")
            return []
        return member.to_pylist()

    def some(self, name: str, kind: pa.DataType, words: str) -> list[Any]:
        """A member that files may lack."""
        member = self._cast(name, kind, words)
        return [None] * self._rows if member is None else member.to_pylist()

    def maps(self, name: str) -> Iterator[Mapping[str, str | None]]:
        """A map that files may lack: it is empty then. Equal ones are one object."""
        member = self._cast(name, _MAP, "a JSON object of strings")
        if member is None:
            yield from ({} for _ in range(self._rows))
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

    def _cast(self, name: str, kind: pa.DataType, words: str) -> Any:
        member = self._members.get(name)
        if member is None or member.null_count == len(member):
            return None
        try:
            return member if member.type == kind else member.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self.damage(name, f"must be {words}") from error


def _distinct(
    maps: pa.MapArray, names: Sequence[str]
) -> tuple[pa.Array, list[tuple[int, dict[str, str | None]]]]:
    """A number for each map, by the values of some names; and those of each number."""
    lookup: Any = pc.map_lookup  # pyright: ignore[reportAttributeAccessIssue]
    multiply, add = pc.multiply, pc.add  # pyright: ignore[reportAttributeAccessIssue]
    texts = [lookup(maps, pa.scalar(name), "first") for name in names]
    codes = pa.repeat(pa.scalar(0, _LONG), len(maps))
    for it in texts:
        encoded = it.dictionary_encode(null_encoding="encode")
        codes = add(multiply(codes, len(encoded.dictionary)), encoded.indices.cast(_LONG))
    columns = [str(at) for at in range(len(names))]
    table = pa.table([codes, *texts], names=["code", *columns])
    rows = table.group_by(["code", *columns]).aggregate([]).to_pylist()
    return codes, [
        (row["code"], {name: row[at] for at, name in zip(columns, names, strict=True)})
        for row in rows
    ]
