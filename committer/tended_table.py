"""Table on S3 as users look after it: what jobs left, what is kept of the past, and what goes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar

from .commit.state.old_records import KEPT_FOR
from .errors import ZeroRenameError
from .format.as_of import AsOf, Past
from .format.job_spec import Owner
from .format.records.data_file import DataFile
from .format.records.inputs import Inputs
from .format.records.run_conflict import ConflictingRun, RunConflict, SettledBy, Settlement
from .job_steps import HeadSteps
from .readable_table import ReadableTable
from .store.encryption import Encryption
from .store.fast_root import FastRoot
from .store.requests import Step
from .upkeep.checkpoint import DataRootChange, change_data_root
from .upkeep.conflict_record import open_conflicts, settle
from .upkeep.conflict_restoring import check_rerun, plan_settlement, refuse_open_jobs
from .upkeep.conflicts import ConflictReport, find_conflicts
from .upkeep.gc.collect import GcReport, gc
from .upkeep.purge import PurgeReport, plan_all, purge, recover_all
from .upkeep.recovery import Recovered, settle_jobs
from .upkeep.restoring import Restored, RestorePlan, plan_restore, plan_undo
from .upkeep.retention import kept_files, retention, set_retention
from .upkeep.settlement_policy import SettlementPolicy
from .upkeep.table_encryption import EncryptionChange, change_encryption
from .upkeep.unfinished import unless_begun
from .upkeep.upload_selection import Spared, spare_none
from .write_job import WriteJob, this_process

T = TypeVar("T")


class TendedTable(ReadableTable):
    """The half of :class:`.table.Table` that settles and removes what jobs left, and brings back
    what they replaced."""

    def tend(self, step: Step[T]) -> T:
        """Carry out a step that looks after the table, or after what jobs of other committers left
        at its root, and return what it returns.

        :raises UnfinishedUpkeepError: the store failed it after it may have changed something.
        :raises ZeroRenameError: names this table, where it names none.
        """
        return self.run(unless_begun(step))

    def recover(self, patience: float | None = None) -> list[Recovered]:
        """Settle every open job: finish committed ones, clean up aborted ones, fence dead ones.

        :param patience: seconds an undecided job may be silent; ``None`` takes each job's own.
        """
        return self.tend(recover_all(self._context, patience))

    def plan_recovery(self, patience: float | None = None) -> list[Recovered]:
        """What :meth:`recover` would do, with the same ``patience``. Changes nothing."""
        return self.run(plan_all(self._context, patience))

    def settle(self, jobs: Collection[str]) -> list[Recovered]:
        """Settle open jobs whose processes have ended: finish those that are committed, abort the
        others. One whose process is alive is fenced. Of one that is not open nothing is said."""
        return self.tend(settle_jobs(self._context, jobs))

    def purge(
        self,
        older_than: float | None = None,
        foreign: bool = False,
        apply: bool = False,
        patience: float | None = None,
        jobs: Collection[str] = (),
        records_older_than: float = KEPT_FOR,
        keep: int | None = None,
        spared: Spared = spare_none,
    ) -> PurgeReport:
        """Recover, abort the uploads that nobody will complete, remove records nobody needs.

        :param older_than: with ``foreign``, the least age in seconds of foreign uploads.
        :param foreign: abort uploads that no job of this package made, by age.
        :param apply: do it; ``False`` only says what would be done.
        :param patience: as in :meth:`recover`.
        :param jobs: dead, on the caller's word: those that are open and undecided are aborted
            whatever their age, and uploads of those of which the table has no record.
        :param records_older_than: seconds for which failures and manifests of no head stay.
        :param keep: in a table read by heads, former states of a partition that stay at the most.
        :param spared: which foreign uploads are left all the same: for those that living jobs of
            Hadoop's committers need, ``LivingJobs(bucket)`` of ``zero_rename.s3a.recovery.living``.
        :raises ValueError: ``foreign`` without ``older_than``.
        :raises InvalidInputError: nothing of one of ``jobs`` is here, ``keep`` is below 0, or given
            for a table whose readers list: it keeps no history. Nothing was changed.
        """
        if foreign and older_than is None:
            raise ValueError("purge(foreign=True) needs older_than, in seconds")
        age = older_than if foreign else None
        options: dict[str, Any] = {"patience": patience, "jobs": jobs, "apply": apply}
        options |= {"foreign_older_than": age, "records_older_than": records_older_than}
        options |= {"keep": keep, "spared": spared}
        return self.tend(purge(self._context, **options))

    def gc(self, older_than: float = KEPT_FOR, apply: bool = False) -> GcReport:
        """Make the table's records small: fold what heads name since long, condense the decisions
        behind it, remove what nothing names. No answer about rows, jobs or runs changes.

        :param older_than: seconds, by the store's clock, for which decisions, runs' failures and
            what was replaced stay whole. Nothing but convenience depends on it.
        :param apply: do it; ``False`` only says what would be done.
        :raises TableNotFoundError: no table here.
        """
        return self.tend(gc(self._context, older_than, apply))

    def undo(self, job: str, apply: bool = False) -> Restored:
        """Bring back what partitions held before a job changed them, all of them or none, without
        writing a byte: by a job of its own, which can be undone, too.

        :param job: its id; no other job may have changed one of its partitions since.
        :param apply: do it; ``False`` only says what would be done.
        :raises InvalidInputError: no id of a committed job, another has built on it, what it
            replaced is not kept any more, or lies in a former data root while the table keeps
            symlink manifests; or the table's readers list.
        :raises CommitConflictError: a partition has changed meanwhile.
        :raises DamagedError: a partition has lost its head.
        """
        return self._restore(self.run(plan_undo(self._context, job)), apply)

    def restore(
        self, as_of: Past, partitions: Collection[str] | None = None, apply: bool = False
    ) -> Restored:
        """Bring back what the table held at a moment, by one job that writes no byte.

        :param as_of: a time, or a version of the one partition named, as of :meth:`scan`.
        :param partitions: only these; ``None`` for all.
        :param apply: do it; ``False`` only says what would be done.
        :raises InvalidInputError: what it held then is not known, or not kept any more; or lies in
            a former data root while the table keeps symlink manifests.
        :raises CommitConflictError: a partition has changed meanwhile.
        """
        if partitions is not None:
            partitions = self.stored_names(partitions)
        past = AsOf.parse(as_of)
        return self._restore(self.run(plan_restore(self._context, past, partitions)), apply)

    def _restore(self, plan: RestorePlan, apply: bool) -> Restored:
        if not (apply and plan.restored.versions):
            return plan.restored
        # What the rows were computed from, their own jobs have on record.
        spec = plan.spec(this_process())
        with WriteJob(HeadSteps(self.driver, self._context), spec, inputs=Inputs) as job:
            pass  # Its decision says all.
        return replace(plan.restored, job=job.job)

    def conflicts(self, seconds: float | None = None, remember: bool = True) -> ConflictReport:
        """Find runs that conflict over partitions: since the last look, besides those that were
        found before and that nobody has settled.

        :param seconds: instead of since the last look, so many before now, by the store's clock;
            such a look is not remembered.
        :param remember: the next look goes on from this one; ``False`` writes nothing.
        :raises InvalidInputError: a table of coordination *none*.
        :raises RecordDamagedError: the record of the looks before cannot be read.
        """
        return self.run(find_conflicts(self._context, seconds, remember))

    def check_rerun(self, conflict: RunConflict, winner: ConflictingRun) -> None:
        """See that the run that is to stand may load a partition in conflict again.

        :raises InvalidInputError: rows of runs that are not in the conflict would go.
        :raises OtherJobError: a job of another run is at work on the partition, or may be.
        """
        self.run(check_rerun(self._context, conflict, winner))

    def refuse_open_jobs(self, partition: str) -> None:
        """See that no job is at work on a partition, nor one that names no partitions.

        :raises OtherJobError: there is one.
        """
        self.run(refuse_open_jobs(self._context, partition))

    def resolve(
        self,
        policy: object,
        partitions: Collection[str] | None = None,
        apply: bool = False,
        owner: Owner | None = None,
    ) -> list[RunConflict]:
        """Settle the conflicts that looks have found, by bringing back the rows of the run that is
        to stand, each partition by a job of its own that writes no byte. Where readers list files
        only rows that are visible can stand. The runs that lost give way until another one replaces
        the partition.

        :param policy: ``"newest_run"``; ``{"prefer": [...]}``, DAGs, tasks, applications or assets
            in order; or ``{"keep": [...]}``, jobs.
        :param partitions: only these; ``None``: all.
        :param apply: do it; ``False`` only says what would be done.
        :param owner: who decides; ``None``: this process.
        :returns: the conflicts, each with what was decided, or why it is not settled.
        :raises InvalidInputError: no policy; or no conflict is on record over a partition.
        """
        chosen = SettlementPolicy.parse(policy)
        names = None if partitions is None else self.stored_names(partitions)
        found = self.run(open_conflicts(self.root.conflicts_key, names))
        decided_by = this_process() if owner is None else owner
        return [self._resolve(it, chosen, apply, decided_by) for it in found]

    def _resolve(
        self, conflict: RunConflict, policy: SettlementPolicy, apply: bool, owner: Owner
    ) -> RunConflict:
        decision = Settlement("", (), None, owner, str(policy), SettledBy.RESTORE)
        try:
            winner = policy.winner(conflict)
            plan = self.run(plan_settlement(self._context, conflict, winner))
            decision = replace(
                decision,
                stands=winner.key,
                losers=plan.losers,
                rank=conflict.highest_rank(winner),
                how=plan.how,
            )
            if apply:
                spec = plan.spec(conflict, winner, owner)
                with WriteJob(HeadSteps(self.driver, self._context), spec, inputs=Inputs) as job:
                    pass  # Its decision says all.
                decision = replace(decision, job=job.job)
        except ZeroRenameError as error:
            decision = replace(decision, error=str(error))
        if not apply:
            return conflict.settled(decision)
        return self.run(settle(self.root.conflicts_key, conflict, decision))

    def kept_files(self) -> dict[str, tuple[DataFile, ...]]:
        """The files that partitions keep for their history alone, of those that keep any: what it
        costs. None where readers list. Reads every head."""
        return self.run(kept_files(self._context))

    @property
    def retention(self) -> float:
        """Seconds for which what is replaced can be read and brought back: until a purge that comes
        after them.

        :raises InvalidInputError: the table's readers list.
        """
        return self.run(retention(self._context))

    def set_retention(self, seconds: float) -> None:
        """Keep what is replaced for so long, what is kept now included.

        :raises InvalidInputError: the table's readers list; less than the longest job may last,
            since what it began with would be gone before its end; more than 100 years.
        """
        self.tend(set_retention(self._context, seconds))

    def set_data_root(self, data_root: str | None, apply: bool = False) -> DataRootChange:
        """Change where jobs' files lie first, from the next job on. What lies in the former data
        root stays there until it is replaced or copied: its keys say where it is.

        :param data_root: as of :class:`.job_spec.JobSpec`; ``None``: in the table.
        :param apply: do it; ``False`` only says what is there.
        :raises TableNotFoundError: no table of this package.
        :raises InvalidInputError: the table's readers list, it keeps symlink manifests, or the data
            root lies in it.
        """
        root = None if data_root is None else FastRoot.parse(data_root)
        return self.tend(change_data_root(self._context, root, apply))

    def set_encryption(
        self, encryption: str | None, encryption_key: str | None = None, apply: bool = False
    ) -> EncryptionChange:
        """Change the encryption by the store of all that is written for the table from now on:
        files, records and markers. What is there stays as it is.

        :param encryption: SSE-S3, SSE-KMS or DSSE-KMS; ``None`` leaves it to the bucket.
        :param encryption_key: the KMS key, by its id, ARN or alias; ``None``: the account's own.
        :param apply: do it; ``False`` only says what is on record.
        :raises TableNotFoundError: no table of this package.
        :raises InvalidInputError: an unknown encryption, or a key that cannot be one.
        """
        wanted = Encryption.named(encryption, encryption_key)
        return self.tend(change_encryption(self._context, wanted, apply))
