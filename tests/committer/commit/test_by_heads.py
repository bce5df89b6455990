"""Tables that are read by heads: where their files lie, what a job asks and what it leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from support.faults import Crash, beside, on
from support.memory_store import MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World, memory_table
from zero_rename.committer import (
    CommitConflictError,
    DamagedError,
    DestinationExistsError,
    FileOptions,
    InvalidInputError,
    JobFencedError,
    Mode,
    OnRepeat,
    RecordDamagedError,
    StoreUnfitError,
    Table,
    TableMismatchError,
    TaskResultsError,
)
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.commit.state.job_state import OpenedJob
from zero_rename.committer.format.records import codec
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.upkeep.gc.collect import gc

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])
KEY = re.compile(
    r"flights/_zero_rename/data/(zr1-\w{26})/day=1/part-00000-0-[0-9a-f]{8}-0000\.parquet"
)


def rows(value: int, day: int = 1) -> pa.Table:
    return pa.table({"value": [value], "day": [day]}, schema=SCHEMA)


def load(
    store: MemoryStore,
    value: int,
    day: int = 1,
    meanwhile: Callable[[], object] = bool,
    **policy: object,
) -> Table:
    """One row, by a process of its own.

    :param meanwhile: what happens before the job commits.
    """
    table = memory_table(store)
    policy = {"partition_by": ["day"], "readers": "heads", **policy}
    with table.job(SCHEMA, **policy) as job:  # type: ignore[arg-type]
        job.write(rows(value, day))
        meanwhile()
    return table


def values(store: MemoryStore) -> list[int]:
    return sorted(memory_table(store).to_arrow()["value"].to_pylist())


def put(store: MemoryStore, key: str) -> None:
    """What a stranger writes."""
    store.apply(s.Put(key, b"PAR1"))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class TestPlace:
    def test_files_lie_below_their_job_and_nothing_else_outside_the_records(
        self, store: MemoryStore
    ) -> None:
        load(store, 1)
        table = load(store, 2)
        files = table.snapshot().files
        assert [KEY.fullmatch(file.key)[1] for file in files] == [file.job for file in files]  # type: ignore[index]
        outside = [key for key in store.keys("") if "/_zero_rename/" not in key]
        assert outside == ["flights/_SUCCESS", "flights/day=1/_SUCCESS"]

    def test_two_attempts_of_one_number_share_no_key(self, store: MemoryStore) -> None:
        table = memory_table(store)
        with table.job(SCHEMA, partition_by=["day"], readers="heads") as job:
            writers = [table.task_writer(job.opened, 0, 0) for _ in range(2)]
            for value, writer in enumerate(writers):
                writer.write(rows(value))
            results = [writer.close() for writer in writers]
            job.take(results[1:], 1)
        assert values(store) == [1]
        assert len(store.keys(ROOT.data_prefix)) == 1

    def test_a_large_file_is_an_upload_that_its_task_completes(self, store: MemoryStore) -> None:
        table = memory_table(store)
        body = pa.table({"value": range(1_500_000)}, schema=pa.schema([("value", pa.int64())]))
        files = FileOptions(part_bytes=5 * 1024**2, compression="none", row_group_rows=300_000)
        with table.job(body.schema, readers="heads", files=files) as job:
            job.write(body)
        (file,) = memory_table(store).snapshot().files
        assert store.objects[file.key].etag.endswith("-3")
        assert memory_table(store).to_arrow().num_rows == 1_500_000
        assert not store.uploads


class TestRecords:
    def test_former_versions_refuse_the_table_and_its_decisions(
        self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = load(store, 1)
        (job,) = {file.job for file in table.snapshot().files}
        monkeypatch.setattr(codec, "FORMAT", 2)
        record, decision = ROOT.table_key, ROOT.decision_key(job)
        with pytest.raises(RecordDamagedError, match="Upgrade"):
            TableRecord.decode(store.objects[record].body, record)
        with pytest.raises(RecordDamagedError, match="Upgrade"):
            Decision.decode(store.objects[decision].body, decision, ROOT, job)

    def test_a_table_whose_readers_list_is_written_as_before(self, store: MemoryStore) -> None:
        load(store, 1, readers=None)
        record = json.loads(store.objects[ROOT.table_key].body)
        assert record["format"] == 1
        assert not {"readers", "retention"} & record.keys()

    def test_a_table_json_that_is_gone_is_made_again_with_the_same_readers(
        self, store: MemoryStore
    ) -> None:
        load(store, 1)
        del store.objects[ROOT.table_key]
        load(store, 2, readers=None)
        assert values(store) == [1, 2]
        assert json.loads(store.objects[ROOT.table_key].body)["readers"] == "heads"


class TestRefused:
    @pytest.mark.parametrize(("first", "later"), [("heads", "listing"), (None, "heads")])
    def test_other_readers_than_the_tables(
        self, store: MemoryStore, first: str | None, later: str
    ) -> None:
        load(store, 1, readers=first)
        with pytest.raises(TableMismatchError, match=f"readers={first or 'listing'}.*{later}"):
            load(store, 2, readers=later)
        load(store, 3, readers=None)
        assert values(store) == [1, 3]

    def test_racing_first_jobs_of_two_kinds(self, store: MemoryStore) -> None:
        with pytest.raises(TableMismatchError, match="readers"):
            load(store, 1, meanwhile=lambda: load(store, 2), readers=None)
        assert values(store) == [2]

    def test_coordination_none(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidInputError, match="readers=heads"):
            load(store, 1, coordination="none")
        assert not store.objects

    def test_a_word_that_is_none(self) -> None:
        with pytest.raises(InvalidInputError, match="listing, heads"):
            memory_table(MemoryStore()).job(SCHEMA, readers="head")

    @pytest.mark.parametrize("replace_table", [False, True])
    def test_files_from_before_the_table(self, store: MemoryStore, replace_table: bool) -> None:
        put(store, "flights/day=1/part-0.parquet")
        mode = "overwrite" if replace_table else "append"
        with pytest.raises(TableMismatchError, match="readers=heads"):
            load(store, 1, mode=mode, replace_table=replace_table)
        assert store.keys("") == ["flights/day=1/part-0.parquet"]

    @pytest.mark.parametrize("prefix", ["", "flights/", "flights/_zero_rename/data/"])
    def test_a_first_write_where_a_lifecycle_rule_expires_what_it_writes(
        self, store: MemoryStore, prefix: str
    ) -> None:
        store.rules = (LifecycleRule("tidy", prefix, expires=True),)
        with pytest.raises(StoreUnfitError, match=r"rule 'tidy' deletes by age.*own retention"):
            load(store, 1)
        assert store.keys("") == []
        load(store, 1, readers="listing")

    @pytest.mark.parametrize(
        "rule",
        [
            LifecycleRule("elsewhere", "flights_old/", expires=True),
            LifecycleRule("of a folder that no file is in", "flights/day=1/", expires=True),
            LifecycleRule("of some tags", "", expires=True, tags={"kind": "scratch"}),
            LifecycleRule("of empty objects", "", expires=True, smaller=1),
            LifecycleRule("of uploads", "", abort_days=7),
        ],
        ids=lambda rule: rule.name,
    )
    def test_not_where_it_concerns_others(self, store: MemoryStore, rule: LifecycleRule) -> None:
        store.rules = (rule,)
        load(store, 1)
        store.rules = (LifecycleRule("later", "", expires=True),)
        load(store, 2)  # The table is there: it is the doctor's to say.
        assert values(store) == [1, 2]

    @pytest.mark.parametrize(
        "rule",
        [
            LifecycleRule("narrow", "", expires=True, tags={"kind": "scratch"}),
            LifecycleRule("narrow", "", expires=True, larger=1_000_000),
        ],
    )
    def test_where_a_rule_is_narrowed_to_what_it_writes(
        self, store: MemoryStore, rule: LifecycleRule
    ) -> None:
        store.rules = (rule,)
        with pytest.raises(StoreUnfitError, match="rule 'narrow' deletes by age"):
            load(store, 1, files=FileOptions(tags={"kind": "scratch"}))
        assert store.keys("") == []

    def test_not_where_the_store_does_not_tell_the_rules(self, store: MemoryStore) -> None:
        table = memory_table(store)
        world = World(store)
        world.driver.fault = on(s.ListLifecycleRules, s.Unknown("403 AccessDenied"))
        world.load(DAY1, readers="heads")
        assert table.exists()

    def test_files_that_come_while_the_first_job_writes(self, store: MemoryStore) -> None:
        with pytest.raises(TableMismatchError, match="readers=heads"):
            load(store, 1, meanwhile=lambda: put(store, "flights/day=2/part-0.parquet"))
        assert ROOT.table_key not in store.objects
        assert not store.keys(ROOT.data_prefix)

    def test_pending_uploads_of_a_task_that_takes_the_table_for_another(
        self, store: MemoryStore
    ) -> None:
        load(store, 1)
        world = World(store)
        opened = world.open()
        listing = replace(opened, readers="listing")
        with pytest.raises(TaskResultsError, match="readers=heads"):
            world.commit(opened, world.write(listing, DAY1))


class TestLostHead:
    """No directory tells of a partition whose head is gone: its marker and the index do."""

    @pytest.mark.parametrize("known_by", ["marker", "index", "claim given back"])
    def test_an_append_is_refused(self, store: MemoryStore, known_by: str) -> None:
        load(store, 1)
        load(store, 2, day=2)
        if known_by == "index":
            World(store).write_index()
            del store.objects[ROOT.marker_key(DAY1)]
            del store.objects["flights/_SUCCESS"]
        if known_by == "claim given back":
            head, key = store.objects[ROOT.head_key(DAY1)], ROOT.head_key(DAY1)
            empty = re.sub(rb'"version":1', b'"version":0', head.body)
            store.objects[key] = replace(head, body=empty)
        else:
            del store.objects[ROOT.head_key(DAY1)]
        with pytest.raises(DamagedError, match="repair") as caught:
            load(store, 3)
        assert caught.value.key == ROOT.head_key(DAY1)
        assert len(store.keys(ROOT.data_prefix)) == 2, "what it held is there"

    def test_a_replace_makes_it_whole(self, store: MemoryStore) -> None:
        load(store, 1)
        del store.objects[ROOT.head_key(DAY1)]
        load(store, 2, mode="overwrite")
        assert values(store) == [2]

    def test_a_marker_of_another_table_that_was_here_says_nothing(self, store: MemoryStore) -> None:
        load(store, 1)
        for key in [key for key in store.objects if "/_zero_rename/" in key]:
            del store.objects[key]
        load(store, 2, day=2)
        load(store, 3)
        assert values(store) == [2, 3]

    def test_a_new_partition_costs_three_requests(self, store: MemoryStore) -> None:
        load(store, 1)
        load(store, 2, day=2)
        again, new = (len(load(store, 3, day=day).driver.requests) for day in (2, 3))  # type: ignore[attr-defined]
        # Its marker, before and after the decision, and the index.
        assert new - again == 3


class TestJobs:
    def test_a_replace_leaves_what_was_there_unseen(self, store: MemoryStore) -> None:
        before = {file.key for file in load(store, 1).snapshot().files}
        load(store, 2, mode="overwrite")
        assert values(store) == [2]
        assert before < set(store.keys(ROOT.data_prefix))

    def test_a_replace_of_the_whole_table_empties_every_partition(self, store: MemoryStore) -> None:
        load(store, 1, day=1)
        load(store, 2, day=2)
        load(store, 3, day=3, mode="overwrite", replace_table=True)
        assert values(store) == [3]

    def test_fail_if_exists_asks_the_head(self, store: MemoryStore) -> None:
        load(store, 1)
        with pytest.raises(DestinationExistsError, match="1 file"):
            load(store, 2, mode="fail-if-exists")
        # Emptied, though what it held is still in the store.
        table = memory_table(store)
        with table.job(mode="overwrite", replace_partitions=[DAY1]):
            pass
        load(store, 3, mode="fail-if-exists")
        assert values(store) == [3]

    def test_a_run_that_is_cleared_takes_its_own_rows_back(self, store: MemoryStore) -> None:
        load(store, 1)
        load(store, 2, idempotency_key="run")
        load(store, 3, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert values(store) == [1, 3]
        again = load(store, 4, idempotency_key="run", on_repeat=OnRepeat.SKIP)
        assert again.to_arrow().num_rows == 2

    def test_a_cleared_run_is_refused_whose_rows_a_compaction_wrote_again(
        self, store: MemoryStore
    ) -> None:
        load(store, 1, idempotency_key="run")
        for value in (2, 3, 4):
            load(store, value)
        (compacted,) = memory_table(store).compact(apply=True)
        assert compacted.files_after == 1
        with pytest.raises(CommitConflictError, match="compaction"):
            load(store, 5, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert values(store) == [1, 2, 3, 4]

    def test_an_abort_removes_what_was_written(self, store: MemoryStore) -> None:
        load(store, 1)
        kept = store.keys(ROOT.data_prefix)
        with pytest.raises(ZeroDivisionError):
            load(store, 2, meanwhile=lambda: 1 // 0)
        assert store.keys(ROOT.data_prefix) == kept
        assert not store.keys(ROOT.open_prefix)

    def test_what_losers_wrote_goes_with_the_commit(self, store: MemoryStore) -> None:
        load(store, 1)
        world = World(store)
        opened = world.open()
        store.apply(s.PutFile(ROOT.attempt_key(DAY1, "00000-1", opened.job, 0), b"lost"))
        store.apply(s.PutFile(ROOT.attempt_key(DAY2, "00001-0", opened.job, 0), b"lost"))
        done = world.commit(opened, world.write(opened, DAY1))
        of_it = store.keys(ROOT.job_data_prefix(done.job))
        assert of_it == [file.key for file in world.snapshot().files if file.job == done.job]

    def test_a_job_that_one_process_writes_looks_for_no_losers(self, store: MemoryStore) -> None:
        load(store, 1)
        table = memory_table(store)
        with table.job() as job:
            job.write(rows(2))
        asked = [it for it in table.driver.requests if isinstance(it, s.ListObjects)]  # type: ignore[attr-defined]
        assert ROOT.job_data_prefix(job.job) not in {it.prefix for it in asked}  # type: ignore[arg-type]

    @pytest.mark.parametrize("there", ["another's", "none"])
    def test_a_marker_that_is_not_the_one_that_the_head_knows(
        self, store: MemoryStore, there: str
    ) -> None:
        """It is read, then, and written over."""
        load(store, 1)
        key = ROOT.marker_key(DAY1)
        put(store, key)
        if there == "none":
            del store.objects[key]
        load(store, 2)
        table = load(store, 3)
        last = table.snapshot().files[-1].job
        assert json.loads(store.objects[key].body)["jobId"] == last
        asked = [it for it in table.driver.requests if isinstance(it, s.Get)]  # type: ignore[attr-defined]
        assert key not in {it.key for it in asked}, "the head knows it again"

    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
    def test_a_crash_at_any_request_leaves_all_or_nothing(self, mode: Mode) -> None:
        """And recovery leaves no file that no head names, but those of the state before."""
        number, outcomes = 0, set()
        while True:
            world = World()
            world.load(DAY1, readers="heads")
            before = world.snapshot()
            sent = 0

            def crash(request: s.Request, apply, number: int = number):
                nonlocal sent
                sent += 1
                if sent == number + 1:
                    raise Crash
                return apply(request)

            world.driver.fault = crash
            opened = None
            try:
                opened, result = world.written(DAY1, DAY2, mode=mode)
                world.commit(opened, result)
            except Crash:
                pass
            crashed, world.driver.fault = sent > number, None
            world.recover(patience=0)
            world.assert_clean()
            after = world.snapshot()
            job = opened.job if opened is not None else ""
            added = {file.partition for file in after.files if file.job == job}
            assert added in (set(), {DAY1, DAY2})
            kept = {file.key for file in before.files}
            assert kept <= set(world.store.objects)
            named = {file.key for file in after.files}
            assert named <= set(world.store.keys(ROOT.data_prefix)) <= named | kept
            outcomes.add(bool(added))
            if not crashed:
                assert outcomes == {True, False}
                return
            number += 1


class TestFenced:
    """A job that slept with its claims, was fenced, and goes on while others have moved its heads
    is told that it was fenced."""

    @staticmethod
    def _overtaken(world: World, others: Callable[[World], object], opened: OpenedJob, key: str):
        """Fence the job as it reads a key at its commit, and let others go on."""
        other = World(world.store)

        def fence() -> None:
            other.recover(patience=0.0)
            others(other)

        result = world.write(opened, DAY1)
        world.driver.fault = beside(s.Get, fence, key, times=1)
        with pytest.raises(JobFencedError) as caught:
            world.commit(opened, result)
        assert caught.value.job == opened.job
        assert isinstance(caught.value.__cause__, DamagedError)
        world.recover(patience=0.0)
        world.assert_clean()
        assert opened.job not in world.jobs_of(DAY1)

    def test_an_append_to_a_partition_that_another_job_makes_meanwhile(
        self, store: MemoryStore
    ) -> None:
        world = World(store)
        world.load(DAY2, readers="heads")
        self._overtaken(world, lambda other: other.load(DAY1), world.open(), ROOT.marker_key(DAY1))

    def test_a_cleared_run_whose_rows_are_in_a_list_that_is_folded_meanwhile(
        self, store: MemoryStore
    ) -> None:
        world = World(store)
        small = Limits(decisions_per_head=1)
        world.context = replace(world.context, limits=small)
        world.load(DAY1, readers="heads", idempotency_key="run")
        world.load(DAY1)
        world.load(DAY1)

        def fold(other: World) -> None:
            other.context = replace(other.context, limits=small)
            for _ in range(3):
                other.load(DAY1)
            other.driver.run(gc(other.context, -1.0, apply=True))

        opened = world.open(idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        self._overtaken(world, fold, opened, "/manifests/")
