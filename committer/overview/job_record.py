"""Record of a committed job, in a table of either layout: its owner, and the origin of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..commit.state.decide import Decided
from ..format.job_spec import Mode, Owner
from ..format.records.inputs import Inputs


@dataclass(frozen=True)
class JobRecord:
    """Record of a committed job.

    :param committed_at: by the store's clock, in Unix seconds.
    :param mode: what became of the rows that were there.
    :param by_key: whether it matched rows by key, as a merge does.
    :param inputs: what its rows were computed from.
    :param wrote: the partitions that it added files to.
    :param origins: by partition, the jobs whose rows it rewrote, itself among them if it added
        some; empty: all rows are its own.
    :param narrows: the run's job before, if a plan let this job load only some of that job's
        partitions again; ``None``: it loaded all of its run's.
    :param emptied: partitions that it replaced by nothing, each with the partition's version after
        that; ``None``: that version is not on record.
    :param before: if it loaded only some partitions again: those that the run's jobs before had
        written.
    """

    job: str
    owner: Owner
    idempotency_key: str | None
    committed_at: float
    mode: Mode
    by_key: bool
    inputs: Inputs
    wrote: frozenset[str]
    origins: Mapping[str, tuple[str, ...]]
    narrows: str | None = None
    emptied: Mapping[str, int | None] = field(default_factory=dict)
    before: frozenset[str] = frozenset()

    @property
    def seconds(self) -> float | None:
        """Seconds from the job's opening to its commit; ``None``: not on record."""
        began = self.inputs.began
        return None if began is None else max(0.0, self.committed_at - began)


def record_of(decided: Decided) -> JobRecord:
    """Build the record of a job from its decision."""
    decision = decided.decision
    return JobRecord(
        decision.job,
        decision.owner,
        decision.idempotency_key,
        decided.date,
        decision.mode,
        decision.change_reads is not None,
        decision.inputs,
        frozenset(it.partition for it in decision.partitions if it.sums.files),
        {
            partition: tuple(dict.fromkeys(name for change in changes for name in change.merged))
            for partition, changes in decided.changes.items()
        },
        decision.narrows,
        {
            it.partition: it.base_version + 1
            for it in decision.partitions
            if it.replace and not it.sums.files
        },
    )


def with_runs(records: Mapping[str, JobRecord]) -> dict[str, JobRecord]:
    """Add to each narrowing job's record the partitions that its run's earlier jobs had written.

    :param records: these must include the records of the earlier jobs.
    """
    return {job: replace(it, before=_before(it, records)) for job, it in records.items()}


def _before(record: JobRecord, records: Mapping[str, JobRecord]) -> frozenset[str]:
    found = set[str]()
    earlier = records.get(record.narrows or "")
    while earlier is not None:
        found |= earlier.wrote | earlier.emptied.keys()
        earlier = records.get(earlier.narrows or "")
    return frozenset(found)
