"""What is asked of an application that ended well, before its load is called committed."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.memory_store import MemoryDriver
from support.s3a_jobs import OTHER, ROOT, World
from support.s3a_stand_in import marker
from zero_rename.committer import OutcomeUnknownError, RefusedError, Table, VerificationError
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.rival_wait import RivalWait
from zero_rename.committer.store.requests import Delete, Put
from zero_rename.orchestration.job_query import FAILED as FAILED_ANSWER
from zero_rename.orchestration.job_query import READY, WAITING, JobQuery
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.orchestration.s3a import load
from zero_rename.orchestration.s3a.configuration import LoadRequest
from zero_rename.orchestration.s3a.load import S3ALoad, loaded_by_s3a
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    UNDONE,
    WRITING,
    WRITTEN,
    StoredTry,
    WriteRecord,
    write_uuid,
)

FIRST = TaskRun("flights", "r", "load", -1, 1, 1)
OTHER_RUN = TaskRun("flights", "other", "load", -1, 1, 1)
RETRY = TaskRun("flights", "r", "load", -1, 2, 1)
DAY1, DAY2 = f"{ROOT.url}/day=1", f"{ROOT.url}/day=2"


class Loading:
    """A try's load, whose application enters these writes."""

    def __init__(
        self,
        world: World,
        run: TaskRun = FIRST,
        mode: Mode = Mode.REPLACE,
        waiting: RivalWait | None = None,
    ) -> None:
        self.table = Table(ROOT.url)
        self.table.driver = MemoryDriver(world.store, None, world.clock)  # pyrefly: ignore[bad-assignment]
        wanted = LoadRequest(Committer.MAGIC, ROOT, mode, ("day=1",))
        self.load = S3ALoad(self.table, run, wanted, waiting=waiting)

    @property
    def known(self) -> StoredTry:
        found = self.table.run(ledger.find(ROOT, FIRST.idempotency_key, self.load.uuid))
        assert found is not None
        return found

    def enter(self, destination: str, state: str = WRITTEN, **given: Any) -> None:
        number = len(self.known.record.writes) + 1
        given["state"] = state
        given.setdefault("uuid", f"w{number}")
        said = {"number": number, "committer": "magic", "mode": "replace"}
        write = WriteRecord(destination=destination, **said, **given)
        assert self.table.run(ledger.swap(self.known, self.known.record.with_write(write)))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("writes", "objection"),
    [
        ([(DAY1, WRITING, "day=1")], "its record of w1 says writing"),
        ([(DAY1, WRITTEN, "day=1"), (DAY1, FAILED, "day=1")], "its record of w2 says failed"),
        ([("s3://bucket/other", WRITTEN, None)], "wrote s3://bucket/other only"),
        # A table whose name begins alike is another.
        ([(f"{ROOT.url}2", WRITTEN, None)], f"wrote {ROOT.url}2 only"),
        (
            [(DAY1, WRITTEN, "day=1"), (DAY2, WRITTEN, "day=2")],
            "also replaced partitions that its task does not name: day=2",
        ),
    ],
)
def test_what_is_not_the_load_that_was_asked_for(
    world: World, writes: list[tuple[str, str, str | None]], objection: str
) -> None:
    loading = Loading(world)
    with loading.load.submitted():
        for destination, state, partition in writes:
            loading.enter(destination, state, partition=partition)
    with pytest.raises(VerificationError, match=f"ended well, and {objection}"):
        loading.load.report()
    assert loading.known.record.state == FAILED


def test_load_with_partitions_that_could_not_be_emptied_is_not_the_load(world: World) -> None:
    loading = Loading(world)
    with loading.load.submitted():
        loading.enter(ROOT.url, unfinished=True)
    with pytest.raises(VerificationError, match="says written, and partitions that got no row"):
        loading.load.report()


@pytest.mark.parametrize("rejects", [f"{ROOT.url}_rejects", "s3://elsewhere/rejects"])
def test_report_is_about_the_tasks_table_alone(world: World, rejects: str) -> None:
    """Of another bucket nothing is read: there the application itself has verified its write."""
    loading = Loading(world)
    target = io.BytesIO()
    pq.write_table(pa.table({"flight": [1]}), target)
    rows = target.getvalue()
    for number, (url, day) in enumerate(((ROOT.url, "day=1"), (rejects, "day=9")), 1):
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        folder = f"{prefix}/{day}"
        if bucket == ROOT.bucket:
            key = f"{folder}/part-0.parquet"
            world.store.apply(Put(key, rows))
            body = marker(f"w{number}", "magic", {key: len(rows)})
            world.store.apply(Put(f"{folder}/_SUCCESS", body))
    with loading.load.submitted():
        loading.enter(f"{ROOT.url}/day=1", partition="day=1", rows=1)
        loading.enter(f"{rejects}/day=9", partition="day=9", rows=1)
    report = loading.load.report()
    assert [it["partition"] for it in report["partitions"]] == ["day=1"]
    assert (report["jobs"], report["rows"], report["files"]) == (["w1"], 1, 1)


