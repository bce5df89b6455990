"""Sensor that settles conflicts of runs with Hadoop's committers: the whole run loads again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pytest

from dagster_zero_rename import ZeroRenameResource, resolve_conflicts_sensor, zero_rename_asset
from dagster_zero_rename.asset_step import DOES_AGAIN
from dagster_zero_rename.spark.spark_load import SparkLoad
from support import s3a_stand_in
from support.dagster_daemon import evaluated, executed
from support.dagster_loads import days
from support.fake_spark import WRITES_DELTA
from support.waiting import until
from zero_rename import Table
from zero_rename.committer import Owner
from zero_rename.committer.commit.narrowed_run import pending_narrowings
from zero_rename.committer.format.records.run_conflict import RunConflict, SettledBy
from zero_rename.maintenance.conflicts import find_here
from zero_rename.orchestration.s3a.settling import plans_root
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

DAYS = dg.StaticPartitionsDefinition(["1", "2", "3"])
FLIGHTS, CORRECTIONS = "flights", "corrections"
#: To a service that would run the application, which a stand-in does here.
REQUEST = {
    "applicationId": "00abcdef",
    "executionRoleArn": "arn:aws:iam::1:role/loads",
    "jobDriver": {"sparkSubmit": {"entryPoint": "s3://jobs/job.py"}},
}


@dataclass
class Lake:
    """Two assets that load days of one destination by applications.

    :param failures: called in turn, one a call of an asset's function, before it submits.
    :param meanwhile: called in turn, one an application that is at work.
    :param submissions: how many applications were submitted.
    :param layout: of the table. A Delta table is loaded by this package's committer.
    :param retried: failures after which somebody has a step tried again, once.
    """

    zero: ZeroRenameResource
    instance: dg.DagsterInstance
    failures: list[Callable[[], None]] = field(default_factory=list)
    meanwhile: list[Callable[[], None]] = field(default_factory=list)
    policy: Any = field(default_factory=lambda: {"prefer": [FLIGHTS]})
    mode: str = "overwrite"
    apply: bool = True
    submissions: int = 0
    retried: list[str] | None = None
    layout: str = "directory"

    @property
    def table(self) -> Table:
        return self.zero.table("lake")

    @property
    def defs(self) -> dg.Definitions:
        def asset(name: str) -> dg.AssetsDefinition:
            @zero_rename_asset(
                name=name,
                partitions_def=DAYS,
                partition_expr="day",
                table="lake",
                mode=self.mode,
                layout=self.layout,
            )
            def load(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
                try:
                    return self.submit(zero_rename.spark_load, context)
                except dg.Failure as error:
                    if self.retried is None:
                        raise
                    self.retried.append(str(error))
                    raise dg.RetryRequested(max_retries=1) from error

            return load

        return dg.Definitions(
            assets=[asset(FLIGHTS), asset(CORRECTIONS)],
            sensors=[resolve_conflicts_sensor(FLIGHTS, policy=self.policy, apply=self.apply)],
            resources={"zero_rename": self.zero},
        )

    def submit(
        self, begin: Callable[[Any], SparkLoad], context: dg.AssetExecutionContext
    ) -> dg.MaterializeResult:
        """Load as a service does that runs the application."""
        if self.failures:
            self.failures.pop(0)()
        made = begin(context)
        if not made.is_done:
            made.complete_request("emr-serverless", REQUEST)
            with made.submitted(), pytest.MonkeyPatch.context() as patch:
                self.submissions += 1
                for variable, value in made.variables.items():
                    patch.setenv(variable, value)
                if self.meanwhile:
                    self.meanwhile.pop(0)()
                if self.layout == "delta":
                    exec(WRITES_DELTA, {"__name__": "__main__"})
                else:
                    s3a_stand_in.main()
        return made.result()

    def load(self, asset: str, first: str, last: str | None = None) -> str:
        """Load days by an asset. Returns the run."""
        request = dg.RunRequest(asset_selection=[dg.AssetKey(asset)], tags=days(first, last))
        done = self.execute(request)
        assert done.success
        return done.run_id

    def execute(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Execute a run in a second of its own: by the store's times, which have whole seconds,
        loads are ordered."""
        began = int(time.time())
        until("the next second", lambda: int(time.time()) > began)
        return executed(self.defs, request, self.instance)

    def again(self, asset: str, day: str, run: str) -> dg.ExecuteInProcessResult:
        """Do the work of a run again, as a re-execution does."""
        tags = {**days(day), DOES_AGAIN: run}
        return self.execute(dg.RunRequest(asset_selection=[dg.AssetKey(asset)], tags=tags))

    def tick(self) -> Any:
        name = "zero_rename_resolve_conflicts"
        return evaluated(self.defs, name, self.instance, zero_rename=self.zero)

    def asked(self) -> dg.RunRequest:
        (request,) = self.tick().run_requests
        return request

    def conflicts(self) -> list[RunConflict]:
        found = find_here(self.table, 3600.0, remember=False)
        return [it for one in found for it in one.conflicts]

    def last(self, day: str) -> str:
        """The run that loaded a day last."""
        table = self.table
        done = [it.record for it in table.run(ledger.tries_since(table.root, 0.0))]
        done = [it for it in done if it.state == COMMITTED and f"day={day}" in it.partitions]
        done.sort(key=lambda it: it.opened_at)
        return str(done[-1].owner.run_id)


