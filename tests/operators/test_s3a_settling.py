"""A run with a committer of Hadoop's that a plan lets settle a conflict, and the runs that lose."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from support.airflow import Tables, task_context
from support.fake_spark import WRITES_DELTA, FakeSpark
from support.memory_s3 import let_pass
from support.s3a_jobs import a_try
from support.s3a_loads import EARLIER, LATER, MEETS, operator
from support.s3a_loads import run_in_its_own_second as run
from support.s3a_stand_in import APPLICATION
from zero_rename.committer import InvalidInputError, Owner, RunRank, Table
from zero_rename.committer.commit.narrowed_run import leave_narrowing, read_narrowing
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.format.records.run_conflict import RunConflict, SettledBy
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.maintenance import conflicts
from zero_rename.maintenance.conflicts import find_at, resolve_by_restore
from zero_rename.maintenance.destinations import Destination
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.orchestration.s3a.settling import last_load, planned_loads, plans_root, settled_by
from zero_rename.provider import clearing
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.settling import RerunOrder, RerunOutcome, settle_by_rerun
from zero_rename.s3a.runs.ledger import open_try
from zero_rename.s3a.runs.try_record import FENCED, WRITING, WRITTEN, WriteRecord, write_uuid
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3
BETWEEN = EARLIER + (LATER - EARLIER) / 2
CLEARED: dict[str, Any] = {"try_number": 2, "max_tries": 1, "clear_number": 1}
NEWEST: dict[str, Any] = {"on_conflict": "newest_run"}
SKIP: dict[str, Any] = {**NEWEST, "on_superseded": "skip"}
WINNER, LOSER = "flights/winner/load", "flights/loser/load"


@pytest.fixture(autouse=True)
def _stand_in(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.runs(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))


@pytest.fixture
def loaded(tables: Tables) -> Tables:
    """An older run has loaded the day, then a newer one."""
    run(operator(tables), run_id="winner", start=EARLIER)
    run(operator(tables), run_id="loser", start=LATER)
    return tables


def plan(
    tables: Tables, key: str = WINNER, losers: tuple[str, ...] = (LOSER,), seconds: int = 3600
) -> Mapping[str, int]:
    """Let a run settle the conflict over the day."""
    table = tables.table()
    winner = last_load(table, key)
    assert winner is not None
    loads = planned_loads(table, winner, ["day=1"], losers)
    settles = {"day=1": Settling(SettledRuns(key, losers), RunRank.of(LATER))}
    who = Owner("resolve", "r", "resolve")
    said = Narrowing(new_write_id(), key, None, loads, seconds, who, True, settles=settles)
    root = plans_root(table.root)
    assert table.run(leave_narrowing(root, said, table.run(read_narrowing(root, key))))
    return loads


@pytest.mark.parametrize("policy", [NEWEST, {}, {"on_conflict": "last_wins"}])
def test_cleared_winner_loads_whatever_its_rank(loaded: Tables, policy: dict[str, Any]) -> None:
    loads = plan(loaded)
    report = run(operator(loaded, **policy), run_id="winner", start=EARLIER, **CLEARED)
    assert settled_by(loaded.table(), WINNER, loads) == report["job"]


@pytest.mark.parametrize(
    ("policy", "ends"),
    [({}, AirflowFailException), (NEWEST, AirflowFailException), (SKIP, AirflowSkipException)],
)
def test_cleared_loser_starts_no_spark(
    loaded: Tables, spark: FakeSpark, policy: dict[str, Any], ends: type[Exception]
) -> None:
    plan(loaded)
    run(operator(loaded), run_id="winner", start=EARLIER, **CLEARED)
    calls = len(spark.calls())
    said = rf"settled against this run over day=1 \(for {WINNER}\)"
    with pytest.raises(ends, match=said):
        run(operator(loaded, **policy), run_id="loser", start=LATER, **CLEARED)
    assert len(spark.calls()) == calls


def test_run_of_the_highest_rank_or_later_counts_as_newer(loaded: Tables) -> None:
    plan(loaded)
    run(operator(loaded), run_id="winner", start=EARLIER, **CLEARED)
    with pytest.raises(AirflowFailException, match="Newer runs have loaded"):
        run(operator(loaded, **NEWEST), run_id="between")
    later = LATER.replace(month=4)
    run(operator(loaded, **NEWEST), run_id="later", start=later)
    # The settlement is over.
    run(operator(loaded), run_id="loser", start=LATER, **CLEARED)


def test_run_that_loaded_last_is_compared_with_what_is_there(loaded: Tables) -> None:
    """The newer run, whose rows it has replaced, has none any more."""
    again = {**CLEARED, "run_id": "winner", "start": EARLIER}
    run(operator(loaded, on_conflict="last_wins"), **again)
    run(operator(loaded, **NEWEST), **{**again, "try_number": 3, "clear_number": 2})


def test_loser_that_says_last_wins_loads(loaded: Tables) -> None:
    loads = plan(loaded)
    run(operator(loaded), run_id="winner", start=EARLIER, **CLEARED)
    run(operator(loaded, on_conflict="last_wins"), run_id="loser", start=LATER, **CLEARED)
    assert settled_by(loaded.table(), WINNER, loads) is None


def test_load_since_the_plan_refuses_the_winner_before_spark(
    loaded: Tables, spark: FakeSpark
) -> None:
    plan(loaded)
    run(operator(loaded), run_id="third")
    calls = len(spark.calls())
    with pytest.raises(AirflowFailException, match="since that was planned"):
        run(operator(loaded, on_conflict="last_wins"), run_id="winner", start=EARLIER, **CLEARED)
    assert len(spark.calls()) == calls


def test_plan_whose_time_is_over_refuses_the_winner(loaded: Tables, spark: FakeSpark) -> None:
    plan(loaded, seconds=0)
    table, calls = loaded.table(), len(spark.calls())
    root = plans_root(table.root)
    while (left := table.run(read_narrowing(root, WINNER))) and left.age <= 0:
        let_pass(1)
    with pytest.raises(AirflowFailException, match="its time, 0 s, is over"):
        run(operator(loaded), run_id="winner", start=EARLIER, **CLEARED)
    assert len(spark.calls()) == calls


def test_retry_and_sensor_of_a_run_that_met_another_say_the_settled_state(
    tables: Tables, spark: FakeSpark
) -> None:
    run(operator(tables), run_id="winner", start=EARLIER)
    spark.runs(MEETS)
    with pytest.raises(AirflowFailException, match="while this one was at work"):
        run(operator(tables, retries=2), run_id="loser", start=LATER)
    spark.runs(APPLICATION)
    plan(tables, losers=(LOSER, "other"))
    retried: dict[str, Any] = {"run_id": "winner", "start": EARLIER, **CLEARED, "max_tries": 3}
    report = run(operator(tables, retries=2), **retried)
    with pytest.raises(AirflowFailException, match=rf"settled against .*\(for {WINNER}\)"):
        run(operator(tables, retries=2), run_id="loser", start=LATER, try_number=2)
    again = run(operator(tables, retries=2), **{**retried, "try_number": 3})
    assert (again["job"], again["repeated"]) == (report["job"], True)
    waits = SuccessManifestSensor(task_id="wait", table=tables.url(), upstream_task_id="load")
    context: Any = task_context(waits, run_id="loser")
    with pytest.raises(AirflowFailException, match="A conflict was settled against this run"):
        waits.poke(context)


class TestKept:
    """A conflict that is settled for the run whose rows are visible: nothing is loaded again."""

    @pytest.fixture
    def kept(self, tables: Tables) -> Tables:
        table = conflicting(tables)
        (done,) = resolve_by_restore(table, {"keep": [WINNER]}, apply=True)
        assert done.settlement is not None
        assert (done.is_settled, done.settlement.how) == (True, SettledBy.KEPT)
        return tables

    def test_next_look_is_silent(self, kept: Tables) -> None:
        """Also one in the second in which the runs loaded."""
        assert find(kept.table()) == []
        (known,) = find(kept.table(), 3600.0)
        assert known.is_settled

    @pytest.mark.parametrize("policy", [NEWEST, {}])
    def test_cleared_loser_starts_no_spark(
        self, kept: Tables, spark: FakeSpark, policy: dict[str, Any]
    ) -> None:
        calls = len(spark.calls())
        said = rf"settled against this run over day=1 \(for {WINNER}\)"
        with pytest.raises(AirflowFailException, match=said):
            run(operator(kept, **policy), run_id="loser", start=LATER, **CLEARED)
        assert len(spark.calls()) == calls

    def test_rank_is_the_highest_of_the_conflict(self, kept: Tables) -> None:
        with pytest.raises(AirflowFailException, match="Newer runs have loaded"):
            run(operator(kept, **NEWEST), run_id="between", start=BETWEEN)

    def test_winner_that_is_cleared_loads_again_and_the_settlement_stays(
        self, kept: Tables
    ) -> None:
        run(operator(kept, **NEWEST), run_id="winner", start=EARLIER, **CLEARED)
        with pytest.raises(AirflowFailException, match=rf"settled against .*\(for {WINNER}\)"):
            run(operator(kept), run_id="loser", start=LATER, **CLEARED)
        with pytest.raises(AirflowFailException, match="Newer runs have loaded"):
            run(operator(kept, **NEWEST), run_id="between", start=BETWEEN)

    def test_settlement_ends_as_another_run_replaces_the_rows(self, kept: Tables) -> None:
        run(operator(kept, **NEWEST), run_id="later", start=LATER.replace(month=4))
        run(operator(kept), run_id="loser", start=LATER, **CLEARED)

    @pytest.mark.parametrize("partitions", [None, ["day=1"]])
    def test_conflict_from_before_another_committer_took_over_is_settled(
        self, tables: Tables, partitions: list[str] | None
    ) -> None:
        table = conflicting(tables)
        tables.load(2, name="flights")
        (done,) = resolve_by_restore(table, {"keep": [WINNER]}, partitions, apply=True)
        assert done.is_settled

    def test_partition_that_another_run_has_loaded_since_stays_unresolved(
        self, tables: Tables
    ) -> None:
        table = conflicting(tables)
        run(operator(tables), run_id="third", start=LATER)
        (done,) = resolve_by_restore(table, {"keep": [WINNER]}, apply=True)
        assert done.settlement is not None
        assert "of run third" in done.settlement.error
        run(operator(tables), run_id="loser", start=LATER, **CLEARED)

    def test_runs_that_were_at_work_at_once_stay_unresolved(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        """Rows of both may be there."""
        table = tables.table()
        find(table)
        run(operator(tables), run_id="winner", start=EARLIER)
        spark.runs(MEETS)
        with pytest.raises(AirflowFailException, match="while this one was at work"):
            run(operator(tables), run_id="loser", start=LATER)
        (found,) = find(table)
        assert [it.key for it in found.visible] == [LOSER]
        (done,) = resolve_by_restore(table, {"keep": [LOSER]}, apply=True)
        assert done.settlement is not None
        assert not done.is_settled
        # Both may have decided in one second, and then nobody can tell which was the last.
        said = "at work on day=1 beside another run|hourly.load .* has loaded it last"
        assert re.search(said, done.settlement.error)

    def test_partition_that_a_run_is_at_work_on_stays_unresolved(self, tables: Tables) -> None:
        table = conflicting(tables)
        table.run(open_try(table.root, a_try(partitions=("day=1",))))
        (done,) = resolve_by_restore(table, {"keep": [WINNER]}, apply=True)
        assert done.settlement is not None
        assert "is at work, and may write day=1" in done.settlement.error

    def test_partition_that_the_loser_loads_as_it_is_settled_stays_unresolved(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its record said that the loser had lost, over the rows of the loser."""
        table = conflicting(tables)
        noted = conflicts.note_settled

        def meanwhile(*given: Any) -> Any:
            run(operator(tables), run_id="loser", start=LATER, **CLEARED)
            return noted(*given)

        monkeypatch.setattr(conflicts, "note_settled", meanwhile)
        (done,) = resolve_by_restore(table, {"keep": [WINNER]}, apply=True)
        assert done.settlement is not None
        assert "of run loser" in done.settlement.error
        again = {**CLEARED, "try_number": 3, "max_tries": 2}
        run(operator(tables), run_id="loser", start=LATER, **again)

    def test_run_whose_attempt_has_written_one_of_two_days_does_not_stand_yet(
        self, tables: Tables
    ) -> None:
        """Its next attempt undoes it, and nobody knew of the settlement any more."""
        table = conflicting(tables)
        owner = Owner("flights", "winner", "load", -1, 2)
        record = a_try(
            idempotency_key=WINNER, owner=owner, mode="replace", partitions=("day=1", "day=2")
        )
        days = (("day=1", WRITTEN), ("day=2", WRITING))
        writes = tuple(
            WriteRecord(
                write_uuid(record.uuid, number),
                number,
                "magic",
                f"{tables.url()}/{day}",
                "replace",
                day,
                number,
                2,
                state=state,
            )
            for number, (day, state) in enumerate(days, 1)
        )
        let_pass(1)
        table.run(open_try(table.root, replace(record, state=FENCED, writes=writes)))
        let_pass(3600)
        (done,) = resolve_by_restore(table, {"keep": [WINNER]}, apply=True)
        assert done.settlement is not None
        assert "its end is not on record" in done.settlement.error

    def test_without_apply_nothing_is_superseded(self, tables: Tables) -> None:
        table = conflicting(tables)
        (planned,) = resolve_by_restore(table, {"keep": [WINNER]})
        assert planned.is_settled
        run(operator(tables), run_id="loser", start=LATER, **CLEARED)


