"""Sensor that settles conflicts of runs by running again the one that is to stand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_zero_rename import ZeroRenameResource, resolve_conflicts_sensor, zero_rename_asset
from dagster_zero_rename.asset_step import DOES_AGAIN
from dagster_zero_rename.spark.spark_load import SparkLoad
from dagster_zero_rename.watch.resolve_conflicts_sensor import TAG
from support import dagster_loads
from support.dagster_daemon import evaluated, executed
from support.dagster_loads import DAYS, SCHEMA, days, rows
from support.pauses import Pauses
from zero_rename import Table
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.committer.format.records.run_conflict import RunConflict, SettledBy
from zero_rename.committer.store.requests import Put
from zero_rename.maintenance.conflicts import find_here
from zero_rename.spark.options import read_writer_options
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import delta_at

pytestmark = pytest.mark.memory_s3

DAY, NEXT, THIRD = "2013-01-01", "2013-01-02", "2013-01-03"
FLIGHTS, CORRECTIONS = "flights", "corrections"
#: Targets that cannot be searched; the last is the key of no asset.
UNCOORDINATED, DAMAGED, GONE = "uncoordinated", "damaged", "gone"


@dataclass
class Lake:
    """Two assets that load days of one table.

    :param numbers: what each loads next, a row of every day.
    :param failures: called in turn, one a call of an asset's function, before it writes.
    :param submits: rows are written by an application that the asset's function submits.
    """

    zero: ZeroRenameResource
    instance: dg.DagsterInstance
    numbers: dict[str, int] = field(default_factory=dict)
    failures: list[Callable[[], None]] = field(default_factory=list)
    policy: Any = field(default_factory=lambda: {"prefer": [FLIGHTS]})
    mode: str = "overwrite"
    apply: bool = True
    submits: bool = False
    layout: str = "directory"
    targets: tuple[str, ...] = (FLIGHTS,)

    @property
    def table(self) -> Table | DeltaTable:
        table = self.zero.table("lake")
        return delta_at(table) if self.layout == "delta" else table

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
                if self.failures:
                    self.failures.pop(0)()
                keys = [str(key) for key in context.partition_keys]
                number = self.numbers[name]
                data = rows(keys, {key: [number] for key in keys})
                if self.submits:
                    return submitted(zero_rename.spark_load(context), data)
                return zero_rename.write(context, data)

            return load

        sensor = resolve_conflicts_sensor(*self.targets, policy=self.policy, apply=self.apply)
        others = [dg.AssetSpec(name) for name in self.targets if name not in (FLIGHTS, GONE)]
        return dg.Definitions(
            assets=[asset(FLIGHTS), asset(CORRECTIONS), *others],
            sensors=[sensor],
            resources={"zero_rename": self.zero},
        )

    def load(self, asset: str, number: int, first: str, last: str | None = None) -> Any:
        self.numbers[asset] = number
        request = dg.RunRequest(asset_selection=[dg.AssetKey(asset)], tags=days(first, last))
        done = self.execute(request)
        assert done.success
        return done

    def execute(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        return executed(self.defs, request, self.instance)

    def tick(self) -> Any:
        name = "zero_rename_resolve_conflicts"
        return evaluated(self.defs, name, self.instance, zero_rename=self.zero)

    def conflicts(self) -> list[RunConflict]:
        return [
            it
            for found in find_here(self.zero.table("lake"), remember=False)
            for it in found.conflicts
        ]

    def rows(self) -> dict[str, int]:
        found = self.table.scan().to_arrow().to_pylist()
        assert len({row["day"] for row in found}) == len(found)
        return {row["day"].isoformat(): row["number"] for row in found}


def submitted(load: SparkLoad, data: pa.Table) -> dg.MaterializeResult:
    """Write rows as an application that is told of the load."""
    given = {"path": load.table.root.url, "partitionBy": "day"}
    options = read_writer_options(given, load.variables)
    job = load.table.job(
        SCHEMA,
        mode=options.mode(True),
        partition_by=options.partition_by,
        replace_partitions=options.replace_partitions,
        on_conflict=options.on_conflict,
        run_rank=options.run_rank,
        idempotency_key=options.idempotency_key,
        on_repeat=options.on_repeat,
        owner=options.owner("test"),
    )
    with load.submitted(), job:
        job.write(data)
    return load.result()


#: For tests of what each layout does.
EACH_LAYOUT = pytest.mark.parametrize("lake", ["directory", "delta"], indirect=True)


@pytest.fixture
def lake(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, request: pytest.FixtureRequest
) -> Lake:
    """Two days of one run, of which a run of the other asset has replaced the first."""
    made = Lake(zero, instance, layout=getattr(request, "param", "directory"))
    made.load(FLIGHTS, 1, THIRD)
    assert "No conflict" in made.tick().skip_message
    made.load(FLIGHTS, 1, DAY, NEXT)
    made.load(CORRECTIONS, 2, DAY)
    assert made.rows() == {DAY: 2, NEXT: 1, THIRD: 1}
    made.numbers[FLIGHTS] = 3
    return made


def only(lake: Lake) -> dg.RunRequest:
    (request,) = lake.tick().run_requests
    return request


@EACH_LAYOUT
def test_run_that_is_to_stand_loads_the_partition_in_conflict_alone(lake: Lake) -> None:
    request = only(lake)
    assert request.asset_selection == [dg.AssetKey(FLIGHTS)]
    assert lake.execute(request).success
    assert lake.rows() == {DAY: 3, NEXT: 1, THIRD: 1}
    assert "No conflict" in lake.tick().skip_message
    (shown,) = find_here(lake.zero.table("lake"), seconds=3600.0)[0].conflicts
    assert shown.settlement is not None
    said = shown.settlement
    assert (said.how, said.policy, said.by.dag_id, said.error) == (
        *(SettledBy.RERUN, "prefer=flights", "zero_rename_resolve_conflicts", ""),
    )
    assert said.job == lake.table.settled({"day=2013-01-01": 0})["day=2013-01-01"].job


@EACH_LAYOUT
@pytest.mark.parametrize("submits", [False, True])
def test_events_of_a_rerun_count_the_rows_of_partitions_that_it_leaves(
    lake: Lake, submits: bool
) -> None:
    lake.submits = submits
    told = dagster_loads.told(lake.execute(only(lake)))
    assert {key: it["dagster/partition_row_count"] for key, it in told.items()} == {DAY: 1, NEXT: 1}
    assert {key: it["zero_rename/rows"] for key, it in told.items()} == {DAY: 1, NEXT: 0}


@EACH_LAYOUT
def test_application_of_the_run_that_is_to_stand_is_not_refused_as_older(lake: Lake) -> None:
    lake.zero = ZeroRenameResource(table_root=lake.zero.table_root, on_conflict="newest_run")
    lake.submits = True
    assert lake.execute(only(lake)).success
    assert lake.rows() == {DAY: 3, NEXT: 1, THIRD: 1}
    assert "No conflict" in lake.tick().skip_message


@EACH_LAYOUT
def test_run_by_an_application_is_named_by_its_asset_and_made_again(lake: Lake) -> None:
    """The application's job has the application's own name."""
    lake.submits = True
    lake.load(CORRECTIONS, 4, NEXT)
    lake.load(FLIGHTS, 5, NEXT)
    lake.policy = {"prefer": [CORRECTIONS]}
    lake.numbers |= {CORRECTIONS: 6}
    for request in lake.tick().run_requests:
        assert lake.execute(request).success
    assert lake.rows() == {DAY: 6, NEXT: 6, THIRD: 1}
    assert "No conflict" in lake.tick().skip_message


@pytest.mark.parametrize("submits", [True, False])
def test_newer_run_of_an_asset_by_another_of_dagsters_jobs_is_no_conflict(
    lake: Lake, submits: bool
) -> None:
    """A schedule's job loads a day, and the page or a backfill loads it again."""
    lake.submits = submits
    daily = dg.define_asset_job("daily", selection=[dg.AssetKey(FLIGHTS)])
    job = dg.Definitions.merge(lake.defs, dg.Definitions(jobs=[daily])).resolve_job_def("daily")
    assert lake.load(FLIGHTS, 1, THIRD).success
    assert job.execute_in_process(tags=days(THIRD), instance=lake.instance).success
    assert lake.load(FLIGHTS, 1, THIRD).success
    assert [it.partition for it in lake.conflicts()] == [f"day={DAY}"]


