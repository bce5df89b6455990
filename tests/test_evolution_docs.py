"""docs/schema-evolution.md: its example runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename import Table

PAGE = Path(__file__).resolve().parent.parent / "docs/schema-evolution.md"


def test_the_example_for_plain_python_runs(
    s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{s3_bucket.name}/flights"
    rows = pa.table({"day": ["2013-01-01"], "delay": pa.array([20], pa.int32())})
    with Table(url).job(rows.schema, partition_by=["day"]) as job:
        job.write(rows)
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    exec(examples[0].replace("s3://bucket/flights", url), {})
    assert capsys.readouterr().out.split() == ["int64", "1"]
    assert Table(url).to_arrow(columns=["delay"]).column("delay").to_pylist() == [20, 2**40]
