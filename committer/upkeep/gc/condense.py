"""Condensing of decisions: a *commit* shrinks to a few bytes once its lists are not needed.

A decision is never deleted. It prevents a process that wakes up late from deciding its job a second
time, and a repeated run learns from it what it did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...commit.state.context import Context
from ...commit.state.decide import Decided, read_decision
from ...commit.state.heads import read_head
from ...commit.state.tolerance import or_damage
from ...errors import DamagedError
from ...format.records.decision import CondensedDecision
from ...format.records.head import HeadState, Slot
from ...format.records.partition_decision import PartitionDecision
from ...store.conditional_put import Written, put_record
from ...store.requests import All, Put, Step

#: How many decisions are held in memory at once.
_AT_ONCE = 1000


@dataclass
class Condensing:
    """Result of condensing decisions.

    :param condensed: jobs whose decisions were condensed, or would be.
    :param done: jobs whose decisions need no more condensing, including ``condensed``.
    :param saved: bytes saved.
    """

    condensed: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    saved: int = 0


@dataclass(frozen=True)
class HeadsKnown:
    """The state of the heads, which decides whether a decision may be condensed.

    :param states: the heads by partition, read after the jobs in question were closed.
    :param cutoff: a replace since this time may be undone, so the decisions about the state before
        it are kept whole.
    """

    states: Mapping[str, HeadState]
    cutoff: float

    @property
    def named(self) -> set[str]:
        """Jobs whose decisions heads need: they name the job, or carry its claim."""
        heads = [state.head for state in self.states.values()]
        claims = {head.claim for head in heads if head.claim is not None}
        return claims.union(*(head.decisions for head in heads))

    def is_applied(self, change: PartitionDecision) -> bool:
        """Return whether the head is beyond the version that a commit found. Then that commit has
        moved it."""
        state = self.states.get(change.partition)
        return state is not None and state.head.version > change.base_version

    def may_be_undone(self, change: PartitionDecision, replaces: Mapping[str, int]) -> bool:
        """Return whether undoing a recent replace would bring back a commit's files: the partition
        held them right before that replace, its last one.

        :param replaces: by partition, the version that the replace before its last one found.
        """
        head = self.states[change.partition].head
        if not head.replace_version or (head.replaced_at or 0.0) < self.cutoff:
            return False
        before_it = change.base_version + 1 < head.replace_version
        return before_it and change.base_version >= replaces.get(change.partition, 0)


def condense(
    context: Context, jobs: Sequence[str], known: HeadsKnown, apply: bool
) -> Step[Condensing]:
    """Condense the commits of closed jobs that no head names.

    :param jobs: these jobs, the latest first.
    """
    result = Condensing()
    replaces: dict[str, int] = {}
    for chunk in _chunks(jobs):
        found = yield from All(tuple(or_damage(read_decision(context, job)) for job in chunk))
        read = [it for it in found if isinstance(it, Decided)]
        commits = [it for it in read if it.decision.is_commit and not it.decision.condensed]
        result.done += [it.decision.job for it in read if it not in commits]
        _note_replaces(commits, known, replaces)
        free = [it for it in commits if _is_free(it, known, replaces)]
        saved = yield from All(tuple(_condense(context, it, apply) for it in free))
        for decided, size in zip(free, saved, strict=True):
            if size is not None:
                result.saved += size
                result.condensed.append(decided.decision.job)
                result.done.append(decided.decision.job)
    return result


def _chunks(jobs: Iterable[str]) -> Iterator[list[str]]:
    left = iter(jobs)
    while chunk := list(islice(left, _AT_ONCE)):
        yield chunk


def _note_replaces(
    commits: Collection[Decided], known: HeadsKnown, replaces: dict[str, int]
) -> None:
    for change in (change for it in commits for change in it.decision.partitions):
        state = known.states.get(change.partition)
        if state is None or change.base_version + 1 >= state.head.replace_version:
            continue
        if change.replace:
            last = replaces.get(change.partition, 0)
            replaces[change.partition] = max(last, change.base_version)


def _is_free(decided: Decided, known: HeadsKnown, replaces: Mapping[str, int]) -> bool:
    changes = decided.decision.partitions
    return all(
        known.is_applied(change) and not known.may_be_undone(change, replaces) for change in changes
    )


def _condense(context: Context, decided: Decided, apply: bool) -> Step[int | None]:
    """Condense a decision and return the bytes saved; ``None``: it stays as it is."""
    decision = decided.decision
    if decision.idempotency_key is not None:
        slot = Slot.run(context.root, decision.idempotency_key)
        run = yield from or_damage(read_head(context, slot))
        if isinstance(run, DamagedError) or run.head.version <= decision.run_version:
            return None
    condensed = CondensedDecision.of(decision, decided.date)
    body = condensed.encode()
    if apply:
        put = Put(context.root.decision_key(decision.job), body, if_match=decided.etag)
        outcome = yield from put_record(put, condensed.write_id)
        if not isinstance(outcome, Written):
            return None
    return len(decision.encode()) - len(body)
