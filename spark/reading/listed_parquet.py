"""Files of one state as a data frame of Spark's own Parquet reader.

Spark lists the files that it reads: ``spark.read.parquet(*files)`` sends three requests for each
file on s3a, one after the other in batches, before the first row is read. The only list that Spark
accepts without requests is the log of its own file sink (``_spark_metadata``, SPARK-8360), which
names files with their sizes. So the state is written as such a log into a local folder, which is
removed as soon as Spark has read it. Then no request is sent for any number of files, and a
refreshed frame still reads the same files. Spark parses partition values from the files'
directories, in the types of the table.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...committer.commit.snapshot import Snapshot
from ...committer.format.records.data_file import DataFile
from ..column_names import quoted
from ..planned_frame import frame_of_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("zero_rename.spark.reading.listed_parquet")
_LOG = "_spark_metadata"
_BLOCK = 128 * 1024 * 1024
#: Spark's hidden column with facts about a row's file.
_OF_FILES = "_metadata"
#: Spark setting: its reader skips row groups by conditions on decimals. And the number of digits
#: that a number of 32 bits can hold.
_BY_DECIMALS, _SMALL = "spark.sql.parquet.filterPushdown.decimal", 9


@dataclass(frozen=True)
class FilePaths:
    """The paths of the files of a frame's rows.

    :param column: the column with the paths, in Spark's SQL; ``None``: there is none, and
        ``why_not`` says why.
    :param start: the part of each path before the key: ``s3a://bucket/``.
    """

    column: str | None
    start: str
    why_not: str = ""


def hidden_column(snapshot: Snapshot) -> str | None:
    """Return a column of the files that a folder above the table would hide; ``None`` for none.

    If a folder above the table is named like a partition, Spark takes the column's values from this
    folder's name instead of the files.
    """
    if not snapshot.partition_by:
        return None
    names = {name.lower(): name for name in snapshot.schema.names}
    above = (part.partition("=") for part in snapshot.root.prefix.split("/"))
    return next((names[n.lower()] for n, is_, _ in above if is_ and n.lower() in names), None)


def listed_parquet(
    session: SparkSession, schema: StructType, snapshot: Snapshot, scheme: str
) -> tuple[DataFrame, FilePaths] | None:
    """Make a frame of the rows of a state, with all columns of ``schema``, and its files' paths.

    Rows are never left out silently. A missing file fails the query, even if the session ignores
    missing or damaged files elsewhere. And no row group is skipped by a condition on a decimal,
    since a file may have fewer digits than the table.

    :param scheme: the scheme of the session's paths, ``s3a``.
    :return: ``None`` if this Spark does not accept the list.
    """
    store = f"{scheme}://{snapshot.root.bucket}/"
    options = {
        "timeZone": "UTC",
        "ignoreMissingFiles": "false",
        "ignoreCorruptFiles": "false",
        "recursiveFileLookup": "false" if snapshot.partition_by else "true",
    }
    if not any(file.is_foreign for file in snapshot.files):
        # Old dates in files that Spark did not write are read by the session's setting, and Spark
        # 3.5 refuses them by default.
        options["datetimeRebaseMode"] = "CORRECTED"
    with tempfile.TemporaryDirectory(prefix="zero-rename-state-") as folder:
        # Spark's UI shows this path. Spark must not take any of its characters for a pattern.
        name = re.sub(r"[^A-Za-z0-9.-]", "_", snapshot.root.url)
        log = Path(folder, name, _LOG)
        log.mkdir(parents=True)
        lines = _lines(store, snapshot.files)
        (log / "0").write_text("\n".join(lines), "utf-8")
        frame: Any = _read(session, schema, options, f"file://{log.parent}")
        if frame is None or _number_of_files(frame) != len(snapshot.files):
            return None
    return _comparing_nan(frame, schema), _paths(frame, snapshot, store)


def _number_of_files(frame: Any) -> int:
    """Count the files of a frame of Spark's Parquet reader."""
    from py4j.protocol import Py4JError

    try:
        return len(frame._jdf.queryExecution().analyzed().relation().location().inputFiles())
    except Py4JError:
        # Version 2 of Spark's sources has no such calls. This one optimises the frame's plan.
        return len(frame._jdf.inputFiles())


