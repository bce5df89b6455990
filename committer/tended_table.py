"""Table on S3 from the side of its maintenance: what jobs left, and what can be removed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar

from .commit.state.old_records import KEPT_FOR
from .errors import InvalidInputError, ZeroRenameError
from .format.given_numbers import check_age
from .format.job_spec import Owner, job_ids
from .format.records.inputs import Inputs
from .format.records.run_conflict import ConflictingRun, RunConflict, SettledBy, Settlement
from .job_steps import HeadSteps
from .readable_table import ReadableTable
from .store.encryption import Encryption
from .store.requests import Step
from .upkeep.conflicts.conflict_record import open_conflicts, settle
from .upkeep.conflicts.conflict_search import ConflictReport, find_conflicts
from .upkeep.conflicts.conflict_settling import check_rerun, plan_settlement, refuse_open_jobs
from .upkeep.conflicts.settlement_policy import SettlementPolicy
from .upkeep.gc.collect import GcReport, gc
from .upkeep.purging.purge import PurgeReport, plan_all, purge, recover_all
from .upkeep.purging.upload_selection import Spared, spare_none
from .upkeep.recovery import Recovered, settle_jobs
from .upkeep.table_encryption import EncryptionChange, change_encryption
from .upkeep.unfinished import unless_begun
from .write_job import WriteJob, this_process

T = TypeVar("T")


class TendedTable(ReadableTable):
    """The half of :class:`.table.Table` for maintenance: recovery, purge, gc and conflicts."""

    def tend(self, step: Step[T]) -> T:
        """Carry out a step of maintenance, on the table or on other committers' jobs at its root.

        :returns: the step's result.
        :raises UnfinishedUpkeepError: the store failed after the step may have changed something.
        :raises ZeroRenameError: names this table, unless it names one.
        """
        return self.run(unless_begun(step))

    def recover(self, patience: float | None = None) -> list[Recovered]:
        """Recover every open job: finish committed ones, clean up aborted ones, fence dead ones.

        :param patience: seconds an undecided job may be silent; ``None`` takes each job's own.
        :raises InvalidInputError: ``patience`` is negative or no number. Nothing was changed.
        """
        check_age("patience", patience)
        return self.tend(recover_all(self._context, patience))

    def plan_recovery(self, patience: float | None = None) -> list[Recovered]:
        """Report what :meth:`recover` would do, with the same ``patience``. Changes nothing."""
        check_age("patience", patience)
        return self.run(plan_all(self._context, patience))

    def settle(self, jobs: Collection[str]) -> list[Recovered]:
        """End open jobs whose processes have ended.

        Those that are committed are finished, the others aborted. A job whose process is alive is
        fenced. Jobs that are not open are left out of the report.
        """
        return self.tend(settle_jobs(self._context, job_ids("jobs", jobs)))

    def purge(
        self,
        older_than: float | None = None,
        foreign: bool = False,
        apply: bool = False,
        patience: float | None = None,
        jobs: Collection[str] = (),
        records_older_than: float = KEPT_FOR,
        spared: Spared = spare_none,
    ) -> PurgeReport:
        """Recover, abort orphaned uploads, and remove useless records.

        :param older_than: with ``foreign``, the least age in seconds of foreign uploads.
        :param foreign: abort uploads that no job of this package made, by age.
        :param apply: do it; ``False`` only says what would be done.
        :param patience: as in :meth:`recover`.
        :param jobs: jobs that the caller declares dead: those that are open and undecided are
            aborted at any age, and so are uploads of those of which the table has no record.
        :param records_older_than: seconds for which failures and manifests of no head stay.
        :param spared: selects foreign uploads that are left all the same: for those that living
            jobs of Hadoop's committers need, ``LivingJobs(bucket)`` of
            ``zero_rename.s3a.recovery.living``.
        :raises InvalidInputError: nothing of one of ``jobs`` is here, or it is a text instead of a
            list; or an age is negative or no number; or one of ``foreign`` and ``older_than`` is
            given without the other. Nothing was changed.
        """
        ages = {"older_than": older_than, "patience": patience}
        for name, given in {**ages, "records_older_than": records_older_than}.items():
            check_age(name, given)
        if bool(foreign) is (older_than is None):
            given, lacks = ("foreign=True", "older_than") if foreign else ("older_than", "foreign")
            raise InvalidInputError(
                f"{given} is given without {lacks}. Nothing was changed.",
                table=self.root.url,
                remedy="Give both, to abort foreign uploads from an age on, or neither: what "
                "belongs to a job is judged by its records.",
            )
        options: dict[str, Any] = {"patience": patience, "apply": apply}
        options |= {"foreign_older_than": older_than, "records_older_than": records_older_than}
        options |= {"jobs": job_ids("jobs", jobs), "spared": spared}
        return self.tend(purge(self._context, **options))

    def gc(self, older_than: float = KEPT_FOR, apply: bool = False) -> GcReport:
        """Make the table's records small. No answer about rows, jobs or runs changes.

        It folds old decisions that heads name, condenses them, and removes objects that no record
        names.

        :param older_than: seconds, by the store's clock, for which decisions, runs' failures and
            what was replaced stay whole. Only convenience depends on it.
        :param apply: do it; ``False`` only says what would be done.
        :raises InvalidInputError: ``older_than`` is negative or no number.
        :raises TableNotFoundError: no table here.
        """
        check_age("older_than", older_than)
        return self.tend(gc(self._context, older_than, apply))

    def conflicts(self, seconds: float | None = None, remember: bool = True) -> ConflictReport:
        """Find runs that conflict over partitions, since the last look.

        The report also has those that were found before and are not settled.

        :param seconds: instead of since the last look, so many before now, by the store's clock;
            such a look is not remembered.
        :param remember: the next look goes on from this one; ``False`` writes nothing.
        :raises InvalidInputError: a table of coordination *none*; ``seconds`` is negative or no
            number.
        :raises RecordDamagedError: the record of the looks before cannot be read.
        """
        check_age("seconds", seconds)
        return self.run(find_conflicts(self._context, seconds, remember))

    def check_rerun(self, conflict: RunConflict, winner: ConflictingRun) -> None:
        """Check that the winning run may load a partition in conflict again.

        :raises InvalidInputError: rows of runs that are not in the conflict would be removed.
        :raises OtherJobError: a job of another run is at work on the partition, or may be.
        """
        self.run(check_rerun(self._context, conflict, winner))

    def refuse_open_jobs(self, partition: str) -> None:
        """Refuse if a job is at work on a partition, or may be.

        A job that names no partitions may be at work on any.

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
        """Settle conflicts that were found, each by a job of its own.

        The job writes no rows; its decision records which run stands. That can only be a run whose
        rows are visible: no others are kept. The runs that lost give way until another run replaces
        the partition.

        :param policy: ``"newest_run"``; ``{"prefer": [...]}``, DAGs, tasks, applications or assets
            in order; or ``{"keep": [...]}``, jobs.
        :param partitions: only these; ``None``: all.
        :param apply: do it; ``False`` only says what would be done.
        :param owner: who decides; ``None``: this process.
        :returns: the conflicts, each with what was decided, or why it is not settled.
        :raises InvalidInputError: an invalid policy; or no conflict is on record over a partition.
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
                how=SettledBy.KEPT,
            )
            if apply:
                spec = plan.spec(conflict, winner, owner)
                with WriteJob(HeadSteps(self.driver, self._context), spec, inputs=Inputs) as job:
                    pass  # The job writes no rows: its decision settles the conflict.
                decision = replace(decision, job=job.job)
        except ZeroRenameError as error:
            decision = replace(decision, error=str(error))
        if not apply:
            return conflict.settled(decision)
        return self.run(settle(self.root.conflicts_key, conflict, decision))

    def set_encryption(
        self, encryption: str | None, encryption_key: str | None = None, apply: bool = False
    ) -> EncryptionChange:
        """Change the encryption by the store, for objects written for the table from now on.

        These are files, records and markers. Objects that are there stay as they are.

        :param encryption: SSE-S3, SSE-KMS or DSSE-KMS; ``None`` leaves it to the bucket.
        :param encryption_key: the KMS key, by its id, ARN or alias; ``None``: the account's own.
        :param apply: do it; ``False`` only says what is on record.
        :raises TableNotFoundError: no table of this package.
        :raises InvalidInputError: an unknown encryption, or an invalid key.
        """
        wanted = Encryption.named(encryption, encryption_key)
        return self.tend(change_encryption(self._context, wanted, apply))
