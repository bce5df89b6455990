"""Merge of rows in memory into a table, a partition at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .commit.snapshot import Snapshot
from .errors import InvalidInputError, UnsupportedTypeError
from .format.job_spec import SchemaMode
from .format.parquet.batches import concatenated
from .format.parquet.row_filter import RowFilter
from .format.parquet.splitter import partition_paths
from .format.row_changes import RowChanges
from .format.schema.compatibility import cast, check_same, normalise
from .format.schema.evolution import evolved
from .merge_request import IGNORE, RowMerge, several_rows

#: Reads the rows of a partition.
ReadRows = Callable[[str], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class MergeRows:
    """Rows to merge, one for each key, with those of the table's columns that were given.

    :param rows: in the table's types and order.
    :param places: the partition of each row.
    :param deletes: for each row, whether its match is deleted.
    :param index: the rows by key.
    :param schema: the table's columns after the merge; ``by``: its partition columns.
    """

    merge: RowMerge
    rows: pa.RecordBatch
    places: pa.Array
    deletes: pa.Array
    index: KeyIndex
    schema: pa.Schema
    by: tuple[str, ...]

    @staticmethod
    def of(
        merge: RowMerge,
        given: pa.Table,
        own: pa.Schema,
        by: Sequence[str],
        *,
        is_first: bool,
        url: str,
    ) -> MergeRows:
        """Prepare the given rows for a merge.

        :param own: the table's columns.
        :raises InvalidInputError: invalid keys or columns.
        :raises TableMismatchError: the columns do not fit the table's.
        """
        _check_names(merge, given, own, by, url)
        serving = _serving(merge, given, own)
        brought = normalise(pa.schema([f for f in given.schema if f.name not in serving]))
        if is_first:
            own = brought
        if merge.schema_mode is SchemaMode.MERGE:
            schema = evolved(own, brought, by, url=url)
        else:
            check_same(own, brought, table=url)
            schema = own
        _check_keys(merge, schema, url)
        named = [field for field in schema if field.name in brought.names]
        wanted = pa.schema(named, metadata=schema.metadata)
        given = _as_read_again(given, by)
        rows = _one_batch(given.select([f.name for f in wanted]), wanted)
        places = partition_paths(rows, by)
        index = KeyIndex(_keys(merge, rows, places), merge.null_safe)
        last = _last_of_each(merge, given, index.codes, by, url)
        if len(last) < len(rows):
            given, rows, places = given.take(last), rows.take(last), places.take(last)
            index = KeyIndex(_keys(merge, rows, places), merge.null_safe)
        deletes = pa.repeat(pa.scalar(False), len(rows))
        if merge.delete_when is not None:
            deletes = RowFilter([merge.delete_when], given.schema).holds(given)
        return MergeRows(merge, rows, places, deletes, index, schema, tuple(by))

    def outcome(self, partition: str, batch: pa.RecordBatch) -> MergedBatch:
        """Compute what a merge does to rows of a partition.

        :param batch: of the table's columns after the merge.
        """
        places = pa.repeat(pa.scalar(partition), len(batch))
        found = self.index.find(_keys(self.merge, batch, places))
        matched = found.is_valid()
        where = found.drop_null()
        old, new = batch.filter(matched), self.rows.take(where)
        late = self._is_late(old, new)
        deletes = pc.and_not(self.deletes.take(where), late)
        updates = pc.and_not(self._changed(old, new, partition, where), late)
        arrays = [
            new.column(f.name) if f.name in new.schema.names else old.column(f.name)
            for f in batch.schema
        ]
        after = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        stays = pc.and_not(pc.invert(deletes), updates)
        updates = pc.and_not(updates, deletes)
        kept = concatenated([batch.filter(pc.invert(matched)), old.filter(stays)])
        changed, places = after.filter(updates), self.places.take(where).filter(updates)
        return MergedBatch(kept, changed, places, len(old.filter(deletes)), where)

    def _is_late(self, old: pa.RecordBatch, new: pa.RecordBatch) -> pa.Array:
        """Return, for each pair of rows, whether the table's row is the later one."""
        name = self.merge.latest_by
        if name is None or name not in new.schema.names:
            return pa.repeat(pa.scalar(False), len(old))
        own, given = old.column(name), new.column(name)
        if pa.types.is_null(own.type):
            return pa.repeat(pa.scalar(False), len(old))
        known = pc.and_(own.is_valid(), given.is_null())
        late = pc.or_(known, pc.fill_null(pc.greater(own, given), False))
        if pa.types.is_floating(own.type):  # NaN is the greatest, as it is for Spark.
            beyond = pc.and_not(pc.is_nan(own), pc.is_nan(given))
            late = pc.or_(late, pc.fill_null(beyond, False))
        return late

    def _changed(
        self, old: pa.RecordBatch, new: pa.RecordBatch, partition: str, where: pa.Array
    ) -> pa.Array:
        if self.merge.matched == IGNORE:
            return pa.repeat(pa.scalar(False), len(old))
        changed = pc.not_equal(self.places.take(where), partition)
        for name in (name for name in new.schema.names if name not in self.by):
            changed = pc.or_(changed, are_different(old.column(name), new.column(name)))
        return changed

    def inserted(self, matched: pa.Array) -> pa.RecordBatch:
        """Return the rows to insert, in the table's columns after the merge.

        :param matched: the numbers of those that have a match.
        """
        return self.widened(self.rows.filter(self._is_inserted(matched)))

    def inserted_places(self, matched: pa.Array) -> pa.Array:
        """Return the partitions of the rows to insert."""
        return self.places.filter(self._is_inserted(matched))

    def _is_inserted(self, matched: pa.Array) -> pa.Array:
        if self.merge.not_matched == IGNORE:
            return pa.repeat(pa.scalar(False), len(self.rows))
        numbers = pa.array(range(len(self.rows)), pa.int64())
        return pc.invert(pc.or_(pc.is_in(numbers, matched), self.deletes))

    def widened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows in the table's columns after the merge."""
        return cast(rows, self.schema, frozenset(self.schema.names) - {*rows.schema.names})


