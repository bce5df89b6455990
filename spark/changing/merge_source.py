"""Source and rules of a merge: a frame with one row for each key and with the table's columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from ...committer.errors import (
    InvalidInputError,
    TableMismatchError,
    TableNotFoundError,
    UnsupportedTypeError,
)
from ...committer.format.schema.compatibility import check_same, find_column
from ...committer.format.schema.evolution import evolved
from ...committer.format.schema.row_metadata import renamed
from ...committer.format.schema.spark_types import in_own_types
from ...committer.merge_request import IGNORE, UPDATE, MergeRequest, several_rows
from ...committer.table import Table
from ...tables import DeltaTable
from ..column_names import quoted
from ..reading.char_columns import as_char
from ..reading.predicate import refuse_beyond_rows
from ..session_settings import is_ansi, is_on
from ..types import spark_schema, table_schema
from .changed_rows import as_directory, as_partition_value, partitions_of
from .fixed_times import COMMENTS, texts_of_sql
from .struct_fields import by_column, cast_by_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Spark setting by which texts in double quotes are names, in ANSI mode.
_QUOTED_NAMES = "spark.sql.ansi.doubleQuotedIdentifiers"
#: A side of the merge, before a name.
_SIDE = r"(?<![.\w])(?:source|target|`source`|`target`)(?=\s*\.)"
#: A table's columns, and its partition columns.
ColumnsRead = tuple[pa.Schema, tuple[str, ...]]


@dataclass(frozen=True)
class MergeRules(MergeRequest):
    """Rules of a merge for the rows that match, and for those that do not.

    :param matched: ``update``, ``ignore``, or expressions by column.
    :param evolves: the table gets the frame's new columns and wider types.
    """

    matched: str | Mapping[str, str] = UPDATE
    delete_when: str | None = None
    evolves: bool = False

    def __post_init__(self) -> None:
        """Check the rules.

        :raises InvalidInputError: an unknown choice, no key, or an expression that cannot be
            evaluated for each row.
        """
        super().__post_init__()
        for name, text in self.expressions.items():
            refuse_beyond_rows(name, text)

    def _check_matched(self, besides: str = ", or give expressions by column") -> None:
        if isinstance(self.matched, str):
            super()._check_matched(besides)

    @property
    def sets(self) -> Mapping[str, str]:
        """Expressions for matched rows, by column."""
        return {} if isinstance(self.matched, str) else self.matched

    @property
    def expressions(self) -> Mapping[str, str]:
        """All expressions, by the argument that has them."""
        found = {f"when_matched[{name!r}]": text for name, text in self.sets.items()}
        return found if self.delete_when is None else {**found, "delete_when": self.delete_when}

    def serves(self, column: str, session: SparkSession) -> bool:
        """Return whether an expression or ``latest_by`` names a column.

        :param session: the session that evaluates the expressions.
        """
        if (self.latest_by or "").lower() == column.lower():
            return True
        named = re.compile(rf"(?<!\w){re.escape(column)}(?!\w)", re.IGNORECASE)
        return any(named.search(_names_in(it, session)) for it in self.expressions.values())


def _names_in(text: str, session: SparkSession) -> str:
    """Return an expression without its texts, its comments and the sides that it names.

    A word in a text, such as ``op = 'closed'``, and ``source`` in ``source.op`` name no column.
    """
    are_names = is_ansi(session) and is_on(session, _QUOTED_NAMES)

    def kept(part: re.Match[str]) -> str:
        is_name = part["name"] or (are_names and part[0].startswith('"'))
        return part[0] if is_name else " "

    parts = rf"{_SIDE}|(?P<name>`[^`]*`)|{texts_of_sql(session)}|{COMMENTS}"
    return re.sub(parts, kept, text, flags=re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class MergeSource:
    """A frame to merge, checked against the columns of its table.

    :param frame: its rows, one for each key, in the table's types. It also has the columns that
        only conditions use.
    :param rules: the rules, with the columns' names as in the table.
    :param own: the table's columns; the frame's if there is no table yet.
    :param schema: the table's columns after the merge.
    :param by: its partition columns.
    :param is_first: there is no table yet.
    :param any_case: column names are compared without regard to case.
    """

    table: Table | DeltaTable
    frame: DataFrame
    rules: MergeRules
    own: pa.Schema
    schema: pa.Schema
    by: tuple[str, ...]
    is_first: bool
    any_case: bool

    @staticmethod
    def of(
        table: Table | DeltaTable,
        frame: DataFrame,
        rules: MergeRules,
        partition_by: Sequence[str],
        any_case: bool,
        columns: ColumnsRead | None = None,
    ) -> MergeSource:
        """Check and convert a frame and rules for a table.

        :param partition_by: partition columns of a table that does not exist yet.
        :param any_case: column names are compared without regard to case.
        :param columns: the table's columns in a state; ``None``: those that it has now.
        :raises InvalidInputError: invalid rules, keys or columns.
        :raises UnsupportedTypeError: a key column's type has no sure equality.
        :raises TableMismatchError: the frame's columns do not fit the table's.
        """
        stored = table_schema(frame.schema, partition_by)
        is_first = False
        try:
            own, by = columns or (table.schema, table.partition_by)
        except TableNotFoundError:
            own, by, is_first = stored, tuple(partition_by), True
        reading = _SourceReading(table.root.url, frame, own, by, any_case)
        rules = reading.in_its_case(rules)
        reading.check_partition_columns()
        reading.check_moves(rules)
        schema = reading.merged_schema(stored, rules, is_first)
        reading.check_sets(rules, schema)
        aligned = reading.aligned(schema)
        source = MergeSource(table, aligned, rules, own, schema, by, is_first, any_case)
        source._check_keys()
        return replace(source, frame=source._one_a_key())

    @property
    def types(self) -> StructType:
        """The columns of the table after the merge, as Spark types."""
        return spark_schema(self.schema)

    def places(self) -> set[str]:
        """Return the partitions that it has rows for."""
        return partitions_of(self.frame, self.schema, self.by)

    def has_null_keys(self) -> bool:
        """Return whether a key of any row is null."""
        return bool(self.frame.where(reduce(or_, self._nulls())).limit(1).collect())

    def _check_keys(self) -> None:
        for name in self.rules.on:
            kind = self.types[name].dataType
            text = kind.simpleString()
            if text in ("float", "double", "void") or re.match(r"array|map|struct|variant", text):
                raise UnsupportedTypeError(
                    f"The key column {name!r} is of type {text}, whose values are not surely equal "
                    "where they are the same; nothing was merged.",
                    table=self.table.root.url,
                    remedy="Merge by columns of whole numbers, texts, dates, times or decimals.",
                )

    def _one_a_key(self) -> DataFrame:
        """Return the source with one row for each key.

        :raises InvalidInputError: several rows have the same key, and ``latest_by`` does not choose
            one of them.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        rules, source = self.rules, self.frame
        keys = [F.col(quoted(name)) for name in rules.on]
        named = dict.fromkeys(rules.on)
        if not rules.across:
            places = [as_directory(F.col(quoted(it)), self.types[it].dataType) for it in self.by]
            keys += [place.alias(f"zero_rename_place{n}") for n, place in enumerate(places)]
            named |= dict.fromkeys(self.by)
        free = F.lit(False) if rules.null_safe else reduce(or_, self._nulls())
        if rules.latest_by is not None:
            latest = F.col(quoted(rules.latest_by))
            last = F.max(latest).over(Window.partitionBy(*keys))
            mark = "zero_rename_is_last"
            source = source.withColumn(mark, free | latest.eqNullSafe(last))
            source = source.where(mark).drop(mark)
        shown = [F.first(quoted(it)).alias(f"zero_rename_key{n}") for n, it in enumerate(named)]
        rows = "zero_rename_rows"
        doubled = source.where(~free).groupBy(*keys).agg(F.count("*").alias(rows), *shown)
        example = F.first(F.struct(*(f"zero_rename_key{n}" for n in range(len(named)))))
        counted = doubled.where(F.col(rows) > 1).agg(F.count("*"), example)
        found, values = counted.collect()[0]
        if not found:
            return source
        key = ", ".join(f"{name}={value!r}" for name, value in zip(named, values, strict=True))
        raise several_rows("frame", found, key, rules.latest_by, self.table.root.url)

    def _nulls(self) -> list[Column]:
        from pyspark.sql import functions as F

        return [F.col(quoted(name)).isNull() for name in self.rules.on]


