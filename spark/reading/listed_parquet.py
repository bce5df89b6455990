"""Files of one state as a data frame of Spark's own Parquet reader.

Spark lists what it reads: ``spark.read.parquet(*files)`` sends three requests a file on s3a, one
after the other in batches, before the first row is read. The one list that it takes as it stands
is the log of its own file sink (``_spark_metadata``, SPARK-8360), which names files with their
sizes. So the state is written down as such a log, in a local folder that goes as soon as Spark has
read it: no request is sent, whatever the number of files, and a frame that is refreshed still
reads the same ones. Partition values are parsed by Spark from the files' directories, in the types
of the table.
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
from ..planned_frame import frame_of_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("zero_rename.spark.reading.listed_parquet")
_LOG = "_spark_metadata"
_BLOCK = 128 * 1024 * 1024
#: Spark's column of what it knows of a row's file.
_OF_FILES = "_metadata"
#: Whether Spark's reader leaves row groups out by conditions on decimals; and the digits that a
#: number of 32 bits holds.
_BY_DECIMALS, _SMALL = "spark.sql.parquet.filterPushdown.decimal", 9


@dataclass(frozen=True)
class FilePaths:
    """The paths of the files of a frame's rows.

    :param column: has them, in Spark's SQL; ``None``: no column does, as ``why_not`` says.
    :param start: what stands before the key in each: ``s3a://bucket/``.
    """

    column: str | None
    start: str
    why_not: str = ""


def hidden_column(snapshot: Snapshot) -> str | None:
    """A column of the files that Spark would read from the table's own path instead, since a
    folder above the table is named like a partition; ``None`` for none."""
    if not snapshot.partition_by:
        return None
    names = {name.lower(): name for name in snapshot.schema.names}
    above = (part.partition("=") for part in snapshot.root.prefix.split("/"))
    return next((names[n.lower()] for n, is_, _ in above if is_ and n.lower() in names), None)


def listed_parquet(
    session: SparkSession, schema: StructType, snapshot: Snapshot, scheme: str
) -> tuple[DataFrame, FilePaths] | None:
    """The rows of a state, all columns of ``schema``, and the paths of their files.

    Rows are never left out in silence: a file that is gone fails the query, also where the session
    ignores missing or damaged files elsewhere; and no row group, by a condition on a decimal of
    which a file may have fewer digits than the table.

    :param scheme: how the session's paths begin, ``s3a``.
    :return: ``None`` where this Spark does not take the list.
    """
    store = f"{scheme}://{snapshot.root.bucket}/"
    options = {
        "timeZone": "UTC",
        "ignoreMissingFiles": "false",
        "ignoreCorruptFiles": "false",
        "recursiveFileLookup": "false" if snapshot.partition_by else "true",
    }
    if not any(file.is_foreign for file in snapshot.files):
        # Of a file that no Spark wrote Spark goes by the session, and 3.5 refuses it by default.
        options["datetimeRebaseMode"] = "CORRECTED"
    with tempfile.TemporaryDirectory(prefix="zero-rename-state-") as folder:
        # Spark's UI shows this path; none of its characters may look like a pattern to it.
        name = re.sub(r"[^A-Za-z0-9.-]", "_", snapshot.root.url)
        log = Path(folder, name, _LOG)
        log.mkdir(parents=True)
        lines = _lines(store, snapshot.files)
        (log / "0").write_text("\n".join(lines), "utf-8")
        frame: Any = _read(session, schema, options, f"file://{log.parent}")
        if frame is None or len(frame._jdf.inputFiles()) != len(snapshot.files):
            return None
    return frame, _paths(frame, snapshot, store)


def _read(
    session: SparkSession, schema: StructType, options: Mapping[str, str], path: str
) -> DataFrame | None:
    """Let Spark read a list; ``None``: it would leave out row groups by decimals."""
    if not _has_long_decimals(schema):
        return session.read.schema(schema).options(**options).parquet(path)
    try:
        made: Any = _ignoring_decimals(session).read.schema(schema).options(**options).parquet(path)
        return frame_of_plan(session, made._jdf.queryExecution().analyzed())
    except Exception as error:
        # Platforms with a Spark of their own may have no such calls.
        logger.info("decimals cannot be read by Spark itself: %s", error)
        return None


def _has_long_decimals(schema: StructType) -> bool:
    """Return whether a column, or a part of one, is a decimal whose values may not fit 32 bits."""
    digits = re.findall(r"DecimalType\((\d+),", repr(schema))
    return any(int(it) > _SMALL for it in digits)


def _ignoring_decimals(session: Any) -> SparkSession:
    """A session with the settings of another one, whose frames leave no row group out by a
    condition on a decimal.

    Spark compares the value with those of a file in the file's type, into which it squeezes it:
    where a column was ``decimal(5,2)`` once, files hold numbers of 32 bits, and ``d < 42949673.01``
    becomes ``d < 0.05`` (``ParquetFilters``; of integers it is mended, SPARK-46092). What a reader
    goes by is the settings of the session that made its frame.
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