@pytest.mark.parametrize("submits", [True, False])
def test_run_that_waits_for_others_waits_for_none_of_what_it_leaves_out(
    lake: Lake, pauses: Pauses, submits: bool
) -> None:
    waits: Any = {"wait_for_other_runs": 3600}
    lake.zero = ZeroRenameResource(table_root=lake.zero.table_root, **waits)
    lake.submits, request = submits, only(lake)
    given: dict[str, Any] = {"mode": "replace", "replace_partitions": [f"day={NEXT}"]}
    other = lake.table.job(SCHEMA, partition_by=["day"], **given)
    pauses(lambda: pytest.fail("It waits."))
    with other:
        other.write(rows([NEXT], {NEXT: [9]}))
        assert lake.execute(request).success
    assert lake.rows() == {DAY: 3, NEXT: 9, THIRD: 1}


@EACH_LAYOUT
def test_runs_that_lost_give_way_while_the_settlement_stands(lake: Lake) -> None:
    lost = lake.instance.get_runs(limit=1)[0]
    assert lake.execute(only(lake)).success
    lake.tick()
    again = dg.RunRequest(
        asset_selection=[dg.AssetKey(CORRECTIONS)], tags={**days(DAY), DOES_AGAIN: lost.run_id}
    )
    failed = lake.execute(again)
    (event,) = failed.filter_events(lambda event: event.is_step_failure)
    assert "settled against this run" in str(event.step_failure_data.error)
    assert lake.rows()[DAY] == 3


