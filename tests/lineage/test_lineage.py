"""Stale, lost and to be run again, of real tables: daily, weekly of that, monthly of that."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.command_line import as_json, invoke
from support.old_records import gc_of_all
from zero_rename import Table
from zero_rename.cli import lineage as commands
from zero_rename.committer import (
    CommitConflictError,
    Content,
    FileOptions,
    InvalidInputError,
    Owner,
    TableNotFoundError,
)
from zero_rename.committer.commit.narrowed_run import leave_narrowing, read_narrowing
from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.layout import TableRoot, new_write_id
from zero_rename.committer.format.parquet.row_filter import RowFilter
from zero_rename.committer.format.records.data_file import DataFile
from zero_rename.committer.format.records.inputs import TableRead
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.lineage import LineageState as State
from zero_rename.lineage import Plan, Refusal, look_up, plan
from zero_rename.lineage.tables import CannotTellError, TableNow

pytestmark = pytest.mark.memory_s3


class Lake:
    """Three tables, and the programs that make them."""

    def __init__(self, bucket: Bucket, content: Content = Content.ROWS) -> None:
        self.bucket = bucket
        self._files = FileOptions(content=content)
        self.daily, self.weekly, self.monthly = (
            Table(f"s3://{bucket.name}/{name}") for name in ("daily", "weekly", "monthly")
        )

    def write(self, table: Table, by: str, rows: dict[str, list], **more: Any) -> str:
        data = pa.table(rows)
        mode = more.pop("mode", "overwrite")
        owner = Owner(dag_id="flights", run_id="r1", task_id=by)
        policy: dict[str, Any] = {"files": self._files, "owner": owner, **more}
        with table.job(data.schema, partition_by=[by], mode=mode, **policy) as job:
            job.write(data)
        assert job.job is not None
        return job.job

    def load(self, *days: int, x: int = 1, **more: Any) -> str:
        rows = {"x": [x] * len(days), "day": list(days)}
        return self.write(self.daily, "day", rows, **{"inputs": (), **more})

    def week(self, week: int, **more: Any) -> str:
        days = [f"day={day}" for day in range(7 * week, 7 * week + 7)]
        scan = self.daily.scan(days)
        rows = {"x": [sum(scan.to_arrow()["x"].to_pylist())], "week": [week]}
        return self.write(self.weekly, "week", rows, inputs=[scan], **more)

    def month(self) -> str:
        scan = self.weekly.scan()
        rows = {"x": [max(scan.to_arrow()["x"].to_pylist())], "month": [1]}
        return self.write(self.monthly, "month", rows, inputs=[scan])

    def raw(self, body: bytes) -> list[str]:
        """Put a foreign file there; its URL."""
        self.bucket.put("raw/x.csv", body)
        return [f"s3://{self.bucket.name}/raw/x.csv"]

    def lose(self, table: Table, partition: str) -> DataFile:
        (file,) = table.files(partition)
        self.bucket.delete(file.key)
        return file

    def states(self, table: Table, lost: bool = False) -> dict[str, State]:
        found = look_up([table.root.url], lost=lost).partitions()
        return {it.partition: it.state for it in found}

    def plan(self, *targets: str) -> Plan:
        return plan(look_up(targets or [self.monthly.root.url], lost=True))

    def layers(self, *targets: str) -> list[list[str]]:
        return names(self.plan(*targets))


def names(found: Plan) -> list[list[str]]:
    return [
        [f"{it.table.rpartition('/')[2]}/{name}" for it in layer for name in it.partitions]
        for layer in found.layers
    ]


@pytest.fixture
def bare(s3_bucket: Bucket) -> Lake:
    return Lake(s3_bucket)


@pytest.fixture
def lake(bare: Lake) -> Lake:
    for day in range(14):
        bare.load(day)
    bare.week(0)
    bare.week(1)
    bare.month()
    return bare


class TestStale:
    def test_nothing_is(self, lake: Lake) -> None:
        assert lake.states(lake.weekly) == {"week=0": State.FRESH, "week=1": State.FRESH}
        assert lake.states(lake.monthly) == {"month=1": State.FRESH}
        assert set(lake.states(lake.daily).values()) == {State.UNKNOWN}
        assert lake.layers() == []

    def test_a_corrected_day(self, lake: Lake) -> None:
        lake.load(3, x=5)
        assert lake.states(lake.weekly) == {"week=0": State.STALE, "week=1": State.FRESH}
        assert lake.states(lake.monthly) == {"month=1": State.BEHIND}
        assert lake.layers() == [["weekly/week=0"], ["monthly/month=1"]]
        lake.week(0)
        assert lake.layers() == [["monthly/month=1"]]
        lake.month()
        assert lake.layers() == []

    def test_an_identical_load_is_no_correction(self, lake: Lake) -> None:
        lake.load(3)
        assert lake.layers() == []

    def test_a_layer_that_comes_out_equal_ends_there(self, lake: Lake) -> None:
        lake.load(3, x=2)
        lake.load(4, x=0)
        assert lake.layers() == [["weekly/week=0"], ["monthly/month=1"]]
        lake.week(0)  # The same sum: monthly is as its inputs are.
        assert lake.states(lake.monthly) == {"month=1": State.FRESH}
        assert lake.layers() == []

    def test_rows_that_were_added(self, lake: Lake) -> None:
        lake.load(3, mode="append")
        assert lake.states(lake.weekly)["week=0"] is State.STALE

    def test_a_day_that_came_later_is_missed(self, bare: Lake) -> None:
        bare.load(0, 1)
        bare.week(0)
        assert bare.states(bare.weekly) == {"week=0": State.FRESH}
        bare.load(2)
        assert bare.states(bare.weekly) == {"week=0": State.STALE}
        bare.load(9)
        bare.week(0)
        assert bare.states(bare.weekly) == {"week=0": State.FRESH}

    def test_a_filter_is_asked_again(self, bare: Lake) -> None:
        bare.load(1, 5)
        scan = bare.daily.scan(filter=(pc.field("day") >= 4) & (pc.field("x") > 0))
        bare.write(bare.weekly, "week", {"x": [1], "week": [0]}, inputs=[scan])
        bare.load(2)
        assert bare.states(bare.weekly) == {"week=0": State.FRESH}
        bare.load(6)
        (found,) = look_up([bare.weekly.root.url]).partitions()
        assert (found.state, found.why) == (
            State.STALE,
            (f"{bare.daily.root.url}/day=6 came since, and is asked for",),
        )

    def test_a_partition_that_was_emptied(self, lake: Lake) -> None:
        schema = pa.schema([("x", pa.int64()), ("day", pa.int64())])
        with lake.daily.job(schema, mode="overwrite", replace_partitions=["day=3"], inputs=()):
            pass
        found = look_up([f"{lake.weekly.root.url}/week=0"]).partitions()
        assert [(it.state, it.why) for it in found] == [
            (State.STALE, (f"{lake.daily.root.url}/day=3 held files then, and holds none now",))
        ]

    def test_by_bytes_the_same_rows_in_other_files_are_others(self, s3_bucket: Bucket) -> None:
        lake = Lake(s3_bucket, Content.BYTES)
        lake.load(1, mode="append")
        lake.load(1, mode="append")
        lake.week(0)
        lake.daily.compact(apply=True)
        assert lake.states(lake.weekly) == {"week=0": State.STALE}

    def test_files_of_another_committer_that_were_replaced(self, bare: Lake) -> None:
        raw = Table(f"s3://{bare.bucket.name}/hadoop")
        for name, lines in (("a", [1]), ("b", [2, 3])):
            body = io.BytesIO()
            pq.write_table(pa.table({"x": lines}), body)
            bare.bucket.delete("hadoop/")
            bare.bucket.put(f"hadoop/day=1/part-0-{name}.parquet", body.getvalue())
            if name == "a":
                scan = raw.scan(["day=1"])
                rows = {"x": scan.to_arrow()["x"].to_pylist(), "week": [0]}
                bare.write(bare.weekly, "week", rows, inputs=[scan])
        (found,) = look_up([bare.weekly.root.url]).partitions()
        assert found.why == (f"{raw.root.url}/day=1 holds other files than then",)

    def test_many_partitions_by_their_digest(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("zero_rename.committer.format.records.inputs.MOST_NAMED", 3)
        lake.week(0)
        assert lake.states(lake.weekly)["week=0"] is State.FRESH
        lake.load(3)
        assert lake.states(lake.weekly)["week=0"] is State.FRESH
        lake.load(3, x=7)
        assert lake.states(lake.weekly)["week=0"] is State.STALE
        assert lake.layers() == [["weekly/week=0"], ["monthly/month=1"]]

    def test_a_foreign_file(self, bare: Lake) -> None:
        bare.load(1, inputs=bare.raw(b"1"))
        assert bare.states(bare.daily) == {"day=1": State.FRESH}
        bare.raw(b"2")
        assert bare.states(bare.daily) == {"day=1": State.STALE}

    @pytest.mark.parametrize("compacted", ["daily", "weekly"])
    def test_the_same_after_gc_and_compaction(self, lake: Lake, compacted: str) -> None:
        for _ in range(2):
            lake.load(2, 9, mode="append")
        lake.week(0)
        lake.week(1, mode="append")
        lake.month()
        lake.load(3, x=5)
        before = lake.states(lake.weekly), lake.states(lake.monthly)
        assert before[0] == {"week=0": State.STALE, "week=1": State.STALE}
        getattr(lake, compacted).compact(apply=True)
        for table in (lake.daily, lake.weekly, lake.monthly):
            for _ in range(2):
                gc_of_all(table)
            table.write_index()
        assert (lake.states(lake.weekly), lake.states(lake.monthly)) == before


class TestNarrowed:
    """A run of several days, of which only some are asked for."""

    @pytest.fixture
    def backfill(self, bare: Lake) -> Lake:
        bare.raw(b"1")
        self.load(bare, clear=0)
        bare.raw(b"2")
        return bare

    def load(self, lake: Lake, clear: int, *days: int, **more: Any) -> str:
        owner = Owner("backfill", "january", "load", try_number=clear + 1, series=f"x {clear}")
        raw = [f"s3://{lake.bucket.name}/raw/x.csv"]
        policy = {"owner": owner, "idempotency_key": "run", "on_repeat": "replace_own", **more}
        return lake.load(*(days or range(31)), x=clear, inputs=raw, **policy)

    def again(self, lake: Lake, clear: int, *days: int) -> None:
        """As RecomputeOperator does."""
        targets = (f"{lake.daily.root.url}/day={day}" for day in days)
        (layer,) = lake.plan(*targets).layers
        versions = {name: version for step in layer for name, version in step.versions.items()}
        assert (sorted(versions), [it.besides for it in layer if it.besides]) == (
            [f"day={day}" for day in days],
            [],
        )
        last = lake.daily.job_of_key("run")
        assert last is not None
        left = lake.daily.run(read_narrowing(lake.daily.root, "run"))
        planner = Owner("recompute", "r", "again")
        said = Narrowing(new_write_id(), "run", last, versions, 60, planner)
        lake.daily.run(leave_narrowing(lake.daily.root, said, left))
        self.load(lake, clear)

    def values(self, lake: Lake) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in lake.daily.to_arrow().to_pylist():
            found.setdefault(row["x"], []).append(row["day"])
        return {x: sorted(days) for x, days in found.items()}

    def test_one_day_of_a_backfill(self, backfill: Lake) -> None:
        url = backfill.daily.root.url
        self.again(backfill, 1, 5)
        assert self.values(backfill) == {0: [*range(5), *range(6, 31)], 1: [5]}
        assert backfill.plan(f"{url}/day=5").layers == ()
        states = backfill.states(backfill.daily)
        assert [day for day, state in states.items() if state is State.FRESH] == ["day=5"]
        # Of the run's days all others are of its first job, and are made again without that one.
        ((step,),) = backfill.plan(url).layers
        assert (len(step.partitions), "day=5" in step.partitions) == (30, False)
        assert step.narrowed
        self.again(backfill, 2, 7)
        backfill.raw(b"3")
        self.again(backfill, 3, 5, 7, 9)
        assert self.values(backfill)[3] == [5, 7, 9]
        self.load(backfill, 4)
        assert self.values(backfill) == {4: [*range(31)]}
        assert backfill.plan(url).layers == ()

    def test_the_same_after_gc_and_compaction(self, backfill: Lake) -> None:
        self.again(backfill, 1, 5)
        backfill.daily.compact(apply=True)
        gc_of_all(backfill.daily)
        backfill.raw(b"3")
        self.again(backfill, 2, 5, 6)
        assert self.values(backfill)[2] == [5, 6]

    def test_all_are_run_whole_where_all_are_asked_for(self, backfill: Lake) -> None:
        ((step,),) = backfill.plan(backfill.daily.root.url).layers
        assert (len(step.partitions), step.narrowed, len(step.versions)) == (31, False, 31)

    def test_of_what_is_fresh_only_what_is_lost_is_made_again(self, backfill: Lake) -> None:
        self.load(backfill, 1)
        backfill.lose(backfill.daily, "day=5")
        ((step,),) = backfill.plan(backfill.daily.root.url).layers
        assert (step.partitions, step.narrowed, step.versions) == (("day=5",), True, {"day=5": 2})

    def test_what_others_have_mended_is_theirs(self, backfill: Lake) -> None:
        """It was refused: a clear of the whole run would have taken it away."""
        url = backfill.daily.root.url
        backfill.load(6, x=66)
        found = look_up([f"{url}/day=5"])
        assert "day=6" in plan(found, narrow=False).refused[0].why
        self.again(backfill, 1, 5)
        assert self.values(backfill)[66] == [6]

    def test_whole_run_is_refused_for_what_others_hold_of_its_first_job(
        self, backfill: Lake
    ) -> None:
        """The run's last job had made one day alone, and nothing told of the others."""
        url = backfill.daily.root.url
        self.again(backfill, 1, 5)
        mended = backfill.load(6, x=66)
        backfill.raw(b"3")
        found = plan(look_up([f"{url}/day=5"]), narrow=False)
        (refused,) = found.refused
        assert f"day=6, which {mended} holds since" in refused.why

    def test_whole_run_is_bound_to_what_it_holds_by_another_of_its_jobs(
        self, backfill: Lake
    ) -> None:
        self.again(backfill, 1, 5)
        backfill.raw(b"3")
        found = look_up([f"{backfill.daily.root.url}/day=5"])
        ((step,),) = plan(found, narrow=False).layers
        assert (len(step.versions), len(step.besides), step.narrowed) == (31, 30, False)

    def test_replace_of_the_whole_table_leaves_what_the_plan_has_not_seen(self, bare: Lake) -> None:
        bare.raw(b"1")
        self.load(bare, 0, 1, 2, replace_table=True)
        bare.load(6, x=66)
        bare.raw(b"2")
        ((step,),) = bare.plan(bare.daily.root.url).layers
        last = bare.daily.job_of_key("run")
        assert (last, step.narrowed) == (step.job, False)
        bare.load(7, x=77)
        planner = Owner("recompute", "r", "again")
        said = Narrowing(new_write_id(), "run", last, step.versions, 60, planner, whole=True)
        bare.daily.run(leave_narrowing(bare.daily.root, said, None))
        self.load(bare, 1, 1, 2, replace_table=True)
        assert self.values(bare) == {1: [1, 2], 66: [6], 77: [7]}

    def test_rows_that_others_have_added(self, backfill: Lake) -> None:
        """A run of it replaces the partition, and would take the other's rows away."""
        added = backfill.load(6, x=66, mode="append")
        found = backfill.plan(f"{backfill.daily.root.url}/day=6")
        assert found.layers == ()
        assert f"day=6, to which {added} has added rows since" in found.refused[0].why
        self.again(backfill, 1, 5)
        assert self.values(backfill)[66] == [6]

    @pytest.mark.parametrize(
        "policy",
        [
            {"mode": "append"},
            {"owner": Owner(application="by hand")},
            {"idempotency_key": None, "on_repeat": "skip"},
        ],
    )
    def test_a_job_that_goes_by_no_plan_is_run_whole(
        self, bare: Lake, policy: dict[str, Any]
    ) -> None:
        bare.raw(b"1")
        self.load(bare, 0, **policy)
        bare.raw(b"2")
        ((step,),) = bare.plan(f"{bare.daily.root.url}/day=5").layers
        assert (len(step.besides), step.narrowed, step.versions) == (30, False, {})


