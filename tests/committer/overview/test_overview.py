"""What a page tells of a table, and that looking at it changes nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.faults import on
from support.protocol import DAY1, DAY2, DAY3, ROOT, World, die_before_applying
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    Owner,
    PartitionHistory,
    RefusedError,
    SeenPartition,
    SeenState,
    StoreRefusedError,
    TableNotFoundError,
    TableOverview,
    ZeroRenameError,
)
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.format.job_spec import Coordination, Mode
from zero_rename.committer.format.layout import job_ids_begin, new_job_id, new_write_id
from zero_rename.committer.format.records.decision import CondensedDecision, Decision
from zero_rename.committer.format.records.failure import Failure
from zero_rename.committer.format.records.run_conflict import SettledBy, Settlement
from zero_rename.committer.overview.orphaned_uploads import find_orphaned_uploads
from zero_rename.committer.overview.partition_history import look_back
from zero_rename.committer.overview.recent_jobs import SeenJob, read_job_manifest, recent_jobs
from zero_rename.committer.overview.table_overview import look_over
from zero_rename.committer.store.requests import (
    CreateUpload,
    Delete,
    Get,
    Head,
    ListLifecycleRules,
    ListObjects,
    ListParts,
    ListUploads,
    Put,
)
from zero_rename.committer.upkeep.conflicts.conflict_record import settle
from zero_rename.committer.upkeep.conflicts.conflict_search import find_conflicts
from zero_rename.committer.upkeep.doctor.examination import problems

READS = (Get, Head, ListObjects, ListUploads, ListParts, ListLifecycleRules)
TASK = Owner(dag_id="flights", run_id="r1", task_id="load", try_number=1)
ONCE = "flights/r1/load"
HOUR, DAY = 3600.0, 24 * 3600.0


def look(world: World, most_jobs: int = 100) -> TableOverview:
    return world.driver.run(look_over(world.context, most_jobs))


def seen(world: World) -> dict[str, SeenPartition]:
    return {it.name: it for it in look(world).partitions}


def states(world: World) -> dict[str, str]:
    return {name: str(it.state) for name, it in seen(world).items()}


def history(world: World, partition: str, recent: Sequence[SeenJob] = ()) -> PartitionHistory:
    return world.driver.run(look_back(world.context, partition, recent))


def in_order(world: World) -> None:
    """Ids of jobs that follow each other, which two of one millisecond do not."""
    numbers = itertools.count(1)
    world.context = replace(world.context, job_id=lambda: f"zr1-{next(numbers):026d}")


def test_no_table(world: World) -> None:
    with pytest.raises(TableNotFoundError):
        look(world)
    with pytest.raises(TableNotFoundError):
        history(world, DAY1)


def test_partitions_by_what_became_of_them(world: World) -> None:
    world.load(DAY1, DAY2, DAY3, rows=3)
    world.load(DAY1, rows=2)
    last = world.load(DAY2, mode=Mode.REPLACE, rows=5)
    opened = world.open(Mode.REPLACE, replace_partitions=(DAY3,))
    world.commit(opened)
    found = seen(world)
    assert {name: it.state for name, it in found.items()} == {
        DAY1: SeenState.COMMITTED,
        DAY2: SeenState.REPLACED,
        DAY3: SeenState.EMPTIED,
    }
    assert [(it.rows, it.files, it.version) for it in found.values()] == [
        (5, 2, 2),
        (5, 1, 2),
        (0, 0, 2),
    ]
    assert found[DAY2].job == last.job
    assert found[DAY2].bytes == last.bytes


def test_the_index_and_the_heads_say_the_same_and_few_are_read(world: World) -> None:
    days = [f"day={n}" for n in range(100)]
    for begin in (0, 10, 20):
        world.load(*days[begin:], rows=begin + 1)
    world.load(DAY1, mode=Mode.REPLACE)
    world.driver.run(Delete(ROOT.index_key))
    by_heads = look(world)
    assert by_heads.behind_index == 100
    world.write_index()
    world.driver.requests.clear()
    by_index = look(world)
    assert by_index.behind_index == 0
    assert replace(by_index, behind_index=100) == by_heads
    assert len(world.driver.requests) < 20
    world.load(DAY2, mode=Mode.REPLACE)
    assert look(world).behind_index == 1
    assert states(world)[DAY2] == "replaced"


def test_a_look_only_reads_even_where_a_commit_is_not_applied(world: World) -> None:
    """Readers of rows apply it; a page is looked at by those who may not."""
    world.load(DAY1)
    opened = world.open()
    die_before_applying(world, opened, world.write(opened, DAY1))
    world.driver.requests.clear()
    (job,) = look(world).under_way
    assert states(world) == {DAY1: "running"}
    assert (job.job, job.decided, job.partitions) == (opened.job, "commit", (DAY1,))
    history(world, DAY1)
    world.driver.run(find_orphaned_uploads(ROOT))
    world.driver.run(problems(world.context))
    assert [it for it in world.driver.requests if not isinstance(it, READS)] == []


class TestUnderWay:
    def test_an_append_tells_where_it_is_by_its_uploads(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open(owner=TASK, idempotency_key=ONCE)
        world.write(opened, DAY3)
        (job,) = look(world).under_way
        assert (job.job, job.owner, job.idempotency_key) == (opened.job, TASK, ONCE)
        assert (job.partitions, job.is_dead) == ((DAY3,), False)
        assert states(world) == {DAY1: "committed", DAY3: "running"}

    def test_a_replace_names_its_partitions(self, world: World) -> None:
        world.load(DAY1)
        world.open(Mode.REPLACE, replace_partitions=(DAY1, DAY2))
        assert states(world) == {DAY1: "running", DAY2: "running"}

    def test_one_that_is_silent_for_too_long_has_failed(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open(Mode.REPLACE, replace_partitions=(DAY1,), max_duration=60.0)
        world.advance(61.0)
        found = seen(world)[DAY1]
        assert found.state is SeenState.FAILED
        assert found.rows == 1  # It holds what it held.
        assert found.why == f"{opened.job} is open, undecided, and silent for 61 s."

    def test_an_aborted_one_is_not_at_work(self, world: World) -> None:
        """Its clean-up is left: as of a task whose worker was killed while it aborted."""
        world.load(DAY1)
        fail(world, DAY1)
        opened = world.open(
            Mode.REPLACE, replace_partitions=(DAY1,), owner=TASK, idempotency_key=ONCE
        )
        world.write(opened, DAY3)
        world.store.apply(
            Put(ROOT.decision_key(opened.job), Decision.abort(opened.job, "w").encode())
        )
        (job,) = look(world).under_way
        assert (job.decided, job.is_running) == ("abort", False)
        assert states(world) == {DAY1: "failed"}

    def test_a_first_job_that_has_not_made_the_table(self, world: World) -> None:
        world.write(world.open(), DAY1)
        overview = look(world)
        assert overview.partition_by is None
        assert states(world) == {DAY1: "running"}

    def test_one_whose_record_cannot_be_read(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open(Mode.REPLACE, replace_partitions=(DAY1,))
        world.write(opened, DAY2)
        world.store.apply(Put(ROOT.open_key(opened.job), b"<b>"))
        (job,) = look(world).under_way
        assert job.damage
        assert states(world) == {DAY1: "committed", DAY2: "failed"}

    def test_who_may_not_list_uploads_does_without(self, world: World) -> None:
        world.load(DAY1)
        world.driver.fault = on(ListUploads, StoreRefusedError("Access denied.", lacks_right=True))
        overview = look(world)
        assert len(overview.partitions) == 1
        assert "cannot be listed" in overview.notes[0]
        assert world.driver.run(find_orphaned_uploads(ROOT)).refused == "Access denied."


def fail(
    world: World,
    *partitions: str,
    error: ZeroRenameError | None = None,
    idempotency_key: str = ONCE,
) -> None:
    """What :func:`failures_told` puts on record."""
    error = error or InvalidInputError("no such column", remedy="Name it.")
    failure = Failure.of(error, ROOT, idempotency_key, TASK, new_write_id(), partitions)
    world.store.apply(Put(ROOT.failure_key(idempotency_key), failure.encode()))


class TestFailures:
    def test_a_run_that_failed(self, world: World) -> None:
        world.load(DAY1)
        fail(world, DAY1, DAY2)
        (failure,) = look(world).failures
        told = (failure.message, failure.remedy, failure.owner, failure.gave_way)
        assert told == ("no such column", "Name it.", TASK, False)
        assert states(world) == {DAY1: "failed", DAY2: "failed"}
        assert seen(world)[DAY1].why == "no such column"

    def test_what_a_later_try_committed_is_made_good(self, world: World) -> None:
        world.load(DAY1)
        fail(world, DAY1)
        world.advance(60.0)
        world.load(DAY1, owner=TASK, idempotency_key=ONCE)
        assert look(world).failures == ()
        # Where that job is not among the recent ones, the run's own head tells.
        assert look(world, 0).failures == ()
        world.advance(60.0)
        fail(world, DAY1)
        assert len(look(world, 0).failures) == 1

    def test_a_try_under_way(self, world: World) -> None:
        world.load(DAY1)
        fail(world, DAY1)
        world.write(world.open(owner=TASK, idempotency_key=ONCE), DAY1)
        assert states(world) == {DAY1: "running"}

    def test_a_run_that_gave_way(self, world: World) -> None:
        world.load(DAY1)
        error = CommitConflictError("changed meanwhile", key=ROOT.head_key(DAY1))
        fail(world, error=error)
        assert states(world) == {DAY1: "conflicted"}

    def test_old_ones_are_not_told(self, world: World) -> None:
        world.load(DAY1)
        fail(world, DAY1)
        world.advance(8 * DAY)
        assert look(world).failures == ()

    def test_what_lies_there_and_is_none(self, world: World) -> None:
        world.load(DAY1)
        world.store.apply(Put(ROOT.failure_key("x"), b"<script>"))
        assert look(world).failures == ()

    def test_a_job_tells_which_partitions_it_was_to_write(self) -> None:
        failure = Failure.of(RefusedError("x"), ROOT, ONCE, TASK, "w", [DAY2, DAY1])
        assert Failure.decode(failure.encode(), "k").partitions == (DAY1, DAY2)
        many = Failure.of(RefusedError("x"), ROOT, ONCE, TASK, "w", map(str, range(1001)))
        assert many.partitions == ()


class TestConflicts:
    def conflict(self, world: World) -> str:
        """A late run of one DAG over a newer one; returns the job of that one."""
        world.date_jobs()
        policy: dict[str, Any] = {"mode": Mode.REPLACE, "owner": TASK}
        newer = world.load(DAY1, run_rank=2, idempotency_key="d/b/load", **policy).job
        world.load(DAY1, run_rank=1, idempotency_key="d/a/load", **policy)
        return newer

    def find(self, world: World) -> None:
        world.driver.run(find_conflicts(world.context))

    def test_conflict_that_last_look_found_is_shown(self, world: World) -> None:
        self.conflict(world)
        assert states(world) == {DAY1: "replaced"}
        self.find(world)
        found = seen(world)[DAY1]
        assert found.state is SeenState.CONFLICTED
        assert "the older came later" in found.why
        assert [it.partition for it in look(world).conflicts] == [DAY1]

    def test_settled_conflict_is_shown_with_who_decided(self, world: World) -> None:
        newer = self.conflict(world)
        self.find(world)
        (conflict,) = look(world).conflicts
        by = Owner("maintenance", "r", "settle")
        run = next(it for it in conflict.runs if it.job == newer)
        done = Settlement(run.key, (), None, by, "newest_run", SettledBy.RERUN)
        world.driver.run(settle(ROOT.conflicts_key, conflict, done))
        assert states(world) == {DAY1: "replaced"}
        (settled,) = look(world).conflicts
        assert settled.settlement is not None
        assert (settled.settlement.by, settled.settlement.at > 0) == (by, True)

    def test_failure_of_run_that_a_settlement_lost_is_not_pressing(self, world: World) -> None:
        world.date_jobs()
        world.load(DAY1)
        error = CommitConflictError("changed meanwhile", key=ROOT.head_key(DAY1))
        fail(world, error=error)
        assert states(world) == {DAY1: "conflicted"}
        self.find(world)
        (conflict,) = look(world).conflicts
        done = Settlement(conflict.runs[0].key, (ONCE,), None, TASK, "x", SettledBy.KEPT)
        world.driver.run(settle(ROOT.conflicts_key, conflict, done))
        assert states(world) == {DAY1: "committed"}

    def test_damaged_record_of_conflicts_is_noted(self, world: World) -> None:
        world.load(DAY1)
        world.store.apply(Put(ROOT.conflicts_key, b"{"))
        assert any("conflicts.json" in it for it in look(world).notes)

    def test_failure_is_more_pressing(self, world: World) -> None:
        self.conflict(world)
        self.find(world)
        fail(world, DAY1)
        assert states(world) == {DAY1: "failed"}


class TestRecentJobs:
    def test_newest_first_and_no_more_than_asked_for(self, world: World) -> None:
        in_order(world)
        jobs = []
        for rows in (1, 2, 3):
            jobs.append(world.load(DAY1, DAY2, rows=rows).job)
            world.advance(1.0)
        found = look(world, 2).jobs
        assert [job.job for job in found] == [jobs[2], jobs[1]]
        assert [(job.rows, job.files, len(job.changes)) for job in found] == [(6, 2, 2), (4, 2, 2)]

    def test_an_aborted_one(self, world: World) -> None:
        world.load(DAY1)
        world.advance(1.0)
        opened = world.open()
        world.abort(opened)
        newest = look(world).jobs[0]
        assert (newest.job, newest.verdict, newest.changes) == (opened.job, "abort", ())

    def test_old_ones_are_listed_where_there_are_few_young_ones(self, world: World) -> None:
        """Jobs are listed by the time in their ids, so that a table of years costs no more."""
        world.load(DAY1)
        now = time.time()
        for at, listings in ((now, 2), (now + 10 * 366 * DAY, 5)):
            world.driver.requests.clear()
            found, unread = world.driver.run(recent_jobs(world.context, at, 1))
            assert (len(found), unread) == (1, {})
            assert world.driver.counts() == {"ListObjects": listings, "Get": 1}

    def test_the_time_in_an_id(self) -> None:
        job, now = new_job_id(), time.time()
        assert job.startswith(job_ids_begin(now, 4))
        assert not job.startswith(job_ids_begin(now - 60 * DAY, 4))
        assert job_ids_begin(now, 0) == "zr1-"


def condense(world: World, job: str) -> None:
    """What gc makes of a decision that was applied long ago."""
    decided = world.driver.run(read_decision(world.context, job))
    assert decided is not None
    condensed = CondensedDecision.of(decided.decision, decided.date)
    world.store.apply(Put(ROOT.decision_key(job), condensed.encode()))


class TestCondensed:
    def test_a_condensed_job_is_told_in_its_place(self, world: World) -> None:
        """It has been written again since, and is not recent for that."""
        in_order(world)
        jobs = []
        for rows in (1, 2, 3):
            jobs.append(world.load(DAY1, DAY2, rows=rows).job)
            world.advance(60.0)
        before = look(world).jobs[2]
        condense(world, jobs[0])
        assert [job.job for job in look(world, 2).jobs] == jobs[:0:-1]
        after = look(world).jobs[2]
        assert (after.job, after.rows, after.files, after.decided_at) == (
            *(jobs[0], 2, 2),
            before.decided_at,
        )
        manifest = world.driver.run(read_job_manifest(world.context, jobs[0]))
        assert manifest is not None
        assert (manifest.is_condensed, manifest.files) == (True, ())
        last = world.driver.run(read_job_manifest(world.context, jobs[2]))
        assert last is not None
        assert (last.is_condensed, len(last.files)) == (False, 2)


class TestHistory:
    def test_every_job_that_left_a_trace(self, world: World) -> None:
        jobs = []
        for rows in range(1, 6):
            mode = Mode.REPLACE if rows in (3, 4) else Mode.APPEND
            jobs.append(world.load(DAY1, DAY2, mode=mode, rows=rows, owner=TASK).job)
            world.load(DAY2)
            world.advance(1.0)
        found = history(world, DAY1)
        told = [(it.version, it.job.job, it.change.rows, it.visible) for it in found.entries]
        assert told == [
            (5, jobs[4], 5, 1),
            (4, jobs[3], 4, 1),
            (3, jobs[2], 3, 0),
            (2, jobs[1], 2, 0),
            (1, jobs[0], 1, 0),
        ]
        assert {it.job.owner for it in found.entries} == {TASK}
        assert (found.version, len(found.files)) == (5, 2)

    def test_one_that_only_emptied_it_is_known_where_it_is_recent(self, world: World) -> None:
        world.load(DAY1)
        world.advance(1.0)
        emptied = world.open(Mode.REPLACE, replace_partitions=(DAY1,))
        world.commit(emptied)
        world.advance(1.0)
        world.load(DAY1)
        assert [it.version for it in history(world, DAY1).entries] == [3]
        entries = history(world, DAY1, look(world).jobs).entries
        assert [(it.version, it.job.job) for it in entries[:2]][1] == (2, emptied.job)
        # What it removed leads on.
        assert [it.version for it in entries] == [3, 2, 1]

    def test_a_partition_that_was_never_there(self, world: World) -> None:
        world.load(DAY1)
        found = history(world, "day=9")
        assert (found.version, found.files, found.entries) == (0, (), ())


class TestDamage:
    def test_a_head_that_cannot_be_read(self, world: World) -> None:
        world.load(DAY1, DAY2)
        world.store.apply(Put(ROOT.head_key(DAY1), b"{}"))
        found = seen(world)
        assert found[DAY1].state is SeenState.UNREADABLE
        assert ROOT.head_key(DAY1) in found[DAY1].why
        assert found[DAY2].state is SeenState.COMMITTED
        assert history(world, DAY1).damage

    def test_a_decision_that_cannot_be_read(self, world: World) -> None:
        job = world.load(DAY1).job
        world.store.apply(Put(ROOT.decision_key(job), b"null"))
        overview = look(world)
        assert states(world) == {DAY1: "unreadable"}
        assert any(job in note for note in overview.notes)
        assert overview.jobs == ()


def test_a_table_without_heads_is_as_a_listing_shows_it(world: World) -> None:
    world.load(DAY1, DAY2, coordination=Coordination.NONE)
    found = seen(world)
    assert {(it.state, it.files, it.rows, it.version) for it in found.values()} == {
        (SeenState.LISTED, 1, None, None)
    }


def test_orphaned_uploads_are_told_in_bytes(world: World) -> None:
    world.load(DAY1)
    gone, result = world.written(DAY1, DAY2, max_duration=60.0)
    world.advance(61.0)
    world.write(world.open(), DAY3)
    found = world.driver.run(find_orphaned_uploads(ROOT))
    assert (found.count, found.needed, found.foreign) == (2, 1, 0)
    assert found.bytes == sum(file.size for file in result.files)
    assert {it.job for it in found.uploads} == {gone.job}
    (problem,) = world.driver.run(problems(world.context))
    assert (problem.what, problem.subject) == ("job left open", gone.job)


def test_foreign_upload_is_not_listed_among_those_of_dead_jobs(world: World) -> None:
    """Another program may be about to complete it."""
    world.load(DAY1)
    world.store.apply(CreateUpload(f"{ROOT.prefix}/a-foreign.parquet"))
    gone, _ = world.written(DAY1, max_duration=60.0)
    world.advance(61.0)
    found = world.driver.run(find_orphaned_uploads(ROOT))
    assert (found.count, found.needed) == (1, 1)
    assert [it.job for it in found.uploads] == [gone.job]


def test_partitions_that_jobs_and_runs_spell_otherwise_are_those_of_the_table(world: World) -> None:
    """``day=01`` of numbers is ``day=1``: it was shown as a partition of its own."""
    world.load(DAY1, DAY2)
    fail(world, "day=02")
    world.open(Mode.REPLACE, replace_partitions=("day=01",))
    assert states(world) == {DAY1: "running", DAY2: "failed"}
    (job,) = look(world).under_way
    assert job.partitions == (DAY1,)
