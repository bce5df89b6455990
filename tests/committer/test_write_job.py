"""Jobs from plain Python: what their block does, and what SIGTERM does to it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from support.forked import in_a_child, quietly
from support.memory_store import MemoryStore
from support.protocol import DAY1, DAY2, ROOT, SCHEMA, World, memory_table
from support.waiting import STUCK
from zero_rename import Table
from zero_rename.committer import job_steps, write_job
from zero_rename.committer.commit.checked_open import open_checked
from zero_rename.committer.commit.interrupted import JobInterrupted
from zero_rename.committer.commit.state import probe as probe_module
from zero_rename.committer.commit.state.job_state import Aborted, JobState, OpenedJob
from zero_rename.committer.errors import (
    DestinationExistsError,
    InvalidInputError,
    StoreRefusedError,
    StoreUnreachableError,
    TableNotFoundError,
    UnfinishedCommitError,
)
from zero_rename.committer.format.job_spec import JobSpec
from zero_rename.committer.format.layout import job_in_key, new_write_id
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.sigterm import JobTerminated, Termination
from zero_rename.committer.store.requests import AbortUpload, CompleteUpload, CreateUpload, Put
from zero_rename.committer.write_job import WriteJob

pytestmark = pytest.mark.memory_s3

DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    return Table(f"s3://{s3_bucket.name}/flights")


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Whatever a test does, SIGTERM's handler is the test run's again afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def job(table: Table, **policy: Any) -> WriteJob:
    return table.job(DATA.schema, partition_by=("day",), **policy)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def fail() -> None:
    raise ZeroDivisionError


def sends(kind: type, part: str = "") -> Callable[[Any], bool]:
    """Whether it is a request of a kind, for a key with such a part."""
    return lambda request: isinstance(request, kind) and part in getattr(request, "key", "")


def write_and(written: WriteJob, then: Callable[[], None]) -> None:
    """A block that writes, and in which something happens then."""
    with written:
        written.write(DATA)
        then()


def assert_aborted(table: Table, bucket: Any, job: WriteJob) -> None:
    assert job.job is not None
    assert table.job_state(job.job) is JobState.ABORTED
    assert table.is_closed(job.job)
    assert bucket.uploads() == []
    heads = bucket.keys("flights/_zero_rename/heads/")
    assert all(json.loads(bucket.read(key))["claim"] is None for key in heads), "claims are left"
    with pytest.raises(TableNotFoundError):
        table.files()


class TestBlock:
    def test_leaving_it_commits(self, table: Table) -> None:
        with job(table) as written:
            written.write(DATA)
            assert table.job_state(str(written.job)) is JobState.UNDECIDED
        assert written.committed is not None
        assert written.committed.rows == 3
        assert table.to_arrow().num_rows == 3

    def test_an_error_in_it_aborts_and_is_raised(self, table: Table, s3_bucket: Any) -> None:
        written = job(table)
        with pytest.raises(ZeroDivisionError):
            write_and(written, fail)
        assert_aborted(table, s3_bucket, written)

    def test_a_failing_abort_is_attached(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_steps, "abort_job", unreachable)
        with pytest.raises(ZeroDivisionError) as caught:
            write_and(job(table), fail)
        assert "no answer at all" in caught.value.__notes__[0]

    def test_an_unfinished_commit_loses_nothing(self, table: Table, s3_bucket: Any) -> None:
        """The uploads of a job whose commit decision stands are its rows."""
        refusals = [StoreRefusedError("no right to complete")] * 2

        def observe(request: Any) -> None:
            if isinstance(request, CompleteUpload) and "/day=" in request.key and refusals:
                raise refusals.pop()

        def refuse() -> None:
            table.driver._observe = observe

        written = job(table)
        with pytest.raises(UnfinishedCommitError) as caught:
            write_and(written, refuse)
        assert "The job is committed" in caught.value.message
        assert not hasattr(caught.value, "__notes__"), "nothing was aborted"
        assert table.to_arrow().num_rows == 3
        table.recover()
        assert table.is_closed(str(written.job))
        assert s3_bucket.uploads() == []

    def test_a_repeated_run_writes_nothing(self, table: Table) -> None:
        for _ in range(2):
            with job(table, idempotency_key="run 1") as written:
                written.write(DATA)
        assert written.committed is not None
        assert written.committed.repeated
        assert table.to_arrow().num_rows == 3

    def test_writing_outside_of_it_is_refused(self, table: Table) -> None:
        written = job(table)
        for _ in range(2):
            with pytest.raises(InvalidInputError, match="inside its with block"):
                written.write(DATA)
            if written.job is None:
                with written:
                    written.write(DATA)

    def test_writing_after_its_refused_commit_is_refused(self, table: Table) -> None:
        """These rows went nowhere, and no error said so."""
        with job(table) as first:
            first.write(DATA)
        written = job(table, mode="fail-if-exists")
        with pytest.raises(DestinationExistsError), written:
            written.write(DATA)
        for use in (lambda: written.write(DATA), lambda: written.opened):
            with pytest.raises(InvalidInputError, match="inside its with block"):
                use()

    def test_second_block_is_a_job_of_its_own(self, table: Table) -> None:
        written, jobs = job(table), set[str | None]()
        for _ in range(2):
            with written:
                written.write(DATA)
            jobs.add(written.job)
        assert len(jobs) == 2
        assert table.to_arrow().num_rows == 6


class TestOneAtATime:
    """One thread brings a job's end about; a second call is refused and changes nothing."""

    @pytest.mark.parametrize("second", ["commit", "abort"])
    def test_a_commit_in_two_threads(self, second: str) -> None:
        table = memory_table(MemoryStore())
        opened = table.open_job(JobSpec(DATA.schema, partition_by=("day",)))
        writer = table.task_writer(opened, 0, 0)
        writer.write(DATA)
        results = [writer.close()]
        other = memory_table(table.driver.store)  # type: ignore[attr-defined]
        refused: list[InvalidInputError] = []

        def beside(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, Put) and "/jobs/" in request.key:
                with ThreadPoolExecutor(1) as pool:
                    call = getattr(other, second)
                    error = pool.submit(call, opened, results).exception(60)
                assert isinstance(error, InvalidInputError)
                refused.append(error)
            return apply(request)

        table.driver.fault = beside  # type: ignore[attr-defined]
        assert table.commit(opened, results).rows == 3
        assert "in another thread" in refused[0].message
        assert refused[0].job == opened.job
        assert table.to_arrow().num_rows == 3
        assert table.open_jobs() == []

    def test_one_call_after_the_other_goes_on(self) -> None:
        table = memory_table(MemoryStore())
        opened = table.open_job(JobSpec(DATA.schema, partition_by=("day",)))
        assert isinstance(table.abort(opened), Aborted)
        assert isinstance(table.abort(opened), Aborted)