class TestRunThatNamesOtherPartitions:
    """A task is cleared once its partition was changed."""

    def cleared(self, world: World, *partitions: str) -> object:
        table = Loading(world).table
        return loaded_by_s3a(table, RETRY, Mode.REPLACE, "replace_own", partitions=partitions)

    @pytest.fixture(autouse=True)
    def _committed(self, world: World) -> None:
        loading = Loading(world)
        with loading.load.submitted():
            pass
        entry = {"partition": "day=1", "files": 1, "rows": 1, "bytes": 1}
        report = {"job": "w1", "decided_at": world.clock(), "partitions": [entry]}
        done = {"state": COMMITTED, "report": report}
        loading.table.run(ledger.close_try(ROOT, loading.known.record, **done))
        world.clock.advance(60)

    def test_is_refused_while_its_rows_lie_where_it_loads_no_more(self, world: World) -> None:
        with pytest.raises(RefusedError, match=r"has committed rows in day=1 .* names day=2"):
            self.cleared(world, "day=2")

    def test_loads_where_it_names_the_former_ones_too(self, world: World) -> None:
        assert self.cleared(world, "day=1", "day=2") is None
        assert self.cleared(world) is None

    def test_loads_once_another_run_has_replaced_its_rows(self, world: World) -> None:
        other = Loading(world, OTHER_RUN)
        with other.load.submitted():
            pass
        key = other.load.uuid
        known = other.table.run(ledger.find(ROOT, OTHER_RUN.idempotency_key, key))
        assert known is not None
        report = {"job": key, "decided_at": world.clock(), "partitions": []}
        done = {"state": COMMITTED, "report": report}
        other.table.run(ledger.close_try(ROOT, known.record, **done))
        assert self.cleared(world, "day=2") is None


class TestRetryOfALoadWhoseRowsAnotherRunHasReplaced:
    """Its worker died once the application had committed two days, and then another run replaced
    the first of them."""

    BOTH = ("day=1", "day=2")

    def put(self, world: World, *days: str) -> dict[str, int]:
        target = io.BytesIO()
        pq.write_table(pa.table({"flight": [1]}), target)
        keys = {f"{ROOT.prefix}/{day}/part-0.parquet": target.getvalue() for day in days}
        for key, body in keys.items():
            world.store.apply(Put(key, body))
        return {key: len(body) for key, body in keys.items()}

    @pytest.fixture
    def first(self, world: World) -> Loading:
        made = Loading(world)
        job = write_uuid(made.load.uuid, 1)
        body = marker(job, "magic", self.put(world, *self.BOTH))
        world.store.apply(Put(f"{ROOT.prefix}/_SUCCESS", body))
        report = ledger.report_prefix(ROOT, made.load.uuid, 1)
        world.store.apply(Put(f"{report}/summary-job.json", body))
        now = world.clock()
        with made.load.submitted():
            made.enter(ROOT.url, among=self.BOTH, uuid=job, opened_at=now, ended_at=now, rows=2)
        world.clock.advance(3600)
        return made

    def replaced(self, world: World, day: str, place: str) -> None:
        other = Loading(world, OTHER_RUN)
        with other.load.submitted():
            world.store.apply(Delete(f"{ROOT.prefix}/{day}/part-0.parquet"))
            key = f"{ROOT.prefix}/{day}/part-1.parquet"
            world.store.apply(Put(key, b"other rows"))
            body = marker(other.load.uuid, "magic", {key: 10})
            world.store.apply(Put(f"{ROOT.prefix}/{place}_SUCCESS", body))
        known = other.table.run(ledger.find(ROOT, OTHER_RUN.idempotency_key, other.load.uuid))
        assert known is not None
        entry = {"partition": day, "files": 1, "rows": 1, "bytes": 10}
        report = {"job": other.load.uuid, "decided_at": world.clock(), "partitions": [entry]}
        done = {"state": COMMITTED, "report": report}
        other.table.run(ledger.close_try(ROOT, known.record, **done))

    @pytest.mark.parametrize("place", ["", "day=1/"], ids=["root", "partition"])
    def test_reports_the_commit_with_all_of_its_partitions(
        self, world: World, first: Loading, place: str
    ) -> None:
        self.replaced(world, "day=1", place)
        report = loaded_by_s3a(first.table, RETRY, Mode.REPLACE, "auto", partitions=self.BOTH)
        assert report is not None
        told = [(it["partition"], it["files"], it["rows"]) for it in report["partitions"]]
        assert told == [("day=1", 1, None), ("day=2", 1, 1)]
        assert (report["job"], report["files"]) == (write_uuid(first.load.uuid, 1), 2)

    def test_loads_again_where_its_rows_are_gone_and_no_run_has_replaced_them(
        self, world: World, first: Loading
    ) -> None:
        world.store.apply(Delete(f"{ROOT.prefix}/day=2/part-0.parquet"))
        report = loaded_by_s3a(first.table, RETRY, Mode.REPLACE, "auto", partitions=self.BOTH)
        assert report is None


