"""Functions of the committer with one rule of the protocol broken in each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation import scenarios
from simulation.catalogue import (
    FIRST_INSERTION_AND_APPEND,
    FIRST_INSERTIONS,
    FIRSTS_EVOLVE,
    OLD_RUN_AND_NEW,
    OVERWRITE,
    REBUILT_AND_EMPTIED,
    REBUILT_AND_REPLACED,
    RUNS_OF_TWO,
)
from simulation.sim_store import etag_of
from simulation.variants import (
    ABORT,
    COMPLETENESS,
    CONCURRENT,
    CONSISTENCY,
    CONTINUITY,
    EXCLUSIVITY,
    breaks,
    everywhere,
)

from zero_rename.committer import (
    Aborted,
    CommitConflictError,
    CommitStateUnknownError,
    JobFencedError,
    Mode,
    UnfinishedCommitError,
    row_rewrite,
)
from zero_rename.committer.commit import (
    abort,
    apply,
    changes,
    claim,
    close,
    complete,
    evolve,
    first_job,
    markers,
    removal,
    snapshot,
)
from zero_rename.committer.commit import commit as job
from zero_rename.committer.commit import open as opening
from zero_rename.committer.commit.index import write_index
from zero_rename.committer.commit.index.read_index import still_true
from zero_rename.committer.commit.state import decide, found_table, partition_files
from zero_rename.committer.commit.state import heads as slots
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.commit.state.decide import Decided
from zero_rename.committer.commit.state.found_table import read_table
from zero_rename.committer.commit.state.open_jobs import list_open
from zero_rename.committer.commit.state.partition_files import fold
from zero_rename.committer.format.layout import job_in_key
from zero_rename.committer.format.records.decision import Decision, PartReference, split_into_parts
from zero_rename.committer.format.records.head import HeadState, Slot
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.committer.format.records.partition_ranks import PartitionRanks
from zero_rename.committer.format.schema import evolution
from zero_rename.committer.store import conditional_put as swap
from zero_rename.committer.store.conditional_put import NotWritten
from zero_rename.committer.store.requests import (
    AbortUpload,
    All,
    Delete,
    DeleteMany,
    Done,
    Found,
    Get,
    Put,
    Unknown,
)
from zero_rename.committer.upkeep import adopt, compaction, rebuilt_heads, recovery
from zero_rename.committer.upkeep.conflicts import resolution
from zero_rename.committer.upkeep.gc import fold_heads
from zero_rename.committer.upkeep.purging import purge, upload_judge

TWO_REPLACES = "two replaces of one partition"
RESURRECTS_UNSEEN = "a slow applier where Complete resurrects, an answer lost"
SLOW_TO_REMOVE = "an append and a replace that is slow to remove"
TAKEN = "one that finds its partition taken, two faults, a crash"
ONE_REPLACE = "one replace of two partitions, a fault, a crash"
TWO_EVOLVE = "two jobs that bring a column each"

# Results and decisions


@breaks((job, "check_results"), "one whose results are reported twice", COMPLETENESS)
def believes_every_result(opened, results, expected_tasks):
    return None


@breaks((scenarios, "commit_job"), TWO_REPLACES, CONCURRENT, ABORT, COMPLETENESS)
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
    claims = yield from claim.claim_all(context, opened, job._claims(context, opened, targets))
    yield from apply.apply_all(context, decided, claims.held)
    return apply.committed(context, decided)


@breaks(everywhere("decide"), "one append, two faults", ABORT, COMPLETENESS)
def trusts_the_answer_to_its_decision(context, decision):
    key = context.root.decision_key(decision.job)
    answer = yield from Put(key, decision.encode(), if_none_match=True)
    if isinstance(answer, Done):
        return Decided(decision, answer.etag, answer.date)
    return Decided(Decision.abort(decision.job, "none"), "", 0.0)


@breaks(everywhere("fence"), "a replace and recovery, a crash", ABORT, COMPLETENESS)
def aborts_uploads_before_it_decides(context, job_id, slots_, **_):
    yield from close.sweep(context, job_id)
    return (yield from _fence(context, job_id, slots_))


_fence = abort.fence


@breaks((job, "decide"), "one replace in parts, a fault, a crash", ABORT)
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
        yield from Put(key, part.encode())
    return replace(decided, decision=decision)


_decide = decide.decide


@breaks((changes, "_change"), ONE_REPLACE, CONTINUITY)
def decides_without_removals(context, opened, target, version):
    change = yield from _change(context, opened, target, version)
    return replace(change, removals=())


_change = changes._change


@breaks((changes, "_change"), TAKEN, CONCURRENT)
def never_sees_the_files_where_it_must_fail(context, opened, target, version):
    spec = replace(opened.spec, mode=Mode.APPEND)
    return (yield from _change(context, replace(opened, spec=spec), target, version))


@breaks(everywhere("put_record"), "one append, three faults, lost rights among them", ABORT)
def says_refused_after_an_unanswered_request(put, write_id, read_id=swap.write_id_of):
    in_doubt = False
    for _ in range(5):
        answer = yield from put
        if isinstance(answer, Done):
            return swap.Written(answer.etag, answer.date)
        current = yield from Get(put.key)
        if isinstance(current, Found) and read_id(current.body) == write_id:
            return swap.Written(current.etag, current.last_modified)
        if not swap._still_holds(put, current):
            in_doubt = in_doubt or isinstance(answer, Unknown)
            return swap.NotWritten(current, in_doubt)
        in_doubt = True
    return swap.Uncertain("no answer")


@breaks((apply, "_move"), "one append, three faults, reads among them", ABORT, COMPLETENESS)
def takes_an_uncertain_move_for_that_of_another(context, decided, change, state):
    try:
        return (yield from _move(context, decided, change, state))
    except UnfinishedCommitError:
        return None


_move = apply._move


# Aborting and closing


@breaks((abort, "take_off"), "a replace and recovery, a crash", ABORT)
def forgets_the_claims_of_whom_it_fences(context, job_id, slots_):
    yield from _take_off(context, job_id, ())


_take_off = abort.take_off


@breaks((job, "abort_own"), "an append committed by two processes, the store full", ABORT)
def sweeps_though_another_process_may_commit(context, job_id, slots_, may_sweep, **_):
    return (yield from _abort_own(context, job_id, slots_, lambda holders: True))


_abort_own = abort.abort_own


@breaks((abort, "_read_back"), "an append committed by two processes, lost rights", ABORT)
def never_reads_back_what_the_other_process_decided(context, job_id, slots_, error):
    return
    yield


@breaks((abort, "_read_back"), "an append committed by two processes, the store full", ABORT)
def reads_the_decision_back_before_the_heads(context, job_id, slots_, error):
    decided = yield from decide.read_decision(context, job_id)
    holders = yield from abort._holders(context, job_id, slots_)
    if decided is None and holders - {context.process()}:
        raise CommitStateUnknownError("Another process is at it.")
    return decided


@breaks(everywhere("close", abort, apply), TAKEN, ABORT)
def closes_before_it_sweeps(context, job_id):
    yield from close.delete_open_record(context, job_id)
    return (yield from close.sweep(context, job_id))


@breaks((apply, "sweep_losers"), ONE_REPLACE, ABORT, COMPLETENESS)
def sweeps_what_the_decision_names(context, decision):
    yield from close.sweep(context, decision.job)


@breaks(everywhere("abort_slots"), TAKEN, ABORT)
def releases_claims_after_it_closed(context, job_id, slots_, **_):
    decided = yield from decide.decide(context, Decision.abort(job_id, context.write_id()))
    if decided.decision.is_commit:
        return (yield from apply.finish(context, decided))
    yield from abort.take_off(context, job_id, ())
    swept = yield from close.close(context, job_id)
    yield from All(tuple(slots.release_claim(context, slot, job_id) for slot in slots_))
    return Aborted(job_id, context.root.url, swept)


@breaks((close, "sweep"), TAKEN, ABORT)
def sweeps_without_a_second_look(context, job_id):
    uploads = yield from close.list_uploads(context)
    left = [upload for upload in uploads if job_in_key(upload.key) == job_id]
    yield from All(tuple(close._abort(upload.key, upload.upload_id) for upload in left))
    return len(left)


# Claims and heads


@breaks((job, "claim_all"), TWO_REPLACES, CONCURRENT, COMPLETENESS)
def reads_heads_instead_of_claiming(context, opened, requests):
    requests = list(requests)
    if any(request.base is None for request in requests):
        return (yield from _claim_all(context, opened, requests))  # There is nothing to read.
    held = {}
    for request in requests:
        held[request.slot] = yield from slots.read_head(context, request.slot)
    for slot, state in held.items():
        claimed = replace(state.head, claim=opened.job)
        held[slot] = HeadState(slot, claimed, state.etag)
    return claim.Claims(held)


_claim_all = claim.claim_all


@breaks(everywhere("swap_head"), TWO_REPLACES, CONCURRENT, CONTINUITY, COMPLETENESS, ABORT)
@breaks(
    (fold_heads, "swap_head"),
    "an append that folds, and gc",
    CONTINUITY,
    COMPLETENESS,
    CONCURRENT,
    ABORT,
)
def swaps_heads_without_a_condition(state, new):
    answer: Any = yield from Put(state.slot.key, new.encode())
    return HeadState(state.slot, new, answer.etag)


@breaks((claim, "_settle"), TWO_REPLACES, CONCURRENT, COMPLETENESS)
def claims_over_the_claim_of_another(context, state, other):
    yield from slots.release_claim(context, state.slot, other)
    return True


@breaks((claim, "_refuse_if_fenced"), "an append committed by two processes", CONTINUITY)
def claims_without_a_look_at_its_own_decision(context, opened):
    return
    yield


@breaks(
    (apply, "_awaits"),
    "a commit in two processes, writers, recovery",
    COMPLETENESS,
    CONTINUITY,
    also=[(claim, "_refuse_if_fenced", claims_without_a_look_at_its_own_decision)],
)
def moves_a_head_from_any_version(state, job_id, base_version):
    return state.head.claim == job_id


@breaks((claim, "_changed"), TWO_REPLACES, CONCURRENT)
def never_sees_a_conflict(opened, request, state):
    return False


@breaks(everywhere("is_superseded"), OLD_RUN_AND_NEW, CONCURRENT)
def never_sees_a_newer_run(opened, state, replaces):
    return False


@breaks((PartitionRanks, "after"), RUNS_OF_TWO, CONCURRENT)
def ranks_a_partition_by_its_last_run(ranks, rank, replaces, run=None):
    return PartitionRanks(rank, rank if replaces else ranks.replaced)


@breaks((claim, "_finish_last_job"), SLOW_TO_REMOVE, CONTINUITY)
def leaves_the_last_job_as_it_is(context, opened, request, state):
    return
    yield


@breaks((job, "_aborted"), "an append committed by two processes", ABORT)
def leaves_its_claim_where_it_is_fenced(context, opened, slots_, error, aborted=job._aborted):
    if isinstance(error, JobFencedError):
        return None
    return (yield from aborted(context, opened, slots_, error))


@breaks(
    (scenarios, "process_of"),
    "a commit in two processes and a third writer",
    COMPLETENESS,
    CONCURRENT,
)
def takes_all_processes_for_one(name):
    return "a process"


@breaks(
    (job, "_come_meanwhile"),
    "a replace of the table, and an append to an old and a new partition",
    CONCURRENT,
)
def lists_the_table_before_it_claims_only(context, opened, held):
    return []
    yield


# Tables


@breaks(everywhere("find_table", first_job, evolve), "two first jobs, a fault", COMPLETENESS)
def counts_a_table_before_its_first_job_committed(context):
    found = yield from _find_table(context)
    return found and replace(found, counts=True)


_find_table = found_table.find_table


@breaks((recovery, "confirm"), "an adoption that dies beside another committer", COMPLETENESS)
def leaves_the_note_of_an_adoption_that_is_over(context, made):
    return
    yield


@breaks(
    (adopt, "_note"),
    "adoption beside another committer, a fault",
    COMPLETENESS,
    also=[
        (adopt, "confirm", leaves_the_note_of_an_adoption_that_is_over),
        (recovery, "confirm", leaves_the_note_of_an_adoption_that_is_over),
    ],
)
def clears_the_note_without_looking_again(context, found, taken, looked):
    yield from _note(context, found, taken, looked)
    return True


_note = adopt._note


@breaks((adopt, "_note"), "an adoption that dies beside another committer", COMPLETENESS)
def clears_the_note_in_one_step(context, found, taken, looked):
    """So that who dies before he looks again leaves nothing that tells."""
    if found is None or not found.record.unadopted:
        return not taken
    record = replace(found.record, write_id=context.write_id(), unadopted=False)
    put = Put(context.root.table_key, record.encode(), if_match=found.etag)
    yield from swap.put_record(put, record.write_id)
    return False


# Columns


@breaks((job, "evolve"), TWO_EVOLVE, EXCLUSIVITY)
def changes_the_columns_before_it_decides(context, opened):
    found: Any = yield from _find_table(context)
    record = found.record
    schema = evolution.evolved(record.schema, opened.schema, record.partition_by)
    version = record.schema_version + 1
    changed = replace(record, write_id=context.write_id(), schema=schema, schema_version=version)
    put = Put(context.root.table_key, changed.encode(), if_match=found.etag)
    yield from swap.put_record(put, changed.write_id)
    return None, version


@breaks((evolve, "find_table"), TWO_EVOLVE, COMPLETENESS)
def overlooks_a_change_that_is_under_way(context):
    found: Any = yield from _find_table(context)
    return replace(found, record=replace(found.record, evolution=None))


@breaks((evolve, "holding"), TWO_EVOLVE, COMPLETENESS)
def brings_only_the_columns_that_it_knows(table, opened, partition_by, *, url):
    return table if set(opened.names) <= set(table.names) else opened


@breaks((evolve, "holding"), FIRSTS_EVOLVE, CONSISTENCY)
def keeps_no_record_of_what_its_files_lack(table, files, partition_by, *, url):
    return evolution.evolved(table, files, partition_by, url=url)


@breaks((found_table, "Put"), TWO_EVOLVE, COMPLETENESS)
def changes_the_columns_without_a_condition(key, body, if_match):
    return Put(key, body)


@breaks(
    (snapshot, "with_columns"), "a job that brings a column, an append and a reader", CONSISTENCY
)
def reads_the_columns_before_the_heads_only(context, table, versions):
    return table
    yield


@breaks((job, "_come_beside"), OVERWRITE, COMPLETENESS)
def overwrites_columns_without_another_look(context, opened, held):
    return []
    yield


@breaks((job, "see_columns"), OVERWRITE, COMPLETENESS)
def never_looks_at_the_columns_of_a_new_head(context, opened, held):
    return
    yield


@breaks(
    (evolve, "_refuse_overwritten"),
    OVERWRITE,
    COMPLETENESS,
    # Columns that were overwritten are also those of a table that was made anew.
    also=((evolve, "how_unlike", lambda *_given: None),),
)
def lets_an_overwrite_of_columns_pass(context, opened, record):
    return


# Opening


@breaks((opening, "_opened"), SLOW_TO_REMOVE, CONTINUITY)
def lists_open_jobs_before_heads(context, job, spec, listing, _opened=opening._opened):
    opened = yield from _opened(context, job, spec, listing)
    listing = yield from slots.list_heads_and_index(context)
    base = {name: listed.etag for name, listed in listing.heads.items()}
    return replace(opened, base=base, read={})


@breaks((scenarios, "send_heartbeat"), "a job with heartbeats, and recovery", CONTINUITY)
def beats_without_a_condition(context, job_id, interval):
    key = context.root.open_key(job_id)
    found = yield from Get(key)
    if isinstance(found, Found):
        record = replace(OpenRecord.decode(found.body, key), write_id=context.write_id())
        yield from Put(key, record.encode())


@breaks((opening, "_write_open_record"), ONE_REPLACE, ABORT, COMPLETENESS)
def does_not_confirm_its_open_record(context, job_id, spec):
    record = OpenRecord.of(job_id, context.write_id(), spec)
    yield from Put(context.root.open_key(job_id), record.encode(), if_none_match=True)
    return 0.0


@breaks((opening, "_earlier_commit"), "two tries of one run, a crash", COMPLETENESS)
def forgets_the_run_s_earlier_commit(context, run):
    return None
    yield


@breaks((opening, "finish"), "two tries of one run, a crash", COMPLETENESS)
def leaves_the_run_s_earlier_commit_unapplied(context, decided):
    return
    yield


# Applying


@breaks((changes, "_change"), "an append to foreign files, a fault, a crash", CONTINUITY)
def adopts_nothing(context, opened, target, version):
    change = yield from _change(context, opened, target, version)
    return replace(change, adopted=())


@breaks((changes, "_change"), "a replace that keeps, an append and a reader", CONTINUITY)
def removes_what_it_shall_keep(context, opened, target, version):
    spec = replace(opened.spec, keep_replaced=False)
    return (yield from _change(context, replace(opened, spec=spec), target, version))


@breaks(everywhere("remove_listed"), "a replace of foreign files and a stranger", CONCURRENT)
def removes_whatever_is_there_now(context, removals):
    if removals:
        yield from DeleteMany(tuple((file.key, None) for file in removals))


@breaks((apply, "_apply_partition"), ONE_REPLACE, CONTINUITY)
def marks_before_it_removes(context, decided, change, held, count):
    yield from _apply_partition(context, decided, replace(change, removals=()), held, count)
    yield from removal.remove_listed(context, change.removals)


@breaks((apply, "_apply_partition"), ONE_REPLACE, CONTINUITY)
def leaves_removals_to_whoever_moved_the_head(context, decided, change, held, count):
    slot = Slot.partition(context.root, change.partition)
    state = held[slot] if held is not None else (yield from slots.read_head(context, slot))
    if state.head.claim == decided.decision.job:
        yield from _apply_partition(context, decided, change, held, count)


_apply_partition = apply._apply_partition


@breaks((apply, "_move"), "two appends that fold", ABORT, COMPLETENESS)
def drops_the_manifest_of_the_head_before(context, decided, change, state):
    before = state.head.manifest
    moved = yield from _move(context, decided, change, state)
    if moved is not None and before is not None:
        yield from Delete(before.key)
    return moved


_move = apply._move


@breaks((apply, "_move"), "two appends that fold, a fault", ABORT, COMPLETENESS)
def deletes_a_manifest_whose_swap_it_saw_refused(context, decided, change, state):
    """Without a look whether the head that is there names it: the swap's answer may be lost."""
    job = decided.decision.job
    while state.etag is not None and apply._awaits(state, job, change.base_version):
        new = state.head.moved(job, change, context.write_id(), state.etag, decided.date)
        folded = None
        if len(new.decisions) > context.limits.decisions_per_head:
            new, folded = yield from fold(context, state, new, new.decisions, (decided,))
        outcome = yield from slots.swap_head(state, new)
        if not isinstance(outcome, NotWritten):
            return getattr(outcome, "state", None)
        if folded is not None:
            yield from Delete(folded)
        state = slots.head_state(context, state.slot, outcome.current)
    return None