@dataclass(frozen=True)
class _SourceReading:
    """Conversion of a frame to the table's columns.

    :param any_case: column names are compared without regard to case.
    """

    url: str
    frame: DataFrame
    own: pa.Schema
    by: Sequence[str]
    any_case: bool

    def _named(self, name: str, among: Sequence[str]) -> str | None:
        if name in among or not self.any_case:
            return name if name in among else None
        return find_column(name, among)

    def in_its_case(self, rules: MergeRules) -> MergeRules:
        """Return the rules with the columns' names as in the table.

        :raises InvalidInputError: a name is not that of a column.
        """
        own, given = self.own.names, self.frame.columns

        def known(name: str, what: str, among: Sequence[str]) -> str:
            found = self._named(name, among)
            if found is None:
                raise InvalidInputError(
                    f"{what} names {name!r}, which is no column of {', '.join(among)}; nothing was "
                    "merged.",
                    table=self.url,
                    remedy="Name a column of both the table and the frame.",
                )
            return self._named(found, own) or found

        for name in rules.on:
            known(name, "on", own)
        on = tuple(known(name, "on", given) for name in rules.on)
        latest = rules.latest_by and known(rules.latest_by, "latest_by", given)
        every = partial(known, what="when_matched", among=[*own, *given])
        sets = by_column("when_matched", rules.sets, every, self.url)
        return replace(rules, on=on, latest_by=latest, matched=sets or rules.matched)

    def check_partition_columns(self) -> None:
        """Check that the frame has all partition columns.

        :raises InvalidInputError: it does not.
        """
        for name in self.by:
            if self._named(name, self.frame.columns) is None:
                raise InvalidInputError(
                    f"The frame has no column {name!r}, by which the table is partitioned: nothing "
                    "says where its rows belong. Nothing was merged.",
                    table=self.url,
                    remedy="Add the column to the frame.",
                )

    def check_moves(self, rules: MergeRules) -> None:
        """Refuse to move rows to partitions whose keys are not searched.

        :raises InvalidInputError: an expression computes a partition column, without
            ``across_partitions``.
        """
        named = [name for name in rules.sets if name in self.by]
        if named and not rules.across:
            raise InvalidInputError(
                f"when_matched[{named[0]!r}]={rules.sets[named[0]]!r} moves rows to other "
                "partitions, and across_partitions is not given: rows are looked for in their own "
                "partition alone. Nothing was merged.",
                table=self.url,
                remedy="Give across_partitions=True, or leave that column out of when_matched.",
            )

    def merged_schema(self, stored: pa.Schema, rules: MergeRules, is_first: bool) -> pa.Schema:
        """Return the table's columns after the merge.

        :param stored: the frame's columns, as they would be stored.
        :raises TableMismatchError: the frame's columns do not fit the table's.
        """
        own = self.own
        names = [self._named(name, own.names) or name for name in stored.names]
        stored = renamed(stored, names)
        if is_first:
            return stored  # Columns that a condition uses may be the table's, too.
        stored = in_own_types(stored, own)
        for name in names:
            # Such a column is only for conditions and expressions, and does not go into the table.
            if name not in own.names and rules.serves(name, self.frame.sparkSession):
                stored = stored.remove(stored.get_field_index(name))
        if rules.evolves:
            return evolved(own, stored, self.by, url=self.url)
        wanted = own
        if rules.matched != UPDATE and rules.not_matched == IGNORE:
            wanted = pa.schema([field for field in own if field.name in stored.names])
        try:
            check_same(wanted, stored, table=self.url)
        except TableMismatchError as error:
            error.remedy = (
                "Select and cast the frame's columns to the table's; or give schema_mode='merge', "
                "by which new columns and wider types become the table's, and columns that the "
                "frame lacks stay as they are."
            )
            raise
        return own

    def check_sets(self, rules: MergeRules, schema: pa.Schema) -> None:
        """Refuse expressions for columns that the table does not get.

        :param schema: the table's columns after the merge.
        :raises InvalidInputError: there is one.
        """
        for name, text in rules.sets.items():
            if name not in schema.names:
                raise InvalidInputError(
                    f"when_matched[{name!r}]={text[:200]!r} is for a column that the table does "
                    "not have: a column of the frame that an expression names is not written. "
                    "Nothing was merged.",
                    table=self.url,
                    remedy="Leave it out of when_matched; or add the column to the table first, by "
                    "a save() with mergeSchema.",
                )

    def aligned(self, schema: pa.Schema) -> DataFrame:
        """Return the frame with the names and types of a schema; struct fields match by name."""
        from pyspark.sql import functions as F

        types, columns = spark_schema(schema), []
        for name in self.frame.columns:
            own = self._named(name, schema.names) or name
            column = F.col(quoted(name))
            if own in schema.names:
                kind = types[own].dataType
                column = cast_by_name(column, self.frame.schema[name].dataType, kind)
                # As the table's own column is read.
                column = as_char(column, types[own], self.frame.sparkSession)
                column = as_partition_value(column, kind) if own in self.by else column
            columns.append(column.alias(own))
        return self.frame.select(*columns)
