"""What an application enters into its try's record, without Spark."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import RpcError
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException, SparkException

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.s3a_jobs import JOB, ROOT, a_try
from support.session_stand_in import configured, session
from zero_rename.committer.errors import (
    JobFencedError,
    SettingsRefusedError,
    StoreUnreachableError,
    UnfinishedCommitError,
)
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.store.requests import Put
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    FAILED,
    FENCED,
    WRITING,
    WRITTEN,
    WriteRecord,
    write_uuid,
)
from zero_rename.s3a.write_plan import PlannedWrite
from zero_rename.spark.s3a import recorded_write
from zero_rename.spark.s3a.recorded_write import _Application
from zero_rename.spark.s3a.session import SessionView
from zero_rename.spark.write_target import WriteTarget

ONCE = "flights/r/load"
TARGET = WriteTarget(ROOT, "magic", Mode.APPEND, (), ())
WRITE = PlannedWrite("s3a://bucket/wh/flights", Mode.APPEND)


class NoSettings:
    """A session of which nothing is known."""

    def hadoop(self, *_: str) -> None:
        return None

    for_bucket = secret = hadoop


class Uncounted:
    """The rows of a write that no Spark counts."""

    def of(self, frame: Any) -> Any:
        return frame

    def rows(self) -> None:
        return None


def unreachable(request: Any, apply: Any) -> Any:
    """A store that does not answer."""
    raise StoreUnreachableError("The store does not answer.")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_write, "_numbers", {})
    monkeypatch.setattr(recorded_write, "_writes", {})
    monkeypatch.setattr(recorded_write, "_alone", set())


def application(store: MemoryStore, fault: Any = None) -> _Application:
    view: Any = NoSettings()
    made = _Application(TARGET, view, Handoff(table=ROOT, idempotency_key=ONCE, s3a_run=JOB))
    made._records.driver = MemoryDriver(store, fault)  # pyrefly: ignore[bad-assignment]
    return made


def writes(store: MemoryStore) -> tuple[WriteRecord, ...]:
    found = MemoryDriver(store).run(ledger.find(ROOT, ONCE, JOB))
    assert found is not None
    return found.record.writes


@pytest.fixture
def submitted(store: MemoryStore) -> None:
    MemoryDriver(store).run(ledger.open_try(ROOT, a_try(idempotency_key=ONCE)))


@pytest.mark.usefixtures("submitted")
def test_threads_of_a_driver_do_not_take_each_others_turns(
    store: MemoryStore, clock: ManualClock
) -> None:
    """Whenever one has looked, another enters its write: it would never come to its own."""
    other = application(store)
    busy = other._begin(WRITE, 1, 1)
    threads: list[threading.Thread] = []

    def interferes(request: Any, apply: Any) -> Any:
        if isinstance(request, Put):
            clock.advance(1)
            threads.append(threading.Thread(target=other._enter, args=(busy,)))
            threads[-1].start()
            threads[-1].join(0.1)
        return apply(request)

    made = application(store, interferes)
    record = made._begin(WRITE, 1, 1)
    for thread in threads:
        thread.join()
    assert [write.uuid for write in writes(store)] == [busy.uuid, record.uuid]


@pytest.mark.usefixtures("submitted")
def test_what_a_store_without_conditions_lost_is_entered_again(store: MemoryStore) -> None:
    made = application(store)
    first = made._begin(WRITE, 1, 1)
    made._enter(replace(first, state=WRITTEN))
    second = made._begin(WRITE, 1, 1)
    driver = MemoryDriver(store)
    driver.run(
        ledger.change(ROOT, a_try(idempotency_key=ONCE), lambda found, _: replace(found, writes=()))
    )
    assert made._heartbeat(second) == ""
    assert [write.state for write in writes(store)] == [WRITTEN, second.state]


@pytest.mark.usefixtures("submitted")
def test_committed_write_whose_record_fails_is_told_as_committed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = application(store)

    def commit(frame: Any, write: PlannedWrite, record: WriteRecord) -> None:
        made._records.driver = MemoryDriver(store, unreachable)  # pyrefly: ignore[bad-assignment]

    monkeypatch.setattr(made, "_spark_writes", commit)
    monkeypatch.setattr(made, "_verify", lambda record: None)
    monkeypatch.setattr(recorded_write, "RowCount", lambda name: Uncounted())
    with pytest.raises(UnfinishedCommitError, match="rows are committed, and its record"):
        made.write(a_frame(), WRITE, 1, 1)


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o84.save"),
        SparkConnectGrpcException("failed to connect to all addresses"),
        RpcError(),
    ],
    ids=repr,
)
def test_write_whose_connection_to_spark_was_lost_is_not_on_record_as_failed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Spark may go on, and commit."""
    assert state_after(store, monkeypatch, error) == [WRITING]


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    "error",
    [
        SparkException("[TASK_FAILED] a task failed"),
        Py4JError("An error occurred while calling o84.save. Trace:\njava.lang.Error"),
        AnalysisException("no such column"),
    ],
    ids=repr,
)
def test_write_that_spark_has_ended_is_on_record_as_failed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert state_after(store, monkeypatch, error) == [FAILED]


