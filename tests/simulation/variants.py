"""Broken variants of the protocol, one for each rule about order: the simulation must catch each.

A variant replaces functions of the committer; its scenario is one of the catalogue, explored to
the same bound without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulation import broken, broken_by_heads, broken_gc, broken_narrowed, scenarios
from simulation.catalogue import (
    CHECKPOINT_AND_PURGE,
    CHECKPOINT_AND_REPLACE,
    CLEARED_BY_HAND,
    FIRSTS_EVOLVE,
    FOLD_AND_REPLACE,
    GC_AND_CLEARED,
    NARROWED_AND_GC,
    NARROWED_AND_LOADED,
    NARROWED_TWICE,
    OVERWRITE,
    PAST_AND_GC,
    PLAN_ENDED_LATE,
    REPLACE_AND_PURGE,
    TWO_PLANS,
    UNDO_AND_PURGE,
    WHOLE_TWICE,
)

from zero_rename.committer.commit import (
    abort,
    apply,
    changes,
    claim,
    close,
    evolve,
    first_job,
    markers,
    narrowed_run,
    snapshot,
)
from zero_rename.committer.commit import commit as job
from zero_rename.committer.commit import open as opening
from zero_rename.committer.commit.index import write_index
from zero_rename.committer.commit.state import decide, found_table, old_records
from zero_rename.committer.commit.state import heads as slots
from zero_rename.committer.commit.state import partition_files as contents
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.head import PartitionHead
from zero_rename.committer.upkeep import (
    adopt,
    purge,
    recovery,
    resolution,
    retention,
    unnamed_data,
)
from zero_rename.committer.upkeep import upload_judge as uploads_judge
from zero_rename.committer.upkeep.gc import collect, condense, fold_heads

Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Variant:
    """A broken protocol.

    :param name: the rule that is broken.
    :param patches: module, attribute and what is put there.
    :param scenario: one of the catalogue that meets the flaw.
    :param caught_as: the invariants that may catch it.
    """

    name: str
    patches: Sequence[Patch]
    scenario: str
    caught_as: frozenset[str]


def _everywhere(name: str, new: Any, *modules: Any) -> Sequence[Patch]:
    return [(module, name, new) for module in modules if hasattr(module, name)]


_ALL = (
    abort,
    apply,
    claim,
    close,
    contents,
    decide,
    job,
    markers,
    opening,
    purge,
    recovery,
    slots,
    snapshot,
)


def _variant(patches: Sequence[Patch], scenario: str, *caught_as: str) -> Variant:
    broken = patches[0][2]
    return Variant(broken.__name__.replace("_", " "), patches, scenario, frozenset(caught_as))


TWO_REPLACES = "two replaces of one partition"
SLOW_TO_REMOVE = "an append and a replace that is slow to remove"
TAKEN = "one that finds its partition taken, two faults, a crash"
SLOW_SYMLINKS = "a slow applier, then a replace and an append, symlink manifests"
ONE_REPLACE = "one replace of two partitions, a fault, a crash"

COMPLETENESS = "completeness"
EXCLUSIVITY = "exclusivity"
CONSISTENCY = "consistency"
CONCURRENT = "concurrent"
ABORT = "ability to abort"
CONTINUITY = "continuity of correctness"

TWO_EVOLVE = "two jobs that bring a column each"

NARROWED = [
    _variant([(job, "_targets", broken_narrowed.takes_back_all)], NARROWED_TWICE, COMPLETENESS),
    _variant(
        [(opening, "as_planned", broken_narrowed.ignores_the_run_s_last_job)],
        NARROWED_AND_LOADED,
        CONCURRENT,
    ),
    _variant(
        [(opening, "as_planned", broken_narrowed.forgets_its_own_commit)],
        NARROWED_TWICE,
        COMPLETENESS,
    ),
    _variant(
        [(opening, "as_planned", broken_narrowed.goes_by_a_word_for_ever)],
        CLEARED_BY_HAND,
        EXCLUSIVITY,
    ),
    _variant(
        [(opening, "as_planned", broken_narrowed.takes_no_word_for_itself)],
        CLEARED_BY_HAND,
        EXCLUSIVITY,
    ),
    _variant(
        [(narrowed_run, "leave_narrowing", broken_narrowed.swaps_words_without_a_condition)],
        CLEARED_BY_HAND,
        EXCLUSIVITY,
    ),
    _variant(
        [(scenarios, "end_narrowing", broken_narrowed.ends_whatever_word_is_there)],
        PLAN_ENDED_LATE,
        EXCLUSIVITY,
    ),
    _variant(
        [(scenarios, "leave_narrowing", broken_narrowed.leaves_a_word_over_that_of_another)],
        TWO_PLANS,
        EXCLUSIVITY,
        COMPLETENESS,
    ),
    _variant(
        [(job, "_read_version", broken_narrowed.makes_anew_what_has_moved)],
        NARROWED_TWICE,
        CONCURRENT,
    ),
    _variant(
        [(job, "_read_version", broken_narrowed.makes_anew_what_has_moved)],
        WHOLE_TWICE,
        CONCURRENT,
    ),
    _variant(
        [(job, "_own_before", broken_narrowed.follows_no_chain)], CLEARED_BY_HAND, COMPLETENESS
    ),
    _variant(
        [(condense, "_condense", broken_narrowed.condenses_what_a_run_narrows_away)],
        GC_AND_CLEARED,
        COMPLETENESS,
        CONTINUITY,
    ),
    _variant(
        [(collect, "find_aged", broken_narrowed.removes_words_of_the_age_that_it_is_told)],
        NARROWED_AND_GC,
        EXCLUSIVITY,
    ),
]

HEADS_ALONE = [
    _variant(
        [(TableRoot, "attempt_key", broken_by_heads.names_no_attempt)],
        "by heads: a task that outlives the commit of its job",
        CONTINUITY,
    ),
    _variant(
        [(abort, "decide_abort", broken_by_heads.sweeps_files_before_it_decides)],
        "by heads: a task that outlives the abort of its job",
        COMPLETENESS,
    ),
    _variant(
        [(apply, "sweep_losers", broken_by_heads.sweeps_what_the_decision_names)],
        "by heads: two replaces of one partition, a crash",
        COMPLETENESS,
    ),
    *(
        _variant([(purge, "find_unnamed", purges)], REPLACE_AND_PURGE, COMPLETENESS)
        for purges in (
            broken_by_heads.lists_open_records_before_data,
            broken_by_heads.reads_heads_before_open_records,
            broken_by_heads.asks_no_open_records,
        )
    ),
    _variant(
        [(changes, "_refuse_named", broken_by_heads.asks_a_listing_what_exists)],
        "by heads: two that fail where files are",
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "put_whole", broken_by_heads.reports_before_its_file_is_there)],
        "by heads: one replace of two partitions, faults, a crash",
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "purge_data", broken_by_heads.deletes_before_it_forgets)],
        UNDO_AND_PURGE,
        COMPLETENESS,
    ),
    _variant(
        [(unnamed_data, "held_files", broken_by_heads.does_not_ask_what_is_kept)],
        UNDO_AND_PURGE,
        COMPLETENESS,
    ),
    _variant(
        [(PartitionHead, "lists", broken_by_heads.lists_named_now)],
        FOLD_AND_REPLACE,
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "checkpoint_spec", broken_by_heads.moves_a_head_whose_version_went_on)],
        CHECKPOINT_AND_REPLACE,
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "copy_from", broken_by_heads.deletes_before_the_head_names_the_copy)],
        CHECKPOINT_AND_PURGE,
        COMPLETENESS,
    ),
    _variant(
        [(retention, "_forgetful", broken_by_heads.forgets_under_a_claim)],
        UNDO_AND_PURGE,
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(job, "_check_kept", broken_by_heads.takes_back_what_may_be_forgotten)],
        UNDO_AND_PURGE,
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(collect, "HeadsKnown", broken_by_heads.condenses_what_is_kept)],
        PAST_AND_GC,
        CONSISTENCY,
        COMPLETENESS,
        ABORT,
    ),
    _variant(
        [
            (collect, "free_manifests", broken_by_heads.removes_a_list_that_is_kept),
            (old_records, "free_manifests", broken_by_heads.removes_a_list_that_is_kept),
        ],
        PAST_AND_GC,
        COMPLETENESS,
        ABORT,
    ),
]
VARIANTS = [
    *HEADS_ALONE,
    *NARROWED,
    _variant(
        [(job, "evolve", broken.changes_the_columns_before_it_decides)],
        TWO_EVOLVE,
        EXCLUSIVITY,
    ),
    _variant(
        [(evolve, "find_table", broken.overlooks_a_change_that_is_under_way)],
        TWO_EVOLVE,
        COMPLETENESS,
    ),
    _variant(
        [(evolve, "holding", broken.brings_only_the_columns_that_it_knows)],
        TWO_EVOLVE,
        COMPLETENESS,
    ),
    _variant(
        [(evolve, "holding", broken.keeps_no_record_of_what_its_files_lack)],
        FIRSTS_EVOLVE,
        CONSISTENCY,
    ),
    _variant(
        [(found_table, "Put", broken.changes_the_columns_without_a_condition)],
        TWO_EVOLVE,
        COMPLETENESS,
    ),
    _variant(
        [(snapshot, "with_columns", broken.reads_the_columns_before_the_heads_only)],
        "a job that brings a column, an append and a reader",
        CONSISTENCY,
    ),
    _variant(
        [(job, "_come_beside", broken.overwrites_columns_without_another_look)],
        OVERWRITE,
        COMPLETENESS,
    ),
    _variant(
        [(job, "see_columns", broken.never_looks_at_the_columns_of_a_new_head)],
        OVERWRITE,
        COMPLETENESS,
    ),
    _variant(
        [(evolve, "_refuse_overwritten", broken.lets_an_overwrite_of_columns_pass)],
        OVERWRITE,
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "commit_job", broken.decides_before_it_claims)],
        TWO_REPLACES,
        CONCURRENT,
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        _everywhere("decide", broken.trusts_the_answer_to_its_decision, *_ALL),
        "one append, two faults",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        _everywhere("fence", broken.aborts_uploads_before_it_decides, *_ALL),
        "a replace and recovery, a crash",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(job, "decide", broken.writes_its_parts_after_the_decision)],
        "one replace in parts, a fault, a crash",
        ABORT,
    ),
    _variant(
        [(apply, "_move", broken.drops_the_manifest_of_the_head_before)],
        "two appends that fold",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(changes, "_change", broken.decides_without_removals)],
        ONE_REPLACE,
        CONTINUITY,
    ),
    _variant(
        [(job, "claim_all", broken.reads_heads_instead_of_claiming)],
        TWO_REPLACES,
        CONCURRENT,
        COMPLETENESS,
    ),
    _variant(
        _everywhere("swap_head", broken.swaps_heads_without_a_condition, *_ALL),
        TWO_REPLACES,
        CONCURRENT,
        CONTINUITY,
        COMPLETENESS,
        ABORT,
    ),
    _variant(
        [(claim, "_settle", broken.claims_over_the_claim_of_another)],
        TWO_REPLACES,
        CONCURRENT,
        COMPLETENESS,
    ),
    _variant(
        [
            (apply, "_awaits", broken.moves_a_head_from_any_version),
            (claim, "_refuse_if_fenced", broken.claims_without_a_look_at_its_own_decision),
        ],
        "a commit in two processes, writers, recovery",
        COMPLETENESS,
        CONTINUITY,
    ),
    _variant(
        [(opening, "_write_open_record", broken.does_not_confirm_its_open_record)],
        ONE_REPLACE,
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(opening, "_earlier_commit", broken.forgets_the_run_s_earlier_commit)],
        "two tries of one run, a crash",
        COMPLETENESS,
    ),
    _variant(
        [(apply, "_apply_partition", broken.leaves_removals_to_whoever_moved_the_head)],
        ONE_REPLACE,
        CONTINUITY,
    ),
    _variant(
        [(apply, "_delete_resurrected", broken.never_looks_whether_it_resurrected)],
        "a slow applier where Complete resurrects",
        CONTINUITY,
    ),
    _variant(
        _everywhere("apply_all", broken.closes_before_it_applies, *_ALL),
        ONE_REPLACE,
        CONTINUITY,
        COMPLETENESS,
        ABORT,
    ),
    _variant(
        [(apply, "write_partition_marker", broken.writes_markers_unconditionally)],
        SLOW_TO_REMOVE,
        CONTINUITY,
    ),
    _variant(
        [(apply, "write_partition_marker", broken.checks_the_head_before_it_reads_the_marker)],
        TWO_REPLACES,
        CONTINUITY,
    ),
    _variant(
        [(scenarios, "purge", broken.purges_by_age_alone)],
        "an append and a purge, a crash",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "purge", broken.purges_every_job_without_a_decision)],
        "an append and a purge, a crash",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(uploads_judge, "decide_abort", broken.takes_a_commit_for_its_fence)],
        "an append and a sweep of uploads that takes it for dead",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(uploads_judge, "decide_abort", broken.sweeps_without_a_fence)],
        "an append and a sweep of uploads that takes it for dead",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "take_snapshot", broken.lists_heads_once)],
        "a replace of two partitions and a reader",
        CONSISTENCY,
    ),
    _variant(
        [(snapshot, "_settle_claims", broken.ignores_decided_claims)],
        "a replace of two partitions and a reader",
        CONSISTENCY,
        ABORT,  # A reader may notice by itself that a decision says more than a head.
    ),
    _variant(
        _everywhere("put_record", broken.says_refused_after_an_unanswered_request, *_ALL),
        "one append, three faults, lost rights among them",
        ABORT,
    ),
    _variant(
        _everywhere("abort_slots", broken.releases_claims_after_it_closed, *_ALL),
        TAKEN,
        ABORT,
    ),
    _variant([(close, "sweep", broken.sweeps_without_a_second_look)], TAKEN, ABORT),
    _variant(
        [(apply, "_move", broken.deletes_a_manifest_whose_swap_it_saw_refused)],
        "two appends that fold, a fault",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(claim, "_refuse_if_fenced", broken.claims_without_a_look_at_its_own_decision)],
        "an append committed by two processes",
        CONTINUITY,
    ),
    _variant(
        [(opening, "finish", broken.leaves_the_run_s_earlier_commit_unapplied)],
        "two tries of one run, a crash",
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "purge", broken.purges_by_a_look_at_open_records_before_the_uploads)],
        "an append and a purge of foreign uploads",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(snapshot, "_settle_claims", broken.applies_though_it_may_not_write)],
        "a replace and a reader that may not write",
        ABORT,
    ),
    _variant([(claim, "_changed", broken.never_sees_a_conflict)], TWO_REPLACES, CONCURRENT),
    _variant(
        _everywhere("remove_listed", broken.removes_whatever_is_there_now, *_ALL),
        "a replace of foreign files and a stranger",
        CONCURRENT,
    ),
    _variant(
        [(changes, "_change", broken.removes_what_it_shall_keep)],
        "a replace that keeps, an append and a reader",
        CONTINUITY,
    ),
    _variant(
        [(scenarios, "gc", broken_gc.removes_files_that_no_head_names)],
        "a replace that keeps, recovery and gc, a fault, a crash",
        CONTINUITY,
    ),
    _variant(
        [(changes, "_change", broken.adopts_nothing)],
        "an append to foreign files, a fault, a crash",
        CONTINUITY,
    ),
    _variant(
        [(job, "check_results", broken.believes_every_result)],
        "one whose results are reported twice",
        COMPLETENESS,
    ),
    _variant(
        [(job, "abort_own", broken.sweeps_though_another_process_may_commit)],
        "an append committed by two processes, the store full",
        ABORT,
    ),
    _variant(
        [(abort, "_read_back", broken.never_reads_back_what_the_other_process_decided)],
        "an append committed by two processes, lost rights",
        ABORT,
    ),
    _variant(
        [(abort, "_read_back", broken.reads_the_decision_back_before_the_heads)],
        "an append committed by two processes, the store full",
        ABORT,
    ),
    _variant(
        [(claim, "_finish_last_job", broken.leaves_the_last_job_as_it_is)],
        SLOW_TO_REMOVE,
        CONTINUITY,
    ),
    _variant(
        [(opening, "_opened", broken.lists_open_jobs_before_heads)],
        SLOW_TO_REMOVE,
        CONTINUITY,
    ),
    _variant(
        [(abort, "take_off", broken.forgets_the_claims_of_whom_it_fences)],
        "a replace and recovery, a crash",
        ABORT,
    ),
    _variant(
        _everywhere("close", broken.closes_before_it_sweeps, abort, apply),
        TAKEN,
        ABORT,
    ),
    _variant(
        [(apply, "_move", broken.takes_an_uncertain_move_for_that_of_another)],
        "one append, three faults, reads among them",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(apply, "_apply_partition", broken.marks_before_it_removes)], ONE_REPLACE, CONTINUITY
    ),
    _variant(
        [(job, "_aborted", broken.leaves_its_claim_where_it_is_fenced)],
        "an append committed by two processes",
        ABORT,
    ),
    _variant(
        [(scenarios, "process_of", broken.takes_all_processes_for_one)],
        "a commit in two processes and a third writer",
        COMPLETENESS,
        CONCURRENT,
    ),
    _variant(
        [(job, "_come_meanwhile", broken.lists_the_table_before_it_claims_only)],
        "a replace of the table, and an append to an old and a new partition",
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "send_heartbeat", broken.beats_without_a_condition)],
        "a job with heartbeats, and recovery",
        CONTINUITY,
    ),
    _variant(
        [(apply, "_complete", broken.looks_for_what_it_resurrected_after_an_answer_only)],
        "a slow applier where Complete resurrects, an answer lost",
        CONTINUITY,
    ),
    _variant(
        _everywhere(
            "find_table",
            broken.counts_a_table_before_its_first_job_committed,
            first_job,
            evolve,
        ),
        "two first jobs, a fault",
        COMPLETENESS,
    ),
    _variant(
        [
            (adopt, "_note", broken.clears_the_note_without_looking_again),
            (adopt, "confirm", broken.leaves_the_note_of_an_adoption_that_is_over),
            (recovery, "confirm", broken.leaves_the_note_of_an_adoption_that_is_over),
        ],
        "adoption beside another committer, a fault",
        COMPLETENESS,
    ),
    _variant(
        [(adopt, "_note", broken.clears_the_note_in_one_step)],
        "an adoption that dies beside another committer",
        COMPLETENESS,
    ),
    _variant(
        [(recovery, "confirm", broken.leaves_the_note_of_an_adoption_that_is_over)],
        "an adoption that dies beside another committer",
        COMPLETENESS,
    ),
    _variant(
        [(apply, "write_symlinks", broken.writes_symlinks_without_a_condition)],
        SLOW_SYMLINKS,
        COMPLETENESS,
        CONTINUITY,
    ),
    _variant(
        [(apply, "write_symlinks", broken.reads_the_head_before_the_symlinks)],
        SLOW_SYMLINKS,
        COMPLETENESS,
        CONTINUITY,
    ),
    _variant(
        [(apply, "write_symlinks", broken.never_looks_at_the_head_again)],
        "a slow applier, then a partition emptied twice, symlink manifests",
        CONTINUITY,
    ),
    _variant(
        [(apply, "_apply_partition", broken.removes_before_it_writes_symlinks)],
        "two replaces of one partition, symlink manifests",
        COMPLETENESS,
    ),
    _variant(
        [(snapshot, "still_true", broken.trusts_an_index_that_is_behind)],
        "a replace and a reader of an index",
        CONSISTENCY,
    ),
    _variant(
        [(write_index, "_unclaimed", broken.takes_claimed_heads_into_the_index)],
        "a replace, and who writes the index and reads",
        CONSISTENCY,
    ),
    _variant(
        [(collect, "list_open", broken_gc.condenses_what_is_not_finished)],
        "a job that died before it was applied, gc and recovery",
        ABORT,
    ),
    Variant(
        "condenses what heads name",
        [(condense.HeadsKnown, "named", property(broken_gc.condenses_what_heads_name))],
        "an append that folds, and gc",
        frozenset({COMPLETENESS, ABORT}),
    ),
    _variant(
        [(fold_heads, "swap_head", broken.swaps_heads_without_a_condition)],
        "an append that folds, and gc",
        CONTINUITY,
        COMPLETENESS,
        CONCURRENT,
        ABORT,
    ),
    _variant(
        [(fold_heads, "_fold", broken_gc.takes_a_lost_answer_for_a_no)],
        "gc beside a rival whose answers are lost",
        COMPLETENESS,
        CONSISTENCY,
        ABORT,
    ),
    _variant(
        [(old_records, "_may_be_named", broken_gc.removes_a_list_that_may_yet_be_named)],
        "gc that dies with requests in flight, and gc again",
        COMPLETENESS,
        ABORT,
    ),
    _variant(
        [(contents, "read_commit", broken_gc.takes_a_condensed_decision_for_a_whole_one)],
        "gc and a reader",
        CONSISTENCY,
    ),
    _variant(
        [(contents, "_moved_or", broken_gc.never_reads_a_head_again)], "gc and a reader", ABORT
    ),
    _variant(
        [(condense, "_condense", broken_gc.removes_decisions)],
        "an append committed by two processes, and gc",
        CONTINUITY,
    ),
    _variant(
        [(condense, "_condense", broken_gc.forgets_what_a_run_did)],
        "a run that replaces its own rows after gc",
        CONTINUITY,
    ),
    _variant(
        [(scenarios, "gc", broken_gc.removes_heads_of_runs)],
        "two tries of a run, and gc, a crash",
        CONTINUITY,
    ),
    _variant(
        [(collect, "_parts_of_condensed", broken_gc.removes_parts_that_a_decision_names)],
        "a replace in parts, and gc, a crash",
        ABORT,
        COMPLETENESS,
    ),
    _variant(
        [(contents, "_merged", broken_gc.names_its_new_list_only)],
        "two appends that fold into lists of their own, gc and a reader",
        COMPLETENESS,
        CONSISTENCY,
    ),
    *(
        Variant(
            f"a task does not look for the {end} of its job",
            [(scenarios, "refuse_late", broken.looks_at_no_decision)],
            f"a task that outlives the {end} of its job",
            frozenset({ABORT}),
        )
        for end in ("abort", "commit")
    ),
    _variant(
        [(contents, "_merged", broken_gc.takes_up_a_list_that_stays)],
        "two appends that fold into lists of their own, gc and a reader",
        COMPLETENESS,
        CONSISTENCY,
    ),
    _variant(
        [(resolution.ResolutionPlan, "spec", broken.carries_out_a_plan_on_whatever_is_there)],
        "a resolution beside an append",
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "plan_undoing", broken.looks_at_the_head_after_the_history)],
        "an undoing beside an append",
        CONCURRENT,
    ),
    _variant(
        [(resolution, "_is_whole", broken.takes_a_record_with_holes_for_whole)],
        "an undoing and gc",
        COMPLETENESS,
    ),
    _variant(
        [(scenarios, "rewrite_policies", broken.takes_the_base_after_the_read)],
        "a merge beside an append and a compaction",
        CONCURRENT,
    ),
    _variant(
        [(job, "refuse_moved_reads", broken.looks_at_no_other_partition)],
        "two insertions of one key into two partitions",
        CONCURRENT,
    ),
    _variant(
        [(job, "refuse_moved_reads", broken.lets_claims_pass)],
        "two insertions of one key into two partitions",
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "plan_merge", broken.joins_on_the_rows_of_an_earlier_attempt)],
        "a merge that is made again beside a replace",
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "plan_merge", broken.judges_what_is_unchanged_once)],
        "a merge that is made again beside a replace",
        CONCURRENT,
    ),
    _variant(
        [(scenarios, "compaction_spec", broken.compacts_whatever_is_there)],
        "a compaction beside an append",
        CONCURRENT,
    ),
    _variant(
        _everywhere("fold", broken.folds_the_files_of_a_replaced_run, apply, fold_heads),
        "a cleared run whose rows are in a list that is folded beside it",
        COMPLETENESS,
        CONSISTENCY,
    ),
    _variant(
        [(contents, "_merged", broken.leaves_a_list_with_the_files_of_a_replaced_run)],
        "a cleared run whose rows are in a list that is folded beside it",
        COMPLETENESS,
        CONSISTENCY,
    ),
]
