"""Runs that wait for other runs of their partitions, by the resource's ``wait_for_other_runs``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pydantic import ValidationError

from dagster_zero_rename import SparkPipesClient, ZeroRenameIOManager, ZeroRenameResource
from support import s3a_stand_in
from support.dagster_loads import DAYS, SCHEMA, days, rows
from support.fake_spark import WRITES, FakeSpark
from support.pauses import Pauses
from zero_rename.committer import CommitConflictError, Owner, RunRank
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid

pytestmark = pytest.mark.memory_s3

DAY, NEXT = "2013-01-01", "2013-01-02"
HOUR = timedelta(hours=1)
OWNER = Owner("hourly", "manual", "load")


@dataclass
class Load:
    """An asset that loads days of a table, a row of each, and how often it was called.

    :param policy: fields of its resource.
    :param meanwhile: called in turn as the asset's function hands its rows over, one a call.
    """

    zero: ZeroRenameResource
    policy: dict[str, Any]
    mode: str = "overwrite"
    retries: int = 0
    calls: int = 0
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    @property
    def resource(self) -> ZeroRenameResource:
        return ZeroRenameResource(table_root=self.zero.table_root, **self.policy)

    def run(self, first: str = DAY, last: str | None = None) -> dg.ExecuteInProcessResult:
        @dg.asset(
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day", "mode": self.mode},
            retry_policy=dg.RetryPolicy(max_retries=self.retries) if self.retries else None,
        )
        def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            self.calls += 1
            return zero.write(context, self._rows(context.partition_keys))

        return dg.materialize(
            [flights],
            resources={"zero": self.resource},
            tags=days(first, last),
            raise_on_error=False,
        )

    def _rows(self, keys: Sequence[str]) -> Iterator[pa.Table]:
        yield rows(keys, {key: [self.calls] for key in keys})
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def numbers(self) -> list[int]:
        return sorted(self.zero.table("flights").to_arrow()["number"].to_pylist())


@pytest.fixture
def load(zero: ZeroRenameResource) -> Load:
    return Load(zero, {"wait_for_other_runs": HOUR})


@pytest.fixture
def at_work(zero: ZeroRenameResource) -> Callable[..., Any]:
    """The job of another run, open, with a row of a day."""

    def begin(day: str = DAY, **policy: Any) -> Any:
        given: dict[str, Any] = {"mode": "replace", "replace_partitions": [f"day={day}"], **policy}
        job = zero.table("flights").job(SCHEMA, partition_by=("day",), owner=OWNER, **given)
        job.__enter__()
        job.write(rows([day], {day: [100]}))
        return job

    return begin


def ends(job: Any) -> None:
    job.__exit__(None, None, None)


def failure(result: dg.ExecuteInProcessResult) -> tuple[str, bool]:
    """What a failed run says, and whether it fails for good."""
    (failed,) = result.filter_events(lambda event: event.is_step_failure)
    told = failed.step_failure_data
    user = told.user_failure_data
    final = user is not None and "zero_rename/error" in user.metadata
    return f"{user.description if user else ''} {told.error}", final


class TestWrites:
    """Rows that an asset's function returns."""

    @pytest.mark.parametrize("mode", ["overwrite", "append"])
    def test_run_beside_a_living_job_waits_and_loads_on_top(
        self, load: Load, at_work: Any, pauses: Pauses, mode: str
    ) -> None:
        load.mode, other = mode, at_work()
        seen = pauses(lambda: ends(other))
        assert load.run().success
        assert len(seen) == 1
        assert load.numbers() == ([1] if mode == "overwrite" else [1, 100])

    def test_merge_beside_a_living_job_waits(
        self, load: Load, zero: ZeroRenameResource, at_work: Any, pauses: Pauses
    ) -> None:
        other = at_work()
        seen = pauses(lambda: ends(other))

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
            data = rows([DAY], {DAY: [100, 1]})
            return zero.write(context, data, mode="merge", merge_on=["number"])

        dg.materialize([flights], resources={"zero": load.resource}, partition_key=DAY)
        assert len(seen) == 1
        assert load.numbers() == [1, 100]

    def test_output_of_an_io_manager_waits(
        self, load: Load, zero: ZeroRenameResource, at_work: Any, pauses: Pauses
    ) -> None:
        other = at_work()
        seen = pauses(lambda: ends(other))

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights() -> pa.Table:
            return rows([DAY], {DAY: [1]})

        waits: Any = {"wait_for_other_runs": HOUR}
        manager = ZeroRenameIOManager(table_root=zero.table_root, **waits)
        dg.materialize([flights], resources={"io_manager": manager}, partition_key=DAY)
        assert len(seen) == 1
        assert load.numbers() == [1]

    def test_log_of_the_run_names_whom_it_waits_for(
        self, load: Load, at_work: Any, pauses: Pauses, capfd: pytest.CaptureFixture[str]
    ) -> None:
        other = at_work()
        pauses(lambda: ends(other))
        assert load.run().success
        named = f"{other.job} (of hourly.load of run manual; it writes day={DAY})"
        (said,) = (line for line in capfd.readouterr().err.splitlines() if named in line)
        assert " - flights - Waiting for another run of the same partitions" in said

    def test_run_of_another_partition_goes_on(
        self, load: Load, at_work: Any, pauses: Pauses
    ) -> None:
        other = at_work()
        seen = pauses(lambda: pytest.fail("It waits."))
        assert load.run(NEXT).success
        assert seen == []
        ends(other)

    def test_run_of_several_partitions_waits_for_one(
        self, load: Load, at_work: Any, pauses: Pauses
    ) -> None:
        other = at_work(NEXT)
        seen = pauses(lambda: ends(other))
        assert load.run(DAY, "2013-01-03").success
        assert len(seen) == 1

    def test_two_that_append_go_on(self, load: Load, at_work: Any, pauses: Pauses) -> None:
        load.mode, other = "append", at_work(mode="append", replace_partitions=None)
        seen = pauses(lambda: pytest.fail("It waits."))
        assert load.run().success
        assert seen == []
        ends(other)
        assert load.numbers() == [1, 100]

    def test_run_beside_a_dead_job_goes_on(
        self, load: Load, at_work: Any, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_work()
        monkeypatch.setattr(OpenRecord, "patience", 0.0)
        seen = pauses(lambda: pytest.fail("It waits."))
        assert load.run().success
        assert seen == []

    def test_run_without_the_word_does_not_wait(
        self, load: Load, at_work: Any, pauses: Pauses
    ) -> None:
        load.policy, other = {}, at_work()
        seen = pauses(lambda: pytest.fail("It waits."))
        assert load.run().success
        assert seen == []
        with pytest.raises(CommitConflictError):
            ends(other)

    def test_time_out_fails_for_good_and_nothing_is_written(self, load: Load, at_work: Any) -> None:
        load.policy, load.retries, other = {"wait_for_other_runs": 0.2}, 1, at_work()
        said, final = failure(load.run())
        assert f"after wait_for_other_runs=0 s: {other.job}" in said
        assert "Nothing was submitted or written" in said
        assert (final, load.calls) == (True, 1)
        ends(other)
        assert load.numbers() == [100]

    @pytest.mark.parametrize("policy", ["last_wins", "newest_run"])
    def test_time_out_leaves_the_rest_to_the_other_policies(
        self, load: Load, at_work: Any, policy: str
    ) -> None:
        load.policy = {"wait_for_other_runs": 0.2, "on_conflict": policy}
        other = at_work(on_conflict="last_wins")
        assert load.run().success
        ends(other)

    @pytest.mark.parametrize("waits", [True, False])
    def test_write_that_another_one_overtook_is_tried_again_where_it_waits(
        self, load: Load, at_work: Any, waits: bool
    ) -> None:
        load.policy, load.retries = load.policy if waits else {}, 1
        load.meanwhile = [lambda: ends(at_work())]
        result = load.run()
        assert (result.success, load.calls) == ((True, 2) if waits else (False, 1))
        assert load.numbers() == ([2] if waits else [100])

    def test_last_try_that_another_one_overtook_says_what_the_next_does(
        self, load: Load, at_work: Any
    ) -> None:
        load.meanwhile = [lambda: ends(at_work())]
        said, final = failure(load.run())
        assert CommitConflictError.__name__ in said
        assert "The next attempt waits for other runs" in said
        assert not final


@dataclass
class Submits:
    """An asset that an application loads."""

    load: Load
    application: str

    def run(self, expr: str = "day=%-d") -> dg.ExecuteInProcessResult:
        client = SparkPipesClient(zero_rename=self.load.resource, master="local[1]")
        retries = self.load.retries

        @dg.asset(
            partitions_def=DAYS,
            metadata={"partition_expr": expr, "mode": self.load.mode},
            retry_policy=dg.RetryPolicy(max_retries=retries) if retries else None,
        )
        def flights(context: dg.AssetExecutionContext):
            return client.run(context, application=self.application)

        return dg.materialize([flights], partition_key=DAY, raise_on_error=False)


@pytest.fixture
def submits(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submits:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    path = tmp_path / "job.py"
    path.touch()
    return Submits(load, str(path))


FLIGHT = pa.schema([("day", pa.int32()), ("flight", pa.string())])
#: Fails once, as ``save()`` does where another run has loaded the day while Spark started.
OVERTAKEN = (
    """
import os, pathlib
from zero_rename.committer import CommitConflictError
from zero_rename.committer.commit.failures import failures_told
from zero_rename.committer.format.handoff import Handoff

told, once = Handoff.decode(os.environ), pathlib.Path(os.environ["TEST_ONCE"])
if not once.exists():
    once.touch()
    error = CommitConflictError("Another job changed day=1.", remedy="Load it again.")
    error.key = told.table.head_key("day=1")
    with failures_told(told.table, told.idempotency_key, told.owner):
        raise error
"""
    + WRITES
)


@pytest.mark.usefixtures("s3_server")
class TestApplications:
    """Rows that an application of this package's committer loads."""

    @pytest.fixture
    def at_work(self, zero: ZeroRenameResource) -> Callable[..., Any]:
        def begin(**policy: Any) -> Any:
            given: dict[str, Any] = {"mode": "replace", "replace_partitions": ["day=1"], **policy}
            job = zero.table("flights").job(FLIGHT, partition_by=("day",), owner=OWNER, **given)
            job.__enter__()
            job.write(pa.table({"day": pa.array([1], pa.int32()), "flight": ["other"]}))
            return job

        return begin

    def flights(self, submits: Submits) -> list[str]:
        return submits.load.zero.table("flights").to_arrow()["flight"].to_pylist()

    def test_run_beside_a_living_job_submits_nothing_until_it_has_ended(
        self, submits: Submits, spark: FakeSpark, at_work: Any, pauses: Pauses
    ) -> None:
        other = at_work()

        def first_ends() -> None:
            assert spark.calls() == []
            ends(other)

        assert len(pauses(first_ends)) == 0
        assert submits.run().success
        assert self.flights(submits) == ["f1"]

    def test_time_out_fails_for_good_and_submits_nothing(
        self, submits: Submits, spark: FakeSpark, at_work: Any
    ) -> None:
        submits.load.policy, other = {"wait_for_other_runs": 0.2}, at_work()
        said, final = failure(submits.run())
        assert f"after wait_for_other_runs=0 s: {other.job}" in said
        assert (final, spark.calls()) == (True, [])
        ends(other)

    def test_run_that_was_overtaken_while_it_waited_says_so(
        self, submits: Submits, spark: FakeSpark, at_work: Any, pauses: Pauses
    ) -> None:
        submits.load.policy |= {"on_conflict": "newest_run"}
        rank = datetime(2100, 1, 1, tzinfo=UTC)
        newer = at_work(on_conflict="newest_run", run_rank=rank)
        pauses(lambda: ends(newer))
        said, final = failure(submits.run())
        assert "s of waiting for other runs: Newer runs have loaded day=1" in said
        assert (final, spark.calls()) == (True, [])

    @pytest.mark.parametrize("waits", [True, False])
    def test_run_that_another_one_overtook_while_spark_started_is_tried_again_where_it_waits(
        self,
        submits: Submits,
        spark: FakeSpark,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        waits: bool,
    ) -> None:
        monkeypatch.setenv("TEST_ONCE", str(tmp_path / "once"))
        spark.runs(OVERTAKEN)
        load = submits.load
        load.policy, load.retries = load.policy if waits else {}, 1
        result = submits.run()
        assert (result.success, len(spark.calls())) == ((True, 2) if waits else (False, 1))
        if not waits:
            assert "Load it again" in failure(result)[0]


@pytest.mark.usefixtures("s3_server")
class TestHadoops:
    """Rows that an application of Hadoop's committers loads."""

    @pytest.fixture(autouse=True)
    def _stand_in(self, load: Load, spark: FakeSpark) -> None:
        spark.runs(s3a_stand_in.APPLICATION)
        load.policy |= {"committer": "magic"}

    def rival(self, load: Load, **changes: Any) -> TryRecord:
        table = load.zero.table("flights")
        record = TryRecord(run_uuid(), "other", OWNER, "magic", "replace", ("day=1",))
        record = table.run(ledger.open_try(table.root, replace(record, **changes)))
        at = record.opened_at - 60.0
        earlier = ledger.change(table.root, record, lambda it, _: replace(it, opened_at=at))
        changed = table.run(earlier)
        assert changed is not None
        return changed

    def end(self, load: Load, record: TryRecord) -> None:
        table = load.zero.table("flights")
        report: dict[str, Any] = {"job": record.uuid, "committer": "magic"}
        report |= {"decided_at": record.opened_at, "files": 0, "rows": 0, "bytes": 0}
        report["partitions"] = [{"partition": "day=1", "files": 0, "rows": 0, "bytes": 0}]
        table.run(ledger.close_try(table.root, record, state=COMMITTED, report=report))

    @pytest.mark.parametrize(
        ("committer", "policy"),
        [
            ("magic", "fail"),
            ("magic", "newest_run"),
            ("magic", "last_wins"),
            ("directory", "fail"),
            ("partitioned", "fail"),
        ],
    )
    def test_run_beside_a_living_try_submits_nothing_until_it_has_ended(
        self,
        load: Load,
        submits: Submits,
        spark: FakeSpark,
        pauses: Pauses,
        committer: str,
        policy: str,
    ) -> None:
        load.policy |= {"on_conflict": policy, "committer": committer}
        other = self.rival(load)

        def first_ends() -> None:
            assert spark.calls() == []
            table = load.zero.table("flights")
            open_ones = table.run(ledger.open_tries(table.root)).known
            assert [it.record.uuid for it in open_ones] == [other.uuid]
            self.end(load, other)

        pauses(first_ends)
        assert submits.run().success
        assert len(spark.calls()) == 1

    def test_run_of_another_partition_goes_on(
        self, load: Load, submits: Submits, pauses: Pauses
    ) -> None:
        self.rival(load, partitions=("day=2",))
        seen = pauses(lambda: pytest.fail("It waits."))
        assert submits.run().success
        assert seen == []

    def test_time_out_fails_for_good_and_submits_nothing(
        self, load: Load, submits: Submits, spark: FakeSpark
    ) -> None:
        load.policy |= {"wait_for_other_runs": 0.2}
        self.rival(load)
        said, final = failure(submits.run())
        assert "at work on the same partitions after wait_for_other_runs=0 s: hourly.load" in said
        assert (final, spark.calls()) == (True, [])

    def test_run_that_was_overtaken_while_it_waited_says_so(
        self, load: Load, submits: Submits, spark: FakeSpark, pauses: Pauses
    ) -> None:
        load.policy |= {"on_conflict": "newest_run"}
        newer = self.rival(load, rank=RunRank.of(datetime(2100, 1, 1, tzinfo=UTC)))
        pauses(lambda: self.end(load, newer))
        said, final = failure(submits.run())
        assert "s of waiting for other runs: Newer runs have loaded day=1" in said
        assert (final, spark.calls()) == (True, [])


class TestField:
    @pytest.mark.parametrize("given", [HOUR, 3600, 3600.0])
    def test_duration_is_read(self, given: Any) -> None:
        assert ZeroRenameResource(wait_for_other_runs=given).wait_for_other_runs == 3600

    @pytest.mark.parametrize("given", ["soon", -1, timedelta(-1), float("inf")])
    def test_anything_else_is_refused_while_definitions_load(self, given: Any) -> None:
        with pytest.raises(ValidationError, match="Invalid wait_for_other_runs="):
            ZeroRenameResource(wait_for_other_runs=given)

    def test_configuration_of_a_run_has_it_in_seconds(self) -> None:
        seen: list[Any] = []

        @dg.asset
        def flights(zero: ZeroRenameResource) -> None:
            seen.append(zero.wait_for_other_runs)

        config = {"resources": {"zero": {"config": {"wait_for_other_runs": 7200}}}}
        resources: Any = {"zero": ZeroRenameResource.configure_at_launch()}
        dg.materialize([flights], resources=resources, run_config=config)
        assert seen == [7200]
