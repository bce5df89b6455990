"""Broken jobs, purges, undoings and collections of a table that is read by heads: each breaks one
rule about what a head names or keeps."""

from __future__ import annotations

from dataclasses import replace

from simulation import scenarios
from simulation.catalogue import (
    FENCED_IN_SLEEP,
    FOLD_AND_REPLACE,
    PAST_AND_GC,
    REBUILT_AND_EMPTIED,
    REBUILT_AND_REPLACED,
    REPLACE_AND_PURGE,
    RESTORE_AND_OVERWRITE,
    UNDO_AND_PURGE,
)
from simulation.invariants import ROOT
from simulation.variants import ABORT, COMPLETENESS, CONCURRENT, CONSISTENCY, CONTINUITY, breaks

from zero_rename.committer import StoreUnreachableError
from zero_rename.committer.commit import abort, apply, changes, close
from zero_rename.committer.commit import commit as job
from zero_rename.committer.commit.past import HeldFiles, held_files
from zero_rename.committer.commit.state import old_records
from zero_rename.committer.commit.state.data_listing import list_data
from zero_rename.committer.commit.state.decide import decide_abort
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.commit.state.open_jobs import list_open
from zero_rename.committer.commit.state.task_results import destination_exists
from zero_rename.committer.format.layout import TableRoot, job_in_key
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.store.deletion import remove
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Done, PutFile
from zero_rename.committer.upkeep import purge, rebuilt_heads, retention, unnamed_data
from zero_rename.committer.upkeep.gc import collect, condense
from zero_rename.committer.upkeep.unnamed_data import UnnamedFile

_forgetful = retention._forgetful


@breaks((rebuilt_heads, "_plan_for"), REBUILT_AND_REPLACED, COMPLETENESS, CONSISTENCY)
def rebuilds_a_head_over_a_claim(context, records, name):
    state = yield from read_head(context, Slot.partition(context.root, name))
    if state.head.version or records.heads.damaged:
        return None
    return rebuilt_heads._plan(context, records, state)


@breaks((rebuilt_heads, "list_open"), REBUILT_AND_EMPTIED, COMPLETENESS, CONCURRENT)
def rebuilds_a_head_without_a_look_at_open_jobs(context):
    return set()
    yield


@breaks(
    (TableRoot, "attempt_key"), "by heads: a task that outlives the commit of its job", CONTINUITY
)
def names_no_attempt(root, partition, attempt, job, number, fast=None):
    return _attempt_key(root, partition, "0", job, number)


_attempt_key = TableRoot.attempt_key


@breaks(
    (abort, "decide_abort"), "by heads: a task that outlives the abort of its job", COMPLETENESS
)
def sweeps_files_before_it_decides(context, job):
    yield from close.sweep_data(context, job)
    return (yield from decide_abort(context, job))


@breaks((apply, "sweep_losers"), "by heads: two replaces of one partition, a crash", COMPLETENESS)
def sweeps_what_the_decision_names(context, decision, sole=False):
    yield from close.sweep_data(context, decision.job)


@breaks((job, "_fenced_or"), FENCED_IN_SLEEP, ABORT)
def takes_what_came_after_the_fence_for_damage(context, opened, error):
    yield from ()
    return error


@breaks((purge, "find_unnamed"), REPLACE_AND_PURGE, COMPLETENESS)
def lists_open_records_before_data(context, instead=None):
    still_open = yield from list_open(context)
    listing = yield from list_objects(ROOT.data_prefix)
    heads = yield from old_records.read_heads(context)
    return (yield from _left(context, listing, still_open, heads))


@breaks((purge, "find_unnamed"), REPLACE_AND_PURGE, COMPLETENESS)
def reads_heads_before_open_records(context, instead=None):
    listing = yield from list_objects(ROOT.data_prefix)
    heads = yield from old_records.read_heads(context)
    still_open = yield from list_open(context)
    return (yield from _left(context, listing, still_open, heads))


