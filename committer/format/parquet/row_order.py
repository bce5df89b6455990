"""Sorting of any number of rows on local disk, with a bounded part of them in memory.

As many rows as fit in memory are sorted at a time and wait on disk; each such part is a *run*. Then
all runs are read side by side, from the first rows to the last. Samples, taken from each run at
regular distances, say how far to read at a time: a row that comes before a sample in the order lies
in its own run before that run's next sample that comes after it. So the rows read up to there,
sorted once more, include all rows that come out next, and few others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from ...errors import InvalidInputError
from .batches import positions
from .spill import Spill

#: Bytes of rows that are sorted at once.
_RUN_BYTES = 32 * 1024 * 1024
#: No column of a table has this name.
_NUMBER = ""


def check_order(by: Sequence[str], schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Check that a table's files can be sorted by columns.

    :raises InvalidInputError: a column is not in the files, nested or named twice, or ``by`` is a
        text.
    """
    named = [by] if isinstance(by, str) else by
    files = [name for name in schema.names if name not in partition_by]
    wrong = [name for name in named if name not in files or pt.is_nested(schema.field(name).type)]
    if isinstance(by, str) or wrong or len(set(by)) < len(by):
        raise InvalidInputError(
            f"Rows cannot be sorted by {', '.join(wrong or named)}. Nothing was changed.",
            remedy="Give a list of columns of the files, each once, none that names partitions and "
            f"none of a nested type: they have {', '.join(files)}.",
        )


def in_order(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    by: Sequence[str],
    most_bytes: int = _RUN_BYTES,
) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield rows sorted by columns, ascending, NaN and then null last.

    If ``by`` is empty, rows are yielded as they come. A few times ``most_bytes`` are in memory, if
    no batch is larger. All rows are on local disk, in a mapped file; the system frees its resident
    pages when it needs memory.

    :param schema: the schema of the batches.
    :raises StreamError: the temporary directory has no room for the rows.
    """
    if not by:
        yield from batches
        return
    spill = Spill(schema, buffer_bytes=most_bytes // 2)
    try:
        names: list[str] = []
        for rows in _runs(batches, schema, most_bytes):
            names.append(str(len(names)))
            for batch in _sorted(rows, by).to_batches(max_chunksize=16_384):
                spill.add(names[-1], batch)
        spill.seal()
        runs = [pa.Table.from_batches(spill.read(name), schema) for name in names]
        yield from _merged(runs, by, most_bytes)
    finally:
        spill.close()


def _runs(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, most_bytes: int
) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield pa.Table.from_batches(gathered, schema)
            gathered, size = [], 0
    if gathered:  # Rows of nothing but nulls without a type have no bytes.
        yield pa.Table.from_batches(gathered, schema)


def _sorted(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in by])  # Arrow puts null last.


def _merged(runs: Sequence[pa.Table], by: Sequence[str], most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of sorted runs in one order."""
    size = sum(run.nbytes for run in runs)
    rows = sum(run.num_rows for run in runs)
    step = max(1, rows * most_bytes // max(1, size) // (2 * len(runs) + 1))
    waiting: list[pa.Table] = []
    read = [0] * len(runs)
    starts = [sum(run.num_rows for run in runs[:number]) for number in range(len(runs))]
    for last, needed in _marks(runs, by, step):
        for number, upto in enumerate(needed):
            waiting.append(_numbered(runs[number], starts[number], read[number], upto))
            read[number] = upto
        loaded = _sorted(pa.concat_tables(waiting), by)
        run, row = last
        end = pc.index(loaded[_NUMBER], starts[run] + row).as_py() + 1
        yield loaded.slice(0, end).drop_columns([_NUMBER])
        # A copy: a slice would keep the rows that have come out in memory.
        waiting = [loaded.take(positions(end, loaded.num_rows))]
        del loaded
    for number, run in enumerate(runs):
        waiting.append(_numbered(run, starts[number], read[number], run.num_rows))
    if waiting:  # There is a run.
        yield _sorted(pa.concat_tables(waiting), by).drop_columns([_NUMBER])


def _numbered(run: pa.Table, start: int, first: int, end: int) -> pa.Table:
    """Return rows of a run with their numbers among all rows."""
    numbers = positions(start + first, start + end)
    return run.slice(first, end - first).append_column(_NUMBER, numbers)


def _marks(
    runs: Sequence[pa.Table], by: Sequence[str], step: int
) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Yield the samples up to which rows come out at a time, a few steps apart.

    Each is given as run and row, with the number of rows of each run that must be read for it.
    """
    rows = [range(step - 1, run.num_rows, step) for run in runs]
    found = [(number, row) for number, sampled in enumerate(rows) for row in sampled]
    if not found:
        return
    samples = [pa.array(sampled, pa.int64()) for sampled in rows]
    keys = [run.select(by).take(them) for run, them in zip(runs, samples, strict=True)]
    numbers = positions(0, len(found))
    samples_in_order = _sorted(pa.concat_tables(keys).append_column(_NUMBER, numbers), by)
    passed = [0] * len(runs)
    for count, at in enumerate(samples_in_order[_NUMBER].to_pylist(), 1):
        passed[found[at][0]] += 1
        if count % (len(runs) + 1) == 0:
            needed = [
                min(run.num_rows, (n + 1) * step) for run, n in zip(runs, passed, strict=True)
            ]
            yield found[at], needed
