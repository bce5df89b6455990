"""Delta table on S3 from the side of its readers: its states, its history, and what jobs left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from ..committer.commit.newest_run import SupersededBy
from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.job_state import Committed, UnpublishedJob
from ..committer.errors import InvalidInputError, TableNotFoundError, about
from ..committer.format.as_of import AsOf, Past
from ..committer.format.job_spec import OnConflict, Owner, choice
from ..committer.format.layout import TableRoot
from ..committer.format.parquet.foreign_columns import FooterReader
from ..committer.format.parquet.row_filter import Filter
from ..committer.format.records.inputs import Inputs
from ..committer.format.run_rank import RunRanks
from ..committer.overview.job_record import JobRecord
from ..committer.overview.rival_jobs import RivalJob
from ..committer.scan.current_table import given_partitions, stored_in
from ..committer.scan.reads import note_read
from ..committer.scan.table_scan import BegunRead, TableAccess, TableScan, scan_plan
from ..committer.stateful_table import StatefulTable
from ..committer.store.driver import BotoDriver, connect
from ..committer.store.fast_root import FastRoot, is_fast
from ..committer.store.requests import Work
from ..committer.upkeep.recovery import OpenJob
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.data_roots import data_root_of, roots_of
from ..log.actions import AddFile, RemoveFile
from ..log.change import FENCE
from ..log.entries import LogEntry
from ..log.opening import LogDepth, OpenedLog, list_log, open_log, read_entries
from ..log.searching import RunDone, find_run
from .after_commit import checkpoint_interval
from .data_root import check_data_root, kept_data_root, reached_as_now
from .delta_files import layout_of, snapshot_of
from .delta_inputs import inputs_told
from .delta_ranks import find_superseded
from .delta_records import job_records
from .delta_report import committed
from .delta_runs import owner_in_report, owner_of
from .delta_upkeep import open_jobs, rival_jobs, store_now
from .delta_verify import keys_there
from .last_changes import ChangesSince, LastChanges, Since, changes_since, last_changes
from .opened_table import OpenedTable
from .publishing import rows_of_job
from .seen_logs import note_log, seen_log
from .store_check import ATOMIC
from .unpublished import all_unpublished, unpublished_of_run, waiting_jobs

T = TypeVar("T")
#: How many entries are read at once in a search.
_AT_ONCE = 64


@dataclass(frozen=True)
class NewestEntry:
    """The newest entry of a log, as a listing shows it."""

    version: int
    etag: str


@dataclass(frozen=True)
class LogVersion:
    """One entry of a table's log.

    :param at: when it was written, by its writer's clock; ``None``: the entry has no valid time.
    :param job: the job of this package that wrote it; ``None``: another engine did.
    :param operation: the operation that its writer names, such as ``WRITE``, ``MERGE`` or
        ``RESTORE``.
    :param owner: the job's owner; empty if it is not recorded.
    :param added: how many files it added; ``removed``: how many it removed.
    """

    version: int
    at: datetime | None
    job: str | None
    operation: str
    owner: dict[str, Any]
    added: int
    removed: int


class ReadableDelta(StatefulTable):
    """The half of :class:`.delta_table.DeltaTable` for readers, and for who asks after jobs."""

    def __init__(self, url: str, client: Any = None, driver: BotoDriver | None = None) -> None:
        self.root = TableRoot.parse(url)
        self.driver: BotoDriver = driver or connect(self.root.bucket, client)
        self._layout = layout_of(self.root)
        self._footers = FooterReader()
        #: Entries that polls have read, by version.
        self._read: dict[int, LogEntry] = {}
        #: Entries by job. They never change.
        self._entries: dict[str, LogEntry] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root.url!r})"

    # What the table is

    def exists(self) -> bool:
        """Return whether there is a Delta table at this root."""
        return self._open(LogDepth.BLIND).state.exists

    @property
    def schema(self) -> pa.Schema:
        """All present columns, including the partition columns.

        :raises TableNotFoundError: there is no table.
        """
        return self.shape()[0]

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns, outermost first; empty for an unpartitioned table."""
        return self.shape()[1]

    def shape(self, as_of: AsOf | None = None) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns and the partition columns.

        :param as_of: a former state; ``None``: the present one.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        :raises SnapshotGoneError: the version's entries were cleaned.
        """
        if as_of is not None:
            return self._opened(as_of).shape()
        metadata = self._found(self._open(LogDepth.BLIND)).state.metadata
        assert metadata is not None
        return arrow_schema(metadata), metadata.partition_columns

    def _open(self, depth: LogDepth, version: int | None = None) -> OpenedLog:
        if version is not None:
            return self.run(open_log(self._layout, depth, version))
        before = seen_log(self.driver, self.root)
        opened = self.run(open_log(self._layout, depth, before=before))
        note_log(self.driver, self.root, opened)
        return opened

    def _found(self, opened: OpenedLog) -> OpenedLog:
        if not opened.state.exists:
            raise TableNotFoundError(
                "There is no Delta table here.",
                table=self.root.url,
                remedy="Check the root. A table of directories is opened by zero_rename.Table(…).",
            )
        return opened

    def run(self, step: Work[T]) -> T:
        """Carry out a step of the protocol on the table's store."""
        with about(self.root.url):
            return self.driver.run(step)

    # Reading

    def snapshot(
        self, partitions: Collection[str] | None = None, as_of: AsOf | None = None
    ) -> Snapshot:
        """Return one state of some partitions (``day=2013-01-01``), or of all. It is recorded as an
        input of later jobs of this process.

        :param as_of: a former state, by its version or by a time of the store's clock; ``None``:
            the newest.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        :raises SnapshotGoneError: the version's entries were cleaned.
        """
        return note_read(self.state(partitions, as_of))

    def state(
        self, partitions: Collection[str] | None = None, as_of: AsOf | None = None
    ) -> Snapshot:
        """Return a state like :meth:`snapshot`, but do not record it as an input. For
        maintenance."""
        return self._opened(as_of).snapshot(partitions)

    def _opened(self, as_of: AsOf | None = None) -> OpenedTable:
        """Read the log once, for the columns and files of one version.

        :param as_of: the moment whose state is read; ``None``: now.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        :raises SnapshotGoneError: the version's entries were cleaned.
        """
        version = None if as_of is None else self.version_at(as_of)
        opened = self._found(self._open(LogDepth.BLIND, version))
        if version is not None:
            assert opened.state.metadata is not None
            metadata = self.run(reached_as_now(self._layout, opened.state.metadata))
            opened = replace(opened, state=replace(opened.state, metadata=metadata))
        return OpenedTable(self.root, self._layout, opened, self.run)

    def version_at(self, past: AsOf) -> int:
        """Return the version at a moment. An entry counts from the time at which the store wrote
        it.

        :raises TableNotFoundError: there was no table at that time.
        """
        if past.time is None:
            assert past.version is not None
            return past.version
        listed = self.run(list_log(self._layout.folder))
        there = [v for v, it in listed.entries.items() if it.last_modified <= past.time]
        if not there:
            raise TableNotFoundError(
                f"There was no Delta table here at {past}, or its log of then was cleaned.",
                table=self.root.url,
            )
        return max(there)

    def stored_names(self, partitions: Collection[str]) -> Collection[str]:
        return stored_in(self.root, self.shape, partitions)

    def scan(
        self,
        partitions: Collection[str] | None = None,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        as_of: Past | None = None,
        job: str | None = None,
    ) -> TableScan:
        """Return a lazy scan of one state, for batches, Arrow, pandas, Polars or DuckDB. Sends no
        request yet.

        :param partitions: only these, by name; ``None`` for all.
        :param filter: selects rows: an expression of ``pyarrow.compute``, or comparisons such as
            ``[("delay", ">", 15)]``; ``None`` for all.
        :param columns: the names of the columns, in the order wanted; ``None`` for all.
        :param limit: the greatest number of rows.
        :param as_of: a former state: a version, or a time with its zone.
        :param job: instead of a state, only the rows of this job, before or after it is published.
        :raises InvalidInputError: both ``as_of`` and ``job`` are given; or a list is given as a
            string; or the limit is invalid.
        """
        if as_of is not None and job is not None:
            raise InvalidInputError(
                "as_of names a state of the table, and job the rows of one job; nothing was read.",
                table=self.root.url,
                remedy="Give one of the two.",
            )
        past = None if as_of is None else AsOf.parse(as_of)
        reads = TableAccess(self.root, self.driver, partial(self._begun_read, past))
        if job is not None:
            reads = TableAccess(self.root, self.driver, partial(self._begun_read_of_job, job))
        return TableScan(reads, scan_plan(self.root, partitions, filter, columns, limit))

    def _begun_read(self, past: AsOf | None) -> BegunRead:
        """Choose the version that a scan reads."""
        opened = self._opened(past)
        return BegunRead(opened.shape, lambda names: note_read(opened.snapshot(names)))

    def _begun_read_of_job(self, job: str) -> BegunRead:
        """Choose the rows of one job that a scan reads."""
        opened = self._rows_of_job(job)
        return BegunRead(
            opened.shape, lambda names: note_read(replace(opened.snapshot(names), of_job=True))
        )

    def newest_entry(self, since: int = 0) -> NewestEntry | None:
        """Return the newest entry of the log, by one listing; ``None``: there is no table.

        :param since: list from this version on; it must be known to exist.
        """
        listed = self.run(list_log(self._layout.folder, since))
        if not listed.entries:
            return None
        return NewestEntry(listed.end, listed.entries[listed.end].etag)

    def has_moved(self, state: Snapshot) -> bool:
        """Return whether the table has changed since a state was read.

        It has if its partitions have other files, or it has other columns. Other entries, such as
        those of other partitions or of properties, do not count. If the state's partitions were
        chosen by what all of them hold, each entry counts.
        """
        if state.read is not None:
            return super().has_moved(state)
        try:
            now = self.state(state.asked)
        except TableNotFoundError:
            return False
        has_files = {it.key for it in now.files} == {it.key for it in state.files}
        return not (has_files and now.has_columns(state.schema, state.partition_by))

    def last_changes(
        self, partitions: Collection[str] | None, since: Since, newest: bool = False
    ) -> tuple[Snapshot, LastChanges]:
        """Return the present state of partitions, and the last change of each one's rows.

        :param partitions: by name; ``None``: all that hold files.
        :param since: the changes that count.
        :param newest: find only the newest of these changes.
        :raises TableNotFoundError: there is no table.
        """
        partitions = None if partitions is None else {*partitions}
        opened = self._found(self._open(LogDepth.FILES))
        state = snapshot_of(self.root, self._layout, opened.state, partitions)
        names = state.by_partition() if partitions is None else partitions
        step = last_changes(self.root, self._layout, opened.state, names, since, self._read, newest)
        return state, self.run(step)

    def changes_since(self, since: Since, most: int) -> ChangesSince:
        """Find the entries that changed rows, by any writer; compactions do not count.

        Sends one listing if no entry has come since the given version. If the table was deleted and
        made again since, and its log is shorter now, all entries are read.

        :param since: the changes that count.
        :param most: the greatest number of entries to read.
        :raises TableNotFoundError: there is no table.
        """
        if since.version is not None:
            newest = self.newest_entry(max(since.version, 0))
            if newest is not None and newest.version <= since.version:
                return ChangesSince((), since.version)
        state = self._found(self._open(LogDepth.BLIND)).state
        if since.version is not None and state.version < since.version:
            # A log always keeps its newest entry, so the table was deleted and made again.
            since = replace(since, version=None)
        return self.run(changes_since(self.root, self._layout, state, since, most))

    def history(self, limit: int | None = None) -> list[LogVersion]:
        """Return the entries of the log, the newest first.

        :param limit: at most so many; ``None``: all that were not cleaned.
        :raises InvalidInputError: the limit is invalid.
        """
        if limit is not None and (
            not isinstance(limit, int) or isinstance(limit, bool) or limit < 0
        ):
            raise InvalidInputError(
                f"Invalid limit={limit!r}: it must be a number of entries, from 0 on. Nothing was "
                "read.",
                table=self.root.url,
                remedy="Leave limit out to read all.",
            )
        listed = self.run(list_log(self._layout.folder))
        versions = sorted(listed.entries, reverse=True)[:limit]
        entries = self.run(read_entries(self._layout.folder, versions))
        return [_version(entry) for entry in entries if entry is not None]

    def rows_of_job(self, job: str, partitions: Collection[str] | None = None) -> Snapshot:
        """Return a snapshot of only the files that a job adds, whether it is published or not.

        :param partitions: by name; ``None``: all.
        :raises JobFencedError: the job was aborted.
        :raises InvalidInputError: there is no such job.
        """
        return replace(self._rows_of_job(job).snapshot(partitions), of_job=True)

    def _rows_of_job(self, job: str) -> OpenedTable:
        state = self.run(rows_of_job(self.root, self._layout, job))
        return OpenedTable(self.root, self._layout, OpenedLog(state, 0.0), self.run)

    # Runs

    def version_of_key(self, idempotency_key: str) -> int | None:
        """Return the version of the last commit under a run's key; ``None``: there is none.

        The version is known even if the entry was cleaned since; the job's id is not."""
        done = self._run_done(idempotency_key)
        return None if done is None else done.version

    def has_done(self, idempotency_key: str) -> bool:
        """Return whether a run has committed, also if its entry was cleaned since."""
        return self._run_done(idempotency_key) is not None

    def owner_of_key(self, idempotency_key: str) -> Owner | None:
        """Return the owner of the job that last committed under a run's key, from the run's report:
        it is there also if the entry was cleaned.

        ``None``: there is none, or an earlier version of this package wrote the report.
        """
        done = self._run_done(idempotency_key)
        if done is None:
            return None
        return self.run(owner_in_report(self._layout, idempotency_key, done.version))

    def _run_done(self, idempotency_key: str) -> RunDone | None:
        opened = self._open(LogDepth.BLIND)
        return self.run(find_run(self._layout, opened.state, idempotency_key, ""))

    def job_of_key(self, idempotency_key: str) -> str | None:
        """Return the job that last committed under a run's key; ``None``: there is none, or its
        entry was cleaned."""
        done = self._run_done(idempotency_key)
        if done is None:
            return None
        entry = done.entry or self.run(read_entries(self._layout.folder, [done.version]))[0]
        if entry is None or entry.job is None:
            return None
        self._entries[entry.job] = entry
        return entry.job

    # Jobs

    def _entry_of(self, job: str) -> LogEntry | None:
        """Return the entry of a job; ``None``: it has none, or the entry was cleaned."""
        if job not in self._entries:
            listed = self.run(list_log(self._layout.folder))
            versions = sorted(listed.entries, reverse=True)
            for start in range(0, len(versions), _AT_ONCE):
                some = versions[start : start + _AT_ONCE]
                entries = self.run(read_entries(self._layout.folder, some))
                self._entries |= {it.job: it for it in entries if it is not None and it.job}
                if job in self._entries:
                    break
        return self._entries.get(job)

    def owner_of(self, job: str) -> Owner | None:
        """Return the owner of a job, from its entry; ``None``: the log has no entry of it."""
        entry = self._entry_of(job)
        if entry is None or not isinstance(entry.ours.get("owner"), dict):
            return None
        return owner_of(entry)

    def result(self, job: str) -> Committed | None:
        """Return the report of a committed job; ``None`` for any other job."""
        entry = self._entry_of(job)
        if entry is None:
            return None
        return committed(self.root, self._found(self._open(LogDepth.BLIND)).state, entry)

    def is_fenced(self, job: str) -> bool:
        """Return whether a job was fenced, so that it can never commit."""
        state = self._open(LogDepth.BLIND).state
        if FENCE + job not in state.transactions and not state.all_transactions:
            # A checksum file names only the newest transactions.
            state = self._open(LogDepth.WHOLE).state
        return FENCE + job in state.transactions

    def inputs_of(self, job: str) -> Inputs:
        """Return the recorded inputs of a job's rows, and the version of the program that computed
        them. They are unknown if the job is not committed, or if its entry was cleaned."""
        return inputs_told(self._entry_of(job))

    def job_records(self, jobs: Iterable[str], state: Snapshot) -> dict[str, JobRecord]:
        """Return the records of jobs with files in a state, and of the jobs whose rows they
        rewrote: one request for each. Jobs whose entries were cleaned are left out.

        :param jobs: the jobs with files in the state.
        :param state: a state of this table.
        """
        return self.run(job_records(self._layout.folder, state, jobs))

    def unpublished(self) -> list[UnpublishedJob]:
        """Return the jobs that wait to be published, the oldest first.

        :raises TableNotFoundError: there is no table.
        """
        state = self._found(self._open(LogDepth.BLIND)).state
        jobs = self.run(waiting_jobs(self._layout))
        return self.run(all_unpublished(self.root, self._layout, state, jobs))

    def unpublished_of_key(self, idempotency_key: str) -> UnpublishedJob | None:
        """Return the job of a run that waits and may still be published, or ``None``."""
        state = self._open(LogDepth.BLIND).state
        if not state.exists:
            return None
        return self.run(unpublished_of_run(self.root, self._layout, state, idempotency_key))

    def keys_there(self) -> set[str]:
        """Return the keys of all objects below the table and in its data roots: one listing for
        each."""
        return self.run(keys_there(self._layout))

    def newer_runs(
        self,
        partitions: Iterable[str],
        run_rank: RunRanks,
        replaces: bool,
        *,
        run: str | None = None,
        on_conflict: OnConflict | str = OnConflict.NEWEST_RUN,
    ) -> dict[str, SupersededBy]:
        """Find the partitions in which a run would give way now: to newer runs, or to winners of
        settled conflicts.

        :param run_rank: how new the run is.
        :param replaces: the run replaces the partitions; otherwise it appends to them.
        :param run: the run's key, if it has one.
        :param on_conflict: the run's policy.
        :raises InvalidInputError: the ranks are of two kinds; or a string instead of a list.
        """
        policy = choice("on_conflict", OnConflict, on_conflict)
        given = given_partitions(self.root, partitions)
        if policy is OnConflict.LAST_WINS:
            return {}
        state = self._open(LogDepth.FILES).state
        names = self.stored_names(given) if state.exists else ()
        return find_superseded(state, names, run_rank, replaces, run, policy=policy)

    def rival_jobs(
        self, partitions: Iterable[str], appends: bool, *, run: str | None = None
    ) -> list[RivalJob]:
        """Find the open jobs of other runs that write the same partitions, by their open records. A
        job that is open for longer than its ``max_duration`` counts as dead, and is left out.

        :param partitions: in any spelling; none: any.
        :param appends: whether the run appends: two appends are not rivals.
        :param run: the run's idempotency key; its own jobs are not rivals.
        :raises InvalidInputError: a string instead of a list.
        """
        names = given_partitions(self.root, partitions)
        return self.run(rival_jobs(self._layout, names, appends, run))

    def open_jobs(self, decided: bool = False) -> list[OpenJob]:
        """Return the jobs with an open record, the oldest first.

        :param decided: search the log, too, for which of them are committed or fenced; ``False``:
            ``decided`` of each is ``None``.
        """
        return self.run(open_jobs(self._layout, decided))

    def is_closed(self, job: str) -> bool:
        """Return whether a job has no open record, so that nothing of it is left to do."""
        return all(it.job != job for it in self.open_jobs())

    def send_heartbeat(self, job: str, interval: float = 30.0) -> bool:
        """Return ``False`` and send no heartbeat: in a Delta table a job counts as alive for its
        whole ``max_duration``."""
        return False

    # Files in a data root

    @property
    def data_root(self) -> FastRoot | None:
        """The root in which jobs write files first; ``None``: the table itself, or no table."""
        return data_root_of(self._open(LogDepth.BLIND).state)

    @property
    def has_data_roots(self) -> bool:
        """True if files may lie in a data root, the present one or a former one."""
        return bool(roots_of(self._open(LogDepth.BLIND).state))

    @property
    def data_root_prefixes(self) -> tuple[str, ...]:
        """The prefixes of keys in the recorded data roots, except where files of another table may
        lie."""
        folders = self.run(self._layout.own_folders(self._open(LogDepth.BLIND).state))
        return tuple(filter(is_fast, folders))

    def refuse_other_data_root(self, data_root: FastRoot | str) -> None:
        """Refuse a data root for a job if the table has another one, or if a new table cannot have
        it.

        :raises TableMismatchError: the table has another data root.
        :raises InvalidInputError: the data root is invalid, or lies in the table.
        """
        root, state = FastRoot.parse(data_root), self._open(LogDepth.BLIND).state
        if state.exists:
            kept_data_root(self.root, state, root)
        else:
            check_data_root(self.root, root)

    # Upkeep

    @property
    def retention(self) -> float:
        """The seconds for which removed files stay.

        :raises TableNotFoundError: there is no table.
        """
        state = self._found(self._open(LogDepth.BLIND)).state
        with about(self.root.url):
            return self._layout.retention(state)

    def now(self) -> float:
        """Return the time of the store's clock, in Unix seconds: one request."""
        return self.run(store_now(self._layout)) / 1000

    def was_made_here(self) -> bool:
        """Return whether a job of this package has made the table. The maintenance of other tables
        is left to the engine that made them.

        :raises TableNotFoundError: there is no table.
        """
        return bool(self._found(self._open(LogDepth.BLIND)).state.property_of(ATOMIC))

    def is_checkpoint_due(self) -> bool:
        """Return whether more commits came since the last checkpoint than the table's interval."""
        state = self._open(LogDepth.BLIND).state
        return state.exists and state.version - state.checkpoint > checkpoint_interval(state)


def _version(entry: LogEntry) -> LogVersion:
    stamp = entry.stamped_at
    at = None if stamp is None else datetime.fromtimestamp(stamp, UTC)
    owner = entry.ours.get("owner")
    return LogVersion(
        entry.version,
        at,
        entry.job,
        entry.operation,
        owner if isinstance(owner, dict) else {},
        len(entry.of(AddFile)),
        len(entry.of(RemoveFile)),
    )
