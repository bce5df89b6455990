"""Runs that plans narrow, the plans, and who meets them, with one rule broken in each."""

from __future__ import annotations

from dataclasses import replace

from simulation import scenarios
from simulation.catalogue import (
    CLEARED_BY_HAND,
    GC_AND_CLEARED,
    NARROWED_AND_GC,
    NARROWED_AND_LOADED,
    NARROWED_TWICE,
    PLAN_ENDED_LATE,
    SETTLED_AND_LOSER,
    SETTLED_TWICE,
    TWO_PLANS,
    WHOLE_TWICE,
)
from simulation.invariants import ROOT
from simulation.narrowed import RUN
from simulation.variants import COMPLETENESS, CONCURRENT, CONTINUITY, EXCLUSIVITY, breaks

from zero_rename.committer.commit import claim, commit, narrowed_run
from zero_rename.committer.commit import open as opening
from zero_rename.committer.commit.narrowed_run import leave_narrowing, read_narrowing
from zero_rename.committer.commit.state import old_records
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.format.records.narrowing import recompute_key, recompute_prefix
from zero_rename.committer.format.records.partition_ranks import PartitionRanks
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep.gc import collect, condense


@breaks((commit, "_targets"), NARROWED_TWICE, COMPLETENESS)
def takes_back_all(context, opened, results):
    return (yield from _targets(context, replace(opened, narrowed=None), results))


_targets = commit._targets


def _goes_by_no_planned_version(opened, request, state):
    return _changed(replace(opened, planned={}), request, state)


@breaks(
    (opening, "as_planned"),
    NARROWED_AND_LOADED,
    CONCURRENT,
    also=[(claim, "_changed", _goes_by_no_planned_version)],
)
def ignores_the_run_s_last_job(opened, earlier, write_id):
    left = yield from read_narrowing(ROOT, RUN)
    if earlier is not None and left is not None:
        earlier = replace(earlier, job=left.said.job)
    return (yield from _as_planned(opened, earlier, write_id))


@breaks((opening, "as_planned"), NARROWED_TWICE, COMPLETENESS)
def forgets_its_own_commit(opened, earlier, write_id):
    nobody_s = earlier and replace(earlier, cleared=None)
    return (yield from _as_planned(opened, nobody_s, write_id))


@breaks((opening, "as_planned"), CLEARED_BY_HAND, EXCLUSIVITY)
def goes_by_a_word_for_ever(opened, earlier, write_id):
    found = yield from _as_planned(opened, earlier, write_id)
    left = yield from read_narrowing(ROOT, RUN)
    if found.narrowed is not None or left is None or opened.spec.owner.cleared is None:
        return found
    planned = {
        name: earlier.versions.get(name, version) for name, version in left.said.partitions.items()
    }
    return replace(opened, planned=planned, narrowed=frozenset(planned))


@breaks((opening, "as_planned"), CLEARED_BY_HAND, EXCLUSIVITY)
def takes_no_word_for_itself(opened, earlier, write_id):
    found = yield from read_narrowing(ROOT, RUN)
    if found is None or found.said.over or found.said.job != earlier.job:
        return opened
    planned = found.said.partitions
    return replace(opened, planned=planned, narrowed=frozenset(planned))


_as_planned = narrowed_run.as_planned


@breaks((narrowed_run, "leave_narrowing"), PLAN_ENDED_LATE, EXCLUSIVITY)
def swaps_words_without_a_condition(root, said, instead_of):
    yield from Put(recompute_key(root, said.idempotency_key), said.encode())
    return True


@breaks((scenarios, "end_narrowing"), PLAN_ENDED_LATE, EXCLUSIVITY)
def ends_whatever_word_is_there(root, left, write_id):
    over = replace(left.said, write_id=write_id, over=True)
    yield from swaps_words_without_a_condition(root, over, left)


@breaks((scenarios, "leave_narrowing"), TWO_PLANS, EXCLUSIVITY, COMPLETENESS)
def leaves_a_word_over_that_of_another(root, said, instead_of):
    left = yield from read_narrowing(root, said.idempotency_key)
    return (yield from leave_narrowing(root, said, left))


@breaks((commit, "_read_version"), NARROWED_TWICE, CONCURRENT)
@breaks((commit, "_read_version"), WHOLE_TWICE, CONCURRENT)
def makes_anew_what_has_moved(opened, partition):
    return _read_version(replace(opened, planned={}), partition)


_read_version = commit._read_version


@breaks((PartitionRanks, "has_lost"), SETTLED_AND_LOSER, CONCURRENT)
def lets_losers_load_again(ranks, run):
    return False


@breaks((claim, "_changed"), SETTLED_AND_LOSER, CONCURRENT)
def settles_whatever_is_there(opened, request, state):
    return _changed(replace(opened, settles={}, planned={}), request, state)


_changed = claim._changed


@breaks((PartitionRanks, "after"), SETTLED_TWICE, CONCURRENT)
def ends_a_settlement_as_its_winner_loads_again(ranks, rank, replaces, run=None):
    return _after(ranks, rank, replaces)


_after = PartitionRanks.after


@breaks((PartitionRanks, "after_settling"), SETTLED_TWICE, CONCURRENT)
def settles_at_the_rank_of_the_winner(ranks, rank, replaces, settling):
    own = RunRank.of("2013-01-01")
    return _after_settling(ranks, own, replaces, replace(settling, rank=own))


_after_settling = PartitionRanks.after_settling


@breaks((commit, "_own_before"), CLEARED_BY_HAND, COMPLETENESS)
def follows_no_chain(context, opened):
    if opened.repeat_of is None:
        return []
    earlier = yield from read_decision(context, opened.repeat_of)
    assert earlier is not None
    return [(opened.repeat_of, change) for change in earlier.decision.partitions]


@breaks((condense, "_condense"), GC_AND_CLEARED, COMPLETENESS, CONTINUITY)
def condenses_what_a_run_narrows_away(context, decided, apply):
    whole = replace(decided, decision=replace(decided.decision, narrows=None))
    return (yield from _condense(context, whole, apply))


_condense = condense._condense


@breaks((collect, "find_aged"), NARROWED_AND_GC, EXCLUSIVITY)
def removes_words_of_the_age_that_it_is_told(context, kept_for):
    found = yield from _find_aged(context, kept_for)
    words = yield from list_objects(recompute_prefix(context.root))
    return found + old_records.aged("a word", words.objects, words.date, kept_for)


_find_aged = old_records.find_aged
