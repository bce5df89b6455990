"""Dictionaries of a Parquet file: the columns for which one is smaller than the plain values.

Arrow's writer builds a dictionary for every column and keeps it until it outgrows a page. A column
whose values seldom repeat is then written once as a dictionary and once as indices into it: files
of few rows, of which a load with many partitions has many, get a quarter larger. Spark's writer
gives a dictionary up after the first page where it does not pay
(``DictionaryValuesWriter.isCompressionSatisfying``); the same rule is asked here of a sample.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

#: Rows of a sample, and the runs that they are taken in: a sorted column looks as it is.
_SAMPLE, _RUNS = 20_000, 10


def dictionary_columns(rows: pa.Table) -> list[str]:
    """The columns, as Parquet names them (``a.list.element``), that are to have a dictionary.

    :param rows: a file's first row group, in a table's normalised types.
    """
    sample = _sample(rows)
    return [
        path
        for name in sample.column_names
        for path, values in _leaves(name, pa.concat_arrays(sample.column(name).chunks))
        if _pays(values)
    ]


def _sample(rows: pa.Table) -> pa.Table:
    if rows.num_rows <= _SAMPLE:
        return rows
    step = rows.num_rows // _RUNS
    return pa.concat_tables([rows.slice(run * step, _SAMPLE // _RUNS) for run in range(_RUNS)])


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pt.is_struct(kind):
        for field, inner in zip(kind, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner)
    elif pt.is_map(kind):
        entries = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        for name, inner in zip(("key", "value"), entries.flatten().flatten(), strict=True):
            yield from _leaves(f"{path}.key_value.{name}", inner)
    elif pt.is_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values.drop_null()


def _pays(values: pa.Array) -> bool:
    """Whether a dictionary and the indices into it are smaller than the values."""
    if not len(values) or pt.is_boolean(values.type) or pt.is_null(values.type):
        return False
    distinct = values.unique()
    index_bits = max(1, (len(distinct) - 1).bit_length())
    return len(values) * index_bits / 8 + _plain_bytes(distinct) < _plain_bytes(values)


def _plain_bytes(values: pa.Array) -> int:
    """Bytes that values take in a page without a dictionary."""
    kind = values.type
    if pt.is_string(kind) or pt.is_binary(kind):
        characters = pc.call_function("sum", [pc.call_function("binary_length", [values])])
        return 4 * len(values) + (characters.as_py() or 0)
    if pt.is_decimal(kind):
        width = 4 if kind.precision <= 9 else 8 if kind.precision <= 18 else 16
    else:
        width = max(4, kind.bit_width // 8)
    return width * len(values)