def test_retry_names_the_partitions_of_a_job_that_was_rolled_forward_behind_a_later_marker(
    world: World,
) -> None:
    """Its driver died in the commit, and the _SUCCESS of a later job is kept: nothing told of the
    partitions, so sensors waited for them for ever."""
    loading = Loading(world)
    uuid = write_uuid(loading.load.uuid, 1)
    with loading.load.submitted():
        loading.enter(ROOT.url, WRITING, among=("day=1", "day=2"), uuid=uuid, opened_at=1.0)
        job = world.job(uuid=uuid)
        job.complete(job.task(0)[0])
    world.clock.advance(3600)
    world.put_marker(OTHER)
    report = loaded_by_s3a(loading.table, RETRY, Mode.REPLACE, "auto")
    assert report is not None
    assert [(it["partition"], it["files"]) for it in report["partitions"]] == [
        ("day=1", 1),
        ("day=2", 1),
    ]
    assert (report["jobs"], report["files"]) == ([uuid], 2)
    assert world.store.objects[f"{ROOT.prefix}/_SUCCESS"].body == marker(OTHER, "magic", {})


def test_what_the_application_left_is_for_the_next_try_to_settle(world: World) -> None:
    loading = Loading(world)

    def killed() -> None:
        with loading.load.submitted():
            loading.enter(DAY1, WRITING)
            raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        killed()
    known = loading.known
    assert (known.record.state, len(known.record.writes)) == (FAILED, 1)
    assert known.key == ledger.open_key(ROOT, FIRST.idempotency_key, loading.load.uuid)


@pytest.mark.parametrize("mode", [Mode.APPEND, None])
def test_the_rows_of_a_committed_try_are_added_to_only_if_that_is_said(
    world: World, mode: Mode | None
) -> None:
    """Its application may append where the task leaves the mode to it."""
    loading = Loading(world)
    with loading.load.submitted():
        pass
    report: dict[str, Any] = {
        "job": "w1",
        "partition": "day=1",
        "rows": 1,
        "files": 1,
        "bytes": 1,
        "version": None,
    }
    report["table"] = ROOT.url
    done = {"state": COMMITTED, "report": report}
    loading.table.run(ledger.close_try(ROOT, loading.known.record, **done))
    with pytest.raises(RefusedError, match="only added to"):
        loaded_by_s3a(loading.table, RETRY, mode, "replace_own")
    for on_repeat, again in (("append", mode), ("replace_own", Mode.REPLACE)):
        assert loaded_by_s3a(loading.table, RETRY, again, on_repeat) is None
    told = loaded_by_s3a(loading.table, RETRY, mode, "skip")
    assert told == report | {"repeated": True}


def test_nothing_is_submitted_beside_an_application_that_woke_up(world: World) -> None:
    """Its try is called undone, for it has left nothing: the next one does not ask about it."""
    first, retry = Loading(world), Loading(world, RETRY)
    with first.load.submitted():
        first.enter(DAY1, WRITING)
    first.table.run(ledger.close_try(ROOT, first.known.record, state=UNDONE))
    with pytest.raises(OutcomeUnknownError, match="is still writing"), retry.load.submitted():
        pytest.fail("It is submitted.")
    assert retry.known.record.state == UNDONE
    world.clock.advance(3600)
    with Loading(world, RETRY).load.submitted():
        pass


