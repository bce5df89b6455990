"""Spark and tables of coordination *none*."""

from __future__ import annotations

import pytest

from support.spark_tables import rows, write
from zero_rename import Table

pytestmark = pytest.mark.spark


def test_a_store_that_coordinates_nothing_can_still_be_written(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/lake/alone"
    frame = spark.createDataFrame([(1, "x"), (2, "y")], "n int, p string").repartition(2)
    for mode in ("append", "append", "overwrite"):
        write(frame, url, mode, partitionBy="p", coordination="none")
    found = spark.read.format("zero_rename").load(url)
    assert rows(found) == rows(frame)
    assert s3_bucket.keys("lake/alone/_zero_rename/heads/") == []
    assert s3_bucket.keys("lake/alone/_zero_rename/open/") == []
    assert s3_bucket.uploads() == []
    with pytest.raises(Exception, match="coordination is none"):
        write(frame, url)
    with pytest.raises(Exception, match="idempotency key needs a head"):
        write(frame, url, coordination="none", idempotency_key="run")
    assert Table(url).to_arrow().num_rows == 2
