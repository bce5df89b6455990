"""Delta table on S3 from the side of its maintenance: its past, dead jobs and conflicts of runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..committer.commit.settled import SettledPartition
from ..committer.commit.state.old_records import KEPT_FOR
from ..committer.errors import InvalidInputError, ZeroRenameError, about
from ..committer.format.as_of import AsOf, Past
from ..committer.format.given_numbers import check_age, check_span
from ..committer.format.job_spec import MAX_DURATION, Owner, choice, job_ids
from ..committer.format.layout import new_job_id, require_job_id
from ..committer.format.records.run_conflict import (
    ConflictingRun,
    RunConflict,
    SettledBy,
    Settlement,
)
from ..committer.scan.current_table import stored_in
from ..committer.store.fast_root import FastRoot
from ..committer.store.requests import Step
from ..committer.upkeep.adopt import AdoptAction, AdoptReport
from ..committer.upkeep.checkpoint import (
    CheckpointAction,
    Checkpointed,
    CheckpointOrder,
    DataRootChange,
    NotDurable,
    not_durable,
    plan_checkpoint,
    refuse_temporary,
)
from ..committer.upkeep.conflicts.conflict_record import open_conflicts, settle
from ..committer.upkeep.conflicts.conflict_search import ConflictReport
from ..committer.upkeep.conflicts.settlement_policy import SettlementPolicy
from ..committer.upkeep.problem import Problem
from ..committer.upkeep.purging.purge import PurgeEntry
from ..committer.upkeep.recovery import Recovered
from ..committer.upkeep.unfinished import unless_begun
from ..committer.upkeep.verify import Finding
from ..committer.write_job import this_process
from ..log.checkpointing import make_checkpoint
from ..log.job_steps import abandon_job, close_refused, commit_or_abandon, open_log_job
from ..log.opening import LogDepth
from ..log.repairing import RepairedEntry, repair_log
from ..log.scope import ALL
from .data_root import change_data_root
from .delta_adopt import adopt_directory, plan_adoption
from .delta_checkpoint import DeltaCheckpointer
from .delta_conflicts import find_log_conflicts
from .delta_doctor import examine
from .delta_entry import owner_members
from .delta_files import scope_of
from .delta_properties import RetentionChange, change_retention
from .delta_restoring import (
    RestoredVersion,
    carry_out,
    find_restored,
    preview,
    restore_planner,
    undo_planner,
)
from .delta_settling import (
    LogSettlementPlan,
    check_log_rerun,
    plan_log_settlement,
    read_log_settled,
)
from .delta_upkeep import (
    plan_recovery,
    purge_records,
    purge_table,
    purgeable,
    recover_jobs,
    refuse_unknown,
    store_now,
)
from .delta_verify import verify_table
from .readable_delta import ReadableDelta
from .run_reports import write_reports

T = TypeVar("T")


class TendedDelta(ReadableDelta):
    """The half of :class:`.delta_table.DeltaTable` for maintenance: recovery, purge, undoing and
    conflicts."""

    # Files in a data root

    def set_data_root(self, data_root: str | None, apply: bool = False) -> DataRootChange:
        """Change where jobs write files first. Present files stay where they are until they are
        replaced or copied.

        :param data_root: as for :meth:`job`; ``None``: the table itself.
        :param apply: ``False`` only reports what would change.
        :raises TableNotFoundError: there is no table.
        :raises InvalidInputError: the data root is invalid, or lies in the table.
        :raises CommitConflictError: another job changed columns or properties meanwhile.
        """
        root = None if data_root is None else FastRoot.parse(data_root)
        return self.run(change_data_root(self.root, self._layout, root, apply))

    def not_durable(self) -> list[NotDurable]:
        """Return the files that lie only in a data root, by partition, and since when.

        :raises TableNotFoundError: there is no table.
        """
        return not_durable(self.state().files)

    def checkpoint(
        self,
        partitions: Collection[str] | None = None,
        order: CheckpointOrder | str = CheckpointOrder.CREATION,
        apply: bool = False,
    ) -> list[Checkpointed]:
        """Copy the files that lie only in a data root into the table.

        One job copies the partitions that were written together; files and rows stay the same. When
        all files are copied, every engine can read the table. Other jobs may run meanwhile: if one
        removes a copied file, it removes the copy. Files that another job writes meanwhile are left
        to the next checkpoint.

        If both places are at one store and use the same credentials, the store copies. Otherwise
        the bytes go through this process, four files at a time. The files in the data root stay
        there until a purge after the table's retention.

        :param partitions: only these; ``None`` for all.
        :param order: which partitions come first: those that were written first, or last.
        :param apply: ``False`` only reports what would be done.
        :raises FastRootGoneError: a data root cannot be reached. The files in others are copied.
        :raises TableNotFoundError: there is no table.
        :raises TableMismatchError: the table cannot be written here.
        :raises InvalidInputError: the data root is temporary, so its files need not become durable;
            or the order is invalid.
        """
        chosen = choice("order", CheckpointOrder, order)
        refuse_temporary(self.root, self.data_root)
        opened = self._opened()
        plans = plan_checkpoint(opened.snapshot(partitions), chosen)
        if not apply:
            if plans:
                with about(self.root.url):
                    self._layout.check_writable(opened.opened.state, removes_rows=False)
            return [it for plan in plans for it in plan.told(CheckpointAction.WOULD_COPY)]
        copier = DeltaCheckpointer(self.driver, self.root, self._layout, this_process())
        with about(self.root.url):
            return copier.copy_all(plans)

    # Past

    def _tend(self, step: Step[T]) -> T:
        """Carry out a step of maintenance.

        :raises UnfinishedUpkeepError: the store failed after the step may have changed something.
        """
        return self.run(unless_begun(step))

    def set_retention(self, seconds: float, apply: bool = False) -> RetentionChange:
        """Change for how long removed files stay, also those that are kept now. Engines that vacuum
        the table respect it, too. After a reduction, the next purge deletes files that are older.

        :param seconds: the new retention.
        :param apply: ``False`` only reports what would change.
        :raises InvalidInputError: it is less than an hour, or more than 100 years. Nothing was
            changed.
        :raises CommitConflictError: another job changed columns or properties meanwhile.
        :raises TableNotFoundError: there is no table.
        """
        return self.run(change_retention(self.root, self._layout, seconds, apply))

    def undo(self, job: str, apply: bool = False) -> RestoredVersion:
        """Bring back what partitions held before a job changed them, in all of them or none.

        This takes one entry and writes no data. Partitions where other jobs have removed the job's
        rows stay as they are.

        :param job: the id of the job to undo. An undoing is a job, too, and can be undone.
        :param apply: ``False`` only reports what would be done.
        :raises InvalidInputError: the job is not committed in this table; or later jobs, which the
            error names, have changed its partitions; or files cannot be brought back. Nothing was
            changed.
        :raises CommitConflictError: another job committed meanwhile. Nothing was changed.
        :raises TableNotFoundError: there is no table.
        """
        require_job_id(job)
        self._found(self._open(LogDepth.BLIND))
        entry = self._entry_of(job)
        if entry is None:
            raise InvalidInputError(
                f"{job} has no entry in the log, so there is nothing to undo. Nothing was changed.",
                table=self.root.url,
                job=job,
                remedy=f"zero-rename history {self.root.url} lists the jobs that have one.",
            )
        owner = _restorer()
        plan = undo_planner(self.root, self._layout, job, entry.version, owner)
        if not apply:
            return self.run(preview(self._layout, plan))
        return self.run(carry_out(self.root, self._layout, plan, owner, allow_lost=False))

    def restore(
        self,
        as_of: Past,
        partitions: Collection[str] | None = None,
        apply: bool = False,
        allow_lost: bool = False,
        idempotency_key: str | None = None,
    ) -> RestoredVersion:
        """Restore the table, including its columns, or some of its partitions, as they were at a
        moment. This takes one entry and writes no data.

        :param as_of: a version, or a time with its zone.
        :param partitions: only these, by name; ``None``: all.
        :param apply: ``False`` only reports what would be done.
        :param allow_lost: go on if files of that version cannot be brought back; ``False``: refuse.
        :param idempotency_key: names the run. If a job of this run has committed before, nothing is
            changed, even if the table has changed since, and that job is reported.
        :raises InvalidInputError: files cannot be brought back, or those of the partitions do not
            fit the present columns. Nothing was changed.
        :raises SnapshotGoneError: the version's entries were cleaned. Nothing was changed.
        :raises CommitConflictError: another job committed meanwhile. Nothing was changed.
        :raises TableNotFoundError: there is no table, or there was none at that time.
        """
        shape = self.shape()
        version, within = self.version_at(AsOf.parse(as_of)), ALL
        if partitions is not None:
            within = scope_of(stored_in(self.root, lambda: shape, partitions), *shape)
        owner = _restorer()
        plan = restore_planner(self.root, self._layout, version, within, owner)
        if not apply:
            return self.run(preview(self._layout, plan))
        run = idempotency_key
        done = None if run is None else self.run(find_restored(self._layout, run, version))
        if done is not None:
            return done
        return self.run(carry_out(self.root, self._layout, plan, owner, allow_lost, run))

    def checkpoint_log(self) -> int | None:
        """Write a checkpoint, which openings read instead of all entries; return its version.

        ``None``: it is not certain to be there. The answers of readers do not depend on it."""
        now = self.run(store_now(self._layout))
        return self.run(make_checkpoint(self._layout, now))

    # Jobs of dead processes

    def recover(self, patience: float | None = None) -> list[Recovered]:
        """Recover jobs whose process is taken for dead: finish the committed ones, fence and close
        the others. Jobs that wait to be published are left alone for the table's retention, counted
        from their opening.

        :param patience: seconds after its opening from which on a job counts as dead; ``None``: its
            own ``max_duration``. 0 means that no job is running.
        :raises InvalidInputError: ``patience`` is negative or no number. Nothing was changed.
        """
        check_age("patience", patience)
        return self._tend(recover_jobs(self._layout, patience))

    def plan_recovery(self, patience: float | None = None) -> list[Recovered]:
        """Return what :meth:`recover` would do. Changes nothing."""
        check_age("patience", patience)
        return self.run(plan_recovery(self._layout, patience))

    def settle(self, jobs: Collection[str]) -> list[Recovered]:
        """Recover open jobs whose processes have ended, as the caller knows. If such a process is
        alive after all, its job is fenced. Jobs that wait to be published are left alone."""
        return self._tend(recover_jobs(self._layout, 0.0, job_ids("jobs", jobs)))

    def give_up(self, jobs: Collection[str]) -> list[Recovered]:
        """Recover open jobs that the caller names as dead, also those that wait to be published.

        :raises InvalidInputError: one of the jobs is not open. Nothing was changed.
        """
        jobs = job_ids("jobs", jobs)
        self.run(refuse_unknown(self._layout, jobs))
        return self._tend(recover_jobs(self._layout, 0.0, jobs, spares_waiting=False))

    def plan_give_up(self, jobs: Collection[str]) -> list[Recovered]:
        """Return what :meth:`give_up` would do. Changes nothing.

        :raises InvalidInputError: one of the jobs is not open.
        """
        jobs = job_ids("jobs", jobs)
        self.run(refuse_unknown(self._layout, jobs))
        return self.run(plan_recovery(self._layout, 0.0, jobs, spares_waiting=False))

    # Conflicts of runs

    def conflicts(self, seconds: float | None = None, remember: bool = True) -> ConflictReport:
        """Find the conflicts of runs over partitions, by the entries since the last search. The
        report also has earlier conflicts that are not settled.

        :param seconds: search so far back by the store's clock, instead of to the last search; such
            a search is not recorded.
        :param remember: record the result, so that the next search goes on from it; ``False``
            writes nothing.
        :raises InvalidInputError: ``seconds`` is negative or no number.
        :raises RecordDamagedError: the record of conflicts cannot be read.
        :raises TableNotFoundError: there is no table.
        """
        check_age("seconds", seconds)
        return self.run(find_log_conflicts(self.root, self._layout, seconds, remember))

    def settled(self, seen: Mapping[str, int]) -> dict[str, SettledPartition]:
        """Read the settlements of conflicts over partitions.

        :param seen: by partition, the version at which its conflict was found. It is returned as
            the partition's version if nothing has changed it since.
        """
        return self.run(read_log_settled(self.root, self._layout, seen))

    def check_rerun(self, conflict: RunConflict, winner: ConflictingRun) -> None:
        """Check that the winning run may load a partition in conflict again.

        :raises InvalidInputError: this would remove rows of runs that are not in the conflict.
        :raises OtherJobError: an open job writes the partition, or may write it.
        """
        self.run(check_log_rerun(self.root, self._layout, conflict, winner))

    def resolve(
        self,
        policy: object,
        partitions: Collection[str] | None = None,
        apply: bool = False,
        owner: Owner | None = None,
    ) -> list[RunConflict]:
        """Settle the recorded conflicts, each partition by an entry of its own.

        The entry brings back the rows of the winning run. If readers see these rows already, it
        only names that run. The runs that lost give way until another run replaces the partition.

        :param policy: ``"newest_run"``; ``{"prefer": [...]}``, DAGs, tasks, applications or assets
            in order; or ``{"keep": [...]}``, jobs.
        :param partitions: only these; ``None``: all.
        :param apply: ``False`` only reports what would be done.
        :param owner: the owner that the settlement records; ``None``: this process.
        :returns: the conflicts, each with its settlement, or why it is not settled.
        :raises InvalidInputError: the policy is invalid; or a partition has no conflict on record.
        """
        chosen = SettlementPolicy.parse(policy)
        names = None if partitions is None else self.stored_names(partitions)
        found = self.run(open_conflicts(self.root.conflicts_key, names))
        return [self._resolve(it, chosen, apply, owner or this_process()) for it in found]

    def _resolve(
        self, conflict: RunConflict, policy: SettlementPolicy, apply: bool, owner: Owner
    ) -> RunConflict:
        said = Settlement("", (), None, owner, str(policy), SettledBy.RESTORE)
        try:
            winner = policy.winner(conflict)
            rank = conflict.highest_rank(winner)
            said = replace(said, stands=winner.key, rank=rank)
            if apply:
                how, losers, job = self._settle_conflict(conflict, winner, owner)
            else:
                plan = self._planned_settlement(conflict, winner, new_job_id(), owner)
                how, losers, job = plan.how, plan.losers, plan.job
            said = replace(said, losers=losers, how=how, job=job)
        except ZeroRenameError as error:
            said = replace(said, stands="", rank=None, error=str(error))
        if not apply:
            return conflict.settled(said)
        return self.run(settle(self.root.conflicts_key, conflict, said))

    def _planned_settlement(
        self, conflict: RunConflict, winner: ConflictingRun, job: str, owner: Owner
    ) -> LogSettlementPlan:
        now, root, layout = self.run(store_now(self._layout)), self.root, self._layout
        told = owner_members(owner)
        return self.run(plan_log_settlement(root, layout, conflict, winner, job, now, told))

    def _settle_conflict(
        self, conflict: RunConflict, winner: ConflictingRun, owner: Owner
    ) -> tuple[SettledBy, tuple[str, ...], str | None]:
        """Commit the entry that settles a conflict, unless such an entry is in the log already."""
        writes = {"partitions": [conflict.partition], "appends": False}
        told = {**owner_members(owner), "max_duration": MAX_DURATION, "writes": writes}
        opened = self.run(open_log_job(self._layout, iter(new_job_id, ""), told, LogDepth.BLIND))
        try:
            plan = self._planned_settlement(conflict, winner, opened.job, owner)
            now = self.run(store_now(self._layout))
        except ZeroRenameError:
            # Only the open record was written.
            self.driver.run(close_refused(self._layout, opened.job))
            raise
        if plan.change is None:
            self.driver.run(abandon_job(self._layout, opened.job))
            return plan.how, plan.losers, plan.job
        self.run(commit_or_abandon(self._layout, plan.opened, plan.change, now))
        return plan.how, plan.losers, opened.job

    # Files and records

    def verify(self) -> list[Finding]:
        """Find live files that are missing or have another size, and entries that a writer without
        conditional writes has overwritten.

        :raises TableNotFoundError: there is no table.
        """
        return self.run(verify_table(self._layout))

    def adopt(
        self, apply: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> AdoptReport:
        """Make a directory of Parquet files a Delta table, by one entry. The files stay where they
        are. All footers are read. Running jobs of Hadoop's committers are not noticed: see
        :meth:`.committer.table.Table.adopt`.

        :param apply: ``False`` only reports what would be done.
        :param progress: called with the number of footers that are read, and of all.
        :raises TableNotFoundError: there are no files.
        :raises TableMismatchError: there is a table already, or the files do not form one, or there
            are other objects; the error names the reason. Nothing was changed.
        :raises CommitConflictError: another job has made the table meanwhile.
        """
        if apply:
            adopting = adopt_directory(self.root, self._layout, this_process(), progress)
            return self.run(adopting)
        plan = self.run(plan_adoption(self.root, self._layout, progress))
        return plan.report(AdoptAction.WOULD_ADOPT)

    def repair(self, apply: bool = False, accept_loss: bool = False) -> list[RepairedEntry]:
        """Commit again the changes of jobs whose entries a writer without conditional writes has
        overwritten. Each job is committed again only once, and only if nothing since has removed
        rows or replaced partitions there.

        :param apply: ``False`` only reports what would be done.
        :param accept_loss: accept the loss of changes that cannot be committed again; they are not
            reported any more.
        :return: the overwritten entries, the oldest first.
        :raises TableNotFoundError: there is no table.
        """
        self._found(self._open(LogDepth.BLIND))
        now = self.run(store_now(self._layout))
        return self._tend(repair_log(self._layout, now, apply, accept_loss, new_job_id()))

    def repair_reports(self, apply: bool = False) -> int:
        """Write the reports of runs again that another program has deleted, from what the log has
        of these runs. Without its report a run may load its rows a second time, once 1,000 other
        runs have loaded.

        :param apply: ``False`` only counts them.
        :return: how many reports are gone, or were.
        :raises TableNotFoundError: there is no table.
        """
        self._found(self._open(LogDepth.BLIND))
        return self._tend(write_reports(self._layout, apply))

    def doctor(self, max_duration: float | None = None) -> list[Problem]:
        """Find present and future problems: of rights, the store, lifecycle rules, jobs and
        overwritten entries. Writes small objects, and removes them.

        :param max_duration: seconds that the longest job may take; ``None``: the default.
        :raises InvalidInputError: ``max_duration`` is negative, infinite or no number.
        """
        check_span("max_duration", max_duration)
        return self.run(examine(self.root, self._layout, max_duration))

    def purge(self, apply: bool = False) -> list[str]:
        """Delete files that no state within the retention names and that no open job can need.

        :param apply: ``False`` only reports which.
        :return: the keys of these files.
        """
        return self._tend((purge_table if apply else purgeable)(self._layout))

    def purge_records(self, older_than: float = KEPT_FOR, apply: bool = False) -> list[PurgeEntry]:
        """Remove old records: failures of runs, leavings of probes, and kept entries. One that
        another writer has overwritten stays until it is repaired, or its loss is accepted.

        :param older_than: their least age in seconds, by the store's clock.
        :param apply: ``False`` only reports which.
        :raises InvalidInputError: ``older_than`` is negative or no number.
        """
        check_age("older_than", older_than)
        return self._tend(purge_records(self.root, self._layout, older_than, apply))


def _restorer() -> dict[str, Any]:
    """Return the owner of a restore's job, as its entry records it."""
    return {"application": this_process().application}
