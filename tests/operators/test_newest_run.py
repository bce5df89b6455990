"""Tasks under ``on_conflict=newest_run``: a late one starts no Spark, and fails or is skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from support.airflow import Tables, run_task, task_context
from support.fake_spark import WRITES, FakeSpark
from support.spark_loads import operator, run
from zero_rename.committer import InvalidInputError, Owner, RunRank
from zero_rename.committer.commit.narrowed_run import leave_narrowing
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.operators.conflicts import FindConflictsOperator
from zero_rename.provider.task_context import run_rank

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.memory_s3]
NEWEST: dict[str, Any] = {"mode": "overwrite", "on_conflict": "newest_run", "partition": "day=1"}
SKIP: dict[str, Any] = {**NEWEST, "on_superseded": "skip"}
EARLIER, LATER = (datetime(2013, month, 1, tzinfo=UTC) for month in (1, 3))
#: Another run, of March, loads the day while the application is at work.
OVERTAKEN = (
    """
import os
from datetime import date

import pyarrow as pa
from zero_rename import committer

rows = pa.table({"day": pa.array([1], pa.int32()), "flight": ["newer"]})
newer = committer.Table(os.environ["ZERO_RENAME_TABLE"]).job(
    rows.schema, mode="replace", partition_by=("day",), run_rank=date(2013, 3, 2)
)
with newer:
    newer.write(rows)