def test_what_is_the_same_is_asked_for_once_and_waited_for(lake: Lake) -> None:
    first, second = only(lake), only(lake)
    assert first.run_key == second.run_key
    job = lake.defs.resolve_implicit_global_asset_job_def()
    selected = frozenset({dg.AssetKey(FLIGHTS)})
    run = lake.instance.create_run_for_job(job, asset_selection=selected, tags=first.tags)
    assert run.run_id in lake.tick().skip_message


def test_run_of_another_partition_is_not_waited_for(lake: Lake) -> None:
    job = lake.defs.resolve_implicit_global_asset_job_def()
    selected = frozenset({dg.AssetKey(CORRECTIONS)})
    lake.instance.create_run_for_job(job, asset_selection=selected, tags=days(THIRD))
    assert only(lake).run_key


@EACH_LAYOUT
def test_run_that_another_one_overtakes_fails_and_nothing_is_settled(lake: Lake) -> None:
    request = only(lake)
    lake.load(CORRECTIONS, 4, DAY)
    assert not lake.execute(request).success
    assert lake.rows()[DAY] == 4
    (conflict,) = lake.conflicts()
    assert not conflict.is_settled
    # By the next look the conflict is another one, and is settled then.
    assert lake.execute(only(lake)).success
    assert lake.rows()[DAY] == 3
    assert "No conflict" in lake.tick().skip_message


def test_run_that_fails_is_named_and_settles_when_it_is_re_executed(lake: Lake) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    request = only(lake)
    lake.failures.append(fail)
    failed = lake.execute(request)
    with pytest.raises(dg.Failure, match=f"run {failed.run_id} is FAILURE: mend what failed"):
        lake.tick()
    (conflict,) = lake.conflicts()
    assert conflict.settlement is not None
    assert conflict.settlement.error
    # Its tags are handed on to a run that is made from it.
    assert lake.execute(request).success
    assert "No conflict" in lake.tick().skip_message
    assert lake.rows()[DAY] == 3


def test_run_that_ends_without_loading_is_named(lake: Lake) -> None:
    request = only(lake)
    tags = {**days(THIRD), TAG: request.tags[TAG]}
    done = lake.execute(dg.RunRequest(asset_selection=[dg.AssetKey(FLIGHTS)], tags=tags))
    assert done.success
    for _ in range(2):
        with pytest.raises(dg.Failure, match="ended well, and the rows are as before"):
            lake.tick()
    (conflict,) = lake.conflicts()
    assert conflict.settlement is not None
    assert "loaded nothing there" in conflict.settlement.error


