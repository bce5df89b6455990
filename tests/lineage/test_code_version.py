"""Rows that a former version of their program's code made are stale, where one says the present."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.command_line import as_json, invoke
from support.old_records import gc_of_all
from zero_rename import Table
from zero_rename.committer import FileOptions, InvalidInputError, TableNotFoundError
from zero_rename.committer.format.job_spec import JobSpec
from zero_rename.committer.format.records.inputs import Inputs
from zero_rename.lineage import LineageState as State
from zero_rename.lineage import PartitionLineage, look_up, plan

from .test_lineage import Lake

pytestmark = pytest.mark.memory_s3


def told(lake: Lake, table: Table, *now: str) -> dict[str, PartitionLineage]:
    """:param now: the present version of the days' program."""
    versions = dict.fromkeys([lake.daily.root.url] if now else [], *now)
    found = look_up([table.root.url], code_versions=versions).partitions()
    return {it.partition: it for it in found}


def states(lake: Lake, table: Table, *now: str) -> dict[str, State]:
    return {name: it.state for name, it in told(lake, table, *now).items()}


@pytest.fixture
def lake(s3_bucket: Bucket) -> Lake:
    return Lake(s3_bucket)


class TestStale:
    def test_by_the_present_version_alone(self, lake: Lake) -> None:
        lake.load(1, code_version="3")
        lake.load(2, code_version=None)
        lake.load(3, code_version="4")
        assert states(lake, lake.daily) == dict.fromkeys(["day=1", "day=2", "day=3"], State.UNKNOWN)
        found = told(lake, lake.daily, "4")
        assert {name: it.state for name, it in found.items()} == {
            "day=1": State.STALE,
            "day=2": State.STALE,
            "day=3": State.UNKNOWN,
        }
        assert found["day=1"].why[0] == "made by code version 3, now 4"
        assert found["day=2"].why[0] == "made by no code version, now 4"
        assert [it.code_versions for it in found.values()] == [("3",), (), ("4",)]

    def test_what_comes_of_it_is_behind_and_the_plan_has_both(self, lake: Lake) -> None:
        first = lake.load(1, code_version="3")
        week = lake.week(0)
        assert states(lake, lake.weekly) == {"week=0": State.FRESH}
        assert states(lake, lake.weekly, "4") == {"week=0": State.BEHIND}
        url = lake.weekly.root.url
        found = plan(look_up([url], code_versions={f"{lake.daily.root.url}/": "4"}))
        assert [[step.job for step in layer] for layer in found.layers] == [[first], [week]]
        assert found.layers[0][0].why == ("made by code version 3, now 4",)
        lake.load(1, code_version="3")  # Its program is of the former version still.
        assert states(lake, lake.daily, "4") == {"day=1": State.STALE}
        lake.load(1, code_version="4")
        assert states(lake, lake.daily, "4") == {"day=1": State.UNKNOWN}

    def test_beside_an_input_that_moved(self, lake: Lake) -> None:
        lake.load(1, inputs=lake.raw(b"1"), code_version="3")
        lake.raw(b"2")
        assert len(told(lake, lake.daily)["day=1"].why) == 1
        assert told(lake, lake.daily, "4")["day=1"].why[1] == "made by code version 3, now 4"

    def test_files_of_no_job(self, lake: Lake) -> None:
        body = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": [1]}), body)
        lake.bucket.put("daily/day=1/foreign.parquet", body.getvalue().to_pybytes())
        lake.load(2, code_version="4", mode="append")
        found = told(lake, lake.daily, "4")
        assert found["day=1"].why[0] == "made by no code version, now 4"


class TestAsLongAsTheRows:
    @pytest.mark.parametrize("compacted", [False, True])
    def test_after_gc_and_compaction(self, lake: Lake, compacted: bool) -> None:
        files = FileOptions(rows_per_file=1)
        for day, version in ((1, "3"), (2, "4"), (3, None)):
            lake.load(day, day, code_version=version, files=files)
        assert len(lake.daily.compact(apply=compacted)) == 3
        for _ in range(2):
            gc_of_all(lake.daily)
        found = told(lake, lake.daily, "4")
        assert {name for name, it in found.items() if it.state is State.STALE} == {"day=1", "day=3"}
        assert found["day=1"].why[0] == "made by code version 3, now 4"

    def test_rows_of_two_versions_in_one_file(self, lake: Lake) -> None:
        lake.load(1, code_version="3")
        lake.load(1, code_version="4", mode="append")
        assert len(lake.daily.compact(apply=True)) == 1
        (found,) = told(lake, lake.daily, "4").values()
        assert (found.state, found.code_versions) == (State.STALE, ("3", "4"))

    @pytest.mark.parametrize(
        ("before", "given", "after"),
        [("4", "4", ("4",)), ("3", "4", ("3", "4")), (None, "4", ("", "4")), (None, None, ())],
    )
    def test_a_merge(
        self, lake: Lake, before: str | None, given: str | None, after: tuple[str, ...]
    ) -> None:
        lake.load(1, code_version=before)
        lake.daily.merge(pa.table({"x": [2], "day": [1]}), on=["x"], code_version=given)
        (found,) = told(lake, lake.daily).values()
        assert found.code_versions == after

    def test_a_deletion_leaves_the_rest_theirs(self, lake: Lake) -> None:
        rows = pa.table({"x": [1, 2], "day": [1, 1]})
        with lake.daily.job(rows.schema, partition_by=["day"], code_version="3") as job:
            job.write(rows)
        lake.daily.delete([("x", "=", 1)])
        (found,) = told(lake, lake.daily).values()
        assert found.code_versions == ("3",)

    def test_of_many_versions_enough_are_kept(self) -> None:
        found = Inputs.all_of(Inputs(code_versions=(str(number),)) for number in range(500))
        assert 1 < len(found.code_versions) < 100


class TestBadInput:
    @pytest.mark.parametrize("version", ["", " 4", "a\nb", "x" * 201, 4, "\x00"])
    def test_what_is_no_version(self, lake: Lake, version: Any) -> None:
        with pytest.raises(InvalidInputError, match="code_version"):
            JobSpec(pa.schema([("x", pa.int64())]), code_version=version)
        lake.load(1, code_version="3")
        with pytest.raises(InvalidInputError, match="code_version"):
            states(lake, lake.daily, version)

    def test_a_table_that_is_not_there(self, lake: Lake) -> None:
        lake.load(1, code_version="3")
        with pytest.raises(TableNotFoundError):
            look_up([lake.daily.root.url], code_versions={lake.weekly.root.url: "4"})


class TestCommand:
    def test_stale_plan_and_show(self, lake: Lake) -> None:
        lake.load(1, code_version="3")
        lake.week(0)
        days, weeks = lake.daily.root.url, lake.weekly.root.url
        assert invoke("lineage", "stale", days).exit_code == 0
        (it,) = as_json("lineage", "stale", f"{days}/day=1", "--code-version", "4", code=1)
        assert it["why"][0] == "made by code version 3, now 4"
        planned = ("lineage", "plan", weeks, "--code-version")
        assert len(as_json(*planned, f"{days}=4", code=1)["layers"]) == 2
        assert invoke(*planned, f"{days}=3").exit_code == 0
        assert as_json("lineage", "show", days)[0]["code_versions"] == ["3"]

    def test_of_which_table(self, lake: Lake) -> None:
        lake.load(1, code_version="3")
        lake.week(0)
        targets = [lake.daily.root.url, lake.weekly.root.url]
        ended = invoke("lineage", "stale", *targets, "--code-version", "4")
        assert (ended.exit_code, "names no table" in ended.output) == (2, True)
