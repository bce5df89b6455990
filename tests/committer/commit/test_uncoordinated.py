"""Tables of coordination *none*: one commit without heads, on any S3 store."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.faults import beside, on
from support.memory_store import Behaviour, MemoryStore
from support.protocol import DAY1, DAY2, DAY3, ROOT, World, rows_by_partition
from zero_rename import Table
from zero_rename.committer import (
    UNPARTITIONED,
    Aborted,
    CommitStateUnknownError,
    Committed,
    Coordination,
    DataLostError,
    DestinationExistsError,
    InvalidInputError,
    JobFencedError,
    JobSpec,
    Mode,
    OpenedJob,
    StoreUnfitError,
    SuccessMarker,
    SuccessMarkers,
    TableMismatchError,
    TaskResultsError,
    UnfinishedCommitError,
)
from zero_rename.committer.store.requests import (
    CompleteUpload,
    CreateUpload,
    Put,
    Refused,
    Unknown,
    UploadPart,
)

pytestmark = pytest.mark.memory_s3


class Alone(World):
    """A world whose table has coordination none."""

    def open(self, mode: Mode = Mode.APPEND, **policy: Any) -> OpenedJob:
        policy.setdefault("coordination", Coordination.NONE)
        return super().open(mode, **policy)


#: The second keeps no conditions at all, as the stores do that such tables are for.
STORES = {
    "with conditions": Behaviour(),
    "without conditions": Behaviour(conditional_put=False, conditional_delete=False),
    "that resurrects": Behaviour(complete_again="resurrect", conditional_put=False),
}


@pytest.fixture(params=STORES.values(), ids=list(STORES))
def world(request: pytest.FixtureRequest) -> Alone:
    return Alone(MemoryStore(behaviour=request.param))


def marker(world: World, partition: str = UNPARTITIONED) -> SuccessMarker:
    key = ROOT.marker_key(partition)
    return SuccessMarker.parse(world.store.objects[key].body, key)


class TestCommit:
    def test_rows_are_visible_after_it_only(self, world: Alone) -> None:
        """Conformance 15, 16, 17, 18, 26."""
        opened, result = world.written(DAY1, DAY2)
        assert world.listed(DAY1) == []
        report = world.commit(opened, result)
        assert rows_by_partition(report) == {DAY1: 1, DAY2: 1}
        assert world.listed(DAY1) == [result.files[0].key]
        assert {change.version for change in report.partitions} == {0}
        world.assert_clean()

    def test_there_are_no_heads(self, world: Alone) -> None:
        """Conformance 71: an append neither checks nor deletes."""
        world.load(DAY1)
        first = world.driver.requests[:]
        world.load(DAY1)
        assert world.store.keys(ROOT.heads_prefix) == []
        kinds = {type(request).__name__ for request in world.driver.requests[len(first) :]}
        assert not kinds & {"ListObjects", "Head", "DeleteMany"}
        assert len(world.listed(DAY1)) == 2

    def test_a_job_without_rows(self, world: Alone) -> None:
        """Conformance 30."""
        report = world.load()
        assert (report.files, report.partitions) == (0, ())
        assert marker(world).job == report.job
        world.assert_clean()

    def test_replace_removes_what_is_there_and_nothing_else(self, world: Alone) -> None:
        """Conformance 69."""
        world.load(DAY1, DAY2)
        world.store.apply(Put("flights/day=1/foreign.parquet", b"x"))
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        assert len(world.listed(DAY1)) == 2
        report = world.commit(opened, result)
        assert world.listed(DAY1) == [result.files[0].key]
        assert len(world.listed(DAY2)) == 1
        assert report.partitions[0].removed == 2

    def test_a_named_partition_is_emptied_and_marked(self, world: Alone) -> None:
        world.load(DAY1, DAY2)
        report = world.load(mode=Mode.REPLACE, replace_partitions=(DAY1,))
        assert (world.listed(DAY1), len(world.listed(DAY2))) == ([], 1)
        assert marker(world, DAY1).job == report.job

    def test_the_whole_table(self, world: Alone) -> None:
        world.load(DAY1, DAY2)
        world.store.apply(Put("flights/day=3/foreign.parquet", b"x"))
        world.load(DAY1, mode=Mode.REPLACE, replace_table=True)
        assert len(world.listed(DAY1)) == 1
        assert world.listed(DAY2) == world.listed(DAY3) == []

    def test_the_whole_of_an_unpartitioned_table(self, world: Alone) -> None:
        world.load(UNPARTITIONED, partition_by=())
        world.store.apply(Put("flights/sub/not-ours.parquet", b"x"))
        world.load(mode=Mode.REPLACE, replace_table=True, partition_by=())
        assert world.listed(UNPARTITIONED) == ["flights/sub/not-ours.parquet"]

    def test_fail_if_exists(self, world: Alone) -> None:
        """Conformance 67, 70."""
        world.load(DAY1)
        assert world.load(DAY2, mode=Mode.FAIL_IF_EXISTS).files == 1
        opened = world.open(Mode.FAIL_IF_EXISTS)
        with pytest.raises(DestinationExistsError, match="already holds 1 file,"):
            world.commit(opened, world.write(opened, DAY2, DAY3))
        assert world.listed(DAY3) == []
        world.assert_clean()

    def test_error_of_an_unpartitioned_table_that_holds_files_speaks_of_the_table(
        self, world: Alone
    ) -> None:
        world.load(UNPARTITIONED, partition_by=())
        with pytest.raises(DestinationExistsError, match="The table already") as refused:
            world.load(UNPARTITIONED, mode=Mode.FAIL_IF_EXISTS, partition_by=())
        assert refused.value.remedy == "Append or overwrite instead, or write to another table."

    def test_the_order_readers_see(self, world: Alone) -> None:
        world.load(DAY1)
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        counts: list[int] = []
        world.driver.fault = beside(
            object, lambda: counts.append(len(world.listed(DAY1))), applied=True
        )
        world.commit(opened, result)
        assert 2 in counts
        assert 0 not in counts

    def test_markers_name_the_last_job_whatever_was_there(self, world: Alone) -> None:
        """Conformance 19, 20."""
        world.store.apply(Put(ROOT.marker_key(DAY1), b""))
        report = world.load(DAY1, rows=5)
        for partition in (DAY1, UNPARTITIONED):
            found = marker(world, partition)
            assert (found.job, found.committer) == (report.job, "zero_rename")
            assert found.manifest is not None
            assert (found.manifest.rows, found.manifest.versions) == (5, {DAY1: 0})
        assert marker(world).filenames == tuple(f"/{key}" for key in world.listed(DAY1))

    def test_markers_can_be_left_out(self, world: Alone) -> None:
        """Conformance 21."""
        world.load(DAY1, success_markers=SuccessMarkers.NONE)
        assert not [key for key in world.store.objects if key.endswith("_SUCCESS")]

    def test_results_that_do_not_add_up_abort(self, world: Alone) -> None:
        opened, result = world.written(DAY1)
        with pytest.raises(TaskResultsError):
            world.commit(opened, result, result)
        world.assert_clean()

    def test_killed_attempts_of_several_tasks_are_swept(self, world: Alone) -> None:
        """Conformance 49."""
        opened = world.open()
        results = [world.write(opened, DAY1, task=task) for task in range(2)]
        world.write(opened, DAY1, task=7)
        world.commit(opened, *results)
        assert len(world.listed(DAY1)) == 2
        world.assert_clean()


class TestLostAnswers:
    """Conformance 65."""

    @pytest.mark.parametrize("applied", [True, False])
    @pytest.mark.parametrize("kind", [Put, CompleteUpload])
    def test_change_nothing(self, world: Alone, kind: type, applied: bool) -> None:
        world.load(DAY1)
        world.driver.fault = on(kind, Unknown("connection lost"), applied=applied, times=1)
        report = world.load(DAY1, mode=Mode.REPLACE)
        assert report.files == 1
        assert len(world.listed(DAY1)) == 1
        world.assert_clean()

    def test_of_the_journal_leave_everything_as_it_is(self, world: Alone) -> None:
        opened, result = world.written(DAY1)
        world.driver.fault = on(Put, Unknown("no answer"), ROOT.decisions_prefix)
        with pytest.raises(CommitStateUnknownError):
            world.commit(opened, result)
        assert len(world.store.upload_keys()) == 1
        assert world.store.keys(ROOT.open_prefix)


class TestOwner:
    """Nobody but the owner rolls forward."""

    def unfinished(self, world: Alone, **policy: Any) -> tuple[OpenedJob, Any]:
        """A job whose journal stands and of whose two files one is complete."""
        opened, result = world.written(DAY1, DAY1, **policy)
        done = 0

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            nonlocal done
            if isinstance(request, CompleteUpload):
                done += 1
                if done > 1:
                    return Unknown("no answer")
            return apply(request)

        world.driver.fault = fault
        with pytest.raises(UnfinishedCommitError, match="is committed") as caught:
            world.commit(opened, result)
        assert "recover" not in str(caught.value)
        world.driver.fault = None
        return opened, result

    @pytest.mark.parametrize(
        "mode", [Mode.APPEND, Mode.REPLACE, Mode.FAIL_IF_EXISTS], ids=lambda mode: mode.value
    )
    def test_may_commit_again(self, world: Alone, mode: Mode) -> None:
        """Conformance 50: the retry of a failed job commit succeeds and doubles nothing."""
        if mode is Mode.REPLACE:
            world.load(DAY1)
        opened, result = self.unfinished(world, mode=mode)
        report = world.commit(opened, result)
        assert report.files == 2
        assert world.listed(DAY1) == sorted(file.key for file in result.files)
        world.assert_clean()

    def test_an_abort_after_the_journal_finishes_the_commit(self, world: Alone) -> None:
        opened, _ = self.unfinished(world)
        assert isinstance(world.abort(opened), Committed)
        assert len(world.listed(DAY1)) == 2
        world.assert_clean()

    def test_recovery_reports_only(self, world: Alone) -> None:
        committed, _ = self.unfinished(world)
        undecided = world.open()
        world.write(undecided, DAY2)
        before = dict(world.store.objects), dict(world.store.uploads)
        found = {r.job: r for r in world.recover(patience=0)}
        assert {str(r.outcome) for r in found.values()} == {"left"}
        assert "half visible" in found[committed.job].detail
        assert "undecided" in found[undecided.job].detail
        assert ROOT.open_key(undecided.job) in found[undecided.job].detail
        assert (dict(world.store.objects), dict(world.store.uploads)) == before

    def test_an_upload_that_is_gone_is_named(self, world: Alone) -> None:
        opened, result = world.written(DAY1)
        world.driver.fault = on(CompleteUpload, Refused("NoSuchUpload"))
        with pytest.raises(DataLostError, match="is lost") as caught:
            world.commit(opened, result)
        assert result.files[0].upload_id in str(caught.value)
        assert "mode replace" not in str(caught.value), "that would take other jobs' rows"

    def test_a_replace_is_to_be_loaded_again(self, world: Alone) -> None:
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        world.driver.fault = on(CompleteUpload, Refused("NoSuchUpload"))
        with pytest.raises(DataLostError, match="again with mode replace"):
            world.commit(opened, result)


class TestAbort:
    def test_nothing_is_left(self, world: Alone) -> None:
        """Conformance 45, 46, 47, 57."""
        opened, result = world.written(DAY1, DAY2)
        assert world.abort(opened, result) == Aborted(opened.job, ROOT.url, uploads=2)
        assert isinstance(world.abort(opened, result), Aborted)
        assert world.listed(DAY1) == []
        world.assert_clean()

    def test_never_over_an_own_commit(self, world: Alone) -> None:
        opened, result = world.written(DAY1)
        world.commit(opened, result)
        assert isinstance(world.abort(opened, result), Committed)
        assert len(world.listed(DAY1)) == 1

    def test_a_commit_after_it_is_refused_where_the_store_can(self) -> None:
        world = Alone()
        opened, result = world.written(DAY1)
        world.abort(opened, result)
        with pytest.raises(JobFencedError):
            world.commit(opened, result)
        assert world.listed(DAY1) == []


class TestTable:
    def test_another_coordination_is_refused_both_ways(self) -> None:
        alone = Alone()
        alone.load(DAY1)
        with pytest.raises(TableMismatchError, match=r"coordination is none.*coordination=none"):
            alone.open(coordination=Coordination.STORE)
        alone.assert_clean()
        world = World()
        world.load(DAY1)
        with pytest.raises(TableMismatchError, match="coordination is store"):
            world.open(coordination=Coordination.NONE)
        world.assert_clean()

    def test_a_once_key_is_refused_before_any_request(self, world: Alone) -> None:
        with pytest.raises(InvalidInputError, match="idempotency key"):
            world.open(idempotency_key="run")
        assert world.driver.requests == []

    def test_opening_says_loudly_what_is_not_promised(
        self, world: Alone, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            world.open()
        assert "coordination=none" in caplog.text
        assert "nobody else finishes" in caplog.text

    @pytest.mark.parametrize("refuses", [False, True])
    def test_a_store_without_conditions_is_told_of_it(self, refuses: bool) -> None:
        """Whether it ignores the condition or refuses the request."""
        world = World(MemoryStore(behaviour=Behaviour(conditional_put=False)))

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            if refuses and isinstance(request, Put) and (request.if_none_match or request.if_match):
                return Refused("NotImplemented")
            return apply(request)

        world.driver.fault = fault
        with pytest.raises(StoreUnfitError) as caught:
            world.load(DAY1)
        assert "coordination=none" in str(caught.value)
        alone = Alone(world.store)
        alone.driver.fault = fault
        alone.load(DAY1)
        assert len(alone.listed(DAY1)) == 1
        alone.assert_clean()

    def test_one_that_lists_no_uploads_is_refused_all_the_same(self) -> None:
        world = Alone(MemoryStore(behaviour=Behaviour(conditional_put=False)))

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            reply = apply(request)
            return type(reply)((), None, reply.date) if hasattr(reply, "uploads") else reply

        world.driver.fault = fault
        with pytest.raises(StoreUnfitError, match="does not list"):
            world.open()


class TestSnapshot:
    def test_is_what_a_listing_shows(self, world: Alone) -> None:
        """Conformance 25."""
        world.load(DAY1, DAY2)
        for key in ("day=1/_hidden", "day=1/.tmp", "_x/y", "stray", "day=1/hour=2/deep", "day=9/"):
            world.store.apply(Put(f"flights/{key}", b"x"))
        snapshot = world.snapshot()
        assert [f.partition for f in snapshot.files] == [DAY1, DAY2]
        assert {(f.rows, f.checksum, f.is_foreign) for f in snapshot.files} == {(-1, "", True)}
        assert snapshot.versions == {}
        assert [f.partition for f in world.snapshot([DAY2]).files] == [DAY2]

    def test_of_the_partitions_that_a_filter_lets_through(self, world: Alone) -> None:
        class Late:
            """As the data source's reader asks: it cannot be listed."""

            def __contains__(self, name: str) -> bool:
                return name == DAY2

            def __iter__(self) -> Any:
                return iter(())

            def __len__(self) -> int:
                return 0

        world.load(DAY1, DAY2)
        wanted: Any = Late()
        assert [f.partition for f in world.snapshot(wanted).files] == [DAY2]