@breaks((purge, "find_unnamed"), REPLACE_AND_PURGE, COMPLETENESS)
def asks_no_open_records(context, instead=None):
    listing = yield from list_objects(ROOT.data_prefix)
    heads = yield from old_records.read_heads(context)
    return (yield from _left(context, listing, (), heads))


def _left(context, listing, still_open, heads):
    """What goes by these looks alone: the right purge asks the decisions, too, which hides their
    order."""
    held = yield from held_files(context, list(heads.states.values()))
    named = {
        file.key
        for it in held.values()
        if isinstance(it, HeldFiles)
        for file in (*it.now, *it.kept)
    }
    loose = [item for item in listing.objects if item.key not in named]
    return [
        UnnamedFile(item, job) for item in loose if (job := job_in_key(item.key)) not in still_open
    ]


@breaks((changes, "_refuse_named"), "by heads: two that fail where files are", CONCURRENT)
def asks_a_listing_what_exists(context, opened, target, state, exclusive):
    there = yield from list_data(context.root, target.partition)
    if exclusive and there:
        raise destination_exists(target.partition, [item.key for item in there])
    return ()


@breaks(
    (scenarios, "put_whole"),
    "by heads: one replace of two partitions, faults, a crash",
    COMPLETENESS,
)
def reports_before_its_file_is_there(key, body, settings):
    try:
        return (yield from PutFile(key, body, settings))
    except StoreUnreachableError:
        return Done("sent")


@breaks((scenarios, "purge_data"), UNDO_AND_PURGE, COMPLETENESS)
def deletes_before_it_forgets(context, _, keep, apply):
    planned = yield from retention.forget(context, retention.Keeping(-1.0, keep), False)
    instead = {it.state.slot.name: it.state for it in planned}
    unnamed = yield from unnamed_data.find_unnamed(context, instead)
    yield from remove((it.item.key, it.item.etag) for it in unnamed if not it.stays)
    yield from retention.forget(context, retention.Keeping(-1.0, keep), apply)
    return []


@breaks((unnamed_data, "held_files"), UNDO_AND_PURGE, COMPLETENESS)
def does_not_ask_what_is_kept(context, states):
    held = yield from held_files(context, states)
    return {
        name: replace(it, kept=()) if isinstance(it, HeldFiles) else it for name, it in held.items()
    }


@breaks((retention, "_forgetful"), UNDO_AND_PURGE, ABORT, COMPLETENESS)
def forgets_under_a_claim(context, state, keeping):
    found = _forgetful(context, replace(state, head=replace(state.head, claim=None)), keeping)
    if found is None:
        return None
    head = replace(found.state.head, claim=state.head.claim, holder=state.head.holder)
    return replace(found, state=replace(found.state, head=head))


@breaks((job, "check_kept"), UNDO_AND_PURGE, ABORT, COMPLETENESS)
def takes_back_what_may_be_forgotten(context, opened, held):
    return None
    yield


@breaks((job, "check_kept"), RESTORE_AND_OVERWRITE, CONSISTENCY)
def restores_files_of_former_columns(context, opened, held):
    return None
    yield


def _named_now(self):
    claims = {it.head.claim for it in self.states.values() if it.head.claim is not None}
    return claims.union(*(it.head.decisions for it in self.states.values()))


@breaks((collect, "HeadsKnown"), PAST_AND_GC, CONSISTENCY, COMPLETENESS, ABORT)
class condenses_what_is_kept(condense.HeadsKnown):
    named = property(_named_now)


@breaks((PartitionHead, "lists"), FOLD_AND_REPLACE, COMPLETENESS, through=property)
def removes_its_own_list_that_is_kept(head):
    return frozenset(manifest.key for manifest in head.manifests)


@breaks(
    [(collect, "free_manifests"), (old_records, "free_manifests")], PAST_AND_GC, COMPLETENESS, ABORT
)
def removes_a_list_that_is_kept(manifests, heads, kept_for):
    states = {
        name: replace(it, head=replace(it.head, kept=())) for name, it in heads.states.items()
    }
    return (yield from _free(manifests, replace(heads, states=states), kept_for))


_free = old_records.free_manifests