"""
    + WRITES
)


def flights(tables: Tables) -> list[str]:
    return sorted(tables.table().to_arrow()["flight"].to_pylist())


class TestBeforeSpark:
    def test_late_run_fails_for_good_and_starts_no_spark(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        newer = run(operator(tables, **NEWEST), run_id="newer", start=LATER)
        before = len(spark.calls())
        task = operator(tables, **NEWEST)
        with pytest.raises(AirflowFailException, match=f"Not submitted.*{newer['job']}"):
            run(task, run_id="late", start=EARLIER)
        assert len(spark.calls()) == before

    def test_late_run_is_skipped_where_it_says_so(self, tables: Tables, spark: FakeSpark) -> None:
        newer = run(operator(tables, **NEWEST), run_id="newer", start=LATER)
        before = len(spark.calls())
        task = operator(tables, **SKIP)
        with pytest.raises(AirflowSkipException, match=newer["job"]):
            run(task, run_id="late", start=EARLIER)
        assert len(spark.calls()) == before

    @pytest.mark.parametrize(
        ("policy", "ends"), [(NEWEST, AirflowFailException), (SKIP, AirflowSkipException)]
    )
    def test_late_run_is_reported_as_one_that_gave_way(
        self, tables: Tables, policy: dict[str, Any], ends: type[Exception]
    ) -> None:
        newer = run(operator(tables, **NEWEST), run_id="newer", start=LATER)
        with pytest.raises(ends, match="Not submitted"):
            run(operator(tables, **policy), run_id="late", start=EARLIER)
        task = FindConflictsOperator(task_id="find", tables=tables.url(), since=3600)
        context: Any = task_context(task)
        context["ti"].xcom_push = lambda **_: None
        (found,) = run_task(task, context)["tables"]
        (conflict,) = found["conflicts"]
        told = {it["run_id"]: (it["job"], it["gave_way"], it["rank"]) for it in conflict["runs"]}
        assert conflict["partition"] == "day=1"
        assert told["newer"][:2] == (newer["job"], False)
        assert told["late"][1:] == (True, "2013-01-02T00:00:00+00:00")

    def test_run_that_gives_way_to_nobody_writes_no_failure(self, tables: Tables) -> None:
        run(operator(tables, **NEWEST), run_id="only")
        assert tables.bucket.keys("wh/flights/_zero_rename/failures") == []

    @pytest.mark.parametrize(
        ("policy", "ends"), [(NEWEST, AirflowFailException), (SKIP, AirflowSkipException)]
    )
    def test_late_run_of_an_unpartitioned_table_starts_no_spark(
        self, tables: Tables, spark: FakeSpark, policy: dict[str, Any], ends: type[Exception]
    ) -> None:
        rows = pa.table({"flight": ["newer"]})
        newer = tables.table().job(rows.schema, mode="replace", replace_table=True, run_rank=LATER)
        with newer:
            newer.write(rows)
        task = operator(tables, **{**policy, "partition": "*"})
        with pytest.raises(ends, match=r"Not submitted.*Newer runs have loaded the table"):
            run(task, run_id="late", start=EARLIER)
        assert spark.calls() == []

    def test_run_that_newer_ones_left_a_partition_writes_that(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        newer = run(operator(tables, **NEWEST), run_id="newer", start=LATER)
        monkeypatch.setenv("TEST_DAYS", "1,2")
        task = operator(tables, **{**SKIP, "partition": ["day=1", "day=2"]})
        report = run(task, run_id="late", start=EARLIER)
        assert [it["partition"] for it in report["partitions"]] == ["day=2"]
        assert report["superseded"] == {"day=1": newer["job"]}
        assert report["rows_left_out"] == 1
        assert flights(tables) == ["f1", "f2"]

    def test_last_wins_loads_the_older_rows_on_purpose(self, tables: Tables) -> None:
        run(operator(tables, **NEWEST), run_id="newer", start=LATER)
        deliberate = operator(tables, **{**NEWEST, "on_conflict": "{{ params.policy }}"})
        report = run(deliberate, run_id="late", start=EARLIER, params={"policy": "last_wins"})
        assert tables.table().files()[0].job == report["job"]

    def test_rank_is_what_the_task_says(self, tables: Tables) -> None:
        run(operator(tables, **NEWEST, run_rank="{{ params.n }}"), run_id="a", params={"n": 7})
        late = operator(tables, **NEWEST, run_rank="{{ params.n }}")
        with pytest.raises(AirflowFailException, match="Newer runs have loaded day=1"):
            run(late, run_id="b", params={"n": 6})

    def test_rank_of_another_kind_is_refused(self, tables: Tables) -> None:
        run(operator(tables, **NEWEST, run_rank=7), run_id="a")
        with pytest.raises(AirflowFailException, match="The run's rank is 2013-02-02"):
            run(operator(tables, **NEWEST), run_id="b")


def test_narrowed_run_that_names_no_partitions_is_submitted(
    tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_OVERWRITE", "1")
    task = operator(tables, **{**NEWEST, "partition": "*"})
    first = run(task)
    table = tables.table()
    key = f"flights/scheduled__2013-02-02/{task.task_id}"
    plan = Narrowing(new_write_id(), key, first["job"], {"day=1": 1}, 3600, Owner("plan"))
    assert table.run(leave_narrowing(table.root, plan, None))
    again = run(task, try_number=2, max_tries=1, clear_number=1)
    assert (again["job"] != first["job"], len(spark.calls())) == (True, 2)


class TestSettled:
    """A plan lets an older run settle the conflict over a day that a newer one has loaded."""

    FAIL: ClassVar[dict[str, Any]] = {**NEWEST, "on_conflict": "fail"}
    AGAIN: ClassVar[dict[str, Any]] = {"try_number": 2, "max_tries": 1, "clear_number": 1}

    @pytest.fixture
    def task(self, tables: Tables) -> Any:
        """Its run `winner` is due to settle, against the run `loser`."""
        task = operator(tables, **NEWEST)
        run(task, run_id="winner", start=EARLIER)
        run(task, run_id="loser", start=LATER)
        table, keys = tables.table(), [f"flights/{it}/{task.task_id}" for it in ("winner", "loser")]
        settling = Settling(SettledRuns(keys[0], (keys[1],)), RunRank.of(LATER))
        plan = Narrowing(
            new_write_id(),
            keys[0],
            table.job_of_key(keys[0]),
            {"day=1": 2},
            3600,
            Owner("plan"),
            settles={"day=1": settling},
        )
        assert table.run(leave_narrowing(table.root, plan, None))
        return task

    def test_cleared_winner_loads_over_the_newer_run(self, tables: Tables, task: Any) -> None:
        again = run(task, run_id="winner", start=EARLIER, **self.AGAIN)
        assert tables.table().partition_job("day=1") == again["job"]

    def test_plan_of_an_earlier_clear_does_not_let_a_late_run_start_spark(
        self, tables: Tables, spark: FakeSpark, task: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nobody has ended its record, as where the task that planned has died."""
        run(task, run_id="winner", start=EARLIER, **self.AGAIN)
        run(task, run_id="newest", start=LATER + timedelta(days=1))
        before = len(spark.calls())
        caplog.clear()
        with pytest.raises(AirflowFailException, match="Not submitted"):
            run(task, run_id="winner", start=EARLIER, try_number=3, max_tries=2, clear_number=2)
        assert len(spark.calls()) == before
        assert "lets this run settle" not in caplog.text

    @pytest.mark.parametrize(
        ("policy", "ends"),
        [
            (NEWEST, AirflowFailException),
            (FAIL, AirflowFailException),
            (SKIP, AirflowSkipException),
        ],
    )
    def test_cleared_loser_starts_no_spark(
        self,
        tables: Tables,
        spark: FakeSpark,
        task: Any,
        policy: dict[str, Any],
        ends: type[Exception],
    ) -> None:
        run(task, run_id="winner", start=EARLIER, **self.AGAIN)
        before = len(spark.calls())
        loser = operator(tables, **policy)
        with pytest.raises(ends, match=r"Not submitted\. A conflict was settled against"):
            run(loser, run_id="loser", start=LATER, **self.AGAIN)
        assert len(spark.calls()) == before


