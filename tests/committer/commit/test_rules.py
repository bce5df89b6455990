"""Rules of the protocol about layout, clocks and listings, each by its name.

Those about the order of requests are shown by ``tests/simulation/test_variants.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from support.faults import Crash, beside, on
from support.memory_store import Behaviour, ManualClock, MemoryDriver, MemoryStore
from support.protocol import DAY1, ROOT, World, die_of
from zero_rename.committer import (
    CommitConflictError,
    Context,
    Coordination,
    JobFencedError,
    Mode,
    OnConflict,
    StoreUnfitError,
    StoreUnreachableError,
    Table,
    Waiting,
)
from zero_rename.committer.commit.claim import ClaimRequest, claim_all
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.commit.state.heartbeat import send_heartbeat
from zero_rename.committer.commit.state.probe import probe
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.store.requests import (
    CompleteUpload,
    CreateUpload,
    Delete,
    DeleteMany,
    Head,
    ListUploads,
    Put,
    Refused,
    Unknown,
    UploadPart,
)

Apply = Callable[[Any], Any]


def test_a_job_id_is_made_anew_every_time() -> None:
    """A restarted driver is another job."""
    world = World()
    ids = {world.open().job for _ in range(20)}
    assert len(ids) == 20


def test_write_ids_do_not_repeat_in_a_forked_process() -> None:
    """Spark's workers are forked: two of them must not take each other's records for their own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, new_write_id().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode() != new_write_id()
    os.close(reading)
    assert Context(ROOT).write_id is new_write_id


def test_a_head_s_last_job_is_finished_first() -> None:
    """Its removals may be outstanding: fail-if-exists would meet files nobody holds."""
    world = World()
    world.load(DAY1)
    opened = world.open(Mode.REPLACE, replace_partitions=(DAY1,))
    die_of(on(DeleteMany, Crash), world, opened)
    assert len(world.listed(DAY1)) == 1
    later = World(world.store)
    report = later.load(DAY1, mode=Mode.FAIL_IF_EXISTS)
    assert later.jobs_of(DAY1) == [report.job]
    assert len(later.listed(DAY1)) == 1


def test_whose_claim_is_gone_reads_his_own_decision_before_he_claims_again() -> None:
    world = World()
    world.load(DAY1)
    opened, result = world.written(DAY1)
    claims = []

    def fault(request: Any, apply: Apply) -> Any:
        if isinstance(request, Put) and "/heads/" in request.key:
            claims.append(request)
            apply(request)
            World(world.store).recover(patience=0)
            return Unknown("connection lost")
        return apply(request)

    world.driver.fault = fault
    with pytest.raises(JobFencedError):
        world.commit(opened, result)
    assert len(claims) == 1
    world.assert_clean()


def claimed(world: World) -> Any:
    """A job that holds a claim and has died."""
    opened = world.open()
    slot = Slot.partition(ROOT, DAY1)
    request = ClaimRequest(slot, opened.base.get(DAY1), replaces=False)
    world.driver.run(claim_all(world.context, opened, [request]))
    return opened


class TestWaiting:
    """For another's claim: by this process's own monotonic clock, with a hard cap."""

    waiting = Waiting(silence=30.0, cap=100.0, poll=1.0)

    def test_a_silent_claim_is_fenced_after_the_silence(self) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        dead = claimed(World(store))
        world = World(store).with_context(waiting=self.waiting)
        begun = clock()
        report = world.load(DAY1)
        assert 30 <= clock() - begun < 40
        assert world.jobs_of(DAY1) == [report.job]
        decided = world.driver.run(read_decision(world.context, dead.job))
        assert decided is not None
        assert not decided.decision.is_commit

    def test_a_living_claim_is_fenced_at_the_cap(self) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        living = World(store)
        job = claimed(living).job
        world = World(store).with_context(waiting=self.waiting)
        world.driver.fault = beside(
            object, lambda: living.driver.run(send_heartbeat(living.context, job, 1.0))
        )
        begun = clock()
        world.load(DAY1)
        assert 100 <= clock() - begun < 115

    def test_a_claim_without_an_open_record_is_fenced_at_once(self) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        job = claimed(World(store)).job
        store.apply(Delete(ROOT.open_key(job)))
        world = World(store).with_context(waiting=self.waiting)
        begun = clock()
        world.load(DAY1)
        assert clock() - begun < 1


def test_silence_is_judged_by_the_store_s_clock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    world = World(MemoryStore(clock=clock))
    world.open(max_duration=100.0)
    for host_time in (0.0, 4e9):
        monkeypatch.setattr("time.time", lambda host_time=host_time: host_time)
        assert [r.outcome for r in world.recover()] == ["left"]


