"""Accepting a loss, and what the doctor objects to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from support.faults import Crash, at, beside, on
from support.faulty_server import FaultyServer, Received, Reply, s3_error
from support.memory_store import Behaviour, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World, die_before_applying
from zero_rename import JobSpec, Table
from zero_rename.cli import app
from zero_rename.committer import (
    Coordination,
    DataLostError,
    FileOptions,
    InvalidInputError,
    Mode,
    OnRepeat,
    OpenedJob,
    OtherJobError,
    Problem,
    RepairAction,
    Repaired,
    StoreRefusedError,
    SuccessMarker,
    TaskResult,
    UnfinishedCommitError,
)
from zero_rename.committer.commit.apply import committed
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.commit.state.decide import Decided, amend, decide, read_decision
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.store.backoff import Backoff
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Delete,
    Deleted,
    DeleteMany,
    Get,
    ListUploads,
    Put,
    Refused,
    Unknown,
    UploadPart,
)
from zero_rename.committer.upkeep.doctor.examination import about_rules, examine
from zero_rename.committer.upkeep.doctor.store_problems import renew_facts
from zero_rename.committer.upkeep.repair import repair, without

pytestmark = pytest.mark.memory_s3


def lose(world: World, *files: Any) -> None:
    for file in files:
        world.store.apply(AbortUpload(file.key, file.upload_id))


def damaged(
    mode: Mode = Mode.APPEND, count: int = 1, **policy: Any
) -> tuple[World, OpenedJob, TaskResult]:
    """A committed job with three files in each of two partitions; the first ``count`` are gone."""
    world = World()
    world.load(DAY1, DAY2)
    opened, result = world.written(*[DAY1] * 3, *[DAY2] * 3, rows=10, mode=mode, **policy)
    die_before_applying(world, opened, result)
    lose(world, *result.files[:count])
    return World(world.store), opened, result


def repaired(world: World, patience: float | None = 0.0, **options: Any) -> list[Repaired]:
    """:param patience: by default, of a job whose process has ended."""
    return world.driver.run(repair(world.context, patience=patience, **options))


def decision_of(world: World, job: str) -> Decided:
    decided = world.driver.run(read_decision(world.context, job))
    assert decided is not None
    return decided


def keys_of(world: World, partition: str) -> set[str]:
    return {file.key for file in world.snapshot([partition]).files}


class TestRepair:
    def test_without_acceptance_it_only_reports(self) -> None:
        world, opened, result = damaged()
        before = dict(world.store.objects), dict(world.store.uploads)
        (found,) = repaired(world)
        assert (found.job, found.action) == (opened.job, RepairAction.REPORTED)
        assert (found.lost, found.rows) == (result.files[:1], 10)
        assert (dict(world.store.objects), dict(world.store.uploads)) == before

    def test_until_then_later_writers_stop_and_say_how_to_go_on(self) -> None:
        world, _, _ = damaged()
        with pytest.raises(OtherJobError, match=r"repair .* --accept-loss"):
            world.load(DAY1)

    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE], ids=lambda mode: mode.value)
    def test_the_files_that_exist_are_what_the_partition_holds(self, mode: Mode) -> None:
        world, opened, result = damaged(mode)
        kept = set() if mode is Mode.REPLACE else set(world.listed(DAY1))
        (done,) = repaired(world, accept_loss=True)
        assert (done.action, done.lost) == (RepairAction.ACCEPTED, result.files[:1])
        assert done.removes == (1 if mode is Mode.REPLACE else 0)
        assert keys_of(world, DAY1) == kept | {file.key for file in result.files[1:3]}
        assert set(world.listed(DAY1)) == keys_of(world, DAY1)
        assert {f.key for f in result.files[3:]} <= keys_of(world, DAY2)
        world.assert_clean()
        world.load(DAY1)
        assert opened.job in world.jobs_of(DAY1)

    def test_every_report_of_the_job_counts_what_exists(self) -> None:
        world, opened, _ = damaged()
        repaired(world, accept_loss=True)
        decided = decision_of(world, opened.job)
        report = committed(world.context, decided)
        assert (report.files, report.rows) == (5, 50)
        key = ROOT.marker_key(DAY1)
        marker = SuccessMarker.parse(world.store.objects[key].body, key)
        assert marker.manifest is not None
        assert (marker.job, marker.manifest.rows) == (opened.job, 20)
        assert marker.manifest.etag == decided.etag

    def test_what_is_lost_stays_on_record_and_the_date_of_the_decision_too(self) -> None:
        world, opened, result = damaged()
        before = decision_of(world, opened.job)
        world.advance(1000)
        repaired(world, accept_loss=True)
        after = decision_of(world, opened.job)
        assert after.date == before.date
        assert after.decision.partitions[0].lost == result.files[:1]
        assert after.decision.files == result.files[1:]

    def test_a_partition_that_lost_all_its_files_moves_on(self) -> None:
        world, _, _ = damaged(count=3)
        before = set(world.listed(DAY1))
        repaired(world, accept_loss=True)
        assert keys_of(world, DAY1) == before
        world.assert_clean()

    def test_a_decision_in_parts(self) -> None:
        world, opened, result = damaged(count=2)
        world.context = replace(world.context, limits=Limits(files_per_object=2))
        (done,) = repaired(world, accept_loss=True)
        assert done.lost == result.files[:2]
        decided = decision_of(world, opened.job)
        assert len(decided.decision.parts) > 1
        assert decided.decision.partitions[0].lost == result.files[:2]
        assert len(keys_of(world, DAY1)) == 2
        assert len(keys_of(world, DAY2)) == 4
        world.assert_clean()

    def test_what_was_lost_counts_towards_a_part_s_size(self) -> None:
        """A decision of which all was lost is as long as it was."""
        world, opened, result = damaged(count=3)
        world.context = replace(world.context, limits=Limits(files_per_object=4))
        repaired(world, accept_loss=True)
        parts = world.store.keys(f"{ROOT.decisions_prefix}{opened.job}.")
        parts.remove(ROOT.decision_key(opened.job))
        counts = [world.store.objects[key].body.count(b'"upload_id"') for key in parts]
        assert sum(counts) == len(result.files)
        assert max(counts) <= 4

    def test_files_that_were_there_stay_though_the_first_job_lost_all_of_its_own(self) -> None:
        """Its decision adopted them: the head must still name it."""
        old = "flights/day=1/old.parquet"
        world = World()
        world.store.apply(Put(old, b"old"))
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)
        lose(world, *result.files)
        repaired(world, accept_loss=True)
        assert keys_of(world, DAY1) == {old}
        world.load(DAY1)
        assert old in keys_of(world, DAY1)

    def test_a_decision_that_was_written_again_meanwhile_is_not_overwritten(self) -> None:
        world, opened, result = damaged()
        read = decision_of(world, opened.job)
        first = world.driver.run(
            amend(world.context, read, without(read.decision, result.files[:1]))
        )
        with pytest.raises(UnfinishedCommitError, match="changed meanwhile"):
            world.driver.run(amend(world.context, read, without(read.decision, result.files[1:2])))
        assert world.driver.run(read_decision(world.context, opened.job)) == first

    def test_a_part_that_is_not_confirmed_leaves_the_verdict(self) -> None:
        """The job is committed, whatever becomes of its decision's new text."""
        world, opened, result = damaged(count=2)
        world.context = replace(world.context, limits=Limits(files_per_object=2))
        read = world.driver.run(read_decision(world.context, opened.job))
        assert read is not None
        world.driver.fault = on(Put, Unknown("no answer"), ROOT.decisions_prefix)
        with pytest.raises(UnfinishedCommitError, match="verdict stands") as caught:
            world.driver.run(amend(world.context, read, without(read.decision, result.files[:2])))
        assert "nothing of this job is visible" not in caught.value.message

    def test_an_upload_that_lost_its_parts(self) -> None:
        """It is listed, and shows what it lacks only when it is completed."""
        world, _, result = damaged(count=0)
        broken = result.files[0]
        upload = world.store.uploads[broken.upload_id]
        world.store.uploads[broken.upload_id] = replace(upload, parts={})
        assert repaired(world)[0].lost == ()
        (done,) = repaired(world, accept_loss=True)
        assert done.lost == (broken,)
        assert broken.key not in keys_of(world, DAY1)

    def test_a_job_that_lost_nothing_is_finished(self) -> None:
        world, opened, _ = damaged(count=0)
        (done,) = repaired(world, accept_loss=True, job=opened.job)
        assert (done.action, done.lost) == (RepairAction.FINISHED, ())
        world.assert_clean()

    def test_job_that_cannot_be_finished_keeps_no_other_from_its_repair(self, world: World) -> None:
        world.date_jobs()
        world.load(DAY1, DAY2)
        (replaced,) = world.listed(DAY1)
        unfinished, first = world.written(DAY1, mode=Mode.REPLACE)
        die_before_applying(world, unfinished, first)
        opened, result = world.written(*[DAY2] * 2)
        die_before_applying(world, opened, result)
        lose(world, result.files[0])
        world.driver.fault = on(DeleteMany, Deleted({replaced: "AccessDenied"}))
        with pytest.raises(UnfinishedCommitError, match="AccessDenied") as it:
            repaired(world, accept_loss=True)
        assert opened.job in it.value.__notes__[0]
        assert len(keys_of(world, DAY2)) == 2
        assert world.store.keys(ROOT.open_prefix) == [ROOT.open_key(unfinished.job)]

    def test_a_crash_at_any_request_is_made_good_by_recovery(self) -> None:
        number = 0
        while True:
            number += 1
            world, _, result = damaged()
            world.driver.fault = at(number, Crash)
            try:
                repaired(world, accept_loss=True)
            except Crash:
                other = World(world.store)
                other.recover()
                if other.store.keys(ROOT.open_prefix):  # It died before it accepted anything.
                    repaired(other, accept_loss=True)
                assert len(keys_of(other, DAY1)) == 3
                assert result.files[0].key not in keys_of(other, DAY1)
                other.assert_clean()
            else:
                break
        assert number > 20

    def test_files_that_a_later_job_removed_are_not_lost(self) -> None:
        """The head has moved: that partition's files are no longer looked for."""
        world, opened, _ = damaged(count=0)
        applied = World(world.store)
        applied.driver.fault = on(Put, Crash, "_SUCCESS")
        with pytest.raises(Crash):
            applied.recover()
        for key in world.listed(DAY1):
            if opened.job in key:
                del world.store.objects[key]
        assert repaired(world)[0].lost == ()

    def test_one_job_can_be_named(self) -> None:
        world, opened, _ = damaged()
        assert repaired(world, job=opened.job)[0].job == opened.job
        with pytest.raises(InvalidInputError, match="no open committed job"):
            repaired(world, job="zr1-" + "0" * 26)

    def test_undecided_and_aborted_jobs_are_left_alone(self, world: World) -> None:
        world.load(DAY1)
        world.open()
        aborted = world.open()
        world.driver.run(decide(world.context, Decision.abort(aborted.job, "w")))
        assert repaired(world, accept_loss=True) == []

    def test_a_run_that_repeats_it_replaces_what_exists(self) -> None:
        world, opened, result = damaged(idempotency_key="run")
        repaired(world, accept_loss=True)
        again = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert opened.job not in world.jobs_of(DAY1)
        assert again.job in world.jobs_of(DAY1)
        assert not set(world.listed(DAY1)) & {file.key for file in result.files}

    def test_a_table_without_heads_is_refused(self, world: World) -> None:
        world.load(DAY1, coordination=Coordination.NONE)
        with pytest.raises(InvalidInputError, match="no head waits"):
            repaired(world)


