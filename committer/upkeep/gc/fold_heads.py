"""Folding of old decisions that heads name, so that these decisions can be condensed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from ...commit.state.context import Context
from ...commit.state.decide import Decided
from ...commit.state.heads import head_state, swap_head
from ...commit.state.old_records import ReadHeads
from ...commit.state.partition_files import fold, read_commit
from ...commit.state.tolerance import or_damage
from ...format.records.head import TRAIL_LENGTH, HeadState
from ...store.conditional_put import NotWritten
from ...store.requests import Absent, All, Delete, Step

#: How many heads are folded at once: all that they name is in memory together.
_AT_ONCE = 500


@dataclass(frozen=True)
class FoldedHeads:
    """Heads after folding.

    :param states: by partition, without the heads whose present state is unknown.
    :param folded: how many were folded, or would be.
    """

    states: Mapping[str, HeadState]
    folded: int


def fold_heads(
    context: Context, heads: ReadHeads, old: Collection[str], cutoff: float, apply: bool
) -> Step[FoldedHeads]:
    """Fold old decisions that heads name into manifests.

    Heads with a claim stay as they are. A swap needs the ETag that was read, so it never overwrites
    what another process wrote meanwhile.

    :param old: the jobs whose decisions are old.
    :param cutoff: heads that have not changed since this time drop their trail: only jobs that
        opened before then could need it.
    """
    due = {name: jobs for name, state in heads.states.items() if (jobs := _due(state, old))}
    if not apply:
        would = {name: _without(heads.states[name], jobs) for name, jobs in due.items()}
        return FoldedHeads({**heads.states, **would}, len(due))
    found: dict[str, HeadState | None] = {}
    names = sorted(due)
    for start in range(0, len(names), _AT_ONCE):
        chunk = names[start : start + _AT_ONCE]
        # Read each decision once: a job of five thousand partitions is named by all their heads.
        jobs = sorted({job for name in chunk for job in due[name]})
        read = yield from All(tuple(or_damage(read_commit(context, job)) for job in jobs))
        known = [it for it in read if isinstance(it, Decided)]
        steps = [
            _fold(
                context,
                heads.states[name],
                due[name],
                known,
                1 if heads.listed[name].last_modified < cutoff else TRAIL_LENGTH,
            )
            for name in chunk
        ]
        found.update(zip(chunk, (yield from All(tuple(steps))), strict=True))
    after = {**heads.states, **found}
    states = {name: state for name, state in after.items() if state is not None}
    done = sum(it is not None and it.etag != heads.states[name].etag for name, it in found.items())
    return FoldedHeads(states, done)


def _due(state: HeadState, old: Collection[str]) -> tuple[str, ...]:
    """Return the jobs whose decisions to fold: the oldest that the head names, up to the first one
    that is not old. A claimed head has none."""
    if state.head.claim is not None:
        return ()
    return tuple(takewhile(lambda job: job in old, state.head.decisions))


def _without(state: HeadState, jobs: Collection[str]) -> HeadState:
    rest = tuple(job for job in state.head.decisions if job not in jobs)
    return replace(state, head=replace(state.head, decisions=rest))


def _fold(
    context: Context,
    state: HeadState,
    jobs: Collection[str],
    known: Collection[Decided],
    remembers: int,
) -> Step[HeadState | None]:
    """Fold decisions of a head and return its present state; ``None``: it is unknown."""
    assert state.etag is not None
    tidied = state.head.tidied(context.write_id(), state.etag, remembers)
    new, key = yield from fold(context, state, tidied, jobs, known)
    if key is None:
        return state
    outcome = yield from swap_head(state, new)
    if isinstance(outcome, HeadState):
        return outcome
    if not isinstance(outcome, NotWritten) or isinstance(outcome.current, Absent):
        return None
    now = head_state(context, state.slot, outcome.current)
    if key not in {it.key for it in now.head.manifests}:
        yield from Delete(key)
    return now
