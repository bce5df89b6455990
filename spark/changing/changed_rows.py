"""Rows of a table as a change leaves them, each with what becomes of it; and the job that writes
the partitions anew in which any row changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...committer.commit.snapshot import Snapshot
from ...committer.format.job_spec import SchemaMode
from ...committer.format.layout import UNPARTITIONED
from ...committer.format.row_changes import RowChanges
from ...committer.format.schema.compatibility import cast_column
from ...committer.format.schema.hive_paths import escape, format_values
from ..reading.load import quoted
from ..worker import readable_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

#: What becomes of a row. One that moves is updated where it comes, and gone where it was.
UNCHANGED, UPDATED, INSERTED, DELETED, _GONE = range(5)
#: Columns of a frame of changed rows: see :meth:`ChangedRows.frame`.
KIND, OLD, NEW, ROW = "kind", "old", "new", "row"


@dataclass(frozen=True)
class PartitionNames:
    """For ``mapInArrow``: adds to rows with a struct ``place``, of the partition columns, the name
    of the partition that they lie in."""

    fields: tuple[pa.Field, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with readable_errors():
            for batch in batches:
                yield batch.append_column("path", pa.array(self._names(batch), pa.string()))

    def _names(self, batch: pa.RecordBatch) -> list[str]:
        place: Any = batch.column("place")
        if not self.fields:
            return [UNPARTITIONED] * batch.num_rows
        values = [
            format_values(field.name, cast_column(array, field))
            for field, array in zip(self.fields, place.flatten(), strict=True)
        ]
        names = [f"{escape(field.name)}=" for field in self.fields]
        return ["/".join(map(add, names, row)) for row in zip(*values, strict=True)]


def partition_names(frame: DataFrame, fields: Sequence[pa.Field]) -> DataFrame:
    """A frame with a struct ``place``, with the names of partitions as ``path``.

    :param fields: the partition columns, as the table has them.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    named = StructType([*frame.schema.fields, StructField("path", StringType())])
    return frame.mapInArrow(PartitionNames(tuple(fields)), named)


def partitions_of(frame: DataFrame, schema: pa.Schema, by: Sequence[str]) -> set[str]:
    """The names of the partitions that rows with a table's columns lie in."""
    from pyspark.sql import functions as F

    place = place_of([F.col(quoted(name)) for name in by])
    places = frame.select(place.alias("place")).distinct()
    named = partition_names(places, [schema.field(name) for name in by])
    return {row["path"] for row in named.select("path").collect()}


def place_of(columns: Sequence[Column]) -> Column:
    """The struct of partition columns; of an unpartitioned table, one that says nothing."""
    from pyspark.sql import functions as F

    named = [column.alias(f"p{number}") for number, column in enumerate(columns)]
    return F.struct(*(named or [F.lit(0).alias("p0")]))


def as_partition_value(column: Column, kind: DataType) -> Column:
    """A partition column's value as it will be read again: an empty text is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    return F.when(column != "", column) if isinstance(kind, StringType) else column


def as_directory(column: Column, kind: DataType) -> Column:
    """A partition column's value in a form that is equal where the directories are: neither 0.0 and
    -0.0 share one, nor texts that a collation takes for the same."""
    from pyspark.sql.types import DoubleType, FloatType, StringType

    return (
        column.cast("string") if isinstance(kind, DoubleType | FloatType | StringType) else column
    )


def differ(old: Column, new: Column, kind: DataType) -> Column:
    """Whether two values of a column's type are not the same. Values that Spark cannot compare, or
    by their collation takes for equal that are not, count as different."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    if isinstance(kind, StringType):
        return ~old.cast("string").eqNullSafe(new.cast("string"))
    if _is_comparable(kind.jsonValue()):
        return ~old.eqNullSafe(new)
    return F.lit(True)