def answers_500(world: World) -> World:
    """A store that knows no better answer to the completion of an upload that is gone."""

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        answer = apply(request)
        return Unknown("500") if isinstance(answer, Refused) else answer

    world.driver.fault = fault
    return world


class TestOwnerThatMayLive:
    """Some stores show neither upload nor object of a file while its owner completes it."""

    def test_its_loss_is_not_accepted(self) -> None:
        world, opened, result = damaged()
        before = dict(world.store.objects)
        (left,) = repaired(world, None, accept_loss=True)
        assert (left.action, left.lost, left.silent_for) == (
            RepairAction.LEFT,
            result.files[:1],
            0.0,
        )
        assert (left.job, dict(world.store.objects)) == (opened.job, before)

    def test_nor_that_of_an_upload_that_lost_its_parts(self) -> None:
        world, _, result = damaged(count=0)
        broken = result.files[0].upload_id
        world.store.uploads[broken] = replace(world.store.uploads[broken], parts={})
        with pytest.raises(DataLostError):
            repaired(world, None, accept_loss=True)
        assert repaired(world, accept_loss=True)[0].action is RepairAction.ACCEPTED

    def test_it_is_once_the_owner_has_been_silent(self) -> None:
        world, _, _ = damaged()
        world.advance(JobSpec.max_duration + 1)
        assert repaired(world, None, accept_loss=True)[0].action is RepairAction.ACCEPTED

    def test_a_job_that_lost_nothing_is_finished(self) -> None:
        world, _, _ = damaged(count=0)
        assert repaired(world, None, accept_loss=True)[0].action is RepairAction.FINISHED
        world.assert_clean()


