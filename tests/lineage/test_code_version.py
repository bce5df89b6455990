"""Rows that a former version of their program's code made are stale, where one says the present."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket
from typer.testing import CliRunner

from zero_rename import Table
from zero_rename.cli import app
from zero_rename.committer import FileOptions, InvalidInputError, Owner, TableNotFoundError
from zero_rename.committer.format.job_spec import JobSpec
from zero_rename.committer.format.records.inputs import Inputs
from zero_rename.lineage import LineageState as State
from zero_rename.lineage import PartitionLineage, look_up, plan

pytestmark = pytest.mark.memory_s3

FOREVER = -1.0


class Lake:
    """Days, and weeks of them."""

    def __init__(self, bucket: Bucket) -> None:
        self.days, self.weeks = (Table(f"s3://{bucket.name}/{it}") for it in ("days", "weeks"))

    def write(self, table: Table, values: Mapping[int, int], **more: Any) -> str:
        parts = [part for part in values for _ in range(2)]
        rows = pa.table({"x": [values[part] for part in parts], "part": parts})
        owner = Owner(dag_id="flights", run_id="r1", task_id=table.root.prefix)
        policy = {"partition_by": ["part"], "mode": "overwrite", "owner": owner, **more}
        with table.job(rows.schema, **policy) as job:
            job.write(rows)
        assert job.job is not None
        return job.job

    def day(self, day: int, code_version: str | None, **more: Any) -> str:
        return self.write(self.days, {day: 1}, inputs=(), code_version=code_version, **more)

    def week(self, *weeks: int, code_version: str | None = None) -> str:
        read = [self.days.scan()]
        return self.write(
            self.weeks, dict.fromkeys(weeks, 1), inputs=read, code_version=code_version
        )

    def told(self, table: Table, *now: str) -> dict[str, PartitionLineage]:
        """:param now: the present version of the days' program."""
        versions = dict.fromkeys([self.days.root.url] if now else [], *now)
        found = look_up([table.root.url], code_versions=versions).partitions()
        return {it.partition: it for it in found}

    def states(self, table: Table, *now: str) -> dict[str, State]:
        return {name: it.state for name, it in self.told(table, *now).items()}


@pytest.fixture
def lake(s3_bucket: Bucket) -> Lake:
    return Lake(s3_bucket)


class TestStale:
    def test_by_the_present_version_alone(self, lake: Lake) -> None:
        lake.day(1, "3")
        lake.day(2, None)
        lake.day(3, "4")
        assert lake.states(lake.days) == dict.fromkeys(
            ["part=1", "part=2", "part=3"], State.UNKNOWN
        )
        found = lake.told(lake.days, "4")
        assert {name: it.state for name, it in found.items()} == {
            "part=1": State.STALE,
            "part=2": State.STALE,
            "part=3": State.UNKNOWN,
        }
        assert found["part=1"].why[0] == "made by code version 3, now 4"
        assert found["part=2"].why[0] == "made by no code version, now 4"
        assert [it.code_versions for it in found.values()] == [("3",), (), ("4",)]

    def test_what_comes_of_it_is_behind_and_the_plan_has_both(self, lake: Lake) -> None:
        first = lake.day(1, "3")
        week = lake.week(1)
        assert lake.states(lake.weeks) == {"part=1": State.FRESH}
        assert lake.states(lake.weeks, "4") == {"part=1": State.BEHIND}
        url = lake.weeks.root.url
        found = plan(look_up([url], code_versions={f"{lake.days.root.url}/": "4"}))
        assert [[step.job for step in layer] for layer in found.layers] == [[first], [week]]
        assert found.layers[0][0].why == ("made by code version 3, now 4",)
        lake.day(1, "3")  # Its program is of the former version still.
        assert lake.states(lake.days, "4") == {"part=1": State.STALE}
        lake.day(1, "4")
        assert lake.states(lake.days, "4") == {"part=1": State.UNKNOWN}

    def test_beside_an_input_that_moved(self, lake: Lake, s3_bucket: Bucket) -> None:
        raw = {"Bucket": s3_bucket.name, "Key": "raw.csv"}
        s3_bucket.client.put_object(**raw, Body=b"1")
        lake.write(lake.days, {1: 1}, inputs=[f"s3://{s3_bucket.name}/raw.csv"], code_version="3")
        s3_bucket.client.put_object(**raw, Body=b"2")
        assert len(lake.told(lake.days)["part=1"].why) == 1
        assert lake.told(lake.days, "4")["part=1"].why[1] == "made by code version 3, now 4"

    def test_files_of_no_job(self, lake: Lake, s3_bucket: Bucket) -> None:
        body = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": [1]}), body)
        key = f"{lake.days.root.prefix}/part=1/foreign.parquet"
        s3_bucket.client.put_object(
            Bucket=s3_bucket.name, Key=key, Body=body.getvalue().to_pybytes()
        )
        lake.day(2, "4", mode="append")
        found = lake.told(lake.days, "4")
        assert found["part=1"].why[0] == "made by no code version, now 4"