class TestLeftEmpty:
    """A run of two days, of which one had no rows."""

    @pytest.fixture
    def half(self, bare: Lake) -> Lake:
        bare.raw(b"1")
        self.load(bare, clear=0)
        bare.raw(b"2")
        return bare

    def load(self, lake: Lake, clear: int, x: int = 1, **more: Any) -> str:
        owner = Owner("backfill", "january", "load", try_number=clear + 1, series=f"x {clear}")
        raw = [f"s3://{lake.bucket.name}/raw/x.csv"]
        both = ("day=1", "day=2")
        policy = {"owner": owner, "idempotency_key": "run", "on_repeat": "replace_own", **more}
        return lake.load(1, x=x, inputs=raw, replace_partitions=both, **policy)

    def again(self, lake: Lake, between: Callable[[], Any]) -> None:
        """As RecomputeOperator does.

        :param between: done between the plan and the clear.
        """
        ((step,),) = lake.plan(f"{lake.daily.root.url}/day=1").layers
        between()
        last = lake.daily.job_of_key("run")
        assert last is not None
        planner, whole = Owner("recompute", "r", "again"), not step.narrowed
        said = Narrowing(new_write_id(), "run", last, step.versions, 60, planner, whole)
        lake.daily.run(leave_narrowing(lake.daily.root, said, None))
        self.load(lake, clear=1, x=2)

    def values(self, lake: Lake) -> list[tuple[int, int]]:
        rows = lake.daily.scan().to_arrow().to_pylist()
        return sorted((row["day"], row["x"]) for row in rows)

    def test_rows_that_another_has_loaded_there_since_stay(self, half: Lake) -> None:
        half.load(2, x=9)
        self.again(half, lambda: None)
        assert self.values(half) == [(1, 2), (2, 9)]

    def test_rows_that_another_loads_there_after_the_plan_are_a_conflict(self, half: Lake) -> None:
        with pytest.raises(CommitConflictError):
            self.again(half, lambda: half.load(2, x=9))
        assert self.values(half) == [(1, 1), (2, 9)]

    def test_run_is_made_whole_while_the_day_is_empty(self, half: Lake) -> None:
        ((step,),) = half.plan(half.daily.root.url).layers
        assert (step.narrowed, sorted(step.versions)) == (False, ["day=1", "day=2"])
        self.again(half, lambda: None)
        assert self.values(half) == [(1, 2)]

    def test_job_that_goes_by_no_plan_is_refused_once_another_has_loaded_there(
        self, bare: Lake
    ) -> None:
        bare.raw(b"1")
        self.load(bare, clear=0, owner=Owner(application="by hand"))
        bare.raw(b"2")
        assert bare.plan(bare.daily.root.url).refused == ()
        other = bare.load(2, x=9)
        (refused,) = bare.plan(f"{bare.daily.root.url}/day=1").refused
        assert f"day=2, which {other} holds since" in refused.why

    def test_job_that_has_emptied_what_it_read_is_self_made(self, bare: Lake) -> None:
        bare.load(2, x=9)
        state = bare.daily.snapshot(["day=2"])
        both = ("day=1", "day=2")
        bare.load(1, x=9, inputs=[state], replace_partitions=both)
        assert bare.states(bare.daily) == {"day=1": State.SELF_MADE}


