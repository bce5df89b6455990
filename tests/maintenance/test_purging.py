"""Purge of destinations of each committer: what is settled, aborted, and left, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.day_rows import load
from support.memory_store import ManualClock, MemoryStore
from support.protocol import SCHEMA, memory_table
from support.s3a_jobs import JOB, OTHER, ROOT, MagicJob, StagingJob, World, a_try
from zero_rename.committer import InvalidInputError, JobSpec, Table
from zero_rename.committer.errors import (
    RefusedError,
    StoreRefusedError,
    UnfinishedUpkeepError,
    ZeroRenameError,
)
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import CreateUpload, Put
from zero_rename.committer.upkeep.purging.purge import PurgeAction
from zero_rename.committer.upkeep.purging.upload_selection import UploadsPath
from zero_rename.committer.upkeep.recovery import is_lasting
from zero_rename.maintenance.destinations import (
    Destination,
    destination_at,
    destinations_below,
    destinations_in,
    destinations_of,
)
from zero_rename.maintenance.purging import PurgedDestination, PurgeOrder, purge_destination
from zero_rename.s3a.runs.ledger import open_try

DAY = 86400.0
WH = TableRoot("bucket", "wh")
BELOW = UploadsPath("bucket", "wh/")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def magic(store: MemoryStore, root: TableRoot = ROOT, **given: Any) -> MagicJob:
    return MagicJob(memory_table(store, root.url).driver.perform, root, **given).begin()


def dead_in_its_commit(store: MemoryStore, root: TableRoot = ROOT, **given: Any) -> MagicJob:
    """A job whose driver died when one of its four files was complete."""
    job = magic(store, root, **given)
    job.task(0)
    job.task(1)
    job.complete(job.files[0])
    return job


def load_half(store: MemoryStore) -> None:
    """A job of this package whose process died before its commit."""
    table = memory_table(store, ROOT.url)
    opened = table.open_job(JobSpec(SCHEMA, partition_by=("day",)))
    writer = table.task_writer(opened, 0, 0)
    writer.write(pa.table({"value": [2], "day": [2]}, schema=SCHEMA))
    writer.close()


def purged(store: MemoryStore, root: TableRoot = ROOT, **order: Any) -> PurgedDestination:
    table = memory_table(store, root.url)
    place = table.run(destination_at(root))
    given: dict[str, Any] = {"apply": True, "foreign_age": DAY, "s3a_patience": DAY, **order}
    return purge_destination(table, place, PurgeOrder(**given))


def actions(done: PurgedDestination) -> dict[str, PurgeAction]:
    return {it.key: it.action for it in done.reported}


class TestS3ADestinations:
    def test_a_dead_job_is_rolled_forward_and_what_no_task_committed_is_aborted(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        job = dead_in_its_commit(store)
        running = job.running(2)
        clock.advance(2 * DAY)
        done = purged(store)
        assert [(it.job, it.committer, it.outcome) for it in done.jobs] == [
            (JOB, "magic", "rolled-forward")
        ]
        assert actions(done) == {running.key: PurgeAction.ABORTED}
        assert store.upload_keys() == []
        assert [key for key in store.keys("wh/flights/day=") if "__magic" not in key] == job.keys

    def test_report_names_what_no_task_committed_of_a_job_that_would_be_rolled_forward(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        job = dead_in_its_commit(store)
        running = job.running(2)
        clock.advance(2 * DAY)
        planned = purged(store, apply=False)
        assert [it.outcome for it in planned.jobs] == ["would-roll-forward"]
        assert actions(planned) == {
            running.key: PurgeAction.WOULD_ABORT,
            **{it.key: PurgeAction.KEPT for it in job.files[1:]},
        }

    def test_a_job_whose_tasks_alone_committed_is_rolled_back(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        files = magic(store).task(1)
        clock.advance(2 * DAY)
        planned = purged(store, apply=False)
        assert actions(planned) == {it.key: PurgeAction.WOULD_ABORT for it in files}
        assert [it.bytes for it in planned.reported] == [len(it.body) for it in files]
        assert {it.job for it in planned.reported} == {JOB}
        done = purged(store)
        assert actions(done) == {it.key: PurgeAction.ABORTED for it in files}
        assert store.upload_keys() == []
        assert store.keys("wh/flights/") == []

    def test_uploads_of_a_living_job_are_left_however_old(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        job = magic(store)
        first = job.task(1)
        clock.advance(2 * DAY)
        job.task(2)
        done = purged(store)
        assert [it.outcome for it in done.jobs] == ["left"]
        assert {actions(done)[it.key] for it in first} == {PurgeAction.KEPT}
        assert len(store.upload_keys()) == len(job.files)

    def test_uploads_of_a_run_that_sends_heartbeats_are_left(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        made = magic(store).upload("day=1/part-0.parquet")
        store.objects.clear()
        clock.advance(2 * DAY)
        memory_table(store, ROOT.url).run(open_try(ROOT, a_try()))
        done = purged(store)
        assert actions(done) == {made.key: PurgeAction.KEPT}
        assert store.upload_keys() == [made.key]

    def test_uploads_that_only_a_person_can_judge_are_left_with_foreign_too(
        self, store: MemoryStore, clock: ManualClock, tmp_path: Path
    ) -> None:
        """They may be the only copy of what a staging job's tasks wrote."""
        perform = memory_table(store, ROOT.url).driver.perform
        job = StagingJob(perform, ROOT, staging=tmp_path).begin()
        made = job.task(0)
        clock.advance(30 * DAY)
        done = purged(store)
        assert [(it.outcome, it.is_lasting) for it in done.jobs] == [("needs-decision", True)]
        assert actions(done) == {it.key: PurgeAction.KEPT for it in made}
        assert len(store.upload_keys()) == len(made)
        done = purged(store, staging=str(tmp_path), s3a_patience=0.0)
        assert [it.outcome for it in done.jobs] == ["rolled-back"]
        assert store.upload_keys() == []

    def test_a_job_of_which_nothing_is_known_keeps_its_uploads(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        job = dead_in_its_commit(store)
        clock.advance(30 * DAY)
        done = purged(store, s3a_patience=None)
        assert [it.outcome for it in done.jobs] == ["needs-decision"]
        assert len(store.upload_keys()) == len(job.files) - 1

    @pytest.mark.parametrize("silent", [60.0, 2 * DAY], ids=["living", "of which nothing is known"])
    def test_file_that_the_first_task_of_a_job_writes_is_left(
        self, store: MemoryStore, clock: ManualClock, silent: float
    ) -> None:
        """Its upload begins with its first part, and the pending file comes when it is closed."""
        made = magic(store).upload("day=1/part-0.parquet")
        clock.advance(silent)
        for root in (ROOT, WH):
            done = purged(store, root, foreign_age=0.0, s3a_patience=None)
            assert actions(done) == {made.key: PurgeAction.KEPT}
            assert JOB in done.reported[0].reason
        assert store.upload_keys() == [made.key]

    def test_nothing_is_changed_without_apply(self, store: MemoryStore, clock: ManualClock) -> None:
        dead_in_its_commit(store)
        clock.advance(2 * DAY)
        before = dict(store.objects), list(store.upload_keys())
        done = purged(store, apply=False)
        assert [it.outcome for it in done.jobs] == ["would-roll-forward"]
        assert (dict(store.objects), list(store.upload_keys())) == before


class TestDirectories:
    def test_uploads_are_left_unless_foreign_ones_are_asked_for(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        made = magic(store).upload("day=1/x.parquet")
        store.objects.clear()
        clock.advance(2 * DAY)
        done = purged(store, foreign_age=None)
        assert done.kind == "directory"
        assert [(it.action, it.key) for it in done.reported] == [(PurgeAction.KEPT, made.key)]
        assert "foreign uploads are asked for" in done.reported[0].reason

    def test_uploads_are_aborted_by_age(self, store: MemoryStore, clock: ManualClock) -> None:
        job = magic(store)
        old = job.upload("day=1/x.parquet")
        store.objects.clear()
        clock.advance(2 * DAY)
        young = job.upload("day=2/x.parquet")
        done = purged(store)
        assert actions(done) == {old.key: PurgeAction.ABORTED, young.key: PurgeAction.KEPT}
        assert store.upload_keys() == [young.key]

    def test_uploads_of_destinations_in_it_are_judged_there_alone(
        self, store: MemoryStore, clock: ManualClock, tmp_path: Path
    ) -> None:
        memory_table(store, ROOT.url).run(open_try(ROOT, a_try(beat_at=1.0)))
        perform = memory_table(store, ROOT.url).driver.perform
        staged = StagingJob(perform, ROOT, staging=tmp_path).begin().task(0)
        plain = perform(CreateUpload("wh/plain/x.parquet"))
        clock.advance(30 * DAY)
        table = memory_table(store, WH.url)
        places = table.run(destinations_in(WH))
        assert [(it.root, it.kind) for it in places] == [(ROOT, "s3a"), (WH, "directory")]
        done = purge_destination(table, places[-1], PurgeOrder(apply=True, foreign_age=DAY))
        assert actions(done) == {"wh/plain/x.parquet": PurgeAction.ABORTED}
        assert plain.upload_id
        assert set(store.upload_keys()) == {it.key for it in staged}


class TestTables:
    def test_a_living_magic_job_beside_ours_keeps_its_uploads(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        load(memory_table(store, ROOT.url), 1)
        job = magic(store)
        first = job.task(1)
        clock.advance(2 * DAY)
        job.task(2)
        done = purged(store)
        assert done.kind == "table and s3a"
        assert {actions(done)[it.key] for it in first} == {PurgeAction.KEPT}
        assert len(store.upload_keys()) == len(job.files)
        assert done.counts[PurgeAction.KEPT] == len(job.files)

    def test_jobs_of_both_committers_are_settled(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        load(memory_table(store, ROOT.url), 1)
        load_half(store)
        magic(store).task(1)
        clock.advance(2 * DAY)
        done = purged(store)
        assert {(it.committer, it.outcome) for it in done.jobs} == {
            ("magic", "rolled-back"),
            ("zero_rename", "aborted"),
        }
        assert store.upload_keys() == []

    def test_purge_that_the_store_fails_midway_is_refused_only_if_nothing_has_changed(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        load(memory_table(store, ROOT.url), 1)
        magic(store).task(1)
        load_half(store)
        clock.advance(2 * DAY)
        ends: list[ZeroRenameError] = []
        for requests in range(10_000):
            now, left = store.copy(), requests
            table = memory_table(now, ROOT.url)
            place = table.run(destination_at(ROOT))

            def expired(request: Any, apply: Callable[[Any], Any]) -> Any:
                nonlocal left
                if (left := left - 1) >= 0:
                    return apply(request)
                raise StoreRefusedError("The session has expired.", lacks_right=True)

            table.driver.fault = expired  # type: ignore[attr-defined]
            order = PurgeOrder(apply=True, foreign_age=DAY, s3a_patience=DAY)
            try:
                done = purge_destination(table, place, order)
            except ZeroRenameError as error:
                ends.append(error)
            else:
                failed = [it for it in done.jobs if it.is_unsettled]
                assert all(it.is_lasting for it in failed)
                if not failed:
                    break
                continue
            assert is_lasting(ends[-1])
            if isinstance(ends[-1], RefusedError):
                assert (now.objects, now.uploads) == (store.objects, store.uploads)
        assert {type(it) for it in ends} == {StoreRefusedError, UnfinishedUpkeepError}

    def test_mistyped_job_is_refused_before_a_job_of_hadoops_is_recovered(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        load(memory_table(store, ROOT.url), 1)
        magic(store).task(1)
        clock.advance(2 * DAY)
        before = store.keys()
        with pytest.raises(InvalidInputError, match="nothing was changed"):
            purged(store, jobs=["zr1-01J0000000000000000000000A"])
        assert store.keys() == before


class TestDestinations:
    def test_each_kind_is_told(self, store: MemoryStore) -> None:
        def kind(name: str) -> str:
            root = TableRoot("bucket", f"wh/{name}")
            return memory_table(store, root.url).run(destination_at(root)).kind

        load(memory_table(store, "s3://bucket/wh/ours"), 1)
        magic(store, TableRoot("bucket", "wh/tree"))
        root = TableRoot("bucket", "wh/ledger")
        memory_table(store, root.url).run(open_try(root, a_try()))
        store.apply(Put("wh/plain/_SUCCESS", b""))
        store.apply(Put("wh/plain/day=1/x.parquet", b"x"))
        world = World(store)
        world.put_marker(OTHER)
        names = ("ours", "tree", "ledger", "flights", "plain", "nothing")
        assert [kind(name) for name in names] == [
            *("table", "s3a", "s3a", "s3a", "directory", "directory")
        ]
        found = memory_table(store, WH.url).run(destinations_below(BELOW))
        assert {(it.root.prefix, it.kind) for it in found} == {
            ("wh/flights", "s3a"),
            ("wh/ledger", "s3a"),
            ("wh/ours", "table"),
            ("wh/tree", "s3a"),
        }

    def test_folder_that_no_table_can_be_named_by_is_not_looked_into(
        self, store: MemoryStore
    ) -> None:
        """One, put there by anybody, kept all tables beside it from maintenance."""
        World(store).put_marker(OTHER)
        said = store.objects["wh/flights/_SUCCESS"].body
        for name in ("bad\x07", "", "_hidden"):
            store.apply(Put(f"wh/{name}/_SUCCESS", said))
        found = memory_table(store, WH.url).run(destinations_below(BELOW))
        assert [it.root.prefix for it in found] == ["wh/flights"]

    def test_uploads_in_no_destination_of_a_bucket_are_looked_after_by_their_topmost_folders(
        self, store: MemoryStore
    ) -> None:
        World(store).put_marker(OTHER)
        for key in (
            "wh/x/1.parquet",
            "wh/flights/1.parquet",
            "other/1.parquet",
            "_x/1",
            "1",
            "a\x07/1",
        ):
            store.apply(CreateUpload(key))
        found = memory_table(store, WH.url).run(destinations_of(UploadsPath("bucket", "")))
        assert [(it.root.prefix, it.kind, it.others) for it in found] == [
            ("wh/flights", "s3a", ()),
            ("other", "directory", ()),
            ("wh", "directory", ("wh/flights/",)),
        ]

    def test_a_table_that_hadoops_committers_wrote_before_is_both(self, store: MemoryStore) -> None:
        memory_table(store, ROOT.url).run(open_try(ROOT, a_try()))
        load(memory_table(store, ROOT.url), 1)
        assert _at(store, ROOT) == Destination(ROOT, is_table=True, is_s3a=True)
        (found,) = memory_table(store, WH.url).run(destinations_below(BELOW))
        assert found.kind == "table and s3a"

    def test_a_marker_of_ours_makes_no_s3a_destination(self, store: MemoryStore) -> None:
        table = memory_table(store, ROOT.url)
        load(table, 1)
        for key in store.keys("wh/flights/_zero_rename/"):
            del store.objects[key]
        assert _at(store, ROOT).kind == "directory"


def _at(store: MemoryStore, root: TableRoot) -> Destination:
    table: Table = memory_table(store, root.url)
    return table.run(destination_at(root))
