"""Jobs from open to close on a store in memory: what each mode leaves, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.faults import Crash, beside, on
from support.memory_store import Behaviour, MemoryStore
from support.protocol import (
    DAY1,
    DAY2,
    DAY3,
    ROOT,
    World,
    die_before_applying,
    die_of,
    rows_by_partition,
)
from zero_rename.committer import (
    UNPARTITIONED,
    Aborted,
    CommitConflictError,
    Committed,
    DamagedError,
    DestinationExistsError,
    InvalidInputError,
    JobFencedError,
    Mode,
    OnConflict,
    OnRepeat,
    OpenedJob,
    OtherJobError,
    RefusedError,
    StoreUnreachableError,
    SuccessMarker,
    SuccessMarkers,
    TableMismatchError,
    TableNotFoundError,
    TaskResultsError,
    UnfinishedAbortError,
)
from zero_rename.committer.commit.commit import commit_job
from zero_rename.committer.commit.state.context import Limits, Waiting
from zero_rename.committer.commit.state.decide import decide
from zero_rename.committer.commit.state.heads import read_head, swap_head
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.failure import is_final
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.partition_decision import PartitionDecision
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    Delete,
    Deleted,
    DeleteMany,
    Put,
    Unknown,
)


@pytest.fixture
def world() -> World:
    return World()


def marker(world: World, partition: str = UNPARTITIONED) -> SuccessMarker:
    key = ROOT.marker_key(partition)
    return SuccessMarker.parse(world.store.objects[key].body, key)


def put(world: World, key: str, body: bytes = b"foreign") -> None:
    world.store.apply(Put(key, body))


class TestAppend:
    def test_rows_are_visible_after_commit_only(self, world: World) -> None:
        """Conformance 15, 16, 17, 18, 25, 26."""
        opened, result = world.written(DAY1, DAY2)
        assert world.listed(DAY1) == []
        assert len(world.store.upload_keys()) == 2
        report = world.commit(opened, result)
        assert rows_by_partition(report) == {DAY1: 1, DAY2: 1}
        assert world.listed(DAY1) == [result.files[0].key]
        assert world.jobs_of(DAY1) == [opened.job]
        world.assert_clean()

    def test_the_second_job_adds(self, world: World) -> None:
        first = world.load(DAY1)
        second = world.load(DAY1)
        assert world.jobs_of(DAY1) == [first.job, second.job]
        assert second.partitions[0].version == 2

    def test_a_job_without_rows_commits(self, world: World) -> None:
        """Conformance 30."""
        report = world.load()
        assert (report.files, report.rows, report.partitions) == (0, 0, ())
        world.assert_clean()

    def test_more_than_ten_small_files_are_told_of_whatever_is_beside_them(
        self, world: World
    ) -> None:
        opened, result = world.written(*[DAY1] * 12, *[DAY2] * 10)
        large = replace(result.files[0], size=100 * 1024**2)
        report = world.commit(opened, replace(result, files=(large, *result.files[1:])))
        assert [change.small for change in report.partitions] == [11, 10]
        assert report.many_small == (DAY1,)

    def test_files_that_were_there_are_adopted_once(self, world: World) -> None:
        put(world, "flights/day=1/old.parquet")
        put(world, "flights/day=1/_hidden")
        put(world, "flights/day=10/other.parquet")
        report = world.load(DAY1)
        files = world.snapshot([DAY1]).files
        assert next(file.key for file in files) == "flights/day=1/old.parquet"
        assert [file.job for file in files] == ["", report.job]
        put(world, "flights/day=1/late.parquet")
        world.load(DAY1)
        assert len(world.snapshot([DAY1]).files) == 3

    def test_unpartitioned(self, world: World) -> None:
        first = world.load(UNPARTITIONED, partition_by=())
        second = world.load(UNPARTITIONED, partition_by=())
        assert world.jobs_of(UNPARTITIONED) == [first.job, second.job]
        assert marker(world).job == second.job

    def test_many_appends_fold_into_a_manifest_and_the_head_stays_small(self, world: World) -> None:
        jobs = [world.load(DAY1).job for _ in range(60)]
        assert world.jobs_of(DAY1) == jobs
        assert len(world.store.objects[ROOT.head_key(DAY1)].body) < 4000
        assert world.store.keys(f"{ROOT.prefix}/_zero_rename/manifests/")


class TestFolding:
    """Of a partition's many decisions into one manifest."""

    @staticmethod
    def head(world: World) -> PartitionHead:
        return world.driver.run(read_head(world.context, Slot.partition(ROOT, DAY1))).head

    def test_a_manifest_that_came_too_late_is_deleted(self) -> None:
        """Another applier of the same job moved the head: nothing names ours."""
        world = World().with_context(limits=Limits(decisions_per_head=1))
        first = world.load(DAY1)
        opened, result = world.written(DAY1)
        written = []

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            answer = apply(request)
            if isinstance(request, Put) and "/manifests/" in request.key:
                written.append(request.key)
                assert [r.outcome for r in world.with_context().recover()] == ["committed"]
            return answer

        world.driver.fault = fault
        world.commit(opened, result)
        manifest = self.head(world).manifest
        assert manifest is not None
        assert world.store.keys(f"{ROOT.prefix}/_zero_rename/manifests/") == [manifest.key]
        assert written
        assert manifest.key not in written
        assert world.jobs_of(DAY1) == [first.job, opened.job]
        world.assert_clean()

    def test_a_manifest_stays_whose_head_was_claimed_before_its_swap_was_confirmed(self) -> None:
        """The swap's answer is lost, and what is read back is the next job's claim on our head."""
        world = World().with_context(limits=Limits(decisions_per_head=1))
        first = world.load(DAY1)
        second, result = world.written(DAY1)
        third, waiting = world.written(DAY1)

        def claimed_before_it_is_read_back(request: Any, apply: Callable[[Any], Any]) -> Any:
            answer = apply(request)
            if not (isinstance(request, Put) and b'"manifest":{' in request.body):
                return answer
            world.driver.fault = None
            dies = on(Put, Crash, ROOT.decision_key(third.job))
            die_of(dies, world.with_context(), third, waiting)
            return Unknown("lost")

        world.driver.fault = claimed_before_it_is_read_back
        world.commit(second, result)
        head = self.head(world)
        assert head.claim == third.job
        assert head.manifest is not None
        assert world.jobs_of(DAY1) == [first.job, second.job]
        world.recover(patience=0.0)
        world.assert_clean()

    def test_a_head_lists_as_dropped_what_its_manifest_holds_and_no_more(self) -> None:
        world = World().with_context(limits=Limits(decisions_per_head=2))
        folded = world.load(DAY1, idempotency_key="folded")
        others = [world.load(DAY1).job for _ in range(2)]
        assert self.head(world).manifest is not None
        recent = world.load(DAY1, idempotency_key="recent")
        assert self.head(world).decisions == (recent.job,)
        again = world.load(DAY1, idempotency_key="recent", on_repeat=OnRepeat.REPLACE_OWN)
        assert self.head(world).dropped == ()
        assert world.jobs_of(DAY1) == [folded.job, *others, again.job]
        last = world.load(DAY1, idempotency_key="folded", on_repeat=OnRepeat.REPLACE_OWN)
        assert self.head(world).dropped == (folded.job,)
        assert world.jobs_of(DAY1) == [*others, again.job, last.job]

    def test_a_replace_takes_the_manifest_and_what_was_dropped_from_it(self) -> None:
        world = World().with_context(limits=Limits(decisions_per_head=2))
        folded = world.load(DAY1, idempotency_key="run")
        for _ in range(2):
            world.load(DAY1)
        world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert self.head(world).dropped == (folded.job,)
        report = world.load(DAY1, mode=Mode.REPLACE)
        head = self.head(world)
        assert (head.decisions, head.manifest, head.dropped) == ((report.job,), None, ())

    def test_attempt_that_appends_keeps_the_rows_before_it_and_is_itself_replaced_later(
        self,
    ) -> None:
        world = World()
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": OnRepeat.REPLACE_OWN}
        first = world.load(DAY1, **own)
        world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.APPEND)
        for _ in range(2):
            last = world.load(DAY1, **own)
            assert world.jobs_of(DAY1) == [first.job, last.job]


