"""Broken variants of the protocol, one for each rule about order: the simulation must catch each.

A variant replaces functions of the committer; the scenario is one that runs clean without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulation import scenarios
from simulation.explore import Explorer
from simulation.scenarios import (
    ONE,
    TWO,
    explorer,
    purger,
    reader,
    recoverer,
    twice,
    writer,
)
from simulation.sim_store import Behaviour, etag_of

from zero_rename.committer import Aborted, JobFencedError, Mode
from zero_rename.committer.layout import job_in_key
from zero_rename.committer.maintenance import purge, recovery
from zero_rename.committer.protocol import abort, apply, claim, close, markers, snapshot
from zero_rename.committer.protocol import commit as job
from zero_rename.committer.protocol import open as opening
from zero_rename.committer.records import success_marker
from zero_rename.committer.records.decision import Decision, PartReference, split_into_parts
from zero_rename.committer.records.head import HeadState, Slot
from zero_rename.committer.records.open_record import OpenRecord
from zero_rename.committer.s3.requests import AbortUpload, All, Delete, Done, Put
from zero_rename.committer.state import decide
from zero_rename.committer.state import heads as slots
from zero_rename.committer.state.context import Limits

REPLACE, APPEND = Mode.REPLACE, Mode.APPEND
Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Variant:
    """A broken protocol.

    :param name: the rule that is broken.
    :param patches: module, attribute and what is put there.
    :param scenario: makes an explorer that meets the flaw.
    :param caught_as: the invariants that may catch it.
    :param walks: seeded random walks to try; 0 explores depth first.
    """

    name: str
    patches: Sequence[Patch]
    scenario: Callable[[], Explorer]
    caught_as: frozenset[str]
    walks: int = 0


# Decisions


def decides_before_it_claims(context, opened, results, expected_tasks=None):
    context = replace(context, facts=opened.facts)
    targets = yield from job._targets(context, opened, results)
    states = {}
    for target in targets:
        slot = Slot.partition(context.root, target.partition)
        states[slot] = yield from slots.read_head(context, slot)
    decision = yield from job._decision(context, opened, targets, states)
    decided = yield from decide.decide(context, decision)
    if not decided.decision.is_commit:
        raise JobFencedError("fenced")
    held = yield from claim.claim_all(context, opened, job._claims(context, opened, targets))
    return (yield from apply.finish(context, decided, held))


def trusts_the_answer_to_its_decision(context, decision):
    key = context.root.decision_key(decision.job)
    answer = yield Put(key, decision.encode(), if_none_match=True)
    if isinstance(answer, Done):
        return decide.Decided(decision, answer.etag, answer.date)
    return decide.Decided(Decision.abort(decision.job, "none"), "", 0.0)


def aborts_uploads_before_it_decides(context, job_id, slots_):
    swept = yield from close.sweep(context, job_id)
    decided = yield from decide.decide(context, Decision.abort(job_id, context.write_id()))
    if decided.decision.is_commit:
        return (yield from apply.finish(context, decided))
    yield All(tuple(slots.release_claim(context, slot, job_id) for slot in slots_))
    yield from close.close(context, job_id)
    return Aborted(job_id, context.root.url, swept)


def writes_its_parts_after_the_decision(context, decision):
    parts = split_into_parts(decision, context.limits.files_per_object)
    if not parts:
        return (yield from _decide(context, decision))
    root = context.root
    named = [(root.decision_part_key(decision.job, p.write_id, p.number), p) for p in parts]
    references = tuple(PartReference(key, etag_of(part.encode())) for key, part in named)
    compact = replace(decision, parts=references)
    decided = yield from _decide(replace(context, limits=Limits()), compact)
    for key, part in named:
        yield Put(key, part.encode())
    return replace(decided, decision=decision)


_decide = decide.decide


def decides_without_removals(context, opened, target, state):
    change = yield from _change(context, opened, target, state)
    return replace(change, removals=())


_change = job._change


# Claims and heads


def reads_heads_instead_of_claiming(context, opened, requests):
    held = {}
    for request in requests:
        held[request.slot] = yield from slots.read_head(context, request.slot)
    for slot, state in held.items():
        claimed = replace(state.head, claim=opened.job)
        held[slot] = HeadState(slot, claimed, state.etag)
    return held


def swaps_heads_without_a_condition(context, state, new):
    answer = yield Put(state.slot.key, new.encode())
    return slots.Swapped(HeadState(state.slot, new, answer.etag), answer.date)


def claims_over_the_claim_of_another(context, state, other):
    yield from slots.release_claim(context, state.slot, other)
    return True


def moves_a_head_from_any_epoch(state, job_id, base_epoch):
    return state.head.claim == job_id


def claims_without_a_look_at_its_own_decision(context, opened):
    return
    yield


# Opening


def does_not_confirm_its_open_record(context, job_id, spec):
    record = OpenRecord.of(job_id, context.write_id(), spec)
    yield Put(context.root.open_key(job_id), record.encode(), if_none_match=True)


def forgets_the_run_s_earlier_commit(context, once, others):
    return None
    yield


# Applying


def leaves_removals_to_whoever_moved_the_head(context, decided, change, held, count):
    slot = Slot.partition(context.root, change.partition)
    state = held[slot] if held is not None else (yield from slots.read_head(context, slot))
    if state.head.claim == decided.decision.job:
        yield from _apply_partition(context, decided, change, held, count)


_apply_partition = apply._apply_partition


def drops_the_manifest_of_the_head_before(context, decided, change, state):
    before = state.head.manifest
    moved = yield from _move(context, decided, change, state)
    if moved is not None and before is not None:
        yield Delete(before.key)
    return moved


_move = apply._move


def never_looks_whether_it_resurrected(context, job_id, slot, file):
    return
    yield


def closes_before_it_applies(context, decided, held=None):
    yield Delete(context.root.open_key(decided.decision.job))
    return (yield from _finish(context, decided, held))


_finish = apply.finish


def writes_markers_unconditionally(context, decided, change, seen):
    body = success_marker.marker_bytes(context.root, decided, (change,), context.write_id())
    yield Put(context.root.marker_key(change.partition), body)


def checks_the_head_before_it_reads_the_marker(context, decided, change, seen):
    slot = Slot.partition(context.root, change.partition)
    state = yield from slots.read_head(context, slot)
    if state.head.last_job == decided.decision.job:
        there = yield from markers.look_at_marker(context, change.partition)
        yield from markers._put_marker(context, decided, (change,), there)


# Maintenance and readers


def purges_by_age_alone(context, **options):
    for upload in (yield from close.list_uploads(context)):
        yield AbortUpload(upload.key, upload.upload_id)
    return purge.PurgeReport((), ())


def purges_every_job_without_a_decision(context, **options):
    for upload in (yield from close.list_uploads(context)):
        decided = yield from decide.read_decision(context, job_in_key(upload.key) or "")
        if decided is None:
            yield AbortUpload(upload.key, upload.upload_id)
    return purge.PurgeReport((), ())


def lists_heads_once(context, partitions=None):
    table = yield from snapshot.read_table(context)
    listed = yield from slots.list_heads(context)
    wanted = snapshot._wanted(listed, partitions)
    states = yield All(tuple(slots.read_head(context, item.slot) for item in wanted.values()))
    yield from snapshot._settle_claims(context, states)
    return (yield from snapshot._snapshot(context, table, states))


def ignores_decided_claims(context, states):
    return True
    yield


def _everywhere(name: str, new: Any, *modules: Any) -> Sequence[Patch]:
    return [(module, name, new) for module in modules if hasattr(module, name)]


_ALL = (abort, apply, claim, close, job, markers, opening, purge, recovery, slots, snapshot)
_SMALL = Limits(decisions_per_head=1, files_per_object=1)
_RESURRECTS = Behaviour(resurrects=True, delete_conditions=False)


def _variant(
    patches: Sequence[Patch], scenario: Callable[[], Explorer], *caught_as: str, walks: int = 0
) -> Variant:
    broken = patches[0][2]
    return Variant(
        broken.__name__.replace("_", " "), patches, scenario, frozenset(caught_as), walks
    )


def _two_replaces(**bounds: Any) -> Explorer:
    return explorer(writer("a", REPLACE, ONE), writer("b", REPLACE, ONE), **bounds)


def _late_applier() -> Explorer:
    return explorer(
        writer("a", REPLACE, ONE),
        recoverer(),
        writer("b", REPLACE, ONE),
        behaviour=_RESURRECTS,
    )


COMPLETENESS = "completeness"
EXCLUSIVITY = "exclusivity"
CONSISTENCY = "consistency"
CONCURRENT = "concurrent"
ABORT = "ability to abort"
CONTINUITY = "continuity of correctness"

VARIANTS = [
    _variant(
        [(scenarios, "commit_job", decides_before_it_claims)],
        _two_replaces,
        CONCURRENT,
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        _everywhere("decide", trusts_the_answer_to_its_decision, *_ALL),
        lambda: explorer(writer("a", APPEND, ONE), faults=1),
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        _everywhere("abort_slots", aborts_uploads_before_it_decides, *_ALL),
        lambda: explorer(writer("a", APPEND, ONE), recoverer()),
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(job, "decide", writes_its_parts_after_the_decision)],
        lambda: explorer(writer("a", REPLACE, ONE, limits=_SMALL), crashes=1),
        ABORT,
    ),
    _variant(
        [(apply, "_move", drops_the_manifest_of_the_head_before)],
        lambda: explorer(
            writer("a", APPEND, ONE, limits=_SMALL),
            writer("b", APPEND, ONE, limits=_SMALL),
            reader(ONE),
            switches=2,
        ),
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(job, "_change", decides_without_removals)],
        lambda: explorer(writer("a", REPLACE, ONE)),
        CONTINUITY,
    ),
    _variant(
        [(job, "claim_all", reads_heads_instead_of_claiming)],
        _two_replaces,
        CONCURRENT,
        COMPLETENESS,
    ),
    _variant(
        _everywhere("swap_head", swaps_heads_without_a_condition, *_ALL),
        _two_replaces,
        CONCURRENT,
        CONTINUITY,
        COMPLETENESS,
        ABORT,
    ),
    _variant(
        [(claim, "_settle", claims_over_the_claim_of_another)],
        _two_replaces,
        CONCURRENT,
        COMPLETENESS,
    ),
    _variant(
        [
            (apply, "_awaits", moves_a_head_from_any_epoch),
            (claim, "_refuse_if_fenced", claims_without_a_look_at_its_own_decision),
        ],
        lambda: twice(APPEND, ONE),
        COMPLETENESS,
    ),
    _variant(
        [(opening, "_write_open_record", does_not_confirm_its_open_record)],
        lambda: explorer(writer("a", APPEND, ONE), faults=1, crashes=1),
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(opening, "_earlier_commit", forgets_the_run_s_earlier_commit)],
        lambda: explorer(
            writer("a", APPEND, ONE, once="run"), writer("b", APPEND, ONE, once="run")
        ),
        COMPLETENESS,
    ),
    _variant(
        [(apply, "_apply_partition", leaves_removals_to_whoever_moved_the_head)],
        lambda: explorer(writer("a", REPLACE, ONE), crashes=1),
        CONTINUITY,
    ),
    _variant(
        [(apply, "_bury", never_looks_whether_it_resurrected)],
        _late_applier,
        CONTINUITY,
        walks=4000,
    ),
    _variant(
        _everywhere("finish", closes_before_it_applies, *_ALL),
        lambda: explorer(writer("a", REPLACE, ONE), crashes=1),
        CONTINUITY,
        COMPLETENESS,
        ABORT,
    ),
    _variant(
        [(apply, "write_partition_marker", writes_markers_unconditionally)],
        _two_replaces,
        CONTINUITY,
    ),
    _variant(
        [(apply, "write_partition_marker", checks_the_head_before_it_reads_the_marker)],
        _two_replaces,
        CONTINUITY,
    ),
    _variant(
        [(scenarios, "purge", purges_by_age_alone)],
        lambda: explorer(writer("a", APPEND, ONE), purger()),
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "purge", purges_every_job_without_a_decision)],
        lambda: explorer(writer("a", APPEND, ONE), purger()),
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "take_snapshot", lists_heads_once)],
        lambda: explorer(writer("a", REPLACE, ONE, TWO), reader(ONE, TWO)),
        CONSISTENCY,
    ),
    _variant(
        [(snapshot, "_settle_claims", ignores_decided_claims)],
        lambda: explorer(writer("a", REPLACE, ONE, TWO), reader(ONE, TWO)),
        CONSISTENCY,
    ),
]