def unreachable(*_: Any) -> None:
    raise StoreUnreachableError("no answer at all")


class TestLeftAborted:
    """Marked as failed in Airflow, a worker has seconds to clean up, and may be killed amid it."""

    @pytest.fixture
    def world(self) -> World:
        """A table with a job whose process was killed between its abort decision and the
        clean-up, and one that is at work."""
        world = World(MemoryStore())
        world.load(DAY1)
        self.alive, self.left = world.open(), world.open(idempotency_key="run")
        for opened in (self.alive, self.left):
            world.write(opened, DAY2)
        decision = Decision.abort(self.left.job, new_write_id())
        world.store.apply(Put(ROOT.decision_key(self.left.job), decision.encode()))
        return world

    def begin(self, world: World, idempotency_key: str | None = None) -> OpenedJob:
        """The next job, as every kind of writer opens it."""
        spec = JobSpec(SCHEMA, partition_by=("day",), idempotency_key=idempotency_key)
        return open_checked(world.driver, world.context, spec)

    @pytest.mark.parametrize("idempotency_key", [None, "run", "another"])
    def test_the_next_job_of_the_table_cleans_up(
        self, world: World, idempotency_key: str | None
    ) -> None:
        opened = self.begin(world, idempotency_key)
        assert world.store.keys(ROOT.open_prefix) == sorted(
            ROOT.open_key(job) for job in (self.alive.job, opened.job)
        )
        assert [job_in_key(key) for key in world.store.upload_keys()] == [self.alive.job]
        world.commit(opened, world.write(opened, DAY1))

    def test_it_is_not_kept_from_its_own_work(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, AbortUpload) and job_in_key(request.key) == self.left.job:
                raise StoreRefusedError("Access denied.", lacks_right=True)
            return apply(request)

        world.driver.fault = refuse
        opened = self.begin(world)
        assert f"what is left of job {self.left.job}, which is aborted, stays" in caplog.text
        world.driver.fault = None
        world.commit(opened, world.write(opened, DAY1))
        assert ROOT.open_key(self.left.job) in world.store.keys(ROOT.open_prefix)

    def test_a_table_at_rest_costs_nothing(self, world: World) -> None:
        world.recover(0.0)
        before = len(world.driver.requests)
        opened = self.begin(world)
        own = ROOT.open_key(opened.job)
        since = world.driver.requests[before:]
        assert [it for it in since if "/jobs/" in getattr(it, "key", "")] == []
        assert [it.key for it in since if "/open/" in getattr(it, "key", "")] == [own]