class TestOthersInTheWay:
    """What fails about another job is not told as if it were about one's own."""

    @staticmethod
    def in_the_way(world: World) -> str:
        """A job that has decided, and whose process died before it applied anything."""

        opened, result = world.written(DAY1)
        die_before_applying(world.with_context(), opened, result)
        return opened.job

    def check(self, world: World, mine: OpenedJob, other: str, error: OtherJobError) -> None:
        assert (error.job, error.other) == (mine.job, other)
        assert "can be run again" in error.message
        assert f"zero-rename recover {ROOT.url}" in (error.remedy or "")
        world.driver.fault = None
        world.recover(patience=0.0)
        assert mine.job not in world.jobs_of(DAY1)
        world.load(DAY1)
        world.assert_clean()

    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
    def test_a_committed_one_that_cannot_be_finished(self, mode: Mode) -> None:
        """A later try of a replace would be on top of it, as soon as somebody has finished it."""
        world = World()
        world.load(DAY1)
        mine = world.open(mode)
        other = self.in_the_way(world)
        result = world.write(mine, DAY1)
        world.driver.fault = on(CompleteUpload, Unknown("no answer"), other)
        with pytest.raises(OtherJobError) as caught:
            world.commit(mine, result)
        assert is_final(caught.value, ROOT) is (mode is Mode.REPLACE)
        self.check(world, mine, other, caught.value)

    @pytest.mark.parametrize("on_repeat", OnRepeat)
    def test_an_earlier_try_that_cannot_be_finished(self, on_repeat: OnRepeat) -> None:
        """The job that opens is not the one that is committed."""
        world = World()
        world.load(DAY1)
        run: dict[str, Any] = {
            "mode": Mode.REPLACE,
            "idempotency_key": "run",
            "on_repeat": on_repeat,
        }
        opened, result = world.written(DAY1, **run)
        die_before_applying(world.with_context(), opened, result)
        stays_open = False

        def fault(request: Any, apply: Any) -> Any:
            """Applied once, it stays open; then the store deletes nothing any more."""
            nonlocal stays_open
            if isinstance(request, Delete) and request.key == ROOT.open_key(opened.job):
                stays_open = True
                return Unknown("no answer")
            if isinstance(request, DeleteMany) and stays_open:
                return Deleted({key: "SlowDown" for key, _ in request.items})
            return apply(request)

        world.driver.fault = fault
        with pytest.raises(OtherJobError) as caught:
            world.open(**run)
        assert caught.value.other == opened.job != caught.value.job
        assert "can be run again" in caught.value.message
        world.driver.fault = None
        assert world.load(DAY1, **run).repeated is (on_repeat is OnRepeat.SKIP)

    def test_one_whose_uploads_are_gone(self) -> None:
        world = World()
        world.load(DAY1)
        other = self.in_the_way(world)
        world.store.uploads.clear()
        mine, result = world.written(DAY1)
        with pytest.raises(OtherJobError, match="is lost") as caught:
            world.commit(mine, result)
        assert caught.value.other == other
        remedy = caught.value.remedy or ""
        assert f"zero-rename repair {ROOT.url} --job {other} --accept-loss (" in remedy
        assert remedy.endswith("Then run this job again.")

    def test_one_whose_fencing_is_unknown(self) -> None:
        world = World().with_context(waiting=Waiting(silence=0.0, cap=0.0, poll=0.1))
        world.load(DAY1)
        other = world.open()
        slot = Slot.partition(ROOT, DAY1)
        state = world.driver.run(read_head(world.context, slot))
        claimed = state.head.claimed(other.job, "process", "w-other", state.etag)
        world.driver.run(swap_head(state, claimed))
        mine, result = world.written(DAY1)
        world.driver.fault = on(Put, Unknown("no answer"), ROOT.decision_key(other.job))
        with pytest.raises(OtherJobError) as caught:
            world.commit(mine, result)
        self.check(world, mine, other.job, caught.value)

    def test_an_abort_whose_uploads_stay_listed_says_that_the_job_is_aborted(self) -> None:
        world = World()
        opened, result = world.written(DAY1)
        world.driver.fault = lambda request, apply: (
            Unknown("no answer") if isinstance(request, AbortUpload) else apply(request)
        )
        with pytest.raises(UnfinishedAbortError, match="is aborted") as caught:
            world.abort(opened, result)
        assert isinstance(caught.value, RefusedError)
        assert "may be run again" in (caught.value.remedy or "")


