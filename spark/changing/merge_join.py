"""Join of a merge's source with a state of its table."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from ...committer.commit.snapshot import Snapshot
from ...committer.format.job_spec import SchemaMode
from ...committer.merge_request import IGNORE, INSERT, UPDATE
from ..reading.load import quoted, state_frame
from ..types import spark_schema
from .changed_rows import (
    DELETED,
    INSERTED,
    KIND,
    NEW,
    OLD,
    ROW,
    UNCHANGED,
    UPDATED,
    ChangedRows,
    as_partition_value,
    differ,
    partitions_of,
    place_of,
    reads_table,
)
from .merge_source import MergeSource
from .struct_fields import ColumnExpressions, cast_by_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Marks of a join's two sides.
_THERE, _COMES = "zero_rename_is_there", "zero_rename_comes"
_DELETES = "zero_rename_deletes"
#: Key values that can be written into a condition as they are.
_PLAIN = re.compile(r"[\w .:+-]*", re.ASCII)


class MergeJoin:
    """One attempt of a merge: reads a state, and says what becomes of each row."""

    def __init__(self, source: MergeSource) -> None:
        self._source = source
        self._table = source.table
        self._frame = source.frame
        self._session = source.frame.sparkSession
        self._rules = source.rules
        self._by = source.by
        self._types = source.types

    def rows(self) -> ChangedRows:
        touched = self._source.places()
        while True:
            state = self._state(touched)
            rows = self._joined(state)
            more = rows.counts.rows.keys()
            if more <= set(state.asked or ()):
                return rows
            rows.release()
            touched = touched | more

    def _state(self, touched: Collection[str]) -> Snapshot:
        """What the partitions hold that may be changed."""
        if self._source.is_first:
            return Snapshot(
                self._table.root, self._source.own, self._by, (), {}, tuple(sorted(touched))
            )
        if not self._rules.across or not self._by:
            return self._table.state_to_change(touched)
        whole = self._table.state_to_change()
        return whole.chosen({*touched, *self._with_keys(whole)})

    def _with_keys(self, whole: Snapshot) -> set[str]:
        """The partitions that hold keys of the source."""
        columns = [*dict.fromkeys([*self._rules.on, *self._by])]
        where = self._key_range()
        keys = state_frame(self._session, self._table, whole, columns, where)
        keys = keys.alias("target").join(
            self._frame.alias("source"), self._matches(self._rules.on), "left_semi"
        )
        return partitions_of(keys, whole.schema, self._by)

    def _key_range(self) -> str | None:
        """What is true of the first key column of all rows that can match: files whose statistics
        say otherwise are not read."""
        from pyspark.sql import functions as F

        name = self._rules.on[0]
        key = F.col(quoted(name))
        lowest, highest = F.min(key).cast("string"), F.max(key).cast("string")
        low, high = self._frame.select(lowest, highest).collect()[0]
        kind = self._types[name].dataType.simpleString()
        if self._rules.null_safe or low is None or not _PLAIN.fullmatch(f"{low}{high}"):
            return None
        if kind in ("tinyint", "smallint", "int", "bigint"):
            return f"{quoted(name)} >= {low} and {quoted(name)} <= {high}"
        if kind in ("string", "date"):
            return f"{quoted(name)} >= '{low}' and {quoted(name)} <= '{high}'"
        return None

    def _joined(self, state: Snapshot) -> ChangedRows:
        from pyspark.sql import functions as F

        rules = self._rules
        there = state_frame(self._session, self._table, state)
        there = there.withColumn(_THERE, F.lit(True)).alias("target")
        comes, deletes = self._with_deletions(self._frame.withColumn(_COMES, F.lit(True)))
        how = "full_outer" if rules.not_matched == INSERT else "left_outer"
        both = there.join(comes, self._matches(rules.on), how)
        matched = F.col(_THERE).isNotNull() & F.col(_COMES).isNotNull() & ~self._is_late(state)
        deletes = F.coalesce(deletes, F.lit(False))
        old, new = self._values(state, both, matched)
        changed = reduce(
            or_,
            [differ(old[f.name], new[f.name], f.dataType) for f in self._types if f.name in new],
            F.lit(False),
        )
        kind = (
            F.when(F.col(_THERE).isNull(), F.when(~deletes, F.lit(INSERTED)))
            .when(~matched, F.lit(UNCHANGED))
            .when(deletes, F.lit(DELETED))
            .when(changed, F.lit(UPDATED))
            .otherwise(F.lit(UNCHANGED))
        )
        after = [new.get(f.name, old[f.name]).alias(f.name) for f in self._types]
        frame = both.select(
            kind.alias(KIND),
            place_of([old[name] for name in self._by]).alias(OLD),
            place_of([new.get(name, old[name]) for name in self._by]).alias(NEW),
            F.struct(*after).alias(ROW),
        )
        frame = frame.where(F.col(KIND).isNotNull()).persist()
        return ChangedRows(
            state,
            frame,
            schema=self._source.schema,
            schema_mode=SchemaMode.MERGE if rules.evolves else SchemaMode.KEEP,
            brings_rows=True,
            why_not_repeatable=self._why_not_repeatable,
        )

    def _is_late(self, state: Snapshot) -> Column:
        """Whether the table's row of a pair is later than the source's."""
        from pyspark.sql import functions as F

        name = self._rules.latest_by
        if name is None or name not in state.schema.names:
            return F.lit(False)
        own, given = (F.col(f"{side}.{quoted(name)}") for side in ("target", "source"))
        return F.coalesce(own > given, own.isNotNull() & given.isNull())

    def _with_deletions(self, comes: DataFrame) -> tuple[DataFrame, Column]:
        """The source, by that name, and what says of joined rows whether they are deleted. A bare
        name is the source's column, also where the table has one."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        comes, text = comes.alias("source"), self._rules.delete_when
        if text is None:
            return comes, F.lit(False)
        try:
            marked = comes.withColumn(_DELETES, F.expr(text))
            _ = marked.schema  # Spark Connect looks at names not before.
        except AnalysisException:
            return comes, F.expr(text)  # It asks for columns of the table.
        return marked.alias("source"), F.col(f"source.{_DELETES}")

    def _values(
        self, state: Snapshot, both: DataFrame, matched: Column
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        """Each column's value before; and after, where that can be another.

        :param both: the joined rows.
        :param matched: whether a row of the source takes the place of one of the table's.
        """
        from pyspark.sql import functions as F

        rules, old, new = self._rules, {}, {}
        there = F.col(_THERE).isNotNull()
        own_types = spark_schema(state.schema)
        sets = ColumnExpressions("when_matched", self._source.any_case, self._table.root.url)
        for field in self._types:
            name, kind = field.name, field.dataType
            before = F.lit(None).cast(kind)
            if name in state.schema.names:
                before = F.col(f"target.{quoted(name)}")
                before = cast_by_name(before, own_types[name].dataType, kind)
            comes = F.lit(None).cast(kind)
            if name in self._frame.columns:
                comes = F.col(f"source.{quoted(name)}")
            old[name], after = before, before
            if rules.matched == UPDATE and name in self._frame.columns:
                after = comes
            elif name in rules.sets:
                after = sets.cast(both, name, rules.sets[name], kind)
                after = as_partition_value(after, kind) if name in self._by else after
            new[name] = F.when(matched, after).when(there, before).otherwise(comes)
        return old, new

    def _why_not_repeatable(self) -> str | None:
        for name, text in self._rules.expressions.items():
            if reads_table(text, self._source.own.names):
                return f"{name} is computed from what the table holds"
        if self._rules.not_matched == IGNORE or self._rules.null_safe:
            return None
        if self._source.has_null_keys():
            return "rows with a null key match nothing, so they are inserted each time"
        return None

    def _matches(self, on: Sequence[str]) -> Column:
        from pyspark.sql import functions as F

        sides = [(F.col(f"target.{quoted(n)}"), F.col(f"source.{quoted(n)}")) for n in on]
        if self._rules.null_safe:
            return reduce(and_, [own.eqNullSafe(other) for own, other in sides])
        return reduce(and_, [own == other for own, other in sides])
