"""Loaded data frame whose ``where()`` and ``filter()`` exclude files without a match.

Spark's Parquet reader opens every file on its list to read the footer, with six requests for each
file on s3a. The table's records have bounds of each file's columns. So the frame also excludes the
files without a match by their paths; the caller's condition still decides about the rows. Spark
compares ``_metadata.file_path`` with its list before it opens a file
(``PartitioningAwareFileIndex.listFiles``). A path that Spark spells in another way excludes
nothing. Spark leaves partitions out by itself, by the columns in their names.

Filters that Spark pushes to a Python data source cannot be used for this. Spark pushes none unless
the session says so, and may run a query with the filters of another query on the same frame
(SPARK-58551).
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...committer.commit.snapshot import Snapshot
from ...committer.format.parquet.row_filter import RowFilter
from ...committer.format.records.data_file import DataFile
from ...committer.scan.partition_condition import PartitionCondition, wanted_files
from .listed_parquet import FilePaths
from .predicate import row_filter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger("zero_rename.spark.reading.loaded_frame")
#: Most paths that one condition excludes. Spark parses and plans these in 2 s.
_MOST_PATHS = 50_000
#: Number of files opened without a match from which on a warning is logged.
_WORTH_A_WARNING = 10
#: Most files that are examined if the only result can be a warning; each takes 0.2 ms.
_LOOKED_AT = 5_000
_LOADED = "_zero_rename_loaded"


@dataclass(frozen=True)
class LoadedFiles:
    """The files that a frame reads.

    :param columns: the table's columns that the frame has.
    :param paths: the paths of its rows' files; ``None``: Spark itself does not read them.
    """

    snapshot: Snapshot
    columns: Collection[str]
    paths: FilePaths | None

    def on(self, frame: DataFrame) -> DataFrame:
        """Give a frame of these files a ``where()`` that excludes files without a match."""
        frame.__class__ = _loaded_class(type(frame))
        setattr(frame, _LOADED, self)
        return frame

    def filtered(self, frame: DataFrame, found: DataFrame, condition: Column | str) -> DataFrame:
        """Exclude the files in which no row fits a condition.

        :param frame: a frame of these files.
        :param found: the frame's rows that fit.
        """
        text = _text(condition, found)
        # A name that is not a column of the frame may be that of a variable of the session.
        fitting = row_filter(text, self.snapshot.schema, self.columns)
        if fitting is None:
            return self.on(found)
        unread = self._without_match(fitting)
        column, why_not = self._path_column(frame)
        excluded = () if column is None else unread[:_MOST_PATHS]
        if len(unread) - len(excluded) >= _WORTH_A_WARNING:
            self._warn(len(unread) - len(excluded), why_not)
        if not excluded:
            return self.on(found)
        keys = {file.key for file in excluded}
        left = tuple(file for file in self.snapshot.files if file.key not in keys)
        pruned = found.where(f"NOT ({column} IN ({', '.join(map(self._path, excluded))}))")
        return replace(self, snapshot=replace(self.snapshot, files=left)).on(pruned)

    def _without_match(self, fitting: RowFilter) -> Sequence[DataFile]:
        """Return the files in which no row fits, except those that Spark leaves out by itself.

        If Spark does not read the files, only the first ones are examined.
        """
        state = self.snapshot
        if self.paths is None:
            state = replace(state, files=state.files[:_LOOKED_AT])
        wanted = {file.key for file in wanted_files(state, fitting)}
        unread = [file for file in state.files if file.key not in wanted]
        if self.paths is None or not state.partition_by:
            return unread
        condition = PartitionCondition(fitting, state.schema, state.partition_by, None)
        opened = {name for name in {file.partition for file in unread} if name in condition}
        # In a table with a log, this package's files do not lie in directories of partitions, so
        # Spark does not know their partitions.
        in_no_directory = state.log_version is not None
        return [
            file
            for file in unread
            if file.partition in opened or (in_no_directory and not file.is_foreign)
        ]

    def _path(self, file: DataFile) -> str:
        """Write the path of a file as an SQL literal."""
        assert self.paths is not None
        return f"'{self.paths.start}{spelled_by_java(file.key)}'"

    def _path_column(self, frame: DataFrame) -> tuple[str | None, str]:
        """Return the column of paths, or ``None`` if no file may be excluded; and why not more."""
        if self.paths is None:
            return None, "Spark itself does not read them"
        if self.paths.column is None:
            return None, self.paths.why_not
        level = frame.storageLevel
        if level.useMemory or level.useDisk:
            # A condition on paths would change the plan, so that Spark would not use the cache.
            return None, "the frame is cached"
        return self.paths.column, f"no more than {_MOST_PATHS:,} are excluded by one condition"

    def _warn(self, opened: int, why: str) -> None:
        files = len(self.snapshot.files)
        logger.warning(
            "%s: a .where() behind load() opens %s%d of %d files in vain, since no row in them "
            "fits: %s. Give the condition to load() itself, as its argument where",
            self.snapshot.root.url,
            "at least " if self.paths is None and files > _LOOKED_AT else "",
            opened,
            files,
            why,
        )


def spelled_by_java(key: str) -> str:
    """Spell a key as ``java.net.URI`` does for a path, with letters beyond ASCII as they are.

    A quote, which Java keeps, is escaped, since it would end the SQL literal.
    """
    return "".join(letter if _stays(letter) else quote(letter, safe="") for letter in key)


def _stays(letter: str) -> bool:
    if letter.isascii():
        return letter.isalnum() or letter in "/_-!.~()*,;:$&+=@"
    return unicodedata.category(letter)[0] != "Z" and unicodedata.category(letter) != "Cc"


@cache
def _loaded_class(kind: type[Any]) -> type[Any]:
    """Make a subclass of a session's data frames with a ``where()`` that excludes files."""
    if hasattr(kind, _LOADED):
        return kind

    def filter(self: Any, condition: Column | str) -> DataFrame:
        found = kind.filter(self, condition)
        files: LoadedFiles | None = getattr(self, _LOADED)
        return found if files is None else files.filtered(self, found, condition)

    filter.__doc__ = kind.filter.__doc__
    members = {"filter": filter, "where": filter, "__module__": kind.__module__, _LOADED: None}
    return type(kind.__name__, (kind,), members)


def _text(condition: Column | str, found: DataFrame) -> str | None:
    """Return a condition as text; for a column, as Spark has resolved it.

    ``None`` if this is not known, as on Spark Connect.
    """
    if isinstance(condition, str):
        return condition
    java: Any = getattr(found, "_jdf", None)
    if java is None:
        return None
    from py4j.protocol import Py4JError

    try:
        plan = java.queryExecution().analyzed()
        return plan.condition().sql() if plan.nodeName() == "Filter" else None
    except Py4JError as error:
        # Platforms that share a JVM let Python call only few of its classes.
        logger.info("how Spark reads a condition is not known: %s", error)
        return None