@breaks((apply, "_delete_resurrected"), RESURRECTS_UNSEEN, CONTINUITY)
def never_looks_whether_it_resurrected(context, job_id, slot, file):
    return
    yield


@breaks((apply, "_complete"), RESURRECTS_UNSEEN, CONTINUITY)
def looks_for_what_it_resurrected_after_an_answer_only(context, job_id, slot, file, count):
    def is_seen_to(answer, found):
        state = yield from slots.read_head(context, slot)
        return state.head.claim != job_id

    def failure(answer, found):
        return apply._incomplete(context, job_id, file, answer, found)

    missing = complete.MissingFilePolicy(is_seen_to, failure)
    done = yield from complete.complete_file(context, job_id, file, missing)
    if isinstance(done, Done):
        yield from apply._delete_resurrected(context, job_id, slot, file)


@breaks(everywhere("apply_all"), ONE_REPLACE, CONTINUITY, COMPLETENESS, ABORT)
def closes_before_it_applies(context, decided, held=None):
    yield from Delete(context.root.open_key(decided.decision.job))
    return (yield from _finish(context, decided, held))


_finish = apply.apply_all


@breaks((apply, "write_partition_marker"), SLOW_TO_REMOVE, CONTINUITY)
def writes_markers_unconditionally(context, decided, change, seen):
    body = markers.marker_bytes(context.root, decided, (change,), context.write_id())
    yield from Put(context.root.marker_key(change.partition), body)


