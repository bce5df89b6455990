"""What must hold, by the six names of the zero-rename paper (section VIII.A).

* completeness: every committed job's rows are visible exactly once unless replaced;
* exclusivity: nothing of a job that is not committed is visible;
* consistency: readers see all partitions of a job or none, files of one state;
* concurrent: writers of one partition follow each other, no change is lost;
* ability to abort: after recovery no upload, claim or open record is left, and every
  participant's answer is true;
* continuity of correctness: what wakes up late changes nothing: decisions stand, versions and
  markers never go back, removed files stay away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from simulation.program import Node
from simulation.sim_store import CONDENSED, Store

from support.memory_store import StoredObject
from zero_rename.committer import (
    UNPARTITIONED,
    Committed,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
    SuccessMarkers,
    TableRoot,
    UnfinishedCommitError,
)
from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.commit.state.partition_files import files_of_decision
from zero_rename.committer.format.layout import job_in_key
from zero_rename.committer.format.records.decision import Decision, DecisionPart, join_parts
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.manifest import Manifest
from zero_rename.committer.format.records.partition_decision import PartitionDecision

ROOT = TableRoot("bucket", "t")
#: Where it is noted, beside the table, of a partition that has lost its head, who had moved that.
LOST = "lost/"
T = TypeVar("T")
P = ParamSpec("P")


class Violation(AssertionError):
    """An invariant does not hold.

    :param invariant: its name, one of the six.
    """

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self._what = what

    def __reduce__(self) -> Any:
        return Violation, (self.invariant, self._what)


@lru_cache(maxsize=200_000)
def _decision(key: str, body: bytes) -> Decision:
    job = key.rsplit("/", 1)[-1].removesuffix(".json")
    return Decision.decode(body, key, ROOT, job)


def _remembered(work: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Once for all stores that have the same decisions."""

    @wraps(work)
    def remembering(store: Store, *given: P.args, **no: P.kwargs) -> T:
        key: Any = (work.__name__, *given)
        if key not in store.told:
            store.told[key] = work(store, *given, **no)
        return store.told[key]

    return remembering


@_remembered
def decision_of(store: Store, job: str) -> Decision | None:
    """The decision of ``job``, its parts included, as it was before it was condensed."""
    key = ROOT.decision_key(job)
    found = _before_condensed(store, key)
    if found is None:
        return None
    decision = _decision(key, found.body)
    if decision.parts:
        read = {part.key: _before_condensed(store, part.key) for part in decision.parts}
        missing = [key for key, part in read.items() if part is None]
        if missing:
            raise Violation("ability to abort", f"{job} is decided and lacks {missing}")
        parts = [
            DecisionPart.decode(part.body, key, ROOT, job)
            for key, part in read.items()
            if part is not None
        ]
        decision = join_parts(decision, parts)
    return decision


def _before_condensed(store: Store, key: str) -> StoredObject | None:
    return store.objects.get(CONDENSED + key) or store.objects.get(key)


@_remembered
def jobs(store: Store) -> list[str]:
    """The jobs that are decided."""
    prefix = ROOT.decisions_prefix
    names = (key.removeprefix(prefix) for key in store.objects if key.startswith(prefix))
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


@_remembered
def changes(store: Store) -> dict[str, list[tuple[str, PartitionDecision]]]:
    """What committed jobs do to each partition, in the order of their base versions. Where a head
    was lost and a replace has made it anew, the partition begins with that replace.

    :raises Violation: two jobs changed a partition from one version.
    """
    found: dict[str, list[tuple[str, PartitionDecision]]] = {}
    for job in jobs(store):
        decision = decision_of(store, job)
        if decision is None or not decision.is_commit:
            continue
        for change in decision.partitions:
            found.setdefault(change.partition, []).append((job, change))
    for partition, log in found.items():
        log.sort(key=lambda entry: entry[1].base_version)
        if lost := store.objects.get(LOST + partition):
            after = [entry for entry in log if entry[0] not in lost.body.decode().split()]
            log[:] = after if after and not after[0][1].base_version else log
        if [change.base_version for _, change in log] != list(range(len(log))):
            versions = [(job, change.base_version) for job, change in log]
            raise Violation("concurrent", f"{partition} was changed from {versions}")
    return found