def _comparing_nan(frame: DataFrame, schema: StructType) -> DataFrame:
    """Keep conditions on floats from Spark's Parquet reader.

    For Spark NaN is greater than all other values, and statistics that Arrow has written ignore it:
    by ``x > 5`` Spark would leave out the row groups in which NaN is the only greater value. An
    expression is no column, so that conditions on it do not reach the reader.

    :param schema: the columns of ``frame``.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import DoubleType, FloatType

    if not any(_has_floats(field.dataType) for field in schema):
        return frame
    columns = []
    for field in schema:
        name = quoted(field.name)
        if isinstance(field.dataType, DoubleType | FloatType):
            columns.append(f"nanvl({name}, {name}) AS {name}")
        elif _has_floats(field.dataType):
            columns.append(f"coalesce({name}, {name}) AS {name}")
        else:
            columns.append(name)
    # One call of the JVM, where a column object for each would be fifteen.
    compared = frame.selectExpr(*columns)
    if not any(field.metadata and _has_floats(field.dataType) for field in schema):
        return compared
    described = (F.col(quoted(it.name)).alias(it.name, metadata=it.metadata) for it in schema)
    return compared.select(*described)


def _has_floats(kind: Any) -> bool:
    """Tell whether a condition may be about a float: a column's value, or a field of structs."""
    from pyspark.sql.types import DoubleType, FloatType, StructType

    if isinstance(kind, StructType):
        return any(_has_floats(field.dataType) for field in kind)
    return isinstance(kind, DoubleType | FloatType)


def _read(
    session: SparkSession, schema: StructType, options: Mapping[str, str], path: str
) -> DataFrame | None:
    """Let Spark read a list; ``None`` if it would skip row groups by conditions on decimals."""
    if not _has_long_decimals(schema):
        return session.read.schema(schema).options(**options).parquet(path)
    try:
        made: Any = _ignoring_decimals(session).read.schema(schema).options(**options).parquet(path)
        return frame_of_plan(session, made._jdf.queryExecution().analyzed())
    except Exception as error:
        # A platform's own Spark may not have these calls.
        logger.info("decimals cannot be read by Spark itself: %s", error)
        return None


def _has_long_decimals(schema: StructType) -> bool:
    """Return whether a column, or a part of one, is a decimal whose values may not fit 32 bits."""
    digits = re.findall(r"DecimalType\((\d+),", repr(schema))
    return any(int(it) > _SMALL for it in digits)


def _ignoring_decimals(session: Any) -> SparkSession:
    """Copy a session, so that its frames skip no row group by a condition on a decimal.

    Spark compares the literal with a file's values in the file's type, and truncates it to that
    type. If a column was once ``decimal(5,2)``, files hold numbers of 32 bits, and
    ``d < 42949673.01`` becomes ``d < 0.05`` (``ParquetFilters``; for integers this is fixed by
    SPARK-46092). A reader uses the settings of the session that made its frame.
    """
    java = session._jsparkSession.cloneSession()
    java.conf().set(_BY_DECIMALS, "false")
    return type(session)(session.sparkContext, java)


def _paths(frame: Any, snapshot: Snapshot, store: str) -> FilePaths:
    if _OF_FILES in {name.lower() for name in snapshot.schema.names}:
        why = "the table has a column of the name by which Spark tells a row's file"
        return FilePaths(None, store, why)
    hidden = frame._jdf.queryExecution().analyzed().metadataOutput()
    if _OF_FILES not in hidden.mkString(" "):
        why = "the session reads Parquet by version 2 of Spark's sources (useV1SourceList)"
        return FilePaths(None, store, why)
    return FilePaths(f"{_OF_FILES}.file_path", store)


def _lines(store: str, files: Iterable[DataFile]) -> Iterable[str]:
    yield "v1"
    for file in files:
        yield json.dumps(
            {
                "path": store + quote(file.key),
                "size": file.size,
                "isDir": False,
                "modificationTime": 0,
                "blockReplication": 1,
                "blockSize": _BLOCK,
                "action": "add",
            }
        )