@breaks((apply, "write_partition_marker"), "a folding append, a replace and a reader", CONTINUITY)
def checks_the_head_before_it_reads_the_marker(context, decided, change, seen):
    slot = Slot.partition(context.root, change.partition)
    state = yield from slots.read_head(context, slot)
    if state.head.last_job == decided.decision.job:
        there = yield from markers.look_at_marker(context, change.partition)
        yield from markers._put_marker(context, decided, (change,), there)


# Maintenance and readers


@breaks((scenarios, "purge"), "an append and a purge, a crash", ABORT, COMPLETENESS)
def purges_by_age_alone(context, **options):
    for upload in (yield from close.list_uploads(context)):
        yield from AbortUpload(upload.key, upload.upload_id)
    return purge.PurgeReport((), ())


@breaks((scenarios, "purge"), "an append and a purge, a crash", ABORT, COMPLETENESS)
def purges_every_job_without_a_decision(context, **options):
    for upload in (yield from close.list_uploads(context)):
        decided = yield from decide.read_decision(context, job_in_key(upload.key) or "")
        if decided is None:
            yield from AbortUpload(upload.key, upload.upload_id)
    return purge.PurgeReport((), ())


@breaks((scenarios, "purge"), "an append and a purge of foreign uploads", ABORT, COMPLETENESS)
def purges_by_a_look_at_open_records_before_the_uploads(context, **options):
    still_open = yield from list_open(context)
    for upload in (yield from close.list_uploads(context)):
        if job_in_key(upload.key) not in still_open:
            decided = yield from decide.read_decision(context, job_in_key(upload.key) or "")
            if decided is None:
                yield from AbortUpload(upload.key, upload.upload_id)
    return purge.PurgeReport((), ())


