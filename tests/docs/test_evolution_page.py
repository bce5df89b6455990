"""docs/schema-evolution.md: its examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename import Table

PAGE = Path(__file__).resolve().parents[2] / "docs/schema-evolution.md"


def test_the_examples_for_plain_python_run(
    s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{s3_bucket.name}/flights"
    rows = pa.table({"day": ["2013-01-01"], "delay": pa.array([20], pa.int32())})
    with Table(url).job(rows.schema, partition_by=["day"]) as job:
        job.write(rows)
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    exec(examples[0].replace("s3://bucket/flights", url), names)
    assert capsys.readouterr().out.split() == ["int64", "1"]
    assert Table(url).to_arrow(columns=["delay"]).column("delay").to_pylist() == [20, 2**40]
    exec(examples[2], names)
    assert Table(url).to_arrow().to_pylist() == [{"delay": "late", "day": "2013-01-02"}]