class TestBadInput:
    def test_a_job_that_read_what_it_wrote(self, bare: Lake) -> None:
        bare.load(1)
        bare.load(1, x=2, inputs=[bare.daily.snapshot()])
        assert bare.states(bare.daily) == {"day=1": State.SELF_MADE}
        bare.lose(bare.daily, "day=1")
        (refused,) = bare.plan(bare.daily.root.url).refused
        assert "wrote itself" in refused.why

    def test_a_day_made_from_the_day_before_is_no_circle(self, bare: Lake) -> None:
        bare.load(1)
        bare.load(2, inputs=[bare.daily.snapshot(["day=1"])])
        bare.load(3, inputs=[bare.daily.snapshot(["day=2"])])
        bare.load(1, x=2)
        days = {"day=1": State.UNKNOWN, "day=2": State.STALE, "day=3": State.BEHIND}
        assert bare.states(bare.daily) == days
        assert bare.layers(bare.daily.root.url) == [["daily/day=2"], ["daily/day=3"]]

    def test_a_table_that_is_gone(self, lake: Lake) -> None:
        lake.bucket.delete("daily/")
        assert set(lake.states(lake.weekly).values()) == {State.UNKNOWN}
        with pytest.raises(TableNotFoundError):
            look_up([lake.daily.root.url])

    def test_a_filter_on_a_column_that_went(self, bare: Lake) -> None:
        bare.load(1)
        scan = bare.daily.scan(filter=(pc.field("day") >= 1) & (pc.field("x") > 0))
        bare.write(bare.weekly, "week", {"x": [1], "week": [0]}, inputs=[scan])
        rows = pa.table({"y": [1], "day": [1]})
        more: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite", "inputs": ()}
        with bare.daily.job(rows.schema, replace_table=True, **more) as job:
            job.write(rows)
        (found,) = look_up([bare.weekly.root.url]).partitions()
        assert any("a filter on x, which it has no more" in text for text in found.why)

    @pytest.mark.timeout(60)
    def test_filters_by_the_hundred_over_partitions_by_the_thousand(self) -> None:
        """Each is asked of all partitions at once: a partition at a time would take half an
        hour."""
        root, schema = TableRoot.parse("s3://lake/daily"), pa.schema([("day", pa.int64())])
        files = tuple(DataFile(f"{n}", f"day={n}", 1, 1, "", "job") for n in range(20_000))
        table = TableNow(root.url, Snapshot(root, schema, ("day",), files, {}))
        for week in range(500):
            days = RowFilter([[("day", ">=", 7 * week), ("day", "<", 7 * week + 7)]], schema)
            found = table.selected(TableRead(root.url, filters=(days.encode(["day"]) or "",)))
            assert found == {f"day={n}" for n in range(7 * week, 7 * week + 7)}

    @pytest.mark.parametrize("kind", [pa.string(), pa.float64()], ids=str)
    def test_filter_that_does_not_hold_for_null_cannot_be_asked_of_a_partition_of_null(
        self, kind: pa.DataType
    ) -> None:
        root, schema = TableRoot.parse("s3://lake/daily"), pa.schema([("of", kind)])

        def selected(*names: str) -> frozenset[str]:
            files = tuple(DataFile(name, name, 1, 1, "", "job") for name in names)
            table = TableNow(root.url, Snapshot(root, schema, ("of",), files, {}))
            others = RowFilter([[("of", "not in", [pa.scalar("1.0").cast(kind).as_py()])]], schema)
            return table.selected(TableRead(root.url, filters=(others.encode(["of"]) or "",)))

        assert selected("of=1.0", "of=2.0") == {"of=2.0"}
        none = "of=__HIVE_DEFAULT_PARTITION__"
        for name in (none, "of=NaN") if pa.types.is_floating(kind) else (none,):
            with pytest.raises(CannotTellError, match="partitions have null or NaN"):
                selected("of=1.0", "of=2.0", name)

    def test_no_such_partition(self, lake: Lake) -> None:
        with pytest.raises(InvalidInputError, match="no rows in day=99"):
            look_up([f"{lake.daily.root.url}/day=99"])

    def test_partition_in_another_spelling_is_the_stored_one(self, lake: Lake) -> None:
        url = lake.daily.root.url
        assert look_up([f"{url}/day=07"]).targets == {(url, "day=7")}
        assert look_up([f"{url}/day=099"], may_be_empty=True).targets == frozenset()