def test_no_pending_file_is_completed_where_the_claim_is_gone() -> None:
    world = World()
    opened, result = world.written(DAY1)
    die_of(on(Delete, Crash, "/open/"), world, opened, result)
    other = World(world.store)
    assert [r.outcome for r in other.recover()] == ["committed"]
    assert not any(isinstance(request, CompleteUpload) for request in other.driver.requests)


def test_a_removal_spares_a_file_that_was_written_again() -> None:
    world = World()
    world.load(DAY1)
    key = "flights/day=1/foreign.parquet"
    world.store.apply(Put(key, b"first"))
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    again = Put(key, b"second")
    world.driver.fault = beside(CompleteUpload, lambda: world.store.apply(again))
    world.commit(opened, result)
    assert key in world.listed(DAY1)
    assert world.store.objects[key].body == b"second"


def test_names_readers_skip_are_never_data() -> None:
    world = World()
    world.load(DAY1)
    hidden = ["flights/day=1/_temporary", "flights/day=1/.crc", "flights/day=1/_SUCCESS"]
    for key in hidden[:2]:
        world.store.apply(Put(key, b"x"))
    world.load(mode=Mode.REPLACE, replace_partitions=(DAY1,))
    assert [key for key in world.store.keys("flights/day=1/")] == sorted(hidden)


def test_an_open_record_that_was_never_confirmed_ends_the_job() -> None:
    before = World()
    before.load(DAY1)
    world = World(before.store)
    world.driver.fault = on(Put, Unknown("no answer"), "/open/")
    with pytest.raises(Exception, match="did not confirm"):
        world.open()
    assert not any(isinstance(request, CreateUpload) for request in world.driver.requests)


@dataclass
class Probed:
    driver: MemoryDriver
    found: StoreFacts | str


def probe_with(behaviour: Behaviour, lost: int | None = None, applied: bool = True) -> Probed:
    """A probe in which the answer to one write is lost.

    :param lost: the number of the request; one that changes nothing is answered at once again.
    :param applied: whether the store carried it out.
    """
    driver = MemoryDriver(MemoryStore(behaviour=behaviour))

    def fault(request: Any, apply: Apply) -> Any:
        number = len(driver.requests) - 1
        repeated = isinstance(request, Head | ListUploads | CreateUpload | UploadPart)
        if number != lost or repeated:
            return apply(request)
        if applied:
            apply(request)
        return Unknown("no answer")

    driver.fault = fault
    try:
        found = driver.run(probe(ROOT, new_write_id))
    except StoreUnfitError as error:
        found = error.message
    return Probed(driver, found)