def content_after(log: list[tuple[str, PartitionDecision]], version: int) -> list[str]:
    """The keys a partition holds at a version, by carrying out its changes one after another."""
    keys: list[str] = []
    for job, change in log[:version]:
        if change.replace:
            keys = []
        if change.dropped_job is not None:
            again = {file.key for file in change.adopted}
            gone = change.dropped_jobs
            keys = [k for k in keys if job_in_key(k) not in gone and k not in again]
        decision = Decision(job, "", verdict="commit", partitions=(change,))  # type: ignore[arg-type]
        keys += [file.key for file in files_of_decision(decision, change.partition)]
    return keys


def check_step(before: Store, after: Store) -> None:
    """What no single request may do.

    :raises Violation: it did.
    """
    if before.objects is after.objects:
        return
    for key in after.objects.keys() - before.objects.keys():
        job = job_in_key(key)
        if job is not None and "/_zero_rename/" not in key and not is_committed(after, job):
            raise Violation("exclusivity", f"{key} became visible without a commit decision")
    for key in before.objects.keys() & after.objects.keys():
        if before.objects[key].etag != after.objects[key].etag:
            if is_decision(key) and _decision(key, after.objects[key].body).condensed:
                _check_condensed(before, after, key)
            else:
                _check_overwrite(key, before.objects[key].body, after.objects[key].body)
    for key in before.objects.keys() - after.objects.keys():
        if never_deleted(key) and not _is_lost(before, key):
            raise Violation("continuity of correctness", f"{key} was deleted")


def _is_lost(store: Store, key: str) -> bool:
    """Whether a foreign tool is said to delete a head."""
    return any(
        key == ROOT.head_key(it.removeprefix(LOST)) for it in store.objects if it[:5] == LOST
    )


def never_deleted(key: str) -> bool:
    """Heads and decisions stay; parts of decisions that lost, or were condensed, do not."""
    return is_head(key) or is_decision(key) or "/_zero_rename/runs/" in key


def is_decision(key: str) -> bool:
    """Whether a decision lies there, as a whole or where its parts are named."""
    return key.startswith(ROOT.decisions_prefix) and key.endswith(".json")


def is_head(key: str) -> bool:
    """Whether a partition's head lies there."""
    return "/_zero_rename/heads/" in key and key != ROOT.index_key


def check_owner(before: Store, after: Store, job: str, process: str) -> None:
    """What no request of ``process`` may do where only ``job``'s own processes take part: claim
    once it committed, or close the job while something of it is left. Where others fence it they
    may be too early.

    One process that aborts cannot keep another one, which does not know yet, from a last claim:
    that one takes it off (:func:`check_nothing_left`).

    :raises Violation: it did.
    """
    if before.objects is after.objects:
        return
    claimed = {key: holder for key in after.objects for holder in _claim_of(after, key, job)}
    committed = is_committed(before, job)
    if committed:
        for key in claimed:
            if not _claim_of(before, key, job):
                raise Violation("continuity of correctness", f"{key} was claimed after {job}'s end")
    key = ROOT.open_key(job)
    if key in before.objects and key not in after.objects:
        left = [upload.key for upload in after.uploads.values() if job_in_key(upload.key) == job]
        left += [key for key, holder in claimed.items() if committed or holder == process]
        if left:
            raise Violation("ability to abort", f"{job} was closed with {left} left")


def _claim_of(store: Store, key: str, job: str) -> list[str | None]:
    """The process whose claim of ``job`` a key carries, if it does."""
    if not is_head(key) and "/_zero_rename/runs/" not in key:
        return []
    found = store.objects.get(key)
    if found is None:
        return []
    claim, holder = _claim_in(found.body)
    return [holder] if claim == job else []