@breaks(
    (upload_judge, "decide_abort"),
    "an append and a sweep of uploads that takes it for dead",
    ABORT,
    COMPLETENESS,
)
def takes_a_commit_for_its_fence(context, job_id, **_):
    decided = yield from decide.decide_abort(context, job_id)
    return replace(decided, decision=Decision.abort(job_id, context.write_id()))


@breaks(
    (upload_judge, "decide_abort"),
    "an append and a sweep of uploads that takes it for dead",
    ABORT,
    COMPLETENESS,
)
def sweeps_without_a_fence(context, job_id, **_):
    yield from ()
    return Decided(Decision.abort(job_id, context.write_id()), "", 0)


@breaks((snapshot, "_settle_claims"), "a replace and a reader that may not write", ABORT)
def applies_though_it_may_not_write(context, states, damaged):
    claiming = sorted({state.head.claim for state in states if state.head.claim is not None})
    decisions = yield from All(tuple(decide.read_decision(context, j) for j in claiming))
    commits = [decided for decided in decisions if decided and decided.decision.is_commit]
    for decided in commits:
        yield from apply.finish(context, decided)
    return not commits


@breaks((scenarios, "take_snapshot"), "a replace of two partitions and a reader", CONSISTENCY)
def lists_heads_once(context, partitions=None):
    table = yield from read_table(context)
    listed = yield from slots.list_heads(context)
    wanted = snapshot._wanted(listed, partitions)
    states = yield from All(tuple(slots.read_head(context, item.slot) for item in wanted.values()))
    yield from snapshot._settle_claims(context, states, {})
    view = snapshot._View(context, table, {}, {}, states, listed, {}, {})
    survey = yield from snapshot._snapshot(view, partitions)
    return survey.snapshot


