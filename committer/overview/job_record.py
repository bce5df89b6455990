"""Record of a committed job, in a table of either layout: who ran it, and whose rows it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    :param origins: by partition, the jobs whose rows it wrote again, itself among them where it
        added some; none: all rows are its own.
    :param in_part: whether a plan had let it make only some of its run's partitions.
    :param emptied: partitions that it replaced by nothing, each with the version that it came to;
        ``None``: not on record.
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
    in_part: bool = False
    emptied: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """Seconds from the job's opening to its commit; ``None``: not on record."""
        began = self.inputs.began
        return None if began is None else max(0.0, self.committed_at - began)


def record_of(decided: Decided) -> JobRecord:
    """Tell what a decision says of its job."""
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
        decision.narrows is not None,
        {
            it.partition: it.base_version + 1
            for it in decision.partitions
            if it.replace and not it.sums.files
        },
    )