def test_nothing_is_asked_for_without_apply(lake: Lake) -> None:
    lake.apply = False
    assert "Would run again flights for day=2013-01-01 of" in lake.tick().skip_message
    lake.apply = True
    assert only(lake).tags[TAG]


def test_run_whose_asset_has_one_partition_a_run_is_asked_for_by_its_key(lake: Lake) -> None:
    lake.load(CORRECTIONS, 2, NEXT)
    lake.policy = {"prefer": [CORRECTIONS]}
    requests = lake.tick().run_requests
    assert len(requests) == 2
    for request in requests:
        assert lake.execute(request).success
    assert lake.rows() == {DAY: 2, NEXT: 2, THIRD: 1}
    assert "No conflict" in lake.tick().skip_message


def test_policy_on_record_is_the_one_that_chose_the_run(lake: Lake) -> None:
    assert lake.execute(only(lake)).success
    lake.policy = "newest_run"
    lake.tick()
    (shown,) = find_here(lake.zero.table("lake"), seconds=3600.0)[0].conflicts
    assert shown.settlement is not None
    assert shown.settlement.policy == "prefer=flights"


def test_target_that_cannot_be_searched_keeps_no_other_from_its_rerun(lake: Lake) -> None:
    given: dict[str, Any] = {"partition_by": ["day"], "coordination": "none"}
    with lake.zero.table(UNCOORDINATED).job(SCHEMA, **given) as job:
        job.write(rows([DAY], {DAY: [1]}))
    damaged = lake.zero.table(DAMAGED)
    with damaged.job(SCHEMA, partition_by=["day"]) as job:
        job.write(rows([DAY], {DAY: [1]}))
    damaged.run(Put(damaged.root.conflicts_key, b"no record"))
    lake.targets = (UNCOORDINATED, DAMAGED, GONE, FLIGHTS)
    assert lake.execute(only(lake)).success
    with pytest.raises(dg.Failure) as raised:
        lake.tick()
    said = str(raised.value.description)
    assert said.startswith("3 targets could not be searched. asset 'gone': Failure: ")
    assert "coordination=none" in said
    assert f"{DAMAGED}: RecordDamagedError: " in said
    assert not lake.conflicts()
    (shown,) = find_here(lake.zero.table("lake"), seconds=3600.0)[0].conflicts
    assert shown.is_settled


class TestRefused:
    """By name, and the tick fails: somebody has to look."""

    def test_run_that_was_made_outside_dagster(self, lake: Lake) -> None:
        lake.policy = {"prefer": ["daily"]}
        owner = Owner("daily", "r", "load")
        given: dict[str, Any] = {"mode": "replace", "owner": owner, "idempotency_key": "daily/r"}
        with lake.table.job(partition_by=["day"], **given) as job:
            job.write(rows([DAY], {DAY: [9]}))
        with pytest.raises(dg.Failure, match=r"outside Dagster, by daily.*last_wins"):
            lake.tick()
        (conflict,) = lake.conflicts()
        assert conflict.settlement is not None
        assert "outside Dagster" in conflict.settlement.error

    def test_policy_that_names_no_run(self, lake: Lake) -> None:
        lake.policy = {"prefer": ["nobody"]}
        with pytest.raises(dg.Failure, match="names none of its runs"):
            lake.tick()

    def test_asset_that_appends(self, lake: Lake) -> None:
        lake.mode = "append"
        with pytest.raises(dg.Failure, match="mode=append"):
            lake.tick()

    def test_run_that_is_not_on_record_any_more(self, lake: Lake) -> None:
        for run in lake.instance.get_runs():
            lake.instance.delete_run(run.run_id)
        with pytest.raises(dg.Failure, match="is not on record any more"):
            lake.tick()

    def test_invalid_policy(self) -> None:
        with pytest.raises(InvalidInputError, match="Invalid policy"):
            resolve_conflicts_sensor(FLIGHTS, policy="oldest")