def conflicting(tables: Tables) -> Table:
    """An older run has loaded the day over a newer one, and a look has found that."""
    table = tables.table()
    find(table)
    run(operator(tables), run_id="loser", start=LATER)
    run(operator(tables), run_id="winner", start=EARLIER)
    (conflict,) = find(table)
    assert not conflict.is_settled
    return table


def find(table: Table, seconds: float | None = None) -> list[RunConflict]:
    """Look for conflicts of Hadoop's committers' runs."""
    (report,) = find_at(table, Destination(table.root, is_s3a=True), seconds)
    assert report.unread == ()
    return list(report.conflicts)


class TestPlanned:
    def test_run_that_appended_is_refused(self, tables: Tables) -> None:
        run(operator(tables, mode="append"), run_id="winner")
        with pytest.raises(InvalidInputError, match=r"has appended.*whole run loads again"):
            plan(tables)

    def test_run_of_which_another_run_has_won_a_partition_is_refused(self, tables: Tables) -> None:
        run(operator(tables, partition=["day=1", "day=2"]), run_id="winner")
        run(operator(tables), run_id="loser")
        run(operator(tables, partition="day=2"), run_id="third")
        with pytest.raises(InvalidInputError, match=r"also loads day=2, which .*run third has won"):
            plan(tables)

    def test_day_whose_last_load_is_of_no_run_in_conflict_is_refused(self, loaded: Tables) -> None:
        run(operator(loaded), run_id="third")
        with pytest.raises(InvalidInputError, match="run third has won"):
            plan(loaded)


