"""The operators that find conflicts of runs, and settle them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.airflow import Connect, Tables, run_task, task_context
from zero_rename.committer import (
    DamagedError,
    InvalidInputError,
    Owner,
    RunRank,
    SupersededRunError,
    Table,
)
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.settling import SettledRuns
from zero_rename.committer.store.requests import Put
from zero_rename.maintenance import conflicts
from zero_rename.operators.conflicts import FindConflictsOperator, ResolveConflictsOperator
from zero_rename.operators.maintenance import MaintainTablesOperator
from zero_rename.orchestration.runs.task_run import NamedTask
from zero_rename.provider import clearing
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

DAY1 = "day=1"
#: Keeps the run of a late backfill, whose rows are there.
VISIBLE = {"keep": ["daily/1"]}


@pytest.fixture
def connection(tables: Tables, connect: Connect) -> str:
    connect("zr", extra={"table_root": tables.url("").rstrip("/")})
    return "zr"


def load(tables: Tables, rank: int, dag: str = "daily", rows: int = 2, **policy: Any) -> str:
    """Replace the day by a run of a DAG."""
    owner = Owner(dag, f"run {rank}", "load", try_number=1)
    given: dict[str, Any] = {"mode": "replace", "run_rank": rank, "owner": owner, **policy}
    done = tables.load(1, idempotency_key=f"{dag}/{rank}", rows=rows, **given)
    return str(done.job)


def late_backfill(tables: Tables) -> tuple[str, str]:
    newer, older = load(tables, 2, rows=3), load(tables, 1)
    return newer, older


def loaded_by_magic(table: Table) -> None:
    """Put on record that a day was loaded by one DAG, and then by another one."""
    for number, dag in enumerate(("daily", "corrections")):
        record = TryRecord(
            *(run_uuid(), f"{dag}/r/load", Owner(dag, "r", "load"), "magic", "replace"),
            partitions=(DAY1,),
            rank=RunRank(float(2 - number)),
        )
        record = table.run(ledger.open_try(table.root, record))
        at = record.opened_at - 60 * (2 - number)
        report = {"decided_at": at, "partitions": [{"partition": DAY1, "files": 1, "rows": 2}]}
        done = {"state": COMMITTED, "report": report, "opened_at": at - 1}
        table.run(ledger.close_try(table.root, record, **done))


def damaged_decision(tables: Tables) -> str:
    """Load a day, and damage the record of that run; returns its key."""
    key = tables.table().root.decision_key(load(tables, 1))
    tables.table().run(Put(key, b"{"))
    return key


def run(task: Any, **of: Any) -> tuple[Any, dict[str, Any]]:
    """Run a task; returns what it returns and what it pushes."""
    context, pushed = task_context(task, **of), dict[str, Any]()

    def push(key: str, value: Any) -> None:
        pushed[key] = json.loads(json.dumps(value))

    context["ti"].xcom_push = push
    pushed["events"] = context["outlet_events"]
    report = run_task(task, context)
    assert json.loads(json.dumps(report)) == report
    return report, pushed


def find(connection: str, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    task = FindConflictsOperator(task_id="find", zero_rename_conn_id=connection, **arguments)
    return run(task)


def resolve(connection: str, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    of = {name: arguments.pop(name) for name in ("try_number",) if name in arguments}
    given: dict[str, Any] = {
        "table": "flights",
        "policy": "newest_run",
        "poll_interval": 0.0,
        **arguments,
    }
    task = ResolveConflictsOperator(task_id="settle", zero_rename_conn_id=connection, **given)
    return run(task, **of)


def rows(table: Table | DeltaTable) -> int:
    return table.scan().to_arrow().num_rows


class TestFind:
    def test_folder_without_a_table_is_named_in_the_report(
        self, tables: Tables, connection: str
    ) -> None:
        """Its name may be a slip, by which nobody would ever hear of a conflict."""
        report, pushed = find(connection, tables=["flightz"], fail_on="unresolved")
        (found,) = report["tables"]
        assert (found["table"], found["conflicts"]) == (tables.url("flightz"), [])
        assert found["notes"] == ["There is no table, and no destination of Hadoop's committers."]
        assert found["notes"][0] in pushed["markdown"]

    def test_table_whose_writers_do_not_notice_each_other_fails_for_good(
        self, tables: Tables, connection: str
    ) -> None:
        tables.load(1, coordination="none")
        with pytest.raises(AirflowFailException, match="coordination"):
            find(connection, tables="flights")

    def test_table_that_knows_no_conflicts_is_noted_where_all_are_looked_at(
        self, tables: Tables, connection: str
    ) -> None:
        """Each nightly look failed for one table whose writers do not notice each other, or whose
        first job was at work."""
        late_backfill(tables)
        tables.load(1, name="alone", coordination="none")
        tables.undecided(1, name="first")
        report, _ = find(connection)
        alone, flights = report["tables"]
        assert (alone["table"], alone["conflicts"]) == (tables.url("alone"), [])
        assert "coordination=none" in alone["notes"][0]
        assert (flights["table"], report["unresolved"]) == (tables.url(), 1)
        task = MaintainTablesOperator(
            task_id="maintain", zero_rename_conn_id=connection, conflicts="report"
        )
        context = task_context(task)
        context["ti"].xcom_push = lambda key, value: None
        done = {it["table"]: it for it in run_task(task, context)["tables"]}
        assert all(it["person"] == it["again"] == [] for it in done.values())
        assert any("coordination=none" in note for note in done[tables.url("alone")]["notes"])

    @pytest.mark.parametrize("named", [{}, {"tables": ["damaged", "flights"]}], ids=["all", "two"])
    def test_table_that_cannot_be_looked_at_does_not_hide_the_conflicts_of_others(
        self, tables: Tables, connection: str, named: dict[str, Any]
    ) -> None:
        late_backfill(tables)
        tables.load(1, name="damaged")
        root = tables.table("damaged").root
        tables.bucket.put(root.table_key, b"{}")
        task = FindConflictsOperator(task_id="find", zero_rename_conn_id=connection, **named)
        context, pushed = task_context(task), dict[str, Any]()
        context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
        with pytest.raises(DamagedError, match=root.table_key):
            run_task(task, context)
        assert pushed["return_value"]["unresolved"] == 1
        assert tables.url() in pushed["markdown"]

    def test_late_backfill_is_reported_with_its_runs(self, tables: Tables, connection: str) -> None:
        newer, older = late_backfill(tables)
        report, pushed = find(connection)
        assert (report["unresolved"], report["unread"]) == (1, 0)
        (found,) = report["tables"]
        assert (found["table"], found["committer"]) == (tables.url(), "zero_rename")
        (conflict,) = found["conflicts"]
        assert (conflict["partition"], conflict["cause"]) == (DAY1, "the older came later")
        told = ("dag_id", "task_id", "run_id", "rank", "attempt", "job", "rows", "visible")
        assert [tuple(it[name] for name in told) for it in conflict["runs"]] == [
            ("daily", "load", "run 1", "1", 1, older, 2, True),
            ("daily", "load", "run 2", "2", 1, newer, 3, False),
        ]
        page = pushed["markdown"]
        assert "### day=1: not settled" in page
        assert f"| daily.load of run run 2 | 2 | 1 | {newer} | 3 | removed |" in page

    def test_unresolved_conflict_fails_each_look_that_asks_for_it(
        self, tables: Tables, connection: str
    ) -> None:
        late_backfill(tables)
        for _ in range(2):
            with pytest.raises(AirflowFailException, match="1 conflict is not settled"):
                find(connection, tables="flights", fail_on="unresolved")
        resolve(connection, policy=VISIBLE, apply=True)
        report, _ = find(connection, tables=["flights"], fail_on="unresolved")
        assert report["unresolved"] == 0

    def test_window_tells_what_is_settled_by_whom(self, tables: Tables, connection: str) -> None:
        late_backfill(tables)
        find(connection)
        resolve(connection, policy=VISIBLE, apply=True)
        report, pushed = find(connection, since="3600")
        (conflict,) = report["tables"][0]["conflicts"]
        assert conflict["settled"]
        assert conflict["settlement"]["by"] == "flights.settle of run scheduled__2013-02-02"
        assert "settled for daily.load of run run 1 (kept, keep=daily/1" in pushed["markdown"]

    def test_runs_of_hadoops_committers_are_reported_alike(
        self, tables: Tables, connection: str
    ) -> None:
        table = tables.table("byhadoop")
        find(connection, tables="byhadoop")
        loaded_by_magic(table)
        report, _ = find(connection)
        (found,) = report["tables"]
        cause = found["conflicts"][0]["cause"]
        assert (found["committer"], cause) == ("s3a", "the older came later")
        assert find(connection)[0]["unresolved"] == 1
        assert isinstance(table.root, TableRoot)

    def test_record_that_cannot_be_read_counts_as_not_settled(
        self, tables: Tables, connection: str
    ) -> None:
        key = damaged_decision(tables)
        report, pushed = find(connection)
        assert (report["unresolved"], report["unread"]) == (0, 1)
        assert (
            "No conflict was found, but some records of runs could not be read."
            in pushed["markdown"]
        )
        said = r"1 record of runs could not be read, .* count as not settled.*" + key
        for _ in range(2):
            with pytest.raises(AirflowFailException, match=said):
                find(connection, fail_on="unresolved")

    def test_other_word_to_fail_on_is_refused(self, tables: Tables, connection: str) -> None:
        with pytest.raises(AirflowFailException, match="Invalid fail_on 'all'"):
            find(connection, fail_on="all")


class TestResolve:
    def test_dry_run_says_what_would_stand(self, tables: Tables, connection: str) -> None:
        _, older = late_backfill(tables)
        find(connection)
        report, _ = resolve(connection, policy=VISIBLE)
        (conflict,) = report["conflicts"]
        assert conflict["settlement"]["stands"] == "daily/1"
        assert (conflict["settlement"]["job"], rows(tables.table())) == (None, 2)
        assert tables.table().files(DAY1)[0].job == older

    def test_rows_of_directories_that_were_replaced_cannot_be_brought_back(
        self, tables: Tables, connection: str
    ) -> None:
        _, older = late_backfill(tables)
        find(connection)
        with pytest.raises(AirflowException, match="run 2 in day=1 cannot be brought back"):
            resolve(connection, apply=True)
        assert tables.table().files(DAY1)[0].job == older

    def test_preferred_dag_is_kept_in_the_order_that_is_given(
        self, tables: Tables, connection: str
    ) -> None:
        load(tables, 1, "corrections", rows=1)
        load(tables, 2, "flights_daily", rows=3)
        find(connection)
        with pytest.raises(AirflowException, match=r"corrections.load .* cannot be brought back"):
            resolve(connection, policy={"prefer": ["corrections", "flights_daily"]}, apply=True)
        policy = {"prefer": ["flights_daily", "corrections"]}
        report, _ = resolve(connection, policy=policy, apply=True)
        assert rows(tables.table()) == 3
        assert report["conflicts"][0]["settlement"]["policy"] == "prefer=flights_daily,corrections"

    def test_conflict_that_cannot_be_settled_fails_and_is_retried(
        self, tables: Tables, connection: str
    ) -> None:
        late_backfill(tables)
        find(connection)
        opened = tables.undecided(1)
        with pytest.raises(AirflowException, match=f"{opened} is at work") as caught:
            resolve(connection, policy=VISIBLE, apply=True)
        assert not isinstance(caught.value, AirflowFailException)
        tables.table().settle([opened])
        report, _ = resolve(connection, policy=VISIBLE, apply=True)
        assert report["settled"] == 1

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"partitions": ["day=7"]}, "No runs that conflict over day=7"),
            ({"by": "hand"}, "Invalid by 'hand'"),
            ({"table": "nothing"}, "There is no table"),
        ],
    )
    def test_call_that_cannot_be_right_is_final(
        self, tables: Tables, connection: str, arguments: dict[str, Any], said: str
    ) -> None:
        late_backfill(tables)
        find(connection, tables="flights")
        with pytest.raises(AirflowFailException, match=said):
            resolve(connection, apply=True, **arguments)


def answer_clears(monkeypatch: pytest.MonkeyPatch, again: Callable[..., None]) -> list[str]:
    """Put an Airflow in place whose tasks run as soon as they are cleared; returns the runs that
    are.

    :param again: loads as the run of a rank does, with these words of its job.
    """
    made: list[str] = []

    class Server:
        def state(self, instance: NamedTask) -> str:
            return "success"

        def version(self, instance: NamedTask) -> str:
            return "7"

        def idle(self, dag_id: str) -> None:
            return None

        def clear(
            self, instance: NamedTask, include_downstream: bool = False, latest: bool = False
        ) -> None:
            made.append(instance.run_id)
            rank = int(instance.run_id.removeprefix("run "))
            owner = Owner(instance.dag_id, instance.run_id, "load", None, 2, series="x 1")
            again(rank, owner=owner, on_repeat="replace_own")

    server = contextlib.nullcontext(Server())
    monkeypatch.setattr(clearing, "airflow_api", lambda conn_id: server)
    return made


class TestRerun:
    """The task of the run that is to stand is cleared, and its program runs at once."""

    @pytest.fixture
    def clears(self, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The runs that are cleared; each loads four rows then."""

        def again(rank: int, **words: Any) -> None:
            load(tables, rank, rows=4, **words)

        return answer_clears(monkeypatch, again)

    def test_dry_run_clears_nothing(
        self, tables: Tables, connection: str, clears: list[str]
    ) -> None:
        late_backfill(tables)
        find(connection)
        report, _ = resolve(connection, by="rerun", airflow_conn_id="airflow_api")
        (conflict,) = report["conflicts"]
        assert (conflict["settlement"]["how"], clears) == ("rerun", [])

    def test_winner_loads_again_and_the_next_look_is_silent(
        self, tables: Tables, connection: str, clears: list[str]
    ) -> None:
        late_backfill(tables)
        find(connection)
        report, _ = resolve(
            connection, by="rerun", apply=True, airflow_conn_id="airflow_api", deferrable=False
        )
        (conflict,) = report["conflicts"]
        said = conflict["settlement"]
        assert (report["settled"], len(clears), said["version"]) == (1, 1, "7")
        assert said["job"] == tables.table().files(DAY1)[0].job
        assert rows(tables.table()) == 4
        found, _ = find(connection)
        assert found["unresolved"] == 0

    def test_operator_that_is_tried_again_finds_what_it_has_settled(
        self, tables: Tables, connection: str, clears: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        late_backfill(tables)
        find(connection)
        words: dict[str, Any] = {"by": "rerun", "apply": True, "airflow_conn_id": "airflow_api"}

        def dies(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(conflicts, "note_rerun", dies)
            with pytest.raises(KeyboardInterrupt):
                resolve(connection, deferrable=False, **words)
        report, _ = resolve(connection, deferrable=False, **words)
        assert (report["settled"], report["unresolved"], len(clears)) == (1, 0, 1)

    def test_conflict_that_stays_is_on_record_with_its_error_and_fails_the_task(
        self, tables: Tables, connection: str, clears: list[str]
    ) -> None:
        late_backfill(tables)
        find(connection)
        tables.load(1, mode="overwrite", inputs=())
        words: dict[str, Any] = {"by": "rerun", "apply": True, "airflow_conn_id": "airflow_api"}
        with pytest.raises(AirflowException, match="no part of the conflict"):
            resolve(connection, deferrable=False, **words)
        assert clears == []

    def test_without_a_connection_to_airflow_it_is_refused_at_once(
        self, tables: Tables, connection: str
    ) -> None:
        late_backfill(tables)
        find(connection)
        with pytest.raises(AirflowFailException, match="airflow_conn_id names no connection"):
            resolve(connection, by="rerun")


class TestMaintenance:
    def maintain(self, connection: str, conflicts: Any) -> tuple[Any, dict[str, Any]]:
        given = {"zero_rename_conn_id": connection, "apply": True, "conflicts": conflicts}
        return run(MaintainTablesOperator(task_id="maintain", **given))

    def test_conflicts_are_noted_before_gc_where_they_are_to_be_reported(
        self, tables: Tables, connection: str
    ) -> None:
        late_backfill(tables)
        report, _ = self.maintain(connection, "report")
        (table,) = report["tables"]
        assert (table["conflicts"], report["person"]) == ({"unresolved": 1}, 0)
        assert "the older came later" in table["notes"][0]

    def test_unresolved_conflict_needs_a_person_where_it_is_to_fail(
        self, tables: Tables, connection: str
    ) -> None:
        late_backfill(tables)
        with pytest.raises(
            AirflowFailException, match=r"conflict over day=1.* zero-rename resolve s3"
        ):
            self.maintain(connection, "fail")

    def test_policy_settles_and_says_who_decided(self, tables: Tables, connection: str) -> None:
        late_backfill(tables)
        report, _ = self.maintain(connection, VISIBLE)
        assert report["tables"][0]["conflicts"] == {"settled": 1}
        assert rows(tables.table()) == 2
        (settled,) = tables.table().overview().conflicts
        assert settled.settlement is not None
        assert settled.settlement.by.task_id == "maintain"

    @pytest.mark.parametrize("conflicts", ["fail", "newest_run"])
    def test_record_that_cannot_be_read_needs_a_person(
        self, tables: Tables, connection: str, conflicts: str
    ) -> None:
        key = damaged_decision(tables)
        with pytest.raises(AirflowFailException, match=f"conflicts, not read: .*{key}"):
            self.maintain(connection, conflicts)

    def test_policy_of_no_avail_needs_a_person(self, tables: Tables, connection: str) -> None:
        late_backfill(tables)
        with pytest.raises(AirflowFailException, match="names none of its runs"):
            self.maintain(connection, {"prefer": ["other"]})

    def test_policy_keeps_what_is_visible_of_hadoops_committers_and_the_ledger_says_so(
        self, tables: Tables, connection: str
    ) -> None:
        table = tables.table("byhadoop")
        loaded_by_magic(table)
        report, _ = self.maintain(connection, {"prefer": ["corrections"]})
        (done,) = report["tables"]
        assert (done["kind"], done["conflicts"]) == ("s3a", {"settled": 1})
        (winner,) = table.run(ledger.tries_of(table.root, "corrections/r/load"))
        settling = winner.record.kept[DAY1]
        assert settling.runs == SettledRuns("corrections/r/load", ("daily/r/load",))
        assert settling.rank == RunRank(2.0)
        assert self.maintain(connection, "fail")[0]["tables"][0]["conflicts"] == {}

    def test_policy_for_rows_of_hadoops_committers_that_are_not_there_needs_a_person(
        self, tables: Tables, connection: str
    ) -> None:
        loaded_by_magic(tables.table("byhadoop"))
        with pytest.raises(AirflowFailException, match=r"conflict over day=1: .* brought back"):
            self.maintain(connection, "newest_run")

    def test_nobody_looks_where_nothing_is_said(self, tables: Tables, connection: str) -> None:
        late_backfill(tables)
        report, _ = self.maintain(connection, None)
        assert report["tables"][0]["conflicts"] == {}

    def test_what_is_no_order_is_refused_as_the_dag_is_read(self) -> None:
        with pytest.raises(
            InvalidInputError, match=r"'oldest'.* Give report, or fail, or a policy"
        ):
            MaintainTablesOperator(task_id="maintain", conflicts="oldest")
        with pytest.raises(InvalidInputError, match="Invalid policy 'oldest'"):
            ResolveConflictsOperator(task_id="settle", table="flights", policy="oldest")


class TestDeltaTables:
    @pytest.fixture
    def delta(self, tables: Tables) -> DeltaTable:
        """A day of a newer run with three rows, and of a late one that has replaced them by two."""
        table = DeltaTable(tables.url(), driver=tables.table().driver)
        for rank, count in ((2, 3), (1, 2)):
            delta_load(table, rank, count)
        return table

    def test_conflict_is_found_resolved_and_told_to_the_asset(
        self, tables: Tables, connection: str, delta: DeltaTable
    ) -> None:
        with pytest.raises(AirflowFailException, match="1 conflict is not settled"):
            find(connection, fail_on="unresolved")
        asset = Asset("flights", uri=tables.url())
        report, pushed = resolve(connection, apply=True, outlets=[asset])
        assert (report["settled"], report["unresolved"], rows(delta)) == (1, 0, 3)
        extra = pushed["events"][asset].extra
        assert (extra["table"], extra["partition"]) == (tables.url(), DAY1)
        again, pushed = resolve(connection, apply=True, outlets=[asset])
        assert (again["conflicts"], pushed["events"][asset].extra) == ([], {})
        assert find(connection, fail_on="unresolved")[0]["unresolved"] == 0

    def test_event_of_two_partitions_brought_back_has_rows_and_job_of_each(
        self, tables: Tables, connection: str, delta: DeltaTable
    ) -> None:
        for rank, count in ((4, 5), (3, 1)):
            delta_load(delta, rank, count, days=[2])
        find(connection)
        asset = Asset("flights", uri=tables.url())
        report, pushed = resolve(connection, apply=True, outlets=[asset])
        jobs = {it["partition"]: it["settlement"]["job"] for it in report["conflicts"]}
        event = pushed["events"][asset]
        assert (event.extra["rows"], event.extra["partitions"]) == (8, 2)
        assert "partition" not in event.extra
        told = {key: (event.extra["job"], event.extra["rows"]) for key in event.partition_keys}
        assert told == {DAY1: (jobs[DAY1], 3), "day=2": (jobs["day=2"], 5)} | {None: told[None]}

    @pytest.mark.parametrize("partitions", [None, ["day=01", "day=2"]])
    def test_retry_settles_what_is_left_and_its_event_has_what_was_settled_before(
        self, tables: Tables, connection: str, delta: DeltaTable, partitions: list[str] | None
    ) -> None:
        """Airflow passes no event of an attempt that fails on. With partitions the retry was
        refused for good, since one of them was settled by then."""
        for rank, count in ((4, 5), (3, 1)):
            delta_load(delta, rank, count, days=[2])
        find(connection)
        asset = Asset("flights", uri=tables.url())
        given: dict[str, Any] = {"partitions": partitions, "apply": True, "outlets": [asset]}
        with (
            contextlib.suppress(KeyboardInterrupt),
            delta.job(mode="overwrite", replace_partitions=["day=2"]),
        ):
            with pytest.raises(AirflowException, match="Of 2 conflicts 1 could not be settled"):
                resolve(connection, **given)
            raise KeyboardInterrupt
        report, pushed = resolve(connection, **given, try_number=2)
        event = pushed["events"][asset]
        assert (report["settled"], report["unresolved"], rows(delta)) == (2, 0, 8)
        assert event.partition_keys == {DAY1, "day=2"}
        assert (event.extra["rows"], event.extra["partitions"]) == (8, 2)
        assert resolve(connection, **given, try_number=3)[0]["settled"] == 2

    @pytest.mark.parametrize("days", [[1], [1, 2]])
    def test_rerun_of_the_winner_settles_it_and_leaves_its_other_days(
        self,
        tables: Tables,
        connection: str,
        delta: DeltaTable,
        monkeypatch: pytest.MonkeyPatch,
        days: list[int],
    ) -> None:
        delta_load(delta, 3, 5, days=days)
        delta_load(delta, 1, 2, on_repeat="replace_own")

        def again(rank: int, **words: Any) -> None:
            delta_load(delta, rank, 4, days=days, **words)

        clears = answer_clears(monkeypatch, again)
        find(connection)
        report, _ = resolve(
            connection, by="rerun", apply=True, airflow_conn_id="airflow_api", deferrable=False
        )
        (conflict,) = report["conflicts"]
        said = conflict["settlement"]
        assert (report["settled"], clears, said["error"]) == (1, ["run 3"], "")
        assert said["job"] == delta.history(1)[0].job
        assert delta.scan([DAY1]).to_arrow().num_rows == 4
        assert delta.scan(["day=2"]).to_arrow().num_rows == 5 * (len(days) - 1)
        assert find(connection)[0]["unresolved"] == 0
        with pytest.raises(SupersededRunError, match="for daily/3"):
            delta_load(delta, 1, 2, on_repeat="replace_own")

    def test_maintenance_settles_by_a_policy(self, connection: str, delta: DeltaTable) -> None:
        given = {"zero_rename_conn_id": connection, "apply": True, "conflicts": "newest_run"}
        report, _ = run(MaintainTablesOperator(task_id="maintain", **given))
        assert report["tables"][0]["conflicts"] == {"settled": 1}
        assert rows(delta) == 3
        (last,) = delta.history(1)
        assert last.owner["task_id"] == "maintain"


def delta_load(
    table: DeltaTable, rank: int, rows: int, days: Sequence[int] = (1,), **policy: Any
) -> None:
    """Replace days by a run of a DAG."""
    schema = pa.schema([("day", pa.int32()), ("flight", pa.string())])
    owner = Owner("daily", f"run {rank}", "load", try_number=1)
    given: dict[str, Any] = {"mode": "replace", "run_rank": rank, "owner": owner, **policy}
    key = f"daily/{rank}"
    with table.job(schema, partition_by=["day"], idempotency_key=key, **given) as job:
        data = {"day": [day for day in days for _ in range(rows)]}
        data |= {"flight": ["x"] * len(data["day"])}
        job.write(pa.table(data, schema=schema))
