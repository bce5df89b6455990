"""gc, and who meets its work, with one rule broken in each."""

from __future__ import annotations

from dataclasses import replace

from zero_rename.committer.commit.snapshot import take_snapshot
from zero_rename.committer.commit.state import partition_files
from zero_rename.committer.commit.state.data_listing import list_data
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.commit.state.heads import Swapped, swap_head
from zero_rename.committer.commit.state.old_records import OldRecord
from zero_rename.committer.commit.state.partition_files import fold
from zero_rename.committer.format.layout import job_of_part
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete
from zero_rename.committer.upkeep.gc import collect, condense


def takes_a_lost_answer_for_a_no(context, state, jobs, known, remembers):
    assert state.etag is not None
    tidied = state.head.tidied(context.write_id(), state.etag, remembers)
    new, key = yield from fold(context, state, tidied, jobs, known)
    if key is None:
        return state
    outcome = yield from swap_head(context, state, new)
    if isinstance(outcome, Swapped):
        return outcome.state
    yield from Delete(key)
    return None


def condenses_what_is_not_finished(context):
    return set()
    yield


def condenses_what_heads_name(known):
    return set()


def removes_a_list_that_may_yet_be_named(origin, state):
    return False


def takes_a_condensed_decision_for_a_whole_one(context, job):
    decided = yield from read_decision(context, job)
    assert decided is not None
    return decided


def never_reads_a_head_again(context, state, damage):
    return damage
    yield


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


def removes_decisions(context, decided, apply):
    yield from Delete(context.root.decision_key(decided.decision.job))
    return 0


def forgets_what_a_run_did(context, decided, apply):
    changes = tuple(replace(change, partition="day=9") for change in decided.decision.partitions)
    forgotten = replace(decided, decision=replace(decided.decision, partitions=changes))
    return (yield from _condense(context, forgotten, apply))


_condense = condense._condense


def removes_heads_of_runs(context, older_than, apply):
    runs = yield from list_objects(context.root.runs_prefix)
    for key in runs.keys:
        yield from Delete(key)
    return (yield from _gc(context, older_than, apply))


_gc = collect.gc


def removes_parts_that_a_decision_names(context, jobs, condensing):
    prefix = context.root.decisions_prefix
    return [OldRecord(item, "") for item in jobs.objects if job_of_part(prefix, item.key)]


def names_its_new_list_only(head, files, below):
    _, merged = _merged(head, files, below)
    return (), merged


_merged = partition_files._merged


def takes_up_a_list_that_stays(head, files, below):
    kept, merged = _merged(head, files, below)
    return kept, (*kept, *merged)