class TestAsLongAsTheRows:
    @pytest.mark.parametrize("compacted", [False, True])
    def test_after_gc_and_compaction(self, lake: Lake, compacted: bool) -> None:
        files = FileOptions(rows_per_file=1)
        for day, version in ((1, "3"), (2, "4"), (3, None)):
            lake.day(day, version, files=files)
        assert len(lake.days.compact(apply=compacted)) == 3
        for _ in range(2):
            lake.days.gc(older_than=FOREVER, apply=True)
        found = lake.told(lake.days, "4")
        assert {name for name, it in found.items() if it.state is State.STALE} == {
            "part=1",
            "part=3",
        }
        assert found["part=1"].why[0] == "made by code version 3, now 4"

    def test_rows_of_two_versions_in_one_file(self, lake: Lake) -> None:
        lake.day(1, "3")
        lake.day(1, "4", mode="append")
        assert len(lake.days.compact(apply=True)) == 1
        (found,) = lake.told(lake.days, "4").values()
        assert (found.state, found.code_versions) == (State.STALE, ("3", "4"))

    @pytest.mark.parametrize(
        ("before", "given", "after"),
        [("4", "4", ("4",)), ("3", "4", ("3", "4")), (None, "4", ("", "4")), (None, None, ())],
    )
    def test_a_merge(
        self, lake: Lake, before: str | None, given: str | None, after: tuple[str, ...]
    ) -> None:
        lake.day(1, before)
        lake.days.merge(pa.table({"x": [2], "part": [1]}), on=["x"], code_version=given)
        (found,) = lake.told(lake.days).values()
        assert found.code_versions == after

    def test_a_deletion_leaves_the_rest_theirs(self, lake: Lake) -> None:
        rows = pa.table({"x": [1, 2], "part": [1, 1]})
        with lake.days.job(rows.schema, partition_by=["part"], code_version="3") as job:
            job.write(rows)
        lake.days.delete([("x", "=", 1)])
        (found,) = lake.told(lake.days).values()
        assert found.code_versions == ("3",)

    def test_of_many_versions_enough_are_kept(self) -> None:
        found = Inputs.all_of(Inputs(code_versions=(str(number),)) for number in range(500))
        assert 1 < len(found.code_versions) < 100


class TestBadInput:
    @pytest.mark.parametrize("version", ["", " 4", "a\nb", "x" * 201, 4, "\x00"])
    def test_what_is_no_version(self, lake: Lake, version: Any) -> None:
        with pytest.raises(InvalidInputError, match="code_version"):
            JobSpec(pa.schema([("x", pa.int64())]), code_version=version)
        lake.day(1, "3")
        with pytest.raises(InvalidInputError, match="code_version"):
            lake.states(lake.days, version)

    def test_a_table_that_is_not_there(self, lake: Lake) -> None:
        lake.day(1, "3")
        with pytest.raises(TableNotFoundError):
            look_up([lake.days.root.url], code_versions={lake.weeks.root.url: "4"})


class TestCommand:
    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["lineage", *words])
        return done.exit_code, done.output

    def test_stale_plan_and_show(self, lake: Lake) -> None:
        lake.day(1, "3")
        lake.week(1)
        days, weeks = lake.days.root.url, lake.weeks.root.url
        assert self.run("stale", days)[0] == 0
        code, said = self.run("stale", f"{days}/part=1", "--code-version", "4", "--json")
        assert (code, json.loads(said)[0]["why"][0]) == (1, "made by code version 3, now 4")
        code, said = self.run("plan", weeks, "--code-version", f"{days}=4", "--json")
        assert (code, len(json.loads(said)["layers"])) == (1, 2)
        assert self.run("plan", weeks, "--code-version", f"{days}=3")[0] == 0
        assert json.loads(self.run("show", days, "--json")[1])[0]["code_versions"] == ["3"]

    def test_of_which_table(self, lake: Lake) -> None:
        lake.day(1, "3")
        lake.week(1)
        targets = [lake.days.root.url, lake.weeks.root.url]
        code, said = self.run("stale", *targets, "--code-version", "4")
        assert (code, "names no table" in said) == (2, True)