class TestAdoption:
    """Files that were there before the partition had a head."""

    @pytest.mark.parametrize("limit", [24, 1])
    def test_a_run_that_replaces_its_own_keeps_what_its_first_try_adopted(self, limit: int) -> None:
        world = World().with_context(limits=Limits(decisions_per_head=limit))
        foreign = f"{ROOT.partition_prefix(DAY1)}part-0.parquet"
        world.driver.run(Put(foreign, b"foreign"))
        first = world.load(DAY1, idempotency_key="run")
        assert world.jobs_of(DAY1) == ["", first.job]
        for _ in range(2):
            first = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
            assert world.jobs_of(DAY1) == ["", first.job]
        world.load(DAY1)
        last = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert sorted(world.jobs_of(DAY1))[0] == ""
        assert last.job in world.jobs_of(DAY1)
        assert len(world.snapshot([DAY1]).files) == 3
        assert foreign in world.listed(DAY1)

    def test_an_adopted_file_that_was_taken_away_is_not_adopted_again(self) -> None:
        world = World()
        foreign = f"{ROOT.partition_prefix(DAY1)}part-0.parquet"
        world.driver.run(Put(foreign, b"foreign"))
        world.load(DAY1, idempotency_key="run")
        world.driver.run(Delete(foreign))
        again = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert world.jobs_of(DAY1) == [again.job]


