"""The torture can fail: what it would report, reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torture.inspection import inspect
from torture.loads import Difference, Ledger, Load
from torture.phases import Phase, Target
from torture.proxy import Seen
from torture.servers import Store

from zero_rename import FileOptions, JobSpec, Table

JOB = "zr1-00000000000000000000000000"
LOAD = Load(1, "append", (1, 2), rows=2, rows_per_file=1)


class TestInspection:
    @pytest.fixture
    def table(self, url: str, ledger: Ledger) -> Table:
        table = Table(url)
        for number in (1, 2):
            load = replace(LOAD, number=number)
            files = FileOptions(rows_per_file=1)
            with table.job(load.table().schema, partition_by=("day",), files=files) as job:
                job.write(load.table())
            assert job.job is not None
            ledger.attempts.append((job.job, load))
            ledger.commit(job.job, load)
        return table

    @pytest.fixture
    def ledger(self) -> Ledger:
        return Ledger()

    def test_nothing_is_wrong(self, table: Table, ledger: Ledger, store: Store) -> None:
        found = inspect(table, store.client(), ledger)
        assert not found.rows
        assert found.left == ()

    def test_a_lost_and_a_doubled_file(
        self, table: Table, ledger: Ledger, store: Store, s3_bucket: Any
    ) -> None:
        first, *_, last = sorted(file.key for file in table.files())
        s3_bucket.put(f"{last.rpartition('/')[0]}/copy.parquet", s3_bucket.read(last))
        found = inspect(table, store.client(), ledger)
        assert found.rows == Difference(0, 1, 0)
        assert any("unnamed" in left for left in found.left)
        s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=first)
        found = inspect(table, store.client(), ledger)
        assert found.rows == Difference(1, 1, 0)
        assert any("missing" in left for left in found.left)

    def test_rows_of_a_job_that_nobody_committed(
        self, table: Table, ledger: Ledger, store: Store
    ) -> None:
        without = Ledger(attempts=ledger.attempts)
        job, load = ledger.attempts[0]
        without.commit(str(job), load)
        found = inspect(table, store.client(), without)
        assert found.rows == Difference(0, 0, 4)
        assert any("is committed and was not" in left for left in found.left)

    def test_what_an_open_job_leaves(
        self, table: Table, ledger: Ledger, store: Store, s3_bucket: Any
    ) -> None:
        opened = table.open_job(JobSpec(LOAD.table().schema))
        writer = table.task_writer(opened, 0, 0)
        writer.write(LOAD.table())
        writer.close()
        left = inspect(table, store.client(), ledger).left
        assert [entry.split()[0] for entry in left] == ["open", "upload", "upload"]


def seen(operation: str, key: str) -> Seen:
    return Seen(operation, f"t/{key}", 1)


LIFE = [
    (seen("PutObject", f"_zero_rename/open/{JOB}.json"), Phase.OPENING),
    (seen("GetObject", "_zero_rename/table.json"), Phase.OPENING),
    (seen("CreateMultipartUpload", "_zero_rename/probe/x"), Phase.OPENING),
    (seen("CreateMultipartUpload", f"day=1/part-0-{JOB}-0.parquet"), Phase.WRITING),
    (seen("PutObject", "_zero_rename/heads/day=1.json"), Phase.CLAIMING),
    (seen("PutObject", f"_zero_rename/open/{JOB}.json"), Phase.CLAIMING),
    (seen("PutObject", f"_zero_rename/jobs/{JOB}.json"), Phase.DECIDING),
    (seen("CompleteMultipartUpload", f"day=1/part-0-{JOB}-0.parquet"), Phase.APPLYING),
    (seen("PutObject", "_zero_rename/heads/day=1.json"), Phase.APPLYING),
    (seen("ListMultipartUploads", ""), Phase.CLOSING),
    (seen("DeleteObject", f"_zero_rename/open/{JOB}.json"), Phase.CLOSING),
]


@pytest.mark.parametrize(
    ("phase", "number", "struck"),
    [(Phase.STARTING, 5, 0), (Phase.OPENING, 1, 1), (Phase.WRITING, 9, 4), (Phase.DECIDING, 0, 6)],
)
def test_a_target_is_struck_once_at_the_latest_when_its_phase_is_over(
    phase: Phase, number: int, struck: int
) -> None:
    target = Target(phase, number)
    hits = [target(at, request) for at, (request, _) in enumerate(LIFE)]
    assert hits.index(True) == struck
    assert target.struck_in == LIFE[-1][1]