@pytest.fixture
def lake(zero: ZeroRenameResource, instance: dg.DagsterInstance) -> Lake:
    """Two days of one run, of which a run of the other asset has replaced the first."""
    hadoop = ZeroRenameResource(table_root=zero.table_root, committer="magic")
    made = Lake(hadoop, instance)
    made.load(FLIGHTS, "3")
    assert "No conflict" in made.tick().skip_message
    made.load(FLIGHTS, "1", "2")
    made.load(CORRECTIONS, "1")
    return made


def failure(result: dg.ExecuteInProcessResult) -> str:
    (failed,) = result.filter_events(lambda event: event.is_step_failure)
    return str(failed.step_failure_data.error)


def test_whole_run_loads_again_and_the_next_tick_verifies_it(lake: Lake) -> None:
    request = lake.asked()
    assert request.asset_selection == [dg.AssetKey(FLIGHTS)]
    assert request.tags.items() >= days("1", "2").items()
    done = lake.execute(request)
    assert done.success
    assert [lake.last(day) for day in ("1", "2")] == [done.run_id] * 2
    assert "No conflict" in lake.tick().skip_message
    (conflict,) = lake.conflicts()
    said = conflict.settlement
    assert said is not None
    assert (said.how, said.policy, said.by.dag_id, said.error) == (
        *(SettledBy.RERUN, "prefer=flights", "zero_rename_resolve_conflicts", ""),
    )
    table = lake.table
    (left,) = table.run(pending_narrowings(plans_root(table.root)))
    assert left.said.over
    tries = table.run(ledger.tries_since(table.root, 0.0))
    (settling,) = (it.record for it in tries if it.record.settles)
    assert said.job == (settling.report or {})["job"]


def test_run_loads_the_delta_table_that_the_directory_has_become(lake: Lake) -> None:
    """Only the day in conflict: the other one is as the adoption found it."""
    delta = DeltaTable(lake.table.root.url)
    delta.adopt(apply=True)
    lake.zero, lake.layout = ZeroRenameResource(table_root=lake.zero.table_root), "delta"
    done = lake.execute(lake.asked())
    assert done.success
    assert "No conflict" in lake.tick().skip_message
    (conflict,) = lake.conflicts()
    said = conflict.settlement
    assert said is not None
    assert (said.how, said.error) == (SettledBy.RERUN, "")
    assert said.job is not None
    made = delta.result(said.job)
    assert made is not None
    assert [it.partition for it in made.partitions] == ["day=1"]


def test_older_run_stands_under_newest_run_and_the_newer_one_gives_way(lake: Lake) -> None:
    lost = lake.last("1")
    assert lake.execute(lake.asked()).success
    newest = {"table_root": lake.zero.table_root, "committer": "magic"}
    for policy in ("newest_run", "fail"):
        lake.zero = ZeroRenameResource(**newest, on_conflict=policy)
        assert "settled against this run" in failure(lake.again(CORRECTIONS, "1", lost))
    lake.zero = ZeroRenameResource(**newest, on_conflict="last_wins")
    assert lake.again(CORRECTIONS, "1", lost).success


@pytest.mark.parametrize("policy", ["newest_run", "last_wins"])
def test_rank_of_the_run_that_settles_is_not_compared(lake: Lake, policy: str) -> None:
    lake.zero = ZeroRenameResource(
        table_root=lake.zero.table_root, committer="magic", on_conflict=policy
    )
    assert lake.execute(lake.asked()).success
    assert "No conflict" in lake.tick().skip_message
    (conflict,) = lake.conflicts()
    assert conflict.is_settled


def test_run_that_another_one_overtakes_fails_and_nothing_is_settled(lake: Lake) -> None:
    request = lake.asked()
    lake.load(CORRECTIONS, "1")
    calls = lake.submissions
    assert "since that was planned" in failure(lake.execute(request))
    assert lake.submissions == calls
    assert not any(it.is_settled for it in lake.conflicts())
    # By the next look it is another conflict, and is settled then.
    assert lake.execute(lake.asked()).success
    assert "No conflict" in lake.tick().skip_message


def test_run_that_met_another_one_fails_for_good_and_each_retry_says_so_until_it_is_settled(
    lake: Lake,
) -> None:
    lake.meanwhile = [lambda: enter(lake.table, Owner("january", "r", "load"), "2")]
    request = dg.RunRequest(asset_selection=[dg.AssetKey(FLIGHTS)], tags=days("2"))
    lake.retried = []
    assert not lake.execute(request).success
    assert len(lake.retried) == 2
    assert all("wrote the same partitions while this one was at work" in it for it in lake.retried)
    assert lake.submissions == 4
    assert lake.load(FLIGHTS, "2")


