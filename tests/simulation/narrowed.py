"""What must hold of a run that plans let make only some of its partitions again: the word of a
plan is for one clear of the run, which takes nothing that the plan did not know, and no row
elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from simulation.invariants import ROOT, Violation, changes, decision_of, jobs
from simulation.sim_store import Store

from zero_rename.committer import Owner
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.narrowing import Narrowing, recompute_key

#: The key of the run that is narrowed.
RUN = "run"
_PLANNED, _BY_HAND = "by a plan", "by hand"


def cleared(clear: str, named: Collection[str] = ()) -> Owner:
    """The owner of a try of a task.

    :param clear: which clear of the task it is of: a plan's is called as the plan.
    :param named: what the plan names; none: it is by hand.
    """
    what = _PLANNED if named else _BY_HAND
    return Owner(application=what, task_id=" ".join(named), series=f"since {clear}")


def word_of(store: Store) -> Narrowing | None:
    """What a plan has left for the run."""
    key = recompute_key(ROOT, RUN)
    found = store.objects.get(key)
    return None if found is None else Narrowing.decode(found.body, key)


def check_narrowed(store: Store, job: str) -> None:
    """What the decision that was just written says, if it is of a try of a cleared task.

    :raises Violation: it goes by a word that is none of its clear's, or of a state of the run that
        is past; not by its own; beyond what that names; or over what came after it.
    """
    decision = decision_of(store, job)
    if decision is None or not decision.is_commit:
        return
    if decision.owner.application not in (_PLANNED, _BY_HAND):
        return
    word, before = word_of(store), _before(store, decision)
    if decision.owner.application == _PLANNED and (
        word is None or word.planner.task_id != decision.owner.cleared
    ):
        raise Violation("exclusivity", f"{job} finds in the place of its plan's word {word}")
    whole = word is not None and word.whole and word.taken == decision.owner.cleared
    if decision.narrows is None and not whole:
        _check_whole(decision, word, before)
        return
    if word is None or word.taken != decision.owner.cleared:
        raise Violation("exclusivity", f"{job} goes by the word to another clear: {word}")
    if decision.narrows not in (None, before.job) or not _is_of(word, before):
        raise Violation("concurrent", f"{job} goes by a word about {word.job}, after {before.job}")
    changed = {change.partition for change in decision.partitions}
    named = {*(decision.owner.task_id or "").split()} or {*word.partitions}
    if changed != named and not whole:
        raise Violation("completeness", f"{job} was to change {named}, and changes {changed}")
    log = changes(store)
    for change in decision.partitions:
        planned = word.partitions.get(change.partition, change.base_version)
        since = log[change.partition][planned : change.base_version]
        unseen = [other for other, _ in since if not _is_of(word, decision_of(store, other))]
        if unseen:
            raise Violation("concurrent", f"{job} takes {unseen} away, which no plan has seen")


def _before(store: Store, decision: Decision) -> Decision:
    """The run's job before."""
    found = [decision_of(store, job) for job in jobs(store)]
    of_run = [
        it
        for it in found
        if it is not None and it.is_commit and it.idempotency_key == decision.idempotency_key
    ]
    return max(
        (it for it in of_run if it.run_version < decision.run_version),
        key=lambda it: it.run_version,
    )


def _is_of(word: Narrowing, decision: Decision | None) -> bool:
    """Whether a job is the one that a word is about, or has gone by the word."""
    if decision is None:
        return False
    by_it = word.whole or decision.narrows is not None
    by_it = by_it and word.taken is not None and decision.owner.cleared == word.taken
    return by_it or decision.job == word.job


def _check_whole(decision: Decision, word: Narrowing | None, before: Decision) -> None:
    """A clear by hand makes all of its run; a plan's own does where another clear has begun by the
    plan's word before, or the run has had another job since."""
    job, mine = decision.job, decision.owner.cleared
    if word is not None and word.taken == mine:
        raise Violation("completeness", f"{job} makes all of its run, and not {word.partitions}")
    if decision.owner.application == _BY_HAND:
        return
    if word is not None and word.taken is None and _is_of(word, before):
        raise Violation("completeness", f"{job} makes all of its run, against the plan's {word}")
