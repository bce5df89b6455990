"""Columns of the type ``CHAR(n)``, whose values Spark's own readers pad with blanks.

Spark also pads a literal that it compares with such a column (``ApplyCharTypePadding``). So a
shorter value, as Python or an expression may write it, would match no condition.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..column_names import quoted
from ..session_settings import is_on

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

#: Key in a field's metadata under which Spark keeps the type.
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"char\(([0-9]{1,9})\)")
#: Spark setting: if off, Spark's own readers do not pad.
_PADS = "spark.sql.readSideCharPadding"


def padded(frame: DataFrame, schema: StructType) -> DataFrame:
    """Pad the columns of the type CHAR, as Spark's own readers do.

    :param frame: with the columns of ``schema``.
    """
    from pyspark.sql import functions as F

    if not any(map(_width, schema.fields)):
        return frame
    columns = []
    for field in schema.fields:
        value = as_char(F.col(quoted(field.name)), field, frame.sparkSession)
        columns.append(value.alias(field.name, metadata=field.metadata))
    return frame.select(*columns)


def as_char(column: Column, field: StructField, session: SparkSession) -> Column:
    """Pad the value of a column of the type CHAR; other types stay as they are."""
    from pyspark.sql import functions as F

    width = _width(field)
    if not width or not is_on(session, _PADS, default=True):
        return column
    return F.when(F.length(column) < width, F.rpad(column, width, " ")).otherwise(column)


def _width(field: StructField) -> int:
    """Return the number of characters of a CHAR column; 0 for other types."""
    found = _CHAR.fullmatch((field.metadata or {}).get(CHAR_TYPE, ""))
    return 0 if found is None else int(found[1])
