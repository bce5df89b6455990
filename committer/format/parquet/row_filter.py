"""Filter of a table's rows by a condition, and the rows that it need not read.

The values of a partition, or the statistics of a row group, give a *guarantee*: an expression that
is true for each of its rows. Arrow simplifies the condition by it
(``Expression::SimplifyWithGuarantee``, reached through a fragment's ``partition_expression``). If
only false or null is left, no row need be read.

Parquet's statistics leave NaN out (parquet-format, ``ColumnOrder``), and Arrow's own fragments
treat them as complete: ``x != 1`` then loses a NaN beside ones. So a column of floating point gives
two guarantees, its bounds and NaN, and a row group is left out if neither of them lets a row
through.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import product
from operator import and_
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from ...errors import InvalidInputError
from ..records.data_file import DataFile
from ..schema.types import find_column
from .calendars import FileCalendar
from .column_bounds import chunk_bounds, flat_columns, has_bounds, is_ordered, recorded_bounds
from .log_bounds import logged_bounds

T = TypeVar("T")
#: Type of a condition in a call: an expression, or lists of comparisons as in pyarrow and pandas.
Filter = pc.Expression | Sequence

#: Most characters of a condition that is recorded.
_LONGEST = 20_000
#: Most columns of floating point whose statistics are used: each doubles the guarantees.
_MOST_FLOATS = 3
_ASKS_FOR_NAN = re.compile(r"\bnan\b")
#: Beginning of the text of a condition that is unsure for null and NaN.
_UNSURE = "?"
#: Arrow's form of a test for one of several values.
_IS_IN = "is_in"
#: Arrow's form of any function.
_FUNCTION = re.compile(r"\b([a-z]\w*)\(")
#: Arrow's form of a comparison with such a test.
_COMPARED_SET = re.compile(r"\}\) [=!<>]")
#: Arrow's form of a column that a condition names by its number.
_NUMBERED = re.compile(r"FieldPath\((\d+)")
_NULL = re.compile(r"\s*(?P<column>\w+|`[^`]+`)\s+is\s+(?P<not>not\s+)?null\s*", re.IGNORECASE)
_COMPARED = re.compile(
    r"\s*(?P<column>\w+|`[^`]+`)\s*(?P<how><=|>=|!=|=|<|>)\s*"
    r"(?:'(?P<quoted>(?:[^']|'')*)'|(?P<bare>[^'\s]+))\s*"
)
_REMEDY = (
    "Give an expression over the table's columns, such as pyarrow.compute.field('delay') > 15, or "
    "comparisons: [('delay', '>', 15), ('origin', '=', 'JFK')]."
)


class RowFilter:
    """Filter for the rows of a table by a condition.

    It keeps the rows for which the condition is true.

    :param conditions: conditions that all must be true. Each is an expression, or comparisons as
        ``pyarrow.parquet.read_table`` takes them: all of a list must be true, any of a list of
        lists.
    :param schema: the table's schema, partition columns included.
    :raises InvalidInputError: an invalid condition over these columns.
    """

    def __init__(self, conditions: Sequence[Filter], schema: pa.Schema) -> None:
        self._expression = reduce(and_, map(_expression, conditions))
        self._schema = schema
        self.columns = self._find_columns()
        self._asks_for_nan = _ASKS_FOR_NAN.search(self._text) is not None

    def _find_columns(self) -> tuple[str, ...]:
        """Return the columns that the condition uses.

        Of the columns whose names are in its text, they are those without which it cannot be
        evaluated.
        """
        try:
            self._schema.empty_table().filter(self._expression)
        except (pa.ArrowException, TypeError) as error:
            raise InvalidInputError(
                f"The filter does not fit the table's columns: {_sentence(error)}.", remedy=_REMEDY
            ) from error
        if self._numbers:
            return tuple(
                name
                for number, name in enumerate(self._schema.names)
                if number in self._numbers or self._uses_name(number)
            )
        named = [name for name in self._schema.names if name in self._text]
        if not self._is_evaluated_by(named):
            return tuple(self._schema.names)  # Arrow has cut a name off.
        for name in tuple(named):
            fewer = [other for other in named if other != name]
            named = fewer if self._is_evaluated_by(fewer) else named
        return tuple(named)

    @cached_property
    def _text(self) -> str:
        """Condition as Arrow prints it; if Arrow cannot print it, all names of columns."""
        try:
            return str(self._expression)
        except UnicodeDecodeError as error:  # Arrow cuts long texts off, even within a character.
            shown = error.object.decode(errors="replace")
            return " ".join(["nan", *self._schema.names, shown])

    @cached_property
    def _numbers(self) -> frozenset[int]:
        """Columns that the condition names by their number in the schema.

        Among other columns these numbers mean others.
        """
        return frozenset(map(int, _NUMBERED.findall(self._text)))

    def _uses_name(self, number: int) -> bool:
        """Return whether the condition uses the name of a column."""
        field = self._schema.field(number).with_name("")
        try:
            self._schema.set(number, field).empty_table().filter(self._expression)
        except (pa.ArrowException, TypeError):
            return True
        return False

    def _is_evaluated_by(self, names: Sequence[str]) -> bool:
        try:
            self._schema.empty_table().select(names).filter(self._expression)
        except (pa.ArrowException, TypeError):
            return False
        return True

    def encode(self, partition_by: Collection[str]) -> str | None:
        """Return the condition as a text, which :meth:`decode` reads again.

        ``None``: it cannot be written as Substrait, or is too long.

        :param partition_by: the partition columns, on whose values it will be tested later.
        """
        import pyarrow.substrait as ps  # Imported on use: not every build of Arrow has it.

        asked = {*self.columns} if self.is_about(partition_by) else {*self.columns, *partition_by}
        if self._numbers:
            asked = {*self._schema.names}
        names = [name for name in self._schema.names if name in asked]
        try:
            schema = pa.schema([pa.field(n, self._schema.field(n).type) for n in names])
            said = ps.serialize_expressions([self._expression], ["kept"], schema)
        except (pa.ArrowException, TypeError):
            return None
        text = base64.b64encode(bytes(said)).decode()
        if len(text) > _LONGEST:
            return None
        return f"{_UNSURE}{text}" if self._is_unsure_as(RowFilter.decode(text)) else text

    def _is_unsure_as(self, kept: RowFilter) -> bool:
        """Return whether the condition that was read from a text may differ for null and NaN.

        Substrait has no ``is_in``: it becomes comparisons, which are null for null where ``is_in``
        is true or false, and false for NaN. A filter treats null as false, so this counts only for
        null or NaN among the values, and below other functions, such as ``invert``.
        """
        if _IS_IN not in self._text:
            return False
        if {*_FUNCTION.findall(self._text)} - {_IS_IN} or _COMPARED_SET.search(self._text):
            return True
        return "null[" in kept._text or kept._asks_for_nan

    @staticmethod
    def decode(text: str) -> RowFilter:
        """Read a condition from a text by :meth:`encode`, over the columns that it had then.

        :raises ValueError: the text is not a condition.
        """
        import pyarrow.substrait as ps

        try:
            body = base64.b64decode(text.removeprefix(_UNSURE), validate=True)
            said = ps.deserialize_expressions(body)
            (expression,) = said.expressions.values()
            kept = _KeptFilter([expression], said.schema)
            kept.is_unsure = text.startswith(_UNSURE)
            return kept
        except (pa.ArrowException, InvalidInputError, TypeError, ValueError) as error:
            raise ValueError("is no condition over a table's columns") from error

    #: True if the condition may be wrong for rows with null or NaN, since a text could not keep it.
    is_unsure = False

    @property
    def schema(self) -> pa.Schema:
        """Columns that the condition may use."""
        return self._schema

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted rows of a batch.

        :param batch: a batch with the columns :attr:`columns`, in the table's types.
        """
        if self._fits(batch.schema.names):
            return batch.filter(self._expression)
        return batch.filter(self.holds(pa.Table.from_batches([batch])))

    def drop(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the other rows of a batch: those for which the condition is false or null."""
        if self._fits(batch.schema.names):
            return batch.filter(~self._is_true)
        held = self.holds(pa.Table.from_batches([batch]))
        return batch.filter(pc.call_function("invert", [held]))

    def holds(self, table: pa.Table) -> pa.Array:
        """Return for each row of a table whether the condition is true."""
        import pyarrow.dataset as ds  # Imported on use: it is slow, and few commands need it.

        found = ds.dataset(self._in_place(table)).to_table(columns={"holds": self._is_true})
        return pa.concat_arrays(found["holds"].chunks or [pa.array([], pa.bool_())])

    def _fits(self, names: Sequence[str]) -> bool:
        """Return whether the condition means the same columns among these as in the schema."""
        return not self._numbers or names[: len(self._schema)] == self._schema.names

    def _in_place(self, table: pa.Table) -> pa.Table:
        """Return a table in which the condition means the columns that it means in the schema.

        Columns that the condition does not use may be missing; they become null.
        """
        if self._fits(table.column_names):
            return table
        columns = [
            table[field.name]
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in self._schema
        ]
        return pa.table(columns, names=self._schema.names)

    @property
    def _is_true(self) -> pc.Expression:
        """Condition with false instead of null."""
        return pc.coalesce(self._expression, pc.scalar(False))

    def is_about(self, columns: Collection[str]) -> bool:
        """Return whether the condition uses only these columns."""
        return set(self.columns) <= set(columns)

    def may_keep(self, constants: Mapping[str, pa.Scalar]) -> bool:
        """Return whether rows with these values of some columns may be wanted.

        If the condition uses only these columns, the answer is exact.
        """
        may = self._may_hold(_is(pc.field(name), value) for name, value in constants.items())
        if not may or not self.columns or not self.is_about(constants):
            return may
        # This test is exact, and twenty times slower.
        row = {name: pa.array([constants[name]]) for name in self.columns}
        return bool(self._in_place(pa.table(row)).filter(self._expression).num_rows)

    def row_groups(
        self,
        file: pq.ParquetFile,
        constants: Mapping[str, pa.Scalar],
        lacking: Collection[str] = (),
    ) -> Sequence[int]:
        """Return the row groups of a file that may have wanted rows.

        :param constants: the values of the partition columns.
        :param lacking: columns that the file does not have: they are null in all of its rows.
        """
        known = [_is(pc.field(name), value) for name, value in constants.items()]
        known += [pc.field(name).is_null() for name in lacking]
        columns = self._with_statistics(file)
        calendar = FileCalendar.of(file.metadata.metadata)
        return [
            group
            for group in range(file.num_row_groups)
            if self._may_group(file.metadata.row_group(group), columns, known, calendar)
        ]

    def may_be_in(self, file: DataFile, constants: Mapping[str, pa.Scalar]) -> bool:
        """Return whether a file may have wanted rows, by the recorded bounds of its columns.

        :param constants: the values of its partition columns.
        """
        found = recorded_bounds(file.summary, self._schema, self.columns)
        found |= logged_bounds(file.statistics, self._schema, self.columns)
        choices = [
            bounds.guarantees(self._schema.field(name), file.rows)
            for name, bounds in self._few_floats(found)
        ]
        known = [_is(pc.field(name), value) for name, value in constants.items()]
        return not choices or any(self._may_hold((*known, *one)) for one in product(*choices))

    def _few_floats(self, found: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        """Yield the items of ``found``, of columns of floating point only the first few."""
        floats = 0
        for name, what in found.items():
            is_floating = pt.is_floating(self._schema.field(name).type)
            floats += is_floating
            if not is_floating or floats <= _MOST_FLOATS:
                yield name, what

    def _with_statistics(self, file: pq.ParquetFile) -> list[tuple[int, pa.DataType, pa.Field]]:
        """Return index, stored type and field of each column whose statistics can be used."""
        found = {
            name: (leaf, kind, self._schema.field(name))
            for name, (leaf, kind) in flat_columns(file.schema, file.schema_arrow).items()
            if name in self.columns
            and file.schema.column(leaf).physical_type != "INT96"
            and has_bounds(kind, self._schema.field(name).type)
            and is_ordered(kind, file.metadata.created_by)
        }
        return [column for _, column in self._few_floats(found)]

    def _may_group(
        self,
        group: pq.RowGroupMetaData,
        columns: Sequence[tuple[int, pa.DataType, pa.Field]],
        known: Sequence[pc.Expression],
        calendar: FileCalendar,
    ) -> bool:
        choices = []
        for index, kind, field in columns:
            bounds = chunk_bounds(group.column(index).statistics, kind, field.type)
            if bounds.low is not None and not calendar.keeps(bounds.low):
                bounds = replace(bounds, low=None, high=None)
            choices.append(bounds.guarantees(field, group.num_rows))
        return any(self._may_hold((*known, *chosen)) for chosen in product(*choices))

    def _may_hold(self, guarantees: Iterable[pc.Expression]) -> bool:
        """Return whether the condition can be true for rows for which all ``guarantees`` are.

        Arrow (26.0) takes each comparison with NaN for true below a bound, though none is. So a
        condition with such a comparison can always be true here.
        """
        if self._asks_for_nan:
            return True
        import pyarrow.dataset as ds  # Imported on use: it loads pandas.

        known = tuple(guarantees)
        guarantee, kind = reduce(and_, known) if known else pc.scalar(True), ds.ParquetFileFormat()
        nothing = kind.make_fragment(pa.py_buffer(b""), partition_expression=guarantee)
        try:
            dataset = ds.FileSystemDataset([nothing], self._schema, kind)
            return next(iter(dataset.get_fragments(self._expression)), None) is not None
        except pa.ArrowException:
            return True  # For example an arithmetic error, which perhaps no row has.


def _expression(condition: Filter) -> pc.Expression:
    if isinstance(condition, pc.Expression):
        return condition
    try:
        if isinstance(condition, str):
            raise ValueError(f"it is the text {condition!r}")
        return pq.filters_to_expression(condition)
    except (ValueError, TypeError, pa.ArrowException) as error:
        said = f"The filter cannot be read: {_sentence(error)}."
        raise InvalidInputError(said, remedy=_REMEDY) from error


def _sentence(error: Exception) -> str:
    """Return Arrow's message in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")


class _KeptFilter(RowFilter):
    """Filter by a condition read from a text, which refers to columns by number."""

    def _find_columns(self) -> tuple[str, ...]:
        self._schema.empty_table().filter(self._expression)
        return tuple(self._schema.names)

    def may_keep(self, constants: Mapping[str, pa.Scalar]) -> bool:
        if self.is_about(constants):
            return super().may_keep(constants)
        columns = {name: pc.field(index) for index, name in enumerate(self._schema.names)}
        return self._may_hold(_is(columns[n], it) for n, it in constants.items() if n in columns)


def _is(field: pc.Expression, value: pa.Scalar) -> pc.Expression:
    return field == value if value.is_valid else field.is_null()


def comparison(text: str, schema: pa.Schema, name: str) -> pc.Expression:
    """Parse a comparison of a column with a value: ``op = 'D'``, ``op is null``.

    The value is cast to the column's type. NaN equals NaN, and is larger than any number.

    :param name: the argument's name, for errors.
    :raises InvalidInputError: an invalid comparison over these columns.
    """
    null, compared = _NULL.fullmatch(text), _COMPARED.fullmatch(text)
    found = null or compared
    column_name = None if found is None else find_column(found["column"].strip("`"), schema.names)
    if found is None or column_name is None:
        why = "is no comparison of one column with one value"
        if found is not None:
            why = f"names no column of {', '.join(schema.names)}"
        raise InvalidInputError(
            f"{name} {text!r} {why}; nothing was changed.",
            remedy=f'Write it as "day < \'2026-01-01\'" or "name is null", one for each {name}.',
        )
    if null is not None:
        column = pc.field(column_name)
        return column.is_valid() if null["not"] else column.is_null()
    assert compared is not None
    quoted, kind = compared["quoted"], schema.field(column_name).type
    value = compared["bare"] if quoted is None else quoted.replace("''", "'")
    try:
        scalar = pa.scalar(value).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"{name} {text!r}: {value!r} is no value of {column_name}, which is {kind}; nothing "
            "was changed.",
            remedy="Compare it with a value of its type.",
        ) from error
    if pt.is_floating(kind):
        return _float_comparison(pc.field(column_name), compared["how"], scalar)
    return pq.filters_to_expression([(column_name, compared["how"], scalar)])


def _float_comparison(column: pc.Expression, how: str, value: pa.Scalar) -> pc.Expression:
    """Compare a column of floating point with a value as Spark does, where the same text is a
    condition, too: NaN equals NaN, and is larger than any number. For Arrow each comparison with
    NaN is false, and only its ``!=`` is true."""
    if math.isnan(value.as_py()):
        is_nan = column.is_nan()
        never = column.is_valid() & pc.scalar(False)
        return {
            "=": is_nan,
            ">=": is_nan,
            "!=": ~is_nan,
            "<": ~is_nan,
            ">": never,
            "<=": column.is_valid(),
        }[how]
    # An inverted comparison of Arrow is true for NaN.
    return {
        "=": column == value,
        "!=": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": ~(column <= value),
        ">=": ~(column < value),
    }[how]
