"""What is stale is run again by runs of assets: weeks of days, a month of weeks."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3
import dagster as dg
import pyarrow as pa
import pytest

from dagster_zero_rename import (
    ZeroRenameIOManager,
    ZeroRenameResource,
    asset_step,
    recompute_sensor,
    zero_rename_asset,
)
from dagster_zero_rename.watch.recompute_sensor import TAG
from support.dagster_daemon import evaluated, executed
from support.dagster_loads import DAYS, rows
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.committer.store.requests import Put
from zero_rename.lineage import LineageState as State
from zero_rename.lineage import look_up

pytestmark = pytest.mark.memory_s3

WEEKS = dg.WeeklyPartitionsDefinition(start_date="2013-01-07", end_date="2013-01-28", day_offset=1)
WEEK = pa.schema([("week", pa.date32()), ("total", pa.int64())])
_RANGE = "dagster/asset_partition_range"
#: Targets that cannot be searched; the second is the key of no asset.
DAMAGED, GONE = "damaged", "gone"


@dataclass
class Lake:
    """Three assets of one code location, an instance, and what their functions do next.

    :param numbers: of the days that have rows.
    :param failures: called in turn, one a call of the week's function.
    :param weeks: the partition keys of each run of the week's asset.
    :param code: the version that the week's asset says; ``asked_code``: that the sensor asks for.
    """

    zero: ZeroRenameResource
    instance: dg.DagsterInstance
    numbers: dict[str, list[int]] = field(default_factory=dict)
    failures: list[Callable[[], None]] = field(default_factory=list)
    weeks: list[list[str]] = field(default_factory=list)
    months: int = 0
    code: str | None = None
    asked_code: dict[dg.AssetKey | str, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ("monthly",)

    @property
    def defs(self) -> dg.Definitions:
        @zero_rename_asset(partitions_def=DAYS, partition_expr="day", content="rows")
        def daily(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
            return zero_rename.write(context, rows(context.partition_keys, self.numbers))

        @zero_rename_asset(
            partitions_def=WEEKS, partition_expr="week", content="rows", code_version=self.code
        )
        def weekly(context: dg.AssetExecutionContext, daily: pa.Table) -> pa.Table:
            keys = [str(key) for key in context.partition_keys]
            self.weeks.append(keys)
            if self.failures:
                self.failures.pop(0)()
            starts = [dt.date.fromisoformat(key) for key in keys]
            return pa.table([starts, [_total(daily, start) for start in starts]], schema=WEEK)

        @zero_rename_asset(content="rows")
        def monthly(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
            self.months += 1
            scan = zero_rename.table("weekly").scan()
            total = sum(scan.to_arrow()["total"].to_pylist())
            return zero_rename.write(context, pa.table({"total": [total]}))

        return dg.Definitions(
            assets=[daily, weekly, monthly, dg.AssetSpec(DAMAGED)],
            sensors=[recompute_sensor(*self.targets, code_versions=self.asked_code)],
            resources={
                "zero_rename": self.zero,
                "io_manager": ZeroRenameIOManager(zero_rename=self.zero),
            },
        )

    def run(self, asset: str, *keys: str, **more: Any) -> dg.ExecuteInProcessResult:
        """A run of an asset, of all partitions between two keys."""
        tags = {f"{_RANGE}_start": keys[0], f"{_RANGE}_end": keys[-1]} if keys else {}
        request = dg.RunRequest(asset_selection=[dg.AssetKey(asset)], tags=tags)
        return self.execute(request, **more)

    def execute(self, request: dg.RunRequest, **more: Any) -> dg.ExecuteInProcessResult:
        return executed(self.defs, request, self.instance, **more)

    def tick(self, **resources: Any) -> Any:
        given = {"zero_rename": self.zero, **resources}
        return evaluated(self.defs, "zero_rename_recompute", self.instance, **given)

    def layer(self) -> list[dg.RunRequest]:
        """A tick, and the runs that it asks for to their ends."""
        asked: list[dg.RunRequest] = list(getattr(self.tick(), "run_requests", ()))
        for request in asked:
            assert self.execute(request).success
        return asked

    def asked(self) -> list[list[str]]:
        """Ticks and runs until nothing is left; which asset each tick has asked for."""
        found = []
        while asked := self.layer():
            found.append([names(request) for request in asked])
        return found

    def correct(self, day: str, *numbers: int) -> None:
        self.numbers[day] = list(numbers)
        assert self.run("daily", day).success

    def total(self) -> list[int]:
        return self.zero.table("monthly").to_arrow()["total"].to_pylist()


def names(request: dg.RunRequest) -> str:
    assert request.asset_selection is not None
    (asset,) = request.asset_selection
    ends = [request.tags.get(f"{_RANGE}_{end}") for end in ("start", "end")]
    named = [asset.to_user_string(), request.partition_key, *ends]
    return " ".join(it for it in named if it)


def _total(daily: pa.Table, start: dt.date) -> int:
    return sum(row["number"] for row in daily.to_pylist() if 0 <= (row["day"] - start).days < 7)


@pytest.fixture
def lake(zero: ZeroRenameResource, instance: dg.DagsterInstance) -> Lake:
    """Two weeks of days, one run each, and of them a month."""
    made = Lake(zero, instance)
    made.numbers = {f"2013-01-{day:02}": [1] for day in range(7, 21)}
    made.run("daily", "2013-01-07", "2013-01-20")
    made.run("weekly", "2013-01-07", "2013-01-07")
    made.run("weekly", "2013-01-14", "2013-01-14")
    made.run("monthly")
    made.weeks.clear()
    return made


def test_nothing_is_run_where_all_is_fresh(lake: Lake) -> None:
    assert "Nothing" in lake.tick().skip_message
    lake.correct("2013-01-09", 1)  # The same rows.
    assert "Nothing" in lake.tick().skip_message
    assert lake.total() == [14]


def test_a_corrected_day_goes_up_layer_by_layer(lake: Lake) -> None:
    lake.correct("2013-01-09", 3)
    assert lake.asked() == [["weekly 2013-01-07"], ["monthly"]]
    assert lake.weeks == [["2013-01-07"]]
    assert lake.total() == [16]
    assert "Nothing" in lake.tick().skip_message


def test_a_layer_that_comes_out_equal_ends_the_wave(lake: Lake) -> None:
    lake.months = 0
    lake.correct("2013-01-09", 3)
    lake.correct("2013-01-10", -1)
    assert lake.asked() == [["weekly 2013-01-07"]]
    assert (lake.weeks, lake.months, lake.total()) == ([["2013-01-07"]], 0, [14])


def test_two_corrected_weeks_are_one_run_where_backfills_are(lake: Lake) -> None:
    lake.run("weekly", "2013-01-07", "2013-01-14")
    lake.run("monthly")
    lake.weeks.clear()
    lake.correct("2013-01-09", 3)
    assert lake.asked() == [["weekly 2013-01-07 2013-01-14"], ["monthly"]]
    assert (lake.weeks, lake.total()) == ([["2013-01-07", "2013-01-14"]], [16])


def test_weeks_of_which_one_was_mended_since_are_run_without_it(lake: Lake) -> None:
    """A run of a Dagster asset takes away nothing that it is not asked for."""
    lake.run("weekly", "2013-01-07", "2013-01-14")
    lake.correct("2013-01-09", 3)
    lake.run("weekly", "2013-01-14", "2013-01-14")
    mended = lake.zero.table("weekly").snapshot(["week=2013-01-14"]).files[0].job
    assert lake.asked() == [["weekly 2013-01-07"], ["monthly"]]
    assert lake.zero.table("weekly").snapshot(["week=2013-01-14"]).files[0].job == mended
    assert lake.total() == [16]


def test_what_another_version_of_the_code_made_is_made_again_where_there_is_the_new_one(
    lake: Lake,
) -> None:
    lake.asked_code = {"weekly": "2"}
    lake.code = "1"
    for _ in range(2):
        with pytest.raises(dg.Failure, match="'weekly' has code version 1 here, and 2 is asked"):
            lake.tick()
    assert lake.weeks == []
    lake.code = "2"
    assert lake.asked() == [["weekly 2013-01-07", "weekly 2013-01-14"]]
    assert "Nothing" in lake.tick().skip_message


def test_a_lost_file_is_made_again(lake: Lake) -> None:
    table = lake.zero.table("monthly")
    (file,) = table.files()
    boto3.client("s3").delete_object(Bucket=table.root.bucket, Key=file.key)
    assert lake.asked() == [["monthly"]]
    assert lake.total() == [14]


def test_what_is_the_same_is_asked_for_once_and_a_new_correction_again(lake: Lake) -> None:
    lake.correct("2013-01-09", 3)
    first, second = lake.tick().run_requests, lake.tick().run_requests
    assert [it.run_key for it in first] == [it.run_key for it in second]
    lake.correct("2013-01-09", 4)
    assert [it.run_key for it in lake.tick().run_requests] != [it.run_key for it in first]


def test_a_run_that_fails_is_named_and_not_run_again_until_an_input_moves(lake: Lake) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    lake.correct("2013-01-09", 3)
    (request,) = lake.tick().run_requests
    lake.failures.append(fail)
    failed = lake.execute(request)
    assert not failed.success
    of = f"run {failed.run_id} of asset 'weekly' of 2013-01-07 is FAILURE"
    with pytest.raises(dg.Failure, match=of):
        lake.tick()
    lake.correct("2013-01-09", 4)
    assert lake.asked() == [["weekly 2013-01-07"], ["monthly"]]
    assert lake.total() == [17]


def test_run_that_fails_on_a_day_that_came_is_run_again_once_that_is_corrected(lake: Lake) -> None:
    """That the day had come was all that was told of it, before and after."""

    def fail() -> None:
        raise RuntimeError("no")

    lake.correct("2013-01-21", 5)
    lake.run("weekly", "2013-01-21", "2013-01-21")
    lake.run("monthly")
    lake.correct("2013-01-22", -5)
    (request,) = lake.tick().run_requests
    lake.failures.append(fail)
    assert not lake.execute(request).success
    with pytest.raises(dg.Failure, match="is FAILURE"):
        lake.tick()
    lake.correct("2013-01-22", 6)
    assert lake.asked() == [["weekly 2013-01-21"], ["monthly"]]
    assert lake.total() == [25]


def test_a_run_that_ends_without_loading_is_named(lake: Lake) -> None:
    lake.correct("2013-01-09", 3)
    (request,) = lake.tick().run_requests
    other = {f"{_RANGE}_start": "2013-01-20", f"{_RANGE}_end": "2013-01-20", TAG: request.tags[TAG]}
    done = lake.execute(dg.RunRequest(asset_selection=[dg.AssetKey("daily")], tags=other))
    assert done.success
    with pytest.raises(dg.Failure, match="did not load them"):
        lake.tick()


@pytest.mark.parametrize("by", ["this sensor", "a person", "a backfill"])
def test_what_runs_is_waited_for(lake: Lake, by: str) -> None:
    lake.correct("2013-01-09", 3)
    (request,) = lake.tick().run_requests
    week = {"dagster/partition": "2013-01-07"}
    weeks = {f"{_RANGE}_start": "2013-01-07", f"{_RANGE}_end": "2013-01-14"}
    tags = {"this sensor": {**request.tags, **week}, "a person": week, "a backfill": weeks}[by]
    job = lake.defs.resolve_implicit_global_asset_job_def()
    run = lake.instance.create_run_for_job(
        job, asset_selection=frozenset({dg.AssetKey("weekly")}), tags=tags
    )
    assert run.run_id in lake.tick().skip_message
    lake.instance.report_run_canceled(run)
    if by == "this sensor":
        with pytest.raises(dg.Failure, match="CANCELED"):
            lake.tick()
    else:
        assert [names(it) for it in lake.tick().run_requests] == ["weekly 2013-01-07"]


def test_a_run_of_other_partitions_is_not_waited_for(lake: Lake) -> None:
    lake.correct("2013-01-09", 3)
    job = lake.defs.resolve_implicit_global_asset_job_def()
    selected, tags = frozenset({dg.AssetKey("weekly")}), {"dagster/partition": "2013-01-14"}
    lake.instance.create_run_for_job(job, asset_selection=selected, tags=tags)
    assert [names(it) for it in lake.tick().run_requests] == ["weekly 2013-01-07"]


def test_what_two_sensors_ask_for_at_once_doubles_no_row(lake: Lake) -> None:
    lake.correct("2013-01-09", 3)
    (first,), (second,) = lake.tick().run_requests, lake.tick().run_requests
    assert lake.execute(first).success
    assert lake.execute(second).success
    weekly = lake.zero.table("weekly").to_arrow()
    assert sorted(weekly["total"].to_pylist()) == [7, 9]
    assert lake.asked() == [["monthly"]]
    assert lake.total() == [16]


class TestRefused:
    """By name, and the tick fails: somebody has to look."""

    def test_a_job_that_was_run_outside_dagster(self, lake: Lake) -> None:
        lake.correct("2013-01-09", 3)
        table, scan = lake.zero.table("weekly"), lake.zero.table("daily").scan()
        with table.job(WEEK, mode="overwrite", inputs=[scan]) as job:
            job.write(pa.table([[dt.date(2013, 1, 7)], [9]], schema=WEEK))
        lake.correct("2013-01-09", 4)
        with pytest.raises(dg.Failure, match=r"outside Dagster.*week=2013-01-07"):
            lake.tick()

    def test_an_asset_that_appends(self, lake: Lake) -> None:
        @zero_rename_asset(name="monthly", mode="append")
        def added(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
            scan = zero_rename.table("weekly").scan()
            return zero_rename.write(context, pa.table({"total": [scan.to_arrow().num_rows]}))

        resources = {"zero_rename": lake.zero}
        assert dg.materialize([added], resources=resources, instance=lake.instance).success
        lake.correct("2013-01-09", 3)
        assert [names(it) for it in lake.layer()] == ["weekly 2013-01-07"]
        # And what it has added to is replaced by no run, which would take its rows away.
        with pytest.raises(dg.Failure, match=r"has added rows since.*appends, so a new run"):
            lake.tick()

    def test_a_partition_that_the_asset_has_no_more(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake.correct("2013-01-09", 3)
        later = dg.WeeklyPartitionsDefinition("2013-01-14", end_date="2013-01-28", day_offset=1)
        monkeypatch.setattr(f"{__name__}.WEEKS", later)
        with pytest.raises(dg.Failure, match="week=2013-01-07 is no partition"):
            lake.tick()

    def test_what_the_plan_refuses(self, lake: Lake) -> None:
        lake.correct("2013-01-09", 3)
        table, scan = lake.zero.table("weekly"), lake.zero.table("weekly").scan()
        with table.job(
            WEEK, mode="overwrite", inputs=[scan, lake.zero.table("daily").scan()]
        ) as job:
            job.write(pa.table([[dt.date(2013, 1, 7)], [9]], schema=WEEK))
        lake.correct("2013-01-09", 4)
        with pytest.raises(dg.Failure, match="which it wrote itself"):
            lake.tick()

    def test_a_target_that_is_no_asset(self, lake: Lake) -> None:
        sensor = recompute_sensor("yearly")
        with (
            dg.build_sensor_context(
                lake.instance,
                repository_def=lake.defs.get_repository_def(),
                resources={"zero_rename": lake.zero},
            ) as context,
            pytest.raises(dg.Failure, match="no asset 'yearly'"),
        ):
            sensor.evaluate_tick(context)


def test_a_step_of_a_process_of_its_own_is_made_of_all_that_this_has_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of what it read before it wrote another table."""

    @zero_rename_asset()
    def added(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
        total = zero_rename.table("monthly").scan().to_arrow()
        with zero_rename.table("aside").job(total.schema, partition_by=[]) as job:
            job.write(total)
        return zero_rename.write(context, total)

    monkeypatch.setattr(asset_step, "_at_work", None)
    forget_reads()
    assert dg.materialize([added], resources={"zero_rename": lake.zero}).success
    (found,) = look_up([lake.zero.table("added").root.url]).partitions()
    assert {table.rpartition("/")[2] for table, _ in found.sources} == {"monthly"}


def test_a_step_is_made_of_what_it_has_read_and_no_other_in_its_process(lake: Lake) -> None:
    """All runs here are of one process: monthly has not read what weekly has."""
    (found,) = look_up([lake.zero.table("monthly").root.url]).partitions()
    assert {table.rpartition("/")[2] for table, _ in found.sources} == {"weekly"}
    lake.run("daily", "2013-01-07")
    states = {it.state for it in look_up([lake.zero.table("daily").root.url]).partitions()}
    assert states == {State.UNKNOWN}


def test_target_that_cannot_be_read_keeps_no_other_from_being_run_again(lake: Lake) -> None:
    damaged = lake.zero.table(DAMAGED)
    with damaged.job(WEEK, partition_by=["week"]) as job:
        job.write(pa.table([[dt.date(2013, 1, 7)], [1]], schema=WEEK))
    damaged.run(Put(damaged.root.table_key, b"no record"))
    lake.targets = (DAMAGED, GONE, "monthly")
    lake.correct("2013-01-08", 4)
    assert lake.layer()
    assert lake.layer()
    assert lake.total() == [17]
    with pytest.raises(dg.Failure) as raised:
        lake.tick()
    said = str(raised.value.description)
    assert f"{DAMAGED}: RecordDamagedError: " in said
    assert "asset 'gone': Failure: " in said


def test_code_version_of_an_asset_without_a_table_yet_is_no_error(lake: Lake) -> None:
    lake.asked_code = {DAMAGED: "2"}
    assert "Nothing needs to run again" in lake.tick().skip_message


class Source(dg.ConfigurableResource):
    """A source of numbers.

    :param number: what a run loads.
    """

    number: int


def test_run_gets_the_configuration_of_the_resources_too(lake: Lake) -> None:
    """A run by the definitions' own would load other rows."""

    @zero_rename_asset(partitions_def=WEEKS, partition_expr="week", content="rows")
    def copied(
        context: dg.AssetExecutionContext, source: Source, zero_rename: ZeroRenameResource
    ) -> Any:
        zero_rename.table("daily").scan().to_arrow()
        starts = [dt.date.fromisoformat(str(key)) for key in context.partition_keys]
        data = pa.table([starts, [source.number] * len(starts)], schema=WEEK)
        return zero_rename.write(context, data)

    defs = dg.Definitions(
        assets=[*(lake.defs.assets or ()), copied],
        sensors=[recompute_sensor(copied)],
        resources={**(lake.defs.resources or {}), "source": Source(number=1)},
    )
    week = {f"{_RANGE}_start": "2013-01-07", f"{_RANGE}_end": "2013-01-07"}
    config = {"resources": {"source": {"config": {"number": 5}}}}
    request = dg.RunRequest(asset_selection=[dg.AssetKey("copied")], tags=week, run_config=config)
    assert executed(defs, request, lake.instance).success
    lake.correct("2013-01-09", 3)
    made = evaluated(defs, "zero_rename_recompute", lake.instance, zero_rename=lake.zero)
    (again,) = made.run_requests
    assert executed(defs, again, lake.instance).success
    assert lake.zero.table("copied").to_arrow()["total"].to_pylist() == [5]


@pytest.mark.parametrize("by_metadata", [True, False])
def test_function_that_also_makes_an_asset_that_appends_is_not_run_again(
    lake: Lake, by_metadata: bool
) -> None:
    """A new run would load that one's rows beside those that are there."""
    words = {"mode": "append"} if by_metadata else {}

    @dg.multi_asset(
        specs=[
            dg.AssetSpec("totals", metadata={"content": "rows"}),
            dg.AssetSpec("journal", metadata=words),
        ]
    )
    def both(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource) -> Any:
        numbers = zero_rename.table("daily").scan().to_arrow()["number"].to_pylist()
        data = pa.table({"total": [sum(numbers)]})
        yield zero_rename.write(context, data, asset_key="totals")
        yield zero_rename.write(context, data, asset_key="journal", mode="append")

    defs = dg.Definitions(
        assets=[*(lake.defs.assets or ()), both],
        sensors=[recompute_sensor("totals")],
        resources=lake.defs.resources,
    )
    request = dg.RunRequest(asset_selection=[dg.AssetKey("totals"), dg.AssetKey("journal")])
    assert executed(defs, request, lake.instance).success
    lake.correct("2013-01-09", 3)
    with pytest.raises(dg.Failure, match="also makes the asset 'journal', which appends"):
        evaluated(defs, "zero_rename_recompute", lake.instance, zero_rename=lake.zero)
    assert lake.zero.table("journal").to_arrow()["total"].to_pylist() == [14]


def test_key_that_was_deleted_keeps_no_other_partition_of_its_run_stale(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    files = dg.DynamicPartitionsDefinition(name="files")
    instance.add_dynamic_partitions("files", ["a", "b", "c"])
    numbers = {"a": 1, "b": 2, "c": 3}

    @zero_rename_asset(partitions_def=files, partition_expr="file", content="rows")
    def source(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource) -> Any:
        keys = [str(key) for key in context.partition_keys]
        data = pa.table({"number": [numbers[key] for key in keys], "file": keys})
        return zero_rename.write(context, data)

    @zero_rename_asset(partitions_def=files, partition_expr="file", content="rows")
    def double(source: pa.Table) -> pa.Table:
        made = [2 * number for number in source["number"].to_pylist()]
        return pa.table({"number": made, "file": source["file"]})

    defs = dg.Definitions(
        assets=[source, double],
        sensors=[recompute_sensor(double)],
        resources={"zero_rename": zero, "io_manager": ZeroRenameIOManager(zero_rename=zero)},
    )

    def run(asset: str, first: str, last: str) -> None:
        ends = {f"{_RANGE}_start": first, f"{_RANGE}_end": last}
        request = dg.RunRequest(asset_selection=[dg.AssetKey(asset)], tags=ends)
        assert executed(defs, request, instance).success

    def tick() -> Any:
        return evaluated(defs, "zero_rename_recompute", instance, zero_rename=zero)

    run("source", "a", "c")
    run("double", "a", "c")
    instance.delete_dynamic_partition("files", "b")
    numbers["a"] = 9
    run("source", "a", "a")
    for request in tick().run_requests:
        assert executed(defs, request, instance).success
    with pytest.raises(dg.Failure, match="file=b is no partition that the asset 'double' has"):
        tick()
    assert sorted(zero.table("double").to_arrow()["number"].to_pylist()) == [4, 6, 18]
