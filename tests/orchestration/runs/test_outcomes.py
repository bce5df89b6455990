"""What becomes of a run whose application was killed, told why it failed, or committed nothing."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.airflow import Tables
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    OutcomeUnknownError,
    Owner,
    StoreRefusedError,
    Table,
    TaskResultsError,
    ZeroRenameError,
)
from zero_rename.committer.commit.failures import failures_told
from zero_rename.committer.format.job_spec import OnRepeat
from zero_rename.committer.format.records.failure import Failure
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.requests import CompleteUpload
from zero_rename.committer.write_job import WriteJob
from zero_rename.orchestration.runs.outcomes import (
    check_partitions,
    committed_before,
    in_words,
    settle_former,
    settle_killed,
    settled,
    told_failure,
    was_overtaken,
)
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

RUN = TaskRun("flights", "r", "load", -1, 1, 1)
RETRY = TaskRun("flights", "r", "load", -1, 2, 1, "s")
MINE = Owner(dag_id="flights", run_id="r", task_id="load", map_index=-1, try_number=1)


class TestKilled:
    """Before, while and after its application has opened a job."""

    @pytest.fixture(autouse=True)
    def logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.log = caplog

    def warnings(self) -> list[str]:
        return [it.getMessage() for it in self.log.records if it.levelno >= logging.WARNING]

    def test_a_first_load_that_has_left_nothing(self, tables: Tables) -> None:
        """There is not even a table. It warned of what could not be settled."""
        settle_killed(tables.table(), RUN)
        assert self.warnings() == []

    def test_a_first_load_whose_job_is_taken_back_meanwhile(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table, job = tables.table(), tables.undecided(1, owner=MINE)
        seen = table.open_jobs()
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=table.root.open_key(job))
        monkeypatch.setattr(table, "open_jobs", lambda: seen)
        settle_killed(table, RUN)
        assert self.warnings() == []

    def test_a_first_load_in_the_middle_of_its_job(self, tables: Tables) -> None:
        job = tables.undecided(1, owner=MINE)
        settle_killed(tables.table(), RUN)
        assert tables.table().job_state(job) == "aborted"
        assert tables.bucket.uploads() == []
        assert self.warnings() == []
        assert f"{job}: aborted" in self.log.text

    @pytest.mark.parametrize(
        "owner", [{"task_id": "other"}, {"run_id": "other"}, {"map_index": 1}, {"try_number": 2}]
    )
    def test_jobs_of_others_are_left_to_them(self, tables: Tables, owner: dict[str, Any]) -> None:
        other = tables.undecided(1, owner=replace(MINE, **owner))
        settle_killed(tables.table(), RUN)
        assert tables.table().job_state(other) == "undecided"
        assert [it.job for it in tables.table().open_jobs()] == [other]

    def test_one_that_cannot_be_settled_is_said(self, tables: Tables) -> None:
        job = tables.undecided(1, owner=MINE)
        key = tables.table().root.decision_key(job)
        tables.bucket.put(key, b"{")
        settle_killed(tables.table(), RUN)
        (said,) = self.warnings()
        assert "could not be settled now" in said
        assert key in said

    def test_what_cannot_be_settled_is_said(self, tables: Tables) -> None:
        tables.undecided(1, owner=MINE)
        tables.bucket.put(f"{tables.table().root.control_prefix}table.json", b"{")
        settle_killed(tables.table(), RUN)
        (said,) = self.warnings()
        assert "could not be settled now" in said


class TestFormerAttempts:
    """No heartbeat tells of a job in a Delta table that it is dead."""

    @pytest.fixture
    def table(self, tables: Tables) -> DeltaTable:
        table = ZeroRenameHook().get_delta_table(tables.url("delta"))
        with table.job(pa.schema([("n", pa.int64())])):
            pass
        return table

    def opened(self, table: DeltaTable, key: str = "flights/r/load", **owner: Any) -> str:
        """A job whose process has died."""
        job = table.job(idempotency_key=key, owner=replace(MINE, **owner))
        job.__enter__()
        assert job.job is not None
        return job.job

    def test_job_of_a_former_attempt_is_closed(self, table: DeltaTable) -> None:
        job = self.opened(table)
        settle_former(table, RETRY)
        assert (table.open_jobs(), table.is_fenced(job)) == ([], True)

    @pytest.mark.parametrize(
        "owner",
        [{"try_number": 2}, {"try_number": 3}, {"task_id": "other"}, {"run_id": "other"}],
        ids=["this attempt's", "a later attempt's", "another task's", "another run's"],
    )
    def test_job_of_another_is_left(self, table: DeltaTable, owner: dict[str, Any]) -> None:
        job = self.opened(table, **owner)
        settle_former(table, RETRY)
        assert [it.job for it in table.open_jobs()] == [job]

    def test_job_of_another_write_of_the_application_is_left(self, table: DeltaTable) -> None:
        job = self.opened(table, "flights/r/load/second")
        settle_former(table, RETRY)
        assert [it.job for it in table.open_jobs()] == [job]

    def test_job_that_waits_to_be_published_is_left(self, table: DeltaTable) -> None:
        with table.job(idempotency_key="flights/r/load", owner=MINE, publish=False) as job:
            job.write(pa.table({"n": [1]}))
        settle_former(table, RETRY)
        assert [it.job for it in table.unpublished()] == [job.job]


class TestSettled:
    def test_what_its_application_did_not_live_to_apply(self, tables: Tables) -> None:
        job = tables.decided(1)
        assert settled(tables.table(), job).rows == 2
        assert tables.table().is_closed(job)

    def test_not_one_that_is_not_listable_yet(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, carry_out = tables.decided(1), BotoDriver.perform

        def perform(self: BotoDriver, request: Any) -> Any:
            if isinstance(request, CompleteUpload):
                raise StoreRefusedError("Access denied.", lacks_right=True)
            return carry_out(self, request)

        monkeypatch.setattr(BotoDriver, "perform", perform)
        with pytest.raises(OutcomeUnknownError, match="could not be applied to its end"):
            settled(tables.table(), job)


class TestPartitions:
    """A job may change those that its task names, and empty those that its run had loaded."""

    def test_another_one(self, tables: Tables) -> None:
        done = tables.load(1, 2)
        check_partitions(tables.table(), done, ())
        check_partitions(tables.table(), done, ["day=1", "day=2"])
        with pytest.raises(TaskResultsError, match="does not name: day=2"):
            check_partitions(tables.table(), done, ["day=1"])

    @pytest.mark.parametrize("days", [(2,), (1, 2)])
    def test_what_the_run_had_loaded_before(self, tables: Tables, days: tuple[int, ...]) -> None:
        tables.load(1)
        first = tables.load(1, idempotency_key="r")
        again = tables.load(*days, idempotency_key="r", on_repeat=OnRepeat.REPLACE_OWN)
        assert [it.partition for it in again.partitions] == ["day=1", "day=2"]
        if days == (2,):  # It took its own rows out of the other.
            check_partitions(tables.table(), again, ["day=2"], first.job)
        for earlier in (None, first.job)[: len(days)]:
            with pytest.raises(TaskResultsError, match="does not name: day=1"):
                check_partitions(tables.table(), again, ["day=2"], earlier)


@pytest.fixture
def table(bucket: str) -> Table:
    return Table(f"s3://{bucket}/flights")


def tell(table: Table) -> None:
    error = InvalidInputError("No such column.", key="k", remedy="Mend it.")
    with (
        pytest.raises(InvalidInputError),
        failures_told(table.root, RETRY.idempotency_key, RETRY.handoff().owner),
    ):
        raise error


def test_a_failure_of_this_try_in_words(table: Table) -> None:
    assert told_failure(table, RETRY) is None
    tell(table)
    told = told_failure(table, RETRY)
    assert told is not None
    text = in_words(told, table)
    assert text.startswith(f"No such column. [table {table.root.url}, key k] Mend it.")
    assert text.endswith("(InvalidInputError)")


@pytest.mark.parametrize("layout", [Table, DeltaTable])
def test_failure_that_the_application_has_mended_is_not_why_it_ended(
    bucket: str, layout: type[Any]
) -> None:
    """It has committed by a second save(), and failed at something else."""
    table = layout(f"s3://{bucket}/flights")
    tell(table)
    time.sleep(1.1)  # The store's times have whole seconds.
    rows, run = pa.table({"n": [1]}), RETRY
    given: Any = {"idempotency_key": run.idempotency_key, "owner": run.handoff().owner}
    with table.job(rows.schema, **given) as job:
        job.write(rows)
    assert told_failure(table, run) is None
    assert "it had committed job" in committed_before(table, run)
    time.sleep(1.1)
    tell(table)
    assert told_failure(table, run) is not None


@pytest.mark.parametrize("kind", [CommitConflictError, JobFencedError])
def test_what_to_do_about_a_conflict_is_the_schedulers_to_say(
    table: Table, kind: type[ZeroRenameError]
) -> None:
    """The application says to load the table anew, and to run the job again: it cannot."""
    said = {"remedy": "Run the job again.", "table": table.root.url}
    keys = (table.root.head_key("day=1"), table.root.run_key("r"), table.root.table_key, None)
    owner = RETRY.handoff().owner
    for key, remedy in zip(keys, ("Clear the task.", *["Run the job again."] * 3), strict=True):
        error = kind("Partitions changed.", key=key, **said)
        told = Failure.of(error, table.root, RETRY.idempotency_key, owner, "w")
        assert f"] {remedy} (" in in_words(told, table, "Clear the task.")
        assert "] Run the job again. (" in in_words(told, table)
    error = InvalidInputError("No.", key=keys[0], **said)
    told = Failure.of(error, table.root, RETRY.idempotency_key, owner, "w")
    assert "] Run the job again. (" in in_words(told, table, "Clear the task.")


@pytest.mark.parametrize("by", [(), ("day",)], ids=["unpartitioned", "partitioned"])
def test_conflict_over_a_delta_table_is_one_with_another_job_though_no_head_is_named(
    bucket: str, by: tuple[str, ...]
) -> None:
    table = DeltaTable(f"s3://{bucket}/delta")
    rows = pa.table({"day": [1], "n": [1]})

    def job() -> WriteJob:
        return table.job(rows.schema, mode="replace", partition_by=by)

    with job() as first:
        first.write(rows)
    late = job()
    late.__enter__()
    late.write(rows)
    with job() as other:
        other.write(rows)
    with pytest.raises(CommitConflictError) as caught:
        late.__exit__(None, None, None)
    owner = RETRY.handoff().owner
    told = Failure.of(caught.value, table.root, RETRY.idempotency_key, owner, "w")
    assert was_overtaken(told, table)
    assert "] Clear the task. (" in in_words(told, table, "Clear the task.")


@pytest.mark.parametrize("other", [{"try_number": 3}, {"series": "other"}])
def test_one_of_another_try_is_none_of_this(table: Table, other: dict[str, Any]) -> None:
    tell(table)
    assert told_failure(table, replace(RETRY, **other)) is None
