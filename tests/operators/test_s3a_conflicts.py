"""Runs of one partition by Hadoop's committers: which gives way, before Spark and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from support.airflow import Tables, task_context
from support.fake_spark import FakeSpark
from support.s3a_loads import EARLIER, LATER, MEETS, operator, run, run_in_its_own_second
from support.s3a_stand_in import APPLICATION
from zero_rename.committer import InvalidInputError, OutcomeUnknownError, Owner
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3


@pytest.fixture(autouse=True)
def _stand_in(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.runs(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))


@pytest.fixture
def rival(tables: Tables) -> Callable[..., TryRecord]:
    """Another run of the day, at work since a while."""

    def put(opened: float = -60.0, **changes: Any) -> TryRecord:
        table = tables.table()
        owner = Owner("hourly", "manual__1", "load")
        record = TryRecord(run_uuid(), "other", owner, "magic", "replace", ("day=1",))
        record = table.run(ledger.open_try(table.root, replace(record, **changes)))
        if opened:
            at = record.opened_at + opened
            moved = ledger.change(table.root, record, lambda it, _: replace(it, opened_at=at))
            record = table.run(moved)
        return record

    return put


class TestAtWork:
    def test_run_beside_one_that_opened_before_fails_for_good_and_starts_no_spark(
        self, tables: Tables, spark: FakeSpark, rival: Callable[..., TryRecord]
    ) -> None:
        other = rival()
        said = rf"hourly\.load of run manual__1 \({other.uuid}\)\. Nothing was submitted"
        with pytest.raises(AirflowFailException, match=said):
            run(operator(tables))
        assert spark.calls() == []

    def test_policy_comes_from_the_connection(
        self, tables: Tables, rival: Callable[..., TryRecord], connect: Any
    ) -> None:
        connect("zr", extra={"table_root": tables.url(""), "on_conflict": "last_wins"})
        rival()
        assert run(operator(tables, zero_rename_conn_id="zr"))["rows"] == 1

    @pytest.mark.parametrize(
        ("changes", "arguments"),
        [
            ({"partitions": ("day=2",)}, {}),
            ({"mode": "append"}, {"mode": "append"}),
            ({"state": "failed"}, {}),
            ({}, {"on_conflict": "last_wins"}),
        ],
        ids=["another partition", "both append", "ended", "last_wins"],
    )
    def test_run_that_takes_nothing_away_goes_on(
        self,
        tables: Tables,
        rival: Callable[..., TryRecord],
        changes: dict[str, Any],
        arguments: dict[str, Any],
    ) -> None:
        rival(**changes)
        assert run(operator(tables, **arguments))["rows"] == 1

    @pytest.mark.parametrize(
        ("changes", "arguments"),
        [
            ({"partitions": ()}, {}),
            ({}, {"partition": "*"}),
            ({}, {"mode": "append"}),
            ({"mode": "append"}, {}),
            ({"mode": None}, {}),
        ],
        ids=["it holds all", "this holds all", "this appends", "it appends", "its mode is unknown"],
    )
    def test_run_gives_way_where_either_replaces(
        self,
        tables: Tables,
        rival: Callable[..., TryRecord],
        changes: dict[str, Any],
        arguments: dict[str, Any],
    ) -> None:
        rival(**changes)
        with pytest.raises(AirflowFailException, match="Another run is at work"):
            run(operator(tables, **arguments))

    def test_one_that_opens_later_gives_way_itself(
        self, tables: Tables, rival: Callable[..., TryRecord]
    ) -> None:
        rival(opened=3600.0)
        assert run(operator(tables))["rows"] == 1

    def test_newest_run_is_tried_again_when_the_other_has_ended(
        self, tables: Tables, rival: Callable[..., TryRecord]
    ) -> None:
        rival()
        with pytest.raises(OutcomeUnknownError, match="Let the task be retried"):
            run(operator(tables, on_conflict="newest_run"))


class TestNewestRun:
    def load(self, tables: Tables, start: datetime, **arguments: Any) -> dict[str, Any]:
        task = operator(tables, on_conflict="newest_run", **arguments)
        return run_in_its_own_second(task, run_id=f"run of {start}", start=start)

    def test_late_run_fails_for_good_and_starts_no_spark(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        self.load(tables, LATER)
        calls = len(spark.calls())
        with pytest.raises(AirflowFailException, match=r"have loaded day=1 \(by flights"):
            self.load(tables, EARLIER)
        assert len(spark.calls()) == calls
        self.load(tables, datetime(2013, 4, 1, tzinfo=UTC))

    def test_late_run_is_skipped_where_it_says_so(self, tables: Tables) -> None:
        self.load(tables, LATER)
        with pytest.raises(AirflowSkipException):
            self.load(tables, EARLIER, on_superseded="skip")

    def test_late_run_of_which_some_is_left_fails_and_names_both(self, tables: Tables) -> None:
        self.load(tables, LATER)
        two = ["day=1", "day=2"]
        with pytest.raises(AirflowFailException, match=r"loaded day=1 .*written day=2 besides"):
            self.load(tables, EARLIER, on_superseded="skip", partition=two)

    def test_ranks_of_two_kinds_fail_for_good(self, tables: Tables, spark: FakeSpark) -> None:
        self.load(tables, LATER, run_rank=7)
        calls = len(spark.calls())
        with pytest.raises(AirflowFailException, match="rank of the rows in day=1 is 7"):
            self.load(tables, EARLIER)
        assert len(spark.calls()) == calls

    def test_late_append_follows_appends(self, tables: Tables) -> None:
        self.load(tables, LATER, mode="append")
        assert self.load(tables, EARLIER, mode="append")["rows"] == 1

    def test_last_wins_loads_older_rows_on_purpose(self, tables: Tables) -> None:
        self.load(tables, LATER)
        deliberate = operator(tables, on_conflict="last_wins")
        run_in_its_own_second(deliberate, run_id="correction", start=EARLIER)
        assert self.load(tables, datetime(2013, 2, 1, tzinfo=UTC))["rows"] == 1

    @pytest.mark.parametrize(
        "arguments", [{"partition": "*"}, {"mode": None}, {"mode": "fail-if-exists"}]
    )
    def test_what_cannot_be_compared_is_refused(
        self, tables: Tables, spark: FakeSpark, arguments: dict[str, Any]
    ) -> None:
        said = r"on_conflict=newest_run (compares runs|is about partitions)"
        with pytest.raises(AirflowFailException, match=said):
            self.load(tables, LATER, **arguments)
        assert spark.calls() == []


class TestMet:
    def test_run_that_met_another_fails_for_good_and_so_does_each_retry(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        spark.runs(MEETS)
        for try_number in (1, 2):
            with pytest.raises(
                AirflowFailException, match=r"while this one was at work: hourly\.load"
            ):
                run(operator(tables, retries=2), try_number=try_number)
        assert len(spark.calls()) == 1

    def test_no_sensor_takes_it_for_a_load(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(MEETS)
        with pytest.raises(AirflowFailException):
            run(operator(tables))
        by_run = SuccessManifestSensor(task_id="wait", table=tables.url(), upstream_task_id="load")
        context: Any = task_context(by_run)
        with pytest.raises(AirflowFailException, match=r"at work: hourly\.load .*clear it"):
            by_run.poke(context)
        by_day = SuccessManifestSensor(
            task_id="days", table=tables.url(), partitions=["day=1"], committer="magic"
        )
        assert by_day.poke(context).is_done is False
        spark.runs(APPLICATION)
        run_in_its_own_second(operator(tables), try_number=2, max_tries=1, clear_number=1)
        assert by_run.poke(context).is_done is True
        assert by_day.poke(context).is_done is True

    def test_clear_that_replaces_settles_it(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(MEETS)
        with pytest.raises(AirflowFailException):
            run(operator(tables))
        spark.runs(APPLICATION)
        report = run(operator(tables), try_number=2, max_tries=1, clear_number=1)
        assert "conflict" not in report

    def test_last_wins_notes_it(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(MEETS)
        report = run(operator(tables, on_conflict="last_wins"))
        assert "hourly.load of run manual" in report["overlapped"]


def test_skipping_without_newest_run_is_refused(tables: Tables) -> None:
    with pytest.raises(AirflowFailException, match="on_superseded=skip is about runs"):
        run(operator(tables, on_superseded="skip"))


def test_committers_word_is_kept_on_record(tables: Tables) -> None:
    run(operator(tables, run_rank=7))
    table = tables.table()
    (known,) = table.run(ledger.tries_of(table.root, "flights/scheduled__2013-02-02/load"))
    assert known.record.state == COMMITTED
    assert str(known.record.rank) == "7"
    with pytest.raises(InvalidInputError):
        operator(tables, run_rank="soon")
