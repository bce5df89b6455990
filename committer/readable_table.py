"""Table on S3 from the side of its readers: its columns, its state, and its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from .commit.apply import committed
from .commit.newest_run import SupersededBy, find_superseded
from .commit.settled import SettledPartition, read_settled
from .commit.snapshot import Snapshot, Survey, survey
from .commit.state.context import Context
from .commit.state.decide import Decided, read_decision
from .commit.state.found_table import find_table, refuse_folder_of_others
from .commit.state.heads import read_head
from .commit.state.job_state import Committed, JobState
from .commit.state.open_jobs import read_open
from .errors import TableNotFoundError, about
from .format.job_spec import Coordination, OnConflict, Owner, choice, job_ids
from .format.layout import UNPARTITIONED, TableRoot
from .format.parquet.foreign_columns import FooterReader
from .format.parquet.foreign_table import ListedTable
from .format.parquet.reader import read_batches
from .format.parquet.row_filter import Filter
from .format.records.data_file import DataFile
from .format.records.head import Slot
from .format.records.inputs import UNKNOWN_INPUTS, Inputs
from .format.records.success_marker import SuccessMarker
from .format.records.table_record import TableRecord
from .format.run_rank import RunRanks
from .format.schema.hive_paths import spelled_as_stored
from .overview.history import history
from .overview.orphaned_uploads import OrphanedUploads, find_orphaned_uploads
from .overview.partition_history import PartitionHistory, look_back
from .overview.recent_jobs import JobManifest, SeenJob, read_job_manifest
from .overview.rival_jobs import RivalJob, find_rivals
from .overview.table_overview import TableOverview, look_over
from .scan.current_table import (
    current_snapshot,
    current_table,
    given_partitions,
    stored_names,
    table_exists,
)
from .scan.partition_state import PartitionState, partition_states
from .scan.reads import note_read
from .scan.table_scan import BegunRead, TableAccess, TableScan, scan_plan
from .stateful_table import StatefulTable
from .store.driver import BotoDriver, connect
from .store.encryption import Encryption
from .store.listing import list_objects
from .store.requests import All, Found, Get, Work
from .upkeep.recovery import OpenJob, open_jobs

T = TypeVar("T")


class ReadableTable(StatefulTable):
    """The reading half of :class:`.table.Table`.

    It changes nothing, except that a decided commit is applied before it is read.
    """

    def __init__(self, url: str, client: Any = None) -> None:
        root = TableRoot.parse(url)
        self.root = root
        self.driver: BotoDriver = connect(root.bucket, client)
        self._footers = FooterReader()
        self._context = Context(root, read_columns=self._footers.read)
        self._record: TableRecord | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root.url!r})"

    # What the table is

    def _current(self) -> TableRecord | ListedTable:
        """Read the table's record; without one, derive the table from another committer's files."""
        if self._record is not None:
            return self._record
        found = self.run(current_table(self._context))
        if isinstance(found, TableRecord):
            self._record = found
        return found

    def exists(self) -> bool:
        """Return whether there is a table of this package at this root.

        Files of another committer can be read nevertheless: schema, snapshot and partitions come
        from them.
        """
        return self.run(table_exists(self._context))

    def refuse_folder_of_others(self) -> None:
        """Refuse a root that belongs to another table. For a writer without a record of its files.

        The root belongs to another table format, or is a partition's directory of another table.
        Such a writer would add files there that the table does not count, and remove files that it
        counts. A few requests.

        :raises InvalidInputError: it is a partition's directory of a table of this package.
        :raises TableMismatchError: it belongs to another table format.
        """
        self.run(refuse_folder_of_others(self._context))

    @property
    def encryption(self) -> Encryption | None:
        """Encryption that is asked of the store for everything written for the table.

        ``None``: the bucket's own encryption, or there is no table.
        """
        found = self.run(find_table(self._context))
        return found.record.encryption if found is not None and found.counts else None

    @property
    def coordination(self) -> Coordination | None:
        """The way in which writers of the table notice each other: one request.

        ``None``: there is no table here.
        """
        found = self.run(find_table(self._context))
        return found.record.coordination if found is not None and found.counts else None

    @property
    def schema(self) -> pa.Schema:
        """All columns, partition columns included, as they are now: one request.

        :raises TableNotFoundError: no table here.
        """
        self._record = None  # Columns may come and widen; the partition columns stay.
        return self._current().schema

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns, outermost first; empty for an unpartitioned table."""
        return self._current().partition_by

    def recorded_shape(self) -> tuple[pa.Schema, tuple[str, ...]] | None:
        """Read the present columns and partition columns from the table's record: one request.

        :returns: ``None`` if no record counts.
        """
        found = self.run(find_table(self._context))
        if found is None or not found.counts:
            return None
        self._record = found.record
        return found.record.schema, found.record.partition_by

    def stored_names(self, partitions: Collection[str]) -> Collection[str]:
        """Convert names of partitions from users to the form in which they are stored.

        :param partitions: a list, or a condition that is asked about each partition.
        :raises InvalidInputError: a partition that this table cannot have, or a string instead of a
            list.
        """
        return stored_names(self._context, self._current(), partitions)

    # The table's state

    def snapshot(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Read one consistent state of the partitions named (``day=2013-01-01``), or of all.

        Of a table that another committer wrote, it is the state that a listing shows. It may then
        include some files of a job that is just committing.

        The state counts as an input of later jobs of this process.

        :raises InvalidInputError: a partition that this table cannot have, or a string instead of a
            list.
        """
        return note_read(self.state(partitions))

    def state(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Read a state like :meth:`snapshot`, but do not record it as an input. For maintenance."""
        if partitions is not None:
            partitions = self.stored_names(partitions)
        return self.run(current_snapshot(self._context, partitions))

    def survey(self) -> Survey:
        """Take a snapshot of the readable partitions, with an error for each of the others."""
        try:
            return self.run(survey(self._context))
        except TableNotFoundError:
            return Survey(self.state())  # Another committer's files, if there are any.

    def partitions(self) -> list[str]:
        """List the partitions that hold files, sorted."""
        return sorted({file.partition for file in self.state().files})

    def partition_states(self, partitions: Collection[str]) -> dict[str, PartitionState]:
        """Read the states of partitions by their heads, each with its last commit.

        Partitions that no job of this package has changed, or is about to change, are left out.
        Each state is of the moment when it is read.

        :param partitions: as the table spells them.
        :raises InvalidInputError: a string instead of a list.
        :raises DamagedError: a record that names the files of one of them cannot be read.
        """
        names = given_partitions(self.root, partitions)
        return self.run(partition_states(self._context, names))

    def files(self, partition: str | None = None) -> list[DataFile]:
        """List the files of one partition, or of all."""
        wanted = None if partition is None else (partition,)
        return list(self.state(wanted).files)

    def scan(
        self,
        partitions: Collection[str] | None = None,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        snapshot: Snapshot | None = None,
    ) -> TableScan:
        """Read one state lazily, as batches, Arrow, pandas, Polars or DuckDB. Sends nothing yet.

        :param partitions: names, as of :meth:`snapshot`; ``None`` for all.
        :param filter: the rows wanted: an expression of ``pyarrow.compute``, or comparisons as
            ``[("delay", ">", 15)]``; ``None`` for all.
        :param columns: names in the order wanted; ``None`` for all.
        :param limit: at most so many rows.
        :param snapshot: the state to read; ``None``: the one when the scan begins.
        :raises InvalidInputError: a string instead of a list, or an invalid limit.
        """
        begun = BegunRead(lambda: (self.schema, self.partition_by), self.snapshot)
        reads = TableAccess(self.root, self.driver, lambda: begun)
        plan = scan_plan(self.root, partitions, filter, columns, limit)
        state = None if snapshot is None else note_read(snapshot)
        return TableScan(reads, plan, state)

    def to_arrow(
        self, columns: Sequence[str] | None = None, partitions: Collection[str] | None = None
    ) -> pa.Table:
        """Read one state into memory, as ``scan(…).to_arrow()``."""
        return self.scan(partitions, columns=columns).to_arrow()

    def read_file(
        self, snapshot: Snapshot, file: DataFile, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file of a snapshot as Arrow batches, partition columns attached."""
        return read_batches(self.driver, snapshot.schema, snapshot.partition_by, file, columns)

    # What happened to the table

    def overview(self, most_jobs: int = 100) -> TableOverview:
        """Read all partitions with their states, the last jobs, jobs under way, and failures.

        The failures are those whose run has not committed since. For a page that is read often.
        Changes nothing at all.

        Reads the index, a request for each head that has changed since, and one for each job.

        :param most_jobs: how many of the jobs decided last.
        :raises TableNotFoundError: no table, and no record of any job.
        :raises DamagedError: ``table.json`` cannot be read.
        """
        return self.run(look_over(self._context, most_jobs))

    def history(self, most_jobs: int = 100) -> pa.Table:
        """Read the changes of the table, newest first: author, time and size of each.

        A row for each partition that a job changed, one for a job that was aborted. Changes
        nothing; a request for each job.

        :param most_jobs: how many of the jobs decided last.
        :returns: ``decided_at``, ``job``, ``verdict`` (``damaged``: its decision cannot be read,
            and the other columns are null), ``partition``, ``change`` (append, replace, adopt;
            rewrite: rows that other jobs brought before; change: by a merge, update or deletion; or
            settle: a conflict of runs, by rows that were there), ``version`` of the partition
            since, ``files``, ``rows``, ``bytes``, ``files_removed``, of a change ``rows_inserted``,
            ``rows_updated`` and ``rows_deleted``, and the run: ``application``, ``dag_id``,
            ``run_id``, ``task_id``, ``try_number``, ``idempotency_key``.
        :raises TableNotFoundError: no table, and no job.
        :raises InvalidInputError: ``most_jobs`` is below 1.
        """
        return self.run(history(self._context, most_jobs))

    def partition_history(self, partition: str, recent: Sequence[SeenJob] = ()) -> PartitionHistory:
        """Read what a partition holds, and the jobs that changed it, if records lead back to them.

        :param partition: its name, in any spelling.
        :param recent: jobs of an overview, which need not be read again.
        :raises TableNotFoundError: no table.
        """
        return self.run(look_back(self._context, partition, recent))

    def manifest(self, job: str) -> JobManifest | None:
        """Read a job's decision, with all files that it names; ``None`` without a decision.

        :raises InvalidInputError: it is not an id of a job.
        """
        return self.run(read_job_manifest(self._context, job))

    def orphaned_uploads(self) -> OrphanedUploads:
        """Find orphaned uploads below the table, and how much they hold: a request an upload.

        Changes nothing; :meth:`.table.Table.purge` aborts them.
        """
        return self.run(find_orphaned_uploads(self.root))

    def marker(self, partition: str | None = None) -> SuccessMarker | None:
        """Read the ``_SUCCESS`` of a partition, or the table's; ``None`` if there is none.

        :param partition: its name, in any spelling; ``None``: the table's marker.
        :raises RecordDamagedError: it is empty (a classic committer's) or unreadable.
        """
        found = self.stored_marker(partition)
        if found is None and partition is not None and (shape := self.recorded_shape()) is not None:
            stored = spelled_as_stored(partition, *shape)
            return None if stored == partition else self.stored_marker(stored)
        return found

    def stored_marker(self, partition: str | None = None) -> SuccessMarker | None:
        """Read a marker like :meth:`marker`, of a partition as the table spells it: one request."""
        key = self.root.marker_key(UNPARTITIONED if partition is None else partition)
        found = self.run(Get(key))
        return SuccessMarker.parse(found.body, key) if isinstance(found, Found) else None

    def newer_runs(
        self,
        partitions: Iterable[str],
        run_rank: RunRanks,
        replaces: bool,
        *,
        run: str | None = None,
        on_conflict: OnConflict | str = OnConflict.NEWEST_RUN,
    ) -> dict[str, SupersededBy]:
        """Find the partitions in which a run gives way, before it begins a job: a request for each.

        It gives way if newer runs have loaded them, under ``newest_run``, or if a conflict over
        them was settled against the run.

        :param partitions: as the table spells them.
        :param replaces: whether the job replaces partitions; else it appends.
        :param run: the run's idempotency key, if it has one.
        :param on_conflict: its policy; under ``last_wins`` it never gives way.
        :raises InvalidInputError: the ranks do not compare; or a string instead of a list.
        """
        policy = choice("on_conflict", OnConflict, on_conflict)
        names = given_partitions(self.root, partitions)
        step = find_superseded(self._context, names, run_rank, replaces, run, policy)
        return self.run(step)

    def rival_jobs(
        self, partitions: Iterable[str], appends: bool, *, run: str | None = None
    ) -> list[RivalJob]:
        """Find the jobs of other runs that are at work on partitions, by their open records.

        A job that has been silent for so long that it counts as dead is left out.

        :param partitions: in any spelling; empty: any.
        :param appends: whether the run appends: two appends are not rivals.
        :param run: the run's idempotency key, whose own jobs are not rivals.
        :raises InvalidInputError: a string instead of a list.
        """
        names = given_partitions(self.root, partitions)
        return self.run(find_rivals(self._context, names, appends, run))

    def settled(self, partitions: Iterable[str]) -> dict[str, SettledPartition]:
        """Read which conflicts over partitions are settled, and each partition's version.

        A request for each partition.

        :param partitions: as the table spells them.
        :raises InvalidInputError: a string instead of a list.
        :raises RecordDamagedError: a head cannot be read.
        """
        names = given_partitions(self.root, partitions)
        return self.run(read_settled(self._context, names))

    # What became of its jobs

    def run(self, step: Work[T]) -> T:
        """Carry out a step in this table's bucket, and return its result.

        For steps without a method here. The parts of this package that maintain other committers'
        jobs (``zero_rename.s3a``) are steps, too. See ``committer/store/requests.py``.

        :raises ZeroRenameError: names this table, unless it names one.
        """
        with about(self.root.url):
            return self.driver.run(step)

    def job_state(self, job: str) -> JobState:
        """Return whether a job is committed, aborted, undecided, or unknown here."""
        decided = self.run(read_decision(self._context, job))
        if decided is not None:
            return JobState.COMMITTED if decided.decision.is_commit else JobState.ABORTED
        return JobState.UNKNOWN if self.is_closed(job) else JobState.UNDECIDED

    @property
    def retries(self) -> int:
        """Number of requests to this table's store that this process has sent again so far."""
        return self.driver.retries

    def result(self, job: str) -> Committed | None:
        """Read the report of a committed job; ``None`` for any other.

        Its rows are ready for readers that list only once :meth:`is_closed` is true, too.
        """
        decided = self.run(read_decision(self._context, job))
        if decided is None or not decided.decision.is_commit:
            return None
        return committed(self._context, decided)

    def is_closed(self, job: str) -> bool:
        """Return whether a job has no open record, so that nothing of it is left to do."""
        return self.run(read_open(self._context, job)) is None

    def job_of_key(self, idempotency_key: str) -> str | None:
        """Return the job that last did the work of this run's key, or ``None``.

        A decided commit counts before it is applied.
        """
        slot = Slot.run(self.root, idempotency_key)
        head = self.run(read_head(self._context, slot)).head
        if head.claim is not None and self.job_state(head.claim) is JobState.COMMITTED:
            return head.claim
        return head.last_job

    def partition_job(self, partition: str, beyond: int = 0) -> str | None:
        """Return the job that last changed a partition's rows after a version, or ``None``.

        Compactions do not count: they only write the rows again. A decided commit counts before it
        is applied.
        """
        head = self.run(read_head(self._context, Slot.partition(self.root, partition))).head
        claim = self.run(read_decision(self._context, head.claim)) if head.claim else None
        claimed = () if claim is None else claim.changes.get(partition, ())
        if head.version >= beyond and any(not it.leaves_rows for it in claimed):
            return head.claim
        if head.version <= beyond:
            return None
        last = self.partition_states([partition])[partition].last
        return last.job if last.version > beyond else None

    def claimed_by(self, slot: Slot) -> str | None:
        """Return the job that is about to change a partition, or to do the work of a run's key."""
        return self.run(read_head(self._context, slot)).head.claim

    def owner_of(self, job: str) -> Owner | None:
        """Read the owner of a job from its decision; ``None`` without a decision."""
        decided = self.run(read_decision(self._context, job))
        return None if decided is None else decided.decision.owner

    def inputs_of(self, job: str) -> Inputs:
        """Read from a job's decision what its rows were computed from, if that is recorded."""
        decided = self.run(read_decision(self._context, job))
        return UNKNOWN_INPUTS if decided is None else decided.decision.inputs

    def decisions(self, jobs: Iterable[str]) -> dict[str, Decided | None]:
        """Read the decisions of jobs, a request each; ``None`` for an undecided job.

        :raises InvalidInputError: a string instead of a list.
        """
        names = sorted({*job_ids("jobs", jobs)})
        steps = All(tuple(read_decision(self._context, job) for job in names))
        return dict(zip(names, self.run(steps), strict=True))

    def keys_there(self) -> set[str]:
        """List the keys of all objects below the table."""
        return {*self.run(list_objects(f"{self.root.prefix}/")).keys}

    def open_jobs(self) -> list[OpenJob]:
        """Read the jobs that are not completely cleaned up yet, oldest first."""
        return self.run(open_jobs(self._context))