class TestPurge:
    def upload(self, world: World, key: str) -> str:
        created = world.store.apply(CreateUpload(key))
        world.store.apply(UploadPart(key, created.upload_id, 1, b"x"))
        return key

    def test_goes_by_the_table_of_the_protocol_text(self, world: Alone) -> None:
        committed = world.load(DAY1)
        aborted = world.open()
        world.abort(aborted)
        live = world.open()
        late = f"flights/day=1/part-00009-{committed.job}-0.parquet"
        killed = f"flights/day=1/part-00009-{aborted.job}-0.parquet"
        lives = f"flights/day=1/part-00000-{live.job}-0.parquet"
        for key in (late, killed, lives, "flights/day=1/foreign"):
            self.upload(world, key)
        report = world.purge()
        assert {entry.key: str(entry.action) for entry in report.entries} == {
            late: "aborted",
            killed: "aborted",
            lives: "kept",
            "flights/day=1/foreign": "kept",
        }
        assert [str(r.outcome) for r in report.recovered] == ["left"]


DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


class TestOnARealServer:
    @pytest.fixture
    def table(self, s3_bucket: Any) -> Table:
        return Table(f"s3://{s3_bucket.name}/flights")

    def test_one_file_appended_takes_eight_requests(self, table: Table, s3_bucket: Any) -> None:
        """Conformance 68: none of them looks for what is there."""
        data = pa.table({"value": [1]})
        for _ in range(2):
            s3_bucket.counter.reset()
            with table.job(data.schema, coordination=Coordination.NONE) as job:
                job.write(data)
        log = s3_bucket.counter.log()
        assert len(log) <= 8, log
        counts = s3_bucket.counter.counts()
        assert not {"ListObjects", "HeadObject", "ListMultipartUploads"} & set(counts), counts
        assert table.to_arrow().num_rows == 2

    def test_a_job_from_plain_python(self, table: Table, s3_bucket: Any) -> None:
        for mode in ("append", "replace"):
            with table.job(
                DATA.schema, mode=mode, partition_by=["day"], coordination="none"
            ) as job:
                job.write(DATA)
        assert job.committed is not None
        assert table.to_arrow().num_rows == 3
        assert table.partitions() == ["day=1", "day=2"]
        assert table.open_jobs() == []
        assert table.result(job.committed.job) == job.committed
        body = json.loads(s3_bucket.read(table.root.table_key))
        assert body["coordination"] == "none"

    def test_words_that_are_no_choice_are_refused(self, table: Table, s3_bucket: Any) -> None:
        """Conformance 13."""
        for name in ("mode", "coordination", "on_conflict", "success_markers"):
            with pytest.raises(InvalidInputError, match=f"{name}(=| is )'upsert'"):
                table.job(DATA.schema, **{name: "upsert"})  # type: ignore[arg-type]
        assert s3_bucket.counter.total() == 0

    def test_an_abort_from_a_spec(self, table: Table, s3_bucket: Any) -> None:
        spec = JobSpec(DATA.schema, partition_by=("day",), coordination=Coordination.NONE)
        opened = table.open_job(spec)
        writer = table.task_writer(opened, 0, 0)
        writer.write(DATA)
        writer.close()
        outcome = table.abort(opened)
        assert isinstance(outcome, Aborted)
        assert outcome.uploads == 2
        assert s3_bucket.uploads() == []


@pytest.mark.memory_s3
def test_a_job_is_warned_of_once(s3_bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        table = Table(f"s3://{s3_bucket.name}/flights")
        with table.job(pa.schema([("delay", pa.int64())]), coordination="none"):
            pass
    assert caplog.text.count("do not notice each other") == 1