@lru_cache(maxsize=200_000)
def _claim_in(body: bytes) -> tuple[str | None, str | None]:
    head = json.loads(body)
    return head["claim"], head.get("holder")


@lru_cache(maxsize=200_000)
def version_in(body: bytes) -> int:
    """The version that a head says."""
    return json.loads(body)["version"]


def check_applied(store: Store, job: str) -> None:
    """Who is told that a job is committed finds it applied, whoever did that.

    :raises Violation: a head has yet to be moved.
    """
    decision = decision_of(store, job)
    for change in decision.partitions if decision else ():
        slot = Slot.partition(ROOT, change.partition)
        found = store.objects.get(slot.key)
        if found is None and _is_lost(store, slot.key):
            continue
        if found is None or version_in(found.body) <= change.base_version:
            raise Violation("completeness", f"{job} is reported and not applied to {slot.name}")


def is_committed(store: Store, job: str) -> bool:
    found = store.objects.get(ROOT.decision_key(job))
    return found is not None and _decision(ROOT.decision_key(job), found.body).is_commit


def _check_overwrite(key: str, old: bytes, new: bytes) -> None:
    if is_decision(key):
        _check_amended(key, old, new)
    elif "/_zero_rename/jobs/" in key or "/_zero_rename/manifests/" in key:
        raise Violation("continuity of correctness", f"{key} was overwritten")
    if is_head(key):
        step = version_in(new) - version_in(old)
        if step not in (0, 1):
            raise Violation("continuity of correctness", f"{key} went {step} versions on")
    if key.endswith("_SUCCESS"):
        _check_marker(key, json.loads(old)["manifest"], json.loads(new)["manifest"])


def _check_amended(key: str, old: bytes, new: bytes) -> None:
    """A decision that is written again says the same, but for files that it calls lost."""
    before, after = (_with_all_files(_decision(key, body)) for body in (old, new))
    if before.parts:  # Parts are not compared.
        after = replace(after, parts=before.parts, partitions=before.partitions)
    same = replace(after, write_id=before.write_id, decided_at=before.decided_at)
    if same != before or not before.is_commit:
        raise Violation("continuity of correctness", f"{key} was overwritten")


def _check_condensed(before: Store, after: Store, key: str) -> None:
    """A decision is condensed where nobody needs its lists: all of its job is done, and no head
    names it. It goes on to say what its run did, and from which versions.

    The job is closed by then, but the request that opened it may arrive once more."""
    job = key.removeprefix(ROOT.decisions_prefix).removesuffix(".json")
    whole, left = decision_of(before, job), _decision(key, after.objects[key].body)
    assert whole is not None
    said = [
        (c.partition, c.base_version, c.replace, c.dropped_job, c.sums) for c in left.partitions
    ]
    same = [
        (c.partition, c.base_version, c.replace, c.dropped_job, c.sums) for c in whole.partitions
    ]
    if said != same or (left.idempotency_key, left.run_version, left.own_since) != (
        whole.idempotency_key,
        whole.run_version,
        whole.own_since,
    ):
        raise Violation("continuity of correctness", f"{key} was condensed as {left}")
    if not whole.is_commit or _is_left(before, job, whole):
        raise Violation("ability to abort", f"{job} was condensed while something of it is left")


def _is_left(store: Store, job: str, decision: Decision) -> bool:
    """Whether something of a commit has yet to be done."""
    if any(job_in_key(upload.key) == job for upload in store.uploads.values()):
        return True
    for change in decision.partitions:
        head = store.objects.get(ROOT.head_key(change.partition))
        if head is None or version_in(head.body) <= change.base_version:
            return True
        listed = {(key, found.etag) for key, found in store.objects.items()}
        if any((file.key, file.etag) in listed for file in change.removals):
            return True
    return False