@pytest.mark.parametrize(
    ("policy", "ends"), [(NEWEST, AirflowFailException), (SKIP, AirflowSkipException)]
)
def test_run_that_is_overtaken_while_it_works_ends_as_its_policy_says(
    tables: Tables, spark: FakeSpark, policy: dict[str, Any], ends: type[Exception]
) -> None:
    spark.runs(OVERTAKEN)
    with pytest.raises(ends, match=r"Newer runs have loaded day=1.*SupersededRunError"):
        run(operator(tables, **policy))
    assert flights(tables) == ["newer"]


class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"on_conflict": "newest"}, "on_conflict is 'newest'"),
            ({"run_rank": "soon"}, "run_rank is 'soon'"),
        ],
    )
    def test_while_the_dag_file_is_parsed(self, arguments: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidInputError, match=said):
            operator(**arguments)


class TestRank:
    DUE = SimpleNamespace(run_after=datetime(2013, 5, 5, tzinfo=UTC))

    @pytest.mark.parametrize(
        ("context", "value", "then"),
        [
            ({"data_interval_end": LATER, "dag_run": DUE}, LATER, DUE.run_after),
            ({"partition_date": EARLIER, "dag_run": DUE}, EARLIER, DUE.run_after),
            ({"dag_run": DUE}, DUE.run_after, DUE.run_after),
            ({"logical_date": EARLIER, "data_interval_end": LATER}, LATER, EARLIER),
            ({"logical_date": EARLIER}, EARLIER, EARLIER),
        ],
        ids=["interval", "partition", "due", "Airflow 2", "Airflow 2, no interval"],
    )
    def test_of_a_run(self, context: dict[str, Any], value: datetime, then: datetime) -> None:
        ranks = run_rank(context, None)
        assert ranks is not None
        assert ranks.rank("any") == RunRank(value.timestamp(), then.timestamp())

    def test_of_a_run_that_has_nothing(self) -> None:
        assert run_rank({}, None) is None
