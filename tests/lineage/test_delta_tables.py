"""Lineage of Delta tables, alone and beside tables of directories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.command_line import as_json, invoke
from zero_rename.committer import CommitConflictError, Content, FileOptions, InvalidInputError
from zero_rename.committer.format.records.data_file import DataFile
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.lineage import LineageState as State
from zero_rename.lineage import look_up
from zero_rename.log.actions import Action, AddFile, CommitInfo, RemoveFile, write_actions
from zero_rename.tables import DeltaTable

from . import test_lineage
from .test_lineage import Lake

pytestmark = pytest.mark.memory_s3

#: Names of the tables that are Delta tables.
ALL = ("daily", "weekly", "monthly")


class DeltaLake(Lake):
    """Three tables, some of them Delta tables."""

    daily: Any
    weekly: Any
    monthly: Any

    def __init__(
        self, bucket: Bucket, delta: tuple[str, ...] = ALL, content: Content = Content.ROWS
    ) -> None:
        super().__init__(bucket, content)
        for name in delta:
            setattr(self, name, DeltaTable(f"s3://{bucket.name}/{name}"))

    def as_another_engine(self, table: DeltaTable, *, compacts: bool) -> None:
        """Commit an entry as another engine does, which keeps no tags: it writes the last file
        again, or adds it once more, under another name."""
        file, newest = table.state().files[-1], table.newest_entry()
        assert newest is not None
        there, path = file.key.removeprefix(f"{table.root.prefix}/"), "other.parquet"
        found = self.bucket.client.get_object(Bucket=self.bucket.name, Key=file.key)
        self.bucket.put(f"{table.root.prefix}/{path}", found["Body"].read())
        values = dict([file.partition.split("=")])
        removes = [RemoveFile(there, 1, False, values, file.size)] if compacts else []
        added = AddFile(path, values, file.size, 1, not compacts)
        word = "OPTIMIZE" if compacts else "WRITE"
        info = CommitInfo({"operation": word, "engineInfo": "other"})
        self.put_entry(table, newest.version + 1, info, *removes, added)

    def put_entry(self, table: DeltaTable, version: int, *actions: Action) -> None:
        """Write an entry of the log, whatever is there."""
        key = f"{table.root.prefix}/_delta_log/{version:020d}.json"
        self.bucket.put(key, write_actions(actions))

    def lose(self, table: Any, partition: str) -> DataFile:
        (file,) = table.state([partition]).files
        self.bucket.delete(file.key)
        return file


@pytest.fixture(autouse=True)
def _nothing_read() -> Iterator[None]:
    forget_reads()
    yield
    forget_reads()


@pytest.fixture
def bare(s3_bucket: Bucket) -> DeltaLake:
    return DeltaLake(s3_bucket)


def filled(lake: DeltaLake) -> DeltaLake:
    for day in range(14):
        lake.load(day)
    lake.week(0)
    lake.week(1)
    lake.month()
    return lake


@pytest.fixture
def lake(bare: DeltaLake) -> DeltaLake:
    return filled(bare)


class TestStale:
    @pytest.mark.parametrize("delta", [ALL, ("daily",), ("weekly",)])
    def test_a_corrected_day_goes_up_layer_by_layer_whatever_the_layouts(
        self, s3_bucket: Bucket, delta: tuple[str, ...]
    ) -> None:
        lake = filled(DeltaLake(s3_bucket, delta))
        assert lake.states(lake.weekly) == {"week=0": State.FRESH, "week=1": State.FRESH}
        lake.load(3, x=5)
        assert lake.states(lake.weekly) == {"week=0": State.STALE, "week=1": State.FRESH}
        assert lake.states(lake.monthly) == {"month=1": State.BEHIND}
        assert lake.layers() == [["weekly/week=0"], ["monthly/month=1"]]
        lake.week(0)
        assert lake.layers() == [["monthly/month=1"]]
        lake.month()
        assert lake.layers() == []

    def test_an_identical_load_is_no_correction(self, lake: DeltaLake) -> None:
        lake.load(3)
        assert lake.layers() == []

    def test_rows_that_were_removed_alone_make_it_stale(self, bare: DeltaLake) -> None:
        bare.load(1, mode="append")
        bare.load(1, x=2, mode="append")
        bare.week(0)
        assert bare.states(bare.weekly) == {"week=0": State.FRESH}
        bare.daily.delete([("x", "=", 1)])  # The newest file stays as it is.
        assert bare.states(bare.weekly) == {"week=0": State.STALE}

    @pytest.mark.parametrize("compacted", ["daily", "weekly"])
    def test_a_compaction_changes_no_state(self, lake: DeltaLake, compacted: str) -> None:
        for _ in range(2):
            lake.load(2, 9, mode="append")
        lake.week(0)
        lake.week(1, mode="append")
        lake.month()
        lake.load(3, x=5)
        before = lake.states(lake.weekly), lake.states(lake.monthly)
        assert before[0] == {"week=0": State.STALE, "week=1": State.STALE}
        assert getattr(lake, compacted).compact(apply=True)
        assert (lake.states(lake.weekly), lake.states(lake.monthly)) == before

    def test_what_a_restore_brought_back_is_made_from_what_it_was(self, bare: DeltaLake) -> None:
        bare.load(1, 7)
        first = bare.week(0)
        state = bare.daily.snapshot(["day=7"])
        bare.write(bare.weekly, "week", {"x": [5], "week": [0]}, inputs=[state])
        bare.weekly.restore(0, apply=True)
        bare.load(7, x=9)
        assert bare.states(bare.weekly) == {"week=0": State.FRESH}
        bare.load(1, x=9)
        ((step,),) = bare.plan(bare.weekly.root.url).layers
        assert step.job == first

    def test_rows_of_another_engine_are_of_nobody(self, lake: DeltaLake) -> None:
        lake.as_another_engine(lake.weekly, compacts=True)
        found = look_up([lake.weekly.root.url]).partitions()
        states = {it.partition: (it.state, it.jobs) for it in found}
        assert states["week=1"] == (State.UNKNOWN, ("",))
        assert states["week=0"][0] is State.FRESH

    def test_rows_that_another_engine_adds_to_an_input_make_it_stale(self, lake: DeltaLake) -> None:
        lake.as_another_engine(lake.daily, compacts=False)
        assert lake.states(lake.weekly) == {"week=0": State.FRESH, "week=1": State.STALE}

    def test_an_entry_that_was_cleaned_leaves_it_unknown(self, lake: DeltaLake) -> None:
        lake.weekly.checkpoint_log()
        lake.bucket.delete(f"{lake.weekly.root.prefix}/_delta_log/{0:020d}.json")
        assert lake.states(lake.weekly) == {"week=0": State.UNKNOWN, "week=1": State.FRESH}

    def test_another_code_version_is_stale_where_the_present_one_is_asked_for(
        self, bare: DeltaLake
    ) -> None:
        bare.load(1, code_version="3")
        bare.load(2, code_version="4")
        url = bare.daily.root.url
        found = look_up([url], code_versions={url: "4"}).partitions()
        assert [it.state for it in found] == [State.STALE, State.UNKNOWN]
        assert [it.code_versions for it in found] == [("3",), ("4",)]


class TestPlan:
    def test_a_lost_file_is_made_again(self, lake: DeltaLake) -> None:
        lake.lose(lake.weekly, "week=1")
        assert lake.states(lake.weekly, lost=True)["week=1"] is State.LOST
        ((step,),) = lake.plan(lake.weekly.root.url).layers
        assert (step.partitions, step.run.owner.dag_id) == (("week=1",), "flights")
        assert step.run.seconds is not None

    def test_a_compacted_partition_of_one_run_is_run_by_that(self, bare: DeltaLake) -> None:
        bare.load(1)
        files = FileOptions(rows_per_file=1, content=Content.ROWS)
        rows, inputs = {"x": [1, 2], "week": [0, 0]}, [bare.daily.snapshot()]
        job = bare.write(bare.weekly, "week", rows, inputs=inputs, files=files)
        (done,) = bare.weekly.compact(apply=True)
        assert done.job != job
        bare.load(1, x=2)
        ((step,),) = bare.plan(bare.weekly.root.url).layers
        assert step.job == job

    def test_a_compacted_partition_of_two_runs_is_refused(self, bare: DeltaLake) -> None:
        bare.load(1)
        for x in (1, 2):
            rows = {"x": [x], "week": [0]}
            bare.write(bare.weekly, "week", rows, mode="append", inputs=[bare.daily.snapshot()])
        bare.weekly.compact(apply=True)
        bare.load(1, x=2)
        (refused,) = bare.plan(bare.weekly.root.url).refused
        assert "written again as one" in refused.why

    def test_what_a_merge_changed_is_stale_and_not_run_again(self, lake: DeltaLake) -> None:
        forget_reads()
        done = lake.weekly.merge(pa.table({"x": [5], "week": [0]}), on=["x"])
        assert done.committed is not None
        assert lake.states(lake.weekly) == {"week=0": State.UNKNOWN, "week=1": State.FRESH}
        lake.load(1, x=9)
        assert lake.states(lake.weekly) == {"week=0": State.STALE, "week=1": State.FRESH}
        (refused,) = lake.plan(lake.weekly.root.url).refused
        assert refused.job == done.committed.job
        assert "written again as one" in refused.why

    def test_a_run_whose_other_partition_another_has_mended_is_refused(
        self, bare: DeltaLake
    ) -> None:
        both = bare.load(1, 2, inputs=bare.raw(b"1"))
        mended = bare.load(2, x=9)
        bare.raw(b"2")
        (refused,) = bare.plan(bare.daily.root.url).refused
        assert refused.job == both
        assert f"day=2, which {mended} holds since" in refused.why

    def test_a_job_that_read_what_it_wrote_is_self_made(self, bare: DeltaLake) -> None:
        bare.load(1)
        bare.load(1, x=2, inputs=[bare.daily.snapshot()])
        assert bare.states(bare.daily) == {"day=1": State.SELF_MADE}

    def test_an_entry_that_was_committed_again_keeps_what_it_was_made_from(
        self, lake: DeltaLake
    ) -> None:
        job = lake.month()
        version = lake.monthly.newest_entry()
        assert version is not None
        other = CommitInfo({"operation": "WRITE", "engineInfo": "other"})
        lake.put_entry(lake.monthly, version.version, other)
        (repaired,) = lake.monthly.repair(apply=True)
        assert repaired.committed == version.version + 1
        assert [it.table for it in lake.monthly.inputs_of(job).tables] == [lake.weekly.root.url]


class TestNarrowed(test_lineage.TestNarrowed):
    """A run of several days, of which only some are asked for, as in a table of directories."""

    def values(self, lake: Lake) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in lake.daily.scan().to_arrow().to_pylist():
            found.setdefault(row["x"], []).append(row["day"])
        return {x: sorted(days) for x, days in found.items()}

    def test_the_same_after_gc_and_compaction(self, backfill: Lake) -> None:
        self.again(backfill, 1, 5)
        table: Any = backfill.daily
        table.compact(apply=True)
        table.checkpoint_log()
        table.purge(apply=True)
        backfill.raw(b"3")
        self.again(backfill, 2, 5, 6)
        assert self.values(backfill)[2] == [5, 6]

    def test_of_what_is_fresh_only_what_is_lost_is_made_again(self, backfill: Lake) -> None:
        self.load(backfill, 1)  # pyrefly: ignore[bad-argument-type]
        backfill.lose(backfill.daily, "day=5")
        ((step,),) = backfill.plan(backfill.daily.root.url).layers
        assert (step.partitions, step.narrowed, step.versions) == (("day=5",), True, {"day=5": 1})

    def test_a_partition_that_another_has_loaded_since_the_plan_is_left(
        self, backfill: Lake
    ) -> None:
        plan = backfill.plan
        backfill.plan = lambda *targets: (plan(*targets), backfill.load(5, x=66))[0]  # type: ignore[method-assign]
        with pytest.raises(CommitConflictError, match="has changed day=5 since a plan"):
            self.again(backfill, 1, 5)
        assert self.values(backfill) == {0: [*range(5), *range(6, 31)], 66: [5]}

    def test_task_that_loads_another_partition_by_now_takes_none_out(self, bare: Lake) -> None:
        """As one that is mapped over a list which has changed."""
        bare.raw(b"1")
        self.load(bare, 0, 5, replace_partitions=("day=5",))  # pyrefly: ignore[bad-argument-type]
        bare.raw(b"2")
        load = self.load
        self.load = lambda lake, clear: load(lake, clear, 6, replace_partitions=("day=6",))  # type: ignore[method-assign]
        with pytest.raises(
            InvalidInputError, match="make day=5 again, and its job may write day=6"
        ):
            self.again(bare, 1, 5)
        assert self.values(bare) == {0: [5]}


class TestLeftEmpty(test_lineage.TestLeftEmpty):
    """A run of two days, of which one had no rows, as in a table of directories."""


class TestCommands:
    def test_each_command_answers_for_a_delta_table(self, lake: DeltaLake) -> None:
        url = lake.monthly.root.url
        assert invoke("lineage", "stale", url).exit_code == 0
        lake.load(3, x=5)
        assert invoke("lineage", "stale", lake.weekly.root.url).exit_code == 1
        layers = as_json("lineage", "plan", url, code=1)["layers"]
        tables = [[it["table"] for it in layer] for layer in layers]
        assert tables == [[lake.weekly.root.url], [url]]
        (found,) = as_json("lineage", "show", f"{lake.weekly.root.url}/week=1")
        assert (found["state"], len(found["sources"])) == ("fresh", 7)
        assert invoke("lineage", "lost", lake.weekly.root.url).exit_code == 0
        file = lake.lose(lake.weekly, "week=1")
        lost = invoke("lineage", "lost", lake.weekly.root.url)
        assert lost.exit_code == 1
        assert file.key in lost.output.replace("\n", "")
