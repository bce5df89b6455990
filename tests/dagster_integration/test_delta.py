"""Assets that are Delta tables: written, loaded, read, watched and looked after as others are."""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.observe import observe
from pydantic import ValidationError

from dagster_zero_rename import (
    SparkPipesClient,
    ZeroRenameIOManager,
    ZeroRenameResource,
    checkpoint_job,
    conflicts_check,
    freshness_check,
    heads_sensor,
    manifest_check,
    observable_table,
    recompute_sensor,
    zero_rename_asset,
)
from support.dagster_loads import DAYS, SCHEMA, days, materialisations, rows, told
from support.fake_spark import WRITES, FakeSpark
from support.pauses import Pauses
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.committer.format.records.inputs import content_of
from zero_rename.committer.store.requests import Delete, Found, Get, Put
from zero_rename.tables import DeltaTable, last_changes
from zero_rename.tables.delta_files import layout_of
from zero_rename.tables.delta_properties import change_properties

pytestmark = pytest.mark.memory_s3
DAY, NEXT, LAST = "2013-01-01", "2013-01-02", "2013-01-03"
#: As :data:`.fake_spark.WRITES`, into a Delta table, as ``save()`` does where it is told so.
WRITES_DELTA = WRITES.replace(
    "job = committer.Table(url).job(",
    """from zero_rename.committer.format.handoff import Handoff
from zero_rename.tables import DeltaTable

assert Handoff.decode(os.environ).layout == "delta"
job = DeltaTable(url).job(""",
)


@dataclass
class Flights:
    """Days of a Delta table, loaded by an asset.

    :param code_version: of the asset.
    :param numbers: of the days that have rows.
    :param failures: raised in turn, one a call of the function, after its commit.
    :param calls: how often it was called.
    """

    zero: ZeroRenameResource
    instance: dg.DagsterInstance
    policy: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    code_version: str | None = None
    numbers: dict[str, list[int]] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    calls: int = 0

    @property
    def resource(self) -> ZeroRenameResource:
        words = {"layout": "delta", **self.policy}
        return ZeroRenameResource(table_root=self.zero.table_root, **words)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(f"{self.zero.table_root}/flights", self.zero.client())

    @property
    def rows(self) -> list[tuple[str, int]]:
        found = self.table.scan().to_arrow().to_pylist()
        return sorted((str(it["day"]), it["number"]) for it in found)

    @property
    def asset(self) -> Any:
        @dg.asset(
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day", **self.metadata},
            code_version=self.code_version,
        )
        def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            self.calls += 1
            done = zero.write(context, rows(context.partition_keys, self.numbers))
            if self.failures:
                raise self.failures.pop(0)
            return done

        return flights

    def run(self, first: str, last: str | None = None, **given: Any) -> Any:
        return dg.materialize(
            [self.asset],
            resources={"zero": self.resource},
            instance=self.instance,
            tags=days(first, last),
            **given,
        )


def marker_of(flights: Flights) -> str | None:
    """The job that the table's ``_SUCCESS`` names."""
    found = flights.table.run(Get(f"{flights.table.root.prefix}/_SUCCESS"))
    return json.loads(found.body)["jobId"] if isinstance(found, Found) else None


@pytest.fixture
def flights(zero: ZeroRenameResource, instance: dg.DagsterInstance) -> Flights:
    return Flights(zero, instance, numbers={DAY: [1, 2], LAST: [3]})


def commit(table: DeltaTable, *numbers: int, mode: str = "append", **more: Any) -> str:
    """A job of somebody else's with rows of some days of January."""
    dates = [dt.date(2013, 1, number) for number in numbers]
    with table.job(SCHEMA, partition_by=["day"], mode=mode, **more) as job:
        job.write(pa.table({"day": dates, "number": list(numbers)}, SCHEMA))
    assert job.committed is not None
    return job.committed.job