class TestLost:
    """Complete answers 500 where an upload is gone: Ceph and moto."""

    def test_everybody_is_told_that_the_file_is_lost_and_what_to_do(self) -> None:
        world, opened, result = damaged()
        lost = result.files[0].key
        answers_500(world)
        began = world.store.clock()
        with pytest.raises(DataLostError, match="repair") as caught:
            world.snapshot()
        assert caught.value.key == lost
        with pytest.raises(OtherJobError, match=r"repair .* --accept-loss"):
            world.load(DAY1)
        (recovered,) = world.recover()
        assert (recovered.job, str(recovered.outcome)) == (opened.job, "failed")
        assert f"repair {ROOT.url} --job {opened.job} --accept-loss" in recovered.detail
        assert lost in recovered.detail
        assert world.store.clock() - began < 10, "three looks that take no longer than they must"
        (done,) = repaired(world, accept_loss=True)
        assert done.action is RepairAction.ACCEPTED
        world.recover()
        world.assert_clean()

    @pytest.mark.parametrize("by_prefix", [True, False])
    def test_an_upload_that_is_there_is_not_lost(self, by_prefix: bool) -> None:
        world = World(MemoryStore(behaviour=Behaviour(lists_uploads=by_prefix)))
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)
        world.driver.fault = on(CompleteUpload, Unknown("500"))
        (recovered,) = world.recover()
        assert "Nothing is lost" in recovered.detail
        world.driver.fault = None
        world.recover()
        assert keys_of(world, DAY1) == {result.files[0].key}

    def test_where_the_store_lists_no_uploads_none_counts_as_gone(self, world: World) -> None:
        """The doctor recorded that listings do not show them: an empty one says nothing."""
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, ListUploads):
                return replace(apply(request), uploads=())
            answers = isinstance(request, CompleteUpload) and request.key == result.files[0].key
            return Unknown("500") if answers else apply(request)

        world.driver.fault = fault
        assert not world.driver.run(renew_facts(world.context)).uploads_listed
        (recovered,) = world.recover()
        assert "Nothing is lost" in recovered.detail
        assert "committed files lost" not in problems_of(world)
        (reported,) = repaired(world)
        assert (reported.lost, reported.certain) == ((), False)
        with pytest.raises(UnfinishedCommitError, match="Nothing is lost"):
            repaired(world, accept_loss=True)
        world.driver.fault = None
        world.recover()
        assert keys_of(world, DAY1) == {result.files[0].key}

    def test_where_the_store_lists_no_uploads_a_refusal_tells(self) -> None:
        """NoSuchUpload is the store's own word for this upload."""
        world, _, result = damaged()

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            listing = isinstance(request, ListUploads)
            return replace(apply(request), uploads=()) if listing else apply(request)

        world.driver.fault = fault
        world.driver.run(renew_facts(world.context))
        assert not repaired(world)[0].certain
        (done,) = repaired(world, accept_loss=True)
        assert (done.action, done.lost) == (RepairAction.ACCEPTED, result.files[:1])

    def test_one_that_another_process_completes_at_the_last_moment(self, world: World) -> None:
        """Between the listing of uploads and the second look at the object."""
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, CompleteUpload):
                return Unknown("500")
            if isinstance(request, ListUploads):
                file = result.files[0]
                apply(CompleteUpload(file.key, file.upload_id, file.etags))
            return apply(request)

        world.driver.fault = fault
        assert [str(it.outcome) for it in world.recover()] == ["committed"]

    def test_the_doctor_looks_at_the_uploads_of_open_commits(self) -> None:
        world, opened, result = damaged(count=2)
        found = problems_of(world)["committed files lost"]
        assert found.subject == result.files[0].key
        assert "2 decided files" in found.detail
        assert f"--job {opened.job} --accept-loss" in found.remedy


