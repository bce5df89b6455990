"""What a table holds after merges, updates, deletions and loads, by a model of lists and
dictionaries; and sequences of these for Hypothesis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.layout import UNPARTITIONED

Row = Mapping[str, Any]
NAN = float("nan")
FIELDS = (
    ("k", pa.int64()),
    ("j", pa.string()),
    ("v", pa.float64()),
    ("p", pa.string()),
    ("n", pa.int32()),
    # What becomes of a merge's rows: no columns of the table, but for the last in some.
    ("op", pa.string()),
    ("at", pa.int32()),
)
FIRST = ("k", "j", "v", "p")


def schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, kind) for name, kind in FIELDS if name in columns])


def arrow(rows: Iterable[Row], columns: Sequence[str]) -> pa.Table:
    own = schema(columns)
    return pa.Table.from_pylist([_of(row, own.names) for row in rows], own)


def text(row: Row, columns: Sequence[str]) -> str:
    """By which rows are compared: NaN is NaN."""
    return repr(tuple(row.get(name) for name in columns))


def held(table: Table) -> list[str]:
    found = table.to_arrow()
    return sorted(text(row, found.column_names) for row in found.to_pylist())


@dataclass(frozen=True)
class Load:
    """Rows that are appended; ``replaces``: instead of what their partitions hold."""

    rows: list[Row]
    replaces: bool


@dataclass(frozen=True)
class Merge:
    """:param on: the key's columns.
    :param columns: what the source has besides them and the partition columns; ``None``: those of
        the table.
    """

    rows: list[Row]
    on: tuple[str, ...]
    null_safe: bool
    across: bool
    matched: str
    not_matched: str
    deletes: bool
    latest: bool
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Delete:
    """Rows whose column is a value; where it is null they stay."""

    column: str
    value: Any


@dataclass(frozen=True)
class Update:
    """``column`` becomes ``value`` in rows whose ``k`` is at least ``least``."""

    column: str
    value: Any
    least: int


Step = Load | Merge | Delete | Update


@dataclass
class Model:
    """A table by the rows that it holds.

    :param by: its partition columns.
    """

    by: tuple[str, ...]
    columns: tuple[str, ...] = FIRST
    rows: list[Row] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return sorted(text(row, self.columns) for row in self.rows)

    def load(self, table: Table, rows: list[Row], replaces: bool) -> None:
        """Carry out a load, as any application may."""
        mode = "overwrite" if replaces else "append"
        with table.job(schema(self.columns), partition_by=self.by, mode=mode) as job:
            job.write(arrow(rows, self.columns))

    def after(self, step: Step) -> Model:
        """:raises InvalidInputError: the step is to be refused."""
        columns, rows = self.columns, self.rows
        if isinstance(step, Load):
            gone = {self._place(row) for row in step.rows} if step.replaces else set()
            news = self._placed(_of(row, columns) for row in step.rows)
            rows = [row for row in rows if self._place(row) not in gone] + news
        elif isinstance(step, Delete):
            rows = [r for r in rows if r.get(step.column) is None or r[step.column] != step.value]
        elif isinstance(step, Update):
            rows = self._placed(
                {**row, step.column: step.value}
                if row["k"] is not None and row["k"] >= step.least
                else row
                for row in rows
            )
        else:
            columns = self.merged_columns(step)
            rows = self._merged(step)
        return Model(self.by, columns, rows)

    def merged_columns(self, step: Merge) -> tuple[str, ...]:
        more = tuple(name for name in step.columns or () if name not in self.columns)
        return (*self.columns, *more)

    def source(self, step: Merge) -> pa.Table:
        """The rows as they are given, with the columns that only say what becomes of them."""
        serving = [*(["op"] if step.deletes else []), *(["at"] if step.latest else [])]
        return arrow(step.rows, (*self.source_columns(step), *serving))

    def source_columns(self, step: Merge) -> tuple[str, ...]:
        """Those of them that are the table's, or become its."""
        if step.columns is None:
            return self.columns
        latest = ["at"] if step.latest and "at" in self.columns else []
        return tuple(dict.fromkeys([*step.on, *self.by, *step.columns, *latest]))

    def _merged(self, step: Merge) -> list[Row]:
        source = self._one_a_key(step, self._placed(step.rows))
        has = self.source_columns(step)
        keyed = {self._key(step, row): row for row in source if _can_match(step, row)}
        found, after = set[Any](), list[Row]()
        for row in self.rows:
            key = self._key(step, row)
            new = keyed.get(key) if _can_match(step, row) else None
            if new is None:
                after.append(row)
                continue
            found.add(key)
            if step.latest and self._is_late(new, row):
                after.append(row)
                continue
            if step.deletes and new["op"] == "D":
                continue
            after.append({**row, **_of(new, has)} if step.matched == "update" else row)
        if step.not_matched == "insert":
            after += [
                _of(row, has)
                for row in source
                if not (_can_match(step, row) and self._key(step, row) in found)
                and not (step.deletes and row["op"] == "D")
            ]
        return after

    def _one_a_key(self, step: Merge, source: list[Row]) -> list[Row]:
        """:raises InvalidInputError: several rows have one, and none is the last."""
        groups: dict[Any, list[Row]] = {}
        for number, row in enumerate(source):
            key = self._key(step, row) if _can_match(step, row) else number
            groups.setdefault(key, []).append(row)
        if step.latest:
            for key, rows in groups.items():
                last = max((row["at"] for row in rows if row["at"] is not None), default=None)
                # A row whose key matches nothing is no other's rival.
                groups[key] = [row for row in rows if row["at"] == last] if len(rows) > 1 else rows
        if any(len(rows) > 1 for rows in groups.values()):
            raise InvalidInputError("several rows of a key")
        return [row for rows in groups.values() for row in rows]

    def _key(self, step: Merge, row: Row) -> tuple[Any, ...]:
        """By what rows match each other: in their own partition alone, unless across all."""
        key = tuple(row.get(name) for name in step.on)
        return key if step.across else (*key, self._place(row))

    def _is_late(self, new: Row, own: Row) -> bool:
        """Whether the table's row is a later one than the source's."""
        if own.get("at") is None:
            return False
        return new["at"] is None or own["at"] > new["at"]

    def changed(self, later: Model) -> set[str]:
        """The partitions whose rows are others afterwards."""
        columns = later.columns
        before, after = self._by_place(columns), later._by_place(columns)
        return {
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        }

    def _by_place(self, columns: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in self.rows:
            found.setdefault(self._place(row), []).append(text(row, columns))
        return {name: sorted(texts) for name, texts in found.items()}

    def _placed(self, rows: Iterable[Row]) -> list[Row]:
        """As they are read again: a partition without a name is null."""
        return [{**row, **{name: row[name] or None for name in self.by}} for row in rows]

    def _place(self, row: Row) -> str:
        if not self.by:
            return UNPARTITIONED
        return f"p={row['p'] or '__HIVE_DEFAULT_PARTITION__'}"


def _of(row: Row, columns: Sequence[str]) -> Row:
    return {name: row.get(name) for name in columns}


def _can_match(step: Merge, row: Row) -> bool:
    return step.null_safe or None not in (row.get(name) for name in step.on)


_KEYS = st.integers(0, 3) | st.none()
_VALUES = st.sampled_from([0.0, NAN, None])
_PLACES = st.sampled_from(["x", "y", "z", None, ""])
_ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "k": _KEYS,
        "j": st.sampled_from(["a", None]),
        "v": _VALUES,
        "p": _PLACES,
        "n": st.just(1) | st.none(),
        "op": st.sampled_from(["D", "U", None]),
        "at": st.integers(0, 9) | st.none(),
    }
)