class TestByTheResolver:
    """What clears the task of the run that is to stand."""

    @pytest.fixture
    def settle(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RerunOutcome]]:
        class Server:
            def __init__(self, clears: Callable[[], Any]) -> None:
                self._clears, self._state = clears, "success"

            def state(self, instance: NamedTask) -> str:
                return self._state

            def version(self, instance: NamedTask) -> None:
                return None

            def idle(self, dag_id: str) -> None:
                return None

            def clear(
                self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
            ) -> None:
                try:
                    self._clears()
                except AirflowFailException:
                    self._state = "failed"

        def settled(tables: Tables, clears: Callable[[], Any]) -> list[RerunOutcome]:
            server = contextlib.nullcontext(Server(clears))
            monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: server)
            owner = Owner("flights", "winner", "load")
            order = RerunOrder(
                tables.url(), "day=1", 0, WINNER, owner, (LOSER,), RunRank.of(LATER), "magic"
            )
            task: Any = SimpleNamespace(
                zero_rename_conn_id="zero_rename_default",
                airflow_conn_id="airflow_api",
                poll_interval=0.0,
                timeout=3600.0,
                deferrable=False,
            )
            context: Any = task_context(operator(tables, task_id="resolve"))
            return settle_by_rerun(task, context, [order])

        return settled

    def test_whole_run_loads_again(self, loaded: Tables, settle: Any) -> None:
        reports = []

        def clears() -> None:
            reports.append(run(operator(loaded), run_id="winner", start=EARLIER, **CLEARED))

        (made,) = settle(loaded, clears)
        assert (made.error, made.job) == ("", reports[0]["job"])
        (again,) = settle(loaded, clears)
        assert (again.error, again.job, len(reports)) == ("", made.job, 1)
        table = loaded.table()
        left = table.run(read_narrowing(plans_root(table.root), WINNER))
        assert left is not None
        assert left.said.over

    def test_run_loads_the_delta_table_that_the_directory_has_become(
        self, loaded: Tables, spark: FakeSpark, settle: Any
    ) -> None:
        delta = ZeroRenameHook().get_delta_table(loaded.url())
        delta.adopt(apply=True)
        spark.runs(WRITES_DELTA)
        native: dict[str, Any] = {"committer": "zero_rename", "layout": "delta"}
        reports = []

        def clears() -> None:
            let_pass(1)
            reports.append(
                run(operator(loaded, **native), run_id="winner", start=EARLIER, **CLEARED)
            )

        (made,) = settle(loaded, clears)
        assert (made.error, made.job) == ("", reports[0]["job"])
        (again,) = settle(loaded, clears)
        assert (again.error, again.job, len(reports)) == ("", made.job, 1)
        with pytest.raises(AirflowFailException, match=r"settled against|gives? way"):
            run(operator(loaded, **native), run_id="loser", start=LATER, **CLEARED)

    def test_run_that_a_job_of_the_delta_table_has_overtaken_is_not_cleared(
        self, loaded: Tables, settle: Any
    ) -> None:
        delta = ZeroRenameHook().get_delta_table(loaded.url())
        delta.adopt(apply=True)
        rows = delta.scan().to_arrow()
        with delta.job(rows.schema, mode="overwrite", replace_partitions=["day=1"]) as job:
            job.write(rows)
        (made,) = settle(loaded, lambda: pytest.fail("It was cleared."))
        assert "where a job has changed day=1 since" in made.error

    def test_run_that_another_one_overtakes_is_unresolved(
        self, loaded: Tables, settle: Any
    ) -> None:
        def clears() -> None:
            run(operator(loaded), run_id="third")
            run(operator(loaded), run_id="winner", start=EARLIER, **CLEARED)

        (made,) = settle(loaded, clears)
        assert "is failed: its log says why" in made.error

    def test_run_that_appended_is_unresolved_and_is_not_cleared(
        self, tables: Tables, settle: Any
    ) -> None:
        run(operator(tables, mode="append"), run_id="winner")
        (made,) = settle(tables, lambda: pytest.fail("It was cleared."))
        assert "has appended" in made.error


def test_append_that_met_a_replace_is_told_what_a_clear_would_do(
    tables: Tables, spark: FakeSpark
) -> None:
    spark.runs(MEETS)
    for context in ({}, {"try_number": 2, "max_tries": 1}):
        with pytest.raises(AirflowFailException, match=r"do not clear it .* adds all of them"):
            run(operator(tables, mode="append", retries=1), **context)