class TestWrite:
    def test_backfill_with_a_hole_is_one_entry_with_an_event_of_each_day(
        self, flights: Flights
    ) -> None:
        flights.run(NEXT, NEXT)  # Empty: the table is there by its schema.
        flights.numbers[NEXT] = [9]
        flights.run(NEXT)
        del flights.numbers[NEXT]
        result = flights.run(DAY, LAST)
        assert flights.rows == [(DAY, 1), (DAY, 2), (LAST, 3)]
        found = told(result)
        assert {it["zero_rename/version"] for it in found.values()} == {2}
        counts = ("rows", "files", "files_removed")
        assert {
            day: tuple(it[f"zero_rename/{name}"] for name in counts) for day, it in found.items()
        } == {DAY: (2, 1, 0), NEXT: (0, 0, 1), LAST: (1, 1, 0)}
        assert found[DAY]["zero_rename/bytes"] > 0
        assert found[DAY]["dagster/partition_row_count"] == 2
        assert len({it["zero_rename/job"] for it in found.values()}) == 1
        assert [it.version for it in flights.table.history()] == [2, 1, 0]

    def test_asset_s_own_layout_wins(self, flights: Flights) -> None:
        flights.policy, flights.metadata = {"layout": "directory"}, {"layout": "delta"}
        flights.run(DAY)
        assert flights.table.exists()

    def test_asset_without_partitions_is_replaced_as_a_whole(
        self, zero: ZeroRenameResource
    ) -> None:
        @zero_rename_asset(layout="delta")
        def numbers(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            return zero.write(context, pa.table({"n": [1, 2]}))

        for _ in range(2):
            result = dg.materialize([numbers], resources={"zero": zero})
        table = DeltaTable(f"{zero.table_root}/numbers", zero.client())
        assert table.scan().count() == 2
        [event] = materialisations(result)
        assert event.metadata["zero_rename/version"].value == 1
        assert event.metadata["dagster/row_count"].value == 2

    def test_append_adds_and_merge_changes_rows(self, flights: Flights) -> None:
        flights.metadata = {"mode": "append"}
        for _ in range(2):
            flights.run(DAY)
        assert flights.rows == [(DAY, 1), (DAY, 1), (DAY, 2), (DAY, 2)]
        flights.metadata = {}
        flights.run(DAY)
        flights.metadata = {"mode": "merge", "merge_on": ["day", "number"]}
        flights.numbers = {DAY: [2, 5]}
        result = flights.run(DAY)
        assert flights.rows == [(DAY, 1), (DAY, 2), (DAY, 5)]
        assert told(result)[DAY]["zero_rename/rows_inserted"] == 1

    def test_step_retried_after_its_commit_reports_it(self, flights: Flights) -> None:
        flights.failures = [dg.RetryRequested(max_retries=1)]
        result = flights.run(DAY)
        assert (flights.calls, flights.rows) == (2, [(DAY, 1), (DAY, 2)])
        assert told(result)[DAY]["zero_rename/repeated"] is True
        assert flights.table.history()[0].version == 0

    def test_step_retried_after_its_entry_was_cleaned_is_refused_before_it_takes_a_row(
        self, flights: Flights
    ) -> None:
        """Nobody can tell which rows it would have to replace."""

        class Cleaning(list[Exception]):
            def pop(self, index: Any = 0) -> Exception:
                commit(flights.table, 30)
                flights.table.checkpoint_log()
                key = f"{flights.table.root.prefix}/_delta_log/{0:020}.json"
                flights.table.driver.perform(Delete(key))
                return super().pop(index)

        flights.failures = Cleaning([dg.RetryRequested(max_retries=1)])
        result = flights.run(DAY, raise_on_error=False)
        (failed,) = result.filter_events(lambda it: it.is_step_failure)
        assert "materialise them by a new run" in str(failed.event_specific_data.error)
        assert flights.rows == [(DAY, 1), (DAY, 2), ("2013-01-30", 30)]
        flights.run(DAY)
        assert flights.rows == [(DAY, 1), (DAY, 2), ("2013-01-30", 30)]

    def test_marker_of_each_write_is_where_the_resource_asks_for_it(self, flights: Flights) -> None:
        flights.run(DAY)
        assert marker_of(flights) is None
        flights.policy = {"success_markers": "table"}
        flights.run(DAY)
        written = marker_of(flights)
        assert written == flights.table.history()[0].job
        flights.metadata = {"mode": "merge", "merge_on": ["day", "number"]}
        flights.numbers = {DAY: [2, 5]}
        flights.run(DAY)
        assert marker_of(flights) == flights.table.history()[0].job != written

    def test_markers_of_partitions_are_refused(self, flights: Flights) -> None:
        flights.policy = {"success_markers": "partition_and_table"}
        result = flights.run(DAY, raise_on_error=False)
        assert "success_markers=partition_and_table" in str(result.all_events)
        assert not flights.table.exists()

    def test_late_run_gives_way_to_a_newer_one(self, flights: Flights) -> None:
        flights.policy = {"on_conflict": "newest_run"}
        far = dt.datetime(2033, 1, 1, tzinfo=dt.UTC)
        newer = commit(flights.table, 1, mode="overwrite", run_rank=far)
        result = flights.run(DAY, raise_on_error=False)
        assert not result.success
        assert flights.rows == [(DAY, 1)]
        flights.policy |= {"on_superseded": "skip"}
        result = flights.run(DAY, LAST)
        assert told(result)[DAY]["zero_rename/superseded_by"] == newer
        assert flights.rows == [(DAY, 1), (LAST, 3)]

    def test_run_waits_for_another_one_of_its_partition(
        self, flights: Flights, pauses: Pauses
    ) -> None:
        flights.run(DAY)
        flights.policy = {"wait_for_other_runs": 3600}
        other = flights.table.job(
            SCHEMA,
            mode="overwrite",
            replace_partitions=[f"day={DAY}"],
            owner=Owner("hourly", "manual", "load"),
        )
        open_job = other.__enter__()

        def end() -> None:
            open_job.write(rows([DAY], {DAY: [8]}))
            other.__exit__(None, None, None)

        seen = pauses(end)
        flights.run(DAY)
        assert len(seen) == 1
        assert flights.rows == [(DAY, 1), (DAY, 2)]
        assert [it.version for it in flights.table.history()] == [2, 1, 0]


def test_hadoops_committers_are_refused_while_definitions_load() -> None:
    with pytest.raises(ValidationError, match="magic, which writes directories"):
        ZeroRenameResource(table_root="s3://lake/tables", layout="delta", committer="magic")


def test_unknown_layout_is_refused(zero: ZeroRenameResource) -> None:
    with pytest.raises(ValidationError, match="layout is 'iceberg'"):
        ZeroRenameResource(table_root=zero.table_root, layout="iceberg")
    with pytest.raises(InvalidInputError, match="layout"):
        zero_rename_asset(layout="iceberg")


def test_code_version_and_content_of_an_asset_are_recorded(flights: Flights) -> None:
    flights.code_version, flights.metadata = "4", {"content": "rows"}
    flights.run(DAY)
    (job,) = {it.job for it in flights.table.state().files}
    assert flights.table.inputs_of(job).code_versions == ("4",)
    assert content_of(flights.table.state().files).startswith("rows:2:")


def test_data_root_of_the_resource_is_refused_for_an_asset_of_directories(flights: Flights) -> None:
    flights.policy = {"data_root": "s3://fast/lake"}
    flights.metadata = {"layout": "directory"}
    result = flights.run(DAY, raise_on_error=False)
    assert not result.success
    assert not flights.table.exists()
    assert "data_root=s3://fast/lake is of Delta tables" in str(result.all_events)


@pytest.mark.parametrize("layouts", [("directory", "delta"), ("delta", "directory")])
def test_table_of_the_other_layout_is_refused(flights: Flights, layouts: Sequence[str]) -> None:
    first, then = layouts
    flights.policy = {"layout": first}
    flights.run(DAY)
    flights.policy, flights.numbers = {"layout": then}, {DAY: [4]}
    assert not flights.run(DAY, raise_on_error=False).success
    found = flights.table if first == "delta" else flights.zero.table("flights")
    assert found.scan().count() == 2


class TestRead:
    def test_io_manager_reads_the_partitions_of_a_delta_table(self, flights: Flights) -> None:
        commit(flights.table, 1, 2)
        took: list[pa.Table] = []
        spec = dg.AssetSpec("flights", partitions_def=DAYS, metadata={"partition_expr": "day"})

        @dg.asset(partitions_def=DAYS)
        def report(flights: pa.Table) -> None:
            took.append(flights)

        manager = ZeroRenameIOManager(table_root=flights.zero.table_root)
        written = {"io_manager": manager}
        dg.materialize([spec, report], resources=written, selection=[report], partition_key=NEXT)
        assert took[0]["number"].to_pylist() == [2]

    def test_io_manager_writes_a_delta_table(self, flights: Flights) -> None:
        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights_(context: dg.AssetExecutionContext) -> pa.Table:
            return rows([context.partition_key], {DAY: [4]})

        root = flights.zero.table_root
        manager = ZeroRenameIOManager(table_root=root, layout="delta")
        dg.materialize([flights_], resources={"io_manager": manager}, partition_key=DAY)
        found = DeltaTable(f"{root}/flights_", flights.zero.client())
        assert found.scan().to_arrow()["number"].to_pylist() == [4]


def evaluated(check: Any, flights: Flights) -> Any:
    """The evaluation of a check, in a run of its own."""
    result = dg.materialize(
        [flights.asset, check],
        resources={"zero": flights.resource, "zero_rename": flights.resource},
        instance=flights.instance,
        selection=dg.AssetSelection.checks(check),
        tags=days(DAY, LAST),
        raise_on_error=False,
    )
    [found] = [
        event.event_specific_data
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ]
    return found


class TestChecks:
    def test_what_was_materialised_is_there(self, flights: Flights) -> None:
        flights.run(DAY, LAST)
        found = evaluated(manifest_check(flights.asset), flights)
        assert (found.passed, found.metadata["rows"].value) == (True, 3)
        wanted = evaluated(manifest_check(flights.asset, min_rows=2), flights)
        assert not wanted.passed
        assert "day=2013-01-02" in wanted.description

    def test_job_whose_entry_another_engine_has_cleaned_does_not_fail_the_check(
        self, flights: Flights
    ) -> None:
        flights.run(DAY, LAST)
        commit(flights.table, 30)
        flights.table.checkpoint_log()
        first = f"{flights.table.root.prefix}/_delta_log/{0:020}.json"
        flights.table.driver.perform(Delete(first))
        found = evaluated(manifest_check(flights.asset), flights)
        assert (found.passed, found.description) == (True, None)
        wanted = evaluated(manifest_check(flights.asset, min_rows=1), flights)
        assert (wanted.passed, wanted.description) == (False, f"day={NEXT}: 0 files.")

    def test_partition_that_another_engine_has_changed_passes_the_check(
        self, flights: Flights
    ) -> None:
        flights.run(DAY, LAST)
        folder = f"{flights.table.root.prefix}/_delta_log"
        entry = flights.table.driver.perform(Get(f"{folder}/{0:020}.json"))
        assert isinstance(entry, Found)
        adds = [line for line in entry.body.splitlines(keepends=True) if line.startswith(b'{"add"')]
        flights.table.driver.perform(Put(f"{folder}/{1:020}.json", b"".join(adds)))
        for event in TestWatch().tick(flights, "0").asset_events:
            assert "zero_rename/job" not in event.metadata
            flights.instance.report_runless_asset_event(event)
        assert evaluated(manifest_check(flights.asset), flights).description is None

    def test_job_that_a_whole_log_has_no_entry_of_fails_the_check(self, flights: Flights) -> None:
        flights.run(DAY, LAST)
        for key in (DAY, "2013-01-02", LAST):
            told = dg.AssetMaterialization(
                "flights", metadata={"zero_rename/job": "zr1-none"}, partition=key
            )
            flights.instance.report_runless_asset_event(told)
        found = evaluated(manifest_check(flights.asset), flights)
        assert not found.passed
        assert found.description.startswith(f"day={DAY}: the log has no entry of job zr1-none.")

    def test_file_that_is_gone_fails_the_check(self, flights: Flights) -> None:
        flights.run(DAY, LAST)
        gone = flights.table.state([f"day={DAY}"]).files[0]
        flights.table.driver.perform(Delete(gone.key))
        found = evaluated(manifest_check(flights.asset), flights)
        assert not found.passed
        assert f"day={DAY}" in found.description

    def test_freshness_goes_by_the_last_entry(
        self, flights: Flights, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        check = freshness_check(flights.asset, within=dt.timedelta(hours=1))
        assert not evaluated(check, flights).passed
        job = commit(flights.table, 1)
        found = evaluated(check, flights)
        assert (found.passed, found.metadata["zero_rename/job"].value) == (True, job)
        later = flights.table.now() + 7200
        monkeypatch.setattr(DeltaTable, "now", lambda _: later)
        assert not evaluated(check, flights).passed

    def test_freshness_of_a_table_whose_entries_another_engine_has_cleaned_is_not_known(
        self, flights: Flights
    ) -> None:
        commit(flights.table, 1)
        layout = layout_of(flights.table.root)
        flights.table.run(change_properties(layout, lambda known: {**known, "owner": "a"}))
        flights.table.checkpoint_log()
        first = f"{flights.table.root.prefix}/_delta_log/{0:020}.json"
        flights.table.driver.perform(Delete(first))
        found = evaluated(freshness_check(flights.asset, within=dt.timedelta(hours=1)), flights)
        assert (found.passed, "was cleaned of every entry" in found.description) == (False, True)

    def test_freshness_looks_past_entries_that_changed_no_rows(
        self, flights: Flights, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It said that the log was cleaned."""
        monkeypatch.setattr(last_changes, "_MOST", 2)
        job = commit(flights.table, 1)
        layout = layout_of(flights.table.root)
        for name in "abc":
            flights.table.run(change_properties(layout, lambda known, it=name: {**known, it: it}))
        later = flights.table.now() + 7200
        monkeypatch.setattr(DeltaTable, "now", lambda _: later)
        found = evaluated(freshness_check(flights.asset, within=dt.timedelta(hours=1)), flights)
        assert (found.passed, found.metadata["zero_rename/job"].value) == (False, job)
        assert "The last commit is 2:00:0" in found.description

    def test_conflicts_are_found_in_its_log(self, flights: Flights) -> None:
        flights.run(DAY, LAST)
        assert evaluated(conflicts_check(flights.asset), flights).passed


class TestWatch:
    def tick(self, flights: Flights, cursor: str | None) -> Any:
        sensor = heads_sensor(flights.asset)
        with dg.build_sensor_context(
            flights.instance, cursor=cursor, resources={"zero_rename": flights.zero}
        ) as context:
            return sensor.evaluate_tick(context)

    def told(self, found: Any) -> dict[str, tuple[int, Any]]:
        return {
            it.partition: (
                it.metadata["zero_rename/version"].value,
                it.metadata["zero_rename/rows"].value,
            )
            for it in found.asset_events
        }

    def test_sensor_tells_entries_of_others_once(self, flights: Flights) -> None:
        assert self.tick(flights, None).skip_message
        flights.run(DAY, LAST)
        job = commit(flights.table, 2)
        first = self.tick(flights, None)
        assert self.told(first) == {NEXT: (1, 1)}
        assert first.asset_events[0].metadata["zero_rename/job"].value == job
        quiet = self.tick(flights, first.cursor)
        assert "Nothing has changed" in quiet.skip_message
        with flights.table.job(mode="overwrite", replace_partitions=[f"day={LAST}"]):
            pass
        emptied = self.tick(flights, first.cursor)
        assert self.told(emptied) == {LAST: (2, 0)}

    def test_sensor_tells_the_rest_in_the_next_tick(
        self, flights: Flights, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dagster_zero_rename.watch.heads_sensor.LIMIT", 2)
        for number in (1, 2, 3):
            commit(flights.table, number)
        first = self.tick(flights, None)
        assert [*self.told(first)] == [DAY, NEXT]
        assert [*self.told(self.tick(flights, first.cursor))] == [LAST]

    @pytest.mark.parametrize("since", [None, "0"])
    def test_sensor_tells_what_changed_before_the_newest_entries(
        self, flights: Flights, monkeypatch: pytest.MonkeyPatch, since: str | None
    ) -> None:
        """At its first tick; and once the time window of a partition is over."""
        monkeypatch.setattr("zero_rename.tables.last_changes._MOST", 1)
        for number in (1, 2):
            commit(flights.table, number)
        cursor = None if since is None else json.dumps([1, [f"day={DAY}"]])
        found = self.tick(flights, cursor)
        assert self.told(found) == {DAY: (0, 1)} | ({NEXT: (1, 1)} if since is None else {})
        assert self.tick(flights, found.cursor).skip_message

    def test_partition_whose_entry_was_cleaned_waits_no_longer(
        self, flights: Flights, capsys: pytest.CaptureFixture[str]
    ) -> None:
        commit(flights.table, 1)
        layout = layout_of(flights.table.root)
        flights.table.run(change_properties(layout, lambda known: {**known, "owner": "a"}))
        flights.table.checkpoint_log()
        first = f"{flights.table.root.prefix}/_delta_log/{0:020}.json"
        flights.table.driver.perform(Delete(first))
        found = self.tick(flights, json.dumps([1, [f"day={DAY}"]]))
        assert (self.told(found), found.cursor) == ({}, "1")
        assert f"day={DAY}" in capsys.readouterr().err
        assert "Nothing has changed" in self.tick(flights, found.cursor).skip_message

    def test_table_made_anew_is_told_from_its_first_entry(self, flights: Flights) -> None:
        commit(flights.table, 1)
        assert self.told(self.tick(flights, "17")) == {DAY: (0, 1)}

    def test_recompute_sensor_runs_what_a_correction_leaves_stale(self, flights: Flights) -> None:
        @dg.asset(deps=[flights.asset])
        def totals(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            total = sum(flights.table.scan().to_arrow()["number"].to_pylist())
            return zero.write(context, pa.table({"total": [total]}))

        @dg.asset(deps=[flights.asset], partitions_def=DAYS, metadata={"partition_expr": "day"})
        def doubled(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            found = flights.table.scan([f"day={context.partition_key}"]).to_arrow()
            twice = pa.array([2 * it for it in found["number"].to_pylist()], pa.int64())
            return zero.write(context, found.set_column(1, "number", twice))

        words = {"zero": flights.resource, "zero_rename": flights.resource}
        sensor = recompute_sensor("totals", "doubled", name="s")
        assets = [flights.asset, totals, doubled]
        defs = dg.Definitions(assets, sensors=[sensor], resources=words)

        def tick() -> Any:
            repository = defs.get_repository_def()
            given: Any = {"repository_def": repository, "resources": {"zero_rename": words["zero"]}}
            with dg.build_sensor_context(flights.instance, **given) as context:
                return sensor.evaluate_tick(context)

        flights.run(DAY, LAST)
        given: Any = {"resources": words, "instance": flights.instance}
        dg.materialize([totals], selection=[totals], **given)
        for key in (DAY, LAST):
            dg.materialize([doubled], selection=[doubled], partition_key=key, **given)
        assert "Nothing" in tick().skip_message
        flights.numbers[DAY] = [7]
        flights.run(DAY)
        asked = {it.asset_selection[0].to_user_string(): it for it in tick().run_requests}
        assert {name: it.partition_key for name, it in asked.items()} == {
            "totals": None,
            "doubled": DAY,
        }

    def test_observation_gives_the_version_of_each_partition(self, flights: Flights) -> None:
        commit(flights.table, 1, 2)
        seen = observable_table("flights", partitions_def=DAYS, partition_expr="day")

        def versions() -> dict[str, str]:
            resources = {"zero_rename": flights.zero}
            result = observe([seen], resources=resources, instance=flights.instance)
            events = result.asset_observations_for_node(seen.op.name)
            return {str(it.partition): it.tags["dagster/data_version"] for it in events}

        before = versions()
        assert sorted(before) == [DAY, NEXT]
        commit(flights.table, 2)
        after = versions()
        assert (after[DAY] == before[DAY], after[NEXT] == before[NEXT]) == (True, False)


@pytest.mark.usefixtures("s3_server")
class TestSpark:
    @pytest.fixture
    def application(self, tmp_path: Path, spark: FakeSpark) -> str:
        spark.runs(WRITES_DELTA)
        path = tmp_path / "job.py"
        path.touch()
        return str(path)

    def test_application_is_told_to_write_a_delta_table(
        self, flights: Flights, application: str, spark: FakeSpark
    ) -> None:
        client = SparkPipesClient(zero_rename=flights.resource, master="local[1]")

        @dg.asset(
            partitions_def=dg.StaticPartitionsDefinition(["1", "2"]),
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day"},
            retry_policy=dg.RetryPolicy(max_retries=1),
        )
        def flights_(context: dg.AssetExecutionContext):
            env = {"TEST_DAYS": "1,2"}
            done = client.run(context, application=application, env=env, table="flights")
            if context.retry_number == 0:
                raise RuntimeError("failed after the commit")
            return done

        result = dg.materialize([flights_], instance=flights.instance, tags=days("1", "2"))
        assert len(spark.calls()) == 1
        assert flights.table.scan().count() == 2
        assert {it["zero_rename/version"] for it in told(result).values()} == {0}


def test_assets_files_lie_in_the_data_root_until_the_checkpoint_job(flights: Flights) -> None:
    assert flights.zero.table_root is not None
    bucket = flights.zero.table_root.removeprefix("s3://").split("/")[0]
    flights.policy["data_root"] = f"s3://{bucket}/scratch"
    flights.run(DAY)
    assert [it.partition for it in flights.table.not_durable()] == [f"day={DAY}"]
    resources = {"zero_rename": flights.resource}
    checkpoint_job(apply=True).execute_in_process(resources=resources)
    assert flights.table.not_durable() == []
    assert flights.rows == [(DAY, 1), (DAY, 2)]