def _merges(least: int, most: int) -> st.SearchStrategy[Step]:
    merges = st.builds(
        Merge,
        rows=st.lists(_ROWS, min_size=least, max_size=most),
        on=st.sampled_from([("k", "j"), ("k",), ("k", "p")]),
        null_safe=st.booleans(),
        across=st.sampled_from([True, False]),
        matched=st.sampled_from(["update", "update", "ignore"]),
        not_matched=st.sampled_from(["insert", "insert", "ignore"]),
        deletes=st.booleans(),
        latest=st.booleans(),
        columns=st.sampled_from([None, None, ("v", "n"), ("n",), ("j", "n")]),
    )
    return st.builds(_without_doubles, merges, st.sampled_from([True, True, True, False]))


def _without_doubles(merge: Merge, does: bool) -> Merge:
    """So that few are refused."""
    by = (*merge.on, *(["at"] if merge.latest else []))
    found = {tuple(row[name] or None for name in by): row for row in merge.rows}
    return replace(merge, rows=[*found.values()]) if does else merge


_UPDATES: st.SearchStrategy[Step] = st.one_of(
    st.builds(Update, st.just("v"), _VALUES, st.integers(0, 3)),
    st.builds(Update, st.just("p"), _PLACES, st.integers(0, 3)),
)
_DELETES: st.SearchStrategy[Step] = st.one_of(
    st.builds(Delete, st.just("k"), st.integers(0, 3)),
    st.builds(Delete, st.just("j"), st.just("a")),
    st.builds(Delete, st.just("p"), st.sampled_from(["x", "y"])),
)


_Sequences = st.SearchStrategy[tuple[Model, list[Row], list[Step]]]


def sequences(steps: int, rows: int) -> _Sequences:
    """A table, its first rows, and what is done to it, its last merge once more at the end.

    :param rows: how many each step brings at most.
    """
    done = st.one_of(_merges(0, rows), _merges(0, rows), _loads(1, rows), _DELETES)
    return _on_tables(rows, st.lists(done, min_size=1, max_size=steps))


def full_sequences(rows: int) -> _Sequences:
    """The same with all kinds of steps in each, for those that are tried a few times only.

    :param rows: how many each step brings at most, and half of it at least.
    """
    merges = [_merges(rows // 2, rows)] * 4
    done = st.tuples(*merges, _loads(rows // 2, rows), _UPDATES, _DELETES).flatmap(st.permutations)
    return _on_tables(rows, done).filter(_is_full)


def _is_full(sequence: tuple[Model, list[Row], list[Step]]) -> bool:
    """Not so of what Hypothesis tries first: a row, again and again."""
    return len({str(step) for step in sequence[2]}) == 7


def _loads(least: int, most: int) -> st.SearchStrategy[Step]:
    return st.builds(Load, st.lists(_ROWS, min_size=least, max_size=most), st.booleans())


def _on_tables(rows: int, steps: st.SearchStrategy[list[Step]]) -> _Sequences:
    by, columns = st.sampled_from([("p",), ("p",), ()]), st.sampled_from([FIRST, (*FIRST, "at")])
    models = st.builds(Model, by, columns)
    first = st.lists(_ROWS, min_size=1, max_size=rows)
    return st.tuples(models, first, steps.map(_and_again))


def _and_again(steps: list[Step]) -> list[Step]:
    return [*steps, *[step for step in steps if isinstance(step, Merge)][-1:]]