class TestReplace:
    def test_replaces_the_partitions_with_rows_and_touches_no_other(self, world: World) -> None:
        """Conformance 69: nothing is deleted before the commit."""
        first = world.load(DAY1, DAY2)
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        assert len(world.listed(DAY1)) == 1
        report = world.commit(opened, result)
        assert world.jobs_of(DAY1) == [opened.job]
        assert world.jobs_of(DAY2) == [first.job]
        assert world.listed(DAY1) == [result.files[0].key]
        assert report.partitions[0].removed == 1

    def test_a_named_partition_without_rows_is_emptied_and_marked(self, world: World) -> None:
        world.load(DAY1, DAY2)
        report = world.load(mode=Mode.REPLACE, replace_partitions=(DAY1,))
        assert world.jobs_of(DAY1) == []
        assert world.listed(DAY1) == []
        assert len(world.jobs_of(DAY2)) == 1
        found = marker(world, DAY1)
        assert (found.job, found.manifest and found.manifest.rows) == (report.job, 0)

    def test_the_whole_table(self, world: World) -> None:
        world.load(DAY1, DAY2)
        put(world, "flights/day=3/foreign.parquet")
        report = world.load(DAY1, mode=Mode.REPLACE, replace_table=True)
        assert [f.job for f in world.snapshot().files] == [report.job]
        assert world.listed(DAY2) == world.listed(DAY3) == []

    def test_all_that_fits_a_condition(self, world: World) -> None:
        fits = frozenset({DAY1, DAY3})
        world.load(DAY1, DAY2)
        put(world, "flights/day=3/foreign.parquet")
        report = world.load(DAY1, mode=Mode.REPLACE, replace_where=fits)
        assert world.jobs_of(DAY1) == [report.job]
        assert (len(world.listed(DAY2)), world.listed(DAY3)) == (1, [])
        opened = world.open(Mode.REPLACE, replace_where=fits)
        with pytest.raises(TaskResultsError, match="none of the partitions"):
            world.commit(opened, world.write(opened, DAY2))

    @pytest.mark.parametrize("policy", [OnConflict.FAIL, OnConflict.LAST_WINS])
    def test_what_comes_meanwhile_fits_or_not(self, world: World, policy: OnConflict) -> None:
        fits = frozenset({DAY1, DAY3})
        world.load(DAY1)
        opened, result = world.written(
            DAY1, mode=Mode.REPLACE, replace_where=fits, on_conflict=policy
        )
        other = world.load(DAY2, DAY3)
        if policy is OnConflict.FAIL:
            with pytest.raises(CommitConflictError, match=DAY3):
                world.commit(opened, result)
            assert world.jobs_of(DAY3) == [other.job]
        else:
            world.commit(opened, result)
            assert world.jobs_of(DAY3) == []
        assert world.jobs_of(DAY2) == [other.job]

    def test_foreign_files_go_too(self, world: World) -> None:
        world.load(DAY1)
        put(world, "flights/day=1/foreign.parquet")
        world.load(DAY1, mode=Mode.REPLACE)
        assert len(world.listed(DAY1)) == 1

    def test_a_replace_completes_before_it_removes(self, world: World) -> None:
        world.load(DAY1)
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        seen: list[int] = []  # By who lists, after each request.
        world.driver.fault = beside(
            object, lambda: seen.append(len(world.listed(DAY1))), applied=True
        )
        world.commit(opened, result)
        assert 2 in seen
        assert 0 not in seen


