"""Table on S3 for those who write rows again that are there: compaction, resolution."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from .errors import CommitConflictError, SnapshotGoneError
from .format.job_spec import JobSpec
from .format.parquet.row_order import in_order
from .format.records.inputs import Inputs
from .readable_table import ReadableTable
from .scan.current_table import stored_names
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
from .upkeep.conflicts import ConflictReport, find_conflicts
from .upkeep.resolution import Resolution, ResolutionPlan, plan_resolution, plan_undoing
from .write_job import WriteJob, this_process


class RewritableTable(ReadableTable):
    """The part of :class:`.table.Table` that writes rows again, by ordinary jobs."""

    def compact(
        self,
        partitions: Collection[str] | None = None,
        target_bytes: int = TARGET_BYTES,
        apply: bool = False,
        sort_by: Sequence[str] = (),
    ) -> list[CompactedPartition]:
        """Write the files of partitions that have too many anew, as fewer: a job for each.

        One is compacted where it has at least twice as many files as its bytes need, or is not
        sorted as asked, and left where another job changes it meanwhile.

        :param partitions: only these; ``None`` for all.
        :param target_bytes: about the size of a file.
        :param apply: do it; ``False`` only says what would be done.
        :param sort_by: columns to sort each partition's rows by, so that reads open few files.
        :raises InvalidInputError: a table of coordination *none*, or no columns to sort by.
        """
        if partitions is not None:
            partitions = stored_names(self._context, self._current(), partitions)
        plans = self.run(find_compactible(self._context, partitions, target_bytes, sort_by))
        return [self._compact(plan) if apply else plan.report for plan in plans]

    def _compact(self, plan: CompactionPlan) -> CompactedPartition:
        spec, inputs = self.run(compaction_spec(self._context, plan, this_process()))
        try:
            job = self._write_again(spec, plan, inputs)
        except (CommitConflictError, SnapshotGoneError):
            return replace(plan.report, action=CompactAction.CHANGED_MEANWHILE)
        assert job.committed is not None
        after, done = job.committed.files, CompactAction.COMPACTED
        return replace(plan.report, action=done, files_after=after, job=job.job)

    def conflicts(
        self, window: float = 3600.0, since: float = 604800.0, partition: str | None = None
    ) -> ConflictReport:
        """Partitions that more than one run touched, and who gave way, as far as it is known.

        :param window: seconds between two decisions within which they belong together.
        :param since: seconds before now that are looked at.
        :param partition: only this one, as a path.
        """
        return self.driver.run(find_conflicts(self._context, window, since, partition))

    def resolve(
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
        """Make a partition hold the rows of some of the runs that conflict over it, by a job.

        :param partition: its path, ``day=2013-01-01``; ``window`` and ``since`` as in
            :meth:`conflicts`.
        :param keep: ``["newest"]``, ``["all"]``, or job ids; rows of other runs stay in any case.
        :param undo: instead of ``keep``: what it held before this job, which changed it last.
        :param apply: do it; ``False`` only says what would be done.
        :param discard: remove what is replaced; else it stays, unseen, and this can be undone.
        :raises InvalidInputError: no such conflict, or rows to keep are gone.
        :raises CommitConflictError: the partition has changed meanwhile.
        """
        if undo is None:
            plan = self.run(plan_resolution(self._context, partition, keep, window, since))
        else:
            plan = self.run(plan_undoing(self._context, partition, undo))
        if not apply:
            return plan.resolution
        inputs = inputs_in(self.run(writers_of(self._context, plan.files)), plan.files)
        job = self._write_again(plan.spec(this_process(), discard), plan, inputs)
        return replace(plan.resolution, job=job.job)

    def _write_again(
        self, spec: JobSpec, plan: CompactionPlan | ResolutionPlan, inputs: Inputs
    ) -> WriteJob:
        batches = (rows for it in plan.files for rows in self.read_file(plan.snapshot, it))
        with WriteJob(self.driver, self._context, spec, inputs=lambda: inputs) as job:
            for rows in in_order(batches, plan.snapshot.schema, spec.sorted_by):
                job.write(rows)
        return job