@dataclass(frozen=True)
class MergedBatch:
    """Result of a merge for some rows of a partition.

    :param kept: rows that stay as they are; ``changed``: new values of others.
    :param places: the partition of each changed row.
    :param deleted: number of deleted rows.
    :param matched: numbers of the merge's rows that were found.
    """

    kept: pa.RecordBatch
    changed: pa.RecordBatch
    places: pa.Array
    deleted: int
    matched: pa.Array


def count_merge(
    rows: MergeRows, state: Snapshot, read: ReadRows
) -> tuple[dict[str, RowChanges], set[str], pa.Array]:
    """Count what a merge does to each partition of a state.

    :returns: the counts by partition, the partitions that change, and the numbers of the merge's
        rows that have a match.
    """
    counts: dict[str, list[int]] = {}
    changed: set[str] = set()
    matched = pa.array([], pa.int64())
    for name in sorted(state.by_partition()):
        seen = [matched]
        for batch in read(name):
            result = rows.outcome(name, rows.widened(batch))
            seen.append(result.matched)
            _add(counts, name, (0, 0, result.deleted, len(result.kept)))
            for place in pc.value_counts(result.places).to_pylist():
                _add(counts, place["values"], (0, place["counts"], 0, 0))
            changed |= {name} if result.deleted or len(result.changed) else set()
            changed |= set(result.places.unique().to_pylist())
        matched = pa.concat_arrays(seen).unique()
    for place in pc.value_counts(rows.inserted_places(matched)).to_pylist():
        _add(counts, place["values"], (place["counts"], 0, 0, 0))
        changed.add(place["values"])
    return {name: RowChanges(*sums) for name, sums in counts.items()}, changed, matched


def _add(counts: dict[str, list[int]], name: str, more: tuple[int, int, int, int]) -> None:
    counts[name] = [a + b for a, b in zip(counts.get(name, [0] * 4), more, strict=True)]


def _check_names(
    merge: RowMerge, given: pa.Table, own: pa.Schema, by: Sequence[str], url: str
) -> None:
    latest = () if merge.latest_by is None else (merge.latest_by,)
    for what, names, among in (
        ("on", merge.on, own.names),
        ("on", merge.on, given.column_names),
        ("latest_by", latest, given.column_names),
        ("the table's partitions", by, given.column_names),
    ):
        unknown = [name for name in names if name not in among]
        if unknown:
            raise InvalidInputError(
                f"{what}: {unknown[0]!r} is no column of {', '.join(among)}; nothing was merged.",
                table=url,
                remedy="Name columns that both the table and the rows have; the rows need those "
                "that it is partitioned by.",
            )


def _serving(merge: RowMerge, given: pa.Table, own: pa.Schema) -> set[str]:
    """Return columns that only control the merge, and do not belong to the table."""
    names = {merge.latest_by} if merge.latest_by else set()
    if merge.delete_when is not None:
        names |= set(RowFilter([merge.delete_when], given.schema).columns)
    return {name for name in names if name not in own.names}


def _check_keys(merge: RowMerge, schema: pa.Schema, url: str) -> None:
    for name in merge.on:
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise UnsupportedTypeError(
                f"The key column {name!r} is of type {kind}, whose values are not surely equal "
                "where they are the same; nothing was merged.",
                table=url,
                remedy="Merge by columns of whole numbers, texts, dates, times or decimals.",
            )