class TestFailIfExists:
    def test_refused_over_files_and_cleaned_up(self, world: World) -> None:
        """Conformance 67."""
        first = world.load(DAY1)
        opened, result = world.written(DAY1, mode=Mode.FAIL_IF_EXISTS)
        with pytest.raises(DestinationExistsError, match="already holds 1 file,"):
            world.commit(opened, result)
        assert world.jobs_of(DAY1) == [first.job]
        world.assert_clean()

    def test_unrelated_partitions_do_not_matter(self, world: World) -> None:
        """Conformance 70."""
        world.load(DAY1)
        assert world.load(DAY2, mode=Mode.FAIL_IF_EXISTS).files == 1


class TestConflicts:
    @pytest.mark.parametrize(
        ("late", "early", "conflicts"),
        [
            (Mode.REPLACE, Mode.REPLACE, True),
            (Mode.REPLACE, Mode.APPEND, True),
            (Mode.APPEND, Mode.REPLACE, True),
            (Mode.APPEND, Mode.APPEND, False),
        ],
    )
    def test_a_partition_that_changed_since_the_job_opened(
        self, world: World, late: Mode, early: Mode, conflicts: bool
    ) -> None:
        """Conformance 78 for two appends."""
        first = world.load(DAY1)
        opened, result = world.written(DAY1, mode=late)
        other = world.load(DAY1, mode=early)
        if not conflicts:
            world.commit(opened, result)
            assert world.jobs_of(DAY1) == [first.job, other.job, opened.job]
            return
        with pytest.raises(CommitConflictError, match="day=1") as caught:
            world.commit(opened, result)
        assert other.job in str(caught.value)
        assert opened.job not in world.jobs_of(DAY1)
        world.assert_clean()

    @pytest.mark.parametrize(
        ("on_conflict", "commits", "overtaken"),
        [
            (OnConflict.FAIL, True, True),
            (OnConflict.FAIL, False, False),
            (OnConflict.LAST_WINS, True, False),
        ],
    )
    def test_a_claim_that_was_waited_for_in_vain(
        self, world: World, on_conflict: OnConflict, commits: bool, overtaken: bool
    ) -> None:
        """Who fenced the job changed its partition then: a run under *fail* is not tried again,
        since that try would begin on what is there now, and overwrite it."""
        world.load(DAY1)
        opened, result = world.written(DAY1, mode=Mode.REPLACE, on_conflict=on_conflict)
        other = World(world.store).with_context(waiting=Waiting(silence=0.0, cap=0.0, poll=0.1))

        def sleeps(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, Put) and request.key == ROOT.decision_key(opened.job):
                world.driver.fault = None
                if commits:
                    other.load(DAY1, mode=Mode.REPLACE)
                else:
                    other.recover(patience=0.0)
            return apply(request)

        world.driver.fault = sleeps
        with pytest.raises(JobFencedError) as caught:
            world.commit(opened, result)
        error = caught.value
        assert error.overtaken is overtaken
        assert is_final(error, ROOT) is overtaken
        assert (error.key == ROOT.head_key(DAY1)) is overtaken
        assert ("has changed day=1 meanwhile" in error.message) is overtaken
        world.assert_clean()

    def test_last_wins_serialises(self, world: World) -> None:
        opened, result = world.written(DAY1, mode=Mode.REPLACE, on_conflict=OnConflict.LAST_WINS)
        world.load(DAY1)
        world.commit(opened, result)
        assert world.jobs_of(DAY1) == [opened.job]

    def test_disjoint_partitions_do_not_conflict(self, world: World) -> None:
        """Conformance 77."""
        world.load(DAY1, DAY2)
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        world.load(DAY2, mode=Mode.REPLACE)
        world.commit(opened, result)

    def test_a_claim_given_back_is_no_change(self, world: World) -> None:
        """The head's ETag moved, its version did not: the trail tells."""
        world.load(DAY1)
        opened, result = world.written(DAY1, mode=Mode.REPLACE)
        loser = world.open(Mode.FAIL_IF_EXISTS)
        with pytest.raises(DestinationExistsError):
            world.commit(loser, world.write(loser, DAY1))
        world.commit(opened, result)
        assert world.jobs_of(DAY1) == [opened.job]


