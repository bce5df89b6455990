"""Table on S3 with operations that write existing rows again: compaction, resolution, copies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from .commit.snapshot import Snapshot
from .commit.state.context import Progress
from .errors import (
    CommitConflictError,
    DamagedError,
    InvalidInputError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
    ZeroRenameError,
    counted,
)
from .format.given_numbers import check_age
from .format.job_spec import FileOptions, JobSpec, job_ids
from .format.parquet.reader import read_batches
from .format.parquet.row_order import in_order
from .format.records.inputs import Inputs
from .format.row_changes import RowChanges
from .job_steps import HeadSteps
from .readable_table import ReadableTable
from .row_rewrite import check_rewritable, rewrite_policies
from .store.driver import BotoDriver
from .table_copy import LANES, Copied, FileCopier, copy_spec, emptied_since
from .upkeep.compaction import (
    TARGET_BYTES,
    CompactAction,
    CompactedPartition,
    CompactionPlan,
    compaction_spec,
    find_compactible,
    inputs_in,
    writers_of,
)
from .upkeep.conflicts.resolution import Resolution, ResolutionPlan, plan_resolution, plan_undoing
from .upkeep.unfinished import telling_of_jobs
from .write_job import WriteJob, this_process

logger = logging.getLogger("zero_rename.committer.rewritable_table")


class RewritableTable(ReadableTable):
    """The part of :class:`.table.Table` that writes rows again, by ordinary jobs."""

    def compact(
        self,
        partitions: Collection[str] | None = None,
        target_bytes: int = TARGET_BYTES,
        apply: bool = False,
        sort_by: Sequence[str] = (),
    ) -> list[CompactedPartition]:
        """Rewrite the files of partitions that have too many, as fewer: a job for each partition.

        A partition is compacted if it has at least twice as many files as its bytes need, or is not
        sorted as asked. It is left as it is if another job changes it meanwhile, or one of its
        files or records is damaged, or a file has columns that the table does not show. The others
        are compacted; the report names those that are left, and why.

        :param partitions: only these; ``None`` for all.
        :param target_bytes: about the size of a file.
        :param apply: do it; ``False`` only says what would be done.
        :param sort_by: columns to sort each partition's rows by, so that reads open few files.
        :raises TableNotFoundError: no table of this package.
        :raises TableMismatchError: files here belong to a table of another format.
        :raises InvalidInputError: a table of coordination *none*, in which other writers would not
            be noticed; or columns by which rows cannot be sorted.
        """
        if partitions is not None:
            partitions = self.stored_names(partitions)
        plans, left = self.run(find_compactible(self._context, partitions, target_bytes, sort_by))
        if not apply:
            return [*(plan.report for plan in plans), *left]
        done: list[CompactedPartition] = []
        with telling_of_jobs(done):
            for plan in plans:
                done.append(self._compact(plan))
        return [*done, *left]

    def _compact(self, plan: CompactionPlan) -> CompactedPartition:
        try:
            spec, inputs = self.run(compaction_spec(self._context, plan, this_process()))
        except DamagedError as error:
            return plan.left(error)
        try:
            job = self._write_again(spec, plan, inputs)
        except (CommitConflictError, SnapshotGoneError):
            return replace(plan.report, action=CompactAction.CHANGED_MEANWHILE)
        except (TableMismatchError, DamagedError) as error:
            # Errors that are not about a file of the plan may be raised after the decision.
            if error.key not in {file.key for file in plan.files}:
                raise
            return plan.left(error)
        assert job.committed is not None
        after, done = job.committed.files, CompactAction.COMPACTED
        return replace(plan.report, action=done, files_after=after, job=job.job)

    def keep_rows(
        self,
        partition: str,
        keep: Sequence[str] = (),
        undo: str | None = None,
        *,
        apply: bool = False,
        discard: bool = False,
        window: float = 3600.0,
        since: float = 604800.0,
    ) -> Resolution:
        """Make a partition keep the rows of only some of the jobs that changed it lately.

        A job writes the rows to keep again.

        :param partition: its path, ``day=2013-01-01``.
        :param keep: ``["newest"]``, ``["all"]``, or job ids, of the jobs that changed it within a
            ``window`` of seconds, ``since`` so many before now; rows of other jobs stay in any
            case.
        :param undo: instead of ``keep``: restore what it held before this job, which changed it
            last.
        :param apply: do it; ``False`` only says what would be done.
        :param discard: remove the files that are replaced; else they stay, unseen, and this can be
            undone.
        :raises InvalidInputError: not a partition of the table; fewer than two such jobs; or rows
            to keep are gone, or of former columns; or that job is not the last, or the state before
            it is not completely on record; or both ``keep`` and ``undo`` are given; or a time is
            negative or no number.
        :raises CommitConflictError: the partition has changed meanwhile.
        """
        keep = job_ids("keep", keep)
        if keep and undo is not None:
            raise InvalidInputError(
                f"Both keep={list(keep)!r} and undo={undo!r} are given. Nothing was changed.",
                table=self.root.url,
                remedy="Give one of them: undo restores all of what the partition held before "
                "that job.",
            )
        check_age("window", window)
        check_age("since", since)
        (partition,) = self.stored_names([partition])
        if undo is None:
            plan = self.run(plan_resolution(self._context, partition, keep, window, since))
        else:
            plan = self.run(plan_undoing(self._context, partition, undo))
        if not apply:
            return plan.resolution
        inputs = inputs_in(self.run(writers_of(self._context, plan.files)), plan.files)
        job = self._write_again(plan.spec(this_process(), discard), plan, inputs)
        return replace(plan.resolution, job=job.job)

    def copy(
        self,
        new: ReadableTable | str,
        progress: Callable[[Progress], None] = lambda _: None,
        encryption: str | None = None,
        encryption_key: str | None = None,
    ) -> Copied:
        """Copy this table's present state to another root, by one job: all of it or nothing.

        The bytes stay the same, and with them row counts, statistics, content and what the rows
        were computed from. History and runs' keys are not copied.

        The store copies by itself if both tables have one client; else the bytes go through this
        process, and their checksums are compared. The rows of files from before the table have not
        been counted: these files are written anew. Commits to this table meanwhile are not in the
        copy; the report names their partitions.

        :param new: the root to copy to: no table, or an empty one; a URL is reached by the client
            of this table. A repeated copy of the same state does nothing. It is refused if the new
            table has been emptied since.
        :param progress: called as files are copied.
        :param encryption: by the store, of the new table: SSE-S3, SSE-KMS or DSSE-KMS; ``None``: in
            the same bucket as of this table, in another the bucket's own.
        :param encryption_key: the KMS key, by its id, ARN or alias; ``None``: the account's own.
        :raises InvalidInputError: ``new`` is this table, holds files, has been emptied since it was
            copied to, or is not a table root; or an invalid encryption.
        :raises SnapshotGoneError: a file is gone, or one without a record changed, meanwhile.
        :raises DamagedError: a file has other bytes than were committed.
        :raises TableMismatchError: ``new`` is an empty table of another kind or other columns.
        """
        new = self._other(new)
        self._refuse_own_root(new)
        state = self.state()
        if not new.exists():
            _refuse_files(new)  # Files of another writer: refused before a job's record is there.
        spec = copy_spec(state, this_process())
        files = replace(spec.files, encryption=encryption, encryption_key=encryption_key)
        if new.root.bucket == self.root.bucket:
            files = files.encrypted_by(self.driver.encryption_below(self.root.prefix))
        spec = replace(spec, files=files)
        inputs = inputs_in(self.run(writers_of(self._context, state.files)), state.files)
        reached = {self.driver.clients, *self.driver.reach(file.key for file in state.files)}
        on_server = reached == {new.driver.clients}
        with (
            ThreadPoolExecutor(LANES) as lanes,
            WriteJob(HeadSteps(new.driver, new._context), spec, inputs=lambda: inputs) as job,
        ):
            if not job.repeats:
                _refuse_files(new)
                through = None if on_server else lanes
                copier = FileCopier(self.driver, new.driver, job.opened, through, progress)
                results = copier.copy(state)
                self._changed_since(state, held=True)
                job.take(results, len(results))
        assert job.committed is not None
        if job.repeats and state.files and not new.state().files:
            raise emptied_since(new.root, self.root, job.committed.job)
        changed = None
        try:
            changed = self._changed_since(state)
        except ZeroRenameError as error:
            logger.warning(
                "%s: the copy is committed, as job %s; whether %s has changed meanwhile could not "
                "be seen: %s",
                new.root.url,
                job.job,
                self.root.url,
                error,
            )
        return Copied.of(state, job.committed, on_server, changed)

    def _refuse_own_root(self, new: ReadableTable) -> None:
        """Refuse to copy a table onto itself.

        Buckets of one name may be in two stores, so the clients are compared, too.

        :raises InvalidInputError: it is this table.
        """
        if new.root == self.root and new.driver.clients == self.driver.clients:
            raise InvalidInputError(
                "A table cannot be copied onto itself. Nothing was copied.",
                table=self.root.url,
                remedy="Name another root.",
            )

    def _other(self, new: object) -> ReadableTable:
        """Return a table to copy to, which may be named by its URL.

        :raises InvalidInputError: it is neither.
        """
        if isinstance(new, ReadableTable):
            return new
        if not isinstance(new, str):
            raise InvalidInputError(
                f"Invalid new={new!r}: it must be a Table or a URL. Nothing was copied.",
                remedy="Give Table('s3://bucket/prefix'), or 's3://bucket/prefix'.",
            )
        other = ReadableTable(new)
        other.driver = BotoDriver(other.root.bucket, self.driver.clients)
        return other

    def _changed_since(self, state: Snapshot, held: bool = False) -> tuple[str, ...]:
        """Return the partitions that hold other files than in a state of this table.

        :param held: refuse such a change of partitions without a head.
        :raises SnapshotGoneError: there is one: what was read may be half of another program's job.
        """
        now = self.state()
        before, after = state.by_partition(), now.by_partition()
        names = {name for name in before | after if before.get(name) != after.get(name)}
        listed = before.keys() - state.versions.keys() | after.keys() - now.versions.keys()
        unheld = names & listed
        if held and unheld:
            raise SnapshotGoneError(
                f"{min(unheld) or 'The table'} holds other files than as it was read, and no head "
                "tells which belong together. Nothing of the copy is visible.",
                table=self.root.url,
                remedy="Copy while nobody writes there.",
            )
        return tuple(sorted(names))

    def _write_again(
        self, spec: JobSpec, plan: CompactionPlan | ResolutionPlan, inputs: Inputs
    ) -> WriteJob:
        schema, by = plan.snapshot.schema, plan.snapshot.partition_by
        batches = (
            rows
            for it in plan.files
            for rows in read_batches(self.driver, schema, by, it, rewrites=True)
        )
        with (
            self.held_against(plan.snapshot),
            WriteJob(HeadSteps(self.driver, self._context), spec, inputs=lambda: inputs) as job,
        ):
            for rows in in_order(batches, plan.snapshot.schema, spec.sorted_by):
                job.write(rows)
        return job

    # Rows that are changed

    def state_to_change(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Take a snapshot whose rows are to be computed again.

        It is of the partitions named, as they are stored, of all, or of those that fit a condition.

        :raises InvalidInputError: a table of coordination *none*.
        """
        self.run(check_rewritable(self._context))
        return self.state(partitions)

    @property
    def hidden_remedy(self) -> str:
        return (
            "Let the table have these columns, too, as far as they fit: zero-rename adopt "
            f"{self.root.url} --apply; move away what does not."
        )

    def rewrite_policies(
        self, state: Snapshot, changes: Mapping[str, RowChanges], files: FileOptions
    ) -> tuple[dict[str, Any], list[Inputs]]:
        """See :func:`.row_rewrite.rewrite_policies`."""
        return self.run(rewrite_policies(self._context, state, changes, files))

    def rewriting_job(self, spec: JobSpec, inputs: Inputs) -> WriteJob:
        """Make a job that writes rows of a state again, some of them changed."""
        return WriteJob(HeadSteps(self.driver, self._context), spec, inputs=lambda: inputs)


def _refuse_files(new: ReadableTable) -> None:
    """Refuse to copy to a table that holds files.

    :raises InvalidInputError: it holds files.
    """
    try:
        files = new.state().files
    except TableNotFoundError:
        return
    if files:
        raise InvalidInputError(
            f"It holds {counted(len(files), 'file')} already. Nothing was copied.",
            table=new.root.url,
            key=files[0].key,
            remedy="Name a root that holds no files.",
        )
