"""Crashes, lost answers and repeated runs: what recovery and purge make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, at, beside, on
from support.memory_store import Behaviour, MemoryStore, flatten
from support.protocol import (
    DAY1,
    DAY2,
    DAY3,
    ROOT,
    SCHEMA,
    World,
    die_before_applying,
    memory_table,
)
from zero_rename import Table
from zero_rename.committer import (
    CommitStateUnknownError,
    Committed,
    DataLostError,
    DestinationExistsError,
    JobFencedError,
    JobSpec,
    Mode,
    OnRepeat,
    Outcome,
    RefusedError,
    StoreRefusedError,
    StoreUnfitError,
    TableNotFoundError,
    UnfinishedCommitError,
    Verdict,
    ZeroRenameError,
)
from zero_rename.committer.commit.claim import ClaimRequest, claim_all
from zero_rename.committer.commit.open import open_job
from zero_rename.committer.commit.state.decide import decide, read_decision
from zero_rename.committer.commit.state.heads import read_head, swap_head
from zero_rename.committer.commit.state.heartbeat import send_heartbeat
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.head import HeadState, Slot
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Delete,
    Get,
    ListObjects,
    ListUploads,
    ObjectSettings,
    Put,
    Refused,
    Unknown,
    UploadPart,
)
from zero_rename.committer.upkeep.recovery import Recovered, open_jobs


def prepared() -> World:
    world = World()
    world.load(DAY1, DAY2)
    return world


JOBS = {
    "append": {"mode": Mode.APPEND},
    "replace": {"mode": Mode.REPLACE},
    "idempotency_key": {"mode": Mode.APPEND, "idempotency_key": "dag/run/task"},
    "named": {"mode": Mode.REPLACE, "replace_partitions": (DAY1, DAY2)},
}


def crashes(policy: dict[str, Any]) -> Iterator[tuple[World, list[str], str | None]]:
    """A world for every request of a job at which its process can die."""
    number = 0
    while True:
        number += 1
        for applied in (False, True):
            world = prepared()
            before = world.jobs_of(DAY1)
            job = None
            world.driver.fault = at(number, Crash, applied=applied)
            try:
                opened = world.open(**policy)
                job = opened.job
                world.commit(opened, world.write(opened, DAY1, DAY2))
            except Crash:
                yield world, before, job
            else:
                return


@pytest.mark.parametrize("policy", JOBS.values(), ids=list(JOBS))
def test_a_crash_at_any_request_leaves_all_or_nothing(policy: dict[str, Any]) -> None:
    verdicts = set()
    count = 0
    for world, before, job in crashes(policy):
        other = World(world.store)
        other.recover(patience=0)
        content = {partition: other.jobs_of(partition) for partition in (DAY1, DAY2)}
        assert content[DAY1] == content[DAY2], "all partitions of a job or none"
        kept = [] if policy["mode"] is Mode.REPLACE else before
        assert content[DAY1] in (before, [*kept, job])
        verdicts.add(job in content[DAY1])
        assert len(other.listed(DAY1)) == len(content[DAY1]), "listings agree after recovery"
        other.assert_clean()
        count += 1
    assert verdicts == {True, False}
    assert count > 20


@pytest.mark.parametrize("policy", JOBS.values(), ids=list(JOBS))
def test_readers_between_crash_and_recovery_see_all_or_nothing(policy: dict[str, Any]) -> None:
    for world, before, job in crashes(policy):
        reader = World(world.store)
        jobs = {
            partition: [f.job for f in reader.snapshot().files if f.partition == partition]
            for partition in (DAY1, DAY2)
        }
        assert jobs[DAY1] == jobs[DAY2]
        assert jobs[DAY1] == before or job in jobs[DAY1]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (Put, "/open/"),
        (Put, "/heads/"),
        (Put, "/jobs/"),
        (Put, "_SUCCESS"),
        (CompleteUpload, "part-"),
        (AbortUpload, "part-"),
        (Delete, "/open/"),
    ],
)
def test_a_lost_answer_changes_nothing(kind: type, part: str, applied: bool) -> None:
    """Conformance 65."""
    world = prepared()
    world.driver.fault = on(kind, Unknown("connection lost"), part, applied=applied, times=1)
    report = world.load(DAY1, mode=Mode.REPLACE)
    assert world.jobs_of(DAY1) == [report.job]
    world.assert_clean()


def test_a_decision_the_store_never_answers_is_unknown_and_nothing_is_cleaned() -> None:
    world = prepared()
    opened, result = world.written(DAY1)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        # The store would answer an abort, if one were sent.
        if isinstance(request, Put) and "/jobs/" in request.key and b'"commit"' in request.body:
            return Unknown("no answer")
        return apply(request)

    world.driver.fault = fault
    with pytest.raises(CommitStateUnknownError, match="may be committed") as caught:
        world.commit(opened, result)
    assert not isinstance(caught.value, RefusedError)
    assert len(world.store.upload_keys()) == 1
    assert world.store.keys(ROOT.open_prefix)
    other = World(world.store)
    other.recover(patience=0)
    assert opened.job not in other.jobs_of(DAY1)
    other.assert_clean()


def test_a_commit_that_cannot_be_applied_says_that_it_is_committed() -> None:
    world = prepared()
    opened, result = world.written(DAY1)
    world.driver.fault = on(CompleteUpload, Unknown("no answer"))
    with pytest.raises(UnfinishedCommitError, match="is committed"):
        world.commit(opened, result)
    other = World(world.store)
    assert [r.outcome for r in other.recover()] == ["committed"]
    assert opened.job in other.jobs_of(DAY1)
    other.assert_clean()


def test_an_upload_taken_away_after_the_decision_is_named() -> None:
    world = prepared()
    opened, result = world.written(DAY1)
    world.driver.fault = on(CompleteUpload, Refused("NoSuchUpload"))
    with pytest.raises(ZeroRenameError, match="is lost") as caught:
        world.commit(opened, result)
    assert caught.value.key == result.files[0].key
    assert result.files[0].upload_id in str(caught.value)


@pytest.mark.parametrize(
    ("job", "more"),
    [(None, b"longer"), ("zr1-" + "0" * 26, b""), ("", b"")],
    ids=["another size", "another job", "no job"],
)
def test_another_object_at_a_committed_file_s_key_is_named_and_left(
    job: str | None, more: bytes
) -> None:
    """The upload is gone and the key is taken: not by the file that was decided."""
    world = prepared()
    opened, result = world.written(DAY1)
    (file,) = result.files
    named = {"zero-rename-job": opened.job if job is None else job} if job != "" else {}

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, CompleteUpload) and file.upload_id in world.store.uploads:
            _, body = world.store.uploads.pop(file.upload_id).parts[1]
            created = apply(CreateUpload(file.key, ObjectSettings(named)))
            part = apply(UploadPart(file.key, created.upload_id, 1, body + more))
            apply(CompleteUpload(file.key, created.upload_id, (part.etag,)))
        return apply(request)

    world.driver.fault = fault
    with pytest.raises(DataLostError, match="is not that file") as caught:
        world.commit(opened, result)
    assert (caught.value.key, caught.value.job) == (file.key, opened.job)
    assert file.key in world.store.objects
    head = world.store.objects[ROOT.head_key(DAY1)].body
    assert f'"claim":"{opened.job}"'.encode() in head, "the partition keeps its former state"
    assert world.recover()[0].outcome == "failed"


class TestOpenJobs:
    def test_an_undecided_job_is_left_while_it_lives(self, world: World) -> None:
        opened = world.open(max_duration=100.0)
        world.write(opened, DAY1)
        world.advance(99)
        assert [r.outcome for r in world.recover()] == ["left"]
        world.advance(2)
        assert [r.outcome for r in world.recover()] == ["aborted"]
        world.assert_clean()

    def test_an_aborted_one_is_not_waited_for(self, world: World) -> None:
        """Its process died between the decision and the clean-up: nothing can change any more."""
        opened = world.open(max_duration=100.0)
        world.write(opened, DAY1)
        world.driver.run(decide(world.context, Decision.abort(opened.job, "w")))
        (recovered,) = world.recover()
        assert (recovered.outcome, recovered.detail) == (
            "aborted",
            "its clean-up is finished; 1 upload aborted",
        )
        world.assert_clean()

    def test_signs_of_life_keep_it(self, world: World) -> None:
        opened = world.open(max_duration=100.0)
        for _ in range(5):
            world.advance(90)
            assert world.driver.run(send_heartbeat(world.context, opened.job, 60.0)) is True
        assert [r.outcome for r in world.recover()] == ["left"]
        world.advance(601)
        assert [r.outcome for r in world.recover()] == ["aborted"]

    def test_a_sign_of_life_does_not_bring_a_closed_job_back(self, world: World) -> None:
        opened = world.open()
        world.commit(opened)
        assert world.driver.run(send_heartbeat(world.context, opened.job, 60.0)) is False
        world.assert_clean()

    def test_are_listed_with_owner_and_verdict(self, world: World) -> None:
        first, second = world.open(), world.open()
        world.driver.run(decide(world.context, Decision.abort(second.job, "w")))
        found = {j.job: j.decided for j in world.driver.run(open_jobs(world.context))}
        assert found == {first.job: None, second.job: Verdict.ABORT}

    @pytest.mark.parametrize("verdict", Verdict)
    def test_a_decided_one_lets_a_second_writer_in_where_races_are_not_safe(
        self, verdict: Verdict
    ) -> None:
        """Nothing of it can be lost any more: applying is idempotent."""
        world = World(MemoryStore(behaviour=Behaviour(server_name="VERSITYGW")))
        first, result = world.written(DAY1, max_duration=100.0)
        world.driver.fault = on(Delete, Crash, "/open/")
        end = world.commit if verdict is Verdict.COMMIT else world.abort
        with pytest.raises(Crash):
            end(first, result)
        other = World(world.store)
        second = other.load(DAY1)
        assert other.jobs_of(DAY1)[-1] == second.job
        assert (first.job in other.jobs_of(DAY1)) is (verdict is Verdict.COMMIT)
        other.recover()
        other.assert_clean()

    def test_a_live_one_refuses_a_second_writer_where_races_are_not_safe(self) -> None:
        world = World(MemoryStore(behaviour=Behaviour(server_name="VERSITYGW")))
        first = world.open(max_duration=100.0)
        with pytest.raises(StoreUnfitError, match="in two steps"):
            world.open()
        world.advance(101)
        second = world.open()
        world.abort(first)
        world.commit(second)
        world.assert_clean()


class TestBeforeThereIsATable:
    def test_an_open_record_alone_is_settled(self) -> None:
        """A writer killed between its open record and table.json, on a store never probed."""
        world = World(MemoryStore(behaviour=Behaviour(lists_uploads=False)))

        # Within the probe: its upload stays.
        world.driver.fault = on(CompleteUpload, Crash)
        with pytest.raises(Crash):
            world.open()
        other = World(world.store)
        assert [r.outcome for r in other.recover()] == ["left"]
        assert [r.outcome for r in other.recover(patience=0)] == ["aborted"]
        assert world.store.keys(ROOT.open_prefix) == []
        assert len(world.store.upload_keys()) == 1
        other.load(DAY1)
        (entry,) = other.purge().entries
        assert (str(entry.action), entry.reason) == ("aborted", "left by a probe")
        other.assert_clean()

    def test_nothing_at_all_is_no_table(self) -> None:
        with pytest.raises(TableNotFoundError):
            World().recover()


ONCE_SPEC = JobSpec(SCHEMA, partition_by=("day",), idempotency_key="run")


class Halfway:
    """A step of a process that goes on only when a test says so.

    :param until: it stops before its first request of this kind.
    """

    def __init__(self, world: World, step: Any, until: type) -> None:
        self._world = world
        self._step = flatten(step)
        self._next = self._step.send(None)
        self.go_on_to(until)

    def go_on_to(self, kind: type, key: str = "") -> None:
        """Carry out what comes before the next request of a kind."""
        while not (isinstance(self._next, kind) and key in getattr(self._next, "key", key)):
            self._next = self._step.send(self._world.driver.perform(self._next))

    def end(self) -> Any:
        """Carry out the rest; return or raise what the step does."""
        while True:
            try:
                self._next = self._step.send(self._world.driver.perform(self._next))
            except StopIteration as stop:
                return stop.value


class TestOnce:
    """Airflow retries: the tries of one run do its work once."""

    def test_a_retry_of_a_committed_try_writes_nothing(self, world: World) -> None:
        first = world.load(DAY1, idempotency_key="run")
        again = world.open(idempotency_key="run")
        assert again.repeated is not None
        assert (again.repeated.job, again.repeated.repeated) == (first.job, True)
        assert world.commit(again) == again.repeated
        assert isinstance(world.abort(again), Committed)
        assert world.jobs_of(DAY1) == [first.job]
        world.assert_clean()

    def test_another_run_is_another_run(self, world: World) -> None:
        world.load(DAY1, idempotency_key="run 1")
        assert world.open(idempotency_key="run 2").repeated is None

    def test_a_cleared_run_replaces_its_own_rows_only(self, world: World) -> None:
        other = world.load(DAY1)
        first = world.load(DAY1, DAY2, idempotency_key="run")
        again = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert world.jobs_of(DAY1) == [other.job, again.job]
        assert world.jobs_of(DAY2) == []
        assert not [key for key in world.listed(DAY1) if first.job in key]

    def test_a_cleared_run_that_must_find_nothing_finds_its_own_rows_only(self) -> None:
        world = World()
        policy: Any = {"mode": Mode.FAIL_IF_EXISTS, "idempotency_key": "run"}
        first = world.load(DAY1, DAY2, **policy)
        again = world.load(DAY1, **policy, on_repeat=OnRepeat.REPLACE_OWN)
        assert world.jobs_of(DAY1) == [again.job]
        assert world.jobs_of(DAY2) == []
        assert not [key for key in world.listed(DAY1) if first.job in key]
        other = world.load(DAY1)
        with pytest.raises(DestinationExistsError):
            world.load(DAY1, **policy, on_repeat=OnRepeat.REPLACE_OWN)
        assert world.jobs_of(DAY1) == [again.job, other.job]
        world.load(DAY3, **policy, on_repeat=OnRepeat.REPLACE_OWN)
        assert world.jobs_of(DAY1) == [other.job]
        world.assert_clean()

    def test_replace_own_finds_folded_rows(self, world: World) -> None:
        first = world.load(DAY1, idempotency_key="run")
        jobs = [world.load(DAY1).job for _ in range(30)]
        again = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        assert first.job not in world.jobs_of(DAY1)
        assert world.jobs_of(DAY1) == [*jobs, again.job]

    def test_append_writes_again(self, world: World) -> None:
        first = world.load(DAY1, idempotency_key="run")
        again = world.load(DAY1, idempotency_key="run", on_repeat=OnRepeat.APPEND)
        assert world.jobs_of(DAY1) == [first.job, again.job]

    def test_opening_a_try_fences_the_earlier_one(self, world: World) -> None:
        zombie, left = world.written(DAY1, idempotency_key="run")
        world.advance(1)  # Of one second the job's id would tell, of one millisecond chance.
        world.load(DAY1, idempotency_key="run")
        with pytest.raises(RefusedError):
            world.commit(zombie, left)
        assert len(world.jobs_of(DAY1)) == 1
        world.assert_clean()

    @pytest.mark.parametrize("first_by", ["the store's clock", "its job id"])
    @pytest.mark.parametrize("ends_first", [0, 1])
    def test_of_two_tries_that_open_together_one_wins(self, first_by: str, ends_first: int) -> None:
        """Both see the other's open record before either has fenced anybody."""
        store = MemoryStore()
        World(store).load(DAY2)
        worlds, opening = [World(store), World(store)], []
        for number, world in enumerate(worlds):
            # By the clock the second one is later, though its id is the smaller one.
            letter = "BA"[number] if first_by == "the store's clock" else "AB"[number]
            job = f"zr1-{letter * 26}"
            world.context = replace(world.context, job_id=lambda job=job: job)
            spec = JobSpec(SCHEMA, partition_by=("day",), idempotency_key="run")
            opening.append(Halfway(world, open_job(world.context, spec), until=ListObjects))
            if first_by == "the store's clock":
                world.advance(5)
        for half in opening:
            half.go_on_to(Get, ROOT.run_key("run"))
        ended = {}
        for number in (ends_first, 1 - ends_first):
            with suppress(JobFencedError):
                ended[number] = opening[number].end()
        assert list(ended) == [1]
        report = worlds[1].commit(ended[1], worlds[1].write(ended[1], DAY1))
        assert worlds[1].jobs_of(DAY1) == [report.job]
        worlds[1].assert_clean()

    def test_a_later_try_that_was_fenced_itself_is_not_waited_for(self, world: World) -> None:
        world.load(DAY2)
        opened = World(world.store)
        early = Halfway(opened, open_job(opened.context, ONCE_SPEC), until=ListObjects)
        (opened_as,) = (job.job for job in world.driver.run(open_jobs(world.context)))
        world.advance(5)
        Halfway(world, open_job(world.context, ONCE_SPEC), until=ListObjects)
        (late,) = {job.job for job in world.driver.run(open_jobs(world.context))} - {opened_as}
        world.driver.run(decide(world.context, Decision.abort(late, new_write_id())))
        assert early.end().repeated is None
        world.recover(patience=0)
        world.assert_clean()

    def test_dead_jobs_that_nobody_recovers_do_not_make_every_job_dearer(self) -> None:
        world = World()
        world.load(DAY1, idempotency_key="run 1")
        for _ in range(100):
            world.open()
        world.driver.requests.clear()
        world.load(DAY1, idempotency_key="run 2")
        assert len(world.driver.requests) < 40
        assert len(world.jobs_of(DAY1)) == 2

    def test_an_earlier_try_behind_many_dead_jobs_is_kept_out_by_the_once_head(self) -> None:
        world = World()
        zombie, left = world.written(DAY1, idempotency_key="run")
        for number in range(40):
            world.open(idempotency_key=f"dead {number}")
        job = world.load(DAY1, idempotency_key="run").job
        with pytest.raises(RefusedError, match="Another attempt"):
            world.commit(zombie, left)
        assert world.jobs_of(DAY1) == [job]

    def test_a_decided_try_that_died_before_applying_counts(self, world: World) -> None:
        opened, result = world.written(DAY1, idempotency_key="run")
        die_before_applying(world, opened, result)
        retry = World(world.store)
        again = retry.open(idempotency_key="run")
        assert again.repeated is not None
        assert again.repeated.job == opened.job
        assert retry.jobs_of(DAY1) == [opened.job]
        retry.assert_clean()

    def test_a_try_that_died_with_its_claims_leaves_none(self, world: World) -> None:
        opened, result = world.written(DAY1, idempotency_key="run")
        world.driver.fault = on(Put, Crash, "/jobs/")
        with pytest.raises(Crash):
            world.commit(opened, result)
        idempotency_key = world.store.objects[ROOT.run_key("run")].body
        assert f'"claim":"{opened.job}"'.encode() in idempotency_key
        other = World(world.store)
        assert [r.outcome for r in other.recover(patience=0)] == ["aborted"]
        other.assert_clean()


