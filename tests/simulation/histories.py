"""What must hold of decisions taken together: what each may say, and in which order they stand."""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import pairwise

from simulation.columns import OVERWRITES
from simulation.invariants import (
    ROOT,
    Violation,
    changes,
    content_after,
    decision_of,
    is_head,
    version_in,
)
from simulation.sim_store import Store, body_of

from zero_rename.committer import JobSpec, Mode, OnConflict, SchemaMode
from zero_rename.committer.format.layout import UNPARTITIONED, job_in_key
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.committer.format.records.partition_decision import PartitionDecision
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.format.settling import Settling

#: The policy of a job that settles a conflict; the keys of those who lose follow.
SETTLES = "settles"


def base_note(
    spec: JobSpec,
    etag: str | None,
    columns: Collection[str],
    held: Collection[str] = (),
    settles: Settling | None = None,
) -> str:
    """What a file of a simulation carries in the place of its checksum: what its job knew of the
    partition when it opened, whether it overwrites the columns, the rows that it has written again,
    the file's columns, and against whom it settles a conflict."""
    does = OVERWRITES if spec.schema_mode is SchemaMode.OVERWRITE else ""
    rows = " ".join(sorted(held))
    rank = "" if spec.run_rank is None else str(spec.run_rank.rank(UNPARTITIONED))
    policy = str(spec.on_conflict)
    if settles is not None:
        policy, rank = ",".join((SETTLES, *settles.runs.losers)), str(settles.rank)
    return f"{policy} {rank}|{etag or ''}|{does}|{rows}|{' '.join(columns)}"


def check_new_decision(store: Store, job: str) -> None:
    """What the decision that was just written may say.

    :raises Violation: a file is named twice or is another job's, or the job had not seen what it
        goes on from.
    """
    decision = decision_of(store, job)
    if decision is None or not decision.is_commit:
        return
    keys = [file.key for file in decision.files]
    if len(set(keys)) < len(keys) or any(job_in_key(key) != job for key in keys):
        raise Violation("completeness", f"{job} decided on {sorted(keys)}")
    _check_table(store, job)
    log = changes(store)
    for change in decision.partitions:
        _check_base(job, decision.mode, change, log[change.partition])
        _check_exclusive(job, decision.mode, change, log[change.partition])


def _check_table(store: Store, job: str) -> None:
    """A job commits under a table that nobody can take away: its own, or one whose first job is
    committed."""
    found = store.objects.get(ROOT.table_key)
    first = None if found is None else TableRecord.decode(found.body, ROOT.table_key).first
    decision = None if first is None else decision_of(store, first)
    counts = first is None or (decision is not None and decision.is_commit)
    if found is None or not counts:
        raise Violation("completeness", f"{job} committed under a table that is {first}'s yet")


def _check_base(
    job: str, mode: Mode, change: PartitionDecision, log: list[tuple[str, PartitionDecision]]
) -> None:
    """The conflict test: a replace against every job since it opened, an append against those
    that replace."""
    if not change.files:
        return
    policy, rank = policy_of(change)
    if policy == OnConflict.NEWEST_RUN:
        _check_newest(job, rank, change, log[: change.base_version])
    if policy != OnConflict.FAIL:
        return
    etag = change.files[0].checksum.split("|")[1]
    base = version_in(body_of(etag)) if etag else 0
    since = log[base : change.base_version]
    exclusive = change.replace or mode is Mode.FAIL_IF_EXISTS
    unseen = [other for other, its in since if exclusive or its.replace]
    if unseen:
        raise Violation("concurrent", f"{job} had not seen {unseen} in {change.partition}")


def _check_exclusive(
    job: str, mode: Mode, change: PartitionDecision, log: list[tuple[str, PartitionDecision]]
) -> None:
    """A job that fails where files are commits into partitions that hold none."""
    if mode is Mode.FAIL_IF_EXISTS and change.files and content_after(log, change.base_version):
        raise Violation("concurrent", f"{job} found files in {change.partition}")


def policy_of(change: PartitionDecision) -> tuple[str, str]:
    """The conflict policy and the rank of a job with files, which is the conflict's if it settles
    one; ranks are times of one length."""
    policy, _, rank = change.files[0].checksum.split("|")[0].partition(" ")
    return policy, rank


def _check_newest(
    job: str, rank: str, change: PartitionDecision, log: list[tuple[str, PartitionDecision]]
) -> None:
    """No rows of a newer run go, nor does an older run add to what a newer one has put there."""
    for other, its in log:
        if its.files and policy_of(its)[1] > rank and (change.replace or its.replace):
            raise Violation("concurrent", f"{job} is older than {other} in {change.partition}")


def check_serial(store: Store, whole: Collection[str]) -> None:
    """There is one order of all committed jobs that every partition's order agrees with.

    :param whole: jobs that empty every partition: one that changes a partition which such a job
        did not know of comes after it.
    :raises Violation: there is none.
    """
    log = changes(store)
    after: dict[str, set[str]] = {}
    for entries in log.values():
        jobs = [job for job, _ in entries]
        for first, second in pairwise(jobs):
            after.setdefault(first, set()).add(second)
    for job in whole:
        decision = decision_of(store, job)
        everywhere = {change.partition for change in decision.partitions} if decision else set()
        if everywhere:
            others = {other for name in log.keys() - everywhere for other, _ in log[name]}
            after.setdefault(job, set()).update(others)
    for job in after:
        if job in _reached_from(job, after):
            raise Violation("concurrent", f"no order of the jobs makes {job} one step: {after}")


def _reached_from(job: str, after: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(after.get(job, ()))
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += after.get(other, ())
    return found


def check_claims_released(before: Store, after: Store) -> None:
    """Recovery by itself takes off the claims of the jobs that were open.

    :param before: the store before recovery, where nobody was at work any more.
    :raises Violation: one is left.
    """
    prefix = ROOT.open_prefix
    was_open = {
        OpenRecord.decode(found.body, key).job
        for key, found in before.objects.items()
        if key.startswith(prefix)
    }
    for key, found in after.objects.items():
        if is_head(key) or "/_zero_rename/runs/" in key:
            claim = json.loads(found.body)["claim"]
            if claim in was_open:
                raise Violation("ability to abort", f"recovery left the claim of {claim} on {key}")


def check_not_reborn(before: Store, after: Store) -> None:
    """A sign of life never brings an open record back.

    :raises Violation: it did.
    """
    for key in after.objects.keys() - before.objects.keys():
        its = after.objects[key].body
        if key.startswith(ROOT.open_prefix) and json.loads(its)["write_id"].startswith("heart"):
            raise Violation("continuity of correctness", f"{key} was brought back")
