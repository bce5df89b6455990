"""gc, and who meets its work, with one rule broken in each."""

from __future__ import annotations

from dataclasses import replace

from simulation import scenarios
from simulation.variants import ABORT, COMPLETENESS, CONSISTENCY, CONTINUITY, breaks

from zero_rename.committer.commit.snapshot import take_snapshot
from zero_rename.committer.commit.state import old_records, partition_files
from zero_rename.committer.commit.state.data_listing import list_data
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.commit.state.heads import swap_head
from zero_rename.committer.commit.state.old_records import OldRecord
from zero_rename.committer.commit.state.partition_files import fold
from zero_rename.committer.format.layout import job_of_part
from zero_rename.committer.format.records.head import HeadState
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete
from zero_rename.committer.upkeep.gc import collect, condense, fold_heads


@breaks(
    (fold_heads, "_fold"),
    "gc beside a rival whose answers are lost",
    COMPLETENESS,
    CONSISTENCY,
    ABORT,
)
def takes_a_lost_answer_for_a_no(context, state, jobs, known, remembers):
    assert state.etag is not None
    tidied = state.head.tidied(context.write_id(), state.etag, remembers)
    new, key = yield from fold(context, state, tidied, jobs, known)
    if key is None:
        return state
    outcome = yield from swap_head(state, new)
    if isinstance(outcome, HeadState):
        return outcome
    yield from Delete(key)
    return None


@breaks((collect, "list_open"), "a job that died before it was applied, gc and recovery", ABORT)
def condenses_what_is_not_finished(context):
    return set()
    yield


@breaks(
    (condense.HeadsKnown, "named"),
    "an append that folds, and gc",
    COMPLETENESS,
    ABORT,
    through=property,
)
def condenses_what_heads_name(known):
    return set()


@breaks(
    (old_records, "_may_be_named"),
    "gc that dies with requests in flight, and gc again",
    COMPLETENESS,
    ABORT,
)
def removes_a_list_that_may_yet_be_named(origin, state):
    return False


@breaks((partition_files, "read_commit"), "gc and a reader", CONSISTENCY)
def takes_a_condensed_decision_for_a_whole_one(context, job):
    decided = yield from read_decision(context, job)
    assert decided is not None
    return decided


@breaks((partition_files, "_moved_or"), "gc and a reader", ABORT)
def never_reads_a_head_again(context, state, damage):
    return damage
    yield


@breaks((scenarios, "gc"), "a replace that keeps, recovery and gc, a fault, a crash", CONTINUITY)
def removes_files_that_no_head_names(context, horizon, apply):
    done = yield from collect.gc(context, horizon, apply=apply)
    seen = yield from take_snapshot(context)
    for partition in seen.versions:
        named = {file.key for file in seen.files}
        listed = yield from list_data(context.root, partition)
        for item in listed:
            if item.key not in named:
                yield from Delete(item.key, item.etag)
    return done


@breaks((condense, "_condense"), "an append committed by two processes, and gc", CONTINUITY)
def removes_decisions(context, decided, apply):
    yield from Delete(context.root.decision_key(decided.decision.job))
    return 0


@breaks((condense, "_condense"), "a run that replaces its own rows after gc", CONTINUITY)
def forgets_what_a_run_did(context, decided, apply):
    changes = tuple(replace(change, partition="day=9") for change in decided.decision.partitions)
    forgotten = replace(decided, decision=replace(decided.decision, partitions=changes))
    return (yield from _condense(context, forgotten, apply))


_condense = condense._condense


@breaks((scenarios, "gc"), "two tries of a run, and gc, a crash", CONTINUITY)
def removes_heads_of_runs(context, older_than, apply):
    runs = yield from list_objects(context.root.runs_prefix)
    for key in runs.keys:
        yield from Delete(key)
    return (yield from _gc(context, older_than, apply))


_gc = collect.gc


@breaks(
    (collect, "_parts_of_condensed"), "a replace in parts, and gc, a crash", ABORT, COMPLETENESS
)
def removes_parts_that_a_decision_names(context, jobs, condensing):
    prefix = context.root.decisions_prefix
    return [OldRecord(item, "") for item in jobs.objects if job_of_part(prefix, item.key)]


@breaks(
    (partition_files, "_merged"),
    "two appends that fold into lists of their own, gc and a reader",
    COMPLETENESS,
    CONSISTENCY,
)
def names_its_new_list_only(head, files, below):
    _, merged = _merged(head, files, below)
    return (), merged


_merged = partition_files._merged


@breaks(
    (partition_files, "_merged"),
    "two appends that fold into lists of their own, gc and a reader",
    COMPLETENESS,
    CONSISTENCY,
)
def takes_up_a_list_that_stays(head, files, below):
    kept, merged = _merged(head, files, below)
    return kept, (*kept, *merged)