class TestPlan:
    def test_a_lost_file_and_what_it_was_made_from(self, lake: Lake) -> None:
        lake.lose(lake.weekly, "week=1")
        assert lake.states(lake.weekly, lost=True)["week=1"] is State.LOST
        # What is made from it is there, and right.
        assert lake.layers() == []
        assert lake.layers(f"{lake.weekly.root.url}/week=1") == [["weekly/week=1"]]
        assert lake.layers(f"{lake.weekly.root.url}/week=0") == []

    def test_a_lost_file_of_which_nobody_knows_what_it_was_made_from(self, bare: Lake) -> None:
        bare.load(1, 2, inputs=[])
        assert set(bare.states(bare.daily, lost=True).values()) == {State.UNKNOWN}
        bare.lose(bare.daily, "day=2")
        states = {"day=1": State.UNKNOWN, "day=2": State.LOST}
        assert bare.states(bare.daily, lost=True) == states

    def test_a_lost_source_without_lineage_is_refused_by_name(self, lake: Lake) -> None:
        day = lake.lose(lake.daily, "day=8")
        lake.load(9, x=3)
        found = lake.plan()
        (refused,) = found.refused
        assert (refused.table, refused.job) == (lake.daily.root.url, day.job)
        assert [it.table for it in found.waiting] == [lake.monthly.root.url, lake.weekly.root.url]

    def test_a_run_whose_other_partition_another_has_mended_is_refused(self, bare: Lake) -> None:
        both = bare.load(1, 2, inputs=bare.raw(b"1"))
        mended = bare.load(2, x=9)
        bare.raw(b"2")
        found = bare.plan(bare.daily.root.url)
        (refused,) = found.refused
        assert refused.job == both
        assert f"day=2, which {mended} holds since" in refused.why

    def test_a_run_that_added_is_run_again_beside_others(self, bare: Lake) -> None:
        bare.load(1)
        job = bare.load(1, x=9, mode="append", inputs=bare.raw(b"1"))
        bare.raw(b"2")
        ((step,),) = bare.plan(bare.daily.root.url).layers
        assert step.job == job

    def test_a_backfill_of_many_days_says_what_it_writes_besides(self, bare: Lake) -> None:
        bare.load(*range(31), inputs=bare.raw(b"1"))
        bare.daily.compact(apply=True)
        bare.raw(b"2")
        ((step,),) = bare.plan(f"{bare.daily.root.url}/day=4").layers
        assert (step.partitions, len(step.besides)) == (("day=4",), 30)

    def test_a_compacted_partition_of_one_run_is_run_by_that(self, bare: Lake) -> None:
        bare.load(1)
        rows = {"x": [1, 2], "week": [0, 0]}
        files = FileOptions(rows_per_file=1, content=Content.ROWS)
        inputs = [bare.daily.snapshot()]
        job = bare.write(bare.weekly, "week", rows, inputs=inputs, files=files)
        (done,) = bare.weekly.compact(apply=True)
        assert done.job != job
        bare.load(1, x=2)
        ((step,),) = bare.plan(bare.weekly.root.url).layers
        assert (step.job, step.run.owner.dag_id) == (job, "flights")
        assert step.run.seconds is not None

    def test_what_a_merge_changed_is_stale_as_its_rows_were_and_not_run_again(
        self, lake: Lake
    ) -> None:
        forget_reads()
        done = lake.weekly.merge(pa.table({"x": [5], "week": [0]}), on=["x"])
        assert done.committed is not None
        assert lake.states(lake.weekly) == {"week=0": State.UNKNOWN, "week=1": State.FRESH}
        lake.load(1, x=9)
        assert lake.states(lake.weekly) == {"week=0": State.STALE, "week=1": State.FRESH}
        found = lake.plan(lake.weekly.root.url)
        assert not found.layers
        (refused,) = found.refused
        assert refused.job == done.committed.job
        assert "written again as one" in refused.why

    def test_requests(self, lake: Lake) -> None:
        """A table's snapshot, and a request for each job that wrote what is looked at."""
        lake.daily.write_index()
        counter = lake.bucket.counter
        counter.reset()
        look_up([lake.weekly.root.url])
        weekly, daily = 10, 10
        assert counter.total() <= weekly + daily + 2 + 14