def _is_comparable(form: Any) -> bool:
    """Whether Spark compares values of a type, in its JSON form, by what they are."""
    if isinstance(form, str):
        return "collate" not in form and form not in ("variant", "void")
    if form["type"] == "struct":
        plain = [_is_comparable(it["type"]) and not it["metadata"] for it in form["fields"]]
        return all(plain)
    return form["type"] == "array" and _is_comparable(form["elementType"])


@dataclass(frozen=True)
class Counts:
    """What a change does to each partition, by name."""

    rows: Mapping[str, RowChanges]
    changed: tuple[str, ...]

    @staticmethod
    def of(counted: DataFrame) -> Counts:
        found: dict[str, list[int]] = {}
        for row in counted.select("path", "what", "count").collect():
            found.setdefault(row["path"], [0] * 5)[row["what"]] += row["count"]
        kinds = (INSERTED, UPDATED, DELETED, UNCHANGED)
        rows = {path: RowChanges(*(of[kind] for kind in kinds)) for path, of in found.items()}
        changed = (path for path, of in found.items() if sum(of) > of[UNCHANGED])
        return Counts(rows, tuple(sorted(changed)))


@dataclass(frozen=True)
class ChangedRows:
    """What a change makes of a state.

    :param state: of the partitions that were read.
    :param frame: a row for each of them and each new one: what becomes of it (``kind``), where it
        was and where it comes (``old``, ``new``: structs of the partition columns), and its columns
        (``row``).
    :param only: the same of a few partitions alone; ``None`` where that takes the whole frame.
    :param schema: what the table's columns are to be.
    :param schema_mode: what becomes of the table's columns.
    :param brings_rows: whether some may come of something else than the table's own.
    :param why_not_repeatable: why it would change rows once more, made on what it has left.
    """

    state: Snapshot
    frame: DataFrame
    only: Callable[[Collection[str]], DataFrame] | None = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    schema_mode: SchemaMode = SchemaMode.KEEP
    brings_rows: bool = False
    why_not_repeatable: Callable[[], str | None] = lambda: None

    def release(self) -> None:
        """Give back what Spark keeps of it."""
        self.frame.unpersist()
        self._counted.unpersist()

    @cached_property
    def counts(self) -> Counts:
        """How many rows become what, by partition."""
        return Counts.of(self._counted)

    @cached_property
    def _counted(self) -> DataFrame:
        """How many rows become what, by ``place``, with its ``path``."""
        from pyspark.sql import functions as F

        def event(place: str, what: Column) -> Column:
            return F.struct(F.col(place).alias("place"), what.alias("what"))

        kind, moved = F.col(KIND), ~F.col(OLD).eqNullSafe(F.col(NEW))
        left, came = event(OLD, F.lit(_GONE)), event(NEW, kind)
        events = (
            F.when(kind == DELETED, F.array(event(OLD, kind)))
            .when((kind == UPDATED) & moved, F.array(left, came))
            .otherwise(F.array(came))
        )
        rows = self.frame.select(F.explode(events).alias("at")).select("at.*")
        fields = [self.state.schema.field(name) for name in self.state.partition_by]
        return partition_names(rows.groupBy("place", "what").count(), fields).persist()

    def rows(self, changed: Collection[str]) -> DataFrame:
        """The rows that partitions are to hold."""
        from pyspark.sql import functions as F

        frame = self.frame if self.only is None else self.only(changed)
        frame = frame.where(F.col(KIND) != DELETED)
        if self.only is None and len(changed) < len(self.counts.rows):
            places = self._counted.where(F.col("path").isin(*changed)).select("place").distinct()
            places = F.broadcast(places)
            frame = frame.join(places, frame[NEW].eqNullSafe(places["place"]), "left_semi")
        return frame.select(f"{ROW}.*")


def reads_table(text: str, columns: Collection[str]) -> bool:
    """Whether an expression over ``source`` and ``target`` may be about the table's own row."""
    left = re.sub(r"(?i)\bsource\s*\.\s*(`[^`]*`|\w+)", "", text).lower()
    own = ("target", *(name.lower() for name in columns))
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", left) for name in own)