def _with_all_files(decision: Decision) -> Decision:
    changes = (
        replace(
            change,
            files=tuple(sorted(change.files + change.lost, key=lambda file: file.key)),
            lost=(),
        )
        for change in decision.partitions
    )
    return replace(decision, partitions=tuple(changes))


def _check_marker(key: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    partition = ROOT.partition_of_data_key(key.removesuffix("_SUCCESS") + "x")
    if partition == UNPARTITIONED and UNPARTITIONED not in old["versions"]:
        went_back = new["decided_at"] < old["decided_at"]
    else:
        went_back = new["versions"].get(partition, 0) < old["versions"].get(partition, 0)
    if went_back:
        raise Violation(
            "continuity of correctness", f"{key} went from {old['job']} back to {new['job']}"
        )


def check_reader(store: Store, snapshot: Snapshot, partitions: Collection[str]) -> None:
    """A reader's result is files of one state, all partitions of a job or none.

    :raises Violation: it is not.
    """
    log = changes(store)
    seen: dict[str, list[str]] = {partition: [] for partition in partitions}
    for file in snapshot.files:
        seen[file.partition].append(file.key)
    for partition, keys in seen.items():
        version = snapshot.versions.get(partition, 0)
        expected = content_after(log.get(partition, []), version)
        if keys != expected:
            raise Violation("consistency", f"{partition} at version {version} read {keys}")
    for partition in partitions:
        for job, change in log.get(partition, []):
            decision = decision_of(store, job)
            for other in decision.partitions if decision else ():
                if other.partition in seen and (
                    (snapshot.versions.get(partition, 0) > change.base_version)
                    != (snapshot.versions.get(other.partition, 0) > other.base_version)
                ):
                    raise Violation(
                        "consistency",
                        f"{job} is seen in one of {partition} and {other.partition} only",
                    )


def told(job: str, outcome: Node) -> str:
    """What a participant's end says of its job: ``committed``, ``refused`` or nothing."""
    value = outcome.value
    if isinstance(value, UnfinishedCommitError):
        return "committed"
    if isinstance(value, Committed) and value.job == job:
        return "committed"
    if outcome.kind == "raised" and isinstance(value, RefusedError):
        return "refused"
    return ""


def has_lost_the_store(outcome: Node) -> bool:
    """Whether a participant ended because the store refused it or did not answer."""
    return isinstance(outcome.value, (StoreUnreachableError, StoreRefusedError))


def check_outcome(store: Store, job: str, outcome: Node) -> None:
    """A participant's answer is true now, and after recovery.

    :raises Violation: it is not.
    """
    decision = decision_of(store, job)
    is_commit = decision is not None and decision.is_commit
    said = told(job, outcome)
    if said == "committed" and not is_commit:
        raise Violation("ability to abort", f"{job} was told committed and is not")
    if said == "refused" and is_commit:
        raise Violation(
            "ability to abort", f"{job} was told refused and is committed: {outcome.value!r}"
        )


def check_recovered(store: Store, start: Store, kept: Collection[str] = ()) -> None:
    """After everybody is done and recovery ran: heads, listings and markers agree with the
    decisions, and nothing is left over.

    :param start: the store at the beginning. Foreign files that came since may stay unnamed.
    :param kept: files that a listing may show besides.
    :raises Violation: they do not, or something is.
    """
    check_nothing_left(store)
    _check_runs(store)
    log = changes(store)
    for partition, entries in log.items():
        slot = Slot.partition(ROOT, partition)
        body = store.objects[slot.key].body
        head = PartitionHead.decode(body, slot, ROOT)
        if (head.version, head.last_job) != (len(entries), entries[-1][0]):
            raise Violation("completeness", f"{partition} is at {head.version} of {len(entries)}")
        expected = content_after(entries, len(entries))
        if content_of(store, head) != expected:
            raise Violation("completeness", f"{partition}'s head holds {content_of(store, head)}")
        listed = [
            key
            for key in store.objects
            if ROOT.partition_of_data_key(key) == partition
            and (key in expected or not (key in kept or _is_newly_foreign(store, start, key)))
        ]
        if sorted(listed) != sorted(expected):
            name = "completeness" if set(expected) - set(listed) else "continuity of correctness"
            raise Violation(name, f"{partition} lists {sorted(listed)}, not {sorted(expected)}")
        _check_last_marker(store, partition, entries[-1][0])


def _is_newly_foreign(store: Store, start: Store, key: str) -> bool:
    """Whether a file is nobody's of ours and was not there at the beginning as it is now."""
    old = start.objects.get(key)
    return job_in_key(key) is None and (old is None or old.etag != store.objects[key].etag)


def _check_runs(store: Store) -> None:
    """The tries of a run do its work once: a later one skips it, or takes away what the earlier
    ones did, in each partition in which one of them did anything."""
    log = changes(store)
    tries: dict[str, list[Decision]] = {}
    for job in jobs(store):
        decision = decision_of(store, job)
        if decision is not None and decision.is_commit and decision.idempotency_key is not None:
            tries.setdefault(decision.idempotency_key, []).append(decision)
    for decisions in tries.values():
        held: set[str] = set()
        before: set[str] = set()
        for later in sorted(decisions, key=lambda decision: decision.run_version):
            changed = {change.partition for change in later.partitions}
            # One that is narrowed does some partitions again; the others stay the run's.
            if not later.narrows and held - changed:
                left = f"{sorted(held - changed)} as they were"
                raise Violation("completeness", f"{later.job} did the run's work and left {left}")
            for change in later.partitions:
                there = content_after(log[change.partition], change.base_version + 1)
                if left := [key for key in there if job_in_key(key) in before]:
                    raise Violation("completeness", f"{later.job} did the run's work after {left}")
            held = changed | (held if later.narrows else set())
            before.add(later.job)


def check_nothing_left(store: Store) -> None:
    """All jobs are over, and no claim, upload or open record is left.

    :raises Violation: one is.
    """
    if store.uploads:
        raise Violation("ability to abort", f"uploads are left: {sorted(store.uploads)}")
    for key, found in store.objects.items():
        if key.startswith(ROOT.open_prefix):
            raise Violation("ability to abort", f"an open record is left: {key}")
        if is_head(key) or "/runs/" in key:
            claim, _ = _claim_in(found.body)
            if claim is not None:
                raise Violation("ability to abort", f"{key} still carries the claim of {claim}")


def _check_last_marker(store: Store, partition: str, job: str) -> None:
    decision = decision_of(store, job)
    if decision is None or decision.success_markers is not SuccessMarkers.PARTITION_AND_TABLE:
        return
    marker = store.objects.get(ROOT.marker_key(partition))
    if marker is None or json.loads(marker.body)["jobId"] != job:
        raise Violation("continuity of correctness", f"{partition}'s marker is not {job}'s")


def content_of(store: Store, head: PartitionHead) -> list[str]:
    """The keys that a head names.

    :raises Violation: a record that says so is gone, or does not count.
    """
    keys: list[str] = []
    for named in head.manifests:
        if named.key not in store.objects:
            raise Violation("completeness", f"{named.key}, which a head names, is gone")
        body = store.objects[named.key].body
        manifest = Manifest.decode(body, named.key, ROOT, head.name)
        keys += [file.key for file in manifest.files if file.job not in head.dropped]
    for job in head.decisions:
        if CONDENSED + ROOT.decision_key(job) in store.objects:
            raise Violation("completeness", f"{head.name} names {job}, whose files are left out")
        decision = decision_of(store, job)
        if decision is None or not decision.is_commit:
            raise Violation("exclusivity", f"{head.name} names {job}, which has no commit")
        keys += [file.key for file in files_of_decision(decision, head.name)]
    return keys