class TestTable:
    def test_another_layout_is_refused(self, world: World) -> None:
        world.load(DAY1)
        with pytest.raises(TableMismatchError, match="partitioned by day"):
            world.open(partition_by=("value",))
        world.assert_clean()

    def test_another_schema_is_refused_before_any_upload(self, world: World) -> None:
        world.load(DAY1)
        schema = pa.schema([("other", pa.string()), ("day", pa.int32())])
        with pytest.raises(TableMismatchError, match="other"):
            world.open(schema=schema)
        world.assert_clean()

    def test_the_layout_may_be_left_to_the_table(self, world: World) -> None:
        world.load(DAY1)
        assert world.open(partition_by=None).partition_by == ("day",)


class TestResults:
    """What tasks report is checked before anything is decided."""

    @pytest.mark.parametrize(
        ("spoil", "says"),
        [
            (lambda r: (r, r), "reported twice"),
            (lambda r: (replace(r, job="zr1-" + "0" * 26),), "another job"),
            (lambda r: (r, replace(r, task=1)), "two files have the key"),
            (lambda r: (replace(r, files=(replace(r.files[0], partition="day=9"),)),), "outside"),
            (
                lambda r: (replace(r, files=(replace(r.files[0], key="other/day=1/x.parquet"),)),),
                "outside its partition",
            ),
            (lambda r: (replace(r, files=(replace(r.files[0], etags=()),)),), "no parts"),
        ],
    )
    def test_refused(self, world: World, spoil, says: str) -> None:
        opened = world.open()
        results = spoil(world.write(opened, DAY1))
        with pytest.raises(TaskResultsError, match=says):
            world.commit(opened, *results)
        world.assert_clean()

    def test_a_missing_task(self, world: World) -> None:
        opened, result = world.written(DAY1)
        with pytest.raises(TaskResultsError, match="1 of 2 tasks"):
            world.driver.run(commit_job(world.context, opened, [result], expected_tasks=2))

    def test_a_file_outside_the_named_partitions(self, world: World) -> None:
        opened, result = world.written(DAY2, mode=Mode.REPLACE, replace_partitions=(DAY1,))
        with pytest.raises(TaskResultsError, match="none of the partitions"):
            world.commit(opened, result)

    @pytest.mark.parametrize(
        "replaces",
        [
            {"replace_partitions": (DAY1, DAY2)},
            {"replace_table": True},
            {"replace_where": frozenset({DAY1})},
        ],
    )
    def test_more_is_replaced_than_may_be_written(
        self, world: World, replaces: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInputError, match=f"may write {DAY1} only"):
            world.open(Mode.REPLACE, only_partitions=(DAY1,), **replaces)
        world.open(Mode.REPLACE, only_partitions=(DAY1, DAY2), replace_partitions=(DAY1,))

    @pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.MERGE])
    def test_a_file_outside_the_only_partitions(self, world: World, mode: Mode) -> None:
        opened, result = world.written(DAY2, mode=mode, only_partitions=(DAY1,))
        with pytest.raises(TaskResultsError, match="none of the partitions"):
            world.commit(opened, result)
        opened = world.open(mode, only_partitions=(DAY1, DAY2))
        world.commit(opened, world.write(opened, DAY2))


class TestAbort:
    def test_nothing_is_left(self, world: World) -> None:
        """Conformance 45, 46, 47, 57: and twice is harmless."""
        opened, result = world.written(DAY1, DAY2)
        outcome = world.abort(opened, result)
        assert outcome == Aborted(opened.job, ROOT.url, uploads=2)
        assert isinstance(world.abort(opened, result), Aborted)
        assert world.listed(DAY1) == []
        assert ROOT.marker_key(DAY1) not in world.store.objects
        world.assert_clean()

    def test_without_the_tasks_messages(self, world: World) -> None:
        """Spark hands over none when a worker died. Conformance 48."""
        opened = world.open()
        world.write(opened, DAY1)
        world.abort(opened)
        world.assert_clean()

    def test_no_work(self, world: World) -> None:
        """Conformance 44."""
        assert world.abort(world.open()).uploads == 0

    def test_after_a_commit_finds_it_and_says_so(self, world: World) -> None:
        opened, result = world.written(DAY1)
        world.commit(opened, result)
        outcome = world.abort(opened, result)
        assert isinstance(outcome, Committed)
        assert outcome.rows == 1
        assert world.jobs_of(DAY1) == [opened.job]

    def test_a_commit_after_it_is_refused(self, world: World) -> None:
        opened, result = world.written(DAY1)
        world.abort(opened, result)
        with pytest.raises(JobFencedError):
            world.commit(opened, result)
        assert world.listed(DAY1) == []
        world.assert_clean()

    def test_a_task_that_reports_after_it_changes_nothing(self, world: World) -> None:
        """Uploads that appear after the abort are known by its decision."""
        opened = world.open()
        world.abort(opened)
        world.write(opened, DAY1)
        report = world.purge()
        assert [entry.action for entry in report.entries] == ["aborted"]
        world.assert_clean()

    def test_an_uncommitted_task_leaves_nothing(self, world: World) -> None:
        """Conformance 49: a killed attempt's uploads are swept at close."""
        opened, result = world.written(DAY1)
        world.write(opened, DAY1, task=1)
        world.commit(opened, result)
        assert len(world.listed(DAY1)) == 1
        world.assert_clean()


