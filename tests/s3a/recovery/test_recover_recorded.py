"""A pending set as Hadoop's magic committer wrote it, byte for byte, in a store in memory."""

from __future__ import annotations

import json

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore, StoredUpload
from support.recorded import recorded
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import CompleteUpload, Done, ObjectSettings, Put
from zero_rename.s3a.hadoop.commit_files import PendingSet
from zero_rename.s3a.recovery.liveness import RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, recover_jobs

BODY = recorded("magic.pendingset")
SET = PendingSet.parse(BODY, "recorded")
NAME = "task_202611211118277276526684084655084_0002_m_000000.pendingset"


@pytest.fixture
def store() -> MemoryStore:
    """The uploads that the set names, with as many bytes, and the set where it lay."""
    clock = ManualClock()
    made = MemoryStore(clock)
    for commit in SET.commits:
        size = commit.length // len(commit.etags)
        bodies = [b"x" * size] * (len(commit.etags) - 1)
        bodies.append(b"x" * (commit.length - size * len(bodies)))
        parts = {n: (e, b) for n, (e, b) in enumerate(zip(commit.etags, bodies, strict=True), 1)}
        made.uploads[commit.upload_id] = StoredUpload(commit.key, clock(), ObjectSettings(), parts)
    tree = f"{root().prefix}/__magic_job-{SET.job}/"
    for key, body in ((tree, b""), (f"{tree}job-{SET.job}/00/{NAME}", BODY)):
        made.apply(Put(key, body))
    clock.advance(10)
    return made


def root() -> TableRoot:
    """Hadoop named the file's partition; what is above it is the table."""
    commit = SET.commits[0]
    return TableRoot(commit.bucket, commit.key.split("/day=")[0])


def test_it_is_carried_out(store: MemoryStore) -> None:
    driver = MemoryDriver(store)
    first = SET.commits[0]
    done = store.apply(CompleteUpload(first.key, first.upload_id, first.etags))
    assert isinstance(done, Done)
    options = RecoveryOptions(apply=True, dead={SET.job})
    (found,) = driver.run(recover_jobs(root(), options))
    assert (found.outcome, found.written) == (JobOutcome.ROLLED_FORWARD, 1), found.reason
    assert {key for key in store.objects if "/day=" in key} == {c.key for c in SET.commits}
    assert store.uploads == {}
    assert json.loads(store.objects[f"{root().prefix}/_SUCCESS"].body)["jobId"] == SET.job
    assert not any("__magic" in key for key in store.objects)


def test_a_set_copied_below_another_table_is_refused(store: MemoryStore) -> None:
    """Its keys are not that table's."""
    other = TableRoot(root().bucket, "tables/other")
    store.apply(Put(f"{other.prefix}/__magic_job-{SET.job}/job-{SET.job}/00/{NAME}", BODY))
    before = dict(store.objects), dict(store.uploads)
    options = RecoveryOptions(apply=True, dead={SET.job})
    (found,) = MemoryDriver(store).run(recover_jobs(other, options))
    assert found.outcome is JobOutcome.REFUSED
    assert "outside the job's destination" in found.reason
    assert (store.objects, store.uploads) == before