class TestCommands:
    def run(self, *words: str) -> tuple[int, str]:
        found = invoke("lineage", *words)
        return found.exit_code, found.output

    def test_stale_and_plan(self, lake: Lake) -> None:
        url = lake.monthly.root.url
        assert self.run("stale", url)[0] == 0
        lake.load(3, x=5)
        code, output = self.run("stale", lake.weekly.root.url)
        assert code == 1
        assert "week=0" in output
        assert "week=1" not in output
        code, output = self.run("plan", url)
        assert code == 1
        assert "2 jobs in 2 layers" in output
        assert "flights r1 week" in output
        layers = as_json("lineage", "plan", url, code=1)["layers"]
        assert [[it["table"] for it in layer] for layer in layers] == [
            [lake.weekly.root.url],
            [url],
        ]

    def test_show_and_charts(self, lake: Lake) -> None:
        (found,) = as_json("lineage", "show", f"{lake.weekly.root.url}/week=1")
        assert (found["state"], len(found["sources"])) == ("fresh", 7)
        assert "day=9" in self.run("show", lake.weekly.root.url, "--mermaid")[1]
        lake.load(3, x=5)
        code, chart = self.run("plan", lake.monthly.root.url, "--mermaid")
        assert (code, chart.startswith("flowchart LR\n")) == (1, True)
        assert "n0 --> n1" in chart
        for command in ("show", "plan"):
            code, said = self.run(command, lake.monthly.root.url, "--mermaid", "--json")
            assert (code, "Leave one out" in said) == (2, True)

    def test_chart_of_a_plan_says_what_is_refused(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = Refusal("s3://lake/t", "zr1-job", "it cannot be run")
        monkeypatch.setattr(commands, "plan", lambda *_, **__: Plan((), (refused,), (), 0.0, ()))
        code, said = self.run("plan", lake.monthly.root.url, "--mermaid")
        assert (code, "Refused: zr1-job of s3://lake/t: it cannot be run." in said) == (1, True)

    def test_chart_does_not_hand_control_characters_to_the_terminal(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        commands._chart([("red\x1b[31m\nline", 'said "b"')])
        said = capsys.readouterr().out
        assert "\x1b" not in said
        assert len(said.splitlines()) == 4

    def test_a_plan_that_is_pending(self, lake: Lake) -> None:
        root, job = lake.weekly.root, "zr1-01ARZ3NDEKTSV4RRFFQ69G5FAV"
        planner = Owner("recompute", "r", "again")
        said = Narrowing(new_write_id(), "run", job, {"week=1": 1}, 60, planner)
        lake.weekly.run(leave_narrowing(root, said, None))
        _, output = self.run("show", root.url)
        assert "A plan of recompute r again lets the run run of" in output
        assert "make only week=1 again" in output

    def test_lost(self, lake: Lake) -> None:
        url = lake.weekly.root.url
        assert self.run("lost", url)[0] == 0
        file = lake.lose(lake.weekly, "week=1")
        code, output = self.run("lost", url)
        assert code == 1
        assert file.key in output.replace("\n", "")

    def test_a_table_that_is_not_there(self, s3_bucket: Bucket) -> None:
        code, output = self.run("stale", f"s3://{s3_bucket.name}/none")
        assert code == 2
        assert "TableNotFoundError" in output