@breaks(
    (snapshot, "_settle_claims"), "a replace of two partitions and a reader", CONSISTENCY, ABORT
)
def ignores_decided_claims(context, states, damaged):
    return True
    yield


# The index


@breaks((snapshot, "still_true"), "a replace and a reader of an index", CONSISTENCY)
def trusts_an_index_that_is_behind(entries, heads):
    """Of the first of its partitions."""
    first = {name: replace(entries[name], etag=heads[name].etag) for name in sorted(entries)[:1]}
    return {**still_true(entries, heads), **first}


@breaks((write_index, "_unclaimed"), "a replace, and who writes the index and reads", CONSISTENCY)
def takes_claimed_heads_into_the_index(found):
    return [it for it in found if isinstance(it, HeadState)]


# Heads that are lost and rebuilt


@breaks((rebuilt_heads, "_plan_for"), REBUILT_AND_REPLACED, COMPLETENESS, CONSISTENCY)
def rebuilds_a_head_over_a_claim(context, records, name):
    state = yield from slots.read_head(context, Slot.partition(context.root, name))
    if state.head.version or records.heads.damaged:
        return None
    return rebuilt_heads._plan(context, records, state)


@breaks((rebuilt_heads, "list_open"), REBUILT_AND_EMPTIED, COMPLETENESS, CONCURRENT)
def rebuilds_a_head_without_a_look_at_open_jobs(context):
    return set()
    yield


