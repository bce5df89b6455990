"""What readers see: by the heads, and by listing."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from walk.oracle import Oracle, State, Violation
from walk.world import ROOT, World, value_of

from zero_rename import Table
from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.layout import UNPARTITIONED, is_hidden

#: Rows as a reader sees them: partition, id, and the other columns by name.
Seen = Counter[tuple[str, int, tuple[tuple[str, int | None], ...]]]


def expected(oracle: Oracle, state: State, columns: Iterable[str]) -> Seen:
    """What a state is to a reader who is given columns."""
    names = sorted(columns)
    found: Seen = Counter()
    for name, rows in oracle.visible(state).items():
        for (number, had), count in rows.items():
            by = dict(had)
            values = tuple((it, value_of(number, it, by[it]) if it in by else None) for it in names)
            found[name, number, values] += count
    return found


def of_arrow(world: World, data: pa.Table, partition: str | None = None) -> Seen:
    """Arrow data as rows; ``partition`` where the data does not say it."""
    names = sorted(set(data.column_names) - {"id", "day"})
    found: Seen = Counter()
    for row in data.to_pylist():
        name = partition
        if name is None:
            name = f"day={row['day']}" if world.plan.partitioned else UNPARTITIONED
        found[name, row["id"], tuple((it, row[it]) for it in names)] += 1
    return found


def by_heads(world: World, table: Table, snapshot: Snapshot) -> Seen:
    """File by file, as jobs do that compute rows of what is there."""
    found: Seen = Counter()
    for file in snapshot.files:
        batches = list(table.read_file(snapshot, file))
        data = pa.Table.from_batches(batches, snapshot.schema)
        found += of_arrow(world, data)
    return found


def require(what: str, seen: Seen, states: Iterable[Seen]) -> None:
    """:raises Violation: what a reader sees is none of the states that it may see."""
    possible = list(states)
    if seen in possible:
        return
    last = possible[-1]
    told = [("missing", last - seen), ("too much", seen - last)]
    text = "; ".join(f"{word}: {short(rows)}" for word, rows in told if rows)
    raise Violation(f"{what} sees none of {len(possible)} states; of the last one {text}")


def require_state(
    world: World, who: str, start: int, schema: pa.Schema, seen: Seen, asked: Collection[str] | None
) -> None:
    """:raises Violation: a reader sees what was never the table's state since he began.

    :param start: how many commits there were then.
    :param asked: the partitions that he asked for.
    """
    names = set(schema.names) - {"id", "day"}
    oracle = world.oracle
    columns = [{"n"} if it is None else set(it) for it in oracle.shapes[start:]]
    if names not in columns:
        raise Violation(f"{who} is given the columns {sorted(names)}, and there are {columns}")
    states = [expected(oracle, state, names) for state in oracle.states[start:]]
    require(who, seen, [rows_in(state, asked) for state in states])


def require_count(world: World, start: int, count: int, asked: Collection[str] | None) -> None:
    """:raises Violation: rows are counted that the table never had since its counter began."""
    states = [rows_in(expected(world.oracle, it, ()), asked) for it in world.oracle.states[start:]]
    if count not in [sum(state.values()) for state in states]:
        raise Violation(f"{count} rows are counted; there are {sum(states[-1].values())}")


def ids_of(seen: Seen, partition: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for (name, number, _), count in seen.items():
        if name == partition:
            found[number] += count
    return found


def rows_in(rows: Seen, asked: Collection[str] | None) -> Seen:
    """Those in some partitions; ``None``: in all."""
    return rows if asked is None else Counter({it: n for it, n in rows.items() if it[0] in asked})


def short(rows: Seen) -> str:
    """How many rows, and the first of them."""
    shown = [f"{name} {number}{dict(values)} x{n}" for (name, number, values), n in rows.items()]
    return f"{sum(rows.values())} rows, " + ", ".join(sorted(shown)[:6])


def data_keys(world: World, partition: str) -> list[str]:
    """The files that a reader lists in a partition, without those that came back for good."""
    prefix = ROOT.partition_prefix(partition)
    keys = (key for key in world.objects(prefix) if key not in world.left)
    return [key for key in keys if not any(is_hidden(it) for it in key[len(prefix) :].split("/"))]


def ids_in(world: World, keys: Iterable[str]) -> Counter[int]:
    """The ids of the rows in files, as an engine reads them that knows of files alone."""
    found: Counter[int] = Counter()
    for key in keys:
        if key not in world.store.objects:
            raise Violation(f"a list names {key}, which is not there")
        found.update(_ids_of(world.store.objects[key].body))
    return found


@lru_cache(maxsize=4096)
def _ids_of(body: bytes) -> tuple[int, ...]:
    return tuple(pq.ParquetFile(io.BytesIO(body)).read(["id"], use_threads=False)["id"].to_pylist())