class TestMarkers:
    def test_partition_and_table(self, world: World) -> None:
        """Conformance 19, 20."""
        report = world.load(DAY1, DAY2, rows=5)
        for partition, rows in ((DAY1, 5), (DAY2, 5), (UNPARTITIONED, 10)):
            found = marker(world, partition)
            assert (found.committer, found.job, found.success) == ("zero_rename", report.job, True)
            assert found.manifest is not None
            assert found.manifest.rows == rows
            decision = world.store.objects[found.manifest.decision]
            assert decision.etag == found.manifest.etag
        assert marker(world).filenames == tuple(
            f"/{key}" for key in sorted([*world.listed(DAY1), *world.listed(DAY2)])
        )

    def test_jobs_of_one_second_follow_their_partition(self, world: World) -> None:
        """The store's dates are whole seconds: of two jobs that share a partition, the table's
        marker names the one whose version is later there, whatever their ids."""
        for name in ("Z", "A"):  # The later id commits first.
            other = world.with_context(job_id=lambda name=name: f"zr1-{name * 26}")
            other.load(DAY1)
        assert world.jobs_of(DAY1) == [f"zr1-{'Z' * 26}", f"zr1-{'A' * 26}"]
        assert marker(world, DAY1).job == marker(world).job == f"zr1-{'A' * 26}"

    def test_at_most_100_names(self, world: World) -> None:
        opened = world.open()
        results = [world.write(opened, DAY1, task=task) for task in range(120)]
        world.commit(opened, *results)
        found = marker(world, DAY1)
        assert len(found.filenames) == 100
        assert found.manifest is not None
        assert found.manifest.files == 120

    @pytest.mark.parametrize(
        ("policy", "partition", "table"),
        [
            (SuccessMarkers.PARTITION_AND_TABLE, True, True),
            (SuccessMarkers.TABLE, False, True),
            (SuccessMarkers.NONE, False, False),
        ],
    )
    def test_policy(
        self, world: World, policy: SuccessMarkers, partition: bool, table: bool
    ) -> None:
        """Conformance 21."""
        world.load(DAY1, success_markers=policy)
        assert (ROOT.marker_key(DAY1) in world.store.objects) is partition
        assert (ROOT.marker_key(UNPARTITIONED) in world.store.objects) is table


