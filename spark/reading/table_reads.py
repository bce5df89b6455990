"""Record of this application's reads of a table, for the writes that may be computed from them.

Spark opens a write's job after all stages but the last. So the rows may be computed from data that
was read long before, and another job may have committed since. A writer cannot know which readers
feed it. So it uses all reads of this application, with the smallest version of each partition.

A read stays recorded as long as a new write may be computed from it: until a write into the table
has ended, by commit or abort, or a state could not be read any more, *and* the table was loaded
again after that. Partitions that this application itself has overwritten no longer count at all.

Loads, plans, openings and commits each run in a Python worker of their own on the driver's host.
They share a small file per application and table, in a private folder below the host's folder
for temporary files.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ...committer.commit.snapshot import Snapshot
from ...committer.commit.state.job_state import Committed, OpenedJob
from ...committer.errors import TableMismatchError
from ...committer.format.as_of import AsOf
from ...committer.format.read_base import NOTHING_READ, ReadBase
from ...committer.format.records.typed_json import Unfit, from_members, to_members
from ...committer.format.schema.hive_paths import normalise_partition
from ...committer.scan.partition_condition import wanted_files
from ...committer.scan.reads import ReadLog
from ...tables.table_at_root import TableAtRoot
from ..worker import application, connect_session, is_over
from .predicate import row_filter, selected_partitions

T = TypeVar("T")
logger = logging.getLogger("zero_rename.spark.reading.table_reads")
#: Most filters that are kept for a table. If there are more, all partitions count as read.
_MOST_FILTERS = 100
#: Most jobs that are kept for a table. An older one counts as another application's.
_MOST_JOBS = 1000


@dataclass(frozen=True)
class Noted:
    """Reads of a table by an application.

    :param base: the smallest version of each partition that was read.
    :param filters: the conditions of the reads. A partition that may fit one and has no version
        did not exist when it was read.
    :param ended: a write has ended since the table was last loaded.
    :param own: the newest jobs that the application has committed since.
    """

    base: ReadBase
    filters: tuple[str, ...] = ()
    ended: bool = False
    own: tuple[str, ...] = ()

    def read(self, base: ReadBase, partition_filter: str | None) -> Noted:
        """Return the reads after a reader has planned on a state.

        :param partition_filter: the condition that selected its partitions.
        """
        versions = dict(self.base.versions)
        for partition in base.versions.keys() | (versions.keys() if base.whole else set()):
            found = [self.base.version(partition), base.version(partition)]
            versions[partition] = min(version for version in found if version is not None)
        filters = self.filters
        if partition_filter is not None and partition_filter not in filters:
            filters = (*filters, partition_filter)
        whole = self.base.whole or base.whole or len(filters) > _MOST_FILTERS
        listed = self.base.listed
        if base.listed is not None:
            listed = {**base.listed, **(listed or {})}
        both = replace(self.base, versions=versions, whole=whole, listed=listed)
        of_logs = [it for it in (self.base.log_version, base.log_version) if it is not None]
        if of_logs:
            both = replace(both, log_version=min(of_logs))
        return replace(self, base=both, filters=() if whole else filters)

    def wrote(self, done: Committed | None, replaced: bool, held: str | None = None) -> Noted:
        """Return the reads after a write has ended.

        :param done: its commit; ``None``: it is aborted, or waits to be published.
        :param replaced: it replaced its partitions, so their earlier rows no longer count. If it
            appended instead, they are one version further, unless another job came between.
        :param held: the job that waits, which is the application's own once it is published.
        """
        versions = dict(self.base.versions)
        for change in done.partitions if done is not None else ():
            if replaced:
                versions[change.partition] = None
            elif self.base.read_at(change.partition) == change.version - 1:
                versions[change.partition] = change.version
        made = held if done is None else done.job
        own = self.own if made is None else (*self.own, made)[-_MOST_JOBS:]
        return replace(self, base=replace(self.base, versions=versions), ended=True, own=own)

    def base_of(self, opened: OpenedJob) -> ReadBase:
        """Return the read base of a write that has just opened."""
        schema, by = opened.schema, opened.partition_by
        if opened.log is not None:
            # Without heads it is not known which partitions exist, so a filter counts as a read of
            # all partitions.
            whole = self.base.whole or bool(self.filters)
            return replace(self.base, whole=whole, own=self.own)
        selected = [selected_partitions(text, schema, by) for text in self.filters]
        late = {
            partition: 0
            for partition in opened.base
            if partition not in self.base.versions
            and any(fit is None or partition in fit for fit in selected)
        }
        return replace(self.base, versions={**self.base.versions, **late})


class TableReads:
    """File with the reads of one table by an application or by a Spark Connect session.

    One process at a time changes it. If it cannot be kept, a warning is logged, and writes are
    compared with the state when they open.

    :param file: a file in an existing folder; ``None``: nothing is recorded.
    """

    def __init__(self, table: str, file: Path | None) -> None:
        self._nothing = Noted(replace(NOTHING_READ, table=table))
        self._table = table
        self._file = file

    @staticmethod
    def here(table: str) -> TableReads:
        """Return the reads by this worker's application, or by its session of Spark Connect."""
        return TableReads.of(application(), table)

    @staticmethod
    def of(name: str | None, table: str) -> TableReads:
        """Return the reads by an application of this host.

        :param name: the application's name; ``None``: nothing is recorded.
        """
        if name is None:
            return TableReads(table, None)
        try:
            folder = _folder(name)
        except OSError as error:
            logger.warning("%s: what is read of it cannot be noted: %s", table, error)
            return TableReads(table, None)
        return TableReads(table, folder / _file_name(table))

    def noted(self) -> Noted:
        """Return the reads of the table that a write may be computed from."""
        return self._change(lambda noted: noted)

    def log(self) -> ReadLog:
        """Return this application's reads of all tables."""
        return self._change_log(lambda log: log)

    def loaded(self) -> None:
        """Record that the table is loaded. Reads before a write that has ended no longer count."""
        self._change(lambda noted: self._nothing if noted.ended else noted)

    def planned(self, base: ReadBase, partition_filter: str | None) -> None:
        """Record a state that a reader has planned on. See :meth:`Noted.read`."""
        self._change(lambda noted: noted.read(base, partition_filter))

    def read(self, state: Snapshot) -> None:
        """Record a state, or the rows of one job, as an input of later writes into any table."""
        self._change_log(lambda log: log.read_state(state))

    def wrote(self, done: Committed | None, replaced: bool, held: str | None = None) -> None:
        """Record that a write has ended. See :meth:`Noted.wrote`."""
        self._change_log(ReadLog.ended)
        self._change(
            lambda noted: noted if noted == self._nothing else noted.wrote(done, replaced, held)
        )

    def ended(self) -> None:
        """Record that a reader cannot read its state any more, so no write can result from it."""
        self.wrote(None, replaced=False)

    def _change(self, change: Callable[[Noted], Noted]) -> Noted:
        return _changed(self._table, self._file, self._nothing, change)

    def _change_log(self, change: Callable[[ReadLog], ReadLog]) -> ReadLog:
        file = self._file and self._file.with_name(_file_name(""))
        return _changed(self._table, file, ReadLog(), change)


