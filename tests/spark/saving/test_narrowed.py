"""A run of Spark that a plan lets make only some of its partitions again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zero_rename import Table
from zero_rename.committer import Owner
from zero_rename.committer.commit.narrowed_run import leave_narrowing, read_narrowing
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.spark import save

pytestmark = pytest.mark.spark
RUN = "backfill/january/load"
_OF_A_TASK = {
    "idempotency_key": RUN,
    "onRepeat": "replace_own",
    "dag": "d",
    "run": "january",
    "task": "load",
}


def by_save(frame: Any, url: str, options: dict[str, str]) -> None:
    save(frame, url, partition_by=["day"], mode="overwrite", options=options)


def by_the_data_source(frame: Any, url: str, options: dict[str, str]) -> None:
    said = {"path": url, "partitionBy": "day", **options}
    frame.write.format("zero_rename").mode("overwrite").options(**said).save()


def leave_word(table: Table, *partitions: str) -> None:
    job, versions = table.job_of_key(RUN), table.snapshot().versions
    assert job is not None
    named = {name: versions[name] for name in partitions}
    said = Narrowing(new_write_id(), RUN, job, named, 3600, Owner(task_id="again"))
    left = table.run(read_narrowing(table.root, RUN))
    assert table.run(leave_narrowing(table.root, said, left))


@pytest.mark.parametrize("write", [by_save, by_the_data_source])
def test_what_is_not_named_stays(
    spark: Any, s3_bucket: Any, write: Callable[[Any, str, dict[str, str]], None]
) -> None:
    table = Table(f"s3://{s3_bucket.name}/lake/table")

    def load(value: int, clear: int) -> None:
        rows = spark.range(0, 30, 1, 3).selectExpr("id % 3 day", f"id + {value} value")
        series = f"2026-01-01 1 {clear}"
        write(rows, table.root.url, {**_OF_A_TASK, "series": series})

    def values() -> dict[int, int]:
        rows = table.to_arrow().to_pylist()
        assert len(rows) == 30
        return {row["day"]: row["value"] // 1000 for row in rows}

    load(1000, clear=0)
    leave_word(table, "day=1")
    load(2000, clear=1)
    assert values() == {0: 1, 1: 2, 2: 1}
    assert dict(table.snapshot().versions) == {"day=0": 1, "day=1": 2, "day=2": 1}
    job = table.job_of_key(RUN)
    assert job is not None
    done = table.result(job)
    assert done is not None
    assert (done.rows, done.left_out) == (10, 20)
    # Who clears the task himself has all of it again.
    load(3000, clear=2)
    assert values() == {0: 3, 1: 3, 2: 3}
    assert table.verify() == []
