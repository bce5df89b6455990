"""Runs that wait for other runs of their partitions, by ``wait_for_other_runs``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)

from support.airflow import SCHEMA, Tables, day_rows, task_context
from support.fake_spark import IDLE, FakeSpark
from support.s3a_stand_in import APPLICATION
from support.spark_loads import operator, run
from zero_rename.committer import (
    InvalidInputError,
    OutcomeUnknownError,
    Owner,
    RefusedError,
    RunRank,
)
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid

DAY: dict[str, Any] = {
    "mode": "overwrite",
    "partition": "day=1",
    "wait_for_other_runs": timedelta(hours=1),
}
NEWEST: dict[str, Any] = {"on_conflict": "newest_run"}
LATER = datetime(2013, 3, 1, tzinfo=UTC)

pytestmark = pytest.mark.memory_s3


@pytest.fixture
def at_work(tables: Tables) -> Callable[..., Any]:
    """The job of another run, open and entered."""

    def begin(**policy: Any) -> Any:
        owner = Owner("hourly", "manual", "load")
        given = {"mode": "overwrite", "replace_partitions": ["day=1"], **policy}
        job = tables.table().job(SCHEMA, partition_by=("day",), owner=owner, **given)
        job.__enter__()
        job.write(day_rows((1,), 2))
        return job

    return begin


def ends(job: Any) -> None:
    job.__exit__(None, None, None)


def submits(spark: FakeSpark, task: Any) -> None:
    """The task starts Spark, whose application writes nothing."""
    spark.runs(IDLE)
    with pytest.raises(RefusedError, match="committed no job"):
        run(task)
    assert len(spark.calls()) == 1


@pytest.mark.usefixtures("spark")
class TestOurs:
    def test_run_beside_a_living_job_waits_and_loads_on_top(
        self, tables: Tables, spark: FakeSpark, at_work: Any, pauses: Any
    ) -> None:
        other = at_work()

        def first_ends() -> None:
            assert spark.calls() == []
            ends(other)

        assert len(pauses(first_ends)) == 0
        report = run(operator(tables, **DAY))
        assert [it.job for it in tables.table().files()] == [report["job"]]

    def test_log_names_the_run_that_is_waited_for(
        self, tables: Tables, at_work: Any, pauses: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        other = at_work()
        pauses(lambda: ends(other))
        with caplog.at_level("INFO", "zero_rename"):
            run(operator(tables, **DAY))
        assert f"{other.job} (of hourly.load of run manual; it writes day=1)" in caplog.text

    @pytest.mark.parametrize(
        ("policy", "arguments"),
        [
            ({"replace_partitions": ["day=2"]}, {}),
            ({"mode": "append", "replace_partitions": None}, {"mode": "append"}),
            ({"mode": "append", "replace_partitions": None, "only_partitions": ["day=2"]}, {}),
        ],
        ids=["another partition", "both append", "appends to another partition"],
    )
    def test_run_beside_a_job_that_is_no_rival_goes_on(
        self,
        tables: Tables,
        spark: FakeSpark,
        pauses: Any,
        policy: dict[str, Any],
        arguments: dict[str, Any],
    ) -> None:
        given = {"mode": "overwrite", "replace_partitions": ["day=1"], **policy}
        other = tables.table().job(SCHEMA, partition_by=("day",), **given)
        with other:
            seen = pauses(lambda: None)
            submits(spark, operator(tables, **{**DAY, **arguments}))
            assert seen == []

    def test_run_beside_a_dead_job_goes_on(
        self, tables: Tables, spark: FakeSpark, pauses: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables.undecided(1)
        monkeypatch.setattr(OpenRecord, "patience", 0.0)
        seen = pauses(lambda: None)
        submits(spark, operator(tables, **DAY))
        assert seen == []

    def test_time_out_fails_for_good_and_starts_no_spark(
        self, tables: Tables, spark: FakeSpark, at_work: Any
    ) -> None:
        other = at_work()
        task = operator(tables, **{**DAY, "wait_for_other_runs": 0.2})
        said = rf"after wait_for_other_runs=0 s: {other.job}.*Nothing was submitted"
        with pytest.raises(AirflowFailException, match=said):
            run(task)
        assert spark.calls() == []
        ends(other)

    @pytest.mark.parametrize("policy", ["last_wins", "newest_run"])
    def test_time_out_leaves_the_rest_to_the_other_policies(
        self, tables: Tables, spark: FakeSpark, at_work: Any, policy: str
    ) -> None:
        other = at_work(on_conflict="last_wins")
        task = operator(tables, **{**DAY, "wait_for_other_runs": "0.2", "on_conflict": policy})
        submits(spark, task)
        ends(other)

    @pytest.mark.parametrize(
        ("more", "kind"),
        [({}, AirflowFailException), ({"on_superseded": "skip"}, AirflowSkipException)],
    )
    def test_run_that_was_overtaken_while_it_waited_says_so(
        self,
        tables: Tables,
        spark: FakeSpark,
        at_work: Any,
        pauses: Any,
        more: dict[str, Any],
        kind: type[Exception],
    ) -> None:
        newer = at_work(on_conflict="newest_run", run_rank=LATER)
        pauses(lambda: ends(newer))
        with pytest.raises(kind, match=r"Not submitted, after \d+ s of waiting.*loaded day=1"):
            run(operator(tables, **DAY, **NEWEST, **more))
        assert spark.calls() == []


class TestHadoops:
    @pytest.fixture(autouse=True)
    def _stand_in(self, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
        spark.runs(APPLICATION)
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))

    def rival(self, tables: Tables, opened: float = -60.0, **changes: Any) -> TryRecord:
        table = tables.table()
        owner = Owner("hourly", "manual__1", "load")
        record = TryRecord(run_uuid(), "other", owner, "magic", "replace", ("day=1",))
        record = table.run(ledger.open_try(table.root, replace(record, **changes)))
        at = record.opened_at + opened
        moved = ledger.change(table.root, record, lambda it, _: replace(it, opened_at=at))
        return table.run(moved)

    def end(self, tables: Tables, record: TryRecord, **more: Any) -> None:
        table = tables.table()
        report: dict[str, Any] = {
            "job": record.uuid,
            "committer": "magic",
            "decided_at": record.opened_at,
        }
        report["partitions"] = [{"partition": "day=1", "files": 0, "rows": 0, "bytes": 0}]
        table.run(ledger.close_try(table.root, record, state=COMMITTED, report=report, **more))

    @pytest.mark.parametrize("policy", ["fail", "newest_run", "last_wins"])
    def test_run_beside_a_living_try_waits_and_loads_on_top(
        self, tables: Tables, spark: FakeSpark, pauses: Any, policy: str
    ) -> None:
        other = self.rival(tables)

        def first_ends() -> None:
            assert spark.calls() == []
            open_ones = tables.table().run(ledger.open_tries(tables.table().root)).known
            assert [it.record.uuid for it in open_ones] == [other.uuid]
            self.end(tables, other)

        pauses(first_ends)
        report = run(operator(tables, **DAY, committer="magic", on_conflict=policy))
        assert report["rows"] == 1
        assert "conflict" not in report

    def test_time_out_fails_for_good_and_starts_no_spark(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        self.rival(tables)
        task = operator(tables, **{**DAY, "wait_for_other_runs": 0.2, "committer": "magic"})
        said = "at work on the same partitions after wait_for_other_runs=0 s: hourly.load"
        with pytest.raises(AirflowFailException, match=said):
            run(task)
        assert spark.calls() == []

    def test_time_out_of_newest_run_is_tried_again(self, tables: Tables) -> None:
        self.rival(tables)
        task = operator(
            tables, **{**DAY, **NEWEST, "wait_for_other_runs": 0.2, "committer": "magic"}
        )
        with pytest.raises(OutcomeUnknownError, match="Let the task be retried"):
            run(task)

    def test_run_that_was_overtaken_while_it_waited_says_so(
        self, tables: Tables, pauses: Any
    ) -> None:
        newer = self.rival(tables, rank=RunRank.of(LATER))
        pauses(lambda: self.end(tables, newer))
        with pytest.raises(AirflowFailException, match=r"After \d+ s of waiting.*loaded day=1"):
            run(operator(tables, **DAY, **NEWEST, committer="magic"))


class TestArgument:
    @pytest.mark.parametrize("given", [timedelta(hours=1), 3600, "3600", "PT1H", "1:00:00"])
    def test_duration_is_read(self, given: Any) -> None:
        assert operator(wait_for_other_runs=given).wait_for_other_runs == 3600

    def test_text_that_is_no_duration_breaks_the_import(self) -> None:
        with pytest.raises(InvalidInputError, match="Invalid wait_for_other_runs='soon'"):
            operator(wait_for_other_runs="soon")


class TestDeferred:
    def test_task_that_can_be_deferred_holds_no_worker_and_keeps_its_time(
        self, tables: Tables, at_work: Any, spark: FakeSpark
    ) -> None:
        other = at_work()
        task = operator(tables, **DAY)
        task.deferrable = True
        with pytest.raises(TaskDeferred) as deferred:
            run(task)
        assert deferred.value.method_name == "wait_over"
        assert deferred.value.timeout is None
        (since,) = (deferred.value.kwargs or {}).values()
        context: Any = task_context(task)
        with pytest.raises(TaskDeferred) as again:
            task.wait_over(context, None, waiting_since=since)
        assert again.value.kwargs == {"waiting_since": since}
        began = datetime.now(UTC)
        with pytest.raises(TaskDeferred) as last:
            task.wait_over(context, None, waiting_since=time.time() - 3595)
        # Airflow takes a task that is back at once for one that has died.
        _, said = last.value.trigger.serialize()
        assert said["moment"] > began + timedelta(seconds=9)
        with pytest.raises(AirflowFailException, match="after wait_for_other_runs=3600 s"):
            task.wait_over(context, None, waiting_since=since - 3601)
        assert spark.calls() == []
        ends(other)
        task.wait_over(context, None, waiting_since=since)
        assert len(spark.calls()) == 1