# Tasks that outlive their jobs


@breaks((scenarios, "refuse_late"), "a task that outlives the abort of its job", ABORT)
@breaks((scenarios, "refuse_late"), "a task that outlives the commit of its job", ABORT)
def looks_at_no_decision(root, job, task):
    yield from ()


# Rows that are written again


@breaks((resolution.ResolutionPlan, "spec"), "a resolution beside an append", CONCURRENT)
def carries_out_a_plan_on_whatever_is_there(plan, owner, discard):
    return replace(_spec(plan, owner, discard), base=None)


_spec = resolution.ResolutionPlan.spec


@breaks((scenarios, "plan_undoing"), "an undoing beside an append", CONCURRENT)
def looks_at_the_head_after_the_history(context, partition, job_id):
    plan = yield from _plan_undoing(context, partition, job_id)
    state = yield from snapshot.take_snapshot(context, [partition])
    return replace(plan, snapshot=state)


_plan_undoing = resolution.plan_undoing


@breaks((scenarios, "compaction_spec"), "a compaction beside an append", CONCURRENT)
def compacts_whatever_is_there(context, plan, owner):
    spec, inputs = yield from _compaction_spec(context, plan, owner)
    return replace(spec, base=None), inputs


_compaction_spec = compaction.compaction_spec