def _as_read_again(given: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return the rows with partition values as they are read again: an empty string is null."""
    for name in by:
        values = _array(given, name)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = pc.if_else(pc.equal(values, ""), None, values)
            given = given.set_column(given.column_names.index(name), name, values)
    return given


def _keys(merge: RowMerge, rows: pa.RecordBatch, places: pa.Array) -> list[pa.Array]:
    """Return the columns by which rows match: their keys, and the partition.

    A merge across partitions matches by the keys alone. In any other merge the partition is part of
    the key. Otherwise it would depend on the other given rows whether a row matches.

    :param places: the partition of each row.
    """
    keys = [rows.column(name) for name in merge.on]
    return keys if merge.across else [*keys, places]


def _last_of_each(
    merge: RowMerge, given: pa.Table, codes: pa.Array, by: Sequence[str], url: str
) -> pa.Array:
    """Return the numbers of the rows that count: one for each key.

    :param codes: of each row's key; null if it matches nothing.
    :raises InvalidInputError: several rows have one key, and none of them is the last.
    """
    numbers = pa.array(range(len(given)), pa.int64())
    if merge.latest_by is not None:
        latest = _comparable(_array(given, merge.latest_by), merge.latest_by, url)
        frame = pa.table({"code": codes, "latest": latest})
        last = frame.group_by("code").aggregate([("latest", "max")])
        at = pc.index_in(codes, last["code"].combine_chunks())
        greatest = last["latest_max"].combine_chunks().take(at)
        is_last = pc.invert(are_different(latest, greatest.cast(latest.type)))
        numbers = numbers.filter(pc.or_(codes.is_null(), is_last))
        codes = codes.take(numbers)
    found = pc.value_counts(codes.drop_null())
    doubled = found.field(0).filter(pc.greater(found.field(1), 1))
    if not len(doubled):
        return numbers
    row = numbers[pc.index(codes, doubled[0]).as_py()].as_py()
    named = merge.on if merge.across else dict.fromkeys([*merge.on, *by])
    key = ", ".join(f"{name}={given[name][row].as_py()!r}" for name in named)
    raise several_rows("rows", len(doubled), key, merge.latest_by, url)


def _comparable(latest: pa.Array, name: str, url: str) -> pa.Array:
    """Return the values of ``latest_by`` in a type for which Arrow finds the greatest.

    :raises UnsupportedTypeError: the values have no order.
    """
    kind = latest.type
    if pa.types.is_nested(kind):
        raise UnsupportedTypeError(
            f"latest_by={name!r} is of type {kind}, whose values are in no order; nothing was "
            "merged.",
            table=url,
            remedy="Name a column of numbers, texts, dates or times.",
        )
    if pa.types.is_null(kind) or pa.types.is_duration(kind):
        return latest.cast(pa.int64())
    if pa.types.is_floating(kind):
        # NaN is the greatest, as it is for Spark; Arrow would pass over it beside other values.
        order = pc.rank(latest.cast(pa.float64()), "ascending", tiebreaker="dense")
        return pc.if_else(latest.is_null(), None, order)
    return latest


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_array(table, field.name) for field in schema]
    fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
    return cast(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), schema)


class KeyIndex:
    """Index that finds the row of a key, among rows with distinct keys.

    :param keys: the key's columns, of equal lengths.
    :param null_safe: nulls are equal; else a key with a null is never found.
    """

    def __init__(self, keys: Sequence[pa.Array], null_safe: bool) -> None:
        self._null_safe = null_safe
        #: For each column: its values; and the codes of the combinations of all columns so far.
        self._levels: list[tuple[pa.Array, pa.Array]] = []
        codes: pa.Array | None = None
        for key in keys:
            values = key.unique()
            pairs = self._pairs(codes, key, values)
            together = pairs.drop_null().unique()
            self._levels.append((values, together))
            codes = pc.index_in(pairs, together, skip_nulls=True)
        assert codes is not None
        #: The code of each row's key; null if it matches nothing.
        self.codes = codes
        order = pc.array_sort_indices(codes)
        known = len(codes) - codes.null_count
        #: The row of each code, if each code occurs once.
        self._rows = order.slice(0, known).cast(pa.int64())

    def _pairs(self, codes: pa.Array | None, key: pa.Array, values: pa.Array) -> pa.Array:
        """Combine the codes of the columns so far with the next column's values into new codes."""
        own = pc.index_in(key, values, skip_nulls=not self._null_safe).cast(pa.int64())
        if codes is None:
            return own
        return pc.add(pc.multiply(codes.cast(pa.int64()), len(values)), own)

    def find(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Return the row of each key; null if there is none."""
        codes: pa.Array | None = None
        for key, (values, together) in zip(keys, self._levels, strict=True):
            codes = pc.index_in(self._pairs(codes, key, values), together, skip_nulls=True)
        assert codes is not None
        return self._rows.take(codes)


def are_different(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return for each pair of values whether they differ: null equals null, NaN equals NaN."""
    if pa.types.is_null(old.type):
        return pa.repeat(pa.scalar(False), len(old))
    if pa.types.is_nested(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return pa.array([not _is_same(a, b) for a, b in pairs], pa.bool_())
    different = pc.fill_null(pc.not_equal(old, new), False)
    if pa.types.is_floating(old.type):
        both = pc.fill_null(pc.and_(pc.is_nan(old), pc.is_nan(new)), False)
        different = pc.and_not(different, both)
    return pc.or_(different, pc.xor(old.is_null(), new.is_null()))


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two nested values are the same; NaN equals NaN."""
    if old == new or (old != old and new != new):
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_is_same(it, new[name]) for name, it in old.items())
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_is_same, old, new))
    return False
