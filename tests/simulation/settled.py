"""What must hold of conflicts that runs settle: who has lost does not load again over the one that
stands, until another run has taken its place."""

from __future__ import annotations

from simulation.histories import SETTLES, policy_of
from simulation.invariants import Violation, changes, decision_of
from simulation.narrowed import word_of
from simulation.sim_store import Store

from zero_rename.committer import OnConflict
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.partition_decision import PartitionDecision

#: The key of the run that loses.
LOSER = "loser"


def check_settled(store: Store, job: str) -> None:
    """What the decision that was just written may say after a settlement.

    :raises Violation: it is of a run that has lost, or settles what no plan has let it.
    """
    decision = decision_of(store, job)
    if decision is None or not decision.is_commit:
        return
    log = changes(store)
    for change in decision.partitions:
        if not change.files:
            continue
        policy = policy_of(change)[0]
        if policy.startswith(SETTLES):
            _check_word(store, decision, change)
        elif policy != OnConflict.LAST_WINS:
            lost = _losers(store, log[change.partition][: change.base_version])
            if decision.idempotency_key in lost:
                raise Violation("concurrent", f"{job} has lost {change.partition}, and loads it")


def _check_word(store: Store, decision: Decision, change: PartitionDecision) -> None:
    word = word_of(store)
    if word is None or word.taken != decision.owner.cleared or change.partition not in word.settles:
        raise Violation("exclusivity", f"{decision.job} settles {change.partition} by {word}")


def _losers(store: Store, log: list[tuple[str, PartitionDecision]]) -> tuple[str, ...]:
    """The keys of the runs that have lost a partition, after what jobs did to it."""
    losers: tuple[str, ...] = ()
    stands = None
    for job, change in log:
        decision = decision_of(store, job)
        assert decision is not None
        policy = policy_of(change)[0] if change.files else ""
        if policy.startswith(SETTLES):
            stands, losers = decision.idempotency_key, tuple(policy.split(",")[1:])
        elif change.replace and decision.idempotency_key != stands:
            losers = ()
    return losers