@breaks((resolution, "_is_whole"), "an undoing and gc", COMPLETENESS)
def takes_a_record_with_holes_for_whole(decided):
    return True


@breaks(
    everywhere("fold", apply, fold_heads),
    "a cleared run whose rows are in a list that is folded beside it",
    COMPLETENESS,
    CONSISTENCY,
)
def folds_the_files_of_a_replaced_run(context, state, head, jobs, known=()):
    return (yield from fold(context, state, replace(head, dropped=()), jobs, known))


@breaks(
    (partition_files, "_merged"),
    "a cleared run whose rows are in a list that is folded beside it",
    COMPLETENESS,
    CONSISTENCY,
)
def leaves_a_list_with_the_files_of_a_replaced_run(head, files, below):
    return _merged(replace(head, dropped=()), files, below)


_merged = partition_files._merged


@breaks((scenarios, "rewrite_policies"), "a merge beside an append and a compaction", CONCURRENT)
def takes_the_base_after_the_read(context, state, changes, files):
    policies, inputs = yield from _rewrite_policies(context, state, changes, files)
    later = yield from snapshot.take_snapshot(context, state.asked)
    return {**policies, "base": later.base}, inputs


_rewrite_policies = row_rewrite.rewrite_policies


@breaks((scenarios, "plan_merge"), "a merge that is made again beside a replace", CONCURRENT)
def joins_on_the_rows_of_an_earlier_attempt(context, partitions, row, earlier=None):
    plan = yield from _plan_merge(context, partitions, row)
    return plan if earlier is None else replace(plan, held=earlier.held)


@breaks((scenarios, "plan_merge"), "a merge that is made again beside a replace", CONCURRENT)
def judges_what_is_unchanged_once(context, partitions, row, earlier=None):
    plan = yield from _plan_merge(context, partitions, row)
    return plan if earlier is None else replace(plan, changed=earlier.changed)


_plan_merge = scenarios.plan_merge


@breaks((job, "refuse_moved_reads"), "two insertions of one key into two partitions", CONCURRENT)
def looks_at_no_other_partition(context, opened, held):
    yield from ()


@breaks((job, "refuse_moved_reads"), "two insertions of one key into two partitions", CONCURRENT)
def lets_claims_pass(context, opened, held):
    try:
        yield from _refuse_moved_reads(context, opened, held)
    except CommitConflictError:
        states = yield from claim._heads_read(context, opened, ())
        base = opened.spec.base
        if any(state.head.version != base.version(state.slot.name) for state in states):
            raise


_refuse_moved_reads = claim.refuse_moved_reads


class _Unread(snapshot.Snapshot):
    def chosen(self, partitions):
        return self.of(partitions)


@breaks((scenarios, "state_without_table"), FIRST_INSERTIONS, CONCURRENT)
def takes_a_missing_table_for_no_read(root, schema, partition_by):
    return _Unread(root, schema, partition_by, (), {}, lists=True)


@breaks((job, "refuse_moved_reads"), FIRST_INSERTION_AND_APPEND, CONCURRENT)
def looks_at_no_partition_of_a_table_made_meanwhile(context, opened, held):
    if opened.new_table is None:
        yield from _refuse_moved_reads(context, opened, held)
