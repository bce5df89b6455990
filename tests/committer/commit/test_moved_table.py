"""Tables whose objects were moved or copied to another root without ``zero-rename copy``."""

from __future__ import annotations

import pytest
from conftest import Bucket

from support.day_rows import load, values
from zero_rename import Table
from zero_rename.committer import RecordDamagedError

pytestmark = pytest.mark.memory_s3
FEW, FOLDED = 3, 40
loads = pytest.mark.parametrize("loads", [FEW, FOLDED])


def move(bucket: Bucket, old: str, new: str) -> None:
    """Move all objects, as ``aws s3 mv --recursive`` does."""
    for key in bucket.keys(f"{old}/"):
        target = f"{new}{key.removeprefix(old)}"
        source = {"Bucket": bucket.name, "Key": key}
        bucket.client.copy_object(Bucket=bucket.name, Key=target, CopySource=source)
        bucket.client.delete_object(Bucket=bucket.name, Key=key)


def moved(bucket: Bucket, loads: int) -> Table:
    old = Table(f"s3://{bucket.name}/flights")
    for number in range(loads):
        load(old, number)
    assert bool(bucket.keys("flights/_zero_rename/manifests/")) is (loads == FOLDED)
    move(bucket, "flights", "archive")
    return Table(f"s3://{bucket.name}/archive")


@loads
def test_error_says_that_the_table_was_moved(s3_bucket: Bucket, loads: int) -> None:
    """It spoke of a damaged member, to be restored from a backup."""
    table = moved(s3_bucket, loads)
    with pytest.raises(RecordDamagedError, match="was moved or copied object by object") as caught:
        values(table)
    assert "zero-rename copy" in (caught.value.remedy or "")


@loads
@pytest.mark.parametrize("run", [None, "run 0", "another run"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_load_is_refused(s3_bucket: Bucket, loads: int, run: str | None, mode: str) -> None:
    """Its rows could not be read there, and were not in the table once that was moved back."""
    table = moved(s3_bucket, loads)
    before = s3_bucket.keys("archive/")
    with pytest.raises(RecordDamagedError, match="was moved or copied object by object"):
        load(table, 7, idempotency_key=run, mode=mode)
    assert s3_bucket.keys("archive/") == before


def test_replica_of_another_bucket_takes_loads(s3_bucket: Bucket) -> None:
    """Records do not name the bucket."""
    table = Table(f"s3://{s3_bucket.name}/flights")
    load(table, 1)
    move(s3_bucket, "flights", "elsewhere")
    move(s3_bucket, "elsewhere", "flights")
    load(Table(f"s3://{s3_bucket.name}/flights"), 2)
    assert values(table) == [1, 2]


@loads
def test_upkeep_leaves_it_whole(s3_bucket: Bucket, loads: int) -> None:
    table = moved(s3_bucket, loads)
    table.recover(0.0)
    table.gc(0.0, apply=True)
    table.purge(records_older_than=0.0, apply=True)
    (left,) = table.compact(apply=True)
    assert left.job is None
    move(s3_bucket, "archive", "flights")
    assert values(Table(f"s3://{s3_bucket.name}/flights")) == list(range(loads))