class TestLargeDecisions:
    def test_in_parts(self) -> None:
        world = World().with_context(limits=Limits(files_per_object=3))
        opened = world.open()
        results = [world.write(opened, DAY1, DAY2, task=task) for task in range(5)]
        world.commit(opened, *results)
        assert len(world.store.keys(f"{ROOT.decisions_prefix}{opened.job}.")) > 2
        assert len(world.snapshot().files) == 10
        world.assert_clean()

    def test_parts_of_an_aborted_decision_go(self) -> None:
        world = World().with_context(limits=Limits(files_per_object=1))
        opened, result = world.written(DAY1, DAY2)
        other = world.with_context()
        other.abort(opened, result)
        with pytest.raises(JobFencedError):
            world.commit(opened, result)
        assert world.store.keys(ROOT.decisions_prefix) == [ROOT.decision_key(opened.job)]

    def test_parts_of_a_decision_that_lost_to_an_abort_go_at_once(self) -> None:
        """Whoever wrote the abort has looked for parts already."""
        world = World().with_context(limits=Limits(files_per_object=1))
        opened = world.open()
        files = world.write(opened, DAY1, DAY2).files
        changes = tuple(PartitionDecision(f.partition, 0, False, (f,)) for f in files)
        commit = Decision.commit(opened.job, "commit", opened.spec, changes)
        world.driver.run(decide(world.context, Decision.abort(opened.job, "abort")))
        decided = world.driver.run(decide(world.context, commit))
        assert not decided.decision.is_commit
        assert any(isinstance(r, Put) and ".commit." in r.key for r in world.driver.requests)
        assert world.store.keys(ROOT.decisions_prefix) == [ROOT.decision_key(opened.job)]

    def test_an_abort_removes_the_parts_of_who_died_before_deciding(self) -> None:
        world = World().with_context(limits=Limits(files_per_object=1))
        opened, result = world.written(DAY1, DAY2)
        world.driver.fault = on(Put, KeyboardInterrupt, ROOT.decision_key(opened.job))
        with pytest.raises(KeyboardInterrupt):
            world.commit(opened, result)
        assert len(world.store.keys(f"{ROOT.decisions_prefix}{opened.job}.")) == 2
        other = World(world.store)
        assert [r.outcome for r in other.recover(patience=0)] == ["aborted"]
        assert world.store.keys(ROOT.decisions_prefix) == [ROOT.decision_key(opened.job)]
        other.assert_clean()

    @pytest.mark.parametrize("missing", [False, True])
    def test_a_part_that_is_not_the_decided_one_is_damage(self, missing: bool) -> None:
        """Another text that reads well is no less wrong than none."""
        world = World().with_context(limits=Limits(files_per_object=1))
        job = world.load(DAY1, DAY2).job
        key = next(
            key
            for key in world.store.keys(f"{ROOT.decisions_prefix}{job}.")
            if key != ROOT.decision_key(job)
        )
        body = world.store.objects.pop(key).body
        if not missing:
            put(world, key, body + b" ")
        with pytest.raises(DamagedError, match="is not the one that was decided") as caught:
            world.snapshot()
        assert caught.value.key == key

    def test_a_part_that_is_not_written_decides_nothing(self) -> None:
        """The store's silence about a part is no silence about the decision: refused."""
        world = World().with_context(limits=Limits(files_per_object=1))
        opened, result = world.written(DAY1, DAY2)

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            is_part = isinstance(request, Put) and request.key != ROOT.decision_key(opened.job)
            if is_part and request.key.startswith(ROOT.decisions_prefix):
                return Unknown("timed out")
            return apply(request)

        world.driver.fault = fault
        with pytest.raises(StoreUnreachableError, match="Nothing is decided"):
            world.commit(opened, result)
        assert world.store.keys(ROOT.decisions_prefix) == [ROOT.decision_key(opened.job)]
        world.driver.fault = None
        world.assert_clean()
        with pytest.raises(TableNotFoundError):
            world.snapshot()

    @pytest.mark.slow
    def test_forty_thousand_files(self, world: World) -> None:
        """Conformance 32's scale for the job committer: the decision goes into six objects."""
        world.load(DAY1)
        opened = world.open()
        days = [f"day={day}" for day in range(50)]
        results = [world.write(opened, *days, *days, task=task) for task in range(400)]
        report = world.commit(opened, *results)
        assert report.files == 40_000
        assert len(world.store.keys(f"{ROOT.decisions_prefix}{opened.job}.")) == 6
        assert len(world.snapshot().files) == 40_001
        world.assert_clean()


class TestStores:
    def test_one_that_resurrects_and_ignores_delete_conditions(self) -> None:
        behaviour = Behaviour(complete_again="resurrect", conditional_delete=False)
        world = World(MemoryStore(behaviour=behaviour))
        world.load(DAY1)
        put(world, "flights/day=1/foreign.parquet")
        report = world.load(DAY1, mode=Mode.REPLACE)
        assert world.jobs_of(DAY1) == [report.job]
        assert len(world.listed(DAY1)) == 1
        world.assert_clean()

    def test_one_that_lists_uploads_only_without_a_prefix(self) -> None:
        world = World(MemoryStore(behaviour=Behaviour(lists_uploads=False)))
        opened = world.open()
        world.write(opened, DAY1)
        world.abort(opened)
        world.assert_clean()