class TestPurge:
    def upload(self, world: World, key: str, at: float = 0.0) -> str:
        created = world.store.apply(CreateUpload(key))
        world.store.apply(UploadPart(key, created.upload_id, 1, b"x"))
        return created.upload_id

    def test_the_table_of_the_protocol_text(self, world: World) -> None:
        committed = world.load(DAY1)
        aborted = world.open()
        world.abort(aborted)
        live = world.open()
        keys = {
            "late part of a committed job": f"flights/day=1/part-00009-{committed.job}-0.parquet",
            "late part of an aborted job": f"flights/day=1/part-00009-{aborted.job}-0.parquet",
            "a live job's": f"flights/day=1/part-00000-{live.job}-0.parquet",
            "nobody's": "flights/day=1/part-00000-zr1-" + "0" * 26 + "-0.parquet",
            "Spark's own": "flights/day=1/part-00000-2f9a.snappy.parquet",
        }
        for key in keys.values():
            self.upload(world, key)
        self.upload(world, "flights-of-another-table/x")
        report = world.purge()
        actions = {entry.key: str(entry.action) for entry in report.entries}
        assert actions == {
            keys["late part of a committed job"]: "aborted",
            keys["late part of an aborted job"]: "aborted",
            keys["a live job's"]: "kept",
            keys["nobody's"]: "kept",
            keys["Spark's own"]: "kept",
        }
        assert len(world.store.upload_keys()) == 4

    def test_the_loser_of_two_attempts_that_share_a_key(self, world: World) -> None:
        """The decision names the key with the winner's UploadId."""
        opened, result = world.written(DAY1)
        world.commit(opened, result)
        loser = self.upload(world, result.files[0].key)
        (entry,) = world.purge().entries
        assert (entry.upload_id, str(entry.action)) == (loser, "aborted")
        assert world.listed(DAY1) == [result.files[0].key]
        world.assert_clean()

    def test_a_probe_s_upload_while_a_job_is_open(self, world: World) -> None:
        """It may be that job's, under way."""
        world.load(DAY1)
        left = self.upload(world, ROOT.probe_key("x"))
        opened = world.open()
        (entry,) = world.purge().entries
        assert (str(entry.action), entry.reason) == ("kept", "a probe's, and a job is open")
        assert left in world.store.uploads
        world.abort(opened)
        assert [str(entry.action) for entry in world.purge().entries] == ["aborted"]
        world.assert_clean()

    def test_a_probe_s_upload_that_is_older_than_any_probe(self, world: World) -> None:
        """A table that is busy has an open job at any time."""
        world.load(DAY1)
        left = self.upload(world, ROOT.probe_key("x"))
        world.open()
        world.advance(3700)
        (entry,) = world.purge(patience=1e9).entries
        assert (str(entry.action), entry.reason) == ("aborted", "left by a probe")
        assert left not in world.store.uploads

    def test_other_tables_uploads_where_the_whole_bucket_is_listed(self) -> None:
        behaviour = Behaviour(lists_uploads=False)
        world = World(MemoryStore(behaviour=behaviour))
        world.load(DAY1)
        foreign = ["flights-of-another-table/x", "other/day=1/y"]
        for key in (*foreign, "flights/day=1/old"):
            self.upload(world, key)
        world.advance(100)
        report = world.purge(foreign_older_than=50.0)
        assert [entry.key for entry in report.entries] == ["flights/day=1/old"]
        assert world.store.upload_keys() == foreign

    def test_a_live_job_keeps_its_claims(self, world: World) -> None:
        """Purge looks at every head between the job's claims and its decision."""
        opened, result = world.written(DAY1, idempotency_key="run")

        def purged() -> None:
            assert World(world.store).purge().recovered[0].outcome == "left"

        world.driver.fault = beside(Put, purged, "/jobs/")
        report = world.commit(opened, result)
        assert world.jobs_of(DAY1) == [report.job]
        world.assert_clean()

    def test_claims_of_jobs_without_an_open_record_are_taken_off(self, world: World) -> None:
        """Of partitions and of runs: a job may claim after it was fenced and cleaned up."""
        opened = world.open(idempotency_key="run")
        slots = Slot.partition(ROOT, DAY1), Slot.run(ROOT, "run")
        requests = [ClaimRequest(slot, None, replaces=False) for slot in slots]
        world.driver.run(claim_all(world.context, opened, requests))
        world.store.apply(Delete(ROOT.open_key(opened.job)))
        report = world.purge()
        assert [(r.job, r.outcome) for r in report.recovered] == [(opened.job, "aborted")] * 2
        world.assert_clean()
        decided = world.driver.run(read_decision(world.context, opened.job))
        assert decided is not None
        assert decided.decision.verdict is Verdict.ABORT

    def test_foreign_ones_by_age_only(self, world: World) -> None:
        """Conformance 105."""
        world.load(DAY1)
        self.upload(world, "flights/day=1/old")
        world.advance(100)
        self.upload(world, "flights/day=1/young")
        report = world.purge(foreign_older_than=50.0)
        assert {e.key: str(e.action) for e in report.entries} == {
            "flights/day=1/old": "aborted",
            "flights/day=1/young": "kept",
        }

    def test_a_dry_run_changes_nothing(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open()
        world.abort(opened)
        world.write(opened, DAY1)
        before = dict(world.store.objects), dict(world.store.uploads)
        report = world.purge(apply=False)
        assert [str(e.action) for e in report.entries] == ["would-abort"]
        assert (dict(world.store.objects), dict(world.store.uploads)) == before


def test_many_dead_jobs_are_settled_side_by_side(world: World) -> None:
    """One that waits for the store keeps none of the others."""
    world.load(DAY1)
    jobs = []
    for _ in range(100):
        opened = world.open()
        world.write(opened, DAY1)
        jobs.append(opened.job)
    world.driver.requests.clear()
    assert [it.job for it in world.recover(patience=0.0)] == sorted(jobs)
    world.assert_clean()
    keys = [(type(it), getattr(it, "key", "")) for it in world.driver.requests]
    begun = {job: keys.index((Get, ROOT.open_key(job))) for job in jobs}
    ended = {job: keys.index((Delete, ROOT.open_key(job))) for job in jobs}
    first = sorted(jobs)[:64]
    assert max(begun[job] for job in first) < min(ended[job] for job in first)
    # Eight of its own each: record, decision asked for twice and written, head, parts, upload,
    # close.
    # What is listed of the table is listed for 64 jobs at once.
    assert len(keys) <= 8 * len(jobs) + 2 * 4
    assert sum(isinstance(it, ListUploads) for it in world.driver.requests) == 2 * 2


@pytest.mark.parametrize("kind", [AbortUpload, Delete])
def test_a_dead_job_that_cannot_be_closed_keeps_none_of_the_others(kind: type) -> None:
    world = World()
    world.load(DAY1)
    jobs = sorted(world.open().job for _ in range(3))
    for job in jobs:
        world.store.apply(CreateUpload(f"{ROOT.prefix}/{DAY1}/part-00000-{job}-0000.parquet"))
    stuck = jobs[1]

    world.driver.fault = on(kind, StoreRefusedError("AccessDenied"), stuck)
    outcomes = {it.job: it.outcome for it in world.recover(patience=0.0)}
    assert outcomes == {jobs[0]: "aborted", stuck: "failed", jobs[2]: "aborted"}
    assert [job.job for job in world.driver.run(open_jobs(world.context))] == [stuck]
    world.driver.fault = None
    assert [it.outcome for it in world.recover(patience=0.0)] == ["aborted"]
    world.assert_clean()


def test_jobs_stay_open_where_the_uploads_cannot_be_listed(world: World) -> None:
    """They are aborted, and closed by the next recovery."""
    world.load(DAY1)
    jobs = sorted(world.open().job for _ in range(2))
    world.driver.fault = on(ListUploads, StoreRefusedError("AccessDenied"))
    found = world.recover(patience=0.0)
    assert [(it.job, it.outcome, it.lasting) for it in found] == [
        (job, "failed", True) for job in jobs
    ]
    world.driver.fault = None
    assert [it.detail for it in world.recover(patience=0.0)] == [
        "its clean-up is finished; 0 uploads aborted"
    ] * 2
    world.assert_clean()


class TestClaimsOfClosedJobs:
    """A claim that arrived after its job had been cleaned up: only the head tells of it."""

    def late_claim(self, table: Table, partitions: Sequence[str] = (DAY1,)) -> str:
        """A job that is aborted and closed, and whose claims come after that."""
        opened = table.open_job(JobSpec(SCHEMA, partition_by=("day",)))
        table.abort(opened)
        for name in partitions:
            slot = Slot.partition(ROOT, name)
            state = table.driver.run(read_head(table._context, slot))
            claimed = state.head.claimed(opened.job, "gone", new_write_id(), state.etag)
            assert isinstance(table.driver.run(swap_head(state, claimed)), HeadState)
        return opened.job

    def table(self, partitions: int = 1) -> Table:
        world = World()
        world.load(*(f"day={number}" for number in range(1, partitions + 1)))
        return memory_table(world.store)

    def claim(self, table: Table) -> str | None:
        slot = Slot.partition(ROOT, DAY1)
        return table.driver.run(read_head(table._context, slot)).head.claim

    @pytest.mark.parametrize("indexed", [False, True])
    def test_are_taken_off(self, indexed: bool) -> None:
        table = self.table()
        job = self.late_claim(table)
        if indexed:
            table.write_index()
        (planned,) = table.plan_recovery()
        assert (planned.job, planned.outcome) == (job, Outcome.WOULD_ABORT)
        assert self.claim(table) == job
        (done,) = table.recover()
        assert (done.job, done.outcome) == (job, Outcome.ABORTED)
        assert self.claim(table) is None
        assert table.recover() == []

    def test_the_claim_of_an_open_job_stays(self) -> None:
        table = self.table()
        opened = table.open_job(JobSpec(SCHEMA, partition_by=("day",)))
        slot = Slot.partition(ROOT, DAY1)
        state = table.driver.run(read_head(table._context, slot))
        claimed = state.head.claimed(opened.job, "here", new_write_id(), state.etag)
        table.driver.run(swap_head(state, claimed))
        assert [it.outcome for it in table.recover()] == [Outcome.LEFT]
        assert self.claim(table) == opened.job

    @pytest.mark.parametrize(
        "settle", [Table.recover, lambda table: table.purge(apply=True).recovered]
    )
    def test_one_that_cannot_be_resolved_hinders_no_other(
        self, settle: Callable[[Table], Sequence[Recovered]]
    ) -> None:
        """Its job is committed, its open record was removed, and a file of it is lost."""
        world = World()
        world.load(DAY1, DAY2)
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)
        world.store.apply(Delete(ROOT.open_key(opened.job)))
        for file in result.files:
            world.store.apply(AbortUpload(file.key, file.upload_id))
        table = memory_table(world.store)
        other = self.late_claim(table, [DAY2])
        found = {it.job: it.outcome for it in settle(table)}
        assert found == {opened.job: Outcome.FAILED, other: Outcome.ABORTED}

    def test_few_heads_are_read_where_there_is_an_index(self) -> None:
        table = self.table(partitions=40)
        table.write_index()
        self.late_claim(table)
        driver: Any = table.driver
        driver.requests.clear()
        assert len(table.recover()) == 1
        heads = [it for it in driver.requests if "/heads/day=" in getattr(it, "key", "")]
        assert {it.key for it in heads} == {ROOT.head_key(DAY1)}

    def test_open_record_of_a_job_with_many_claims_is_read_once(self) -> None:
        table = self.table(partitions=40)
        job = self.late_claim(table, [f"day={number}" for number in range(1, 41)])
        driver: Any = table.driver
        driver.requests.clear()
        assert len(table.recover()) == 40
        key = ROOT.open_key(job)
        assert sum(getattr(it, "key", "") == key for it in driver.requests) == 1
