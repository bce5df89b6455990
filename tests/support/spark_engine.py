"""Program of the environment ``spark-4.1``: reads and changes Delta tables by Delta on Spark, as it
is asked, a line of JSON each. It imports nothing of this project.

Its arguments: the settings of its session, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

#: The standard output is for answers alone: the JVM gets the standard error in its place.
_ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class SparkEngine:
    """A session, and what it can be asked."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._spark: Any = SparkSession.builder.config(map=settings).getOrCreate()

    def sql(self, statement: str) -> list[Any]:
        """Rows of a statement as texts."""
        # By no Arrow: a statement that changes a table reports more nested counts than it takes.
        return [list(map(repr, row)) for row in self._spark.sql(statement).collect()]

    def read(self, engine: str, folder: str, columns: list[str], where: str | None) -> list[Any]:
        """Rows of a table as texts; ``where`` is SQL, ``engine`` is Spark."""
        frame = self._spark.read.format("delta").load(folder)
        frame = frame.where(where) if where else frame
        return _texts(frame.select(*(f"`{name}`" for name in columns)))

    def write(
        self, folder: str, rows: list[list[Any]], columns: str, mode: str, options: dict[str, str]
    ) -> None:
        """Write rows whose columns are given as DDL."""
        frame = self._spark.createDataFrame([tuple(row) for row in rows], columns).coalesce(1)
        frame.write.format("delta").mode(mode).options(**options).save(folder)

    def build(self, folder: str, columns: dict[str, list[str]]) -> None:
        """Make a table by Delta's builder: for each column its type, and what fills it."""
        java = self._spark._jsparkSession
        tables = self._spark._jvm.io.delta.tables.DeltaTable
        builder = tables.create(java).location(folder)
        for name, (kind, *filled) in columns.items():
            column = tables.columnBuilder(java, name).dataType(kind)
            if filled:
                column = getattr(column, filled[0])(*filled[1:])
            builder = builder.addColumn(column.build())
        builder.execute()

    def setting(self, name: str, value: str | None) -> None:
        """Set a setting of the session, or take it back."""
        if value is None:
            self._spark.conf.unset(name)
        else:
            self._spark.conf.set(name, value)

    def appends(self, folder: str, numbers: list[int]) -> list[int]:
        """Append a row at a time; return those that Spark says are there."""
        done = []
        for number in numbers:
            self.write(folder, [["spark", number]], "day string, delay bigint", "append", {})
            done.append(number)
        return done


def _texts(frame: Any) -> list[Any]:
    return [[_text(value) for value in row.values()] for row in frame.toArrow().to_pylist()]


def _text(value: Any) -> str:
    """The text of a value as a newer pyarrow has it: a point in time has a zone of Python's."""
    at = isinstance(value, datetime) and value.tzinfo is not None
    return repr(value.astimezone(ZoneInfo("UTC")) if at else value)


def main() -> None:
    engine = SparkEngine(json.loads(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": getattr(engine, asked.pop("do"))(**asked)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=_ANSWERS, flush=True)


if __name__ == "__main__":
    main()
