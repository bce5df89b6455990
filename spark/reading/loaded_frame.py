"""A loaded data frame whose ``where()`` and ``filter()`` also say which files need not be opened.

Spark's Parquet reader opens every file on its list to read the footer, six requests a file on s3a.
The table's records have bounds of each file's columns. So beside the caller's condition, which
decides on the rows as ever, the frame excludes the files without a match by their paths: Spark
compares ``_metadata.file_path`` with its list before it opens a file
(``PartitioningAwareFileIndex.listFiles``). A path that Spark spells in another way excludes
nothing. Partitions Spark leaves out by itself, by the columns in their names.

Filters pushed to a Python data source cannot serve: Spark pushes none unless the session says so,
and lets a query run with the filters of another one on the same frame (SPARK-58551).
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
#: Paths that one condition excludes by name: Spark parses and plans these in 2 s.
_MOST_PATHS = 50_000
#: Files without a match that are opened, from which on the log says so.
_WORTH_A_WARNING = 10
#: Files of a frame that are looked at where nothing but a warning can come of it, 0.2 ms each.
_LOOKED_AT = 5_000
_LOADED = "_zero_rename_loaded"


@dataclass(frozen=True)
class LoadedFiles:
    """The files that a frame reads.

    :param columns: of the table, that the frame has.
    :param paths: how its rows tell their files; ``None``: Spark itself does not read them.
    """

    snapshot: Snapshot
    columns: Collection[str]
    paths: FilePaths | None

    def on(self, frame: DataFrame) -> DataFrame:
        """Let a frame of these files exclude those without a match."""
        frame.__class__ = _loaded_class(type(frame))
        setattr(frame, _LOADED, self)
        return frame

    def filtered(self, frame: DataFrame, found: DataFrame, condition: Column | str) -> DataFrame:
        """Exclude the files in which no row fits.

        :param frame: of these files.
        :param found: its rows that fit.
        """
        text = _text(condition, found)
        # A name that is none of the frame's columns may be that of a variable of the session.
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
        """The files in which no row fits, without those that Spark leaves out by itself; where it
        does not read them, of the first few."""
        state = self.snapshot
        if self.paths is None:
            state = replace(state, files=state.files[:_LOOKED_AT])
        wanted = {file.key for file in wanted_files(state, fitting)}
        unread = [file for file in state.files if file.key not in wanted]
        if self.paths is None or not state.partition_by:
            return unread
        condition = PartitionCondition(fitting, state.schema, state.partition_by, None)
        opened = {name for name in {file.partition for file in unread} if name in condition}
        # Of this package's files in a log, which lie in no directories of partitions, Spark does
        # not know the partitions.
        in_no_directory = state.log_version is not None
        return [
            file
            for file in unread
            if file.partition in opened or (in_no_directory and not file.is_foreign)
        ]

    def _path(self, file: DataFile) -> str:
        """The path of a file as a literal of SQL."""
        assert self.paths is not None
        return f"'{self.paths.start}{spelled_by_java(file.key)}'"

    def _path_column(self, frame: DataFrame) -> tuple[str | None, str]:
        """The column of paths, if files may be excluded; and why no more of them are."""
        if self.paths is None:
            return None, "Spark itself does not read them"
        if self.paths.column is None:
            return None, self.paths.why_not
        level = frame.storageLevel
        if level.useMemory or level.useDisk:
            # The plan with paths is another one than that of the rows that are kept.
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
    """Spell a key as ``java.net.URI`` does for a path; letters beyond ASCII stay. A quote, which
    Java keeps, is spelled in another way: it would end the literal."""
    return "".join(letter if _stays(letter) else quote(letter, safe="") for letter in key)


def _stays(letter: str) -> bool:
    if letter.isascii():
        return letter.isalnum() or letter in "/_-!.~()*,;:$&+=@"
    return unicodedata.category(letter)[0] != "Z" and unicodedata.category(letter) != "Cc"


@cache
def _loaded_class(kind: type[Any]) -> type[Any]:
    """A session's class of data frames, with a ``where()`` that excludes files."""
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
    """A condition as text; of a column, as Spark has resolved it. ``None`` where that is not known,
    as on Spark Connect."""
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
        # Platforms that share a JVM let Python call few of its classes.
        logger.info("how Spark reads a condition is not known: %s", error)
        return None
