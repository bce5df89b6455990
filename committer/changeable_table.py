"""Table on S3 whose rows are changed: merged by key, or deleted, a partition at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from .commit.first_job import spelled_for
from .commit.snapshot import Snapshot, state_without_table
from .commit.state.job_state import Committed
from .errors import CommitConflictError, InvalidInputError, SnapshotGoneError, TableNotFoundError
from .format.given_rows import table_of
from .format.job_spec import (
    FileOptions,
    JobSpec,
    Mode,
    OnRepeat,
    Owner,
    SchemaMode,
    SuccessMarkers,
    choice,
    column_names,
    partition_names,
)
from .format.parquet.foreign_columns import FooterReader, ForeignFile, check_files
from .format.parquet.reader import read_batches
from .format.parquet.row_filter import Filter, RowFilter
from .format.records.data_file import DataFile
from .format.records.inputs import Inputs
from .format.row_changes import RowChanges
from .merge_request import INSERT, UPDATE, RowMerge
from .rival_wait import RivalWait
from .row_merge import MergeRows, count_merge
from .row_rewrite import RowPlan, TableChange
from .scan.current_table import given_partitions
from .scan.partition_condition import PartitionCondition
from .scan.reads import noted
from .stateful_table import StatefulTable
from .store.driver import BotoDriver
from .store.requests import Work
from .write_job import WriteJob, this_process

T = TypeVar("T")


class ChangeableTable(StatefulTable):
    """The part of a table that changes existing rows."""

    driver: BotoDriver
    _footers: FooterReader
    #: Places where its jobs write ``_SUCCESS`` by default.
    usual_markers = SuccessMarkers.PARTITION_AND_TABLE

    @abstractmethod
    def run(self, step: Work[T]) -> T:
        """Carry out a step of the protocol on the table's store."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns, partition columns included, as they are now."""

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns, outermost first."""

    @abstractmethod
    def stored_names(self, partitions: Collection[str]) -> Collection[str]:
        """Convert names of partitions from users to the form in which they are stored."""

    @abstractmethod
    def state_to_change(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Take a snapshot whose rows are to be computed again.

        It is of the partitions named, as they are stored, of all, or of those that fit a condition.
        """

    @abstractmethod
    def rewrite_policies(
        self, state: Snapshot, changes: Mapping[str, RowChanges], files: FileOptions
    ) -> tuple[dict[str, Any], list[Inputs]]:
        """Return the policies of a job that changes rows of a state's partitions, and its inputs.

        The policies are members of the :class:`.JobSpec`. The inputs are those of the rows that are
        written again.
        """

    @property
    @abstractmethod
    def hidden_remedy(self) -> str:
        """Remedy for columns in files of other programs that the table does not show."""

    @abstractmethod
    def job_of_key(self, idempotency_key: str) -> str | None:
        """Return the job that last did the work of this run's key, or ``None``."""

    def has_done(self, idempotency_key: str) -> bool:
        """Return whether a job has done the work of this run's key, also if it is not named."""
        return self.job_of_key(idempotency_key) is not None

    @abstractmethod
    def rival_jobs(
        self, partitions: Iterable[str], appends: bool, *, run: str | None = None
    ) -> Sequence[object]:
        """Find the jobs of other runs that are at work on partitions, by their open records.

        :param partitions: in any spelling; empty: any.
        :param appends: whether the run appends: two appends are not rivals.
        :param run: the run's idempotency key, whose own jobs are not rivals.
        """

    @abstractmethod
    def rewriting_job(self, spec: JobSpec, inputs: Inputs) -> WriteJob:
        """Make a job that writes rows of a state again, some of them changed.

        :param inputs: what they are computed from.
        """

    def _waiting(
        self, spec: JobSpec, longest: timedelta | float | None
    ) -> Callable[[], None] | None:
        """Make a function that waits for other runs' jobs before a job opens; ``None``: no wait."""
        wait = RivalWait.of(longest)
        if wait is None:
            return None

        def rivals() -> Sequence[object]:
            appends = spec.mode is Mode.APPEND
            return self.rival_jobs(spec.named_partitions, appends, run=spec.idempotency_key)

        return partial(wait.wait_for_rivals, rivals, spec.on_conflict, self.root.url)

    def merge(
        self,
        data: Any,
        on: Sequence[str],
        *,
        when_matched: str = UPDATE,
        when_not_matched: str = INSERT,
        delete_when: Filter | None = None,
        latest_by: str | None = None,
        null_safe: bool = False,
        across_partitions: bool = False,
        schema_mode: SchemaMode | str = SchemaMode.KEEP,
        partition_by: Sequence[str] = (),
        attempts: int = 3,
        idempotency_key: str | None = None,
        on_repeat: OnRepeat | str = OnRepeat.SKIP,
        only_partitions: Sequence[str] | None = None,
        data_root: str | None = None,
        owner: Owner | None = None,
        files: FileOptions | None = None,
        code_version: str | None = None,
        success_markers: SuccessMarkers | str | None = None,
    ) -> TableChange:
        """Merge rows by key, by one job. It rewrites the partitions with changed rows.

        The given rows are in memory. The table's rows are read a batch at a time, twice if a
        partition changes.

        :param data: a table, batch or reader of Arrow's, a frame of pandas (an index with a name is
            a column) or Polars, or any other object with Arrow's C stream interface.
        :param on: the key's columns. A row matches only rows of its own partition.
        :param when_matched: ``update`` or ``ignore``.
        :param when_not_matched: ``insert`` or ``ignore``.
        :param delete_when: a condition over the given rows, as for :meth:`scan`. A row for which it
            is true deletes the row that it matches, and is not inserted if it matches none.
        :param latest_by: a column. Of several rows of a key in a partition, the row with the
            greatest value in it counts. If the table has that column, its own row takes part: it
            stays if it is later than the given one. Without ``latest_by``, several given rows of a
            key are refused, and a given row counts before the table's.
        :param null_safe: null keys match each other; else a null key matches nothing.
        :param across_partitions: a row matches rows of all partitions. A row that now belongs to
            another partition moves there. Of several rows of a key, in any partitions, one counts,
            as ``latest_by`` says.
        :param schema_mode: ``keep``, or ``merge``: columns that only the given rows have, and wider
            types, become the table's; columns that they lack stay, and are null in new rows.
        :param partition_by: partition columns of a table that is not there yet.
        :param attempts: how often it is computed, if another job changes the table meanwhile.
        :param idempotency_key: with ``on_repeat``, ``only_partitions``, ``data_root``, ``owner``,
            ``files`` and ``code_version``, as for :meth:`.table.Table.job`.
        :param success_markers: the same; ``None``: the default of the table's jobs.
        :raises InvalidInputError: invalid arguments; nothing was changed.
        :raises TableMismatchError: columns that do not fit the table's.
        :raises CommitConflictError: another job changed a partition, at each attempt; nothing of
            this one is visible.
        """
        if isinstance(on, str):
            raise InvalidInputError(
                f"on is the text {on!r}; nothing was merged.", remedy=f"Give on=[{on!r}]."
            )
        merge = RowMerge(
            tuple(on),
            when_matched,
            when_not_matched,
            delete_when,
            latest_by,
            null_safe,
            across_partitions,
            choice("schema_mode", SchemaMode, schema_mode),
        )
        given = table_of(data)
        spec = JobSpec(
            given.schema,
            idempotency_key=idempotency_key,
            on_repeat=choice("on_repeat", OnRepeat, on_repeat),
            only_partitions=partition_names("only_partitions", only_partitions),
            data_root=data_root,
            owner=owner or this_process(),
            files=files or FileOptions(),
            code_version=code_version,
            success_markers=choice(
                "success_markers", SuccessMarkers, success_markers or self.usual_markers
            ),
        )
        by = column_names("partition_by", partition_by) or ()
        plan = partial(self._plan_merge, merge, given, by)
        return self._change(plan, spec, attempts)

    def delete(
        self,
        filter: Filter,
        *,
        partitions: Collection[str] | None = None,
        apply: bool = True,
        attempts: int = 3,
        idempotency_key: str | None = None,
        on_repeat: OnRepeat | str = OnRepeat.SKIP,
    ) -> TableChange:
        """Delete the rows that fulfil a condition, by one job. It rewrites their partitions.

        Rows are read a batch at a time. Rows for which the condition is null stay. A partition that
        loses its last row has no file left.

        :param filter: as for :meth:`scan`.
        :param partitions: only in these; ``None`` for all.
        :param apply: ``False`` only counts the rows.
        :param attempts: how often it is computed, if another job changes the table meanwhile.
        :param idempotency_key: with ``on_repeat``, as for :meth:`.table.Table.job`.
        :raises InvalidInputError: a filter that does not fit the table's columns, a table of
            coordination *none*; nothing was changed.
        :raises CommitConflictError: another job changed a partition, at each attempt; nothing of
            this one is visible.
        """
        if partitions is not None:  # Once, for all attempts.
            partitions = given_partitions(self.root, partitions)
        if not apply:
            return self._plan_deletion(filter, partitions).report()
        spec = JobSpec(
            pa.schema([]),
            idempotency_key=idempotency_key,
            on_repeat=choice("on_repeat", OnRepeat, on_repeat),
            owner=this_process(),
            success_markers=self.usual_markers,
        )
        return self._change(partial(self._plan_deletion, filter, partitions), spec, attempts)

    def state_to_merge(
        self,
        touched: Collection[str],
        across: bool,
        with_keys: Callable[[Snapshot], Collection[str]],
        nothing: Snapshot | None = None,
    ) -> Snapshot:
        """Take a snapshot into which rows are merged.

        It is of the partitions that the rows lie in; for a merge across partitions also of those
        that hold their keys, as one state with all others.

        :param touched: the partitions that the rows lie in.
        :param with_keys: finds those that hold their keys, in a state of all.
        :param nothing: the state of a root without a table, if there is none.
        :raises InvalidInputError: a table of coordination *none*.
        """
        if not across:
            return self.state_to_change(touched) if nothing is None else nothing.of(touched)
        whole = self.state_to_change() if nothing is None else nothing
        found = with_keys(whole) if whole.files else ()
        return whole.chosen({*touched, *found})

    def refuse_hidden_columns(self, state: Snapshot) -> None:
        """Refuse to rewrite rows of foreign files with columns that the table does not show.

        The footer of each foreign file of the state is read.

        :raises TableMismatchError: there is one; the rows would lose these columns.
        :raises DamagedError: a file is not Parquet.
        """
        files = [
            ForeignFile(file.key, file.partition, file.size)
            for file in state.files
            if file.is_foreign
        ]
        if files:
            found = self.run(self._footers.read(files, state.partition_by))
            check_files(self.root, state.schema, zip(files, found, strict=True), self.hidden_remedy)

    def refuse_repeat(self, idempotency_key: str, find_why: Callable[[], str | None]) -> None:
        """Refuse to repeat a run's change if the repetition would change rows again.

        :param find_why: returns why it would; ``None``: it would not.
        :raises InvalidInputError: it would, and the run has made the change before.
        """
        why = find_why() if self.has_done(idempotency_key) else None
        if why is None:
            return
        raise InvalidInputError(
            f"This run has changed the table before, and would change it once more: {why}. Nothing "
            "was changed.",
            table=self.root.url,
            job=self.job_of_key(idempotency_key),
            remedy="Give on_repeat='append', which makes it again on the rows that are there. If "
            "it is to take the place of the earlier change, take that back before: in a Delta "
            "table by zero-rename undo; in a table of directories load the partitions again, with "
            "mode overwrite.",
        )

    # How a change is made

    def _change(self, plan: Callable[[], RowPlan], spec: JobSpec, attempts: int) -> TableChange:
        """Plan a change and carry it out, again after each conflict.

        :param spec: of the job, without the members that the plan gives, such as its columns.
        """
        if attempts < 1:
            raise InvalidInputError(f"attempts is {attempts}; it is 1 at least.")
        key = spec.idempotency_key
        for attempt in range(1, attempts + 1):
            if key and spec.on_repeat is OnRepeat.SKIP and self.has_done(key):
                return TableChange.done_before(self._write(replace(spec, schema=self.schema), None))
            try:
                found = plan()
                done = self._carried_out(found, spec)
            except (CommitConflictError, SnapshotGoneError):
                if attempt == attempts:
                    raise
                continue
            if done is not None and done.repeated:
                return TableChange.done_before(done)
            return found.report(done, attempt)
        raise AssertionError("each attempt returns or raises")

    def _carried_out(self, plan: RowPlan, spec: JobSpec) -> Committed | None:
        key = spec.idempotency_key
        spec = replace(
            spec,
            schema=plan.schema,
            partition_by=plan.state.partition_by,
            schema_mode=plan.schema_mode,
            change_reads=plan.report().reads(plan.counts),
        )
        spec = spelled_for(spec, plan.schema, plan.state.partition_by)
        if not plan.changed:
            needed = key is not None or not plan.schema.equals(plan.state.schema)
            with self.held_against(plan.state):
                return self._write(spec, None) if needed else None
        if spec.on_repeat is OnRepeat.REPLACE_OWN and key is not None:
            self.refuse_repeat(key, lambda: plan.why_not_repeatable)
        changes = {name: plan.counts[name] for name in plan.changed}
        policies, inputs = self.rewrite_policies(plan.state, changes, spec.files)
        # The rows given to a merge were computed from what this process has read.
        inputs += [noted().inputs.made_by(spec.code_version)] if plan.brings_rows else []
        with self.held_against(plan.state):
            return self._write(replace(spec, **policies), plan, inputs)

    def _write(
        self, spec: JobSpec, plan: RowPlan | None, inputs: Iterable[Inputs] = ()
    ) -> Committed:
        """Carry out a job, with a plan's rows or without rows."""
        # The files of the run's earlier job hold rows of others, too. So a repeated change is made
        # on the present rows, and replaces nothing of its own.
        again = OnRepeat.APPEND if spec.on_repeat is OnRepeat.REPLACE_OWN else spec.on_repeat
        spec = replace(spec, on_repeat=again)
        made_of = Inputs.all_of(inputs)
        with self.rewriting_job(spec, made_of) as job:
            if plan is not None and not job.repeats:
                plan.write(job)
        assert job.committed is not None
        return job.committed

    # What is to become of the rows

    def _plan_merge(
        self, merge: RowMerge, given: pa.Table, partition_by: tuple[str, ...]
    ) -> RowPlan:
        rows, state = self._state_to_merge(merge, given, partition_by)
        files = state.by_partition()

        def read(name: str) -> Iterator[pa.RecordBatch]:
            return self._all_rows_of(state, files[name])

        counts, changed, matched = count_merge(rows, state, read)

        def write(job: WriteJob) -> None:
            for name in sorted(changed.intersection(files)):
                for batch in read(name):
                    result = rows.outcome(name, rows.widened(batch))
                    job.write(result.kept)
                    job.write(result.changed)
            job.write(rows.inserted(matched))

        inserts_nulls = merge.not_matched == INSERT and bool(rows.index.codes.null_count)
        why = "rows with a null key match nothing, so they are inserted each time"
        return RowPlan(
            state,
            counts,
            changed,
            write,
            rows.schema,
            merge.schema_mode,
            True,
            why if inserts_nulls else None,
        )

    def _state_to_merge(
        self, merge: RowMerge, given: pa.Table, partition_by: tuple[str, ...]
    ) -> tuple[MergeRows, Snapshot]:
        """Return the given rows, in the columns of the state to merge into, and that state.

        :param partition_by: partition columns of a table that is not there yet.
        """
        url = self.root.url
        try:
            own, by = self.schema, self.partition_by
        except TableNotFoundError:
            rows = MergeRows.of(merge, given, given.schema, partition_by, is_first=True, url=url)
            nothing = state_without_table(self.root, rows.schema, partition_by)
            return rows, self._state_of(rows, nothing)
        while True:
            rows = MergeRows.of(merge, given, own, by, is_first=False, url=url)
            state = self._state_of(rows)
            if state.has_columns(own, by):
                return rows, state
            own, by = state.schema, state.partition_by

    def _state_of(self, rows: MergeRows, nothing: Snapshot | None = None) -> Snapshot:
        touched = set(rows.places.unique().to_pylist())
        across = rows.merge.across and bool(rows.by)
        return self.state_to_merge(touched, across, partial(self._with_keys, rows), nothing)

    def _with_keys(self, rows: MergeRows, whole: Snapshot) -> set[str]:
        """Find the partitions that hold keys of the given rows.

        Only the key's columns are read. Files are not read if their statistics exclude all of the
        keys.
        """
        on = rows.merge.on
        within = None
        if not rows.merge.null_safe and len(rows.rows):
            ends = pc.min_max(rows.rows.column(on[0]))
            first = pc.field(on[0])
            if ends["min"].is_valid:
                within = RowFilter([(first >= ends["min"]) & (first <= ends["max"])], whole.schema)
        found = set()
        for name, files in whole.by_partition().items():
            batches = self._rows_of(whole, files, on, within)
            if any(rows.index.find(batch.columns).null_count < len(batch) for batch in batches):
                found.add(name)
        return found

    def _plan_deletion(self, filter: Filter, named: Collection[str] | None) -> RowPlan:
        condition, state = self._state_to_delete_of(filter, named)
        counts, held = {}, state.by_partition()
        for name, files in held.items():
            # The number of all rows is on record, except for foreign files.
            every = sum(len(batch) for batch in self._rows_of(state, files, ()))
            gone = sum(len(batch) for batch in self._rows_of(state, files, (), condition))
            counts[name] = RowChanges(deleted=gone, unchanged=every - gone)
        changed = {name for name, rows in counts.items() if rows.deleted}
        for name in changed:
            foreign = [file for file in held[name] if file.is_foreign]
            for _ in self._all_rows_of(state, foreign, ()):
                pass  # Refuses files with columns that the table does not show.

        def write(job: WriteJob) -> None:
            for name in sorted(changed):
                if counts[name].unchanged:
                    for batch in self._all_rows_of(state, held[name]):
                        job.write(condition.drop(batch))

        return RowPlan(state, counts, changed, write, state.schema)

    def _state_to_delete_of(
        self, filter: Filter, named: Collection[str] | None
    ) -> tuple[RowFilter, Snapshot]:
        """Return the condition of a deletion, and the state of the partitions that it may fit.

        The condition is over that state's columns.

        :param named: only these partitions; ``None`` for all.
        """
        schema, by = self.schema, self.partition_by
        if named is not None:
            named = self.stored_names(named)
        while True:
            condition = RowFilter([filter], schema)
            state = self.state_to_change(PartitionCondition(condition, schema, by, named))
            if state.has_columns(schema, by):
                return condition, state
            schema, by = state.schema, state.partition_by

    def _all_rows_of(
        self, state: Snapshot, files: Iterable[DataFile], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of files that are removed once the rows are written again."""
        by = state.partition_by
        for file in files:
            yield from read_batches(self.driver, state.schema, by, file, columns, rewrites=True)

    def _rows_of(
        self,
        state: Snapshot,
        files: Iterable[DataFile],
        columns: Sequence[str] | None,
        row_filter: RowFilter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from read_batches(
                self.driver, state.schema, state.partition_by, file, columns, row_filter=row_filter
            )