def plan_on(
    found: TableAtRoot,
    reads: TableReads,
    partitions: Sequence[str] | None,
    where: str | None,
    as_of: AsOf | None = None,
) -> Snapshot:
    """Fix the state of the partitions that may hold fitting rows, and record the read.

    Its files are those that may hold fitting rows, by the table's records. A former state is
    recorded only as an input.

    :param found: the table, as it was when the columns were chosen.
    :param partitions: the only partitions to read, ``day=2013-01-01``; ``None`` for any.
    :param where: a condition in Spark's SQL, or ``None``.
    :param as_of: the time or version whose state is read; ``None``: now.
    :raises InvalidInputError: a partition that the table cannot have.
    :raises TableMismatchError: the table's schema has changed since.
    """
    schema, by = found.schema, found.partition_by
    named = None
    if partitions is not None:
        named = tuple(normalise_partition(path, schema, by) for path in partitions)
    selected = named if where is None else selected_partitions(where, schema, by, named)
    snapshot = found.snapshot(selected, as_of)
    there = {field.name: field.type for field in snapshot.schema}
    if any(there.get(field.name) != field.type for field in schema):
        raise TableMismatchError(
            "The table's schema changed while the query was planned.",
            table=snapshot.root.url,
            remedy="Load the table anew.",
        )
    if as_of is None:  # A reader of a former state knows that the table may have changed since.
        open_ended = named is None and selected is not None
        # A partition counts as read even if all of its files are left out: the read found no row.
        reads.planned(snapshot.base, where if open_ended else None)
    reads.read(snapshot)
    kept = row_filter(where, schema)
    return snapshot if kept is None else replace(snapshot, files=wanted_files(snapshot, kept))


def _changed(table: str, file: Path | None, nothing: T, change: Callable[[T], T]) -> T:
    """Change the content of a file, and return it; ``nothing`` if the file cannot be kept.

    :param table: the table that was read, for the warning.
    """
    if file is None:
        return nothing
    try:
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                before = from_members(type(nothing), json.loads(file.read_text("utf-8")))
            except FileNotFoundError:
                before = nothing
            after = change(before)
            if after != before:
                part = file.with_suffix(".part")
                part.write_text(json.dumps(to_members(after)), "utf-8")
                part.replace(file)
            return after
    except (OSError, ValueError, LookupError, TypeError, Unfit) as error:
        logger.warning("%s: what is read of it cannot be noted: %s", table, error)
        return nothing


def _file_name(table: str) -> str:
    """Return the name of this session's file for a table.

    :param table: its URL; ``""`` for the file with all inputs of the session's writes.
    """
    what = f"{connect_session()} {table}"
    return f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.json"


def _folder(name: str) -> Path:
    """Return an application's private folder. Make it if needed.

    If it is made, the folders of applications that have ended are removed.

    :raises OSError: it cannot be made, or belongs to another user.
    """
    every = Path(tempfile.gettempdir(), f"zero-rename-reads-{os.getuid()}")
    every.mkdir(mode=0o700, exist_ok=True)
    found = every.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{every} is not this user's alone")
    own = every / name
    if not own.is_dir():
        for other in every.iterdir():
            if is_over(other.name):
                shutil.rmtree(other, ignore_errors=True)
        own.mkdir(mode=0o700, exist_ok=True)
    return own