class TestSigterm:
    def test_it_aborts_the_job(
        self, table: Table, s3_bucket: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Conformance: a terminated writer leaves nothing, and its exit code is a shell's."""
        written = job(table)
        with caplog.at_level(logging.WARNING), pytest.raises(JobTerminated) as caught:
            write_and(written, terminate)
        assert caught.value.code == 143
        assert f"job {written.job} is aborted" in caplog.text
        assert_aborted(table, s3_bucket, written)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_the_earlier_handler_has_its_turn_after_the_abort(self, table: Table) -> None:
        seen = []
        written = job(table)
        signal.signal(signal.SIGTERM, lambda *_: seen.append(table.job_state(str(written.job))))
        with pytest.raises(JobTerminated), written:
            terminate()
        assert seen == [JobState.ABORTED]
        terminate()
        assert len(seen) == 2

    def test_what_the_earlier_handler_raises_counts(self, table: Table) -> None:
        def stop(*_: Any) -> None:
            raise KeyboardInterrupt("the scheduler's own")

        signal.signal(signal.SIGTERM, stop)
        with pytest.raises(KeyboardInterrupt, match="own") as caught, job(table):
            terminate()
        assert isinstance(caught.value.__context__, JobTerminated)

    def test_opening_is_finished_first(self, table: Table, s3_bucket: Any) -> None:
        """Else nobody would know the id of the job whose open record is there."""
        when(table, sends(object, "/open/"))
        written = job(table)
        with pytest.raises(JobTerminated), written:
            pytest.fail("the block was entered")
        assert_aborted(table, s3_bucket, written)

    @pytest.mark.parametrize(
        ("kind", "part"), [(CreateUpload, "/day="), (Put, "/heads/"), (Put, "/jobs/")]
    )
    def test_before_the_decision_it_aborts(
        self, table: Table, s3_bucket: Any, kind: type, part: str
    ) -> None:
        written = job(table)
        with pytest.raises(JobTerminated):
            write_and(written, partial(when, table, sends(kind, part)))
        assert_aborted(table, s3_bucket, written)
        table.driver._observe = None
        with job(table) as again:
            again.write(DATA)
        assert table.to_arrow().num_rows == 3

    def test_after_the_decision_the_job_is_committed(self, table: Table, s3_bucket: Any) -> None:
        written = job(table)
        completing = partial(when, table, sends(CompleteUpload))
        with pytest.raises(JobTerminated) as caught:
            write_and(written, completing)
        assert caught.value.__notes__ == [f"The job {written.job} is committed all the same."]
        assert table.to_arrow().num_rows == 3
        assert table.is_closed(str(written.job))
        assert s3_bucket.uploads() == []

    def test_a_failing_abort_is_attached(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_steps, "abort_job", unreachable)
        with pytest.raises(JobTerminated) as caught, job(table):
            terminate()
        assert "no answer at all" in caught.value.__notes__[0]

    def test_an_abort_ends_with_the_grace(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A store that does not answer must not keep the process until it is killed."""
        monkeypatch.setattr(job_steps, "abort_job", lambda *_: threading.Event().wait(60))
        written = job(table)
        written._termination = Termination(grace=0.2)
        started = time.monotonic()
        with pytest.raises(JobTerminated) as caught, written:
            terminate()
        assert time.monotonic() - started < 50
        assert "recovery will finish it" in caught.value.__notes__[0]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_earlier_handler_is_called_after_blocks_that_ended_in_any_order(
        self, table: Table
    ) -> None:
        """The first block to begin is the first to end, as with generators."""
        came: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
        first, second = job(table), job(table)
        for use in (first.__enter__, second.__enter__):
            use()
        for use in (first.__exit__, second.__exit__):
            use(None, None, None)
        terminate()
        assert came == [signal.SIGTERM]

    def test_a_second_signal_does_not_disturb_the_abort(self, table: Table, s3_bucket: Any) -> None:
        def twice() -> None:
            when(table, lambda _: True)
            terminate()

        written = job(table)
        with pytest.raises(JobTerminated):
            write_and(written, twice)
        assert_aborted(table, s3_bucket, written)

    def test_while_an_error_is_cleaned_up_it_waits(self, table: Table, s3_bucket: Any) -> None:
        def fail_and_terminate() -> None:
            when(table, lambda _: True)
            fail()

        written = job(table)
        with pytest.raises(JobTerminated) as caught:
            write_and(written, fail_and_terminate)
        assert isinstance(caught.value.__context__, ZeroDivisionError)
        assert_aborted(table, s3_bucket, written)

    def test_jobs_within_each_other_are_all_aborted(self, table: Table, s3_bucket: Any) -> None:
        other = Table(f"s3://{s3_bucket.name}/others")
        outer, inner = job(table), job(other)
        with pytest.raises(JobTerminated), outer:
            write_and(inner, terminate)
        assert_aborted(table, s3_bucket, outer)
        assert_aborted(other, s3_bucket, inner)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_other_threads_and_ignored_signals_are_left_alone(self, table: Table) -> None:
        def handler_inside() -> Any:
            with job(table):
                return signal.getsignal(signal.SIGTERM)

        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(handler_inside).result() is signal.SIG_DFL
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert handler_inside() is signal.SIG_IGN

    def test_a_handler_installed_in_the_block_stays(self, table: Table) -> None:
        def own(*_: Any) -> None: ...

        with job(table):
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own


def when(table: Table, wanted: Any) -> None:
    """Send SIGTERM whenever the table is about to send such a request with the job open."""

    def observe(request: Any) -> None:
        if wanted(request) and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            terminate()

    table.driver._observe = observe


class TestInterrupt:
    """Ctrl-C: whoever pressed it is told what became of the job."""

    def test_in_the_block_it_aborts_and_says_so(self, table: Table, s3_bucket: Any) -> None:
        written = job(table)
        with pytest.raises(KeyboardInterrupt) as caught:
            write_and(written, press)
        assert caught.value.__notes__ == [
            f"Job {written.job} of {table.root.url} is aborted: nothing of it is visible, and it "
            "can be run again."
        ]
        assert_aborted(table, s3_bucket, written)

    @pytest.mark.parametrize("part", ["/heads/", "/jobs/"])
    def test_before_the_decision_it_aborts(self, table: Table, s3_bucket: Any, part: str) -> None:
        written = job(table)
        with pytest.raises(JobInterrupted, match="is aborted: nothing of it is visible") as caught:
            write_and(written, partial(press_when, table, sends(Put, part)))
        assert str(written.job) in str(caught.value)
        assert table.root.url in str(caught.value)
        assert caught.value.state is JobState.ABORTED
        assert_aborted(table, s3_bucket, written)

    def test_after_the_decision_the_job_is_committed(self, table: Table, s3_bucket: Any) -> None:
        written = job(table)
        at = partial(press_when, table, sends(CompleteUpload))
        with pytest.raises(JobInterrupted, match="is committed: its rows are visible") as caught:
            write_and(written, at)
        assert str(written.job) in str(caught.value)
        assert "must not be run again" in str(caught.value)
        assert caught.value.state is JobState.COMMITTED
        assert written.committed is not None
        assert table.to_arrow().num_rows == 3
        assert table.is_closed(str(written.job))
        assert s3_bucket.uploads() == []

    @pytest.mark.parametrize("then", ["unreachable", "pressed again"])
    def test_where_nobody_knows_it_says_how_to_find_out(
        self, table: Table, monkeypatch: pytest.MonkeyPatch, then: str
    ) -> None:
        def aborting(*_: Any) -> None:
            if then == "unreachable":
                unreachable()
            press()

        monkeypatch.setattr(job_steps, "abort_job", aborting)
        written = job(table)
        at = partial(press_when, table, sends(CompleteUpload))
        with pytest.raises(JobInterrupted, match="not known") as caught:
            write_and(written, at)
        assert str(written.job) in str(caught.value)
        assert f"zero-rename jobs {table.root.url}" in str(caught.value)
        assert f"zero-rename recover {table.root.url}" in str(caught.value)
        assert caught.value.state is JobState.UNKNOWN

    def test_while_it_opens_nothing_is_left(self, table: Table) -> None:
        press_when(table, sends(object, "/table.json"))
        with pytest.raises(KeyboardInterrupt) as caught, job(table):
            pytest.fail("the block was entered")
        assert "was not opened" in caught.value.__notes__[0]
        assert table.open_jobs() == []

    def test_while_it_opens_by_a_scheduler_nothing_is_left(self, table: Table) -> None:
        """Dagster's handler of SIGINT raises an exception of its own."""

        class InterruptedByScheduler(BaseException):
            pass

        def interrupt(*_: Any) -> None:
            raise InterruptedByScheduler

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            press_when(table, sends(object, "/table.json"))
            with pytest.raises(InterruptedByScheduler) as caught, job(table):
                pytest.fail("the block was entered")
        finally:
            signal.signal(signal.SIGINT, before)
        assert "was not opened" in caught.value.__notes__[0]
        assert table.open_jobs() == []

    def test_an_error_nobody_thought_of_aborts_too(
        self, table: Table, s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def spoil() -> None:
            monkeypatch.setattr(job_steps, "commit_job", lambda *_, **__: fail())

        written = job(table)
        with pytest.raises(ZeroDivisionError):
            write_and(written, spoil)
        assert_aborted(table, s3_bucket, written)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def press_when(table: Table, wanted: Any) -> None:
    """Press Ctrl-C once, when the table is about to send such a request."""
    pressed = []

    def observe(request: Any) -> None:
        if not pressed and wanted(request):
            pressed.append(request)
            press()

    table.driver._observe = observe


class TestHeartbeats:
    """A job that waits must not look dead to others."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(write_job, "INTERVAL", 0.02)
        # moto checks and writes in two steps, so that nobody sends any while a job commits there.
        monkeypatch.setattr(probe_module, "_NOT_ATOMIC", ())

    def test_they_go_on_through_block_and_commit_and_end_with_it(self, table: Table) -> None:
        beaten = threading.Event()

        def observe(request: Any) -> None:
            if isinstance(request, Put) and "/open/" in request.key and request.if_match:
                beaten.set()
            elif isinstance(request, Put) and "/jobs/" in request.key:
                beaten.clear()
                assert beaten.wait(60)

        with job(table) as written:
            written.write(DATA)
            table.driver._observe = observe
            assert beaten.wait(60)
            (open_job,) = table.open_jobs()
            assert open_job.job == written.job
        assert written.committed is not None
        assert beating() == []
        assert table.is_closed(str(written.job))

    def test_an_aborted_job_sends_none_any_more(self, table: Table) -> None:
        written = job(table)
        with pytest.raises(ZeroDivisionError):
            write_and(written, fail)
        assert beating() == []
        assert table.is_closed(str(written.job))

    def test_a_process_that_hangs_lives_no_longer_than_its_job_may(
        self, table: Table, caplog: pytest.LogCaptureFixture
    ) -> None:
        with job(table, max_duration=0.1) as written:
            written.write(DATA)
            for thread in beating():
                thread.join(60)
            assert beating() == []
            assert f"{written.job} has been open for longer than its max_duration" in caplog.text
        assert table.to_arrow().num_rows == 3

    @quietly
    def test_a_forked_child_leaves_the_job_to_its_parent(self, table: Table) -> None:
        with job(table) as written:
            written.write(DATA)

            def leave() -> int:
                written.__exit__(SystemExit, SystemExit(), None)
                for use in (
                    lambda: written.write(DATA),
                    lambda: written.__exit__(None, None, None),
                ):
                    with pytest.raises(InvalidInputError, match=f"process {os.getppid()}"):
                        use()
                return len(beating())

            assert in_a_child(leave) == 0
            assert table.job_state(str(written.job)) is JobState.UNDECIDED
        assert table.to_arrow().num_rows == 3


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zero-rename-periodic"]


PROGRAM = """
import os, signal, sys
import pyarrow as pa
from zero_rename import Table
from zero_rename.committer import job_steps, write_job
data = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})
try:
    with Table(sys.argv[1]).job(data.schema, partition_by=("day",)) as job:
        job.write(data)
        child = os.fork()
        if not child:
            os.write(1, b"child\\n")
            signal.pause()
        # One write a line: an unbuffered print would mix with the child's.
        os.write(1, f"{job.job} {child}\\n".encode())
        signal.pause()
finally:
    print("outer", flush=True)
"""


@pytest.mark.usefixtures("s3_server")
def test_a_process_that_is_terminated(table: Table, s3_bucket: Any) -> None:
    """And a child it forked dies as it would have, without touching the job."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, table.root.url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = sorted((process.stdout.readline(), process.stdout.readline()))
        name, child = lines[1].split()
        os.kill(int(child), signal.SIGTERM)
        assert lines[0] == "child\n"
        assert table.job_state(name) is JobState.UNDECIDED
        process.terminate()
        assert process.stdout.read() == "outer\n"
        assert process.wait(STUCK) == 143
    finally:
        process.kill()
        process.wait()
    assert table.job_state(name) is JobState.ABORTED
    assert table.is_closed(name)
    assert s3_bucket.uploads() == []
