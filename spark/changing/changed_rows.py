"""Rows of a table after a change, each with its kind: unchanged, updated, inserted or deleted."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from ..column_names import quoted
from ..types import spark_schema
from ..worker import readable_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

logger = logging.getLogger("zero_rename.spark.changing.changed_rows")
#: Kinds of rows. A row that moves is updated in its new partition, and gone from its old one.
UNCHANGED, UPDATED, INSERTED, DELETED, _GONE = range(5)
#: Columns of a frame of changed rows: see ``frame`` of :class:`ChangedRows`.
KIND, OLD, NEW, ROW = "kind", "old", "new", "row"


@dataclass(frozen=True)
class PartitionNames:
    """Function for ``mapInArrow`` that adds the name of the partition as column ``path``.

    The rows have a struct ``place`` by :func:`place_of`.
    """

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
    """Add the names of the partitions as column ``path`` to a frame with a struct ``place``.

    :param fields: the partition columns, as the table has them.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    named = StructType([*frame.schema.fields, StructField("path", StringType())])
    return frame.mapInArrow(PartitionNames(tuple(fields)), named)


def partitions_of(frame: DataFrame, schema: pa.Schema, by: Sequence[str]) -> set[str]:
    """Return the names of the partitions of rows that have a table's columns."""
    from pyspark.sql import functions as F

    place = place_of((F.col(quoted(it.name)), it.dataType) for it in spark_schema(schema, by))
    places = frame.select(place.alias("place")).distinct()
    named = partition_names(places, [schema.field(name) for name in by])
    return {row["path"] for row in named.select("path").collect()}


def place_of(columns: Iterable[tuple[Column, DataType]]) -> Column:
    """Make the struct of a row's place; for an unpartitioned table, one with a constant.

    Two places are equal only if they are one directory.

    :param columns: the partition columns, each with its type.
    """
    from pyspark.sql import functions as F

    values = (as_directory(column, kind) for column, kind in columns)
    named = [value.alias(f"p{number}") for number, value in enumerate(values)]
    return F.struct(*(named or [F.lit(0).alias("p0")]))


def as_partition_value(column: Column, kind: DataType) -> Column:
    """Make a partition column's value equal to the one read back later: an empty text is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    return F.when(column != "", column) if isinstance(kind, StringType) else column


def as_directory(column: Column, kind: DataType) -> Column:
    """Convert a partition column's value to a form that is equal only for equal directories.

    0.0 and -0.0 have different directories, and so have texts that are equal by a collation.
    """
    from pyspark.sql.types import DoubleType, FloatType, StringType

    return (
        column.cast("string") if isinstance(kind, DoubleType | FloatType | StringType) else column
    )


def differ(old: Column, new: Column, kind: DataType) -> Column:
    """Make a condition that is true if two values of a column's type differ.

    Values that Spark cannot compare always count as different. Texts are compared without their
    collation, and other values with collated texts in them always count as different.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    if isinstance(kind, StringType):
        return ~old.cast("string").eqNullSafe(new.cast("string"))
    if _is_comparable(kind.jsonValue()):
        return ~old.eqNullSafe(new)
    return F.lit(True)


def _is_comparable(form: Any) -> bool:
    """Return whether Spark can compare values of a type exactly.

    :param form: the type in its JSON form.
    """
    if isinstance(form, str):
        return "collate" not in form and form not in ("variant", "void")
    if form["type"] == "struct":
        plain = [_is_comparable(it["type"]) and not it["metadata"] for it in form["fields"]]
        return all(plain)
    return form["type"] == "array" and _is_comparable(form["elementType"])


@dataclass(frozen=True)
class Counts:
    """Counts of a change's rows in each partition, by name."""

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
    """Rows of a state after a change.

    :param state: of the partitions that were read.
    :param frame: a row for each row of the state and each new row: its kind (``kind``), the
        partition that it leaves and the one that it goes to (``old``, ``new``: see
        :func:`place_of`), and its columns (``row``).
    :param only: makes this frame for a few partitions alone; ``None`` if the whole frame has to be
        computed for them.
    :param schema: the table's columns after the change.
    :param schema_mode: the policy for the table's columns.
    :param brings_rows: whether rows may come from other data than the table.
    :param why_not_repeatable: returns why the change would change rows again if it were repeated on
        its own result; ``None``: it would not.
    :param why_not_inserted: why it would change rows that it has inserted; ``None``: it would not.
    """

    state: Snapshot
    frame: DataFrame
    only: Callable[[Collection[str]], DataFrame] | None = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    schema_mode: SchemaMode = SchemaMode.KEEP
    brings_rows: bool = False
    why_not_repeatable: Callable[[], str | None] = lambda: None
    why_not_inserted: str | None = None

    def release(self) -> None:
        """Release the frames that Spark keeps in memory."""
        counted = self.__dict__.get("_counted")  # If it was made.
        release(self.frame, *([] if counted is None else [counted]))

    @cached_property
    def counts(self) -> Counts:
        """Counts of rows by partition and kind."""
        return Counts.of(self._counted)

    @cached_property
    def _counted(self) -> DataFrame:
        """Frame of the counts of rows by ``place`` and kind, with the partition's ``path``."""
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
        """Return the rows that partitions hold after the change.

        :param changed: the names of these partitions.
        """
        from pyspark.sql import functions as F

        frame = self.frame if self.only is None else self.only(changed)
        frame = frame.where(F.col(KIND) != DELETED)
        if self.only is None and len(changed) < len(self.counts.rows):
            places = self._counted.where(F.col("path").isin(*changed)).select("place").distinct()
            places = F.broadcast(places)
            frame = frame.join(places, frame[NEW].eqNullSafe(places["place"]), "left_semi")
        return frame.select(f"{ROW}.*")


def release(*frames: DataFrame) -> None:
    """Release frames that Spark keeps in memory.

    A failure, as when the connection to Spark is lost, is only logged: it hides neither the result
    of a change nor another error.
    """
    for frame in frames:
        try:
            frame.unpersist()
        except Exception as error:
            logger.info("Spark may keep a frame in memory: %s", error)


def reads_table(text: str, columns: Collection[str], has_source: bool = True) -> bool:
    """Return whether an expression may use the table's own row.

    :param has_source: it is over ``source`` and ``target``; else over the table's columns alone,
        of which one may have such a name.
    """
    if has_source:
        text = re.sub(r"(?i)\bsource\s*\.\s*(`[^`]*`|\w+)", "", text)
    own = ("target", *(name.lower() for name in columns))
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text.lower()) for name in own)