class TestProbe:
    def test_finds_what_a_store_lacks(self) -> None:
        behaviour = Behaviour(
            complete_again="resurrect",
            conditional_delete=False,
            lists_uploads=False,
            server_name="VERSITYGW",
        )
        world = World(MemoryStore(behaviour=behaviour))
        facts = world.driver.run(probe(ROOT, world.context.write_id))
        assert facts == StoreFacts(
            server="VERSITYGW",
            atomic=False,
            conditional_put=True,
            conditional_delete=False,
            uploads_by_prefix=False,
            uploads_listed=True,
            complete_resurrects=True,
        )
        assert world.store.keys() == []
        assert world.store.upload_keys() == []

    @pytest.mark.parametrize("applied", [True, False])
    @pytest.mark.parametrize(
        "behaviour",
        [
            Behaviour(),
            Behaviour(complete_again="resurrect", conditional_delete=False, lists_uploads=False),
            Behaviour(complete_again="repeats", conditional_put=False),
            Behaviour(removes_on_abort=True),
        ],
    )
    def test_no_single_lost_answer_changes_what_it_finds(
        self, behaviour: Behaviour, applied: bool
    ) -> None:
        """``table.json`` keeps what a probe found for as long as the table is there."""
        plain = probe_with(behaviour)
        requests = len(plain.driver.requests)
        assert requests > 30
        for number in range(requests):
            assert probe_with(behaviour, number, applied).found == plain.found, number

    def test_a_store_that_never_answers_it_is_not_written_to(self) -> None:
        """And what it never answered is named, not recorded."""
        world = World()

        def fault(request: Any, apply: Apply) -> Any:
            kept = isinstance(request, Put) and "-swap" in request.key and request.if_match
            return Unknown("HTTP 503") if kept else apply(request)

        world.driver.fault = fault
        with pytest.raises(StoreUnreachableError, match=r"HTTP 503.*nothing was recorded"):
            world.open()
        assert world.store.keys() == []
        assert world.store.upload_keys() == []
        world.driver.fault = None
        assert world.open().facts.conditional_put

    @pytest.mark.parametrize(("winners", "atomic"), [(0, True), (1, True), (2, False), (8, False)])
    def test_two_winners_of_a_race_show_that_the_store_is_not_atomic(
        self, winners: int, atomic: bool
    ) -> None:
        """It keeps conditions where nobody races: one writer at a time, and not refused."""
        world = World()
        racers = 0

        def fault(request: Any, apply: Apply) -> Any:
            nonlocal racers
            if isinstance(request, Put) and request.key.endswith("-race"):
                racers += 1
                kept = replace(request, if_none_match=False)
                return apply(kept) if racers <= winners else Refused("PreconditionFailed")
            return apply(request)

        world.driver.fault = fault
        first = world.open()
        assert racers == 8
        assert (first.facts.atomic, first.facts.conditional_put) == (atomic, True)
        racers = 0
        if atomic:
            world.open()
        else:
            with pytest.raises(StoreUnfitError, match=r"\(MemoryStore\) checks .* in two steps"):
                world.open()
        assert world.store.keys(ROOT.probe_key("")) == []

    @pytest.mark.parametrize("coordination", list(Coordination))
    def test_a_store_whose_abort_removes_the_object_is_refused(
        self, coordination: Coordination
    ) -> None:
        """Attempts of a task share their keys: the loser's upload is aborted after the winner's
        was completed."""
        world = World(MemoryStore(behaviour=Behaviour(removes_on_abort=True)))
        with pytest.raises(StoreUnfitError, match="aborting an upload removes the object"):
            world.open(coordination=coordination)
        assert world.store.keys() == []
        assert world.store.upload_keys() == []

    @pytest.mark.parametrize(
        ("server", "name"),
        [("MinIO", "MinIO"), ("Ceph Object Gateway (pacific)", "Ceph"), ("AmazonS3", "AWS S3")],
    )
    @pytest.mark.parametrize("lacking", ["conditional_put", "removes_on_abort"])
    def test_a_refused_store_is_no_remedy_for_itself(
        self, server: str, name: str, lacking: str
    ) -> None:
        """A proxy or a setting can take from any store what it keeps elsewhere."""
        lacks: dict[str, Any] = {lacking: lacking == "removes_on_abort"}
        with pytest.raises(StoreUnfitError) as refused:
            World(MemoryStore(behaviour=Behaviour(server_name=server, **lacks))).open()
        assert server in refused.value.message
        assert name not in str(refused.value.remedy)
        assert "SeaweedFS" in str(refused.value.remedy)

    @pytest.mark.parametrize("kept", ["if_none_match", "if_match"])
    def test_a_store_that_keeps_one_condition_only_is_refused(self, kept: str) -> None:
        world = World()

        def fault(request: Any, apply: Apply) -> Any:
            if isinstance(request, Put):
                request = Put(request.key, request.body, **{kept: getattr(request, kept)})
            return apply(request)

        world.driver.fault = fault
        with pytest.raises(StoreUnfitError, match="does not keep If-None-Match and If-Match"):
            world.open()

    def test_a_store_without_conditions_is_refused_with_what_would_work(self) -> None:
        world = World(MemoryStore(behaviour=Behaviour(conditional_put=False)))
        with pytest.raises(StoreUnfitError, match="AWS S3"):
            world.open()
        assert world.store.keys() == []


def test_an_append_meets_a_replace_but_not_an_append() -> None:
    """Against the version of the last replace, not the version."""
    world = World()
    world.load(DAY1)
    opened, result = world.written(DAY1)
    world.load(DAY1)
    world.load(DAY1, mode=Mode.REPLACE)
    world.load(DAY1)
    with pytest.raises(CommitConflictError):
        world.commit(opened, result)


@pytest.mark.parametrize("on_conflict", OnConflict)
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE], ids=lambda mode: mode.value)
def test_a_run_that_another_try_did_is_not_done_again(mode: Mode, on_conflict: OnConflict) -> None:
    """Not even with last_wins, and not for an append, though others' appends do not disturb it.
    Here nobody fenced the earlier try: its open record was deleted by hand."""
    world = World()
    world.load(DAY1)
    first, result = world.written(DAY1, mode=mode, idempotency_key="run", on_conflict=on_conflict)
    world.store.apply(Delete(ROOT.open_key(first.job)))
    second = World(world.store)
    second.load(DAY1, idempotency_key="run")
    before = world.jobs_of(DAY1)
    with pytest.raises(CommitConflictError, match="Another attempt of this run committed"):
        world.commit(first, result)
    assert world.jobs_of(DAY1) == before
    world.assert_clean()


def test_a_table_url_needs_a_bucket_and_a_prefix() -> None:
    for url in (
        "",
        "flights",
        "s3://lake",
        "s3://lake/",
        "gs://lake/x",
        "s3://lake/_x",
        "s3://l/x",
    ):
        with pytest.raises(ValueError, match="s3://bucket/prefix"):
            Table(url)
