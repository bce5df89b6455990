"""Runs that touched one partition: what is told of them, and choosing whose rows stay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.day_rows import load, rows, values
from zero_rename import Table
from zero_rename.committer import CommitConflictError, InvalidInputError, Owner
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.failure import Failure
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep.conflicts import Touch
from zero_rename.committer.upkeep.resolution import ResolutionPlan

pytestmark = pytest.mark.memory_s3


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    """A day with rows of an earlier run, and another day."""
    table = Table(f"s3://{s3_bucket.name}/flights")
    load(table, 0)
    load(table, 9, day=2)
    return table


def touches(table: Table, **options: Any) -> dict[str, Touch]:
    (conflict,) = table.conflicts(partition="day=1", **options).conflicts
    return {it.job: it for it in conflict.touches}


class TestReport:
    def test_two_runs_that_appended(self, table: Table) -> None:
        first, second = load(table, 1, 2), load(table, 3, owner=Owner(dag_id="twice"))
        found = touches(table)
        assert list(found)[-2:] == [first, second]
        assert (found[first].rows, found[first].visible, found[first].hidden) == (2, 1, 0)
        assert (found[second].owner.dag_id, found[second].replaced) == ("twice", False)
        assert table.conflicts(partition="day=2").conflicts == ()

    def test_one_that_was_replaced_is_gone(self, table: Table) -> None:
        first, second = load(table, 1), load(table, 2, mode="overwrite")
        found = touches(table)
        assert (found[first].visible, found[first].hidden) == (0, 0)
        assert (found[second].visible, found[second].replaced) == (1, True)
        with pytest.raises(InvalidInputError, match=r"(is|are) gone"):
            table.resolve("day=1", [first])
        assert values(table, "day=1") == [2]

    def test_runs_that_are_far_from_each_other_are_none(self, table: Table) -> None:
        load(table, 1)
        assert table.conflicts(window=-1.0).conflicts == ()

    def test_who_gave_way_and_what_nobody_knows_any_more(self, table: Table) -> None:
        """A conflict names the partition by its head; an abort says nothing but that."""
        schema = rows(1).schema
        base = table.snapshot(["day=1"])
        load(table, 2)
        job = table.job(schema, mode="overwrite", idempotency_key="run", base=base)
        with pytest.raises(CommitConflictError) as caught, job:
            job.write(rows(1))
        told = Failure.of(caught.value, table.root, "run", Owner(), new_write_id())
        table.run(Put(table.root.failure_key("run"), told.encode()))  # pyright: ignore
        forgotten = table.job(schema)
        with pytest.raises(ZeroDivisionError), forgotten:
            raise ZeroDivisionError
        report = table.conflicts()
        (conflict,) = report.conflicts
        assert [(it.job, it.error) for it in conflict.gave_way] == [
            (job.job, "CommitConflictError")
        ]
        assert report.aborted == (forgotten.job,)


class TestResolve:
    def conflict(self, table: Table) -> tuple[str, str]:
        """Two runs that both appended the same day, an earlier run's rows beside them."""
        return load(table, 1, 2), load(table, 1, 2, 3)

    def test_without_apply_nothing_changes(self, table: Table) -> None:
        self.conflict(table)
        before = table.files()
        planned = table.resolve("day=1", ["newest"])
        assert (planned.rows, planned.job) == (3, None)
        assert table.files() == before

    def test_the_newest_and_back(self, table: Table) -> None:
        old = values(table, "day=1")
        first, second = self.conflict(table)
        found = table.resolve("day=1", ["newest"], apply=True)
        assert found.kept == (second,)
        assert first in found.dropped
        assert values(table, "day=1") == [1, 2, 3]
        assert values(table, "day=2") == [9]
        assert touches(table)[first].hidden == 1
        assert found.job is not None
        table.resolve("day=1", undo=found.job, apply=True)
        assert values(table, "day=1") == sorted([*old, 1, 2, 1, 2, 3])
        assert table.open_jobs() == []

    def test_one_by_job_and_rows_of_others_stay(self, table: Table) -> None:
        """The earlier run's rows are in the window, too, unless it is outside of it."""
        first, second = self.conflict(table)
        (old,) = set(touches(table)) - {first, second}
        assert table.resolve("day=1", [old, first], apply=True).dropped == (second,)
        assert values(table, "day=1") == [0, 1, 2]

    def test_what_a_resolution_hid_can_be_kept_by_job(self, table: Table) -> None:
        first, second = self.conflict(table)
        done = table.resolve("day=1", ["newest"], apply=True)
        assert done.job is not None
        table.resolve("day=1", [first, second], apply=True)
        assert values(table, "day=1") == [1, 1, 2, 2, 3]

    def test_all_of_them_as_one_job(self, table: Table) -> None:
        self.conflict(table)
        found = table.resolve("day=1", ["all"], apply=True, discard=True)
        assert values(table, "day=1") == [0, 1, 1, 2, 2, 3]
        assert {file.job for file in table.files("day=1")} == {found.job}
        assert table.verify() == []

    def test_discarded_rows_cannot_come_back(self, table: Table) -> None:
        first, _ = self.conflict(table)
        found = table.resolve("day=1", ["newest"], apply=True, discard=True)
        assert table.verify() == []
        assert touches(table)[first].hidden == 0
        with pytest.raises(InvalidInputError, match=r"(is|are) gone"):
            table.resolve("day=1", undo=found.job)

    def test_a_partition_that_has_changed_meanwhile_is_left(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.conflict(table)
        spec = ResolutionPlan.spec

        def late(self: ResolutionPlan, *arguments: Any) -> Any:
            load(table, 7)
            return spec(self, *arguments)

        monkeypatch.setattr(ResolutionPlan, "spec", late)
        with pytest.raises(CommitConflictError):
            table.resolve("day=1", ["newest"], apply=True)
        assert values(table, "day=1") == [0, 1, 1, 2, 2, 3, 7]

    def test_only_the_last_change_is_undone(self, table: Table) -> None:
        self.conflict(table)
        found = table.resolve("day=1", ["newest"], apply=True)
        load(table, 8)
        with pytest.raises(InvalidInputError, match="is not the job that changed day=1 last"):
            table.resolve("day=1", undo=found.job)

    def test_a_folded_head(self, table: Table) -> None:
        for value in range(30):
            load(table, value)
        jobs = list(touches(table))
        table.resolve("day=1", [jobs[-1], jobs[1]], apply=True)
        assert values(table, "day=1") == [0, 29]

    @pytest.mark.parametrize("keep", [["oldest"], ["zr1-" + "0" * 26], []])
    def test_what_cannot_be_kept(self, table: Table, keep: list[str]) -> None:
        self.conflict(table)
        with pytest.raises(InvalidInputError, match="is none of those that conflict"):
            table.resolve("day=1", keep)

    def test_where_nothing_conflicts(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="No two runs touched day=2"):
            table.resolve("day=2", ["newest"])

    def test_an_unpartitioned_table(self, s3_bucket: Any) -> None:
        table = Table(f"s3://{s3_bucket.name}/plain")
        data = pa.table({"value": [1]})
        for value in (1, 2):
            with table.job(data.schema) as job:
                job.write(pa.table({"value": [value]}))
        table.resolve("_unpartitioned", ["newest"], apply=True)
        assert table.to_arrow()["value"].to_pylist() == [2]