def state_after(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[str]:
    made = application(store)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(made, "_spark_writes", fail)
    monkeypatch.setattr(recorded_write, "RowCount", lambda name: Uncounted())
    with pytest.raises(type(error)):
        made.write(a_frame(), WRITE, 1, 1)
    return [write.state for write in writes(store)]


def a_frame() -> Any:
    """A frame whose session takes tags."""
    tags = dict.fromkeys(("addTag", "removeTag", "interruptTag"), lambda tag: None)
    return SimpleNamespace(sparkSession=SimpleNamespace(**tags))


@pytest.mark.usefixtures("submitted")
def test_committed_write_that_could_not_empty_a_partition_is_on_record_as_written(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an older run notices it."""
    made = application(store)

    def refuse(record: WriteRecord) -> tuple[str, ...]:
        raise made._not_emptied(record, "day=1", "files")

    for name in ("_spark_writes", "_verify"):
        monkeypatch.setattr(made, name, lambda *_: None)
    monkeypatch.setattr(made, "_empty_the_rest", refuse)
    monkeypatch.setattr(recorded_write, "RowCount", lambda name: Uncounted())
    with pytest.raises(UnfinishedCommitError, match="could not be emptied"):
        made.write(a_frame(), WRITE, 1, 1)
    assert [write.state for write in writes(store)] == [WRITTEN]


def test_committed_write_whose_partitions_are_not_empty_yet_is_not_done(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry loads again: it reported the load, and the old rows stayed."""
    MemoryDriver(store).run(ledger.open_try(ROOT, a_try(idempotency_key=ONCE)))
    target = WriteTarget(ROOT, "partitioned", Mode.REPLACE, ("day",), ("day=1",))
    view: Any = NoSettings()
    made = _Application(target, view, Handoff(table=ROOT, idempotency_key=ONCE, s3a_run=JOB))
    made._records.driver = MemoryDriver(store)  # pyrefly: ignore[bad-assignment]
    made._table.driver = MemoryDriver(store, unreachable)  # pyrefly: ignore[bad-assignment]
    for name in ("_spark_writes", "_verify"):
        monkeypatch.setattr(made, name, lambda *_: None)
    monkeypatch.setattr(recorded_write, "RowCount", lambda name: Uncounted())
    with pytest.raises(UnfinishedCommitError, match="could not be emptied"):
        made.write(a_frame(), WRITE, 1, 1)
    (write,) = writes(store)
    assert (write.state, write.is_done) == (WRITTEN, False)


def test_named_partitions_without_rows_or_old_files_count_as_emptied(store: MemoryStore) -> None:
    """A sensor of one of them finds in the report that the run has loaded it."""
    view: Any = NoSettings()
    target = WriteTarget(ROOT, "partitioned", Mode.REPLACE, ("day",), ("day=1", "day=2", "day=3"))
    made = _Application(target, view, Handoff())
    made._table.driver = MemoryDriver(store)  # pyrefly: ignore[bad-assignment]
    write = WriteRecord(write_uuid(JOB, 1), 1, "partitioned", ROOT.url, "replace")
    for day, name in ((1, f"part-0-{write.uuid}"), (2, "part-0-old")):
        store.apply(Put(f"{ROOT.prefix}/day={day}/{name}.parquet", b"rows"))
    assert made._empty_the_rest(write) == ("day=2", "day=3")
    assert store.keys(f"{ROOT.prefix}/") == [f"{ROOT.prefix}/day=1/part-0-{write.uuid}.parquet"]


def test_committed_overwrite_that_cannot_look_for_rows_to_remove_is_told_as_committed(
    store: MemoryStore,
) -> None:
    view: Any = NoSettings()
    target = WriteTarget(ROOT, "partitioned", Mode.REPLACE, ("day",), ("day=1",))
    made = _Application(target, view, Handoff())
    made._table.driver = MemoryDriver(store, unreachable)  # pyrefly: ignore[bad-assignment]
    write = WriteRecord(write_uuid(JOB, 1), 1, "partitioned", ROOT.url, "overwrite")
    with pytest.raises(UnfinishedCommitError, match="day=1, which got none of them"):
        made._empty_the_rest(write)


@pytest.mark.usefixtures("submitted")
def test_a_driver_that_the_cluster_has_started_again_writes_nothing(store: MemoryStore) -> None:
    write = WriteRecord(write_uuid(JOB, 1), 1, "magic", ROOT.url, "append")
    entered = ledger.change(
        ROOT, a_try(idempotency_key=ONCE), lambda found, _: found.with_write(write)
    )
    MemoryDriver(store).run(entered)
    for _ in range(2):  # Also after its program has caught the error.
        with pytest.raises(JobFencedError, match="started the driver again"):
            application(store)._begin(WRITE, 1, 1)
    assert writes(store) == (write,)


@pytest.mark.usefixtures("submitted")
def test_write_after_one_that_the_store_refused_is_the_attempts_own(store: MemoryStore) -> None:
    with pytest.raises(StoreUnreachableError):
        application(store, unreachable)._begin(WRITE, 1, 1)
    second = application(store)._begin(WRITE, 1, 1)
    third = application(store)._begin(WRITE, 1, 1)
    assert writes(store) == (second, third)


def test_one_whose_record_is_removed_ends_its_write(store: MemoryStore) -> None:
    """As recovery does with that of a save() that it takes for dead."""
    made = application(store)
    record = made._begin(WRITE, 1, 1)
    store.objects.clear()
    assert "was removed" in made._heartbeat(record)
    assert store.objects == {}


def test_save_without_an_operator_ends_its_write_when_recovery_has_fenced_it(
    store: MemoryStore,
) -> None:
    view: Any = NoSettings()
    made = _Application(TARGET, view, Handoff())
    made._records.driver = MemoryDriver(store)  # pyrefly: ignore[bad-assignment]
    record = made._begin(WRITE, 1, 1)
    assert made._heartbeat(record) == ""
    MemoryDriver(store).run(
        ledger.change(ROOT, made._try, lambda found, _: replace(found, state=FENCED))
    )
    assert "found this attempt to be dead" in made._heartbeat(record)


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({"fs.s3a.committer.name": "directory"}, "committer-name"),
        ({"fs.s3a.committer.staging.tmp.path": "/tmp/x"}, None),
    ],
)
def test_settings_among_the_options_of_a_call_are_checked(
    store: MemoryStore, options: dict[str, str], check: str | None
) -> None:
    """They reach the committer: the job was another committer's than its record said."""
    view = SessionView(session(*configured()))
    made = _Application(replace(TARGET, options=options), view, Handoff())
    made._table.driver = MemoryDriver(store)  # pyrefly: ignore[bad-assignment]
    if check is None:
        made.check((WRITE,))
        return
    with pytest.raises(SettingsRefusedError, match=check):
        made.check((WRITE,))