def test_what_is_the_same_is_asked_for_once(lake: Lake) -> None:
    first, second = lake.asked(), lake.asked()
    assert first.run_key == second.run_key


def test_run_at_work_on_one_of_its_partitions_is_waited_for(lake: Lake) -> None:
    job = lake.defs.resolve_implicit_global_asset_job_def()
    selected = frozenset({dg.AssetKey(CORRECTIONS)})
    run = lake.instance.create_run_for_job(job, asset_selection=selected, tags=days("2"))
    assert run.run_id in lake.tick().skip_message
    lake.instance.delete_run(run.run_id)
    lake.instance.create_run_for_job(job, asset_selection=selected, tags=days("3"))
    assert lake.asked().run_key


def test_run_that_fails_is_named_and_settles_when_it_is_re_executed(lake: Lake) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    request = lake.asked()
    lake.failures.append(fail)
    failed = lake.execute(request)
    with pytest.raises(dg.Failure, match=f"run {failed.run_id} is FAILURE: mend what failed"):
        lake.tick()
    (conflict,) = lake.conflicts()
    assert not conflict.is_settled
    assert lake.execute(request).success
    assert "No conflict" in lake.tick().skip_message


def test_run_that_ends_without_loading_is_named(lake: Lake) -> None:
    tags = {**lake.asked().tags, **days("3")}
    assert lake.execute(dg.RunRequest(asset_selection=[dg.AssetKey(FLIGHTS)], tags=tags)).success
    for _ in range(2):
        with pytest.raises(dg.Failure, match="did not settle the conflict"):
            lake.tick()


def test_nothing_is_asked_for_without_apply(lake: Lake) -> None:
    lake.apply = False
    assert "Would run again flights for day=1 of" in lake.tick().skip_message
    assert not lake.table.run(pending_narrowings(plans_root(lake.table.root)))
    assert [it.settlement for it in lake.conflicts()] == [None]


class TestRefused:
    """By name, and the tick fails; why is on record."""

    def why(self, lake: Lake) -> str:
        errors = {it.settlement.error for it in lake.conflicts() if it.settlement is not None}
        (error,) = errors
        return error

    def test_run_of_which_another_run_has_won_a_partition(self, lake: Lake) -> None:
        won = lake.load(FLIGHTS, "2")
        said = rf"also loads day=2, which __ASSET_JOB\.flights of run {won} has won"
        with pytest.raises(dg.Failure, match=said):
            lake.tick()
        assert "day=2" in self.why(lake)

    def test_run_that_appended(self, lake: Lake) -> None:
        lake.mode = "append"
        lake.load(FLIGHTS, "1")
        lake.mode = "overwrite"
        lake.load(CORRECTIONS, "1")
        with pytest.raises(dg.Failure, match=r"has appended, .* the whole run loads again"):
            lake.tick()
        assert "has appended" in self.why(lake)

    def test_asset_that_appends_by_now(self, lake: Lake) -> None:
        lake.mode = "append"
        with pytest.raises(dg.Failure, match="has mode=append, and rows of the others would stay"):
            lake.tick()

    def test_run_that_was_made_outside_dagster(self, lake: Lake) -> None:
        lake.policy = {"prefer": ["january"]}
        enter(lake.table, Owner("january", "r", "load"), "3")
        said = r"outside Dagster, by january: run it again there, with on_conflict='last_wins'"
        with pytest.raises(dg.Failure, match=said):
            lake.tick()

    def test_run_that_is_not_on_record_any_more(self, lake: Lake) -> None:
        for run in lake.instance.get_runs():
            lake.instance.delete_run(run.run_id)
        with pytest.raises(dg.Failure, match="is not on record any more"):
            lake.tick()
        assert "is not on record any more" in self.why(lake)

    def test_record_of_a_run_that_cannot_be_read(self, lake: Lake) -> None:
        assert lake.execute(lake.asked()).success
        assert "No conflict" in lake.tick().skip_message
        lake.load(CORRECTIONS, "3")
        table = lake.table
        (key,) = (
            it.key
            for it in table.run(ledger.tries_since(table.root, 0.0))
            if it.record.owner.task_id == CORRECTIONS and it.record.partitions == ("day=3",)
        )
        table.driver.clients.client.put_object(Bucket=table.root.bucket, Key=key, Body=b"{")
        with pytest.raises(dg.Failure, match=key):
            lake.tick()


def enter(table: Table, owner: Owner, day: str) -> None:
    """Enter a whole load of a day in the ledger, by another program."""
    began = int(time.time())
    until("the next second", lambda: int(time.time()) > began)
    told: dict[str, Any] = {"mode": "replace", "partitions": (f"day={day}",)}
    record = TryRecord(run_uuid(), f"{owner.dag_id}/{owner.run_id}", owner, "magic", **told)
    opened = table.run(ledger.open_try(table.root, record))
    entry = {"partition": f"day={day}", "files": 1, "rows": 1}
    report = {"decided_at": opened.opened_at, "partitions": [entry]}
    table.run(ledger.close_try(table.root, opened, state=COMMITTED, report=report))
