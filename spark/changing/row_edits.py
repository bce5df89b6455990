"""Deletion and update of a table's rows by a condition of Spark's SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from ...committer.commit.snapshot import Snapshot
from ...committer.errors import InvalidInputError
from ...committer.format.schema.compatibility import find_column
from ...committer.row_rewrite import TableChange
from ...committer.table import Table
from ...tables import DeltaTable
from ..column_names import quoted
from ..reading.char_columns import as_char
from ..reading.load import state_frame
from ..reading.predicate import refuse_beyond_rows, selected_partitions
from ..session_settings import active_session
from ..types import spark_schema
from .changed_rows import (
    DELETED,
    KIND,
    NEW,
    OLD,
    ROW,
    UNCHANGED,
    UPDATED,
    ChangedRows,
    as_partition_value,
    differ,
    place_of,
    reads_table,
)
from .fixed_times import FixedTimes
from .row_writer import change_table
from .struct_fields import ColumnExpressions, by_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def delete(
    table: str,
    *,
    where: str,
    attempts: int = 3,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> TableChange:
    """Delete the rows that fulfil a condition, by one job that replaces their partitions.

    Rows for which the condition is null stay, as in SQL. A partition that loses its last row has no
    file left.

    :param table: ``s3://bucket/prefix``.
    :param where: a condition, as for ``DataFrame.where``: ``day < '2013-01-01' and user_id = 7``.
        The current time in it, as by ``now()``, is that of the call.
    :param attempts: how often the table may be read, if other jobs change it meanwhile.
    :param options: options of the write, as in :func:`.save_frame.save`.
    :param spark: the session; ``None`` for the active one.
    :returns: a report: numbers of rows deleted and of other rows in the same partitions, and of
        partitions written and left.
    :raises InvalidInputError: an invalid call; nothing was changed.
    :raises CommitConflictError: another job changed a partition, at each attempt; nothing of this
        one is visible.
    """
    return _edited(table, where, None, attempts, options, spark)


def update(
    table: str,
    *,
    set: Mapping[str, str],
    where: str,
    attempts: int = 3,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> TableChange:
    """Change the rows that fulfil a condition, by one job that replaces their partitions.

    :param set: expressions by column: ``{"price": "price * 1.1"}``. If the column is a partition
        column, the row moves.

    The rest is as in :func:`delete`.
    """
    if not set:
        raise InvalidInputError(
            "set names no column; nothing was changed.", remedy="Give set={'column': 'expression'}."
        )
    return _edited(table, where, set, attempts, options, spark)


def _edited(
    url: str,
    where: str,
    sets: Mapping[str, str] | None,
    attempts: int,
    options: Mapping[str, str] | None,
    session: SparkSession | None,
) -> TableChange:
    session = session or active_session()
    if session is None:
        raise InvalidInputError(
            "No Spark session is active; nothing was changed.", remedy="Give spark=, the session."
        )
    refuse_beyond_rows("where", where)
    for name, text in (sets or {}).items():
        refuse_beyond_rows(f"set[{name!r}]", text)

    times = FixedTimes(session)

    def edited(table: Table | DeltaTable, _: object, any_case: bool) -> ChangedRows:
        names = table.schema.names
        fixed = {name: times.of(text, names) for name, text in (sets or {}).items()}
        at_once = None if sets is None else fixed
        return _Edit(session, table, times.of(where, names), at_once, any_case).rows()

    return change_table(session, url, edited, attempts=attempts, options=options)


@dataclass(frozen=True)
class _Edit:
    """Deletion or update of the rows that fulfil a condition.

    :param sets: expressions by column; ``None``: the rows are deleted.
    """

    session: SparkSession
    table: Table | DeltaTable
    where: str
    sets: Mapping[str, str] | None
    any_case: bool

    def rows(self) -> ChangedRows:
        """Read the table's present state, and apply the change to its rows."""
        schema, by = self.table.schema, self.table.partition_by
        while True:
            own = partial(self._column, names=schema.names)
            sets = by_column("set", self.sets or {}, own, self.table.root.url)
            moves = not sets.keys().isdisjoint(by)
            # If rows move, all partitions are read: the condition does not name those that rows
            # move to.
            selected = None if moves else selected_partitions(self.where, schema, by)
            state = self.table.state_to_change(selected)
            if state.has_columns(schema, by):
                break
            schema, by = state.schema, state.partition_by

        def of(partitions: Collection[str]) -> DataFrame:
            return self._classified(state.of(partitions), sets)

        names = schema.names
        reading = [name for name, text in sets.items() if reads_table(text, names, False)]
        why = f"set[{reading[0]!r}] is computed from what the table holds" if reading else None
        frame = self._classified(state, sets)
        return ChangedRows(state, frame, of, schema=schema, why_not_repeatable=lambda: why)

    def _column(self, name: str, names: Collection[str]) -> str:
        found = name if name in names else None
        if found is None and self.any_case:
            found = find_column(name, names)
        if found is None:
            raise InvalidInputError(
                f"set names {name!r}, which is no column of {', '.join(names)}; nothing was "
                "changed.",
                table=self.table.root.url,
                remedy="Name a column of the table.",
            )
        return found

    def _refuse_chance(self, rows: DataFrame, sets: Mapping[str, str], by: Sequence[str]) -> None:
        """Refuse expressions that may choose other rows or partitions at each evaluation.

        They are evaluated for the report, and again for the rows.

        :raises InvalidInputError: an expression uses ``rand()`` or the like.
        """
        moves = {f"set[{name!r}]": text for name, text in sets.items() if name in by}
        for name, text in ({"where": self.where} | moves).items():
            if _is_chance(rows, text):
                raise InvalidInputError(
                    f"{name}={text[:200]!r} is not the same each time that it is evaluated, as "
                    "with rand() or uuid(), and is evaluated more than once. Nothing was changed.",
                    table=self.table.root.url,
                    remedy="Write its values into a column first, and name that column.",
                )

    def _classified(self, state: Snapshot, sets: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as F

        rows = state_frame(self.session, self.table, state)
        self._refuse_chance(rows, sets, state.partition_by)
        fits = F.coalesce(F.expr(self.where), F.lit(False))
        types, by = spark_schema(state.schema), state.partition_by
        expressions = ColumnExpressions("set", self.any_case, self.table.root.url)
        after, changed = {}, F.lit(True)
        for field in types:
            name, kind = field.name, field.dataType
            after[name] = F.col(quoted(name))
            if name in sets:
                value = expressions.cast(rows, name, sets[name], kind)
                value = as_char(value, field, self.session)
                value = as_partition_value(value, kind) if name in by else value
                after[name] = F.when(fits, value).otherwise(F.col(quoted(name)))
        old = place_of((F.col(quoted(name)), types[name].dataType) for name in by)
        new = place_of((after[name], types[name].dataType) for name in by)
        if sets:
            differing = [
                differ(F.col(quoted(f.name)), after[f.name], f.dataType)
                for f in types
                if f.name in sets
            ]
            changed = reduce(or_, differing, ~old.eqNullSafe(new))
        kind = F.when(fits & changed, F.lit(UPDATED if sets else DELETED))
        return rows.select(
            kind.otherwise(F.lit(UNCHANGED)).alias(KIND),
            old.alias(OLD),
            new.alias(NEW),
            F.struct(*(column.alias(name) for name, column in after.items())).alias(ROW),
        )


def _is_chance(rows: DataFrame, text: str) -> bool:
    """Return whether an expression may have another value each time that it is evaluated.

    Spark refuses such an expression in a join's condition. This is the only test that a session of
    Spark Connect offers.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    other = rows.sparkSession.range(1).select(F.lit(1).alias("zero_rename.chance"))
    try:
        rows.join(other, F.expr(text).isNotNull(), "left_semi").schema  # noqa: B018 - analysed
    except AnalysisException as error:
        return "INVALID_NON_DETERMINISTIC_EXPRESSIONS" in str(error)  # Others are reported later.
    return False