def test_try_that_a_later_one_took_for_dead_is_not_reported_as_committed(world: World) -> None:
    """Its worker was paused, and so was its application."""
    first = Loading(world)
    with first.load.submitted():
        pass
    first.table.run(ledger.close_try(ROOT, first.known.record, state=UNDONE))
    with pytest.raises(VerificationError, match="has found this one to be dead"):
        first.load.report()
    world.put_marker(first.load.uuid)
    with pytest.raises(VerificationError, match="has committed after all"):
        first.load.report()
    assert first.known.record.state == UNDONE


def test_try_that_is_taken_for_dead_while_it_is_verified_is_not_reported_as_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Loading(world)
    with first.load.submitted():
        pass
    world.put_marker(first.load.uuid)

    def met(table: Table, *_: Any) -> str:
        table.run(ledger.close_try(ROOT, first.known.record, state=UNDONE))
        return ""

    monkeypatch.setattr(load, "met", met)
    with pytest.raises(VerificationError, match="has committed after all"):
        first.load.report()
    assert first.known.record.state == UNDONE


class TestSensorOfARun:
    """A run whose first try has committed, and which loads again."""

    QUERY = JobQuery(ROOT.url, idempotency_key=FIRST.idempotency_key)

    @pytest.fixture
    def first(self, world: World) -> Loading:
        made = self.committed(world, FIRST)
        world.clock.advance(60)
        return made

    def committed(self, world: World, run: TaskRun) -> Loading:
        made = Loading(world, run)
        with made.load.submitted():
            pass
        entry = {"partition": "day=1", "version": None, "files": 1, "rows": 1, "bytes": 1}
        report = {**entry, "job": made.load.uuid, "table": ROOT.url, "partitions": [entry]}
        done = {"state": COMMITTED, "report": report}
        made.table.run(ledger.close_try(ROOT, made.known.record, **done))
        return made

    def test_later_try_that_replaces_is_waited_for(self, world: World, first: Loading) -> None:
        assert self.QUERY.ask(first.table).state == READY
        with Loading(world, RETRY).load.submitted():
            found = self.QUERY.after(self.QUERY.ask(first.table), "failed")
        assert found.state == WAITING
        assert found.explanation.startswith("Attempt 2 of this run has begun")
        world.clock.advance(60)
        again = self.committed(world, RETRY)
        found = self.QUERY.ask(first.table)
        assert (found.state, (found.report or {})["job"]) == (READY, again.load.uuid)

    def test_later_try_that_died_fails_the_sensor_once_its_task_is_over(
        self, world: World, first: Loading
    ) -> None:
        retry = Loading(world, RETRY)
        with retry.load.submitted():
            pass
        retry.load.end()
        found = self.QUERY.ask(first.table)
        assert self.QUERY.after(found, "running").state == WAITING
        assert self.QUERY.after(found, "failed").state == FAILED_ANSWER

    def test_later_try_that_adds_or_gave_way_takes_nothing_away(
        self, world: World, first: Loading
    ) -> None:
        gave_way = Loading(world, RETRY)
        with gave_way.load.submitted():
            gave_way.load.withdraw()
        assert self.QUERY.ask(first.table).state == READY
        with Loading(world, RETRY, Mode.APPEND).load.submitted():
            assert self.QUERY.ask(first.table).state == READY


def test_sensor_of_a_run_whose_task_is_over_waits_while_its_application_writes(
    world: World,
) -> None:
    loading, query = Loading(world), TestSensorOfARun.QUERY
    with loading.load.submitted():
        loading.enter(DAY1, WRITING)
    loading.load.end()
    assert query.after(query.ask(loading.table), "failed").state == WAITING
    world.clock.advance(3600)
    assert query.after(query.ask(loading.table), "failed").state == FAILED_ANSWER


def test_try_whose_task_is_deferred_while_it_waits_for_others_leaves_no_record(
    world: World,
) -> None:
    """Each of its looks is a try of its own."""
    other = Loading(world, OTHER_RUN)

    def defer(_: float) -> None:
        waiting.load.withdraw()
        raise InterruptedError

    waiting = Loading(world, waiting=RivalWait(600.0, pause=defer))
    with other.load.submitted():
        world.clock.advance(60)
        with pytest.raises(InterruptedError), waiting.load.submitted():
            pytest.fail("It is submitted.")
    assert other.table.run(ledger.tries_of(ROOT, FIRST.idempotency_key)) == ()