def problems_of(world: World) -> dict[str, Problem]:
    return {found.what: found for found in world.driver.run(examine(world.context))}


class TestDoctor:
    def test_has_nothing_to_say_of_a_healthy_table(self, world: World) -> None:
        world.load(DAY1)
        world.open()
        assert problems_of(world) == {}

    def test_names_jobs_that_are_silent(self, world: World) -> None:
        opened = world.open(max_duration=100.0)
        world.advance(101)
        found = problems_of(world)["job left open"]
        assert found.subject == opened.job
        assert "undecided" in found.detail
        assert "recover" in found.remedy

    def test_names_jobs_that_nobody_finishes(self) -> None:
        world, opened, _ = damaged()
        assert "job left open" not in problems_of(world)
        world.advance(4000)
        found = problems_of(world)["job left open"]
        assert found.subject == opened.job
        assert "repair" in found.remedy

    def test_names_claims_of_dead_jobs(self) -> None:
        world, opened, _ = damaged()
        del world.store.objects[ROOT.open_key(opened.job)]
        found = problems_of(world)["claim of a dead job"]
        assert opened.job in found.detail
        assert "purge" in found.remedy

    def test_a_job_that_closes_meanwhile_is_not_dead(self) -> None:
        world, opened, _ = damaged(count=0)
        other = World(world.store)
        world.driver.fault = beside(Get, other.recover, ROOT.head_key(DAY1), applied=True)
        assert problems_of(world) == {}
        assert opened.job in other.jobs_of(DAY1)

    def test_names_foreign_and_left_over_uploads(self, world: World) -> None:
        job = world.load(DAY1).job
        for key in ("flights/day=1/x", f"flights/day=1/part-00009-{job}-0.parquet"):
            created = world.store.apply(CreateUpload(key))
            world.store.apply(UploadPart(key, created.upload_id, 1, b"x"))
        assert set(problems_of(world)) == {"orphaned uploads"}
        world.advance(25 * 3600)
        found = problems_of(world)
        assert set(found) == {"orphaned uploads", "foreign uploads"}
        assert "--foreign" in found["foreign uploads"].remedy

    def test_names_what_the_store_lacks(self) -> None:
        world = World(MemoryStore(behaviour=Behaviour(server_name="VERSITYGW")))
        world.load(DAY1)
        assert set(problems_of(world)) == {"store not atomic"}
        alone = World()
        alone.load(DAY1, coordination=Coordination.NONE)
        assert set(problems_of(alone)) == {"not coordinated"}

    @pytest.mark.parametrize(
        ("later", "name"),
        [
            (Behaviour(conditional_put=False), "conditional_put"),
            (Behaviour(conditional_delete=False), "conditional_delete"),
            (Behaviour(lists_uploads=False), "uploads_by_prefix"),
            (Behaviour(complete_again="resurrect"), "complete_resurrects"),
            (Behaviour(server_name="VERSITYGW"), "atomic"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_names_what_the_store_does_not_keep_any_more(self, later: Behaviour, name: str) -> None:
        world = World()
        world.load(DAY1)
        assert "store has changed" not in problems_of(world)
        world.store.behaviour = later
        found = problems_of(world)["store has changed"]
        assert found.subject == name
        assert "--apply" in found.remedy
        world.driver.run(renew_facts(world.context))
        assert "store has changed" not in problems_of(world)
        world.store.behaviour = Behaviour()
        world.driver.run(renew_facts(world.context))
        assert "store has changed" not in problems_of(world), "no promise comes back"
        assert json.loads(world.store.objects[ROOT.table_key].body)["store"][name] is (
            name == "complete_resurrects"
        )
        assert world.store.keys(ROOT.probe_key("")) == []

    def test_works_where_there_is_no_table(self) -> None:
        assert problems_of(World()) == {}
        unfit = problems_of(World(MemoryStore(behaviour=Behaviour(conditional_put=False))))
        assert set(unfit) == {"store unfit"}
        assert "coordination=none" in unfit["store unfit"].remedy
        removes = problems_of(World(MemoryStore(behaviour=Behaviour(removes_on_abort=True))))
        assert set(removes) == {"store unfit"}
        racing = problems_of(
            World(MemoryStore(behaviour=Behaviour(server_name="s3-mock-file-store")))
        )
        assert set(racing) == {"store not atomic"}

    @pytest.mark.parametrize(
        ("kind", "right"),
        [
            (Put, "s3:PutObject"),
            (Delete, "s3:DeleteObject"),
            (DeleteMany, "s3:DeleteObject"),
            (ListUploads, "s3:ListBucketMultipartUploads"),
            (AbortUpload, "s3:AbortMultipartUpload"),
        ],
    )
    def test_tells_rights_one_by_one(self, world: World, kind: type, right: str) -> None:
        world.load(DAY1)
        world.driver.fault = on(kind, StoreRefusedError("The store refused it.", lacks_right=True))
        assert problems_of(world)["right missing"].subject == right

    @pytest.mark.parametrize(
        ("rule", "what"),
        [
            ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}, "too short"),
            ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}, None),
            ({"Expiration": {"Days": 365}}, "expires the table"),
            ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, None),
            ({"Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]}, None),
        ],
    )
    @pytest.mark.parametrize(
        ("where", "concerns"),
        [
            ({"Prefix": ""}, True),
            ({"Filter": {}}, True),
            ({"Filter": {"Prefix": "fli"}}, True),
            ({"Filter": {"And": {"Prefix": "flights/day=1/", "Tags": []}}}, True),
            ({"Filter": {"Prefix": "flights-of-another-table/"}}, False),
            ({"Filter": {"Tag": {"Key": "kind", "Value": "scratch"}}}, False),
            ({"Filter": {"ObjectSizeGreaterThan": 1_000_000}}, True),
            ({"Filter": {"ObjectSizeLessThan": 1}}, False),
        ],
    )
    def test_lifecycle_rules(
        self, rule: dict[str, Any], what: str | None, where: dict[str, Any], concerns: bool
    ) -> None:
        found = about_rules(
            [LifecycleRule.of({"ID": "cleanup", **rule, **where})], ROOT, 24 * 3600.0
        )
        if what is None or not concerns:
            assert found == []
        else:
            assert what in found[0].what
            assert found[0].subject == "cleanup"

    def test_a_longer_job_needs_a_longer_rule(self) -> None:
        rule = LifecycleRule("cleanup", prefix="", abort_days=3)
        assert about_rules([rule], ROOT, 48 * 3600.0) == []
        (found,) = about_rules([rule], ROOT, 49 * 3600.0)
        assert "4 or more" in found.remedy

    def test_an_open_job_of_long_duration_needs_a_longer_rule(self, world: World) -> None:
        world.store.rules = (LifecycleRule("cleanup", prefix="", abort_days=3),)
        world.load(DAY1)
        assert "lifecycle rule too short" not in problems_of(world)
        world.open(max_duration=49 * 3600.0)
        assert problems_of(world)["lifecycle rule too short"].subject == "cleanup"


DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


class TestCommands:
    """The commands on a real server."""

    @pytest.fixture
    def table(self, s3_bucket: Any) -> Table:
        table = Table(f"s3://{s3_bucket.name}/flights")
        with table.job(DATA.schema, partition_by=["day"]) as job:
            job.write(DATA)
        return table

    def invoke(self, code: int, *arguments: str) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--json"])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def test_repair(self, table: Table, s3_bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("zero_rename.committer.commit.complete.COMPLETE", Backoff(6, 0.01))
        opened = table.open_job(JobSpec(DATA.schema, files=FileOptions(rows_per_file=1)))
        writer = table.task_writer(opened, 0, 0)
        writer.write(DATA)
        result = writer.close()
        lost = result.files[0]
        s3_bucket.client.abort_multipart_upload(
            Bucket=s3_bucket.name, Key=lost.key, UploadId=lost.upload_id
        )
        # moto answers the completion of a missing upload with 500; the listing tells.
        with pytest.raises(DataLostError, match="repair"):
            table.commit(opened, [result])
        (found,) = self.invoke(1, "repair", table.root.url)
        assert (found["action"], found["lost"][0]["key"]) == ("reported", lost.key)
        printed = CliRunner().invoke(app, ["repair", table.root.url])
        assert lost.key in printed.stdout
        assert "lost 1 file with 1 row" in printed.stderr
        arguments = ("repair", table.root.url, "--accept-loss", "--job", opened.job)
        (left,) = self.invoke(1, *arguments)
        assert left["action"] == "left"
        assert "Nothing was changed" in CliRunner().invoke(app, arguments).stderr
        (done,) = self.invoke(0, *arguments, "--patience", "0s")
        assert done["action"] == "accepted"
        assert table.to_arrow().num_rows == 5
        assert table.verify() == []
        report = table.result(opened.job)
        assert report is not None
        assert report.rows == 2
        assert self.invoke(0, "repair", table.root.url) == []

    def test_repair_where_the_store_lists_no_uploads(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unknown = Repaired("zr1-" + "0" * 26, RepairAction.REPORTED, (), 0, certain=False)
        monkeypatch.setattr(Table, "repair", lambda *_: [unknown])
        printed = CliRunner().invoke(app, ["repair", table.root.url])
        assert printed.exit_code == 1
        assert "unknown" in printed.stdout
        assert f"zero-rename recover {table.root.url}" in printed.stderr

    @pytest.mark.usefixtures("s3_server")
    def test_doctor(self, table: Table, s3_bucket: Any) -> None:
        found = {c["what"]: c for c in self.invoke(1, "doctor", table.root.url)}
        assert set(found) == {"store not atomic"}, "moto's server checks and writes in two steps"
        s3_bucket.client.put_bucket_lifecycle_configuration(
            Bucket=s3_bucket.name,
            LifecycleConfiguration={
                "Rules": [
                    {
                        "ID": "cleanup",
                        "Status": status,
                        "Filter": {"Prefix": prefix},
                        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
                    }
                    for status, prefix in (("Enabled", "flights/"), ("Disabled", ""))
                ]
            },
        )
        assert set(found) == {c["what"] for c in self.invoke(1, "doctor", table.root.url)}
        longer = self.invoke(1, "doctor", table.root.url, "--max-duration", "90000")
        assert [c["what"] for c in longer if c["subject"] == "cleanup"] == [
            "lifecycle rule too short"
        ]

    @pytest.mark.usefixtures("s3_server")
    def test_doctor_says_when_it_may_not_see_the_rules(
        self, table: Table, s3_env: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            return s3_error(403, "AccessDenied") if "lifecycle" in got.path else pass_on()

        with FaultyServer(answer, s3_env.endpoint) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            found = {c.what: c for c in Table(table.root.url).doctor()}
        assert "AccessDenied" in found["lifecycle rules unknown"].detail
        assert "SECRET" not in str(found)
