"""Join of a merge's source with a state of its table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from ...committer.commit.snapshot import Snapshot, state_without_table
from ...committer.errors import SnapshotGoneError, ZeroRenameError
from ...committer.format.job_spec import SchemaMode
from ...committer.merge_request import IGNORE, INSERT, UPDATE
from ..column_names import quoted
from ..reading.char_columns import as_char
from ..reading.load import state_frame
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
    as_directory,
    as_partition_value,
    differ,
    partitions_of,
    place_of,
    reads_table,
)
from .merge_source import ColumnsRead, MergeSource
from .struct_fields import ColumnExpressions, cast_by_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Marks of a join's two sides.
_THERE, _COMES = "zero_rename_is_there", "zero_rename_comes"
_DELETES = "zero_rename_deletes"
#: Key values that can be written into a condition as they are.
_PLAIN = re.compile(r"[\w .:+-]*", re.ASCII)


def merged_rows(read: Callable[[ColumnsRead | None], MergeSource]) -> ChangedRows:
    """Join a merge's source with a state of its table, by the columns of that state.

    :param read: reads the source with a table's columns and partition columns; ``None``: with those
        that the table has now.
    :raises SnapshotGoneError: files of the state were replaced while it was read.
    """
    join = MergeJoin(read(None))
    touched = join.places()
    while True:
        state = join.state(touched)
        if not join.is_of(state):
            join = MergeJoin(read((state.schema, state.partition_by)))
            touched = join.places()
            continue
        rows = join.rows(state)
        try:
            with join.reading(state):
                more = rows.counts.rows.keys()
        except Exception:
            rows.release()
            raise
        if more <= set(state.asked or ()):
            return rows
        rows.release()
        touched = touched | more


class MergeJoin:
    """Join of one attempt of a merge: it reads a state, and finds the kind of each row."""

    def __init__(self, source: MergeSource) -> None:
        self._source = source
        self._table = source.table
        self._frame = source.frame
        self._session = source.frame.sparkSession
        self._rules = source.rules
        self._by = source.by
        self._types = source.types

    def places(self) -> set[str]:
        """Return the partitions that the source has rows for."""
        return self._source.places()

    def is_of(self, state: Snapshot) -> bool:
        """Return whether the source was read with the columns of a state."""
        return state.has_columns(self._source.own, self._by)

    def state(self, touched: Collection[str]) -> Snapshot:
        """Read the state of the partitions that may be changed.

        :param touched: the partitions that rows of the source lie in, or move to.
        """
        nothing = None
        if self._source.is_first:
            nothing = state_without_table(self._table.root, self._source.own, self._by)
        across = self._rules.across and bool(self._by)
        return self._table.state_to_merge(touched, across, self._with_keys, nothing)

    @contextmanager
    def reading(self, state: Snapshot) -> Iterator[None]:
        """Replace an error of Spark's reader in the block if files of the state were replaced.

        Spark's reader raises its own error for a missing file.

        :raises SnapshotGoneError: an error was raised, and the table has changed since the state
            was read.
        """
        try:
            yield
        except ZeroRenameError:
            raise
        except Exception as error:
            if not self._table.has_moved(state):
                raise
            raise SnapshotGoneError(
                "Partitions were replaced while their rows were read. Nothing was merged.",
                table=self._table.root.url,
                remedy="Merge again.",
            ) from error

    def _with_keys(self, whole: Snapshot) -> set[str]:
        """Return the partitions that hold keys of the source."""
        if not self.is_of(whole):
            return set()  # The source will be read again, with the columns of that state.
        columns = [*dict.fromkeys([*self._rules.on, *self._by])]
        where = self._key_range()
        keys = state_frame(self._session, self._table, whole, columns, where)
        keys = keys.alias("target").join(
            self._frame.alias("source"), self._matches(self._rules.on), "left_semi"
        )
        with self.reading(whole):
            return partitions_of(keys, whole.schema, self._by)

    def _key_range(self) -> str | None:
        """Return a condition on the first key column that is true for all rows that can match.

        Files that it excludes by their statistics are not read. ``None``: no condition.
        """
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

    def rows(self, state: Snapshot) -> ChangedRows:
        """Join the source with a state, and find the kind of each row."""
        from pyspark.sql import functions as F

        rules = self._rules
        there = state_frame(self._session, self._table, state)
        there = there.withColumn(_THERE, F.lit(True)).alias("target")
        comes, deletes = self._with_deletions(self._frame.withColumn(_COMES, F.lit(True)), there)
        how = "full_outer" if rules.not_matched == INSERT else "left_outer"
        both = there.join(comes, self._matches(rules.on), how)
        matched = F.col(_THERE).isNotNull() & F.col(_COMES).isNotNull() & ~self._is_late(state)
        deletes = F.coalesce(deletes, F.lit(False))
        old, new = self._values(state, both, matched)
        left, goes_to = (
            place_of((values[name], self._types[name].dataType) for name in self._by)
            for values in (old, new)
        )
        changed = reduce(
            or_,
            [differ(old[f.name], new[f.name], f.dataType) for f in self._types],
            ~left.eqNullSafe(goes_to),
        )
        kind = (
            F.when(F.col(_THERE).isNull(), F.when(~deletes, F.lit(INSERTED)))
            .when(~matched, F.lit(UNCHANGED))
            .when(deletes, F.lit(DELETED))
            .when(changed, F.lit(UPDATED))
            .otherwise(F.lit(UNCHANGED))
        )
        after = [new[f.name].alias(f.name) for f in self._types]
        frame = both.select(
            kind.alias(KIND), left.alias(OLD), goes_to.alias(NEW), F.struct(*after).alias(ROW)
        )
        frame = frame.where(F.col(KIND).isNotNull()).persist()
        return ChangedRows(
            state,
            frame,
            schema=self._source.schema,
            schema_mode=SchemaMode.MERGE if rules.evolves else SchemaMode.KEEP,
            brings_rows=True,
            why_not_repeatable=self._why_not_repeatable,
            why_not_inserted=self._why_not_inserted(),
        )

    def _is_late(self, state: Snapshot) -> Column:
        """Make a condition that is true if the table's row of a pair is later than the source's."""
        from pyspark.sql import functions as F

        name = self._rules.latest_by
        if name is None or name not in state.schema.names:
            return F.lit(False)
        own, given = (F.col(f"{side}.{quoted(name)}") for side in ("target", "source"))
        return F.coalesce(own > given, own.isNotNull() & given.isNull())

    def _with_deletions(self, comes: DataFrame, there: DataFrame) -> tuple[DataFrame, Column]:
        """Return the source with the alias ``source``, and the deletion condition of joined rows.

        A name without a prefix is the source's column, even if the table has one of that name.

        :param there: the table's rows, with the alias ``target``.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        comes, text = comes.alias("source"), self._rules.delete_when
        if text is None:
            return comes, F.lit(False)
        try:
            marked = comes.withColumn(_DELETES, F.expr(text))
            _ = marked.schema  # Spark Connect checks names only here.
        except AnalysisException:
            # The condition uses columns of the table.
            return comes, self._over_both(text, there.crossJoin(comes))
        return marked.alias("source"), F.col(f"source.{_DELETES}")

    def _over_both(self, text: str, both: DataFrame) -> Column:
        """Make the condition of joined rows in which a name that both sides have is the source's.

        In Spark's SQL only an argument of a function takes such a name from a column.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        try:
            _ = both.select(F.expr(text)).schema
        except AnalysisException as error:
            if "AMBIGUOUS_REFERENCE" not in str(error):
                raise
        else:
            return F.expr(text)
        twice = [name for name, often in Counter(both.columns).items() if often > 1]
        for name in (it for it in twice if self._rules.serves(it, self._session)):
            column = quoted(name)
            found = f"transform(array(source.{column}), {column} -> ({text}\n))"
            text = f"element_at({found}, 1)"
        return F.expr(text)

    def _values(
        self, state: Snapshot, both: DataFrame, matched: Column
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        """Return each column's values before and after the merge.

        :param both: the joined rows.
        :param matched: condition that a row of the source replaces a row of the table.
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
                after = as_char(after, field, self._session)
                after = as_partition_value(after, kind) if name in self._by else after
            new[name] = F.when(matched, after).when(there, before).otherwise(comes)
        return old, new

    def _why_not_repeatable(self) -> str | None:
        # A bare name that both sides have is the source's.
        table_only = [it for it in self._source.own.names if it not in self._frame.columns]
        for name, text in self._rules.expressions.items():
            if reads_table(text, table_only):
                return f"{name} is computed from what the table holds"
        if self._rules.not_matched == IGNORE or self._rules.null_safe:
            return None
        if self._source.has_null_keys():
            return "rows with a null key match nothing, so they are inserted each time"
        return None

    def _why_not_inserted(self) -> str | None:
        """Return why the merge would update a row that it has inserted; ``None``: it would not."""
        if self._rules.not_matched == IGNORE:
            return None
        for name, text in self._rules.sets.items():
            own = rf"\s*(?:`?source`?\s*\.\s*)?`?{re.escape(name)}`?\s*"
            if not re.fullmatch(own, text, re.IGNORECASE):
                return f"{name} of the rows that it has inserted would be computed by when_matched"
        return None

    def _matches(self, on: Sequence[str]) -> Column:
        """Make the condition that a row of the table and a row of the source match.

        Their keys have to be equal, and also their partitions unless the merge searches keys across
        partitions. Without the partitions, a match would depend on which other rows the source
        has.
        """
        from pyspark.sql import functions as F

        def sides(name: str) -> tuple[Column, Column]:
            return F.col(f"target.{quoted(name)}"), F.col(f"source.{quoted(name)}")

        found = [own.eqNullSafe(other) for own, other in map(sides, on)]
        if not self._rules.null_safe:
            found = [own == other for own, other in map(sides, on)]
        for name in () if self._rules.across else self._by:
            kind = self._types[name].dataType
            own, other = (as_directory(side, kind) for side in sides(name))
            found.append(own.eqNullSafe(other))
        return reduce(and_, found)
